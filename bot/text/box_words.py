"""Messages about the box itself: its queue, GPUs, disk, runner and backups. Each function returns HTML for Telegram."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.telegram_html import Shrink, bold, code, escape, fit
from bot.text import job_words
from runner.api.chat import clock, format_duration, format_mib, short_time
from runner.model import State

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def paused(data: Mapping[str, Any], box: str) -> str:
    """Say that the breaker paused the queue, and when it tries a job."""
    then = f"Running jobs go on. {_how_it_is_tried(data)} Resume if nothing is wrong with the box."
    return fit([f"⏸ {bold(box)} is paused: {escape(str(data['why']))}\n", f"{_numbers(data.get('jobs', ()))}. {then}"])


def _how_it_is_tried(data: Mapping[str, Any]) -> str:
    if not data.get("again"):
        return "No more start."
    due = clock.moment(data["try_at"])
    if due is None:
        return "I try the next job as soon as it can start."
    at = f"at {due.astimezone():%H:%M}"
    return (
        f"No more start. I try one job {at}."
        if data["tries"]
        else (f"No more like them start. I try a job of another kind as soon as one waits, else one like them {at}.")
    )


def goes_on(data: Mapping[str, Any], box: str) -> str:
    """Say that the queue goes on because the trial job did not fail, and how many similar jobs stay held."""
    failed, held = _numbers(data.get("jobs", ())), data.get("held", ())
    if not held:
        return fit([f"▶️ {bold(box)} goes on: #{data['trial']} runs."])
    count = "1 job" if len(held) == 1 else f"{len(held)} jobs"
    return fit(
        [
            f"⏸ {count} held on {bold(box)}: {escape(str(data['why']))}\n",
            f"{failed}. Those like them wait until somebody releases them. The others go on: #{data['trial']} runs.",
        ]
    )


def _numbers(jobs: Sequence[int]) -> str:
    """List each job once, even if several of its attempts failed."""
    return ", ".join(f"#{number}" for number in dict.fromkeys(jobs))


FEW_FILES = 1000


def queue_empty(data: Mapping[str, Any], box: str) -> str:
    """Say that the queue is empty, how its jobs ended, and which command will run when."""
    parts: list[str | Shrink] = [f"🌅 {bold(box)} has nothing left to do"]
    if data.get("command"):
        parts += [f". {_when(data.get('due_at'))} it runs: ", Shrink(str(data["command"]), code, keep="both")]
    return fit([*parts, *_done(data)])


def _when(due_at: str | None) -> str:
    due = clock.moment(due_at)
    if due is None:
        return "Soon"
    left_s = max((due - clock.now()).total_seconds(), 0.0)
    return f"In {format_duration(round(left_s))}, at {due.astimezone():%H:%M},"


def _done(data: Mapping[str, Any]) -> list[str]:
    """Return a line that counts the ended jobs by outcome, and the held jobs; an empty list if there are none."""
    jobs, failed, held = (int(data.get(name) or 0) for name in ("jobs", "failed", "held"))
    since = clock.moment(data.get("since"))
    told = []
    if jobs:
        when = f" since {short_time(since, clock.now())}" if since else ""
        told.append(f"{jobs:,} job{'s' if jobs != 1 else ''}{when}")
        told += _how_they_ended(data.get("states") or {}, jobs, failed)
    if held:
        told.append(f"{held:,} held back")
    return [f"\n{' · '.join(told)}"] if told else []


def _how_they_ended(states: Mapping[str, int], jobs: int, failed: int) -> list[str]:
    if not failed:
        return ["all succeeded" if jobs > 1 else "it succeeded"]
    stopped = states.get(State.CANCELLED.value, 0)
    words_of = {"succeeded": jobs - failed, "failed": failed - stopped, "stopped": stopped}
    return [f"{count:,} {word}" for word, count in words_of.items() if count]


def when_empty_ran(data: Mapping[str, Any], box: str) -> str:
    """Say whether the command for an empty queue could run, and its exit code if it failed."""
    code_, command = data.get("exit_code"), Shrink(str(data.get("command", "")), code, keep="both")
    if code_ is None:
        return fit([f"⚠️ {bold(box)} could not run ", command])
    how = "" if code_ == 0 else f": it failed, exit {code_}"
    return fit([f"{'⚠️' if code_ else '🌅'} {bold(box)} ran ", command, how])


def drained(_: Mapping[str, Any], box: str) -> str:
    """Say that the drain is complete: nothing runs and nothing starts."""
    return f"⏏️ {bold(box)} is drained: nothing runs, and nothing starts before you resume it."


def disk_low(data: Mapping[str, Any], box: str) -> str:
    """Warn that the disk has little space left, or room for few more files."""
    return fit(
        [
            f"💾 {bold(box)}: {escape(room_left(data))} on the disk of {code(str(data['folder']))}\n",
            "When it is full nothing can be queued, and what jobs print is lost; they themselves go on. To make room: ",
            code("nightshift prune --older-than 30d"),
        ]
    )


def disk_back(data: Mapping[str, Any], box: str) -> str:
    """Say that the disk has room again."""
    since = clock.moment(data.get("since"))
    when = f"; it was short since {short_time(since, clock.now())}" if since else ""
    return f"💾 {bold(box)} has room on its disk again: {format_mib(data['free_mib'])} free{when}"


def no_runner(data: Mapping[str, Any], box: str) -> str:
    """Say that no runner is up, so that no job starts."""
    return fit(
        [
            f"🛑 No runner is up on {bold(box)} {_since(data.get('since'))}. ",
            "Queued jobs wait; running jobs go on. Start it with ",
            *(code("nightshift up"), ". If it does not stay up, ", code("nightshift doctor"), " says why."),
        ]
    )


def runner_back(data: Mapping[str, Any], box: str) -> str:
    """Say that a runner is up again."""
    return (
        f"▶️ A runner is up on {bold(box)} again, {_since(data.get('at'))}. There was none {_since(data.get('since'))}."
    )


def _since(stored: str | None) -> str:
    at = clock.moment(stored)
    return f"since {short_time(at, clock.now())}" if at else "now"


def backup_failing(data: Mapping[str, Any], box: str) -> str:
    """Say that the queue can no longer be backed up, and why."""
    return fit(
        [
            f"💾 {bold(box)}: the queue is no longer copied to {code(str(data['folder']))}\n",
            Shrink(str(data["why"]), escape, keep="both"),
            "\nJobs go on. If this box loses its disk now, what was queued since is lost. I say when copies are back.",
        ]
    )


def backup_back(data: Mapping[str, Any], box: str) -> str:
    """Say that the queue is backed up again."""
    since = clock.moment(data.get("since"))
    when = f"; it was not since {short_time(since, clock.now())}" if since else ""
    return f"💾 {bold(box)}: the queue is copied to {code(str(data['folder']))} again{when}"


def new_queue(data: Mapping[str, Any], box: str) -> str:
    """Say that the queue's file was gone and had no backup, so a new queue was created."""
    count = int(data["jobs"])
    jobs = f"{count:,} job{'s' if count != 1 else ''}"
    left = f"{code(str(data['folder']))} still has the folders of {jobs} from before. " if count else ""
    return fit(
        [
            f"🚨 {bold(box)}: the queue's file was gone, so I began a new, empty queue\n{left}",
            "What waited then is lost, and what ran may still run. If you have the old file: stop nightshift, put it ",
            "back, and start nightshift again.",
        ]
    )


