"""Warnings about a running job, as HTML for Telegram."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from bot.telegram_html import CAPTION_UNITS, Shrink, escape, fit, pre
from bot.text.job_words import command_line, heading
from runner.api.chat import clock, format_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runner.model import Job

UNLESS_KEPT, UNLESS_EXTENDED = "unless it is kept or works again", "unless it is extended"
_STOP = re.compile(rf"(?: and|\nIt) will be stopped [^\n]*{UNLESS_KEPT}")
_LIMIT = re.compile(rf"will be stopped [^\n]*{UNLESS_EXTENDED}: its limit of")


def answered(html: str) -> str:
    """Return the warning without its announced stop, for a job that somebody has kept or extended."""
    return _LIMIT.sub("had a limit of", _STOP.sub("", html))


def idle_warning(found: Job, data: Mapping[str, Any], box: str) -> str:
    """Warn that a job's GPUs are idle and that it will be stopped."""
    shown = str(data.get("text") or data.get("why", ""))
    return fit([_is_idle(found, data, box), Shrink(shown, pre, keep="end", at_least=200)])


def idle_caption(found: Job, data: Mapping[str, Any], box: str) -> str:
    """Return the same warning as the caption of a picture, which shows the samples."""
    return fit([_is_idle(found, data, box), escape(str(data.get("why", "")))], CAPTION_UNITS)


def _is_idle(found: Job, data: Mapping[str, Any], box: str) -> str:
    return f"💤 {heading(found)} on {escape(box)} is idle and {_will_be_stopped(data)} {UNLESS_KEPT}\n"


def _will_be_stopped(data: Mapping[str, Any]) -> str:
    due = clock.moment(data.get("stops_at"))
    return f"will be stopped at {due.astimezone():%H:%M:%S}" if due else "will be stopped soon"


def time_warning(found: Job, data: Mapping[str, Any], box: str) -> str:
    """Warn that a job is close to its time limit."""
    limit = format_duration(float(data.get("limit_s") or 0.0))
    at_most = data.get("more_s") is not None and data["more_s"] <= 0
    longest, unless = (", the longest that is allowed here", "") if at_most else ("", f" {UNLESS_EXTENDED}")
    stops = f"{_will_be_stopped(data)}{unless}: its limit of {limit}{longest}"
    said = f"⏰ {heading(found)} on {escape(box)} {stops}\n"
    return fit([said, command_line(found)])


def looks_hung(found: Job, data: Mapping[str, Any], box: str) -> str:
    """Warn that a job looks hung: its GPUs look busy, but it makes no progress."""
    said = f"🧊 {heading(found)} on {escape(box)} {escape(str(data.get('why', 'looks hung')))}\n"
    if data.get("stops_at"):
        only = " if another job waits for its GPUs," if data.get("yields") else ""
        said += f"It {_will_be_stopped(data)}{only} {UNLESS_KEPT}\n"
    return fit([said, command_line(found)])
