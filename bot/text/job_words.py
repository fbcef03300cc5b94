"""Short descriptions of jobs, GPUs and times that fit a phone. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.text.html import bold, code, escape, local_time, shorten
from runner.api.chat import (
    duration_words,
    format_mib,
    gpu_label,
    percent,
    printable,
    short_progress,
    short_time,
    state_words,
    what_differs,
)
from runner.model import Phase, State

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from runner.model import Job

SIGNS = {
    State.QUEUED: "⏳",
    State.STARTING: "▶️",
    State.RUNNING: "▶️",
    State.SUCCEEDED: "✅",
    State.FAILED: "❌",
    State.CANCELLED: "⏹",
    State.LOST: "💥",
}
BAR = 8
_COMMAND_UNITS = 300
_RANGES = 12


def sign(job: Job) -> str:
    """Return an emoji for the job's state."""
    if job.held_by:
        return "✋"
    return "🛑" if job.phase is Phase.STOPPING else SIGNS[job.state]


def called(job: Job, limit: int = 40) -> str:
    """Return a label for lists: the job's name, or its sweep's name, or its command; then its sweep parameters."""
    spec, parameters = job.spec, _parameters(job)
    name = spec.name or (spec.group if parameters and spec.group else spec.command.strip())
    return shorten(printable(f"{name} {parameters}" if parameters else name), limit)


def row_labels(jobs: Sequence[Job], limit: int = 40) -> dict[int, str]:
    """Return a label for each job of a list. Those that would read the same say what differs."""
    apart = what_differs(jobs, lambda job: called(job, limit))
    return {
        job.id: shorten(f"{job.spec.name or ''} {printable(apart[job.id])}".strip(), limit)
        if job.id in apart
        else called(job, limit)
        for job in jobs
    }


def _parameters(job: Job) -> str:
    return " ".join(f"{name}={value}" for name, value in job.spec.parameters.items())


def heading(job: Job) -> str:
    """Return the job's number and name as HTML."""
    name = f" {escape(job.spec.name)}" if job.spec.name else ""
    return f"{bold(f'#{job.id}')}{name}"


def numbered(ids: Sequence[int]) -> str:
    """Return job numbers as HTML, with consecutive ones as a range: #7–#10, #12."""
    rows: list[list[int]] = []
    for number in sorted(ids):
        if rows and number == rows[-1][-1] + 1:
            rows[-1].append(number)
        else:
            rows.append([number])
    shown = ["–".join(bold(f"#{end}") for end in dict.fromkeys((row[0], row[-1]))) for row in rows[:_RANGES]]
    return ", ".join(shown) + (f" and {sum(map(len, more))} more" if (more := rows[_RANGES:]) else "")


def command_line(job: Job, limit: int = _COMMAND_UNITS) -> str:
    """Return the command as HTML that a tap copies; of a script only its first line."""
    text = job.spec.command.strip()
    if job.spec.script:
        first, more, _ = text.partition("\n")
        return f"script {code(shorten(first, limit))}{' …' if more else ''}"
    return code(shorten(text, limit))


def membership(job: Job) -> str:
    """Return the job's group and its sweep parameters; empty if it has neither."""
    return " · ".join(part for part in (job.spec.group, _parameters(job)) if part)


def counted(count: int, noun: str) -> str:
    """Return a number of things: 1 job, 2 jobs."""
    return f"{count:,} {noun}{'s' if count != 1 else ''}"


def gpu_names(uuids: Sequence[str], indices: Mapping[str, int | str]) -> str:
    """Return GPUs by index; one that is no longer there by the start of its UUID."""
    return "GPU " + ",".join(str(indices.get(uuid, uuid.removeprefix("GPU-")[:8])) for uuid in uuids) if uuids else ""


def gpu_list(job: Job, indices: Mapping[str, int | str]) -> str:
    """Return which GPUs the job has or had, or how many it asks for."""
    if job.gpus:
        return gpu_names(job.gpus, indices)
    if job.spec.gpus == 0:
        return "no GPU"
    return counted(job.spec.gpus, "GPU")


