"""Finds Python tracebacks in the lines of a log, also those of notebooks. Pure."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

HEAD = re.compile(r"(?:Original |Exception Group |C\+\+ )?Traceback \(most recent call last\):?")
LINK = re.compile(r"During handling of the above exception|The above exception was the direct cause")
NOISE = re.compile(
    r"""^\s*(?:
        wandb:(?!\ ERROR) | $ | [-=━─~*_]{4,}$ | Set\ the\ environment\ variable\ HYDRA_FULL_ERROR | \^+$
        | warnings?\.warn\( | Exception\ ignored\ in | Exiting\.\.\.$
    )
    | \d%\| | \d\s?(?:it/s|s/it)\b | \d/\d+\s\[[=>.]+\] | ━━━━
    | Warning: | resource_tracker | leaked\ (?:semaphore|shared_memory)
    | Sending\ process\ \d+\ closing\ signal | Received\ \d+\ death\ signal | process\ group\ has\ NOT\ been\ destroyed
    """,
    re.VERBOSE,
)
_MOST_ERROR_LINES = 20
_MOST_LISTED_LINES = 400
"""How many lines of a notebook's traceback, or of calls in C++, may stand before the error."""

_RICH_HEAD = re.compile(r"╭─[^╭]*Traceback \(most recent call last\)")
_RICH_FRAME = re.compile(r"(\S+:\d+) in (\S.*)")
_RICH_HERE = re.compile(r"❱\s*\d+\s*[│|]?\s?(.*)")
_FRAME = re.compile(r'\s*File "')
_MARGIN = re.compile(r"\s*[|+][\s|+-]*")
_UNNAMED = re.compile(r"(?:SyntaxError|IndentationError|TabError): ")
# The prefix that names a line's process where several share a log: [rank0]: , [default1]: , (worker pid=12) .
_WRITER = re.compile(
    r"(\[(?:rank|default|local_rank)\s?(\d+)\]:? ?|\(\S+(?: rank=\d+)? pid=\d[^)]*\) ?|\[\d+,\d+\]<std\w+>: ?)"
)
# What vLLM's log puts before each line of a traceback.
_LOGGED = re.compile(r"ERROR \d\d-\d\d \d\d:\d\d:\d\d \[[^\]\s]{1,100}\] ?")
_NOTEBOOK_HEAD = re.compile(r"(?:\w+\.){0,20}(\w+)\s+Traceback \(most recent call last\)")
_NOTEBOOK_FRAME = re.compile(r"(?:Cell |Input )In ?\[|File \S+:\d+, in |<ipython-input-|\S+\.py in \S")
_NOTEBOOK_HERE = re.compile(r"-+> ?\d+ (.*)")
# Lines that end an error's message even without a blank line before them.
_OTHER_MATTER = re.compile(
    r"\[?\d{4}-\d\d-\d\d[ T]|[EWIF]\d{4} \d\d:|\"\"\"$|\s*-[ -]{8}|slurmstepd:|srun:|Exception in thread|Process \S+:$"
    r"|Killed$|Segmentation fault|Aborted|\S+: line \d+:"
)

_IGNORED = re.compile(
    r"Exception ignored in|Error in atexit|--- Logging error ---|_pin_memory_loop|QueueFeederThread|QueueManagerThread"
)
_LAUNCHER = re.compile(
    r"ChildFailedError|SignalException|CalledProcessError|ProcessExitedException|UnfilteredStackTrace"
    r"|CellExecutionError|PapermillExecutionError"
)
_CONSEQUENCE = re.compile(
    r"DistBackendError|DistNetworkError|NCCL|Connection (?:closed|reset) by peer|KeyboardInterrupt|SystemExit"
    r"|BrokenPipeError|ConnectionResetError|ConnectionRefusedError|EOFError|Broken pipe|Gloo"
    r"|Engine core initialization failed|EngineDeadError|EngineCore encountered an issue"
)
_BY_STOP = re.compile(
    r"KeyboardInterrupt|SystemExit|SignalException|SIGTERM|got signal: 15|killed by signal: Terminated|CancelledError"
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

    @property
    def is_by_stop(self) -> bool:
        """Return whether the error comes from the signal that stops a job."""
        return bool(_BY_STOP.search(" ".join(self.error[:2])))


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
            named.setdefault(writer[1].strip(), (rank, []))[1].append((at, _unlogged(line[writer.end() :])))
        else:
            of_others.append((at, _unlogged(line)))
    return [*named.values(), (None, of_others)]


def _unlogged(line: str) -> str:
    logged = _LOGGED.match(line) if line.startswith("ERROR ") else None
    return line[logged.end() :] if logged else line


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
                trace, end = self._kind(line)(start, at)
            elif line[:1] in "SIT" and _UNNAMED.match(line):
                trace, end = self._unnamed(start)
            if trace is not None:
                traces.append(trace)
                at = end
        return traces

    def _kind(self, line: str) -> Callable[[int, int], tuple[Trace | None, int]]:
        """Return the reader for the kind of traceback that begins with this line."""
        if _RICH_HEAD.search(line):
            return self._rich
        if "C++ Traceback" in line:
            return self._calls_in_cpp
        return self._notebook if _NOTEBOOK_HEAD.match(line) else self._plain

    def _notebook(self, start: int, since: int) -> tuple[Trace | None, int]:
        """Read a traceback of IPython. It begins with the name of the error; the error itself is below a blank line."""
        head = _NOTEBOOK_HEAD.match(self.lines[start])
        name = head[1] if head else ""
        frames: list[list[str]] = []
        for at in self._listed(start):
            line = self.lines[at].strip()
            if line == name or line.startswith(f"{name}:"):
                return self._made(start, since, frames, at)
            if _NOTEBOOK_FRAME.match(line):
                frames.append([f"  {line}"])
            elif frames and (here := _NOTEBOOK_HERE.match(line)):
                frames[-1].append(f"    {here[1].strip()}")
        return self._plain(start, since)

    def _calls_in_cpp(self, start: int, since: int) -> tuple[Trace | None, int]:
        """Read the error of Paddle, which is below a list of calls in C++."""
        for at in self._listed(start):
            if self.lines[at].startswith("Error Message Summary"):
                return self._made(start, since, [], at + 2)
        return self._plain(start, since)

    def _listed(self, start: int) -> Iterator[int]:
        """Yield the places of the lines below a head, up to the next head."""
        for at in range(start + 1, min(start + _MOST_LISTED_LINES, len(self.lines))):
            if HEAD.search(self.lines[at]):
                return
            yield at

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
            tuple(textwrap.dedent("\n".join(self._error_lines(at, end))).split("\n")),
            note=next((line.strip() for line in self.lines[max(since, start - 3) : start][::-1] if line.strip()), ""),
            rank=self.rank,
            linked=self._tie(since, start, head[0] if head else ""),
        )
        return trace, end

    def _tie(self, since: int, start: int, head: str) -> str:
        """Return the sentence that links this traceback to the one before; empty if they are unrelated."""
        if not since:
            return ""
        sentence = next((line.strip()[:100] for line in self.lines[since:start] if LINK.search(line)), "")
        return sentence or ("…" if head.startswith(("Original", "C++")) else "")

    def _error_end(self, at: int) -> int:
        """Return where an error's message ends: at a blank line, or where something else begins.

        A message goes on below a blank line if the line above ends with a colon, as in Keras and Paddle. It may then
        list calls, which do not count.
        """
        end, room, goes_on = at, _MOST_ERROR_LINES, False
        while end < min(len(self.lines), at + _MOST_LISTED_LINES) and room:
            line = self.lines[end]
            if not line.strip():
                if end == at or not self.lines[end - 1].rstrip().endswith(":"):
                    break
                goes_on = True
            elif HEAD.search(line) or (end > at and _is_other_matter(line)):
                break
            room -= not (goes_on and _lists_calls(line))
            end += 1
        while end > at and not self.lines[end - 1].strip():
            end -= 1
        return end

    def _error_lines(self, at: int, end: int) -> list[str]:
        lines = self.lines[at:end]
        blank = next((number for number, line in enumerate(lines) if not line.strip()), end - at)
        return [*lines[:blank], *(line for line in lines[blank + 1 :] if not _lists_calls(line))]


def _lists_calls(line: str) -> bool:
    return line.startswith(("    File ", "      ")) or not line.strip()


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
