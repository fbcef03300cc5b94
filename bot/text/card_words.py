"""The card of a job: one message that is changed in place from queued to ended, as HTML for Telegram."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.text import views
from bot.text.html import escape, fit, local_time
from bot.text.job_words import command_line, gpu_list, heading, sign
from runner.api.chat import chosen_metrics, duration_words, progress_words, short_time, state_words
from runner.model import State

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from bot.text.box_notices import NoticeContext
    from runner.model import Job


def card(
    job: Job, context: NoticeContext, now: datetime, *, reason: str | None, progress: Mapping[str, Any] | None,
    probe: str | None = None, metrics: bool = True,
) -> str:  # fmt: skip
    """Describe a job as it is now. `reason` says why it waits, `probe` how its batch was found.

    `metrics` is False where nothing of the output may be shown.
    """
    if job.state is State.QUEUED:
        return views.submitted(job, reason, job.spec.command, again=job.spec.again_of)
    if job.state.final:
        last = chosen_metrics(progress) if progress and metrics else []
        parts = [f"{sign(job)} {heading(job)} {escape(state_words(job))}", duration_words(job, now), *last]
        return fit([" · ".join([parts[0], *(escape(part) for part in parts[1:] if part)])])
    since = f"since {local_time(job.started_at, short_time(job.started_at, now))}" if job.started_at else ""
    again = f"attempt {job.attempt}" if job.attempt > 1 else ""
    where = " · ".join(part for part in (escape(gpu_list(job, context.indices)), since, again) if part)
    batch = probe or (f"batch {job.batch_size}" if job.batch_size else "")
    lines = [
        f"{sign(job)} {heading(job)} {escape(state_words(job))} on {escape(context.box)} · {where}",
        escape(progress_words(progress, now, metrics=metrics)),
        escape(batch),
        command_line(job),
    ]
    return fit(["\n".join(line for line in lines if line)])
