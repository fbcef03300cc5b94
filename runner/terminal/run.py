"""`nightshift run`: waits in the queue like any job, then gives a terminal on the job's GPUs."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from runner import rundir
from runner.api import Queue
from runner.config import options
from runner.config.option_reader import read_words
from runner.errors import UserError
from runner.processes.file_changes import Changes
from runner.terminal.attach import connected, relay
from runner.terminal.console import user
from runner.terminal.session import say, warn_without_runner
from runner.terminal.submit import HELP, Submission, print_help
from runner.terminal.wait import wait_until
from runner.text.table import shortened, terminal_width
from runner.text.words import printable, state_words

if TYPE_CHECKING:
    from collections.abc import Sequence
    from socket import socket

USAGE = """\
Usage: nightshift run [options] [-- COMMAND…]

Wait in the queue like any job, then use the GPUs from this terminal. Without a
COMMAND you get your shell. One argument after -- is shell text; several are an
exact list of arguments.

The session ends when you leave it, at its time limit, or when this terminal is
closed. While it waits, Ctrl-C cancels it. An idle GPU counts as for any job:
--idle off keeps the session anyway.

  nightshift run -g 1 -t 2h
  nightshift run -t 30m -- python -i model.py
"""
_LEFT_OUT = {"preemptible", "retries", "retry_on", "probe", "trial"}
SECTIONS = {
    **{
        title: tuple(option for option in section if option.key not in _LEFT_OUT)
        for title, section in options.SECTIONS.items()
        if any(option.key not in _LEFT_OUT for option in section)
    },
    "This command": (HELP,),
}
_OF_THIS_TERMINAL = ("TERM", "COLORTERM")
NAMED = 100  # jobs at the front of the queue whose position is told


class _Left(BaseException):
    """A signal that ends this command."""


def main(words: Sequence[str]) -> int:
    """Queue the session, wait for its start, and be its terminal. Return its exit code."""
    values, rest, _ = read_words(words, (HELP,))
    if values.get("help"):
        return print_help(USAGE, SECTIONS)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("`nightshift run` needs a terminal. Without one, try: nightshift submit --wait -- …")
    with Queue(actor=user()) as queue:
        job_id = _submit(queue, values, rest)
        for number in (signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, _leave)
        try:
            return _attend(queue, job_id)
        except (KeyboardInterrupt, _Left) as left:
            with suppress(UserError):  # it has ended
                say(queue.stop(job_id))
            return 130 if isinstance(left, KeyboardInterrupt) else 128 + int(left.args[0])


def _submit(queue: Queue, values: dict[str, Any], rest: list[str]) -> int:
    here = {name: os.environ[name] for name in _OF_THIS_TERMINAL if name in os.environ}
    values = {**values, "terminal": True, "env": {**here, **values.get("env", {})}}
    submission = Submission(queue, values, silent=True)
    if len(rest) == 1:
        submission.submit(rest[0])
    else:
        submission.submit("", rest or [os.environ.get("SHELL") or "bash"])
    warn_without_runner(queue, "this waits until one is")
    return submission.ids[0]


def _leave(number: int, _: object) -> None:
    raise _Left(number)


def _attend(queue: Queue, job_id: int) -> int:
    """Be the terminal of the job until it has ended, and tell how it ended. Return its exit code."""
    while (connection := _started(queue, job_id)) is not None:
        with connection:
            if number := relay(connection):
                return 128 + number
        wait_until(queue.home, lambda: not queue.job(job_id).state.live or not queue.runner_is_up())
        if queue.job(job_id).state.live:
            break
    job = queue.job(job_id)
    end = rundir.read_exit(rundir.folder_of(queue.home, job_id, job.attempt))
    how = "it has ended; a runner will record how" if job.state.live else state_words(job)
    why = f": {end.spawn_error}" if end and end.spawn_error else ""
    by = f", asked for by {job.stop.by}" if job.stop else ""
    say(printable(f"job {job_id}: {how}{why}{by}"))
    if end is not None and end.exit_code is not None:
        return end.exit_code
    return 128 + end.signal if end and end.signal else 1


def _started(queue: Queue, job_id: int) -> socket | None:
    """Wait until the job has started, and connect to its terminal. Return None if it has ended."""
    with closing(Changes(queue.home)) as changes, closing(_WaitingLine()) as line:
        while True:
            job = queue.job(job_id)
            if job.state.final:
                return None
            if job.state.live and (found := connected(rundir.folder_of(queue.home, job_id, job.attempt))):
                return found
            line.show(_place(queue, job_id))
            changes.wait()


def _place(queue: Queue, job_id: int) -> str:
    """Return where in the queue the job is, when it starts, and what it waits for."""
    job = queue.job(job_id)
    if job.state.live:
        return f"job {job_id} starts"
    ahead = [one.id for one in queue.listing.queued(NAMED)]
    place = f"number {ahead.index(job_id) + 1}" if job_id in ahead else f"behind {NAMED} others"
    start, why = queue.view.outlook().start_words(job_id), queue.reasons.of([job]).get(job_id, "")
    parts = [f"job {job_id} waits, {place} in the queue", f"starts {start}" if start else "", why]
    return " · ".join(part for part in parts if part)


class _WaitingLine:
    """One line that is written again and again, on stderr."""

    def __init__(self) -> None:
        self._text = ""

    def show(self, text: str) -> None:
        """Replace the line."""
        if text != self._text:
            self._text = text
            cut = shortened(printable(text), (terminal_width() or 80) - 1)
            print(f"\r\033[K{cut}", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Clear the line, if there is one."""
        if self._text:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
