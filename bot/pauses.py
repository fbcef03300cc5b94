"""The breaker in words: it holds the queue, or lets it go on. HTML that Telegram takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.richtext import bold, escape, fit
from runner.api.chat import clock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def paused(data: Mapping[str, Any], box: str) -> str:
    """The breaker holds the queue."""
    then = f"Running jobs go on. {_how_it_is_tried(data)} Resume if nothing is wrong with the box."
    return fit([f"⏸ {bold(box)} is paused: {escape(str(data['why']))}\n", f"{_numbers(data.get('jobs', ()))}. {then}"])


def _how_it_is_tried(data: Mapping[str, Any]) -> str:
    if not data.get("again"):
        return "No more start."
    due = clock.moment(data["try_at"])
    if due is None:
        return "I try the next job as soon as it can start."
    at = f"at {due.astimezone():%H:%M}"
    return (
        f"No more start. I try one job {at}."
        if data["tries"]
        else (f"No more like them start. I try a job of another kind as soon as one waits, else one like them {at}.")
    )


def goes_on(data: Mapping[str, Any], box: str) -> str:
    """One job has shown that the box is well."""
    failed, held = _numbers(data.get("jobs", ())), data.get("held", ())
    if not held:
        return fit([f"▶️ {bold(box)} goes on: #{data['trial']} runs."])
    count = "1 job" if len(held) == 1 else f"{len(held)} jobs"
    return fit(
        [
            f"⏸ {count} held on {bold(box)}: {escape(str(data['why']))}\n",
            f"{failed}. Those like them wait until somebody releases them. The others go on: #{data['trial']} runs.",
        ]
    )


def _numbers(jobs: Sequence[int]) -> str:
    """Each job once, however many of its attempts failed."""
    return ", ".join(f"#{number}" for number in dict.fromkeys(jobs))