def usage_words(usage: Mapping[str, Any] | None, batch_size: int | None = None, *, memory: bool = True) -> str:
    """Return peak memory, utilization and batch size, where known."""
    parts, usage = [], usage or {}
    if memory and usage.get("peak_memory_mib") is not None:
        total = f" of {format_mib(usage['memory_total_mib'])}" if usage.get("memory_total_mib") else ""
        parts.append(f"peak {format_mib(usage['peak_memory_mib'])}{total}")
    if usage.get("mean_utilization") is not None:
        parts.append(f"{usage['mean_utilization']:.0f} % busy")
    if batch_size is not None:
        parts.append(f"batch {batch_size}")
    return " · ".join(parts)


def bar(percent: float | None) -> str:
    """Draw a percentage as a row of blocks; dots if it is unknown."""
    if percent is None:
        return "·" * BAR
    full = max(0, min(BAR, round(percent * BAR / 100)))
    return "▰" * full + "▱" * (BAR - full)


def gpu_line(gpu: Mapping[str, Any]) -> str:
    """Describe one GPU as HTML. Unknown values are shown as a dash, never as 0."""
    state = gpu["state"]
    use = "–" if gpu["utilization"] is None else f"{gpu['utilization']} %"
    memory = "– "
    if gpu["memory_used_mib"] is not None and gpu["memory_total_mib"]:
        memory = f"{gpu['memory_used_mib'] / 1024:.1f}/{gpu['memory_total_mib'] / 1024:.0f} GiB"
    heat = [f"{gpu['temperature_c']} °C"] if gpu["temperature_c"] is not None else []
    heat += [f"{gpu['power_w']:.0f} W"] if gpu["power_w"] is not None else []
    jobs = [f"#{number}" for number in gpu["jobs"]]
    last = " ".join(jobs) if jobs else escape(state)
    label = bold(str(gpu_label(gpu.get("node"), gpu["index"])))
    return f"{label} {code(bar(gpu['utilization']))} {use} · {' · '.join([memory, *heat])} · {last}"


def waiting_line(job: Job, reason: str | None, starts: str = "", label: str = "") -> str:
    """Describe a waiting job as HTML: why it waits, and when it starts if that is known."""
    is_in_reason = bool(reason and starts and starts.removeprefix("about ") in reason.split())
    parts = " · ".join(part for part in (reason, "" if is_in_reason else starts) if part)
    why = f" — {escape(parts)}" if parts else ""
    return f"{sign(job)} {bold(f'#{job.id}')} {escape(label or called(job))}{why}"


def running_line(
    job: Job, indices: Mapping[str, int | str], now: datetime, name_of: Callable[[str], str],
    progress: Mapping[str, Any] | None = None, *, metrics: bool = True, label: str = "", said: str | None = None,
) -> str:  # fmt: skip
    """Describe a running job as HTML, with a second line about how far it is if that is known.

    `metrics` is False where nothing of the output may be shown. `said`: what its engine says while it starts.
    """
    parts = [duration_words(job, now) or said or state_words(job), gpu_list(job, indices), name_of(job.spec.owner)]
    line = f"{sign(job)} {bold(f'#{job.id}')} {escape(label or called(job))} · {escape(' · '.join(parts))}"
    far, share = escape(short_progress(progress, now, bar=False, metrics=metrics)), percent(progress)
    drawn = f"{code(bar(share))} " if share is not None else ""
    return f"{line}\n{drawn}{far}" if far else line


def ended_line(job: Job, now: datetime, label: str = "") -> str:
    """Describe an ended job as HTML."""
    when = f" · {local_time(job.finished_at, short_time(job.finished_at, now))}" if job.finished_at else ""
    how = "" if job.state is State.SUCCEEDED else f" · {state_words(job)}"
    return f"{sign(job)} {bold(f'#{job.id}')} {escape(label or called(job))}{escape(how)}{when}"
