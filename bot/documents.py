"""A job's whole output as a file for the chat, with nothing secret in it."""

from __future__ import annotations

import asyncio
import gzip
from typing import TYPE_CHECKING, NamedTuple

from runner.errors import NightshiftError

if TYPE_CHECKING:
    from bot.chat import Chat
    from bot.redact import Redactor
    from runner.api.chat import Log

LARGEST = 45 << 20  # Telegram takes 50 MB; half a log is better than a refusal
COMPRESS_FROM = 4 << 20


class Document(NamedTuple):
    """A file to send."""

    name: str
    content: bytes
    caption: str | None


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
