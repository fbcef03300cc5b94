"""Which buttons each kind of message has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bot.text import job_words
from bot.text.buttons import ButtonKind, CopyKey, Press
from bot.text.html import printable, shorten, units
from runner.api.chat import arguments, duration_words, format_duration, short_time
from runner.model import State

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime

    from bot.text.buttons import Key
    from bot.text.log_pages import LogPage
    from runner.api.chat import Argument
    from runner.api.groups import Standing
    from runner.model import Job

Row = list[Press]
Rows = list[Row]
Place = Mapping[str, Any]  # which part of a job's output: see `of_log`

QUEUE_PAGE, NUMBERS_ABREAST = 6, 3
PICKED_UNITS, LABEL_UNITS = 26, 16  # of a job, in a button alone in its row and in one of two
LONGEST_CHANGEABLE, MOST_ARGUMENTS, ARGUMENT_UNITS = 4000, 16, 22
HOUR_S = 3600.0
EXTENSIONS_S, LEAST_EXTENSION_S = (HOUR_S, 4 * HOUR_S), 60.0
MOST_COPIED = 256  # Telegram's limit for what a button copies


def of_job(job: Job, *, details: bool = True) -> Rows:
    """Return the buttons under a message about one job: what can be done in its present state."""
    row = [Press(ButtonKind.LOG, job.id)] if job.attempt else []
    if details:
        row.append(Press(ButtonKind.DETAILS, job.id))
    elif job.spec.probe is not None and job.batch_size is not None:  # four buttons are too many for a phone
        row.append(Press(ButtonKind.FIT, job.id))
    if job.state.final:
        others = [[Press(ButtonKind.RERUN_WITH, job.id)]] if changeable(job) else []
        return [[*row, Press(ButtonKind.RERUN, job.id)], *others]
    if job.state is State.QUEUED and not details:
        row.append(Press(ButtonKind.EDIT, job.id))
    return [[*row, Press(ButtonKind.KILL, job.id)]]


def of_failed_trial(job: Job) -> Rows:
    """Return the buttons under the message that a trial has failed. A job that is no longer held has its usual ones."""
    if job.held_by is None:
        return of_job(job)
    return [[Press(ButtonKind.RELEASE, job.id), Press(ButtonKind.EDIT, job.id)], *of_job(job)]


def changeable(job: Job) -> list[Argument]:
    """Return the arguments of a job's command that can be changed for a rerun."""
    spec = job.spec
    return arguments(spec.command) if not spec.script and len(spec.command) <= LONGEST_CHANGEABLE else []


def of_arguments(job: Job) -> Rows:
    """Return a button for each argument of a job's command, two in a row."""
    buttons = [
        Press(
            ButtonKind.ARGUMENT, job.id, {"name": one.name, "value": one.value, "setting": one.setting},
            shorten(printable(one.text), ARGUMENT_UNITS),
        )
        for one in changeable(job)[:MOST_ARGUMENTS]
    ]  # fmt: skip
    return [*(buttons[at : at + 2] for at in range(0, len(buttons), 2)), [Press(ButtonKind.CANCEL)]]


def of_kept(job: Job, for_s: float | None) -> Rows:
    """Return the buttons that replace those of a warning once the job is kept."""
    how = "for good" if for_s is None else f"for {format_duration(for_s)}"
    return [[Press(ButtonKind.DETAILS, job.id, text=f"✓ Kept {how}")], *of_job(job)]


def of_idle(job: Job) -> Rows:
    """Return the buttons under the warning that an idle or hung job will be stopped."""
    keep = Press(ButtonKind.KEEP, job.id, {"for_s": HOUR_S}, f"Keep {_short(HOUR_S)}")
    return [
        [keep, Press(ButtonKind.KEEP, job.id)],
        [Press(ButtonKind.KILL_NOW, job.id), Press(ButtonKind.LOG, job.id)],
    ]


def of_time(job: Job, limit_s: float, more_s: float | None) -> Rows:
    """Return the buttons under a time limit warning: extensions that the box allows, then the job's usual ones."""
    offered = [by_s for by_s in EXTENSIONS_S if more_s is None or by_s <= more_s]
    if not offered and more_s is not None and more_s >= LEAST_EXTENSION_S:
        offered = [more_s]
    extend = [
        Press(ButtonKind.EXTEND, job.id, {"by_s": by_s, "limit_s": limit_s}, f"Extend {_short(by_s)}")
        for by_s in offered
    ]
    return [*([extend] if extend else []), *of_job(job)]


def of_extended(job: Job, by_s: float) -> Rows:
    """Return the buttons that replace those of a time limit warning once the job is extended."""
    return [[Press(ButtonKind.DETAILS, job.id, text=f"✓ Extended {_short(by_s)}")], *of_job(job)]


def _short(seconds: float) -> str:
    hours = seconds / HOUR_S
    return f"{hours:.0f} h" if hours == int(hours) else format_duration(seconds)


