"""What people read about the box, jobs and notices, as HTML for Telegram. Nothing here changes anything."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bot.commands import COMMANDS, HIDDEN, Command
from bot.telegram_html import MESSAGE_UNITS, Shrink, bold, code, escape, fit, italic, pre
from bot.text import box_words, job_words
from bot.text.job_words import command_line, heading, sign
from bot.text.warning_words import looks_hung
from runner.api.chat import clock, format_duration, help_rows, short_time, snapshot_words, state_words
from runner.model import Reason, State

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bot.roles import Role
    from runner.api.chat import Outlook, Overview
    from runner.model import Job, Notice

_FEW = 5
_OPTIONAL = re.compile(r"(?:\[[^]]*\] ?)+")


def indices_of(gpus: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the index of each GPU by its UUID."""
    return {gpu["uuid"]: gpu["index"] for gpu in gpus}


class BoxView:
    """Everything that the views show about the box at one moment. Jobs are looked up only if they are shown."""

    def __init__(self, chat: Any) -> None:
        self._chat = chat
        self.name = chat.settings.box
        self.up = chat.queue.runner_is_up()
        self.gpus = chat.queue.gpus()
        known = chat.queue.snapshot()
        self.simulated = bool(known and known[0].simulated)
        self.trouble = known[0].trouble if known else None
        self.held = chat.named(chat.queue.held() or "")
        self.disk = chat.queue.box.get("disk low")
        self.name_of = chat.name_of
        self.bot_troubles = list(chat.troubles.values())
        self.parked: list[tuple[str, int]] = []
        self.strangers = 0

    @cached_property
    def counts(self) -> Overview:
        """Return how many jobs wait, run and ended."""
        found: Overview = self._chat.queue.overview()
        return found

    @cached_property
    def running(self) -> list[Job]:
        """Return the live jobs."""
        return [self._chat.shown(job) for job in self._chat.listing.live()]

    @cached_property
    def next(self) -> list[Job]:
        """Return the first few waiting jobs."""
        return [self._chat.shown(job) for job in self._chat.listing.queued(_FEW)]

    @cached_property
    def reasons(self) -> dict[int, str]:
        """Return why each of these jobs waits, by job number."""
        found = self._chat.queue.waiting_reasons(self.next)
        return {number: self._chat.named(why) for number, why in found.items()}

    @cached_property
    def ahead(self) -> Outlook:
        """Return the forecast: when jobs start, and when the queue is empty."""
        found: Outlook = self._chat.queue.outlook()
        return found

    @cached_property
    def ended(self) -> list[Job]:
        """Return the last few jobs that ended, the latest first."""
        return [self._chat.shown(job) for job in self._chat.listing.finished(limit=_FEW)[::-1]]


def status(view: BoxView) -> str:
    """Describe the whole box at a glance."""
    now, indices = clock.now(), indices_of(view.gpus)
    waiting = view.counts.queued + view.counts.not_yet
    parts = [f"🌙 {bold(view.name)} · {view.counts.running} running · {waiting} queued"]
    parts += _alarms(view)
    parts += ["", *_gpu_lines(view)]
    if view.running:
        parts += ["", bold("Running")]
        parts += [job_words.running_line(job, indices, now, view.name_of) for job in view.running[: 2 * _FEW]]
        parts += _more(len(view.running) - 2 * _FEW)
    if view.next:
        parts += ["", bold("Next")]
        parts += _waiting(view.next, view.reasons, view.held, view.ahead)
        parts += _more(waiting - len(view.next))
        parts += _until_empty(view.ahead)
    if view.ended:
        parts += ["", bold("Last")]
        parts += [job_words.ended_line(job, now) for job in view.ended]
    parts += _day(view.counts.ended)
    return fit(["\n".join(parts)])


def _waiting(jobs: Sequence[Job], reasons: Mapping[int, str], held: str, ahead: Outlook) -> list[str]:
    return [
        job_words.waiting_line(job, None if held else reasons.get(job.id), ahead.start_words(job.id)) for job in jobs
    ]


def _until_empty(ahead: Outlook) -> list[str]:
    done = ahead.done_words()
    return [f"🌅 {escape(done)}"] if done else []


def _alarms(view: BoxView) -> list[str]:
    found = []
    if not view.up:
        found.append(f"🚨 {bold('No runner is up: nothing starts.')} On the box: {code('nightshift up --detach')}")
    if view.trouble:
        found.append(f"⚠️ {escape(view.trouble)}")
    if view.disk:
        found.append(f"💾 {escape(box_words.room_left(view.disk))} on the disk")
    if view.held:
        found.append(f"⏸ {escape(view.held)}")
    found += [f"⚠️ {escape(trouble)}" for trouble in view.bot_troubles]
    found += [f"📪 {count} not delivered: {escape(why)}" for why, count in view.parked[:3]]
    if view.strangers:
        found.append(f"🚪 {view.strangers} from strangers, unanswered")
    return found


