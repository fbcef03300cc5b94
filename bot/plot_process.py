"""Draws one picture in a process of its own: JSON on stdin (see `bot.plots`), a PNG on stdout.

Drawing takes a second of CPU and much memory, neither of which the bot's loop has to spare.
"""

from __future__ import annotations

import io
import json
import math
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH_PX, HEIGHT_PX, DPI = 800, 400, 100
# a phone shows it at less than half its size
LETTERS_PT, LINE_PT = 22, 4
BACKGROUND, TEXT, GRID, THRESHOLD = "#17212b", "#e4ecf2", "#2f3e4c", "#ff7a6b"
LINES = ("#64b5f6", "#ffb74d", "#81c784", "#ba68c8", "#4dd0e1", "#f06292", "#dce775", "#a1887f")
NAMED_AT_MOST = 4


def png(plot: dict[str, Any]) -> bytes:
    """The utilisation of each GPU over the last minutes, and the line below which it counts as idle."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_PX / DPI, HEIGHT_PX / DPI), dpi=DPI, facecolor=BACKGROUND, layout="constrained")
    # a chat rounds its corners
    figure.get_layout_engine().set(w_pad=0.18, h_pad=0.12)  # type: ignore[union-attr, call-arg]
    axes = figure.add_subplot(facecolor=BACKGROUND)
    times = [sample[0] for sample in plot["samples"]]
    unit_s, unit = (60.0, "min") if min(times) <= -100 else (1.0, "s")
    at = [moment / unit_s for moment in times]
    _draw_unknown(axes, at, plot["samples"])
    for number, name in enumerate(plot["gpus"]):
        percents = [float("nan") if sample[number + 1] is None else sample[number + 1] for sample in plot["samples"]]
        colour = LINES[number % len(LINES)]
        axes.plot(at, percents, color=colour, linewidth=LINE_PT, label=f"GPU {name}", solid_capstyle="round", zorder=3)
        if len(plot["gpus"]) == 1:
            axes.fill_between(at, percents, color=colour, alpha=0.18, linewidth=0)
    _draw_threshold(axes, at, plot["threshold_percent"])
    _dress(axes, at, unit)
    if len(plot["gpus"]) <= NAMED_AT_MOST:
        axes.legend(
            loc="lower left", bbox_to_anchor=(0, 1), ncols=NAMED_AT_MOST, frameon=False, borderpad=0,
            fontsize=LETTERS_PT, labelcolor=TEXT, handlelength=1.0, columnspacing=1.2,
        )  # fmt: skip
    drawn = io.BytesIO()
    FigureCanvasAgg(figure).print_png(drawn)  # type: ignore[no-untyped-call]
    return drawn.getvalue()


def _draw_unknown(axes: Any, at: Sequence[float], samples: Sequence[Sequence[float | None]]) -> None:
    """Where a GPU did not tell: neither busy nor idle."""
    for before, now, sample in zip([at[0], *at], at, samples, strict=False):
        if None in sample[1:]:
            axes.axvspan(before, now, color=GRID, alpha=0.6, linewidth=0)


def _draw_threshold(axes: Any, at: Sequence[float], percent: float) -> None:
    axes.axhline(percent, color=THRESHOLD, linewidth=2, linestyle=(0, (4, 3)), zorder=2)
    axes.annotate(
        f"idle below {percent:g} %", (at[0], percent), xytext=(6, 5), textcoords="offset points", color=THRESHOLD,
        fontsize=LETTERS_PT - 2, va="bottom", zorder=4,
    )  # fmt: skip


def _dress(axes: Any, at: Sequence[float], unit: str) -> None:
    axes.set_ylim(-4, 104)
    axes.set_xlim(at[0], max(at[-1], at[0] + 1e-3))
    axes.set_yticks([0, 50, 100], ["0", "50", "100 %"])
    first = math.ceil(at[0])
    ticks = sorted({first, round(first / 2), 0})
    axes.set_xticks(ticks, [f"{-tick} {unit} ago" if tick else "now" for tick in ticks])
    labels = axes.get_xticklabels()
    labels[0].set_horizontalalignment("left")
    labels[-1].set_horizontalalignment("right")
    axes.tick_params(colors=TEXT, labelsize=LETTERS_PT, length=0, pad=8)
    axes.grid(axis="y", color=GRID, linewidth=1.2)
    axes.set_axisbelow(True)
    for side in axes.spines.values():
        side.set_visible(False)


def main(_arguments: Sequence[str] = ()) -> None:
    """Read, draw, write."""
    drawn = png(json.load(sys.stdin))
    sys.stdout.buffer.write(drawn)


if __name__ == "__main__":
    main()
