"""`nightshift log`: prints the output of a job, byte for byte, and follows it."""

from __future__ import annotations

import os
import sys
from collections import deque
from contextlib import closing
from typing import TYPE_CHECKING

import click

from runner import rundir
from runner.errors import UserError
from runner.processes.file_changes import Changes
from runner.terminal.log_follow import Growing, Stamps
from runner.terminal.session import JOB, open_queue, say
from runner.terminal.wait import wait_until

if TYPE_CHECKING:
    from datetime import datetime

    from runner.api import Queue

NO_TIME = "-"


@click.command("log")
@click.argument("job_id", type=JOB, metavar="N")
@click.option("-f", "--follow", is_flag=True, help="Print new output until the job ends; wait for its start.")
@click.option("--times", is_flag=True, help="Print the time before each line.")
@click.option("-n", "--tail", "lines", type=click.IntRange(0, 10**9), metavar="K", help="Only the last K lines.")
@click.option(
    "--attempt", type=click.IntRange(1, 10**9), metavar="A", help="The output of this attempt (default: the latest)."
)
def log(job_id: int, follow: bool, times: bool, lines: int | None, attempt: int | None) -> None:
    """Print the output of job N, stdout and stderr in order.

    Example: nightshift log 12 -f --tail 20
    """
    with open_queue() as queue:
        _check(queue, job_id, attempt)
        if follow:
            _follow(queue, job_id, attempt, times, lines)
        else:
            _print_now(queue, job_id, attempt, times, lines)


def _check(queue: Queue, job_id: int, attempt: int | None) -> None:
    latest = queue.job(job_id).attempt
    if attempt is not None and attempt > latest:
        why = f"The latest is {latest}." if latest else "It has not started yet."
        raise UserError(f"Job {job_id} has no attempt {attempt}. {why}")


def _print_now(queue: Queue, job_id: int, attempt: int | None, times: bool, lines: int | None) -> None:
    output = queue.view.log(job_id, attempt)
    folder = rundir.folder_of(queue.home, job_id, attempt or queue.job(job_id).attempt)
    if times or lines is not None:
        with closing(Printer(folder, times, lines)) as printer:
            printer.catch_up()
    else:
        for piece in output.parts():
            sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()
    _explain_nothing(queue, job_id, folder)


def _explain_nothing(queue: Queue, job_id: int, folder: str) -> None:
    """If there is no output, say why, if that is known."""
    end = rundir.read_exit(folder)
    if end is not None and end.spawn_error:
        say(f"job {job_id} could not be started: {end.spawn_error}")
    elif end is not None and not end.output_bytes:
        return
    elif queue.job(job_id).state.final and not os.path.exists(os.path.join(folder, rundir.OUTPUT)):
        say(f"job {job_id} has no output: it was removed, or the job never ran")


