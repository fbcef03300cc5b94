"""Draws one picture in its own process: JSON on stdin (see `bot.pictures.plots`), a PNG on stdout.

Drawing takes a second of CPU and much memory, too much for the bot's own process.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import TYPE_CHECKING

from bot.pictures import fit_picture as plot_fit
from bot.pictures import idle_picture as plot_idle
from bot.pictures import results_picture as plot_results
from bot.pictures.canvas import png

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(_arguments: Sequence[str] = ()) -> None:
    """Read the plot from stdin, draw it and write the PNG to stdout."""
    plot = json.load(sys.stdin)
    draw = plot_results.draw if "results" in plot else plot_fit.draw if "points" in plot else plot_idle.draw
    sys.stdout.buffer.write(png(partial(draw, plot=plot)))


if __name__ == "__main__":
    main()
