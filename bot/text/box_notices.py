"""Notices about the box itself: its queue, GPUs, disk, runner and backups. Each function returns HTML for Telegram."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.text import job_words
from bot.text.html import Shrink, bold, code, escape, fit
from runner.api.chat import clock, format_duration, format_mib, short_time
from runner.model import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.text.notice_context import NoticeContext
    from runner.notices import (
        BackupBack,
        BackupFailing,
        DiskBack,
        DiskLow,
        Drained,
        GoesOn,
        GpuPayload,
        NewQueue,
        NoRunner,
        Paused,
        QueueEmpty,
        QueueRestored,
        RunnerBack,
        WhenEmptyRan,
    )

FEW_FILES = 1000


# -- the queue -------------------------------------------------------------------------------------


def paused(notice: Paused, context: NoticeContext) -> str:
    """Say that the breaker paused the queue, and when it tries a job."""
    first = f"⏸ {bold(context.box)} is paused: {escape(notice.why)}\n"
    then = f"Running jobs go on. {_next_try(notice)} If nothing is wrong with the box, resume it."
    return fit([first, f"{_numbers(notice.jobs)}. {then}"])


def _next_try(notice: Paused) -> str:
    if not notice.again:
        return "No other job starts."
    due = clock.moment(notice.try_at)
    if due is None:
        return "I try the next job as soon as it can start."
    at = f"at {due.astimezone():%H:%M}"
    if notice.tries:
        return f"No other job starts. I try one {at}."
    return f"No similar job starts. I try a job of another kind as soon as one waits, or else a similar one {at}."


def goes_on(notice: GoesOn, context: NoticeContext) -> str:
    """Say that the queue goes on because the trial job did not fail, and how many similar jobs stay held."""
    if not notice.held:
        return f"▶️ {bold(context.box)} goes on: #{notice.trial} runs."
    held = _count(len(notice.held), "job")
    return fit(
        [
            f"⏸ {held} held on {bold(context.box)}: {escape(notice.why)}\n",
            f"{_numbers(notice.jobs)}. Similar jobs wait until somebody releases them. ",
            f"The others go on: #{notice.trial} runs.",
        ]
    )


def _numbers(jobs: Sequence[int]) -> str:
    """List each job once, even if several of its attempts failed."""
    return ", ".join(f"#{number}" for number in dict.fromkeys(jobs))


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' if count != 1 else ''}"


def queue_empty(notice: QueueEmpty, context: NoticeContext) -> str:
    """Say that the queue is empty, how its jobs ended, and which command will run when."""
    parts: list[str | Shrink] = [f"🌅 {bold(context.box)} has nothing left to do"]
    if notice.command:
        parts += [f". {_when_it_runs(notice.due_at)} it runs: ", Shrink(notice.command, code, keep="both")]
    summary = [*_ended_jobs(notice), *([f"{notice.held:,} held"] if notice.held else [])]
    return fit([*parts, f"\n{' · '.join(summary)}" if summary else ""])


def _when_it_runs(due_at: str | None) -> str:
    due = clock.moment(due_at)
    if due is None:
        return "Soon"
    left_s = max((due - clock.now()).total_seconds(), 0.0)
    return f"In {format_duration(round(left_s))}, at {due.astimezone():%H:%M},"


def _ended_jobs(notice: QueueEmpty) -> list[str]:
    """Return how many jobs ended, and how."""
    if not notice.jobs:
        return []
    since = clock.moment(notice.since)
    jobs = _count(notice.jobs, "job") + (f" since {short_time(since, clock.now())}" if since else "")
    if not notice.failed:
        return [jobs, "all succeeded" if notice.jobs > 1 else "it succeeded"]
    stopped = notice.states.get(State.CANCELLED.value, 0)
    ends = {"succeeded": notice.jobs - notice.failed, "failed": notice.failed - stopped, "stopped": stopped}
    return [jobs, *(f"{count:,} {word}" for word, count in ends.items() if count)]


def when_empty_ran(notice: WhenEmptyRan, context: NoticeContext) -> str:
    """Say whether the command for an empty queue could run, and its exit code if it failed."""
    command, box = Shrink(notice.command, code, keep="both"), bold(context.box)
    if notice.exit_code is None:
        return fit([f"⚠️ {box} could not run ", command])
    if notice.exit_code:
        return fit([f"⚠️ {box} ran ", command, f": it failed, exit {notice.exit_code}"])
    return fit([f"🌅 {box} ran ", command])


def drained(_: Drained, context: NoticeContext) -> str:
    """Say that the drain is complete: nothing runs and nothing starts."""
    return f"⏏️ {bold(context.box)} is drained: nothing runs, and nothing starts until you resume it."


# -- GPUs ------------------------------------------------------------------------------------------


def gpu_lost(notice: GpuPayload, context: NoticeContext) -> str:
    """Say that a GPU is lost."""
    then = "Its job goes on as far as it can. Nothing else starts there."
    return fit([f"🧯 {_gpu(notice, context)} is lost\n{_why(notice)}{then}"])


def gpu_back(notice: GpuPayload, context: NoticeContext) -> str:
    """Say that a lost GPU is back."""
    return f"🔌 {_gpu(notice, context)} is back"


def gpu_held(notice: GpuPayload, context: NoticeContext) -> str:
    """Say that a GPU is still in use after its job ended."""
    then = "Nothing starts there until it is free."
    return fit([f"⚠️ {_gpu(notice, context)} is still in use after its job ended\n{_why(notice)}{then}"])


def _gpu(notice: GpuPayload, context: NoticeContext) -> str:
    index = notice.index if notice.index is not None else context.indices.get(notice.gpu)
    name = f"GPU {index}" if index is not None else job_words.gpu_names([notice.gpu], context.indices)
    return f"{bold(name)} of {bold(context.box)}"


def _why(notice: GpuPayload) -> str:
    return f"{escape(notice.why)}. " if notice.why else ""


# -- the disk and the copy of the queue --------------------------------------------------------------


def disk_low(notice: DiskLow, context: NoticeContext) -> str:
    """Warn that the disk has little space left, or room for few more files."""
    room = escape(room_left(notice.free_mib, notice.files))
    return fit(
        [
            f"💾 {bold(context.box)}: {room} on the disk of {code(notice.folder)}\n",
            "When it is full, nothing can be queued and the output of jobs is lost. Jobs themselves go on. ",
            "To make room: ",
            code("nightshift prune --older-than 30d"),
        ]
    )


def room_left(free_mib: int, files: int | None) -> str:
    """Say how many more files fit, if that is fewer than FEW_FILES, or else how much space is left."""
    if files is not None and files < FEW_FILES:
        return f"only {files:,} more files fit"
    return f"only {format_mib(free_mib)} left"


def disk_back(notice: DiskBack, context: NoticeContext) -> str:
    """Say that the disk has room again."""
    since = clock.moment(notice.since)
    when = f". It was nearly full since {short_time(since, clock.now())}." if since else ""
    return f"💾 {bold(context.box)} has room on its disk again: {format_mib(notice.free_mib)} free{when}"


def backup_failing(notice: BackupFailing, context: NoticeContext) -> str:
    """Say that the queue can no longer be backed up, and why."""
    return fit(
        [
            f"💾 {bold(context.box)}: the queue is no longer copied to {code(notice.folder)}\n",
            Shrink(notice.why, escape, keep="both"),
            "\nJobs go on. If this box loses its disk now, everything queued since then is lost. ",
            "I will tell you when copying works again.",
        ]
    )


def backup_back(notice: BackupBack, context: NoticeContext) -> str:
    """Say that the queue is backed up again."""
    since = clock.moment(notice.since)
    when = f". There was no copy since {short_time(since, clock.now())}." if since else ""
    return f"💾 {bold(context.box)}: the queue is copied to {code(notice.folder)} again{when}"


def new_queue(notice: NewQueue, context: NoticeContext) -> str:
    """Say that the queue's file was gone and had no backup, so a new queue was created."""
    jobs = _count(notice.jobs, "job")
    folders = f"{code(notice.folder)} still has the folders of {jobs} from before. " if notice.jobs else ""
    return fit(
        [
            f"🚨 {bold(context.box)}: the queue's file was gone, so I started a new, empty queue\n{folders}",
            "Waiting jobs are lost, and running ones may still run. If you have the old file: stop nightshift, ",
            "put the file back, and start nightshift again.",
        ]
    )


def queue_restored(notice: QueueRestored, context: NoticeContext) -> str:
    """Say that the queue's file was gone and was restored from its backup."""
    return fit(
        [
            f"⚠️ {bold(context.box)}: the queue's file was gone, so I restored the copy {code(notice.origin)}\n",
            "Jobs queued in the last seconds before may be missing.",
        ]
    )


# -- the runner ------------------------------------------------------------------------------------


def no_runner(notice: NoRunner, context: NoticeContext) -> str:
    """Say that no runner is up, so that no job starts."""
    return fit(
        [
            f"🛑 No runner is up on {bold(context.box)} {_since(notice.since)}. ",
            "Queued jobs wait, and running jobs go on. Start it with ",
            *(code("nightshift up"), ". If it does not stay up, ", code("nightshift doctor"), " says why."),
        ]
    )


def runner_back(notice: RunnerBack, context: NoticeContext) -> str:
    """Say that a runner is up again."""
    return f"▶️ A runner is up on {bold(context.box)} again, {_since(notice.at)}. There was none {_since(notice.since)}."


def _since(stored: str | None) -> str:
    at = clock.moment(stored)
    return f"since {short_time(at, clock.now())}" if at else "now"
