"""Changing waiting jobs: any option, and the command."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from bot.handlers.submit import place_of, reach
from bot.text.html import Shrink, bold, code, escape, fit, pre
from runner.api.chat import read_text
from runner.api.edits import CLEAR, Edit, edited, options_of, to_copy
from runner.errors import UserError
from runner.model import State

if TYPE_CHECKING:
    from bot.inbound.turn import Turn
    from runner.model import Job


async def edit(turn: Turn, rest: str) -> None:
    """Change options or the command of waiting jobs. Without any change, explain how."""
    numbers, rest = numbers_and_rest(turn, rest, "`/edit 12 --time 4h`")
    jobs = turn.own_jobs(numbers)
    values, command = read_text(rest, (CLEAR,))
    command = command.strip()
    if not values and not command:
        turn.reply(how_to(jobs[0]), job_id=jobs[0].id)
        return
    place = await place_of(turn.chat, values["workspace"]) if "workspace" in values else None
    change = Edit(
        values=values, command=command or None, script="\n" in command, workspace=place.workspace if place else None,
        environment=(place.key, place.variables) if place else None,
    )  # fmt: skip
    await asyncio.to_thread(reach, [edited(job.spec, change).dir for job in jobs])
    if folders := {folder for job in jobs if (folder := to_copy(job.spec, change))}:
        change = replace(change, copies=await asyncio.to_thread(turn.queue.snapshots_of, folders))
    with turn.effect():
        turn.own_jobs(numbers)  # a login shell takes time: the caller may have lost their role
        html: list[str | Shrink] = [escape("\n".join(turn.queue.edit(job.id, change) for job in jobs))]
        if command:
            html += ["\n", Shrink(turn.job(jobs[0].id).spec.command, pre, keep="both")]
        turn.reply(fit(html), job_id=jobs[0].id if len(jobs) == 1 else None)


def how_to(job: Job) -> str:
    """Explain how to edit a job, with its present options. Raise UserError if it no longer waits."""
    if job.state is not State.QUEUED:
        raise UserError(f"#{job.id} no longer waits. Only a waiting job can be edited.")
    now = Shrink(f"{options_of(job.spec)} {job.spec.command}".strip(), pre if job.spec.script else code, keep="both")
    examples = (
        f"`/edit {job.id} --time 4h --priority high`\n`/edit {job.id} --clear time,after`\n"
        f"A new command may follow: `/edit {job.id} python train.py`"
    )
    return fit([f"To change {bold(f'#{job.id}')}, send for example\n{examples}\nNow it is\n", now])


def numbers_and_rest(turn: Turn, rest: str, example: str) -> tuple[list[int], str]:
    """Return the jobs named by the first word, or the ones the message replies to, and the text that follows."""
    first, rest = turn.job_and_rest(rest)
    return turn.numbers(first, example), rest
