"""Words of warning about a job that runs, as HTML that Telegram takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.richtext import CAPTION_UNITS, Shrink, escape, fit, pre
from bot.words import command_line, heading
from runner.api.chat import clock, format_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runner.model import Job


def idle_warning(found: Job, data: Mapping[str, Any], box: str) -> str:
    """A job's GPUs do nothing, and it will be stopped if nobody minds."""
    shown = str(data.get("text") or data.get("why", ""))
    return fit([_will_be_stopped(found, data, box), Shrink(shown, pre, keep="end", at_least=200)])


def idle_caption(found: Job, data: Mapping[str, Any], box: str) -> str:
    """The same below a picture, which shows the samples."""
    return fit([_will_be_stopped(found, data, box), escape(str(data.get("why", "")))], CAPTION_UNITS)


def _will_be_stopped(found: Job, data: Mapping[str, Any], box: str) -> str:
    due = clock.moment(data.get("stops_at"))
    when = f"at {due.astimezone():%H:%M:%S}" if due else "soon"
    return f"💤 {heading(found)} on {escape(box)} is idle and will be stopped {when}\n"


def time_warning(found: Job, data: Mapping[str, Any], box: str) -> str:
    """A job's time is nearly up."""
    due = clock.moment(data.get("stops_at"))
    when = f"at {due.astimezone():%H:%M:%S}" if due else "soon"
    limit = format_duration(float(data.get("limit_s") or 0.0))
    longest = "" if data.get("more_s") is None or data["more_s"] > 0 else ", the longest that is allowed here"
    said = f"⏰ {heading(found)} on {escape(box)} will be stopped {when}: its limit of {limit}{longest}\n"
    return fit([said, command_line(found)])


def looks_hung(found: Job, data: Mapping[str, Any], box: str) -> str:
    """A job's GPUs spin and do no work, as far as one can see."""
    said = f"🧊 {heading(found)} on {escape(box)} {escape(str(data.get('why', 'looks hung')))}\n"
    if due := clock.moment(data.get("stops_at")):
        unless = " if another job waits for its GPUs" if data.get("yields") else ""
        said += f"It will be stopped at {due.astimezone():%H:%M:%S}{unless}\n"
    return fit([said, command_line(found)])
