"""Reads a job's output for the chat: its end, a page of it, lines with a word, or the lines that say why it failed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bot.text import keyboards, log_excerpt, views
from bot.text.log_pages import PAGE_LINES, find, page_after, page_before
from runner.api.chat import error_line
from runner.errors import UserError
from runner.model import State

if TYPE_CHECKING:
    from bot.chat import Chat
    from bot.secrets.redact import Redactor
    from bot.text.keyboards import Place
    from bot.text.log_pages import LogPage
    from runner.api.chat import Log
    from runner.model import Job

WHY_UNITS = 2500


async def log_view(chat: Chat, job: Job, place: Place) -> tuple[str, keyboards.Rows]:
    """Return a part of a job's output as a message and its buttons. Files are read outside the event loop."""
    output, redactor = readable(chat, job, place.get("attempt")), chat.redactor_for(job)
    if "error" in place and job.state.final and job.state is not State.SUCCEEDED:
        why = await asyncio.to_thread(_why, output, redactor, job)
        return views.failure(job, why), [[keyboards.newest(job)], *keyboards.of_whole_log(job)]
    place = {"find": "error"} if "error" in place else place
    page = await asyncio.to_thread(_page, output, redactor, place)
    is_end = not place.keys() - {"lines"}
    why = await asyncio.to_thread(_why, output, redactor, job) if is_end and job.state is State.FAILED else ""
    why = "" if (error_line(why) or "") in page.text else why
    return views.output(job, page, _note(job, page, place), why), keyboards.of_log(job, page, place)


async def newest_page(chat: Chat, job: Job) -> LogPage:
    """Return the end of a job's output."""
    return await asyncio.to_thread(page_before, readable(chat, job), chat.redactor_for(job))


def readable(chat: Chat, job: Job, attempt: int | None = None) -> Log:
    """Return a job's output. Raise UserError if there is none, or if it must not be shown in the chat."""
    if not job.attempt:
        raise UserError(f"#{job.id} has not started yet, so there is no output.")
    if not chat.settings.log_text:
        raise UserError("Output is not shown in this chat (NIGHTSHIFT_LOG_TEXT). On the box, use `nightshift log`")
    return chat.queue.view.log(job.id, attempt)


def _page(output: Log, redactor: Redactor, place: Place) -> LogPage:
    if "find" in place:
        return find(output, redactor, place["find"], place.get("end"))
    if "begin" in place:
        return page_after(output, redactor, place["begin"])
    return page_before(output, redactor, place.get("end"), place.get("lines", PAGE_LINES))


def _why(output: Log, redactor: Redactor, job: Job) -> str:
    text = log_excerpt.presentable(output.tail(log_excerpt.LOG_BYTES), redactor)
    return log_excerpt.what_matters(text, limit=WHY_UNITS, stopped=job.state is State.CANCELLED)


def _note(job: Job, page: LogPage, place: Place) -> str:
    """Return where in the output a page is."""
    if "find" in place:
        lines = page.text.count("\n") + 1 if page.text else 0
        return f"{lines or 'no'} line{'' if lines == 1 else 's'} with “{place['find']}”"
    if page.has_newer:
        return f"at {100 * page.end // page.size} %"
    return "so far" if job.state is State.RUNNING else ""
