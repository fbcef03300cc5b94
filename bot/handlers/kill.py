"""Stopping jobs: /kill and its button."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.commands import Role
from bot.handlers import groups
from bot.inbound.turn import STALE_S
from bot.text import job_words, keyboards
from bot.text.html import bold, escape, fit
from runner.api.chat import format_duration, state_words
from runner.errors import UserError
from runner.model import State

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.inbound.turn import Turn
    from runner.model import Job

SHOWN = 12
EVERYONE = "everyone"
STATES = {"queued": (State.QUEUED,), "running": (State.STARTING, State.RUNNING)}
UNFINISHED = (State.QUEUED, State.STARTING, State.RUNNING)
DOING = {"queued": "waits", "running": "runs"}
KILL_LIKE = "`/kill 12`, `/kill 12 13`, `/kill sweep-1`, `/kill queued` or `/kill all`"


async def kill(turn: Turn, rest: str) -> None:
    """Ask before stopping jobs: those named, all of the caller's, or those of a state or a group."""
    jobs = _meant(turn, rest)
    live = [job for job in jobs if not job.state.final]
    if not live:
        raise UserError(_already(jobs))
    lines = [f"{job_words.sign(job)} {bold(f'#{job.id}')} {escape(job_words.called(job))}" for job in live[:SHOWN]]
    lines += [f"… and {len(live) - SHOWN} more"] if len(live) > SHOWN else []
    old = f"You sent this {format_duration(turn.age_s)} ago. " if turn.age_s > STALE_S else ""
    question = f"{old}Stop {'this job' if len(live) == 1 else f'these {len(live)} jobs'}?"
    only = live[0].id if len(live) == 1 else None
    turn.reply(fit(["\n".join([question, *lines])]), keyboards.sure([job.id for job in live], back={}), job_id=only)


def _meant(turn: Turn, rest: str) -> list[Job]:
    """Return the jobs meant: by number, by group, or by words that narrow each other, like `queued` or `--mine`."""
    kinds, group, numbers = _filters(turn, rest.split())
    if not kinds and group is None:
        name = rest.strip()
        return turn.own_jobs(
            groups.to_stop(turn, name) if groups.is_group(turn, name) else turn.numbers(rest, KILL_LIKE)
        )
    chosen = _chosen(turn, kinds, group)
    if numbers:
        chosen = [number for number in turn.numbers(" ".join(numbers), KILL_LIKE) if number in chosen]
    if not chosen:
        yours = "" if _anybodys(turn, kinds, group) else "is yours and "
        raise UserError(f"None of these {yours}{_doing(kinds)}.")
    return [turn.job(number) for number in chosen]


def _filters(turn: Turn, words: Sequence[str]) -> tuple[set[str], str | None, list[str]]:
    """Split words into filters (all, mine, queued, running, everyone), the name after `group`, and numbers."""
    everything = EVERYONE if turn.is_admin else "all"
    kinds, group, numbers, words_left = set[str](), None, list[str](), list(words)
    while words_left:
        typed = words_left.pop(0)
        word = typed.lower()
        bare = everything if word == "--all" else word.removeprefix("--")
        if bare == "group" and words_left:
            group = words_left.pop(0)
        elif bare in {"all", "mine", EVERYONE, *STATES}:
            kinds.add(bare)
        elif word == "--state":
            if not words_left or words_left[0].lower() not in STATES:
                raise UserError(f"--state takes {' or '.join(STATES)}: send `/kill --state queued`.")
        else:
            numbers.append(typed)
    return kinds, group, numbers


def _chosen(turn: Turn, kinds: Collection[str], group: str | None) -> list[int]:
    if EVERYONE in kinds:
        turn.require(Role.ADMIN)
    anybodys = _anybodys(turn, kinds, group)
    states = [state for word in STATES if word in kinds for state in STATES[word]] or [*UNFINISHED]
    owner = None if anybodys else turn.caller.actor
    numbers = turn.chat.queue.listing.unfinished(owner=owner, group=group, states=states)
    if not numbers:
        whose, of_group = "No job" if anybodys else "None of your jobs", f" of group {group}" if group else ""
        raise UserError(f"{whose}{of_group} {_doing(kinds)}.")
    return numbers


def _anybodys(turn: Turn, kinds: Collection[str], group: str | None) -> bool:
    return EVERYONE in kinds or (group is not None and "mine" not in kinds and turn.is_admin)


def _doing(kinds: Collection[str]) -> str:
    named = [verb for word, verb in DOING.items() if word in kinds]
    return " or ".join(named or DOING.values())


def _already(jobs: Sequence[Job]) -> str:
    if len(jobs) == 1:
        return f"#{jobs[0].id} has already ended ({state_words(jobs[0])})."
    return "All of these have already ended."


def stop_jobs(turn: Turn, numbers: Sequence[int]) -> str:
    """Stop those of the jobs that have not ended, and return a sentence about it. Inside `effect`."""
    jobs = turn.own_jobs(numbers)
    outcomes = [turn.queue.stop(number) for number in numbers if not turn.job(number).state.final]
    if not outcomes:
        return _already(jobs)
    return outcomes[0] if len(outcomes) == 1 else f"{len(outcomes)} jobs are being stopped."
