"""The picture of a batch fit: memory over batch size, the measured points, the fitted line, the limit, the choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.pictures.canvas import GRID, LETTERS_PT, LINE_PT, LINES, TEXT, WARNING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

POINT, CHOSEN = LINES[1], LINES[2]
ROOM = 0.06  # least distance between two batch labels, as a share of the width
MIB_PER_GIB = 1024


def draw(axes: Any, plot: Mapping[str, Any]) -> None:
    """Draw the whole picture onto the axes."""
    fixed, slope = (value / MIB_PER_GIB for value in plot["line"])
    total, limit = plot["budget_mib"] / MIB_PER_GIB, plot["margin"] * plot["budget_mib"] / MIB_PER_GIB
    chosen, too_large = plot["batch"], plot["too_large"]
    right = 1.15 * max([chosen, too_large or 0, *(batch for batch, _ in plot["points"])])
    axes.plot([0, right], [fixed, fixed + slope * right], color=LINES[0], linewidth=LINE_PT, zorder=2)
    _draw_points(axes, plot["points"], apart=ROOM * right, beside=chosen)
    at = fixed + slope * chosen
    axes.plot([chosen, chosen], [0, at], color=CHOSEN, linewidth=2, linestyle=(0, (2, 2)), zorder=1)
    axes.plot(chosen, at, "D", color=CHOSEN, markersize=15, zorder=5)
    if too_large:
        axes.plot(too_large, min(fixed + slope * too_large, total), "X", color=WARNING, markersize=15, zorder=5)
    _draw_limits(axes, limit, total, plot["margin"])
    _dress(axes, right, total, chosen)


def _draw_points(axes: Any, points: Sequence[Sequence[float]], *, apart: float, beside: float) -> None:
    """Draw the measured points. A point gets its batch as a label unless that would overlap another label."""
    written = [beside]
    for batch, mib in points:
        axes.plot(batch, mib / MIB_PER_GIB, "o", color=POINT, markersize=13, zorder=4, clip_on=False)
        if all(abs(batch - other) >= apart for other in written):
            written.append(batch)
            axes.annotate(
                f"{batch:g}", (batch, mib / MIB_PER_GIB), xytext=(0, -14), textcoords="offset points", color=POINT,
                fontsize=LETTERS_PT - 2, ha="left", va="top", zorder=4,
            )  # fmt: skip


def _draw_limits(axes: Any, limit: float, total: float, margin: float) -> None:
    axes.axhline(total, color=TEXT, linewidth=2, zorder=1)
    axes.axhline(limit, color=WARNING, linewidth=2, linestyle=(0, (4, 3)), zorder=1)
    axes.annotate(
        f"{100 * margin:.0f} % of {total:.3g} GiB", (0, limit), xytext=(8, -6), textcoords="offset points",
        color=WARNING, fontsize=LETTERS_PT - 2, va="top", zorder=4,
    )  # fmt: skip


def _dress(axes: Any, right: float, total: float, chosen: int) -> None:
    axes.set_xlim(0, right)
    axes.set_ylim(0, 1.06 * total)
    axes.set_xticks([0, chosen], ["0", f"batch {chosen}"])
    middle = round(total / 2) or round(total / 2, 1)
    axes.set_yticks([0, middle, total], ["0", f"{middle:g}", f"{total:.3g}"])
    axes.tick_params(colors=TEXT, labelsize=LETTERS_PT, length=0, pad=8)
    axes.get_xticklabels()[1].set_color(CHOSEN)
    axes.grid(axis="y", color=GRID, linewidth=1.2)
    axes.set_axisbelow(True)
