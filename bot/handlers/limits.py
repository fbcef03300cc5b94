"""More time for jobs: keeping idle ones, extending time limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.api.chat import parse_duration
from runner.errors import UserError

if TYPE_CHECKING:
    from bot.inbound.turn import Turn


async def keep(turn: Turn, rest: str) -> None:
    """Keep jobs from being stopped as idle or hung: for a while, or for good."""
    words = rest.split()
    has_duration = bool(words) and not _is_number(words[-1]) and (len(words) > 1 or turn.reply_to is not None)
    for_s = parse_duration(words.pop()) if has_duration else None
    numbers = turn.numbers(" ".join(words), "`/keep 12` or `/keep 12 2h`")
    with turn.effect():
        jobs = turn.own_jobs(numbers)
        turn.report([turn.queue.keep(job.id, for_s) for job in jobs], jobs)


async def extend(turn: Turn, rest: str) -> None:
    """Extend the time limit of jobs."""
    words = rest.split()
    if not words or _is_number(words[-1]):
        raise UserError("By how much? Send `/extend 12 2h`, or reply to a job's message with `/extend 2h`")
    by_s = parse_duration(words.pop())
    numbers = turn.numbers(" ".join(words), "`/extend 12 2h`")
    with turn.effect():
        jobs = turn.own_jobs(numbers)
        turn.report([turn.queue.extend(job.id, by_s) for job in jobs], jobs)
    for number in numbers:
        turn.queue.pass_on_limit(number)


def _is_number(word: str) -> bool:
    return word.lstrip("#").isdigit()
