"""Which buttons each kind of message has."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bot.telegram_html import printable, shorten
from runner.api.chat import format_duration
from runner.model import State

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from runner.api.groups import Standing
    from runner.model import Job


@dataclass(frozen=True, slots=True)
class Press:
    """A button that does something. With `question` it works once and expires after a few minutes."""

    text: str
    action: str
    job_id: int | None = None
    data: dict[str, Any] = field(default_factory=dict)
    question: bool = False
    style: str | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """A button that opens a URL."""

    text: str
    url: str


QUEUE_PAGE, NUMBERS_ABREAST = 6, 3
SIGNS = "⏫ first · ⬆ sooner · ⬇ later · ✋ hold · go: release · ✖ kill"
EXTENSIONS_S, LEAST_EXTENSION_S = (3600.0, 4 * 3600.0), 60.0


def of_job(job: Job, *, details: bool = True) -> list[list[Press]]:
    """Return the buttons under a message about one job: what can be done in its present state."""
    look = [Press("Log", "log", job.id)] if job.attempt else []
    fitted = job.spec.probe is not None and job.batch_size is not None
    if details:
        look.append(Press("Details", "details", job.id))
    elif fitted:  # not beside Details: four buttons are too many for a phone
        look.append(Press("Fit", "fit", job.id))
    if job.state.final:
        return [[*look, Press("Rerun", "rerun", job.id)]]
    if job.state is State.QUEUED and not details:
        look.append(Press("Edit", "edit", job.id))
    return [[*look, Press("Kill", "kill", job.id, style="danger")]]


def of_kept(job: Job, for_s: float | None) -> list[list[Press]]:
    """Return the buttons that replace those of a warning once the job is kept."""
    how = "for good" if for_s is None else f"for {format_duration(for_s)}"
    return [[Press(f"✓ Kept {how}", "details", job.id)], *of_job(job)]


def of_idle(job: Job) -> list[list[Press]]:
    """Return the buttons under the warning that an idle or hung job will be stopped."""
    return [
        [Press("Keep 1 h", "keep", job.id, {"for_s": 3600.0}), Press("Keep for good", "keep", job.id)],
        [Press("Kill now", "kill now", job.id, style="danger"), Press("Log", "log", job.id)],
    ]


def of_time(job: Job, limit_s: float, more_s: float | None) -> list[list[Press]]:
    """Return the buttons under a time limit warning: extensions that the box allows, then the job's usual ones."""
    offered = [by_s for by_s in EXTENSIONS_S if more_s is None or by_s <= more_s]
    if not offered and more_s is not None and more_s >= LEAST_EXTENSION_S:
        offered = [more_s]
    data = [{"by_s": by_s, "limit_s": limit_s} for by_s in offered]
    extend = [Press(f"Extend {_short(one['by_s'])}", "extend", job.id, dict(one)) for one in data]
    return [*([extend] if extend else []), *of_job(job)]


def of_extended(job: Job, by_s: float) -> list[list[Press]]:
    """Return the buttons that replace those of a time limit warning once the job is extended."""
    return [[Press(f"✓ Extended {_short(by_s)}", "details", job.id)], *of_job(job)]


def _short(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:.0f} h" if hours == int(hours) else format_duration(seconds)


def of_group(standing: Standing) -> list[list[Press]]:
    """Return the buttons under a message about a group: its results, and what can be done with all of it."""
    which = {"group": standing.group.name}
    row = [Press("Results", "group", data=which), Press("CSV", "group csv", data=which)]
    again = Press("Rerun failed", "rerun failed", data=which)  # `Chat.keyboard` drops it if no job has failed
    if standing.unfinished:
        return [row, [Press("Kill all", "kill group", data=which, style="danger"), again]]
    return [[*row, again]]


