"""More time for jobs: keeping idle ones, extending time limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.handlers.kill import require_owner
from bot.roles import Role
from bot.telegram_html import escape, fit
from runner.api.chat import parse_duration
from runner.errors import UserError

if TYPE_CHECKING:
    from bot.inbound.turn import Turn


async def keep(turn: Turn, rest: str) -> None:
    """Keep jobs from being stopped as idle or hung: for a while, or for good."""
    turn.require(Role.USER)
    told = rest.split()
    duration = told.pop() if told and not told[-1].lstrip("#").isdigit() and (len(told) > 1 or turn.reply_to) else None
    for_s = parse_duration(duration) if duration else None
    jobs = [turn.job(number) for number in turn.numbers(" ".join(told), "`/keep 12` or `/keep 12 2h`")]
    for job in jobs:
        require_owner(turn, job)
    with turn.effect():
        said = [turn.queue.keep(job.id, for_s) for job in jobs]
        turn.reply(fit([escape("\n".join(said))]), job_id=jobs[0].id if len(jobs) == 1 else None)


async def extend(turn: Turn, rest: str) -> None:
    """Extend the time limit of jobs."""
    turn.require(Role.USER)
    told = rest.split()
    if not told or told[-1].lstrip("#").isdigit():
        raise UserError("Send `/extend 12 2h`, or reply to a job's message with `/extend 2h`")
    by_s = parse_duration(told.pop())
    jobs = [turn.job(number) for number in turn.numbers(" ".join(told), "`/extend 12 2h`")]
    for job in jobs:
        require_owner(turn, job)
    with turn.effect():
        said = [turn.queue.extend(job.id, by_s) for job in jobs]
        turn.reply(fit([escape("\n".join(said))]), job_id=jobs[0].id if len(jobs) == 1 else None)
    for job in jobs:
        turn.queue.pass_on_limit(job.id)
