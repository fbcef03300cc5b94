"""The picture of an idle job: how busy each GPU was, and the threshold below which it counts as idle."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from bot.pictures.canvas import GRID, LETTERS_PT, LINE_PT, LINES, TEXT, WARNING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NAMED_AT_MOST = 4


def draw(axes: Any, plot: Mapping[str, Any]) -> None:
    """Draw the utilisation of each GPU over time, up to now."""
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


def _draw_unknown(axes: Any, at: Sequence[float], samples: Sequence[Sequence[float | None]]) -> None:
    """Shade the times when a GPU did not answer: neither busy nor idle."""
    for before, now, sample in zip([at[0], *at], at, samples, strict=False):
        if None in sample[1:]:
            axes.axvspan(before, now, color=GRID, alpha=0.6, linewidth=0)


def _draw_threshold(axes: Any, at: Sequence[float], percent: float) -> None:
    axes.axhline(percent, color=WARNING, linewidth=2, linestyle=(0, (4, 3)), zorder=2)
    axes.annotate(
        f"idle below {percent:g} %", (at[0], percent), xytext=(6, 5), textcoords="offset points", color=WARNING,
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