def of_group(standing: Standing) -> Rows:
    """Return the buttons under a message about a group: its results, and what can be done with all of it."""
    which = {"group": standing.group.name}
    row = [Press(ButtonKind.GROUP, data=which), Press(ButtonKind.GROUP_CSV, data=which)]
    again = Press(ButtonKind.RERUN_FAILED, data=which)  # `Chat.keyboard` drops it if no job has failed
    if standing.unfinished:
        return [row, [Press(ButtonKind.KILL_GROUP, data=which), again]]
    return [[*row, again]]


def of_groups(standings: Sequence[Standing]) -> Rows:
    """Return a button for each group of a list, two in a row."""
    names = [standing.group.name for standing in standings]
    buttons = [Press(ButtonKind.GROUP, data={"group": name}, text=shorten(name, PICKED_UNITS)) for name in names]
    return [buttons[at : at + 2] for at in range(0, len(buttons), 2)]


def of_presets(names: Mapping[str, str], own: Collection[str]) -> Rows:
    """Return a row for each preset: a tap queues it. The caller's own can be deleted."""
    return [
        [
            Press(ButtonKind.PRESET, data={"preset": name}, text=shorten(f"{name}: {printable(command)}", 40)),
            *([Press(ButtonKind.DELETE_PRESET, data={"preset": name}, text="✖")] if name in own else []),
        ]
        for name, command in names.items()
    ]


def sure(job_ids: Sequence[int], *, back: Mapping[str, Any]) -> Rows:
    """Return Yes and No for killing these jobs. `back` says what the message shows afterwards."""
    many = f"kill {len(job_ids)} jobs" if len(job_ids) > 1 else f"kill #{job_ids[0]}"
    job_id = job_ids[0] if len(job_ids) == 1 else None
    yes = Press(ButtonKind.YES_KILL, job_id, {**back, "jobs": list(job_ids)}, f"Yes, {many}")
    return [[yes, Press(ButtonKind.NO_KILL, job_id, back)]]


def sure_to_revoke(name: str, data: Mapping[str, Any]) -> Rows:
    """Return Yes and No for revoking somebody's role."""
    yes = Press(ButtonKind.YES_REVOKE, data=data, text=f"Yes, revoke {shorten(printable(name), 24)}")
    return [[yes, Press(ButtonKind.PEOPLE)]]


def of_details(job: Job) -> list[list[Key]]:
    """Return the buttons under a job described in full: what can be done, and what can be copied."""
    command, run = CopyKey("Copy command", job.spec.command), CopyKey("Copy run id", job.run_id)
    rows: list[list[Key]] = [[*row] for row in of_job(job, details=False)]
    return [[copy for copy in (command, run) if 0 < units(copy.copied) <= MOST_COPIED], *rows]


def of_log(job: Job, page: LogPage, place: Place) -> Rows:
    """Return the buttons under a page of a job's output: older, newer and live; then what else can be done.

    A place is {} for the newest page, or has `begin` or `end` for another one, `find` for the lines with a word,
    `error` for those about the error; and the `attempt`.
    """
    which = {"attempt": job.attempt, **({"find": place["find"]} if "find" in place else {})}
    older = _of_page(job, which, "Older", end=page.begin)
    if "find" in place:
        return [[*([older] if page.has_older else []), newest(job)], *of_whole_log(job)]
    row = [_of_page(job, which, "First", begin=0), older] if page.has_older else []
    row += [_of_page(job, which, "Newer", begin=page.end), newest(job, "Last")] if page.has_newer else []
    return [row, *of_whole_log(job)]


def of_whole_log(job: Job) -> Rows:
    """Return the last buttons under a job's output."""
    error = [_of_page(job, {"error": True}, "Error")] if job.state is State.FAILED else []
    follow = [] if job.state.final else [Press(ButtonKind.LOG_AGAIN, job.id), Press(ButtonKind.LIVE, job.id)]
    others = [[press for press in row if press.kind is not ButtonKind.LOG] for row in of_job(job)]
    return [[*error, *follow, Press(ButtonKind.WHOLE_LOG, job.id)], *others]


def _of_page(job: Job, which: Mapping[str, Any], text: str, **where: int) -> Press:
    return Press(ButtonKind.LOG_PAGE, job.id, {**which, **where}, text)


def newest(job: Job, text: str = "Log") -> Press:
    """Return the button that shows the end of a job's output."""
    return _of_page(job, {}, text)


def of_live_log(job: Job) -> Rows:
    """Return the buttons under a live log."""
    return [[Press(ButtonKind.STOP_LIVE, job.id), Press(ButtonKind.WHOLE_LOG, job.id)]]


