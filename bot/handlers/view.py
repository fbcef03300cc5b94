"""Commands that show the box, the queue, a job, its output or the workspaces."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from bot.access.gate import STRANGER
from bot.chat import Rights
from bot.roles import Role
from bot.telegram_html import Shrink, bold, code, escape, fit
from bot.text import keyboards, log_excerpt, views
from bot.text.log_excerpt import LOG_BYTES, QUICK_BYTES
from runner.api.chat import clock
from runner.errors import UserError
from runner.model import State

if TYPE_CHECKING:
    from bot.chat import Chat
    from bot.inbound.turn import Turn
    from bot.secrets.redact import Redactor
    from runner.api.chat import Log
    from runner.model import Job
LOG_LINES, MOST_LINES = 30, 200
LOG_LIKE = "`/log 12` or `/log 12 50`"
PARKED_FOR = timedelta(hours=24)


async def start(turn: Turn, rest: str) -> None:  # noqa: ARG001
    """Greet the caller and name the first commands."""
    chat, caller = turn.chat, turn.caller
    first = "/submit queues a job, /status shows the box" if caller.role >= Role.USER else "/status shows the box"
    with turn.effect():
        turn.reply(
            f"🌙 This is nightshift on {bold(chat.settings.box)}. You are {caller.role.title} here.\n"
            f"{first}, /help lists all there is.",
            keyboards.of_status(),
        )
        if caller.private:
            chat.set_menu(caller.id)  # Telegram takes no menu for people who never wrote to the bot


async def help_(turn: Turn, rest: str) -> None:  # noqa: ARG001
    """List the commands that the caller may use."""
    turn.reply(views.help_text(turn.caller.role))


async def whoami(turn: Turn, rest: str) -> None:  # noqa: ARG001
    """Show the caller's id, role and number of unfinished jobs."""
    caller, chat = turn.caller, turn.chat
    person = chat.people.get(caller.id)
    how = "by the box's settings"
    if not chat.gate.is_from_settings(caller.id):
        how = f"paired by {chat.named(person.paired_by or '?')}"
    mine = len(chat.queue.unfinished_of(caller.actor))
    where = "" if caller.private else f"\nThis group is {code(str(caller.chat))}."
    turn.reply(
        f"You are {bold(caller.name)}, id {code(str(caller.id))}: {caller.role.word} of {bold(chat.settings.box)}, "
        f"{escape(how)}. {mine} of your jobs wait or run.{where}"
    )


async def status(turn: Turn, rest: str) -> None:
    """Show the box, or the jobs named."""
    if rest.strip() or turn.reply_to:
        numbers = turn.numbers(rest, "`/status 12`")
        if len(numbers) > 10:
            raise UserError("Ten jobs at once, please.")
        with turn.effect():
            for number in numbers:
                job = turn.job(number)
                turn.reply(job_view(turn.chat, job), keyboards.of_job(job, details=False), job_id=job.id)
        return
    turn.reply(*status_page(turn))


def status_page(turn: Turn) -> tuple[str, Any]:
    """Return the status of the box and its buttons. Admins also see undelivered messages and strangers."""
    view = views.BoxView(turn.chat)
    if turn.is_admin:
        view.parked = turn.chat.messages.parked(clock.text(clock.now() - PARKED_FOR))
        view.strangers = turn.chat.gate.turned_away[STRANGER]
    return views.status(view), keyboards.of_status(paused=bool(view.held))


def job_view(chat: Chat, job: Job) -> str:
    """Describe one job in full."""
    reason = chat.queue.waiting_reasons([job]).get(job.id)
    starts = chat.queue.outlook().start_words(job.id) if job.state is State.QUEUED else ""
    return views.job(
        job, indices=views.indices_of(chat.queue.gpus()), usage=chat.queue.usage(job.id),
        reason=chat.named(reason) if reason else None, name_of=chat.name_of, probe=chat.probe_of(job), starts=starts,
    )  # fmt: skip


async def gpus(turn: Turn, rest: str) -> None:  # noqa: ARG001
    """Show each GPU."""
    turn.reply(views.gpus(views.BoxView(turn.chat)), keyboards.of_gpus())


async def queue(turn: Turn, rest: str) -> None:  # noqa: ARG001
    """Show the queue, with buttons."""
    turn.reply(*queue_page(turn, 0))


