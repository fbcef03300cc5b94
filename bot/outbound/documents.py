"""A group's results, and files for the chat: a job's whole output without its secrets, or these results as CSV."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from bot.waiting import answer_of
from runner.api import groups
from runner.errors import NightshiftError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.chat import Chat
    from bot.secrets.redact import Redactor
    from runner.api.chat import Log

LARGEST = 45 << 20  # Telegram takes 50 MB; the end of a log is better than none
COMPRESS_FROM = 4 << 20
READ_S = 20.0
START_S = 10.0  # a process may take this long to start on a busy box


class Document(NamedTuple):
    """A file to send."""

    name: str
    content: bytes
    caption: str | None


async def document_for(chat: Chat, body: Mapping[str, Any]) -> Document | None:
    """Return the file that a message asks for; None if there is nothing to send or Telegram has refused it."""
    if "refused" in body:
        return None
    return await (_results(chat, str(body["csv_of"])) if "csv_of" in body else _log(chat, int(body["log_of"])))


def no_file(body: Mapping[str, Any]) -> str:
    """Say that there is nothing to send; or that Telegram refused the file, and how to get it on the box."""
    if "csv_of" in body:
        what, command = f"the results of {body['csv_of']}", f"nightshift group {body['csv_of']} --csv"
        missing = f"There is no group {body['csv_of']} any more."
    else:
        what, command = f"the output of #{body['log_of']}", f"nightshift log {body['log_of']}"
        missing = f"There is no output of #{body['log_of']} to send."
    if "refused" not in body:
        return missing
    return f"⚠️ I could not send {what} as a file: {body['refused']}. On the box: {command}"


async def _results(chat: Chat, group: str) -> Document | None:
    """Return a group's results as CSV; None if there is no such group."""
    try:
        results = await results_of(chat, group)
    except NightshiftError:
        return None
    return Document(f"{group}.csv", groups.as_csv(results).encode("utf-8", "replace"), None)


async def _log(chat: Chat, job_id: int) -> Document | None:
    """Return the output of a job's latest attempt; None if there is none."""
    try:
        job, output = chat.queue.job(job_id), chat.queue.view.log(job_id)
    except NightshiftError:
        return None
    return await asyncio.to_thread(_document, job_id, output, chat.redactor_for(job))


def _document(job_id: int, output: Log, redactor: Redactor) -> Document | None:
    content = b"".join(redactor.stream(output.parts()))
    if not content.strip():
        return None
    name, caption = f"job-{job_id}.log", None
    if len(content) > COMPRESS_FROM:
        name, content = f"{name}.gz", gzip.compress(content, 3, mtime=0)
    if len(content) > LARGEST:
        tail = b"".join(redactor.stream([output.tail(LARGEST)]))[-LARGEST:]
        name, content, caption = f"job-{job_id}-end.log", tail, "The end of it; the whole is too large for Telegram."
    return Document(name, content, caption)


async def results_of(chat: Chat, name: str) -> groups.Results:
    """Compare a group's jobs; without numbers if output must stay on the box or cannot be read in time."""
    stored = groups.find(chat.queue, name).metric if chat.settings.log_text else None
    metric = groups.Metric.from_json(stored)
    jobs = [chat.shown(job) for job in groups.members(chat.queue, name)]
    metric_values = groups.MetricValues({})
    if metric is not None and (folders := groups.folders(chat.queue, jobs)):
        question = json.dumps({"pattern": metric.pattern, "folders": folders, "within_s": READ_S})
        within_s = READ_S + START_S
        answer = await answer_of("runner.sweep.metrics", question, within_s=within_s, what="results could not be read")
        metric_values = _values(answer)
    return groups.compared(jobs, metric_values.values, metric, metric_values.trouble)


def _values(answer: bytes | None) -> groups.MetricValues:
    if answer is None:
        return groups.MetricValues({}, "the output of these jobs could not be read")
    read, trouble = json.loads(answer)
    return groups.MetricValues({int(number): groups.MetricValue(*value) for number, value in read.items()}, trouble)
