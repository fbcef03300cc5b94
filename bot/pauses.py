"""The breaker in words: it holds the queue, or lets it go on. HTML that Telegram takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.richtext import bold, escape, fit
from runner.api.chat import clock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def paused(data: Mapping[str, Any], box: str) -> str:
    """The breaker holds the queue."""
    due = clock.moment(data.get("try_at"))
    again = f" I try one job at {due.astimezone():%H:%M}." if due else ""
    then = f"Running jobs go on, no more start.{again} Resume if nothing is wrong with the box."
    return fit([f"⏸ {bold(box)} is paused: {escape(str(data['why']))}\n", f"{_numbers(data.get('jobs', ()))}. {then}"])


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
    return ", ".join(f"#{number}" for number in jobs)