def queue_page(turn: Turn, first: int) -> tuple[str, Any]:
    """Return one page of the queue and its buttons."""
    chat, rights = turn.chat, Rights(turn.chat, turn.caller.id)
    counts = chat.queue.overview()
    total = counts.queued + counts.not_yet
    first = max(0, min(first, (total - 1) // keyboards.QUEUE_PAGE * keyboards.QUEUE_PAGE))
    jobs = [chat.shown(job) for job in chat.listing.queued(keyboards.QUEUE_PAGE, skip=first)]
    reasons = {number: chat.named(why) for number, why in chat.queue.waiting_reasons(jobs).items()}
    held = chat.named(chat.queue.held() or ("" if chat.queue.runner_is_up() else "no runner is up: nothing starts"))
    theirs = {job.id for job in jobs if rights.may_change(job.id)}
    rows = keyboards.of_queue(jobs, first, total, theirs, paused=chat.queue.held() is not None)
    signs = keyboards.SIGNS if theirs else ""
    return views.queue(jobs, reasons, total, first, held, chat.queue.outlook(), signs), rows


async def log(turn: Turn, rest: str) -> None:
    """Show the end of a job's output, with a button for all of it."""
    which, *more = rest.split() or [""]
    if len(more) > 1 or not all(word.isascii() and word.isdigit() for word in more):
        raise UserError(f"One job at a time, and how many lines of it: send {LOG_LIKE}.")
    numbers = turn.numbers(which, LOG_LIKE)
    if which and len(numbers) > 1:
        raise UserError(f"One job at a time: send {LOG_LIKE}.")
    lines = min(max(int(more[0]), 1), MOST_LINES) if more else LOG_LINES
    job = turn.job(numbers[0])
    html = await log_view(turn.chat, job, lines)
    with turn.effect():
        turn.queue.audit.add(turn.caller.actor, "log", {"job": job.id})
        turn.reply(html, keyboards.of_log(job), job_id=job.id)


async def log_view(chat: Chat, job: Job, lines: int = LOG_LINES) -> str:
    """Return the end of a job's output as a message."""
    if not job.attempt:
        raise UserError(f"#{job.id} has not started yet: there is no output.")
    if not chat.settings.log_text:
        raise UserError("Output is not shown in the chat here (NIGHTSHIFT_LOG_TEXT). On the box: `nightshift log`")
    text = await asyncio.to_thread(_last_lines, chat.queue.log(job.id), chat.redactor_for(job), lines)
    return views.output(job, text, live=job.state is State.RUNNING)


def _last_lines(output: Log, redactor: Redactor, lines: int) -> str:
    """Return the last lines of an output. Read little of it first, and more only if a progress bar fills that.

    The first line read may be cut inside a secret, so it is not shown if there are others.
    """
    found: list[str] = []
    for size in (QUICK_BYTES, LOG_BYTES):
        kept = output.tail(size)
        found = log_excerpt.tail(log_excerpt.presentable(kept, redactor), lines + 1).split("\n")
        if len(found) > lines or len(kept) < size:
            break
    return "\n".join(found[-lines:])


async def workspaces(turn: Turn, rest: str) -> None:
    """List the workspaces or show one. Admins may choose the default."""
    words = rest.split()
    known = turn.chat.queue.workspaces
    if words[:1] == ["default"] and len(words) == 2:
        turn.require(Role.ADMIN)
        _make_default(turn, words[1])
        return
    if words:
        found = known.get(words[0])
        names = ", ".join(sorted(found.variables)) or "none"
        told = f"{bold(found.name)}{' (default)' if found.default else ''}\n{code(found.dir)}\nactivate: "
        rest_of_it = f"\nvariables: {escape(names)}\nenv file: {code(found.env_file or '–')}"
        turn.reply(fit([told, Shrink(found.activate or "–", code, keep="both"), rest_of_it]))
        return
    listed = [f"{'★ ' if one.default else '• '}{bold(one.name)} {code(one.dir)}" for one in known.all()]
    hint = "Run in one: `/submit -w NAME …`; the ★ is the default (`/ws default NAME`). On the box: `nightshift ws add`"
    none = ["No workspaces yet: jobs run in the account's home folder."]
    turn.reply(fit(["\n".join([*(listed or none), "", escape(hint)])]))


def _make_default(turn: Turn, name: str) -> None:
    from dataclasses import replace

    known = turn.chat.queue.workspaces
    with turn.effect():
        known.put(replace(known.get(name), default=True))
        turn.queue.audit.add(turn.caller.actor, "ws default", {"workspace": name})
        turn.reply(f"Jobs that name no workspace now run in {bold(name)}.")
