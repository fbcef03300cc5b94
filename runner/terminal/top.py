"""`nightshift top`: a live view of GPUs and jobs. It is drawn again when the queue or a reading of the GPUs changes."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import termios
import time
import tty
from typing import TYPE_CHECKING

import click

from runner import clock
from runner.model import FINAL_STATES
from runner.processes import linux
from runner.processes.file_changes import Changes
from runner.terminal.gpus import gpu_lines, why_none
from runner.terminal.job_table import gpu_indices
from runner.terminal.session import open_queue
from runner.text import words
from runner.text.progress_words import short_progress
from runner.text.table import Row, paint, shortened, table_lines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from runner.api import Queue
    from runner.model import Job

MOST = 50  # jobs of each kind that are read
FEW_LAST = 5  # ended jobs in a view that is printed once
EVERY_S = 2.0  # how far jobs are changes without a change of the queue
AT_MOST_EVERY_S = 0.5
# the alternate screen, without a cursor; what is too long is cut at the edge
ENTER, LEAVE = "\033[?1049h\033[?25l\033[?7l", "\033[?7h\033[?25h\033[?1049l"
HOME, TO_END_OF_LINE, TO_END_OF_SCREEN = "\033[H", "\033[K", "\033[J"


@click.command("top")
def top() -> None:
    """Watch the GPUs, the running jobs, the next ones and the last ones. Leave with q or Ctrl-C.

    If the output is not a terminal, the view is printed once.
    """
    with open_queue() as queue:
        if sys.stdin.isatty() and sys.stdout.isatty():
            _live(queue)
        else:
            print("\n".join(_view(queue, None)))


def _live(queue: Queue) -> None:
    wake = linux.readable_signals((signal.SIGWINCH, signal.SIGTERM, signal.SIGHUP), (signal.SIGTSTP,))
    with _screen(), contextlib.closing(Changes(queue.home)) as changes:
        while True:
            _draw(_view(queue, shutil.get_terminal_size().lines))
            drawn = time.monotonic()
            heard = changes.wait(EVERY_S, (0, wake))
            if not heard and (left_s := drawn + AT_MOST_EVERY_S - time.monotonic()) > 0:
                heard, _, _ = select.select([0, wake], [], [], left_s)
            if 0 in heard and os.read(0, 64)[:1] in (b"", b"q", b"Q", b"\x03"):
                return
            if wake in heard and set(os.read(wake, 256)) - {signal.SIGWINCH}:
                return


@contextlib.contextmanager
def _screen() -> Iterator[None]:
    """Take the whole screen, and give it back as it was, with the terminal's settings."""
    before = termios.tcgetattr(0)
    tty.setcbreak(0)
    print(ENTER, end="", flush=True)
    try:
        yield
    except KeyboardInterrupt:
        pass  # Ctrl-C is a way to leave
    finally:
        with contextlib.suppress(OSError, termios.error):  # the terminal may be gone
            print(LEAVE, end="", flush=True)
            termios.tcsetattr(0, termios.TCSADRAIN, before)


def _draw(lines: list[str]) -> None:
    """Write the view over the last one, in one piece, so that it does not flicker."""
    print(HOME + f"{TO_END_OF_LINE}\n".join(lines) + TO_END_OF_LINE + TO_END_OF_SCREEN, end="", flush=True)


def _view(queue: Queue, height: int | None) -> list[str]:
    """Return the lines of the view, at most `height`; None: as many as there are."""
    now, indices = clock.now(), gpu_indices(queue)
    overview, readings = queue.view.overview(), queue.view.gpus()
    waiting = overview.queued + overview.not_yet
    ended = queue.listing.finished(FINAL_STATES, MOST if height else FEW_LAST)[::-1]
    blocks = [
        gpu_lines(readings) if readings else [why_none(queue)],
        _running(queue, queue.listing.live()[:MOST], indices, now),
        _next(queue, queue.listing.queued(MOST)),
        _last(ended, indices, now),
    ]
    titles = [_head(queue, now), f"Running: {overview.running:,}", f"Waiting: {waiting:,}", "Last ended"]
    if height is not None:
        blocks = _fitted(blocks, height - len(titles))
    lines = [line for title, block in zip(titles, blocks, strict=True) for line in (paint(title, "green"), *block)]
    return lines[:height]


def _head(queue: Queue, now: datetime) -> str:
    stands = queue.reasons.why_nothing_starts() or queue.view.outlook().done_words()
    text = " · ".join(part for part in ("nightshift", now.astimezone().strftime("%H:%M:%S"), stands) if part)
    return shortened(text, shutil.get_terminal_size().columns) if sys.stdout.isatty() else text


def _fitted(blocks: list[list[str]], height: int) -> list[list[str]]:
    """Cut the longest blocks until all fit, and say how many lines were left out."""
    kept = [len(block) for block in blocks]
    while sum(kept) > height and max(kept) > 2:
        kept[kept.index(max(kept))] -= 1
    return [
        block if count == len(block) else [*block[: count - 1], f"… and {len(block) - count + 1} more"]
        for block, count in zip(blocks, kept, strict=True)
    ]


def _running(queue: Queue, jobs: list[Job], indices: dict[str, int | str], now: datetime) -> list[str]:
    rows = []
    for job in jobs:
        progress = short_progress(queue.view.progress(job), now)
        about = "" if progress else words.state_words(job)
        cells = [str(job.id), words.gpu_words(job, indices), words.duration_words(job, now), progress or about]
        rows.append(Row([*cells, words.title(job)], {3: words.colour(job.state)}))
    return table_lines(["ID", "GPU", "TIME", "PROGRESS", "JOB"], rows, cut=(4, 3), right=(0, 2)) if rows else []


def _next(queue: Queue, jobs: list[Job]) -> list[str]:
    reasons, ahead = queue.reasons.of(jobs), queue.view.outlook() if jobs else None
    rows = [
        Row(
            [str(job.id), words.gpu_words(job, {}), ahead.start_words(job.id) or "–", words.title(job), reasons[job.id]]
        )
        for job in jobs
        if ahead is not None
    ]
    headers = ["ID", "GPU", "STARTS", "JOB", "WAITS FOR"]
    return table_lines(headers, rows, cut=(4, 3), right=(0,)) if rows else []


def _last(jobs: list[Job], indices: dict[str, int | str], now: datetime) -> list[str]:
    rows = []
    for job in jobs:
        at = words.short_time(job.finished_at or now, now)
        cells = [str(job.id), words.gpu_words(job, indices), words.duration_words(job, now), at, words.state_words(job)]
        rows.append(Row([*cells, words.title(job)], {4: words.colour(job.state)}))
    return table_lines(["ID", "GPU", "TIME", "AT", "STATE", "JOB"], rows, cut=(5, 4), right=(0, 2)) if rows else []
