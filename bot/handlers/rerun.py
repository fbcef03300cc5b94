"""Running a job again: /rerun and its button."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bot.handlers.submit import acknowledge_job, reach, refuse_burst, submission, why_it_waits
from bot.text import keyboards
from bot.text.html import bold, code, shorten
from bot.text.job_words import heading
from runner.errors import UserError

if TYPE_CHECKING:
    from bot.inbound.turn import Turn
    from runner.api.chat import Argument
    from runner.model import Job


async def rerun(turn: Turn, rest: str) -> None:
    """Queue a job again, perhaps with other arguments; of a group, the jobs that failed."""
    first, _, more = rest.strip().partition(" ")
    if turn.chat.queue.groups.get(first) is not None:
        from bot.handlers.groups import rerun_failed

        if more.strip().lower() != "failed":
            raise UserError(f"To run the failed jobs of a group again, send `/rerun {first} failed`")
        await rerun_failed(turn, first)
        return
    first, more = turn.job_and_rest(rest)
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


def choose_argument(turn: Turn, job: Job) -> None:
    """Offer the arguments of a job's command: the one that is tapped gets another value."""
    rows = keyboards.of_arguments(job)
    if len(rows) == 1:
        raise UserError(f"#{job.id} has no arguments to change. Send the whole command with /submit instead.")
    turn.reply(f"Run {heading(job)} again with another …", rows, job_id=job.id)


def ask_value(turn: Turn, job: Job, argument: Argument) -> None:
    """Ask for the new value of an argument."""
    now = shorten(argument.value, 200)
    turn.ask(
        f"Send the new value of {bold(argument.name)} for {heading(job)} (now {code(now)}).",
        "rerun", f"{job.id} {argument.name}=",
    )  # fmt: skip
