"""Drawing in SVG: panels that know their scales, and the few shapes that figures are made of.

Drawings are computed point by point, which Python says more clearly than a template. They are made of ``Markup`` by
:func:`element` alone, which escapes all text and all attributes; templates put them into pages as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# Points that are kept of a smooth curve: more cannot be seen.
MOST_POINTS = 120


@dataclass(frozen=True)
class Panel:
    """A rectangle of a drawing and the ranges that its sides stand for; the second range may be upside down.

    With ``odds`` the horizontal axis is of probabilities, drawn by their log-odds, and the vertical one too unless
    ``odds_y`` is False; what is beyond such a range is drawn at its end.
    """

    left: float
    top: float
    width: float
    height: float
    x_range: tuple[float, float] = (0.0, 1.0)
    y_range: tuple[float, float] = (0.0, 1.0)
    odds: bool = False
    odds_y: bool = True

    def x(self, value: float) -> float:
        """Where a value is on the horizontal axis."""
        return self.left + self.width * self._share(value, self.x_range, self.odds)

    def y(self, value: float) -> float:
        """Where a value is on the vertical axis."""
        return self.top + self.height * (1 - self._share(value, self.y_range, self.odds and self.odds_y))

    @staticmethod
    def _share(value: float, ends: tuple[float, float], odds: bool) -> float:
        low, high = ends
        if odds:
            value, low, high = (math.log(p / (1 - p)) for p in (min(max(value, low), high), low, high))
        return (value - low) / ((high - low) or 1.0)

    @property
    def bottom(self) -> float:
        """Lower side."""
        return self.top + self.height

    @property
    def right(self) -> float:
        """Right side."""
        return self.left + self.width

    def points(self, xs: Iterable[float], ys: Iterable[float]) -> list[tuple[float, float]]:
        """Places of pairs of values; those that are not finite are left out."""
        pairs = zip(xs, ys, strict=True)
        return [(self.x(a), self.y(b)) for a, b in pairs if math.isfinite(a) and math.isfinite(b)]


def element(tag: str, *content: str, **given: Any) -> Markup:
    """An element: text in it is escaped, markup is not; ``class_`` stands for ``class``, ``data_x`` for ``data-x``."""
    inside = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(_shown(value))}"'
        for name, value in given.items()
        if value is not None
    )
    children = "".join(escape(part) for part in content)
    return Markup(f"<{tag}{inside}>{children}</{tag}>" if children else f"<{tag}{inside}/>")


def _shown(value: Any) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def label(text: str, x: float, y: float, **given: Any) -> Markup:
    """Text."""
    return element("text", text, x=x, y=y, **given)


def line(points: Sequence[tuple[float, float]], class_: str) -> Markup:
    """A line through points; a single one is a dot."""
    if len(points) == 1:
        return element("circle", cx=points[0][0], cy=points[0][1], r=4.0, class_=f"dot {class_}")
    return element("path", d=path(points), class_=class_) if points else Markup()


def area(upper: Sequence[tuple[float, float]], lower: Sequence[tuple[float, float]], class_: str) -> Markup:
    """What is between two lines."""
    if len(upper) < 2:
        return Markup()
    return element("path", d=path([*upper, *reversed(lower)]) + "Z", class_=class_)


def path(points: Sequence[tuple[float, float]]) -> str:
    """Points as the description of a path."""
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def marker(kind: int, x: float, y: float, class_: str, size: float = 4.0) -> Markup:
    """One of five shapes, so that series differ in more than colour."""
    r = size
    shape = kind % 5
    if shape == 0:
        return element("circle", cx=x, cy=y, r=r, class_=class_)
    if shape == 1:
        return element("rect", x=x - r, y=y - r, width=2 * r, height=2 * r, class_=class_)
    corners = [(x, y - 1.25 * r), (x + 1.2 * r, y + r), (x - 1.2 * r, y + r)]
    if shape == 4:
        corners = [(x, y + 1.25 * r), (x + 1.2 * r, y - r), (x - 1.2 * r, y - r)]
    elif shape == 3:
        corners = [(x, y - 1.35 * r), (x + 1.35 * r, y), (x, y + 1.35 * r), (x - 1.35 * r, y)]
    return element("path", d=path(corners) + "Z", class_=class_)


def thinned(n: int, most: int = MOST_POINTS) -> NDArray[np.intp]:
    """Indices of at most ``most`` of n points, the ends among them."""
    return np.unique(np.linspace(0, max(n - 1, 0), min(n, most)).round().astype(np.intp))


def x_axis(
    panel: Panel, ticks: Sequence[tuple[float, str]], title: str, *, grid_from: float | None = None, drop: float = 46.0
) -> Markup:
    """Ticks and title below a panel; grid lines start at ``grid_from``, the top of what they cross."""
    top = panel.top if grid_from is None else grid_from
    made = []
    for value, text in ticks:
        x = panel.x(value)
        made.append(element("line", x1=x, x2=x, y1=top, y2=panel.bottom, class_="grid"))
        made.append(label(text, x, panel.bottom + 17, text_anchor="middle", class_="tick"))
    if title:
        made.append(
            label(title, panel.left + panel.width / 2, panel.bottom + drop, text_anchor="middle", class_="axis")
        )
    return Markup().join(made)


def y_axis(panel: Panel, ticks: Sequence[tuple[float, str]], title: str) -> Markup:
    """Ticks beside a panel and a title above it, which is easier to read than one that stands on its side."""
    made = []
    for value, text in ticks:
        y = panel.y(value)
        made.append(element("line", x1=panel.left, x2=panel.right, y1=y, y2=y, class_="grid"))
        made.append(label(text, panel.left - 7, y + 4.5, text_anchor="end", class_="tick"))
    if title:
        made.append(label(title, 2.0, panel.top - 10, class_="axis"))
    return Markup().join(made)


def nice_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers within a range."""
    if not high > low:
        return [low]
    rough = (high - low) / about
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 12) for k in range(first, math.floor(high / step + 1e-9) + 1)]


def swatch(place: int) -> Markup:
    """The line and the shape of a series, for a legend."""
    parts = (line([(1, 7), (29, 7)], f"curve line s{place} dash{place}"), marker(place, 15, 7, f"dot s{place}"))
    return element("svg", *parts, viewBox="0 0 30 14", class_="swatch", aria_hidden="true")


def tick_labels(ticks: Sequence[float], *, as_percent: bool = False) -> list[tuple[float, str]]:
    """Ticks with their texts, of as few digits as show all of them exactly."""
    scale, sign = (100, "%") if as_percent else (1, "")
    digits = next(d for d in range(16) if all(abs(round(scale * t, d) - scale * t) < 1e-9 for t in ticks))
    return [(tick, f"{scale * tick:.{digits}f}{sign}".replace("-", "−")) for tick in ticks]


def drawing(
    parts: Iterable[Markup], width: float, height: float, *, name: str, title: str, description: str, kind: str
) -> Markup:
    """A whole drawing, with its text alternative."""
    return element(
        "svg",
        element("title", title, id=f"{name}-title"),
        element("desc", description, id=f"{name}-desc"),
        *parts,
        element("g", class_="cursor", aria_hidden="true"),
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        id=name,
        class_=f"figure {kind}",
    )
