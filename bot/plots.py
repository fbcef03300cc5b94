"""Pictures for the chat, drawn outside the bot's loop; where matplotlib is not installed there are none."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import logging
import os
from collections import OrderedDict
from functools import cache
from typing import TYPE_CHECKING, Any

from bot.within import within
from runner.api.chat import python_command

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

DRAW_S = 20.0
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


async def drawn(plot: Mapping[str, Any], home: str) -> bytes | None:
    """The picture as a PNG; None if it cannot be drawn, which costs nobody the message."""
    key = json.dumps(plot)
    if key not in _drawn:
        _drawn[key] = await _draw(key, home)
        while len(_drawn) > KEPT:
            _drawn.popitem(last=False)
    return _drawn.get(key)


async def _draw(plot: str, home: str) -> bytes | None:
    """In a process of its own, which is given what it needs and nothing else, and ended if it takes too long."""
    environ = {"PATH": os.environ.get("PATH", os.defpath), "MPLBACKEND": "agg", "HOME": home}
    process = None
    try:
        process = await asyncio.create_subprocess_exec(
            *python_command("bot.plot_process"), env=environ | {"MPLCONFIGDIR": os.path.join(home, "matplotlib")},
            cwd="/", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        picture, said = await within(DRAW_S, process.communicate(plot.encode()))
    except (OSError, asyncio.TimeoutError) as problem:
        log.warning("a picture could not be drawn: %r", problem)
        return None
    finally:
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode != 0 or not picture.startswith(PNG):
        log.warning("a picture could not be drawn: %s", said.decode(errors="replace")[-500:])
        return None
    return picture
