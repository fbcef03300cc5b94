"""Changing waiting jobs: any option, and the command."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from bot.handlers.kill import require_owner
from bot.handlers.submit import place_of, reach
from bot.roles import Role
from bot.telegram_html import Shrink, bold, code, escape, fit, pre
from runner.api.chat import read_text
from runner.api.edits import CLEAR, Edit, edited, options_of, to_copy
from runner.errors import UserError
from runner.model import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.inbound.turn import Turn
    from runner.model import Job

_NUMBERS = re.compile(r"\s*(#?[0-9][0-9#,-]*)(?:\s+|$)")


async def edit(turn: Turn, rest: str) -> None:
    """Change options or the command of waiting jobs. Without any change, explain how."""
    turn.require(Role.USER)
    numbers, rest = numbers_and_rest(turn, rest, "`/edit 12 --time 4h`")
    jobs = changeable_jobs(turn, numbers)
    values, command = read_text(rest, (CLEAR,))
    command = command.strip()
    if not values and not command:
        turn.reply(how_to(jobs[0]), job_id=jobs[0].id)
        return
    place = await place_of(turn.chat, values["workspace"]) if "workspace" in values else None
    wanted = Edit(
        values=values, command=command or None, script="\n" in command, workspace=place.workspace if place else None,
        environment=(place.key, place.variables) if place else None,
    )  # fmt: skip
    await asyncio.to_thread(reach, [edited(job.spec, wanted).dir for job in jobs])
    if folders := {folder for job in jobs if (folder := to_copy(job.spec, wanted))}:
        wanted = replace(wanted, copies=await asyncio.to_thread(turn.queue.copies, folders))
    with turn.effect():
        changeable_jobs(turn, numbers)  # a login shell takes time: the caller may have lost their role
        said = "\n".join(turn.queue.edit(job.id, wanted) for job in jobs)
        parts: list[str | Shrink] = [escape(said)]
        if command:
            parts += ["\n", Shrink(turn.job(jobs[0].id).spec.command, pre, keep="both")]
        turn.reply(fit(parts), job_id=jobs[0].id if len(jobs) == 1 else None)


def how_to(job: Job) -> str:
    """Explain how to edit a job, with its present options. Raise UserError if it no longer waits."""
    if job.state is not State.QUEUED:
        raise UserError(f"#{job.id} does not wait any more: only a job that waits can be edited.")
    number = job.id
    examples = f"`/edit {number} --time 4h --priority high`\n`/edit {number} --clear time,after`"
    shown = f"{examples}\nA new command may follow: `/edit {number} python train.py`"
    parts: list[str | Shrink] = [f"To change {bold(f'#{number}')}, send for example\n{shown}\nNow it is\n"]
    parts.append(
        Shrink(f"{options_of(job.spec)} {job.spec.command}".strip(), pre if job.spec.script else code, keep="both")
    )
    return fit(parts)


def changeable_jobs(turn: Turn, numbers: Sequence[int]) -> list[Job]:
    """Return these jobs. Raise UserError if the caller may not change all of them."""
    jobs = [turn.job(number) for number in numbers]
    for job in jobs:
        require_owner(turn, job)
    return jobs


def numbers_and_rest(turn: Turn, rest: str, example: str) -> tuple[list[int], str]:
    """Return the jobs named by the first word, or the ones the message replies to, and the text that follows."""
    found = _NUMBERS.match(rest)
    return turn.numbers(found[1] if found else "", example), rest[found.end() :] if found else rest
