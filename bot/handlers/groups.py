"""Groups of jobs: queueing a sweep, and showing, changing, stopping or rerunning a group."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from bot.chat import Picture
from bot.commands import Role
from bot.handlers import submit
from bot.outbound.documents import results_of
from bot.pictures import plots
from bot.text import group_words, keyboards
from bot.text.html import escape, fit
from runner.api import groups
from runner.api.chat import read_text, sweep_options, sweeps
from runner.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.inbound.turn import Turn

LISTED = 10
NO_SWEEP = (
    "Which values? Send it like this:\n`/sweep python train.py --lr {lr} --bs {bs} ; lr=1e-3,5e-4 bs=32,64`\n"
    "Options come before the command: those of /submit, --at-most 2, --metric val_loss, and -n 20 to draw 20 times from"
    " a range like lr=log:1e-5..1e-2."
)
ONE_NAME = "Which group? Send `/group sweep-1`, or /group alone for a list of them."


async def sweep(turn: Turn, rest: str) -> None:
    """Queue a command for each combination of its parameters, as one group."""
    if not rest.strip():
        raise UserError(NO_SWEEP)
    values, text = read_text(rest, (*sweep_options.CHOOSING, *sweep_options.OF_A_GROUP))
    request = sweeps.parse_text(text)
    metric = sweep_options.metric_in(values)
    combinations = sweeps.combinations(
        request.parameters, samples=values.get("samples"), shuffled=values.get("mode") != sweep_options.GRID,
        seed=values.get("seed"),
    )  # fmt: skip
    group = values.get("group")
    if group and (metric or "at_most" in values) and turn.chat.queue.groups.get(group):
        _require_owner_of_group(turn, group)
    template = groups.Template(
        group=group, command=request.command, parameters=groups.kept_values(request.parameters),
        at_most=values.get("at_most"), metric=metric,
    )  # fmt: skip
    jobs = [({**values, "parameters": chosen}, sweeps.filled(request.command, chosen)) for chosen in combinations]
    await submit.queue_sweep(turn, jobs, template)


async def group(turn: Turn, rest: str) -> None:
    """Show a group's progress and results. With options, change it. Without a name, list the latest groups."""
    values, text = read_text(rest, sweep_options.OF_A_GROUP)
    names = text.split()
    if unknown := sorted(set(values) - {option.key for option in sweep_options.OF_A_GROUP}):
        raise UserError(f"A group takes --at-most and --metric here, not {unknown[0].replace('_', ' ')}.")
    if not names and not values:
        latest = [groups.standing(turn.chat.queue, name) for name in turn.chat.queue.groups.latest(LISTED)]
        turn.reply(group_words.listed(latest), keyboards.of_groups(latest))
        return
    if len(names) != 1:
        raise UserError(ONE_NAME)
    changes: dict[str, Any] = {"at_most": values["at_most"]} if "at_most" in values else {}
    if metric := sweep_options.metric_in(values):
        changes["metric"] = metric
    if changes:
        _require_owner_of_group(turn, names[0])
        with turn.effect():
            outcome = groups.change(turn.queue, names[0], changes)
            turn.reply(fit([escape(outcome)]), keyboards.of_group(groups.standing(turn.chat.queue, names[0])))
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
    unfinished = turn.chat.queue.groups.unfinished(name)
    if not unfinished:
        raise UserError(f"No job of {name} waits or runs.")
    return _own(turn, name, unfinished)


def _own(turn: Turn, name: str, members: Sequence[groups.Member]) -> list[int]:
    """Return those of the members that the caller may change. Raise UserError if there are none."""
    turn.require(Role.USER)
    own = [member.id for member in members if turn.is_admin or member.owner == turn.caller.actor]
    if not own:
        owners = sorted({turn.chat.name_of(member.owner) for member in members})
        raise UserError(f"{name} belongs to {', '.join(owners)}: only they or an admin may change it.")
    return own


async def rerun_failed(turn: Turn, name: str) -> None:
    """Queue a group's failed jobs again, as far as the caller may change them. The caller owns the new jobs."""
    groups.find(turn.chat.queue, name)
    failed = turn.chat.queue.groups.failed(name)
    turn.require(Role.USER)
    if not failed:
        raise UserError(f"No job of {name} has failed.")
    submit.refuse_burst(turn)
    await asyncio.to_thread(submit.reach, [turn.chat.queue.job(member.id).spec.dir for member in failed])
    with submit.submission(turn, len(failed)):
        numbers = _own(turn, name, failed)
        keys = [f"update {turn.update_id}.{at}" for at in range(len(numbers))]
        made = groups.rerun(turn.queue, name, numbers, turn.caller.actor, keys)
        turn.start_threads(made)
        submit.acknowledge_group(turn, name, made, None, again=True)