def _gpu_lines(view: BoxView) -> list[str]:
    mark = [italic("simulated GPUs")] if view.simulated else []
    if not view.gpus:
        return [italic("no GPUs known")]
    return mark + [job_words.gpu_line(gpu) for gpu in view.gpus[:16]] + _more(len(view.gpus) - 16)


def _more(count: int) -> list[str]:
    return [f"… and {count:,} more"] if count > 0 else []


def _day(ended: Mapping[State, int]) -> list[str]:
    if not any(ended.values()):
        return []
    told = [f"{job_words.SIGNS[state]} {count}" for state, count in ended.items() if count]
    return ["", f"24 h: {' · '.join(told)}"]


def gpus(view: BoxView) -> str:
    """Describe each GPU with all that is known about it."""
    parts = [f"{bold(view.name)}{' · ' + italic('simulated') if view.simulated else ''}", *_alarms(view)]
    for gpu in view.gpus:
        state = f" · {escape(gpu['state'])}" if gpu["jobs"] else ""  # without jobs, the line itself has it
        parts += ["", job_words.gpu_line(gpu), f"   {escape(gpu['name'] or 'unknown model')}{state}"]
    if not view.gpus:
        parts.append("No GPUs are known. On the box: <code>nightshift doctor</code>")
    return fit(["\n".join(parts)])


def queue(
    jobs: Sequence[Job], reasons: Mapping[int, str], total: int, first: int, held: str, ahead: Outlook, signs: str = "",
) -> str:  # fmt: skip
    """Describe one page of the queue."""
    paused = [f"⏸ {escape(held)}"] if held else []
    if not jobs:
        return fit(["\n".join(["Nothing waits. /submit queues a job.", *paused])])
    parts = [bold(f"{total:,} waiting"), *paused]
    parts += _waiting(jobs, reasons, held, ahead)
    parts += [*_more(total - first - len(jobs)), *_until_empty(ahead), *([italic(signs)] if signs else [])]
    return fit(["\n".join(parts)])


def job(
    found: Job, *, indices: Mapping[str, int], usage: Mapping[str, Any] | None, reason: str | None,
    name_of: Callable[[str], str], events: Sequence[str] = (), probe: str | None = None, starts: str = "",
) -> str:  # fmt: skip
    """Describe one job in full."""
    now = clock.now()
    state = reason if found.state is State.QUEUED and reason else state_words(found)
    state = f"{state} · {starts}" if starts else state
    lines = [
        f"{sign(found)} {heading(found)} · {escape(state)}",
        job_words.command_line(found, 1500),
        f"{escape(name_of(found.spec.owner))} · {escape(found.spec.workspace or found.spec.dir)}",
        f"code as submitted: {escape(snapshot_words(found.spec))}" if found.spec.snapshot else "",
    ]
    lines.append(escape(job_words.membership(found)))
    used = job_words.usage_words(usage, found.batch_size, told=bool(probe))
    ran = [job_words.duration(found, now), job_words.gpu_list(found, indices), used]
    lines += [" · ".join(escape(part) for part in ran if part), escape(probe or "")]
    lines.append(_dates(found))
    if found.attempt > 1:
        lines.append(f"attempt {found.attempt}")
    if found.stop and not found.state.final:
        lines.append(f"stop asked by {escape(name_of(found.stop.by))}")
    lines.append(f"run {code(found.run_id)}")
    lines += [escape(event) for event in events]
    return fit(["\n".join(line for line in lines if line)])


def _dates(found: Job) -> str:
    now = clock.now()
    told = [f"submitted {short_time(found.submitted_at, now)}"]
    told += [f"started {short_time(found.started_at, now)}"] if found.started_at else []
    told += [f"ended {short_time(found.finished_at, now)}"] if found.finished_at else []
    return " · ".join(told)


def submitted(found: Job, reason: str | None, echo: str, again: int | None = None) -> str:
    """Say that a job is queued."""
    where = f" in {escape(found.spec.workspace)}" if found.spec.workspace else ""
    why = f"\n{escape(reason)}" if reason else ""
    why += f"\n{italic(f'#{again} again')}" if again else ""
    if copied := snapshot_words(found.spec):
        why += f"\ncode as {'it was then' if again else 'it is now'}: {escape(copied)}"
    return fit([f"⏳ {heading(found)} queued{where}\n", Shrink(echo, code, keep="both"), why])


def submitted_many(ids: Sequence[int], reason: str | None) -> str:
    """Say that several jobs are queued."""
    why = f"\n{escape(reason)}" if reason else ""
    return f"⏳ {len(ids)} jobs queued: {job_words.numbered(ids)}{why}"


def output(found: Job, text: str, *, live: bool) -> str:
    """Show the end of a job's output."""
    head = f"{sign(found)} {heading(found)}{' · so far' if live else ''}\n"
    if not text.strip():
        return f"{head}{italic('no output yet' if live else 'no output')}"
    return fit([head, Shrink(text, pre, keep="end")])


# -- notices --------------------------------------------------------------------------------------


