"""Changing something: stopping jobs, holding the queue, how one is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot import keyboards, words
from bot.chat import Press
from bot.gate import Role
from bot.handlers import grouped
from bot.parse import quiet_hours
from bot.richtext import bold, escape, fit
from bot.rights import role_to_resume
from bot.turn import STALE_S
from runner.api.chat import format_duration, parse_duration
from runner.errors import UserError
from runner.model import State

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.turn import Turn
    from runner.model import Job

NOISE = {
    "all": "everything: starts (without a sound), ends, failures",
    "ends": "ends and failures, no starts",
    "failures": "only what went wrong",
    "none": "nothing; look with /status",
}
SHOWN = 12
EVERYONE = "everyone"
STATES = {"queued": (State.QUEUED,), "running": (State.STARTING, State.RUNNING)}
UNFINISHED = (State.QUEUED, State.STARTING, State.RUNNING)
DOING = {"queued": "waits", "running": "runs"}
KILL_LIKE = "`/kill 12`, `/kill 12 13`, `/kill sweep-1`, `/kill queued` or `/kill all`"


async def kill(turn: Turn, rest: str) -> None:
    """Ask before stopping jobs: those named, all of theirs, those of a state or a group."""
    turn.require(Role.USER)
    jobs = _meant(turn, rest)
    live = [job for job in jobs if not job.state.final]
    if not live:
        raise UserError(_already(jobs))
    lines = [f"{words.sign(job)} {bold(f'#{job.id}')} {escape(words.called(job))}" for job in live[:SHOWN]]
    lines += [f"… and {len(live) - SHOWN} more"] if len(live) > SHOWN else []
    asked = f"You sent this {format_duration(turn.age_s)} ago. " if turn.age_s > STALE_S else ""
    question = f"{asked}Stop {'this job' if len(live) == 1 else f'these {len(live)} jobs'}?"
    only = live[0].id if len(live) == 1 else None
    turn.reply(fit(["\n".join([question, *lines])]), keyboards.sure([job.id for job in live], back={}), job_id=only)


def _meant(turn: Turn, rest: str) -> list[Job]:
    """By number, by group, or by words that narrow each other, also as they are typed in the terminal."""
    kinds, group, numbers = _filters(turn, rest.split())
    if not kinds and group is None:
        is_group = grouped.is_group(turn, rest.strip())
        return [turn.job(one) for one in grouped.to_stop(turn, rest.strip())] if is_group else _named(turn, rest)
    chosen = _chosen(turn, kinds, group)
    if not numbers:
        return [turn.job(number) for number in chosen]
    found = [number for number in turn.numbers(" ".join(numbers), KILL_LIKE) if number in set(chosen)]
    if not found:
        yours = "" if _anybodys(turn, kinds, group) else "is yours and "
        raise UserError(f"None of these {yours}{_doing(kinds)}.")
    return [turn.job(number) for number in found]


def _filters(turn: Turn, told: Sequence[str]) -> tuple[set[str], str | None, list[str]]:
    """All, mine, queued, running and, for admins, everyone; the name after group; and what is left: numbers."""
    everything = EVERYONE if turn.is_admin else "all"
    kinds, group, numbers, words_left = set[str](), None, list[str](), list(told)
    while words_left:
        word = words_left.pop(0).lower()
        bare = everything if word == "--all" else word.removeprefix("--")
        if bare == "group" and words_left:
            group = words_left.pop(0)
        elif bare in {"all", "mine", EVERYONE, *STATES}:
            kinds.add(bare)
        elif word == "--state":
            if not words_left or words_left[0].lower() not in STATES:
                raise UserError(f"--state is one of {' and '.join(STATES)}: send `/kill --state queued`.")
        else:
            numbers.append(word)
    return kinds, group, numbers


def _chosen(turn: Turn, kinds: Collection[str], group: str | None) -> list[int]:
    if EVERYONE in kinds:
        turn.require(Role.ADMIN)
    anybodys = _anybodys(turn, kinds, group)
    states = [state for word in STATES if word in kinds for state in STATES[word]] or [*UNFINISHED]
    owner = None if anybodys else turn.caller.actor
    found = turn.chat.queue.unfinished(owner=owner, group=group, states=states)
    if not found:
        whose, of_group = "No job" if anybodys else "None of your jobs", f" of group {group}" if group else ""
        raise UserError(f"{whose}{of_group} {_doing(kinds)}.")
    return found


def _anybodys(turn: Turn, kinds: Collection[str], group: str | None) -> bool:
    return EVERYONE in kinds or (group is not None and "mine" not in kinds and turn.is_admin)


def _doing(kinds: Collection[str]) -> str:
    named = [verb for word, verb in DOING.items() if word in kinds]
    return " or ".join(named or DOING.values())


def _named(turn: Turn, rest: str) -> list[Job]:
    jobs = [turn.job(number) for number in turn.numbers(rest, KILL_LIKE)]
    for job in jobs:
        require_owner(turn, job)
    return jobs


def require_owner(turn: Turn, job: Job) -> None:
    """Owners and admins may stop a job."""
    turn.require(Role.USER)
    if not turn.may_stop(job):
        owner = turn.chat.name_of(job.spec.owner)
        raise UserError(f"#{job.id} belongs to {owner}: only they or an admin may change it.")


def _already(jobs: Sequence[Job]) -> str:
    if len(jobs) == 1:
        return f"#{jobs[0].id} has already ended ({jobs[0].state.value.lower()})."
    return "All of these have already ended."


def stop_jobs(turn: Turn, numbers: Sequence[int]) -> str:
    """Stop those that are still under way; a sentence about it. Inside `effect`."""
    said = []
    for number in numbers:
        job = turn.job(number)
        require_owner(turn, job)
        if not job.state.final:
            said.append(turn.queue.stop(number))
    if not said:
        return _already([turn.job(number) for number in numbers])
    return said[0] if len(said) == 1 else f"{len(said)} jobs are being stopped."


async def keep(turn: Turn, rest: str) -> None:
    """Leave a job alone however idle its GPUs are: for a while, or for good."""
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
    """Give jobs more time than their limit."""
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


async def pause(turn: Turn, rest: str) -> None:  # noqa: ARG001
    """Start nothing more."""
    turn.require(Role.ADMIN)
    with turn.effect():
        turn.queue.pause()
        turn.reply("⏸ Paused: nothing more starts; running jobs go on.", keyboards.resume())


async def resume(turn: Turn, rest: str = "") -> None:  # noqa: ARG001
    """Go on, and say so."""
    with turn.effect():
        said = resume_now(turn)
        if turn.query_id is None:
            turn.reply(said, keyboards.of_queue_link())
        else:
            turn.settle(f"{said} – {turn.caller.name}", keyboards.of_queue_link())


def resume_now(turn: Turn) -> str:
    """Let the queue go on; a sentence about it."""
    turn.require(role_to_resume(turn.chat))
    said = "▶️ Resumed." if turn.queue.held() else "Nothing was paused."
    turn.queue.resume()
    turn.answer(said)
    return said


async def drain(turn: Turn, rest: str) -> None:  # noqa: ARG001
    """Let running jobs finish and start no more; an old message is asked about first."""
    turn.require(Role.ADMIN)
    if turn.age_s > STALE_S:
        rows = [[Press("Drain now", "drain", question=True, style="danger"), Press("No", "dismiss", question=True)]]
        turn.reply(f"You sent this {format_duration(turn.age_s)} ago, while I was away. Drain now?", rows)
        return
    drain_now(turn)


def drain_now(turn: Turn) -> None:
    """The doing itself."""
    turn.require(Role.ADMIN)
    with turn.effect():
        turn.queue.drain()
        said = "⏏️ Draining: running jobs finish, no more start."
        turn.answer(said)
        if turn.query_id is None:
            turn.reply(said, keyboards.resume())
        else:
            turn.edit(said, keyboards.resume())


async def notify(turn: Turn, rest: str) -> None:
    """How much they are told, and when without a sound."""
    told = rest.strip().lower()
    noise, _, hours = told.partition("quiet")
    noise, hours = noise.strip(), hours.strip()
    if noise and noise not in NOISE:
        raise UserError("Send `/notify all`, ends, failures or none; or `/notify quiet 23-7`, `/notify quiet off`")
    quiet = quiet_hours(hours) if hours else None
    with turn.effect():
        if noise:
            set_noise(turn, noise)
        if hours:
            turn.chat.people.set_quiet(turn.caller.id, quiet or ())
            turn.queue.audit.add(turn.caller.actor, "notify", {"quiet": hours})
        turn.reply(*notify_view(turn))


def set_noise(turn: Turn, noise: str) -> None:
    """Remember it."""
    turn.chat.people.set_noise(turn.caller.id, noise)
    turn.queue.audit.add(turn.caller.actor, "notify", {"noise": noise})


def notify_view(turn: Turn) -> tuple[str, list[list[Press]]]:
    """What they are told now, and the other choices."""
    person = turn.chat.people.get(turn.caller.id)
    hours = person.quiet if person.quiet is not None else turn.chat.settings.quiet_hours
    quiet = "never" if not hours else f"{_clock(hours[0])} to {_clock(hours[1])} by the box's clock"
    choices = [Press(f"{'● ' if word == person.noise else ''}{word}", "noise", data={"noise": word}) for word in NOISE]
    return f"You are told {bold(NOISE[person.noise])}.\nWithout a sound: {quiet} (`/notify quiet 23-7`).", [choices]


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02d}:{minutes % 60:02d}"
