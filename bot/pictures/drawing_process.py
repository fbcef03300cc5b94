"""Draws one picture in its own process: JSON on stdin (see `bot.pictures.plots`), a PNG on stdout.

Drawing takes a second of CPU and much memory, too much for the bot's own process.
"""

from __future__ import annotations

import io
import json
import math
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Plot = Mapping[str, Any]

WIDTH_PX, HEIGHT_PX, DPI = 800, 400, 100
# large, because a phone shows the picture at less than half its size
LETTERS_PT, LINE_PT = 22, 4
BACKGROUND, TEXT, GRID, WARNING = "#17212b", "#e4ecf2", "#2f3e4c", "#ff7a6b"
LINES = ("#64b5f6", "#ffb74d", "#81c784", "#ba68c8", "#4dd0e1", "#f06292", "#dce775", "#a1887f")
DASHED = (0, (4, 3))
NAMED_AT_MOST = 4


def main(_arguments: Sequence[str] = ()) -> None:
    """Read the plot from stdin, draw it and write the PNG to stdout."""
    plot = json.load(sys.stdin)
    draw = _draw_results if "results" in plot else _draw_fit if "points" in plot else _draw_idle
    sys.stdout.buffer.write(_png(draw, plot))


def _png(draw: Callable[[Any, Plot], None], plot: Plot) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_PX / DPI, HEIGHT_PX / DPI), dpi=DPI, facecolor=BACKGROUND, layout="constrained")
    # padding, because the chat rounds the corners
    figure.get_layout_engine().set(w_pad=0.18, h_pad=0.12)  # type: ignore[union-attr, call-arg]
    axes = figure.add_subplot(facecolor=BACKGROUND)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.tick_params(colors=TEXT, labelsize=LETTERS_PT, length=0, pad=8)
    axes.grid(axis="y", color=GRID, linewidth=1.2)
    axes.set_axisbelow(True)
    draw(axes, plot)
    png = io.BytesIO()
    FigureCanvasAgg(figure).print_png(png)  # type: ignore[no-untyped-call]
    return png.getvalue()


def _draw_legend(axes: Any, **spacing: float) -> None:
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=NAMED_AT_MOST, frameon=False, borderpad=0,
        fontsize=LETTERS_PT, labelcolor=TEXT, **spacing,
    )  # fmt: skip


def _draw_label(axes: Any, text: str, at: tuple[float, float], offset: tuple[int, int], **style: Any) -> None:
    style = {"fontsize": LETTERS_PT - 2, "zorder": 4, **style}
    axes.annotate(text, at, xytext=offset, textcoords="offset points", **style)


# -- a batch fit: memory over batch size, the measured points, the fitted line, the limit, the choice -----------------

POINT, CHOSEN = LINES[1], LINES[2]
ROOM = 0.06  # least distance between two batch labels, as a share of the width
MIB_PER_GIB = 1024


def _draw_fit(axes: Any, plot: Plot) -> None:
    fixed, slope = (value / MIB_PER_GIB for value in plot["line"])
    total, chosen, too_large = plot["budget_mib"] / MIB_PER_GIB, plot["batch"], plot["too_large"]
    right = 1.15 * max([chosen, too_large or 0, *(batch for batch, _ in plot["points"])])
    axes.plot([0, right], [fixed, fixed + slope * right], color=LINES[0], linewidth=LINE_PT, zorder=2)
    _draw_points(axes, plot["points"], apart=ROOM * right, beside=chosen)
    at = fixed + slope * chosen
    axes.plot([chosen, chosen], [0, at], color=CHOSEN, linewidth=2, linestyle=(0, (2, 2)), zorder=1)
    axes.plot(chosen, at, "D", color=CHOSEN, markersize=15, zorder=5)
    if too_large:
        axes.plot(too_large, min(fixed + slope * too_large, total), "X", color=WARNING, markersize=15, zorder=5)
    _draw_limits(axes, total, plot["margin"])
    axes.set_xlim(0, right)
    axes.set_ylim(0, 1.06 * total)
    axes.set_xticks([0, chosen], ["0", f"batch {chosen}"])
    middle = round(total / 2) or round(total / 2, 1)
    axes.set_yticks([0, middle, total], ["0", f"{middle:g}", f"{total:.3g}"])
    axes.get_xticklabels()[1].set_color(CHOSEN)


def _draw_points(axes: Any, points: Sequence[Sequence[float]], *, apart: float, beside: float) -> None:
    """Draw the measured points. A point gets its batch as a label unless that would overlap another label."""
    labelled = [beside]
    for batch, mib in points:
        axes.plot(batch, mib / MIB_PER_GIB, "o", color=POINT, markersize=13, zorder=4, clip_on=False)
        if all(abs(batch - other) >= apart for other in labelled):
            labelled.append(batch)
            _draw_label(axes, f"{batch:g}", (batch, mib / MIB_PER_GIB), (0, -14), color=POINT, ha="left", va="top")


