"""The order of waiting jobs: moving, holding and releasing them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.handlers.edit import numbers_and_rest
from runner.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from bot.inbound.turn import Turn

MOVE_LIKE = "`/move 12 first`, sooner, later or last, or `/move 12 after 14`"


async def move(turn: Turn, rest: str) -> None:
    """Move a job among its owner's waiting jobs of the same priority."""
    numbers, rest = numbers_and_rest(turn, rest, MOVE_LIKE)
    words = rest.lower().split()
    if len(numbers) != 1 or not 1 <= len(words) <= 2:
        raise UserError(f"Where to? Send {MOVE_LIKE}.")
    where, other = words[0].lstrip("-"), turn.numbers(words[1], MOVE_LIKE)[0] if len(words) == 2 else None
    with turn.effect():
        jobs = turn.own_jobs(numbers)
        turn.report([turn.queue.order.move(jobs[0].id, where, other)], jobs)


async def hold(turn: Turn, rest: str) -> None:
    """Keep jobs from starting."""
    _do_to_each(turn, rest, "`/hold 12`", turn.queue.order.hold)


async def release(turn: Turn, rest: str) -> None:
    """Let held jobs start."""
    _do_to_each(turn, rest, "`/release 12`", turn.queue.order.release)


def _do_to_each(turn: Turn, rest: str, example: str, act: Callable[[int], str]) -> None:
    numbers = turn.numbers(rest, example)
    with turn.effect():
        jobs = turn.own_jobs(numbers)
        turn.report([act(job.id) for job in jobs], jobs)
