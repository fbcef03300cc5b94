"""A job's whole output as a file for the chat, with nothing secret in it."""

from __future__ import annotations

import asyncio
import gzip
from typing import TYPE_CHECKING, Any, NamedTuple

from bot.outbound.group_results import results_of
from runner.api import groups
from runner.errors import NightshiftError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.chat import Chat
    from bot.secrets.redact import Redactor
    from runner.api.chat import Log

LARGEST = 45 << 20  # Telegram takes 50 MB; half a log is better than a refusal
COMPRESS_FROM = 4 << 20


class Document(NamedTuple):
    """A file to send."""

    name: str
    content: bytes
    caption: str | None


async def document_for(chat: Chat, body: Mapping[str, Any]) -> Document | None:
    """What a message says is to be sent; None if there is nothing of it."""
    if "csv_of" in body:
        return await results_document(chat, str(body["csv_of"]))
    return await log_document(chat, int(body["log_of"]))


def missing(body: Mapping[str, Any]) -> str:
    """What to say instead."""
    if "csv_of" in body:
        return f"There is no group {body['csv_of']} any more."
    return f"There is no output of #{body['log_of']} to send."


def not_taken(body: Mapping[str, Any]) -> str:
    """What to say where the file was refused."""
    what = f"the results of {body['csv_of']}" if "csv_of" in body else f"the output of #{body['log_of']}"
    there = f"nightshift group {body['csv_of']} --csv" if "csv_of" in body else f"nightshift log {body['log_of']}"
    return f"⚠️ I could not send {what} as a file: {body['refused']}. On the box: {there}"


async def results_document(chat: Chat, group: str) -> Document | None:
    """What came of a group's jobs, for a spreadsheet."""
    try:
        results = await results_of(chat, group)
    except NightshiftError:
        return None
    return Document(f"{group}.csv", groups.as_csv(results).encode("utf-8", "replace"), None)


async def log_document(chat: Chat, job_id: int) -> Document | None:
    """The output of a job's latest attempt; None if there is none."""
    try:
        job = chat.queue.job(job_id)
        output = chat.queue.log(job_id)
    except NightshiftError:
        return None
    return await asyncio.to_thread(_document, job_id, output, chat.redactor_for(job))


def _document(job_id: int, output: Log, redactor: Redactor) -> Document | None:
    content = b"".join(redactor.stream(piece for _, piece in output.parts()))
    if not content.strip():
        return None
    name, caption = f"job-{job_id}.log", None
    if len(content) > COMPRESS_FROM:
        name, content = f"{name}.gz", gzip.compress(content, 3, mtime=0)
    if len(content) > LARGEST:
        tail = b"".join(redactor.stream([output.tail(LARGEST)]))[-LARGEST:]
        name, content, caption = f"job-{job_id}-end.log", tail, "The end of it; the whole is too large for Telegram."
    return Document(name, content, caption)