def _draw_limits(axes: Any, total: float, margin: float) -> None:
    axes.axhline(total, color=TEXT, linewidth=2, zorder=1)
    axes.axhline(margin * total, color=WARNING, linewidth=2, linestyle=DASHED, zorder=1)
    label = f"{100 * margin:.0f} % of {total:.3g} GiB"
    _draw_label(axes, label, (0, margin * total), (8, -6), color=WARNING, va="top")


# -- an idle job: how busy each GPU was, and the threshold below which it counts as idle ------------------------------


def _draw_idle(axes: Any, plot: Plot) -> None:
    times = [sample[0] for sample in plot["samples"]]
    unit_s, unit = (60.0, "min") if min(times) <= -100 else (1.0, "s")
    at = [moment / unit_s for moment in times]
    _draw_unknown(axes, at, plot["samples"])
    for number, name in enumerate(plot["gpus"]):
        percents = [math.nan if sample[number + 1] is None else sample[number + 1] for sample in plot["samples"]]
        colour = LINES[number % len(LINES)]
        axes.plot(at, percents, color=colour, linewidth=LINE_PT, label=f"GPU {name}", solid_capstyle="round", zorder=3)
        if len(plot["gpus"]) == 1:
            axes.fill_between(at, percents, color=colour, alpha=0.18, linewidth=0)
    threshold = plot["threshold_percent"]
    axes.axhline(threshold, color=WARNING, linewidth=2, linestyle=DASHED, zorder=2)
    _draw_label(axes, f"idle below {threshold:g} %", (at[0], threshold), (6, 5), color=WARNING, va="bottom")
    axes.set_ylim(-4, 104)
    axes.set_yticks([0, 50, 100], ["0", "50", "100 %"])
    _set_times(axes, at, unit)
    if len(plot["gpus"]) <= NAMED_AT_MOST:
        _draw_legend(axes, handlelength=1.0, columnspacing=1.2)


def _draw_unknown(axes: Any, at: Sequence[float], samples: Sequence[Sequence[float | None]]) -> None:
    """Shade the times when a GPU did not answer: neither busy nor idle."""
    for before, now, sample in zip([at[0], *at], at, samples, strict=False):
        if None in sample[1:]:
            axes.axvspan(before, now, color=GRID, alpha=0.6, linewidth=0)


def _set_times(axes: Any, at: Sequence[float], unit: str) -> None:
    axes.set_xlim(at[0], max(at[-1], at[0] + 1e-3))
    first = math.ceil(at[0])
    ticks = sorted({first, round(first / 2), 0})
    axes.set_xticks(ticks, [f"{-tick} {unit} ago" if tick else "now" for tick in ticks])
    labels = axes.get_xticklabels()
    labels[0].set_horizontalalignment("left")
    labels[-1].set_horizontalalignment("right")


# -- a sweep: a metric over the parameter that was varied most, with the best result marked ---------------------------

BEST = LINES[2]
COLOURS = (LINES[0], LINES[1], LINES[3], LINES[5])


def _draw_results(axes: Any, plot: Plot) -> None:
    shades = plot["shades"]
    for number, name in enumerate(shades or [None]):
        points = [(x, y) for x, y, shade in plot["results"] if shade == number]
        axes.plot(
            [x for x, _ in points], [y for _, y in points], "o", color=COLOURS[number % len(COLOURS)],
            markersize=12, alpha=0.9, label=name, zorder=3, clip_on=False,
        )  # fmt: skip
    if plot["best"] is not None:
        x, y, _ = plot["results"][plot["best"]]
        axes.plot(x, y, "o", markersize=21, markerfacecolor="none", markeredgecolor=BEST, markeredgewidth=4, zorder=4)
        offset, va = ((0, 16), "bottom") if plot["largest"] else ((0, -16), "top")
        _draw_label(axes, f"{y:.4g}", (x, y), offset, color=BEST, fontsize=LETTERS_PT, ha="center", va=va, zorder=5)
    if plot["logarithmic"]:
        axes.set_xscale("log")
    axes.margins(x=0.08, y=0.25)
    values = sorted({x for x, _, _ in plot["results"]})
    axes.set_xticks([values[0], values[-1]], [f"{values[0]:g}", f"{values[-1]:g}"])
    axes.set_xticks([], minor=True)
    axes.set_xlabel(plot["over"][:40], color=TEXT, fontsize=LETTERS_PT)
    axes.set_ylabel(plot["metric"][:24], color=TEXT, fontsize=LETTERS_PT)
    axes.locator_params(axis="y", nbins=4)
    if shades:
        _draw_legend(axes, handlelength=0.6, columnspacing=1.0, handletextpad=0.3)


if __name__ == "__main__":
    main()
