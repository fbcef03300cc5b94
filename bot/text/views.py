"""Pages about the box, its queue and its jobs, as HTML for Telegram. Nothing here changes anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.text import job_words
from bot.text.box_notices import room_left
from bot.text.html import Shrink, bold, code, escape, fit, italic, local_time, pre
from bot.text.job_words import heading, sign
from bot.text.log_excerpt import folded
from runner.api.chat import (
    BoxKey,
    clock,
    duration_words,
    gpu_label,
    short_time,
    snapshot_words,
    state_words,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bot.text.log_pages import LogPage
    from runner.api.chat import Outlook
    from runner.model import Job, State

_FEW = 5


def indices_of(gpus: Sequence[Mapping[str, Any]]) -> dict[str, int | str]:
    """Return the index of each GPU by its UUID, with its node if that is another host."""
    return {gpu["uuid"]: gpu_label(gpu.get("node"), gpu["index"]) for gpu in gpus}


class BoxView:
    """What the views show about the box at one moment. Jobs are looked up only by the views that show them."""

    def __init__(self, chat: Any) -> None:
        self.chat = chat
        self.name = chat.settings.box
        self.up = chat.queue.runner_is_up()
        self.gpus = chat.queue.view.gpus()
        snapshot, *_ = chat.queue.view.snapshot() or (None,)
        self.simulated = bool(snapshot and snapshot.simulated)
        self.trouble = snapshot.trouble if snapshot else None
        self.held = chat.named(chat.queue.reasons.why_paused() or "")
        self.disk = chat.queue.box.get(BoxKey.DISK_LOW)
        self.bot_troubles = list(chat.troubles.values())
        self.undeliverable: list[tuple[str, int]] = []
        self.strangers = 0


def status(view: BoxView) -> str:
    """Describe the whole box at a glance."""
    chat, now, indices = view.chat, clock.now(), indices_of(view.gpus)
    counts = chat.queue.view.overview()
    waiting = counts.queued + counts.not_yet
    parts = [f"🌙 {bold(view.name)} · {counts.running} running · {waiting} queued"]
    parts += [*_alarms(view), "", *_gpu_lines(view)]
    if running := chat.listing.live():
        shown = [chat.shown(job) for job in running[: 2 * _FEW]]
        parts += ["", bold("Running")]
        labels = job_words.row_labels(shown)
        far = {job.id: chat.queue.view.progress(job) for job in shown}
        may_show = chat.settings.log_text
        elsewhere = chat.queue.reasons.of(shown)
        parts += [
            job_words.running_line(
                job,
                indices,
                now,
                chat.name_of,
                far[job.id],
                metrics=may_show,
                label=labels[job.id],
                said=elsewhere.get(job.id),
            )
            for job in shown
        ]
        parts += _more(len(running) - 2 * _FEW)
    if following := [chat.shown(job) for job in chat.listing.queued(_FEW)]:
        reasons = {number: chat.named(why) for number, why in chat.queue.reasons.of(following).items()}
        ahead = chat.queue.view.outlook()
        parts += ["", bold("Next"), *_waiting(following, reasons, view.held, ahead)]
        parts += [*_more(waiting - len(following)), *_until_empty(ahead)]
    if ended := [chat.shown(job) for job in chat.listing.finished(limit=_FEW)[::-1]]:
        labels = job_words.row_labels(ended)
        parts += ["", bold("Last"), *(job_words.ended_line(job, now, labels[job.id]) for job in ended)]
    parts += _day(counts.ended)
    return fit(["\n".join(parts)])


def _waiting(jobs: Sequence[Job], reasons: Mapping[int, str], held: str, ahead: Outlook) -> list[str]:
    labels = job_words.row_labels(jobs)
    return [
        job_words.waiting_line(job, None if held else reasons.get(job.id), ahead.start_words(job.id), labels[job.id])
        for job in jobs
    ]


def _until_empty(ahead: Outlook) -> list[str]:
    done = ahead.done_words()
    return [f"🌅 {escape(done)}"] if done else []


def _alarms(view: BoxView) -> list[str]:
    alarms = []
    if not view.up:
        alarms.append(f"🚨 {bold('No runner is up: nothing starts.')} On the box: {code('nightshift up --detach')}")
    if view.trouble:
        alarms.append(f"⚠️ {escape(view.trouble)}")
    if view.disk:
        alarms.append(f"💾 {escape(room_left(view.disk['free_mib'], view.disk.get('files')))} on the disk")
    if view.held:
        alarms.append(f"⏸ {escape(view.held)}")
    alarms += [f"⚠️ {escape(trouble)}" for trouble in view.bot_troubles]
    alarms += [f"📪 {count} not delivered: {escape(why)}" for why, count in view.undeliverable[:3]]
    if view.strangers:
        alarms.append(f"🚪 {view.strangers} messages from strangers, not answered")
    return alarms


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
    counts = [f"{job_words.SIGNS[state]} {count}" for state, count in ended.items() if count]
    return ["", f"24 h: {' · '.join(counts)}"]


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
    jobs: Sequence[Job], reasons: Mapping[int, str], total: int, first: int, held: str, ahead: Outlook,
    placed: Sequence[str] = (),
) -> str:  # fmt: skip
    """Describe one page of the queue. `placed`: lines about jobs that wait in the queue of a cluster."""
    paused = [*placed, *([f"⏸ {escape(held)}"] if held else [])]
    if not jobs:
        return fit(["\n".join(["Nothing waits. /submit queues a job.", *paused])])
    parts = [bold(f"{total:,} waiting"), *paused]
    parts += _waiting(jobs, reasons, held, ahead)
    parts += [*_more(total - first - len(jobs)), *_until_empty(ahead)]
    return fit(["\n".join(parts)])


def job_page(
    job: Job, *, indices: Mapping[str, int | str], usage: Mapping[str, Any] | None, reason: str | None,
    name_of: Callable[[str], str], probe: str | None = None, starts: str = "",
    progress: str = "",
) -> str:  # fmt: skip
    """Describe one job in full."""
    now = clock.now()
    state = reason or state_words(job)
    state = f"{state} · {starts}" if starts else state
    lines = [
        f"{sign(job)} {heading(job)} · {escape(state)}",
        job_words.command_line(job, 1500),
        f"{escape(name_of(job.spec.owner))} · {escape(job.spec.workspace or job.spec.dir)}",
        f"code as submitted: {escape(snapshot_words(job.spec))}" if job.spec.snapshot else "",
    ]
    lines.append(escape(job_words.membership(job)))
    used = job_words.usage_words(usage, None if probe else job.batch_size, memory=not probe)
    ran = [duration_words(job, now), job_words.gpu_list(job, indices), used]
    lines += [" · ".join(escape(part) for part in ran if part), escape(probe or "")]
    lines.append(escape(progress))
    lines.append(_dates(job))
    if job.attempt > 1:
        lines.append(f"attempt {job.attempt}")
    if job.stop and not job.state.final:
        lines.append(f"stop asked by {escape(name_of(job.stop.by))}")
    lines.append(f"run {code(job.run_id)}")
    return fit(["\n".join(line for line in lines if line)])


def _dates(job: Job) -> str:
    now = clock.now()
    dates = {"submitted": job.submitted_at, "started": job.started_at, "ended": job.finished_at}
    return " · ".join(f"{what} {local_time(at, short_time(at, now))}" for what, at in dates.items() if at)


def submitted(job: Job, reason: str | None, echo: str, again: int | None = None) -> str:
    """Say that a job is queued."""
    where = f" in {escape(job.spec.workspace)}" if job.spec.workspace else ""
    why = f"\n{escape(reason)}" if reason else ""
    why += f"\n{italic(f'#{again} again')}" if again else ""
    if copied := snapshot_words(job.spec):
        why += f"\ncode as {'it was then' if again else 'it is now'}: {escape(copied)}"
    return fit([f"⏳ {heading(job)} queued{where}\n", Shrink(echo, code, keep="both"), why])


def submitted_many(ids: Sequence[int], reason: str | None) -> str:
    """Say that several jobs are queued."""
    why = f"\n{escape(reason)}" if reason else ""
    return f"⏳ {len(ids)} jobs queued: {job_words.numbered(ids)}{why}"


def output(job: Job, page: LogPage, note: str, why: str = "") -> str:
    """Show a page of a job's output; above it, if they are not on it, the lines that say why the job failed."""
    head = f"{sign(job)} {heading(job)} · {escape(note)}\n" if note else f"{sign(job)} {heading(job)}\n"
    failure: list[str | Shrink] = [Shrink(why, folded, keep="end", at_least=600), "\n"] if why else []
    if not page.text.strip():
        return fit([head, *failure, italic("nothing here")])
    return fit([head, *failure, Shrink(page.text, pre, keep="end")])


def failure(job: Job, why: str) -> str:
    """Show the lines of a job's output that say why it failed."""
    return fit([f"{sign(job)} {heading(job)}\n", Shrink(why, folded, keep="end")] if why else ["no output"])
