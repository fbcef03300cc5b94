"""Words for jobs, times, states and events, as people read them. Pure."""

from __future__ import annotations

import shlex
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from runner import clock
from runner.model import Memory, Phase, Reason, State
from runner.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from runner.model import Job

_END_WORDS = {
    Reason.OOM: ("failed", "out of memory"),
    Reason.SPAWN: ("failed", "could not start"),
    Reason.USER: ("cancelled", ""),
    Reason.IDLE: ("stopped", "GPU idle"),
    Reason.HUNG: ("stopped", "hung"),
    Reason.TIMEOUT: ("stopped", "time limit"),
    Reason.DEPENDENCY: ("cancelled", "dependency failed"),
    Reason.PREEMPTED: ("stopped", "preempted"),
    Reason.HOST: ("lost", "host went down"),
    Reason.SUPERVISOR: ("lost", "supervisor killed"),
}
_ROW = 30  # characters of a title that a row of `ls` shows in a narrow terminal
_COMPARED = 4000  # characters of a command that are compared with those of others
_COLOURS = {
    State.STARTING: "cyan",
    State.RUNNING: "cyan",
    State.SUCCEEDED: "green",
    State.FAILED: "red",
    State.LOST: "red",
    State.CANCELLED: "yellow",
}


def state_words(job: Job) -> str:
    """Return the state or phase of a job, or how it ended."""
    if job.state is State.RUNNING and job.phase not in (None, Phase.RUNNING):
        assert job.phase is not None
        return str(job.phase.value)
    return outcome_words(job.state, job.reason, job.exit_code, job.signal, job.memory)


def end_words(reason: Reason, memory: str | None = None) -> tuple[str, str]:
    """Return how an attempt ended: the verb, and why. The terminal and the chat share these words.

    `memory`: which memory ran out, "gpu" or "host".
    """
    verb, why = _END_WORDS[reason]
    return verb, Memory(memory).ran_out if reason is Reason.OOM and memory else why


def outcome_words(
    state: State, reason: Reason | None, exit_code: int | None, number: int | None, memory: str | None = None
) -> str:
    """Return how an attempt ended, or only the state if there is no more to say."""
    if state is State.FAILED and reason is Reason.EXIT:
        return f"failed, exit {exit_code}"
    if state is State.FAILED and reason is Reason.SIGNAL:
        return f"failed, {signal_name(number)}"
    if reason not in _END_WORDS:
        return state.value.lower()
    return ", ".join(part for part in end_words(reason, memory) if part)


def colour(state: State) -> str | None:
    """Return the colour of a state on a terminal, or None."""
    return _COLOURS.get(state)


def signal_name(number: int | None) -> str:
    """Return a name like `SIGSEGV`, or `signal 99` if it has none."""
    try:
        import signal

        return signal.Signals(number or 0).name
    except ValueError:
        return f"signal {number}"


def short_time(moment: datetime, now: datetime) -> str:
    """Return a local time: the clock time if it is today, with the weekday in the last 6 days, else the date."""
    here, today = clock.local(moment), clock.local(now)
    if here.date() == today.date():
        return here.strftime("%H:%M")
    if timedelta(0) < today - here < timedelta(days=6):
        return here.strftime("%a %H:%M")
    return here.strftime("%Y-%m-%d")


def coming_time(moment: datetime, now: datetime) -> str:
    """Return a local time to come, as short as is clear: the clock time, with the weekday, or only the date."""
    after, here = moment - now, clock.local(moment)
    if after < timedelta(hours=20):
        return here.strftime("%H:%M")
    return here.strftime("%a %H:%M" if after < timedelta(days=6) else "%Y-%m-%d")


def long_time(moment: datetime) -> str:
    """Return the local date and time, to the second."""
    return clock.local(moment).strftime("%Y-%m-%d %H:%M:%S")


def duration_words(job: Job, now: datetime) -> str:
    """Return how long a job has run or ran; empty if it never started."""
    if job.started_at is None:
        return ""
    return format_duration(((job.finished_at or now) - job.started_at).total_seconds())


def printable(text: str) -> str:
    """Return the text on one line, with control characters escaped."""
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return "⏎" if character == "\n" else character.encode("unicode_escape").decode()


def title(job: Job) -> str:
    """Return the name and the command of a job, on one line."""
    command = printable(job.spec.command.strip())
    if job.spec.script:
        command = f"script: {command}"
    return f"{job.spec.name}: {command}" if job.spec.name else command


