"""Finds Python tracebacks in the lines of a log and shortens them. Pure."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import TYPE_CHECKING

from bot.text.html import shorten, units

if TYPE_CHECKING:
    from collections.abc import Sequence

HEAD = re.compile(r"(?:Original |Exception Group )?Traceback \(most recent call last\):?")
LINK = re.compile(r"During handling of the above exception|The above exception was the direct cause")
NOISE = re.compile(
    r"""^\s*(?:
        wandb:(?!\ ERROR) | $ | [-=━─~*_]{4,}$ | Set\ the\ environment\ variable\ HYDRA_FULL_ERROR | \^+$
        | warnings?\.warn\( | Exception\ ignored\ in | Exiting\.\.\.$
    )
    | \d%\| | \d\s?(?:it/s|s/it)\b | \d/\d+\s\[[=>.]+\] | ━━━━
    | Warning: | resource_tracker | leaked\ (?:semaphore|shared_memory)
    | Sending\ process\ \d+\ closing\ signal | process\ group\ has\ NOT\ been\ destroyed
    """,
    re.VERBOSE,
)
_MOST_ERROR_LINES = 20
_ROOM_FOR_TWO = 300
"""With a smaller limit, only the last traceback of a chain is shown."""

_RICH_HEAD = re.compile(r"╭─[^╭]*Traceback \(most recent call last\)")
_RICH_FRAME = re.compile(r"(\S+:\d+) in (\S.*)")
_RICH_HERE = re.compile(r"❱\s*\d+\s*[│|]?\s?(.*)")
_FRAME = re.compile(r'\s*File "')
_MARGIN = re.compile(r"\s*[|+][\s|+-]*")
_UNNAMED = re.compile(r"(?:SyntaxError|IndentationError|TabError): ")
# The prefix that names a line's process where several share a log: [rank0]: , [default1]: , (worker pid=12) .
_WRITER = re.compile(r"(\[(?:rank|default|local_rank)\s?(\d+)\]:? ?|\(\S+ pid=\d[^)]*\) ?|\[\d+,\d+\]<std\w+>: ?)")
# Lines that end an error's message even without a blank line before them.
_OTHER_MATTER = re.compile(
    r"\[?\d{4}-\d\d-\d\d[ T]|[EWIF]\d{4} \d\d:|\"\"\"$|\s*-[ -]{8}|slurmstepd:|srun:|Exception in thread|Process \S+:$"
    r"|Killed$|Segmentation fault|Aborted|\S+: line \d+:"
)
_OF_LIBRARIES = re.compile(r"/(?:site|dist)-packages/|/lib/python3|<frozen |/opt/\S{0,200}conda")

_IGNORED = re.compile(
    r"Exception ignored in|Error in atexit|--- Logging error ---|_pin_memory_loop|QueueFeederThread|QueueManagerThread"
)
_LAUNCHER = re.compile(
    r"ChildFailedError|SignalException|CalledProcessError|ProcessExitedException|UnfilteredStackTrace"
)
_CONSEQUENCE = re.compile(
    r"DistBackendError|DistNetworkError|NCCL|Connection (?:closed|reset) by peer|KeyboardInterrupt|SystemExit"
    r"|BrokenPipeError|ConnectionResetError|ConnectionRefusedError|EOFError|Broken pipe|Gloo"
)


class Weight(IntEnum):
    """How much a traceback says about why a job failed."""

    IGNORED = 0
    LAUNCHER = 1
    CONSEQUENCE = 2
    CAUSE = 3


@dataclass(frozen=True, slots=True)
class Trace:
    """One traceback: where it is in the log, and its parts."""

    start: int
    end: int
    head: str
    frames: tuple[tuple[str, ...], ...]
    error: tuple[str, ...]
    note: str = ""
    rank: int | None = None
    linked: str = ""
    """The sentence that links it to the traceback before; empty if they are unrelated."""

    @property
    def weight(self) -> Weight:
        """Judge the traceback by its error and by the line before it."""
        if _IGNORED.search(self.note):
            return Weight.IGNORED
        error = " ".join(self.error[:2])
        if _LAUNCHER.search(error):
            return Weight.LAUNCHER
        return Weight.CONSEQUENCE if _CONSEQUENCE.search(error) else Weight.CAUSE


def chains(lines: Sequence[str]) -> list[list[Trace]]:
    """Return all tracebacks, linked ones together in a chain, in the order in which the chains end."""
    chained: list[list[Trace]] = []
    for rank, numbered in _by_writer(lines):
        for trace in _Reader(numbered, rank).read():
            if trace.linked and chained:
                chained[-1].append(trace)
            else:
                chained.append([trace])
    return sorted(chained, key=lambda chain: chain[-1].end)


def _by_writer(lines: Sequence[str]) -> list[tuple[int | None, list[tuple[int, str]]]]:
    """Return the numbered lines of each process that marks its lines, without the mark; then all other lines."""
    of_others: list[tuple[int, str]] = []
    named: dict[str, tuple[int | None, list[tuple[int, str]]]] = {}
    for at, line in enumerate(lines):
        if line[:1] in ("[", "(") and (writer := _WRITER.match(line)):
            rank = int(writer[2]) if writer[2] else None
            named.setdefault(writer[1].strip(), (rank, []))[1].append((at, line[writer.end() :]))
        else:
            of_others.append((at, line))
    return [*named.values(), (None, of_others)]


class _Reader:
    """Reads the tracebacks of one process."""

    def __init__(self, numbered: list[tuple[int, str]], rank: int | None) -> None:
        self.places = [place for place, _ in numbered]
        self.lines = _ungrouped([line for _, line in numbered])
        self.rank = rank

    def read(self) -> list[Trace]:
        traces: list[Trace] = []
        at = 0
        for start, line in enumerate(self.lines):
            if start < at:
                continue
            trace, end = None, start
            if "Traceback (most recent" in line:
                rich = _RICH_HEAD.search(line)
                trace, end = self._rich(start, at) if rich else self._plain(start, at)
            elif line[:1] in "SIT" and _UNNAMED.match(line):
                trace, end = self._unnamed(start)
            if trace is not None:
                traces.append(trace)
                at = end
        return traces

    def _plain(self, start: int, since: int) -> tuple[Trace | None, int]:
        at = start + 1
        frames: list[list[str]] = []
        base = 0
        while at < len(self.lines):
            line = self.lines[at]
            if _FRAME.match(line):
                base = base if frames else max(_indent(line) - 2, 0)
                frames.append([line[base:]])
            elif frames and line.strip() and _indent(line) > base:
                frames[-1].append(line[base:])
            elif line.strip() or not frames:
                break
            at += 1
        return self._made(start, since, frames, at)

    def _rich(self, start: int, since: int) -> tuple[Trace | None, int]:
        at = start + 1
        frames: list[list[str]] = []
        while at < len(self.lines) and not self.lines[at].lstrip().startswith("╰"):
            inner = self.lines[at].strip().strip("│").strip()
            if frame := _RICH_FRAME.match(inner):
                frames.append([f"  {frame[0].rstrip()}"])
            elif frames and (here := _RICH_HERE.match(inner)):
                frames[-1].append(f"    {here[1].strip()}")
            at += 1
        return self._made(start, since, frames, at + 1)

    def _unnamed(self, at: int) -> tuple[Trace | None, int]:
        """Read a SyntaxError of the script itself, which has no line "Traceback …"."""
        begin = next((back for back in range(at - 1, max(at - 6, -1), -1) if _FRAME.match(self.lines[back])), at)
        frames = [tuple(self.lines[begin:at])] if begin < at else []
        end = self._error_end(at)
        places = self.places[begin], self.places[end - 1] + 1
        return Trace(*places, "", tuple(frames), tuple(self.lines[at:end]), rank=self.rank), end

    def _made(self, start: int, since: int, frames: list[list[str]], at: int) -> tuple[Trace | None, int]:
        end = self._error_end(at)
        if end == at and not frames:
            return None, start + 1
        head = HEAD.search(self.lines[start])
        trace = Trace(
            self.places[start],
            self.places[end - 1] + 1,
            head[0] if head else "",
            tuple(tuple(frame) for frame in frames),
            tuple(textwrap.dedent("\n".join(self.lines[at:end])).split("\n")),
            note=next((line.strip() for line in self.lines[max(since, start - 3) : start][::-1] if line.strip()), ""),
            rank=self.rank,
            linked=self._tie(since, start, head[0] if head else ""),
        )
        return trace, end

    def _tie(self, since: int, start: int, head: str) -> str:
        """Return the sentence that links this traceback to the one before; empty if they are unrelated."""
        if not since:
            return ""
        sentence = next((shorten(line.strip(), 100) for line in self.lines[since:start] if LINK.search(line)), "")
        return sentence or ("…" if head.startswith("Original") else "")

    def _error_end(self, at: int) -> int:
        """Return where an error's message ends: at a blank line, or where something else begins."""
        end = at
        while end < min(len(self.lines), at + _MOST_ERROR_LINES):
            line = self.lines[end]
            if not line.strip() or HEAD.search(line) or (end > at and _is_other_matter(line)):
                break
            end += 1
        return end


def _is_other_matter(line: str) -> bool:
    return bool(_OTHER_MATTER.match(line) or NOISE.search(line[:500]))


def _ungrouped(lines: list[str]) -> list[str]:
    """Return the lines without the bars at the left of exception groups."""
    first = next((at for at, line in enumerate(lines) if "Exception Group Traceback" in line), len(lines))
    return [*lines[:first], *map(_without_margin, lines[first:])]


def _without_margin(line: str) -> str:
    margin = _MARGIN.match(line)
    return margin[0].replace("|", " ").replace("+", " ") + line[margin.end() :] if margin else line


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def shortened(chain: Sequence[Trace], limit: int) -> str:
    """Shorten a chain of tracebacks to at most `limit` UTF-16 units: its first and its last traceback."""
    first, last = chain[0], chain[-1]
    if first is last or first.weight is Weight.LAUNCHER or limit < _ROOM_FOR_TWO:
        return _shortened(last, limit)
    whole = "\n\n".join([_shortened(first, limit), last.linked, _shortened(last, limit)])
    if units(whole) <= limit:
        return whole
    root = _shortened(first, limit * 2 // 5)
    return f"{root}\n\n{last.linked}\n\n{_shortened(last, limit - units(root) - units(last.linked) - 4)}"


def _shortened(trace: Trace, limit: int) -> str:
    note = [trace.note] if trace.note.startswith(("Exception in thread", "Process ", "Task exception")) else []
    head = [shorten(line, 100) for line in [*note, trace.head] if line]
    frames_room = min(limit // 2, _size(trace.frames) + _size([head]) + 8)
    error = shorten("\n".join(trace.error), limit - frames_room, keep="both")
    frames = _nearest(trace.frames, limit - units(error) - _size([head]) - 8)
    if trace.frames and not frames:
        return shorten("\n".join(trace.error), limit, keep="both")
    return shorten("\n".join([*head, *frames, error]), limit, keep="end")


def _size(frames: Sequence[Sequence[str]]) -> int:
    return sum(units(line) + 1 for frame in frames for line in frame)


def _nearest(frames: Sequence[Sequence[str]], room: int) -> list[str]:
    """Return the last frame in the user's own code and the frames nearest the error, as far as there is room."""
    own = next((at for at in range(len(frames) - 1, -1, -1) if not _OF_LIBRARIES.search(frames[at][0])), None)
    shown: list[int] = []
    for at in [*([] if own is None else [own]), *range(len(frames) - 1, -1, -1)]:
        room -= _size([frames[at]]) if at not in shown else 0
        if room < 0:
            break
        shown.append(at)
    places = sorted(set(shown))
    lines: list[str] = ["  …"] if places and places[0] > 0 else []
    for at, following in pairwise([*places, len(frames)]):
        lines += [*frames[at], *(["  …"] if following > at + 1 else [])]
    return lines
