"""`nightshift feed`: works like simple_gpu_scheduler, but its commands become jobs that outlive it."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

from runner import rundir
from runner.config import options
from runner.config.option_reader import read_words, take_lists
from runner.errors import UserError
from runner.model import State
from runner.processes.file_changes import Changes
from runner.terminal import submit
from runner.terminal.job_table import gpu_indices
from runner.terminal.log_follow import Growing
from runner.terminal.session import counted, open_queue, say, warn_without_runner
from runner.text.words import state_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.api import Queue
    from runner.store.listing import Happened

USAGE = """\
Usage: nightshift feed --gpus 0 1 2 < gpu_commands.txt
       tail -f -n 0 gpu.queue | nightshift feed --gpus 0,1,2

Run one command per line of standard input, each on one of these GPUs, as lines
come and GPUs become free. Return when all have ended.

Each line becomes a job of the queue as soon as it is read. The job goes on
whatever happens to this command. Ctrl-C stops the reading and lets the jobs
finish. A second Ctrl-C returns at once, and the jobs still go on.

The output of the jobs is printed here in whole lines, and kept for
nightshift log N. The exit code is 1 if a line could not be queued, otherwise 0,
whether or not the jobs succeed.
"""
GPUS = ("--gpus",)
OWN = (options.Option(("-q", "--quiet"), "", "quiet", "do not print the output of the jobs", bool), submit.HELP)


def _of_a_job(option: options.Option) -> options.Option:
    """Return an option of submit as feed has it: here --gpus names the GPUs, and -g is how many a job gets."""
    if option.key == "gpus":
        return option._replace(flags=("-g",), help="how many of these GPUs (default 1)")
    return option._replace(flags=()) if option.key == "on" else option


ON = options.Option(GPUS, "0 1 2", "on", "use these GPUs, by index or UUID (default all)", str)
SECTIONS = {"This command": (ON, *OWN), **submit.of_each_job(_of_a_job)}
ENOUGH = 2  # signals (Ctrl-C or SIGTERM) after which it returns at once


def main(words: Sequence[str]) -> int:
    """Queue the lines as they come and follow their jobs until they end. Return the exit code."""
    values = _read(words)
    if values.get("help"):
        return submit.print_help(USAGE, SECTIONS)
    lines = submit.Lines(sys.stdin)
    with open_queue() as queue, closing(Changes(queue.home)) as changes, closing(_Signals()) as signals:
        feed = Feed(queue, values, changes)
        warn_without_runner(queue, "what is read waits until one is")
        return feed.run(lines, signals)


def _read(words: Sequence[str]) -> dict[str, Any]:
    lists, rest = take_lists(words, *GPUS)
    gpus = [name for group in lists for word in group for name in word.split(",") if name]
    if lists and not gpus:
        raise UserError("--gpus needs GPUs, like --gpus 0 1 2")
    if len(set(gpus)) < len(gpus):
        raise UserError("--gpus names a GPU twice. For several jobs on each, set NIGHTSHIFT_SLOTS_PER_GPU.")
    chosen = ["--on", ",".join(gpus)] if gpus else []
    try:
        values, rest, _ = read_words(["-g", "1", *chosen, *rest], OWN)
    except UserError as error:
        if "--on" not in str(error):
            raise
        raise UserError(str(error).replace("--gpus", "-g").replace("--on", "--gpus")) from None
    if rest:
        raise UserError(
            f"{rest[0]!r} is one word too many: the commands come from standard input. More: nightshift feed --help"
        )
    return values


class Feed:
    """Queues the lines of one feed and follows their jobs until they end."""

    def __init__(self, queue: Queue, values: dict[str, Any], changes: Changes) -> None:
        self._queue, self._changes = queue, changes
        self._on: tuple[str, ...] = values.get("on", ())
        self._quiet = bool(values.get("quiet"))
        self._submission = submit.Submission(queue, values, silent=True)
        self._submission.refuse_hopeless()
        self._unfinished: dict[int, str] = {}  # job -> its command
        self._begun: set[int] = set()
        self._printed: dict[int, _Printed] = {}
        self._seen = queue.line.last_event()
        self._blocked: str | None = None

    def run(self, lines: submit.Lines, signals: _Signals) -> int:
        """Run until all lines are read and all jobs have ended, or until a second signal. Return the exit code."""
        reading = True
        while reading or self._unfinished:
            awaited = [signals.descriptor, *([lines.descriptor] if reading else [])]
            ready = self._changes.wait(also=awaited)
            if signals.descriptor in ready and signals.take() and self._leaves(lines.are_open, signals.count):
                return 128 + signals.last
            if lines.descriptor in ready and not signals.count and (batch := lines.read()):
                self._unfinished |= self._submission.submit_lines(batch)
            reading = lines.are_open and not signals.count
            self._look()
        if not self._submission.ids and not self._submission.refused and not signals.count:
            say("there was no command on standard input: it takes one per line.")
        return int(self._submission.refused)

    def _leaves(self, reading: bool, count: int) -> bool:
        """Say what happens to the jobs after a signal. Return whether to leave now."""
        left = counted(len(self._unfinished), "job")
        goes_on = f"{left} go{'es' if len(self._unfinished) == 1 else ''} on"
        if count >= ENOUGH:
            say(f"{goes_on} without this command; `nightshift ls` shows them, `nightshift kill` stops them.")
            return True
        no_more = "no more lines are read. " if reading else ""
        if self._unfinished:
            say(f"{no_more}{goes_on}, and this waits for the end; once more (Ctrl-C) to leave now.")
        elif no_more:
            say(no_more.strip())
        return False

    # -- what happens to the jobs --------------------------------------------------------------------

    def _look(self) -> None:
        for printed in self._printed.values():
            submit.write_or_discard(printed.lines())
        for event in self._queue.listing.events_after(self._seen):
            self._seen = event.number
            if event.job_id in self._unfinished:
                self._take(event)
        blocked = self._queue.reasons.why_blocked(self._unfinished) if self._unfinished else None
        if blocked and blocked != self._blocked:
            say(blocked)
        self._blocked = blocked

    def _take(self, event: Happened) -> None:
        if event.kind == "started":
            self._start(event.job_id, event.attempt or 1, json.loads(event.data)["gpus"])
        elif event.kind == "requeued":
            self._close_output(event.job_id)
        elif event.kind == "ended":
            self._close_output(event.job_id)
            del self._unfinished[event.job_id]
            job = self._queue.jobs.get(event.job_id)
            if job and job.state is not State.SUCCEEDED:
                say(f"job {job.id}: {state_words(job)}")

    def _start(self, job_id: int, attempt: int, gpus: list[str]) -> None:
        where = self._names(gpus)
        if job_id in self._begun:
            say(f"job {job_id} runs again, attempt {attempt}, on gpu {where}")
        else:
            line = f"Processing command `{self._unfinished[job_id]}` on gpu {where}\n"
            submit.write_or_discard(line.encode("utf-8", "surrogateescape"))
        self._begun.add(job_id)
        if not self._quiet:
            folder = rundir.folder_of(self._queue.home, job_id, attempt)
            self._printed[job_id] = _Printed(folder, self._changes.add(folder))
            submit.write_or_discard(self._printed[job_id].lines())

    def _names(self, gpus: list[str]) -> str:
        """Return the GPUs as the user named them, else by index."""
        indices = gpu_indices(self._queue)
        names = [next((name for name in self._on if uuid.startswith(name)), indices.get(uuid, uuid)) for uuid in gpus]
        return ",".join(map(str, names)) or "none"

    def _close_output(self, job_id: int) -> None:
        printed = self._printed.pop(job_id, None)
        if printed:
            submit.write_or_discard(printed.rest())
            self._changes.drop(printed.watch)


class _Printed:
    """The output of an attempt as it grows, in whole lines, because lines of other jobs come in between."""

    def __init__(self, folder: str, watch: int) -> None:
        self.watch = watch
        self._growing, self._line = Growing(folder), b""

    def lines(self) -> bytes:
        """Return the new whole lines. A carriage return, as in progress bars, also ends a line."""
        text = self._line + b"".join(self._growing.read())
        end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        self._line = text[end:]
        return text[:end]

    def rest(self) -> bytes:
        """Return everything that is left, ending in a newline, and close the file."""
        text = self.lines() + self._line
        self._growing.close()
        return text if not text or text.endswith(b"\n") else text + b"\n"


class _Signals:
    """Makes a descriptor readable when Ctrl-C or SIGTERM comes, and counts them."""

    def __init__(self) -> None:
        self.count, self.last = 0, 0
        self.descriptor, self._write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wakeup = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}

    def close(self) -> None:
        """Handle signals as before."""
        for number, before in self._before.items():
            signal.signal(number, before)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self.descriptor)
        os.close(self._write_end)

    def _note(self, number: int, _: object) -> None:
        self.count, self.last = self.count + 1, number

    def take(self) -> bool:
        """Empty the descriptor. Return whether there was a signal."""
        return bool(os.read(self.descriptor, 1 << 10))