def started(
    found: Job, gpus: Sequence[str], box: str, indices: Mapping[str, int], attempt: int, *, quoted: bool = False,
    probe: str | None = None,
) -> str:  # fmt: skip
    """Say that a job has started. Leave out its command if the message quotes one that has it."""
    again = f" · attempt {attempt}" if attempt > 1 else ""
    where = f" · {job_words.gpu_names(gpus, indices) or 'no GPU'}{again}"
    chosen = probe or (f"batch {found.batch_size}" if found.batch_size else "")
    parts = [f"▶️ {heading(found)} started on {escape(box)}{where}", *([f"\n{escape(chosen)}"] if chosen else [])]
    return fit([*parts, *([] if quoted else ["\n", command_line(found)])])


def ended(
    found: Job, data: Mapping[str, Any], *, box: str, indices: Mapping[str, int], by: str | None, excerpt: str,
    wandb: str | None, limit: int = MESSAGE_UNITS, shown_as: Callable[[str], str] = pre, probe: str | None = None,
) -> str:  # fmt: skip
    """Say how a job ended, where and after how long, with the part of its output that says why."""
    parts: list[str | Shrink] = [f"{_first_line(heading(found), data, box, by)}\n", command_line(found)]
    used = [
        job_words.gpu_names(data.get("gpus", ()), indices),
        job_words.usage_words(data.get("usage"), found.batch_size, told=bool(probe)),
    ]
    parts += [f"\n{escape(' · '.join(part for part in used if part))}"] if any(used) else []
    parts += [f"\n{escape(probe)}"] if probe else []
    parts += job_words.wandb(wandb)
    if excerpt.strip():
        parts += ["\n", Shrink(excerpt, shown_as, keep="end", at_least=300)]
    return fit(parts, limit)


def _first_line(which: str, data: Mapping[str, Any], box: str, by: str | None) -> str:
    """Return the line that a lock screen shows: which job, how it ended, where, after how long, why."""
    how, why = job_words.ending(data, by)
    line = f"{job_words.SIGNS[State(data['state'])]} {which} {escape(how)} on {escape(box)}"
    if data.get("duration_s") is not None and data.get("reason") != Reason.SPAWN.value:
        about = "about " if data.get("duration_about") else ""
        line += f" after {about}{format_duration(data['duration_s'])}"
    elif not data.get("attempt"):
        line += " before it began"
    again = f"attempt {data['attempt']}" if (data.get("attempt") or 1) > 1 else ""
    return " · ".join([line, *(escape(part) for part in (why, again) if part)])


def cancelled(notices: Sequence[Notice], box: str, name_of: Callable[[str], str]) -> str:
    """Say that many jobs were cancelled at once, before they started."""
    numbers = [notice.job_id for notice in notices if notice.job_id is not None]
    by = name_of(str(notices[0].data["by"]))
    head = f"⏹ {len(numbers)} jobs cancelled by {escape(by)} on {escape(box)} before they began"
    return f"{head}: {job_words.numbered(numbers)}"


def requeued(found: Job, data: Mapping[str, Any], box: str) -> str:
    """Say that a job is queued again after an attempt, and why."""
    is_retry = data.get("wait_s") is not None
    verb, how = job_words.ending({**data, "why": None}, None) if is_retry else ("", "")
    why = " · ".join(part for part in (how or verb, str(data.get("why", ""))) if part)
    rest = "\nThe next message comes when the job ends." if data.get("wait_s") else ""
    return fit([f"🔁 {heading(found)} is queued again on {escape(box)} · {escape(why)}\n", command_line(found), rest])


def in_few_words(notice: Notice, box: str) -> str:
    """Describe a notice briefly, for when its job is gone, its kind is unknown, or its full text cannot be written."""
    which = bold(f"#{notice.job_id}") if notice.job_id is not None else ""
    try:
        return fit([_first_line(which, notice.data, box, notice.data.get("by"))])
    except (KeyError, ValueError):
        return fit([f"{bold(box)}{f' {which}' if which else ''}: {escape(notice.kind)}"])


OF_A_JOB: dict[str, Callable[[Job, Mapping[str, Any], str], str]] = {
    "looks hung": looks_hung,
    "requeued": requeued,
}


# -- help -----------------------------------------------------------------------------------------


def help_text(role: Role) -> str:
    """List the commands of this role, and the options of /submit if it is among them."""
    shown = [command for command in COMMANDS if command.role <= role and command.name not in HIDDEN]
    parts = [_help_line(command) for command in shown]
    if any(command.name == "submit" for command in shown):
        parts += ["", bold("Options of /submit")]
        parts += [f"{code(flags)} {escape(text)}" for flags, text in help_rows()]
        parts += ["", "Reply to a job's message with /log, /kill or /rerun: it is that job you mean."]
    return fit(["\n".join(parts)])


def _help_line(command: Command) -> str:
    """Return one command's line. A tap sends a command without arguments, so one that needs them is shown as code."""
    shown = f"/{command.name}"
    if _OPTIONAL.fullmatch(command.usage):
        shown += f" {code(command.usage)}"
    elif command.usage:
        shown = code(f"/{command.name} {command.usage}")
    return f"{shown} — {escape(command.help)}"
