"""Pictures for the chat, drawn outside the bot's process. There are none if matplotlib is not installed."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
from collections import OrderedDict
from functools import cache
from typing import TYPE_CHECKING, Any

from bot.waiting import answer_of
from runner.api import groups

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

DRAW_S = 20.0
MOST_POINTS = 500
CACHED = 8  # pictures in the cache: one may go to several people, and be sent again until it arrives
PNG = b"\x89PNG\r\n\x1a\n"

_drawn: OrderedDict[str, bytes | None] = OrderedDict()


@cache
def available() -> bool:
    """Return whether pictures can be drawn here: `pip install 'nightshift-gpu[plots]'`."""
    return importlib.util.find_spec("matplotlib") is not None


def of_idleness(evidence: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return what to draw of an idle job, or None if there are too few samples or pictures are not available."""
    if not available() or not evidence or len(evidence.get("samples") or ()) < 2 or not evidence.get("gpus"):
        return None
    return {name: evidence[name] for name in ("gpus", "samples", "threshold_percent")}


def of_fit(probe: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what to draw of how a batch was found, or None if no line was fitted or pictures are not available."""
    if not available() or not probe["line"] or not probe["batch"]:
        return None
    return {name: probe[name] for name in ("points", "line", "budget_mib", "margin", "batch", "too_large")}


def of_results(results: groups.Results) -> dict[str, Any] | None:
    """Return what to draw of a sweep's results, or None if nothing can be compared or pictures are not available."""
    return groups.plotted(results, MOST_POINTS) if available() else None


async def drawn(plot: Mapping[str, Any], home: str) -> bytes | None:
    """Return the picture as a PNG, or None if it cannot be drawn. The message is then sent without it."""
    key = json.dumps(plot)
    if key not in _drawn:
        _drawn[key] = await _draw(key, home)
        while len(_drawn) > CACHED:
            _drawn.popitem(last=False)
    return _drawn.get(key)


async def _draw(plot: str, home: str) -> bytes | None:
    environ = {"MPLBACKEND": "agg", "HOME": home, "MPLCONFIGDIR": os.path.join(home, "matplotlib")}
    what = "a picture could not be drawn"
    picture = await answer_of("bot.pictures.drawing_process", plot, within_s=DRAW_S, environ=environ, what=what)
    if picture is not None and not picture.startswith(PNG):
        log.warning("%s: %r", what, picture[:100])
        return None
    return picture
