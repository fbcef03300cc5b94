"""The picture of a sweep: a metric over the parameter that was varied most, with the best result marked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.pictures.canvas import GRID, LETTERS_PT, LINES, TEXT

if TYPE_CHECKING:
    from collections.abc import Mapping

BEST = LINES[2]
COLOURS = (LINES[0], LINES[1], LINES[3], LINES[5])


def draw(axes: Any, plot: Mapping[str, Any]) -> None:
    """Draw the whole picture onto the axes."""
    shades = plot["shades"]
    for number, name in enumerate(shades or [None]):
        mine = [point for point in plot["results"] if point[2] == number]
        axes.plot(
            [x for x, _, _ in mine], [y for _, y, _ in mine], "o", color=COLOURS[number % len(COLOURS)],
            markersize=12, alpha=0.9, label=name, zorder=3, clip_on=False,
        )  # fmt: skip
    if plot["best"] is not None:
        x, y, _ = plot["results"][plot["best"]]
        axes.plot(x, y, "o", markersize=21, markerfacecolor="none", markeredgecolor=BEST, markeredgewidth=4, zorder=4)
        axes.annotate(
            f"{y:.4g}", (x, y), xytext=(0, 16 if plot["largest"] else -16), textcoords="offset points", color=BEST,
            fontsize=LETTERS_PT, ha="center", va="bottom" if plot["largest"] else "top", zorder=5,
        )  # fmt: skip
    _dress(axes, plot)
    if shades:
        axes.legend(
            loc="lower left", bbox_to_anchor=(0, 1), ncols=len(COLOURS), frameon=False, borderpad=0,
            fontsize=LETTERS_PT, labelcolor=TEXT, handlelength=0.6, columnspacing=1.0, handletextpad=0.3,
        )  # fmt: skip


def _dress(axes: Any, plot: Mapping[str, Any]) -> None:
    if plot["logarithmic"]:
        axes.set_xscale("log")
    axes.margins(x=0.08, y=0.25)
    ends = sorted({x for x, _, _ in plot["results"]})
    axes.set_xticks([ends[0], ends[-1]], [f"{ends[0]:g}", f"{ends[-1]:g}"])
    axes.set_xticks([], minor=True)
    axes.set_xlabel(plot["over"][:40], color=TEXT, fontsize=LETTERS_PT)
    axes.set_ylabel(plot["metric"][:24], color=TEXT, fontsize=LETTERS_PT)
    axes.locator_params(axis="y", nbins=4)
    axes.tick_params(colors=TEXT, labelsize=LETTERS_PT, length=0, pad=8)
    axes.grid(axis="y", color=GRID, linewidth=1.2)
    axes.set_axisbelow(True)