def queue_restored(data: Mapping[str, Any], box: str) -> str:
    """Say that the queue's file was gone and was restored from its backup."""
    return fit(
        [
            f"⚠️ {bold(box)}: the queue's file was gone, so I restored the copy {code(str(data['from']))}\n",
            "What was queued in the last seconds before may be missing.",
        ]
    )


def room_left(data: Mapping[str, Any]) -> str:
    """Say how many more files fit, if that is fewer than FEW_FILES, or else how much space is left."""
    if data.get("files") is not None and data["files"] < FEW_FILES:
        return f"only {data['files']:,} more files fit"
    return f"only {format_mib(data['free_mib'])} left"


def gpu_trouble(kind: str, data: Mapping[str, Any], box: str, indices: Mapping[str, int]) -> str:
    """Say that a GPU is lost, is back, or is still in use after its job ended."""
    uuid = str(data.get("gpu", ""))
    known = data["index"] if data.get("index") is not None else indices.get(uuid)
    which = f"GPU {known}" if known is not None else job_words.gpu_names([uuid], indices)
    where = f"{bold(which)} of {bold(box)}"
    why = f"{escape(str(data['why']))}. " if data.get("why") else ""
    said = {
        "gpu lost": f"🧯 {where} is lost\n{why}Its job goes on as far as it can; nothing more starts there.",
        "gpu back": f"🔌 {where} is back",
        "gpu held": f"⚠️ {where} is still taken after its job ended\n{why}Nothing starts there meanwhile.",
    }
    return fit([said.get(kind, f"{where}: {escape(kind)} {why}")])


OF_THE_BOX: dict[str, Callable[[Mapping[str, Any], str], str]] = {
    "paused": paused,
    "goes on": goes_on,
    "queue empty": queue_empty,
    "when empty ran": when_empty_ran,
    "drained": drained,
    "disk low": disk_low,
    "disk back": disk_back,
    "no runner": no_runner,
    "runner back": runner_back,
    "backup failing": backup_failing,
    "backup back": backup_back,
    "new queue": new_queue,
    "queue restored": queue_restored,
}