def sure(job_ids: Sequence[int], *, back: Mapping[str, Any]) -> list[list[Press]]:
    """Return Yes and No for killing these jobs. `back` says what the message shows afterwards."""
    many = f"kill {len(job_ids)} jobs" if len(job_ids) > 1 else f"kill #{job_ids[0]}"
    job_id = job_ids[0] if len(job_ids) == 1 else None
    data = {**back, "jobs": list(job_ids)}
    return [
        [
            Press(f"Yes, {many}", "killed", job_id, data, question=True, style="danger"),
            Press("No", "back", job_id, dict(back), question=True),
        ]
    ]


def sure_to_revoke(name: str, data: Mapping[str, Any]) -> list[list[Press]]:
    """Return Yes and No for revoking somebody's role."""
    label = f"Yes, revoke {shorten(printable(name), 24)}"
    return [[Press(label, "revoked", data=dict(data), question=True, style="danger"), Press("No", "people")]]


def of_log(job: Job) -> list[list[Press]]:
    """Return the buttons under the end of a job's output."""
    row = [Press("Whole log", "document", job.id)]
    if not job.state.final:
        row.insert(0, Press("Refresh", "log again", job.id))
    return [row, *of_job(job)]


def of_queue(
    jobs: Sequence[Job], first: int, total: int, theirs: Collection[int], *, paused: bool = False
) -> list[list[Press]]:
    """Return a queue page's buttons: a row for each job they may change, the other jobs' numbers, and paging."""
    rows = [[Press("Resume", "resume", data={"first": first}, style="success")]] if paused else []
    if not jobs:
        return rows
    rows += [_waiting(job, first) for job in jobs if job.id in theirs]
    others = [Press(f"#{job.id}", "details", job.id) for job in jobs if job.id not in theirs]
    rows += [others[at : at + NUMBERS_ABREAST] for at in range(0, len(others), NUMBERS_ABREAST)]
    turns = []
    if first > 0:
        turns.append(Press("◀", "queue", data={"first": max(first - QUEUE_PAGE, 0)}))
    turns.append(Press("Refresh", "queue", data={"first": first}))
    if first + len(jobs) < total:
        turns.append(Press("▶", "queue", data={"first": first + QUEUE_PAGE}))
    return [*rows, turns]


def _waiting(job: Job, first: int) -> list[Press]:
    """Return one job's row. It has signs only, because six words do not fit a phone; the message explains them."""
    here = {"first": first}
    held = Press("go", "release", job.id, here) if job.held_by else Press("✋", "hold", job.id, here)
    return [
        Press(f"#{job.id}", "details", job.id),
        Press("⏫", "front", job.id, here),
        Press("⬆", "up", job.id, here),
        Press("⬇", "down", job.id, here),
        held,
        Press("✖", "kill", job.id, here | {"back": "queue"}, style="danger"),
    ]


def of_queue_link() -> list[list[Press]]:
    """Return the buttons under a message about several jobs or the whole queue."""
    return [[Press("Queue", "queue", data={"first": 0}), Press("Status", "status")]]


def of_status(*, paused: bool = False) -> list[list[Press]]:
    """Return the buttons under the status of the box."""
    resume = [[Press("Resume", "resume", data={"back": "status"}, style="success")]] if paused else []
    return [*resume, [Press("Refresh", "status"), Press("Queue", "queue", data={"first": 0}), Press("GPUs", "gpus")]]


def of_gpus() -> list[list[Press]]:
    """Return the buttons under the list of GPUs."""
    return [[Press("Refresh", "gpus"), Press("Status", "status")]]


def resume() -> list[list[Press]]:
    """Return the buttons under the message that the queue is paused or drained."""
    return [[Press("Resume", "resume", style="success"), Press("Status", "status")]]


def release(held: Sequence[int]) -> list[list[Press]]:
    """Return the buttons under the message that the breaker holds jobs like those that failed."""
    return [
        [Press("Release them", "release all", data={"jobs": list(held)}), Press("Queue", "queue", data={"first": 0})]
    ]


def cancel_when_empty() -> list[list[Press]]:
    """Return the button that cancels the command for an empty queue."""
    return [[Press("Cancel that", "cancel when empty", style="danger")]]
