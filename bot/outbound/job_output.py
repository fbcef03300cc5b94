"""What a notice shows of an ended job's output: the part that says why it failed, without secrets."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from bot.text import log_excerpt
from bot.text.job_notices import NO_OUTPUT, JobOutput
from bot.text.log_excerpt import LOG_BYTES
from runner.model import Reason, State

if TYPE_CHECKING:
    from bot.chat import Chat
    from bot.secrets.redact import Redactor
    from runner.api.chat import Log
    from runner.model import Job
    from runner.notices import Ended

log = logging.getLogger(__name__)

EXCERPT_UNITS = 2500
HEAD_BYTES = 64 << 10  # wandb prints the link to its run at the start
STOPPED_BY_WATCHDOG = {Reason.IDLE, Reason.HUNG}


async def output_of(chat: Chat, job: Job, end: Ended) -> JobOutput:
    """Return what to show of an ended job's output; empty if it cannot be read."""
    if not end.attempt:
        return NO_OUTPUT
    try:
        if end.reason in STOPPED_BY_WATCHDOG and (evidence := chat.queue.view.evidence(job.id)):
            return JobOutput(str(evidence["text"]), evidence=evidence)
        if not chat.settings.log_text:
            return NO_OUTPUT
        output, redactor = chat.queue.view.log(job.id, end.attempt), chat.redactor_for(job)
        return await asyncio.to_thread(_excerpt, output, redactor, failed=end.state is not State.SUCCEEDED)
    except Exception:  # the message goes out without it
        log.exception("the output of job %s cannot be shown", job.id)
        return NO_OUTPUT


def _excerpt(output: Log, redactor: Redactor, *, failed: bool) -> JobOutput:
    text = log_excerpt.presentable(output.tail(LOG_BYTES), redactor)
    link = log_excerpt.wandb_link(text) or log_excerpt.wandb_link(
        log_excerpt.presentable(output.head(HEAD_BYTES), redactor)
    )
    return JobOutput(log_excerpt.what_matters(text, limit=EXCERPT_UNITS) if failed else "", link)
