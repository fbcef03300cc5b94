"""Running a job again: /rerun and its button."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bot.handlers.submit import acknowledge_job, reach, refuse_burst, submission, why_it_waits
from runner.errors import UserError

if TYPE_CHECKING:
    from bot.inbound.turn import Turn


async def rerun(turn: Turn, rest: str) -> None:
    """Queue a job again, perhaps with other arguments; of a group, the jobs that failed."""
    first, _, more = rest.strip().partition(" ")
    if turn.chat.queue.groups.get(first) is not None:
        from bot.handlers.groups import rerun_failed

        if more.strip().lower() != "failed":
            raise UserError(f"To run the failed jobs of a group again, send `/rerun {first} failed`")
        await rerun_failed(turn, first)
        return
    if first and not first.lstrip("#").isdigit():
        first, more = "", rest.strip()
    job_id = turn.numbers(first, "`/rerun 12`")[0]
    await rerun_job(turn, job_id, more)


async def rerun_job(turn: Turn, job_id: int, changes: str = "") -> None:
    """Queue a job again, with the caller as its owner."""
    import shlex

    job = turn.job(job_id)
    refuse_burst(turn)
    try:
        words = shlex.split(changes)
    except ValueError:
        raise UserError("A quote is not closed. Send it like `/rerun 12 --lr 3e-4`") from None
    await asyncio.to_thread(reach, [job.spec.dir])
    with submission(turn, 1):
        new = turn.queue.rerun(job_id, words, key=f"update {turn.update_id}.0", owner=turn.caller.actor)
        turn.start_threads([new])
        made = turn.job(new)
        turn.answer(f"#{job.id} again, as #{new}")
        acknowledge_job(turn, made, why_it_waits(turn, made), again=job.id)