def what_differs(jobs: Iterable[Job], row: Callable[[Job], str]) -> dict[int, str]:
    """Return what tells apart the jobs whose rows would read the same: words of the command that not all of them have.

    Jobs with the same command are left out: only their numbers differ.
    """
    alike: dict[str, list[Job]] = {}
    for job in jobs:
        alike.setdefault(row(job), []).append(job)
    apart: dict[int, str] = {}
    for same in alike.values():
        commands = {job.id: _arguments(job.spec.command[:_COMPARED]) for job in same}
        common = set.intersection(*(set(command) for command in commands.values()))
        own = {job_id: [part for part in command if part not in common] for job_id, command in commands.items()}
        apart |= {job_id: " ".join(parts) for job_id, parts in own.items() if parts}
    return apart


def titles(jobs: Sequence[Job]) -> dict[int, str]:
    """Return the title of each row. Those that would read the same begin with what differs."""
    apart = what_differs(jobs, lambda job: title(job)[:_ROW])
    shown = {job.id: title(job) for job in jobs}
    for job in jobs:
        if job.id in apart:
            values = " ".join(f"{name}={value}" for name, value in job.spec.parameters.items())
            shown[job.id] = f"{printable(values or apart[job.id])}: {shown[job.id]}"
    return shown


def _arguments(command: str) -> list[str]:
    """Split a command at its spaces, but leave a flag and its value together."""
    parts: list[str] = []
    for word in command.split():
        if parts and parts[-1].startswith("-") and " " not in parts[-1] and not word.startswith("-"):
            parts[-1] += f" {word}"
        else:
            parts.append(word)
    return parts


def as_one_line(job: Job) -> str:
    """Return the command as one line for `submit -`. A script becomes a comment that names `rerun`."""
    command = job.spec.command
    if job.spec.script:
        return f"# job {job.id} is a script; again: nightshift rerun {job.id}"
    return f"eval {_ansi_quoted(command)}" if "\n" in command or "\r" in command else command


def _ansi_quoted(text: str) -> str:
    special = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r"}
    return "$'" + "".join(special.get(c, c) for c in text) + "'"


def gpu_words(job: Job, indices: Mapping[str, int | str]) -> str:
    """Return the indices of a job's GPUs, `cpu` if it needs none, or `(2)` if it waits for two."""
    if job.gpus:
        return ",".join(str(indices.get(uuid, uuid[:12])) for uuid in job.gpus)
    if job.spec.gpus == 0:
        return "cpu"
    return f"({job.spec.gpus})" if job.state is State.QUEUED else "–"


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return "; did you mean …?" with the most similar name, or an empty string if none is similar."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(names), n=1)
    return f"; did you mean {near[0]}?" if near else ""


_EVENTS = {
    "submitted": "submitted by {by}",
    "stop asked": "{by} asked to stop it ({reason})",
    "requeued": "queued again: {why}",
    "batch chosen": "{said}",
    "held": "held by {by}",
    "released": "released by {by}",
    "moved to front": "put first by {by}",
    "moved to back": "put last by {by}",
    "moved up": "put before #{before} by {by}",
    "moved down": "put after #{after} by {by}",
    "moved before": "put before #{before} by {by}",
    "moved after": "put after #{after} by {by}",
    "edited": "edited by {by}: {what}",
    "idle warning": "warned: {why}",
    "stop put off": "its stop is delayed: {why}",
    "looks hung": "{why}",
    "time warning": "warned: its time is up soon",
    "limit too short": "warned: it will not make its time limit",
}


def kept_words(data: Mapping[str, Any]) -> str:
    """Return who keeps a job from being stopped as idle, and until when."""
    until = clock.moment(data.get("until"))
    return f"by {data['by']} {f'until {long_time(until)}' if until else 'for good'}"


def gpu_label(node: str | None, index: int) -> int | str:
    """Return what people call a GPU: its index, or node:index if it is in another host."""
    return f"{node}:{index}" if node else index


def event_words(event: Mapping[str, Any], indices: Mapping[str, int | str]) -> str:
    """Return an event of a job in words."""
    kind, data = event["kind"], event["data"]
    if kind == "ended":
        how = State(data["state"]), Reason(data["reason"])
        ended = outcome_words(*how, data.get("exit_code"), data.get("signal"), data.get("memory"))
        return f"{ended} ({data['why']})" if how[0] is State.LOST and data.get("why") else ended
    if kind == "started":
        gpus = ", ".join(str(indices.get(uuid, uuid)) for uuid in data.get("gpus", ()))
        return f"started on GPU {gpus}" if gpus else "started"
    if kind == "extended":
        return f"{data['by']} gave it {format_duration(data['by_s'])} more"
    if kind == "kept":
        return f"kept {kept_words(data)}"
    try:
        return _EVENTS[kind].format(**data)
    except KeyError:
        details = ", ".join(f"{name} {shlex.quote(str(value))}" for name, value in data.items())
        return f"{kind}: {details}" if details else str(kind)
