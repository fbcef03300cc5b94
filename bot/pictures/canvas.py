"""What all pictures for the chat share: size, colours and the way to a PNG."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

WIDTH_PX, HEIGHT_PX, DPI = 800, 400, 100
# large, because a phone shows the picture at less than half its size
LETTERS_PT, LINE_PT = 22, 4
BACKGROUND, TEXT, GRID, WARNING = "#17212b", "#e4ecf2", "#2f3e4c", "#ff7a6b"
LINES = ("#64b5f6", "#ffb74d", "#81c784", "#ba68c8", "#4dd0e1", "#f06292", "#dce775", "#a1887f")


def png(draw: Callable[[Any], None]) -> bytes:
    """Return a PNG of what `draw` puts onto the axes it gets."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_PX / DPI, HEIGHT_PX / DPI), dpi=DPI, facecolor=BACKGROUND, layout="constrained")
    # padding, because the chat rounds the corners
    figure.get_layout_engine().set(w_pad=0.18, h_pad=0.12)  # type: ignore[union-attr, call-arg]
    axes = figure.add_subplot(facecolor=BACKGROUND)
    for side in axes.spines.values():
        side.set_visible(False)
    draw(axes)
    drawn = io.BytesIO()
    FigureCanvasAgg(figure).print_png(drawn)  # type: ignore[no-untyped-call]
    return drawn.getvalue()
