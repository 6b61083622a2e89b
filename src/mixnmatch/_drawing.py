"""What all displays share: colours, lines, markers and matplotlib itself, imported when something is drawn."""

from __future__ import annotations

from typing import Any

# Okabe and Ito's palette, which is colour-blind safe.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GREY = "#777777"


def pyplot() -> Any:
    """``matplotlib.pyplot``, or an error that says what to install."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        msg = 'drawing needs matplotlib: pip install "mixnmatch[plot]"'
        raise ImportError(msg) from error
    return pyplot


def new_axes(width: float, height: float) -> Any:
    """Axes on a new figure of that size in inches, laid out automatically."""
    return pyplot().figure(figsize=(width, height), layout="constrained").add_subplot()


def line_style(k: int) -> dict[str, str]:
    """Colour, line and marker of the k-th of several lines."""
    return {"color": COLOURS[k % len(COLOURS)], "ls": LINES[k % len(LINES)], "marker": MARKERS[k % len(MARKERS)]}


def without_frame(*several: Any) -> None:
    """Leave out the upper and the right line around axes."""
    for axes in several:
        axes.spines[["top", "right"]].set_visible(False)
