"""Pictures for the chat, drawn outside the bot's loop; where matplotlib is not installed there are none."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
from collections import OrderedDict
from functools import cache
from typing import TYPE_CHECKING, Any

from bot.worker_process import answer_of
from runner.api import groups

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

DRAW_S = 20.0
MOST_POINTS = 500
KEPT = 8  # one is sent to several people, and again until it has arrived
PNG = b"\x89PNG\r\n\x1a\n"

_drawn: OrderedDict[str, bytes | None] = OrderedDict()


@cache
def available() -> bool:
    """Whether pictures can be drawn here: `pip install 'nightshift-gpu[plots]'`."""
    return importlib.util.find_spec("matplotlib") is not None


def of_idleness(evidence: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What to draw of what is held against an idle job; None if there is nothing to see, or nobody to draw it."""
    if not available() or not evidence or len(evidence.get("samples") or ()) < 2 or not evidence.get("gpus"):
        return None
    return {name: evidence[name] for name in ("gpus", "samples", "threshold_percent")}


def of_fit(probe: Mapping[str, Any]) -> dict[str, Any] | None:
    """What to draw of how a batch was found; None if nothing was measured, or nobody can draw it."""
    if not available() or not probe["line"] or not probe["batch"]:
        return None
    return {name: probe[name] for name in ("points", "line", "budget_mib", "margin", "batch", "too_large")}


def of_results(results: groups.Results) -> dict[str, Any] | None:
    """What to draw of the results of a sweep; None if there is nothing to compare, or nobody can draw it."""
    return groups.plotted(results, MOST_POINTS) if available() else None


async def drawn(plot: Mapping[str, Any], home: str) -> bytes | None:
    """The picture as a PNG; None if it cannot be drawn, which costs nobody the message."""
    key = json.dumps(plot)
    if key not in _drawn:
        _drawn[key] = await _draw(key, home)
        while len(_drawn) > KEPT:
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
