"""Offers jobs as buttons after a command that names none: the likeliest first, and only those it can work with."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bot.commands import BY_NAME
from bot.handlers.by_command import HANDLERS
from bot.text import keyboards
from bot.text.html import escape
from runner.api.chat import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bot.inbound.turn import Turn, WhichJobError
    from runner.model import Job

OFFERED = 8
LOOKED_AT = 100  # jobs of each state among which the likeliest are chosen


class Offer(NamedTuple):
    """What one command asks, and the jobs it can work with."""

    question: str
    jobs: Callable[[Turn], Iterable[Job]]
    suits: Callable[[Job], bool] = lambda _: True
    at_once: bool = False  # if there is only one such job, nothing is asked


def _live(turn: Turn) -> Iterable[Job]:
    return reversed(turn.chat.listing.live())


def _waiting(turn: Turn) -> Iterable[Job]:
    return turn.chat.listing.queued(LOOKED_AT)


def _ended(turn: Turn) -> Iterable[Job]:
    return reversed(turn.chat.listing.finished(limit=LOOKED_AT))


def _held(turn: Turn) -> Iterable[Job]:
    return [turn.job(number) for number in turn.chat.queue.listing.held()[:LOOKED_AT]]


def _unfinished(turn: Turn) -> Iterable[Job]:
    return [*_live(turn), *_waiting(turn)]


def _begun(turn: Turn) -> Iterable[Job]:
    return [*_live(turn), *_ended(turn)]


OFFERS = {
    "status": Offer("Which job?", _begun),
    "log": Offer("Which job's output?", _begun, lambda job: bool(job.attempt), at_once=True),
    "fit": Offer("Which job's batch?", _begun, lambda job: job.spec.probe is not None, at_once=True),
    "rerun": Offer("Run which job again?", lambda turn: [*_ended(turn), *_live(turn)]),
    "save": Offer("Save which job?", lambda turn: [*_ended(turn), *_live(turn)]),
    "kill": Offer("Stop which job? A tap stops it.", _unfinished, at_once=True),
    "keep": Offer("Keep which job from being stopped as idle?", _live),
    "extend": Offer("Which job gets more time?", _unfinished, lambda job: job.spec.time_limit_s is not None),
    "hold": Offer("Hold which job?", _waiting, lambda job: not job.held_by),
    "release": Offer("Release which job?", _held),
    "edit": Offer("Edit which job?", _waiting),
    "move": Offer("Move which job?", _waiting),
}
OF_ANYBODY = frozenset({"status", "log", "fit", "rerun", "save"})


async def offer(turn: Turn, command: str, rest: str, error: WhichJobError) -> None:
    """Offer the jobs that the command may mean. If there are none, raise the error."""
    asked, rest = OFFERS.get(command), rest.replace(error.word, "", 1).strip()
    jobs = _meant(turn, command, asked, error) if asked else []
    if asked is None or not jobs:
        raise error
    if len(jobs) == 1 and asked.at_once and not error.jobs:
        await run(turn, command, jobs[0].id, rest)
        return
    more = len(jobs) - OFFERED
    hint = f"\n… and {more} more: send `{BY_NAME[command].example}`" if more > 0 else ""
    rows = keyboards.of_picker(command, [turn.chat.shown(job) for job in jobs[:OFFERED]], rest, clock.now())
    turn.reply(escape(f"{error if error.jobs else asked.question}{hint}"), rows)


def _meant(turn: Turn, command: str, asked: Offer, error: WhichJobError) -> list[Job]:
    """Return the jobs to offer, the caller's own first."""
    if error.jobs:
        jobs = [job for number in error.jobs if (job := turn.chat.queue.jobs.get(number))]
    else:
        jobs = [job for job in asked.jobs(turn) if asked.suits(job)]
    if command not in OF_ANYBODY:
        jobs = [job for job in jobs if turn.may_change(job)]
    return sorted(jobs, key=lambda job: job.spec.owner != turn.caller.actor)


async def run(turn: Turn, command: str, job_id: int, rest: str) -> None:
    """Run a command with a chosen job, as if its number had been sent."""
    turn.require(BY_NAME[command].role)
    await HANDLERS[command](turn, f"{job_id} {rest}".strip())
