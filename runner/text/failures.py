"""Finds the lines of a failed job's output that say why it failed. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from runner.text.tracebacks import NOISE, Trace, Weight, chains

if TYPE_CHECKING:
    from collections.abc import Sequence

_LONG_AGO = 60
"""A traceback followed by this many meaningful lines was not the end of the job."""

# Lines that say why the process died, whatever a traceback says.
DEADLY = re.compile(
    r"""\bKilled\b | Segmentation\ fault | Bus\ error | Illegal\ instruction | ^Aborted | core\ dumped
    | Floating\ point\ exception | terminate\ called | ^\s*what\(\): | double\ free | free\(\):\ invalid
    | malloc\(\): | corrupted\ (?:size|double) | stack\ smashing | slurmstepd:\ error | oom[-_]kill | OOM[-_ ][Kk]ill
    | Out\ of\ memory:\ Kill | DUE\ TO\ TIME\ LIMIT | CANCELLED\ AT | Assertion\ `[^`]*(?:`[^`]*)?failed | NCCL\ WARN
    | No\ space\ left\ on\ device | Disk\ quota\ exceeded | is\ killed\ by\ signal | \bXid\b
    | Watchdog\ caught\ collective\ operation\ timeout
    """,
    re.VERBOSE,
)
TELLING = re.compile(
    DEADLY.pattern
    + r"""| command\ not\ found | No\ such\ file\ or\ directory | Permission\ denied | [Ss]yntax\ error
    | unexpected\ EOF | cannot\ execute | not\ a\ valid\ identifier | unbound\ variable
    | CUDA\ error | CUDA\ driver | [Oo]ut\ of\ memory | insufficient\ memory | \[E\][ ]
    | CUDNN_STATUS | CUBLAS_STATUS | NCCL\ error | nccl\w{1,40}Error
    | XlaRuntimeError | RESOURCE_EXHAUSTED | shared\ object\ file | Fatal\ Python\ error | \*\*\*
    | \b(?:[Ee]rror|ERROR|[Ff]atal|FATAL|CRITICAL)\b\s*[:\]] | ^(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit)\b(?::|$)
    | ^\[?(?:ERROR|CRITICAL|FATAL)\b | \bpanicked\ at
    """,
    re.VERBOSE,
)
_ROOT_CAUSE = "Root Cause (first observed failure)"
_RANK = re.compile(r"\s*rank\s*:\s*(\d+)")
_LONGEST_ERROR = 500
"""Only the beginning of a longer line is compared."""
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# What differs from one failure to the next: addresses and ids, paths, and numbers with their units.
_VARYING = re.compile(
    r"\b(?:0x[0-9a-fA-F]+|[0-9a-f]{8,})\b|~?/[^\s'\":,;()\[\]]*|\d[\d.,:_+-]*(?: ?(?:[KMGT]i?B|bytes)\b)?"
)


def error_line(output: str) -> str | None:
    """Return the line in which the output says why the job failed; None if no line sounds like that."""
    lines = [line.rstrip().rpartition("\r")[2] for line in _COLOURS.sub("", output).split("\n")]
    traces = chains(lines)
    chain = failure_in(lines, traces)
    if chain is not None and chain[-1].weight is Weight.LAUNCHER and (cause := root_cause(lines)):
        return cause[-1].strip()
    if chain is not None:
        first, *more = chain[-1].error
        return " ".join([first, *more[:1]] if first.endswith(":") else [first]).strip() or None
    telling = (line for line in reversed(meaningful_lines(lines)[-30:]) if TELLING.search(line[:_LONGEST_ERROR]))
    return next(telling, "").strip() or None


def normalised(line: str) -> str:
    """Return an error line without what differs from one failure to the next: numbers, addresses, paths, times."""
    return _VARYING.sub("#", line[:_LONGEST_ERROR])


def failure_in(lines: Sequence[str], traces: Sequence[list[Trace]]) -> list[Trace] | None:
    """Return the chain of tracebacks that says most about why the job ended; None if it did not end in one."""
    since = _final_part(lines, traces)
    rank = _failed_rank(lines)
    final = [chain for chain in traces if chain[-1].end > since and chain[-1].weight > Weight.IGNORED]
    return max(final, key=lambda chain: (chain[-1].weight, chain[-1].rank == rank, chain[-1].end), default=None)


def _final_part(lines: Sequence[str], traces: Sequence[list[Trace]]) -> int:
    """Return where the last `_LONG_AGO` meaningful lines begin. Noise and lines of tracebacks do not count."""
    covered = covered_lines(traces)
    missing = _LONG_AGO
    for at in range(len(lines) - 1, max(len(lines) - 10 * _LONG_AGO, 0) - 1, -1):
        missing -= at not in covered and not NOISE.search(lines[at][:500])
        if not missing:
            return at
    return max(len(lines) - 10 * _LONG_AGO, 0)


def covered_lines(traces: Sequence[list[Trace]]) -> set[int]:
    """Return the places of all lines that are in a traceback."""
    return {at for chain in traces for trace in chain for at in range(trace.start, trace.end)}


def _failed_rank(lines: Sequence[str]) -> int | None:
    return next((int(rank[1]) for line in root_cause(lines) if (rank := _RANK.match(line))), None)


def root_cause(lines: Sequence[str]) -> list[str]:
    """Return what torchrun says about the process that failed first."""
    start = next((at for at in range(len(lines) - 1, -1, -1) if lines[at].startswith(_ROOT_CAUSE)), None)
    if start is None:
        return []
    block = [line for line in lines[start : start + 12] if ":" in line]
    return [line for line in block if not re.match(r"\s*(?:time|host|error_file)\s*:|\[\d+\]:", line)][:5]


def is_deadly(line: str) -> bool:
    """Return whether a line says why the process died."""
    return bool(DEADLY.search(line[:500])) and not NOISE.search(line[:500])


def meaningful_lines(lines: Sequence[str]) -> list[str]:
    """Return the last lines that are not noise, at most 100."""
    meaningful: list[str] = []
    for line in reversed(lines[-1000:]):
        if not NOISE.search(line[:500]):
            meaningful.append(line)
            if len(meaningful) == 100:
                break
    return meaningful[::-1]
