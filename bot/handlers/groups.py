"""Groups of jobs: queueing a sweep, and showing, changing, stopping or rerunning a group."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from bot.chat import Picture
from bot.handlers import submit
from bot.outbound.group_results import results_of
from bot.pictures import plots
from bot.roles import Role
from bot.telegram_html import escape, fit
from bot.text import group_words, keyboards
from runner.api import groups
from runner.api.chat import read_text, sweep_options, sweeps
from runner.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.inbound.turn import Turn

LISTED = 10
NO_SWEEP = "Which values? Send it like this:\n`/sweep python train.py --lr {lr} --bs {bs} ; lr=1e-3,5e-4 bs=32,64`"
NO_SWEEP += "\nBefore the command as with /submit, and --at-most 2, --metric val_loss, -n 20 for lr=log:1e-5..1e-2"
ONE_NAME = "Which group? Send `/group sweep-1`, or /group alone for a list of them."


async def sweep(turn: Turn, rest: str) -> None:
    """Queue a command for each combination of its parameters, as one group."""
    turn.require(Role.USER)
    if not rest.strip():
        raise UserError(NO_SWEEP)
    values, text = read_text(rest, (*sweep_options.CHOOSING, *sweep_options.OF_A_GROUP))
    asked = sweeps.parse_text(text)
    metric = sweep_options.metric_in(values)
    chosen = sweeps.combinations(
        asked.parameters, samples=values.get("samples"), shuffled=values.get("mode") != sweep_options.GRID,
        seed=values.get("seed"),
    )  # fmt: skip
    group = values.get("group")
    if group and (metric or "at_most" in values) and turn.chat.queue.groups.get(group):
        _require_owner_of_group(turn, group)
    template = groups.Template(
        group=group, command=asked.command, parameters=groups.kept_values(asked.parameters),
        at_most=values.get("at_most"), metric=metric,
    )  # fmt: skip
    wanted = [({**values, "parameters": one}, sweeps.filled(asked.command, one)) for one in chosen]
    await submit.queue_sweep(turn, wanted, template)


async def group(turn: Turn, rest: str) -> None:
    """Show a group's progress and results. With options, change it. Without a name, list the latest groups."""
    values, text = read_text(rest, sweep_options.OF_A_GROUP)
    names = text.split()
    if unknown := sorted(set(values) - {option.key for option in sweep_options.OF_A_GROUP}):
        raise UserError(f"A group takes --at-most and --metric here, not {unknown[0].replace('_', ' ')}.")
    if not names and not values:
        found = [groups.standing(turn.chat.queue, name) for name in turn.chat.queue.groups.latest(LISTED)]
        turn.reply(group_words.listed(found))
        return
    if len(names) != 1:
        raise UserError(ONE_NAME)
    changes: dict[str, Any] = {"at_most": values["at_most"]} if "at_most" in values else {}
    if metric := sweep_options.metric_in(values):
        changes["metric"] = metric
    if changes:
        _require_owner_of_group(turn, names[0])
        with turn.effect():
            said = groups.change(turn.queue, names[0], changes)
            turn.reply(fit([escape(said)]), keyboards.of_group(groups.standing(turn.chat.queue, names[0])))
        return
    await show(turn, names[0])


def _require_owner_of_group(turn: Turn, name: str) -> None:
    """Raise UserError unless the caller made the group or is an admin."""
    turn.require(Role.USER)
    owner = groups.find(turn.chat.queue, name).owner
    if owner != turn.caller.actor and not turn.is_admin:
        raise UserError(f"{name} belongs to {turn.chat.name_of(owner or '?')}: only they or an admin may change it.")


async def show(turn: Turn, name: str) -> None:
    """Show a group, with a picture if one can be drawn."""
    results = await results_of(turn.chat, name)
    standing = groups.standing(turn.chat.queue, name)
    plot = plots.of_results(results)
    picture = Picture(plot, group_words.status(standing, results, below_a_picture=True)) if plot else None
    with turn.effect():
        turn.answer()
        turn.reply(group_words.status(standing, results), keyboards.of_group(standing), picture=picture)


def is_group(turn: Turn, word: str) -> bool:
    """Return whether this word is the name of a group."""
    return turn.chat.queue.groups.get(word) is not None


def to_stop(turn: Turn, name: str) -> list[int]:
    """Return the group's waiting and running jobs that the caller may stop. Raise UserError if there are none."""
    groups.find(turn.chat.queue, name)
    found = turn.chat.queue.groups.unfinished(name)
    if not found:
        raise UserError(f"Nothing of {name} waits or runs.")
    return _theirs(turn, name, found)


def _theirs(turn: Turn, name: str, found: Sequence[groups.Member]) -> list[int]:
    turn.require(Role.USER)
    mine = [one.id for one in found if turn.is_admin or one.owner == turn.caller.actor]
    if not mine:
        owners = sorted({turn.chat.name_of(one.owner) for one in found})
        raise UserError(f"{name} belongs to {', '.join(owners)}: only they or an admin may change it.")
    return mine


async def rerun_failed(turn: Turn, name: str) -> None:
    """Queue a group's failed jobs again, as far as the caller may change them. The caller owns the new jobs."""
    groups.find(turn.chat.queue, name)
    failed = turn.chat.queue.groups.failed(name)
    turn.require(Role.USER)
    if not failed:
        raise UserError(f"None of {name} has failed.")
    submit.refuse_too_many(turn, len(failed))
    turn.chat.rate.check(turn.caller.id, turn.sent_at, turn.update_id)
    await asyncio.to_thread(submit.reach, [turn.chat.queue.job(one.id).spec.dir for one in failed])
    with turn.effect():
        numbers = _theirs(turn, name, failed)
        keys = [f"update {turn.update_id}.{at}" for at in range(len(numbers))]
        made = groups.rerun(turn.queue, name, numbers, turn.caller.actor, keys)
        for job_id in made:
            turn.thread(job_id)
        standing = groups.standing(turn.chat.queue, name)
        turn.answer("queued again")
        turn.reply(
            group_words.queued(name, made, standing.group.at_most, None, again=True), keyboards.of_group(standing)
        )
