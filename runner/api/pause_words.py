"""Say why the whole queue is paused. `submit` asks this each time, so it imports nothing of the scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner import clock
from runner.store.box import BoxKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.store.box import Box
    from runner.store.pause import Pause


def why_paused(box: Box, typed: Callable[[str], str]) -> str | None:
    """Return why no more jobs start (paused or draining) and how to resume; None if jobs may start."""
    pause = box.pause()
    goes_on = f"{typed('resume')} goes on"
    if pause and not pause.by_person:
        return f"the queue is paused, because {pause.why}{_trial_words(pause)}; {goes_on}"
    if pause:
        return f"the queue is paused by {pause.by}; {goes_on}"
    if box.any(BoxKey.DRAINING):
        return f"the box is draining, and no more jobs start; {goes_on}"
    return None


def _trial_words(pause: Pause) -> str:
    """Return, in words, which job tries a queue that the breaker paused, and when; empty if none does."""
    if pause.trial:
        return f", and #{pause.trial} shows whether it may go on"
    if not pause.again:
        return ""
    due = clock.moment(pause.try_at)
    if due is None:
        return ", and one job is tried as soon as it can start"
    at = f"at {clock.local(due):%H:%M}"
    if pause.tries:
        return f", and one job is tried {at}"
    return f", and a job of another kind is tried at once, or one like them {at}"
