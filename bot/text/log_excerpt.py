"""Picks the few lines of a job's raw output that are worth reading on a phone. Pure."""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bot.secrets.invisible_text import ESCAPES
from bot.text.html import code, pre, shorten, units
from bot.text.tracebacks import shortened
from runner.api.chat import (
    TELLING,
    Trace,
    Weight,
    chains,
    covered_lines,
    error_line,
    failure_in,
    is_deadly,
    meaningful_lines,
    root_cause,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.secrets.redact import Redactor

LOG_BYTES, QUICK_BYTES = 256 << 10, 48 << 10
_LOOK = 256 * 1024
"""How many characters at the end of an output are searched."""
LONGEST_LINE = 4096
"""Only the two ends of a longer line are searched and shown."""
_ESCAPES = re.compile(ESCAPES)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_GARBLED = re.compile("\ufffd{2,}")

# Printed before the traceback by the code that caused the failure.
_NATIVE = re.compile(
    r"Assertion `[^`]*(?:`[^`]*)?failed|NCCL WARN|Watchdog caught collective"
    r"|cudaMalloc failed: out of memory|ggml_aligned_malloc: insufficient memory|Cuda Runtime \(out of memory\)"
)
_LAST = 15
_FOLDED_FROM, _ERROR_UNITS = 12, 200
_USAGE = re.compile(r"[Uu]sage: ")
_USAGE_ERROR = re.compile(r"(?:\S+: error: |Error: )")
_FATAL_PYTHON = "Fatal Python error:"
_ADDRESS = re.compile(r"https://[^\s\"'<>()\[\]]+")
_RUN_LINK = re.compile(r"https://.+/runs/[A-Za-z0-9_-]+")
_WANDB_LINE = re.compile(r"^.*(?:wandb:|View run|Synced|View project).*$", re.MULTILINE)


def presentable(output: bytes, redactor: Redactor) -> str:
    """Return a job's output as it may leave the box. All output that is shown goes through here.

    Secrets are removed before `clean`, which may erase a part of one, and again after it, because it may put one
    together. Long lines are cut last: a cut through a secret would leave a part of it.
    """
    text = redactor.text(clean(redactor.data(output)))
    return "\n".join(shorten(line, LONGEST_LINE, keep="both") for line in text.split("\n"))


def clean(output: bytes) -> str:
    """Return an output as a terminal would leave it: no escapes, and only the last state of a progress bar."""
    text = output.decode("utf-8", "replace")
    if "\x1b" in text or "\x9b" in text:
        text = _ESCAPES.sub("", text)
    if "\r" in text or "\b" in text:
        text = "\n".join(map(_last_state, text.split("\n")))
    return _GARBLED.sub("\ufffd", _CONTROLS.sub("", text))


def _last_state(line: str) -> str:
    if "\r" in line:
        line = line.rstrip("\r").rpartition("\r")[2]
    return _backspaced(line) if "\b" in line else line


def _backspaced(line: str) -> str:
    chars: list[str] = []
    for char in line:
        if char != "\b":
            chars.append(char)
        elif chars:
            chars.pop()
    return "".join(chars)


def _end_of(text: str) -> str:
    """Return the end of a huge output, from the start of a line if one begins there."""
    if len(text) <= _LOOK:
        return text
    end = text[-_LOOK:]
    return end[end.find("\n") + 1 :]


def collapsed(lines: Iterable[str]) -> list[str]:
    """Return the lines, each run of equal ones as one line with their number."""
    runs = [(line, sum(1 for _ in group)) for line, group in groupby(lines)]
    return [f"{line} … ×{times}" if times > 1 and line else line for line, times in runs]


def what_matters(text: str, *, limit: int, stopped: bool = False) -> str:
    """Return the lines of a clean output that say why the job failed, in at most `limit` UTF-16 units.

    If the job was stopped, the tracebacks that the stop itself caused say nothing, and are left out.
    """
    lines = [line.rstrip() for line in _end_of(text).split("\n")]
    traces = chains(lines)
    if stopped:
        lines = _without_stop(lines, traces)
        traces = chains(lines)
    chain = failure_in(lines, traces)
    if chain is None:
        return _without_traceback(lines, traces, limit)
    before, after = _around(lines, traces, chain)
    if chain[-1].weight is Weight.LAUNCHER and (cause := root_cause(lines)):
        return shorten("\n".join([*before, *after, *cause]), limit, keep="end")
    room = limit - sum(units(line) + 1 for line in [*before, *after])
    if room < limit // 2:
        return shortened(chain, limit)
    return "\n".join([*before, shortened(chain, room), *after])


def _without_stop(lines: Sequence[str], traces: Sequence[list[Trace]]) -> list[str]:
    """Return the lines without the tracebacks that a stop causes."""
    by_stop = covered_lines([chain for chain in traces if any(trace.is_by_stop for trace in chain)])
    return [line for at, line in enumerate(lines) if at not in by_stop]


def _around(lines: Sequence[str], traces: Sequence[list[Trace]], chain: Sequence[Trace]) -> tuple[list[str], list[str]]:
    """Return other lines that say why the process died: those before a traceback, and those after it."""
    covered = covered_lines(traces)
    start, end = chain[0].start, chain[-1].end
    before = [at for at in range(max(start - 200, 0), start) if at not in covered and _NATIVE.search(lines[at])]
    after = [at for at in range(end, min(end + 600, len(lines))) if at not in covered and is_deadly(lines[at])]
    return _distinct(lines[at] for at in before[-1:]), _distinct(lines[at] for at in after)[:3]


def _distinct(lines: Iterable[str]) -> list[str]:
    return [shorten(line, 300, keep="both") for line in dict.fromkeys(line.strip() for line in lines)]


def _without_traceback(lines: Sequence[str], traces: Sequence[list[Trace]], limit: int) -> str:
    meaningful = meaningful_lines(lines)
    telling = _usage(meaningful) or _fatal_python(lines) or _telling(meaningful)
    if telling:
        return _fitted(telling, limit)
    last = collapsed(meaningful)[-_LAST:]
    if traces and (error := traces[-1][-1].error):
        last = [shorten(error[0], limit // 3), "…", *last]
    return shorten("\n".join(last), limit, keep="end")


def _usage(lines: Sequence[str]) -> list[str]:
    """Return a command's usage and what was wrong with the call, if the output ends with a usage error."""
    last = range(len(lines) - 1, max(len(lines) - 20, -1), -1)
    wrong = next((at for at in last if _USAGE_ERROR.match(lines[at])), None)
    if wrong is None:
        return []
    usage = next((at for at in range(wrong, max(wrong - 60, -1), -1) if _USAGE.match(lines[at])), None)
    return [] if usage is None else [shorten("\n".join(lines[usage:wrong]), 400), *lines[wrong : wrong + 5]]


def _fatal_python(lines: Sequence[str]) -> list[str]:
    """Return what faulthandler printed: the error and the innermost calls, which come first."""
    start = next((at for at in range(len(lines) - 1, -1, -1) if lines[at].startswith(_FATAL_PYTHON)), None)
    if start is None:
        return []
    thread = next((at for at in range(start, len(lines)) if lines[at].startswith("Current thread")), start)
    calls = [line for line in lines[thread + 1 : thread + 7] if line.startswith("  File")]
    ends = [line for line in lines[thread + 1 : thread + 400] if is_deadly(line)]
    return [lines[start], *lines[thread : thread + 1], *calls, *_distinct(ends)[:2]]


def _telling(lines: Sequence[str]) -> list[str]:
    """Return the last lines that sound like a failure, with a few lines around them."""
    since = max(len(lines) - 30, 0)
    telling = [at for at in range(since, len(lines)) if TELLING.search(lines[at][:500])]
    return collapsed(lines[max(telling[0] - 3, 0) : telling[-1] + 3]) if telling else []


def _fitted(lines: Sequence[str], limit: int) -> str:
    """Return the lines within the limit; if they are too long, only those that sound like a failure, cut to fit."""
    if units(whole := "\n".join(lines)) <= limit:
        return whole
    telling = [shorten(line, 300, keep="both") for line in lines if TELLING.search(line[:500])]
    return shorten("\n".join(telling or lines), limit, keep="end")


def folded(excerpt: str) -> str:
    """Return a long excerpt as a quote that a tap opens, below its error line; a short one as a code block."""
    if excerpt.count("\n") < _FOLDED_FROM:
        return pre(excerpt)
    error = error_line(excerpt) or excerpt.rstrip().rpartition("\n")[2].strip()
    return f"{code(shorten(error, _ERROR_UNITS))}\n<blockquote expandable>{pre(excerpt)}</blockquote>"


def wandb_link(text: str) -> str | None:
    """Return the URL of the last Weights & Biases run in a clean output; None if there is none."""
    if "/runs/" not in text:
        return None
    urls = (url[0] for line in _WANDB_LINE.finditer(text) for url in _ADDRESS.finditer(line[0]))
    runs = [run[0] for url in urls if (run := _RUN_LINK.match(url))]
    return next((url for url in reversed(runs) if _is_address(url)), None)


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.username is None and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