def of_picker(command: str, jobs: Sequence[Job], rest: str, now: datetime) -> Rows:
    """Return a row for each job that a command may be meant for. A tap runs it with `rest` behind the number."""
    labels = job_words.row_labels(jobs, PICKED_UNITS)
    rows = []
    for job in jobs:
        label = f"{job_words.sign(job)} #{job.id} {labels[job.id]}{_since(job, now)}"
        if command == "kill":
            row = [Press(ButtonKind.YES_KILL, job.id, {"jobs": [job.id]}, label)]
        elif command == "extend" and not rest and job.spec.time_limit_s is not None:
            by = {by_s: f"+{_short(by_s)}" for by_s in EXTENSIONS_S}
            data = {"limit_s": job.spec.time_limit_s}
            row = [Press(ButtonKind.EXTEND, job.id, {**data, "by_s": by_s}, text) for by_s, text in by.items()]
            row[0] = replace(row[0], text=f"#{job.id} {labels[job.id]} {row[0].text}")
        elif command == "move" and not rest:
            row = [Press(ButtonKind.CHOOSE, job.id, {"first": 0}, label)]
        else:
            row = [Press(ButtonKind.PICK, job.id, {"command": command, "rest": rest}, label)]
        rows.append(row)
    return [*rows, [Press(ButtonKind.DISMISS, text="None of these")]]


def _since(job: Job, now: datetime) -> str:
    """Return for how long a live job has run, or when it ended."""
    if job.state.final:
        return f" · {short_time(job.finished_at, now)}" if job.finished_at else ""
    return f" · {duration_words(job, now)}" if job.state.live else ""


def of_queue(jobs: Sequence[Job], first: int, total: int, *, paused: bool = False) -> Rows:
    """Return a queue page's buttons: one for each job, to choose what to do with it, and paging."""
    rows = [[Press(ButtonKind.RESUME, data={"first": first})]] if paused else []
    if not jobs:
        return rows
    labels = job_words.row_labels(jobs, LABEL_UNITS)
    chosen = [Press(ButtonKind.CHOOSE, job.id, {"first": first}, f"#{job.id} {labels[job.id]}") for job in jobs]
    pages = [_page(max(first - QUEUE_PAGE, 0), "◀")] if first > 0 else []
    pages.append(_page(first, "Refresh"))
    if first + len(jobs) < total:
        pages.append(_page(first + QUEUE_PAGE, "▶"))
    return [*rows, *(chosen[at : at + 2] for at in range(0, len(chosen), 2)), pages]


def of_chosen(job: Job, first: int) -> Rows:
    """Return what can be done with a job that was chosen from the queue, and the way back to its page."""
    back: Row = [_page(first, "◀ Queue")]
    if job.state is not State.QUEUED:
        return [*of_job(job, details=False), back]
    data = {"first": first, "chosen": True}
    order = [Press(kind, job.id, data) for kind in (ButtonKind.FRONT, ButtonKind.UP, ButtonKind.DOWN)]
    hold = Press(ButtonKind.RELEASE if job.held_by else ButtonKind.HOLD, job.id, data)
    kill = Press(ButtonKind.KILL, job.id, {"first": first, "back": "queue"})
    return [order, [hold, Press(ButtonKind.EDIT, job.id), kill], back]


def _page(first: int = 0, text: str = "") -> Press:
    return Press(ButtonKind.QUEUE, data={"first": first}, text=text)


def of_queue_link() -> Rows:
    """Return the buttons under a message about several jobs or the whole queue."""
    return [[_page(), Press(ButtonKind.STATUS)]]


def of_status(jobs: Sequence[Job] = (), *, paused: bool = False) -> Rows:
    """Return the buttons under the status of the box: these jobs, and its other pages."""
    numbers = [Press(ButtonKind.DETAILS, job.id, text=f"{job_words.sign(job)} #{job.id}") for job in jobs]
    rows = [numbers[at : at + NUMBERS_ABREAST] for at in range(0, len(numbers), NUMBERS_ABREAST)]
    resume = [[Press(ButtonKind.RESUME, data={"back": "status"})]] if paused else []
    return [*resume, *rows, [Press(ButtonKind.STATUS, text="Refresh"), _page(), Press(ButtonKind.GPUS)]]


def of_gpus() -> Rows:
    """Return the buttons under the list of GPUs."""
    return [[Press(ButtonKind.GPUS, text="Refresh"), Press(ButtonKind.STATUS)]]


def resume() -> Rows:
    """Return the buttons under the message that the queue is paused or drained."""
    return [[Press(ButtonKind.RESUME), Press(ButtonKind.STATUS)]]


def release(held: Sequence[int]) -> Rows:
    """Return the buttons under the message that the breaker holds jobs like those that failed."""
    return [[Press(ButtonKind.RELEASE_ALL, data={"jobs": list(held)}), _page()]]


def cancel_when_empty() -> Rows:
    """Return the button that cancels the command for an empty queue."""
    return [[Press(ButtonKind.CANCEL_WHEN_EMPTY)]]
