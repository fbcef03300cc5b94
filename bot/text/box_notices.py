"""Notices about the box itself: its queue, GPUs, disk, runner and backups. Each function returns HTML for Telegram."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.text.html import Shrink, bold, code, escape, fit, local_time
from bot.text.job_words import counted, gpu_names
from runner.api.chat import clock, format_duration, format_mib, short_time
from runner.model import State

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from runner import notices

FEW_FILES = 1000
ERROR_CHARS = 300  # of an error line; what was stored may end in part of a secret, but not so early


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeContext:
    """What the text of a notice needs besides the notice itself: the box that it happened on."""

    box: str
    indices: Mapping[str, int | str]  # of the GPUs, by UUID
    name_of: Callable[[str], str]  # people's names


def _at(stored: str | None, words: str, otherwise: str = "") -> str:
    """Put a stored time into the words; without one, return `otherwise`."""
    at = clock.moment(stored)
    return words.format(local_time(at, short_time(at, clock.now()))) if at else otherwise


# -- the queue -------------------------------------------------------------------------------------


def paused(notice: notices.Paused, context: NoticeContext) -> str:
    """Say that the breaker paused the queue, and when it tries a job."""
    first = f"⏸ {bold(context.box)} is paused: {escape(notice.why)}\n{_error(notice)}"
    then = f"Running jobs go on. {_next_try(notice)} If the box is fine, resume it now."
    return fit([first, f"{_failed_jobs(notice.jobs)}. {then}"])


def _next_try(notice: notices.Paused) -> str:
    if not notice.again:
        return "No other job starts."
    due = clock.moment(notice.try_at)
    if due is None:
        return "I will try the next job as soon as it can start."
    at = f"at {local_time(due, f'{due.astimezone():%H:%M}')}"
    if notice.tries:
        return f"No other job starts. I will try one {at}."
    return f"No similar job starts. I will try another kind of job as soon as one waits, or else a similar one {at}."


def goes_on(notice: notices.GoesOn, context: NoticeContext) -> str:
    """Say that the queue goes on because the trial job did not fail, and how many similar jobs stay held."""
    if not notice.held:
        return f"▶️ {bold(context.box)} starts jobs again: #{notice.trial} runs."
    return fit(
        [
            f"⏸ {counted(len(notice.held), 'job')} held on {bold(context.box)}: {escape(notice.why)}\n{_error(notice)}",
            f"{_failed_jobs(notice.jobs)}. Similar jobs wait until somebody releases them. ",
            f"Other jobs start again: #{notice.trial} runs.",
        ]
    )


def _error(notice: notices.Paused | notices.GoesOn) -> str:
    return f"{code(notice.error[:ERROR_CHARS])}\n" if notice.error else ""


def _failed_jobs(jobs: Sequence[int]) -> str:
    """List each job once, even if several of its attempts failed."""
    return "Failed: " + ", ".join(f"#{number}" for number in dict.fromkeys(jobs))


def queue_empty(notice: notices.QueueEmpty, context: NoticeContext) -> str:
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
    return f"In {format_duration(round(left_s))}, at {local_time(due, f'{due.astimezone():%H:%M}')},"


def _ended_jobs(notice: notices.QueueEmpty) -> list[str]:
    """Return how many jobs ended, and how."""
    if not notice.jobs:
        return []
    jobs = counted(notice.jobs, "job") + _at(notice.since, " since {}")
    if not notice.failed:
        return [jobs, "all succeeded" if notice.jobs > 1 else "it succeeded"]
    stopped = notice.states.get(State.CANCELLED.value, 0)
    ends = {"succeeded": notice.jobs - notice.failed, "failed": notice.failed - stopped, "stopped": stopped}
    return [jobs, *(f"{count:,} {word}" for word, count in ends.items() if count)]


def when_empty_ran(notice: notices.WhenEmptyRan, context: NoticeContext) -> str:
    """Say whether the command for an empty queue could run, and its exit code if it failed."""
    command, box = Shrink(notice.command, code, keep="both"), bold(context.box)
    if notice.exit_code is None:
        return fit([f"⚠️ {box} could not run ", command])
    if notice.exit_code:
        return fit([f"⚠️ {box} ran ", command, f": it failed, exit {notice.exit_code}"])
    return fit([f"🌅 {box} ran ", command])


def drained(_: notices.Drained, context: NoticeContext) -> str:
    """Say that the drain is complete: nothing runs and nothing starts."""
    return f"⏏️ {bold(context.box)} is drained: nothing runs, and nothing starts until you resume it."


# -- GPUs ------------------------------------------------------------------------------------------


def gpu_lost(notice: notices.GpuPayload, context: NoticeContext) -> str:
    """Say that a GPU is lost."""
    then = "Its job goes on as far as it can. Nothing else starts there."
    return fit([f"🧯 {_gpu(notice, context)} is lost\n{_why(notice)}{then}"])


def gpu_back(notice: notices.GpuPayload, context: NoticeContext) -> str:
    """Say that a lost GPU is back."""
    return f"🔌 {_gpu(notice, context)} is back"


def gpu_held(notice: notices.GpuPayload, context: NoticeContext) -> str:
    """Say that a GPU is still in use after its job ended."""
    then = "Nothing starts there until it is free."
    return fit([f"⚠️ {_gpu(notice, context)} is still in use after its job ended\n{_why(notice)}{then}"])


def _gpu(notice: notices.GpuPayload, context: NoticeContext) -> str:
    index = notice.index if notice.index is not None else context.indices.get(notice.gpu)
    name = f"GPU {index}" if index is not None else gpu_names([notice.gpu], context.indices)
    return f"{bold(name)} of {bold(context.box)}"


def _why(notice: notices.GpuPayload) -> str:
    return f"{escape(notice.why)}. " if notice.why else ""


# -- the disk and the copy of the queue --------------------------------------------------------------


def disk_low(notice: notices.DiskLow, context: NoticeContext) -> str:
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


def disk_back(notice: notices.DiskBack, context: NoticeContext) -> str:
    """Say that the disk has room again."""
    when = _at(notice.since, ". It was nearly full since {}.")
    return f"💾 {bold(context.box)} has room on its disk again: {format_mib(notice.free_mib)} free{when}"


def backup_failing(notice: notices.BackupFailing, context: NoticeContext) -> str:
    """Say that the queue can no longer be backed up, and why."""
    return fit(
        [
            f"💾 {bold(context.box)}: the queue is no longer copied to {code(notice.folder)}\n",
            Shrink(notice.why, escape, keep="both"),
            "\nJobs go on. If this box loses its disk now, jobs queued since the last copy are lost. ",
            "I will tell you when copying works again.",
        ]
    )


def backup_back(notice: notices.BackupBack, context: NoticeContext) -> str:
    """Say that the queue is backed up again."""
    when = _at(notice.since, ". There was no copy since {}.")
    return f"💾 {bold(context.box)}: the queue is copied to {code(notice.folder)} again{when}"


def new_queue(notice: notices.NewQueue, context: NoticeContext) -> str:
    """Say that the queue's file was gone and had no backup, so a new queue was created."""
    jobs = counted(notice.jobs, "job")
    folders = f"{code(notice.folder)} still has the folders of {jobs} from before. " if notice.jobs else ""
    return fit(
        [
            f"🚨 {bold(context.box)}: the queue's file was gone, so I started a new, empty queue\n{folders}",
            "Waiting jobs are lost, and running ones may still run. If you have the old file: stop nightshift, ",
            "put the file back, and start nightshift again.",
        ]
    )


def queue_restored(notice: notices.QueueRestored, context: NoticeContext) -> str:
    """Say that the queue's file was gone and was restored from its backup."""
    return fit(
        [
            f"⚠️ {bold(context.box)}: the queue's file was gone, so I restored the copy {code(notice.origin)}\n",
            "Jobs queued in the last seconds before may be missing.",
        ]
    )


# -- the runner ------------------------------------------------------------------------------------


def no_runner(notice: notices.NoRunner, context: NoticeContext) -> str:
    """Say that no runner is up, so that no job starts."""
    return fit(
        [
            f"🛑 {bold(context.box)} {_at(notice.since, 'has had no runner since {}', 'has no runner')}. ",
            "Queued jobs wait, running jobs go on. On the box, start one with ",
            *(code("nightshift up"), ". If it does not stay up, ", code("nightshift doctor"), " says why."),
        ]
    )


def runner_back(notice: notices.RunnerBack, context: NoticeContext) -> str:
    """Say that a runner is up again."""
    back, gone = _at(notice.at, " since {}"), _at(notice.since, " It had none since {}.")
    return f"▶️ {bold(context.box)} has a runner again{back}.{gone}"