class Printer:
    """Prints the output of one attempt, as far as it has come."""

    def __init__(self, folder: str, times: bool, lines: int | None) -> None:
        self._growing = Growing(folder)
        self._stamps = Stamps(folder) if times else None
        self._last: deque[bytes] | None = deque(maxlen=lines) if times and lines is not None else None
        self._line, self._line_at = b"", 0
        self._stamped: tuple[datetime | None, bytes] = None, f"{NO_TIME} ".encode()
        if lines is not None and not times:
            self._growing.skip_to_last_lines(lines)

    def catch_up(self) -> None:
        """Print everything that has come since the last call."""
        for piece in self._growing.read():
            if self._stamps is None:
                sys.stdout.buffer.write(piece)
            else:
                self._take(piece, self._growing.position - len(piece))
        sys.stdout.buffer.flush()

    def go_live(self) -> None:
        """Print the last lines of the output so far. From now on every line is printed at once."""
        if self._last is not None:
            sys.stdout.buffer.writelines(self._last)
            sys.stdout.buffer.flush()
            self._last = None

    def close(self) -> None:
        """Print a last line without a newline, if there is one, and close the file."""
        if self._line:
            self._print_lines(self._line + b"\n", self._line_at)
        self.go_live()
        sys.stdout.buffer.flush()
        self._growing.close()

    def _take(self, piece: bytes, position: int) -> None:
        """Print the whole lines in this piece and keep the rest for the next one."""
        if not self._line:
            self._line_at = position
        whole = max(piece.rfind(b"\n"), piece.rfind(b"\r")) + 1
        if not whole:
            self._line += piece
            return
        text, self._line = self._line + piece[:whole], piece[whole:]
        at, self._line_at = self._line_at, position + whole
        self._print_lines(text, at)

    def _print_lines(self, text: bytes, position: int) -> None:
        """Print lines that came at the same moment together: one by one, a long output takes minutes."""
        assert self._stamps is not None
        first = 0
        while first < len(text):
            moment, until = self._stamps.of(position + first)
            last = len(text) if until is None else _end_of_line(text, max(first, until - position - 1))
            self._print_stamped(text[first:last], self._stamp(moment))
            first = last

    def _stamp(self, at: datetime | None) -> bytes:
        if at != self._stamped[0]:
            text = at.astimezone().isoformat(timespec="microseconds") if at else NO_TIME
            self._stamped = at, f"{text} ".encode()
        return self._stamped[1]

    def _print_stamped(self, lines: bytes, stamp: bytes) -> None:
        if b"\r" in lines:
            lines = lines.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        stamped = stamp + lines[:-1].replace(b"\n", b"\n" + stamp) + b"\n"
        if self._last is not None:
            self._last.extend(stamped.splitlines(keepends=True))
        else:
            sys.stdout.buffer.write(stamped)


def _end_of_line(text: bytes, at: int) -> int:
    """Return the position after the line that contains the byte at `at`."""
    ends = [position for end in (b"\n", b"\r") if (position := text.find(end, at)) >= 0]
    last = min(ends, default=len(text)) + 1
    return last + 1 if text[last - 1 : last + 1] == b"\r\n" else last


def _follow(queue: Queue, job_id: int, attempt: int | None, times: bool, lines: int | None) -> None:
    """Follow this attempt, or one attempt after another until the job has ended."""
    number = attempt or _wait_for_attempt(queue, job_id, after=0)
    while number is not None:
        with closing(Printer(rundir.folder_of(queue.home, job_id, number), times, lines)) as printer:
            _follow_attempt(queue, job_id, number, printer)
        if attempt is not None:
            return
        number, lines = _wait_for_attempt(queue, job_id, after=number), None
        if number is not None:
            say(f"attempt {number} of job {job_id}")


def _wait_for_attempt(queue: Queue, job_id: int, after: int) -> int | None:
    """Wait for an attempt after this one and return its number.

    None if the job ends without another, or if its output is complete but no runner is up to record the end.
    """
    job = queue.job(job_id)
    if job.attempt <= after and not job.state.final:
        waits = queue.reasons.of([job])
        if waits:
            say(f"job {job_id} has not started yet: {waits[job_id]}")
        elif not queue.runner_is_up():
            say("the output is complete. How the job ended is recorded when a runner is up")
            return None
        wait_until(queue.home, lambda: queue.job(job_id).attempt > after or queue.job(job_id).state.final)
        job = queue.job(job_id)
    return job.attempt if job.attempt > after else None


def _follow_attempt(queue: Queue, job_id: int, number: int, printer: Printer) -> None:
    folder = rundir.folder_of(queue.home, job_id, number)

    def is_over() -> bool:
        """Return whether the attempt can produce no more output."""
        if os.path.exists(os.path.join(folder, rundir.EXIT)):
            return True
        job = queue.job(job_id)
        if job.attempt != number or not job.state.live:
            return True
        return os.path.exists(os.path.join(folder, rundir.STARTED)) and not rundir.lock_is_held(folder)

    wait_until(queue.home, lambda: os.path.isdir(folder) or is_over())
    with closing(Changes(queue.home, folder)) as changes:
        while True:
            over = is_over()  # checked before reading, so that the last output is not missed
            printer.catch_up()
            if over:
                return
            printer.go_live()
            changes.wait()
