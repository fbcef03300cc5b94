"""More time for jobs: keeping idle ones, extending time limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.inbound.turn import WhichJobError
from runner.api.chat import parse_duration

if TYPE_CHECKING:
    from bot.inbound.turn import Turn


async def keep(turn: Turn, rest: str) -> None:
    """Keep jobs from being stopped as idle or hung: for a while, or for good."""
    words = rest.split()
    for_s = _taken_duration(turn, words)
    numbers = turn.numbers(" ".join(words), "`/keep 12` or `/keep 12 2h`")
    with turn.effect():
        jobs = turn.own_jobs(numbers)
        turn.report([turn.queue.keep(job.id, for_s) for job in jobs], jobs)


async def extend(turn: Turn, rest: str) -> None:
    """Extend the time limit of jobs."""
    words = rest.split()
    by_s = _taken_duration(turn, words)
    numbers = turn.numbers(" ".join(words), "`/extend 12 2h`")
    if by_s is None:
        raise WhichJobError("By how much? Send `/extend 12 2h`", numbers, " ".join(words))
    with turn.effect():
        jobs = turn.own_jobs(numbers)
        turn.report([turn.queue.extend(job.id, by_s) for job in jobs], jobs)
    for number in numbers:
        turn.queue.pass_on_limit(number)


def _taken_duration(turn: Turn, words: list[str]) -> float | None:
    """Remove a duration at the end of the words and return it. A single word is one if no job can have that number."""
    if not words or words[-1].lstrip("#").isdigit():
        return None
    is_job = len(words) == 1 and turn.reply_to is None and not words[0][0].isdigit()
    return None if is_job else parse_duration(words.pop())
