"""Shortens tracebacks for a phone. Pure."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from bot.text.html import shorten, units
from runner.api.chat import Weight

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.api.chat import Trace

_ROOM_FOR_TWO = 300
"""With a smaller limit, only the last traceback of a chain is shown."""
_OF_LIBRARIES = re.compile(r"/(?:site|dist)-packages/|/lib/python3|<frozen |/opt/\S{0,200}conda")


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
