"""Draw the pictures of the README and the documentation: `python docs/make_images.py`.

What shows data comes from the embedded sample, so that anyone gets the same pictures.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")

from matplotlib.figure import Figure

from mixnmatch import ReliabilityDisplay, calibrator, load_sample
from mixnmatch.decisions import DecisionDisplay, RiskCoverageDisplay, coverage_for
from mixnmatch.maps.display import MapDisplay
from mixnmatch.selection import compare, learning_curve

FOLDER = Path(__file__).parent / "images"


def save(display: Any, name: str) -> None:
    """Write a picture that is the same each time."""
    display.figure_.savefig(FOLDER / name, dpi=110, metadata={"Software": None})


def reliability() -> None:
    """Reliability of the top label before and after ensemble temperature scaling, on rows that were not fitted on."""
    sample = load_sample()
    fitted = calibrator("ets", logits=True).fit(sample.logits_cal, sample.labels_cal)
    display = ReliabilityDisplay.compare(
        sample.labels_eval,
        {"before": sample.logits_eval, "after ETS": fitted.predict_proba(sample.logits_eval)},
        logits=["before"],
    )
    save(display, "reliability.png")


def comparison() -> None:
    """Calibration gain of methods."""
    sample = load_sample()
    evaluation = (sample.logits_eval, sample.labels_eval)
    methods = ["ts", "ets", "irm", "irova", "irova-ts", "vector", "sms"]
    found = compare(sample.logits_cal, sample.labels_cal, methods=methods, logits=True, evaluation=evaluation)
    save(found.plot(), "comparison.png")


def learning() -> None:
    """Log loss over the number of calibration rows."""
    sample = load_sample()
    evaluation = (sample.logits_eval, sample.labels_eval)
    save(
        learning_curve(sample.logits_cal, sample.labels_cal, logits=True, evaluation=evaluation).plot(), "learning.png"
    )


def maps() -> None:
    """The members of an ensemble, and the functions of two maps."""
    sample = load_sample()
    for name in ("ensemble-beta", "irm", "irova"):
        fitted = calibrator(name, logits=True).fit(sample.logits_cal, sample.labels_cal)
        options = {"classes": [3, 5, 9]} if name == "irova" else {}
        save(MapDisplay.from_map(fitted, **options), f"map-{name}.png")


def decisions() -> None:
    """Cost over thresholds of the generated payments of docs/decisions.md, and risk over coverage of the sample."""
    page = (FOLDER.parent / "decisions.md").read_text(encoding="utf-8")
    shared: dict[str, Any] = {}
    first, second = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[:2]
    exec(first, shared)
    exec(second, shared)
    both = {"raw": shared["scores"], "calibrated": shared["calibrated"]}
    thresholds = np.linspace(0.005, 0.5, 100)
    save(DecisionDisplay.compare(shared["y"], both, kind="cost", thresholds=thresholds), "decision-cost.png")
    sample = load_sample()
    fitted = calibrator("ets", logits=True).fit(sample.logits_cal, sample.labels_cal)
    p = fitted.predict_proba(sample.logits_eval)
    allowed = coverage_for(p, sample.labels_eval, risk=0.1)
    display = RiskCoverageDisplay.from_predictions(sample.labels_eval, p, name="LeNet-5", guarantee=allowed)
    save(display, "risk-coverage.png")


# What is learned is drawn in this colour (Okabe and Ito's vermillion), all else in grey.
LEARNED = "#D55E00"
PLAIN = "#444444"


class Scheme:
    """A schematic figure: boxes, arrows and words, in units of boxes."""

    def __init__(self, width: float, height: float):
        self.figure = Figure(figsize=(width, height))
        self.axes: Any = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set(xlim=(0, width), ylim=(0, height))
        self.axes.axis("off")

    def box(self, x: float, y: float, text: str, *, learned: bool = False) -> Any:
        """A box around (x, y), to draw arrows between."""
        color = LEARNED if learned else PLAIN
        style = {"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": color, "linewidth": 1.4}
        return self.axes.text(x, y, text, ha="center", va="center", fontsize=11, color=color, bbox=style)

    def arrow(self, start: Any, end: Any, text: str = "", *, learned: bool = False) -> None:
        """An arrow from box to box, with words above it."""
        color = LEARNED if learned else PLAIN
        style = {"arrowstyle": "-|>", "color": color, "linewidth": 1.2, "shrinkA": 2, "shrinkB": 2}
        ends = {"patchA": start.get_bbox_patch(), "patchB": end.get_bbox_patch()}
        first, last = start.get_position(), end.get_position()
        self.axes.annotate("", last, first, arrowprops=style | ends)
        if text:
            middle = (first[0] + last[0]) / 2, (first[1] + last[1]) / 2 + 0.1
            self.axes.text(*middle, text, ha="center", va="bottom", fontsize=11, color=color)

    def save(self, name: str) -> None:
        """Write the picture."""
        self.figure.savefig(FOLDER / f"{name}.png", dpi=130, metadata={"Software": None})


def model_ensemble() -> None:
    """The paper's figure of the model ensemble: M maps of one family, mixed with weights."""
    scheme = Scheme(7.6, 2.6)
    scores, mixed, result = (
        scheme.box(0.8, 1.3, "scores $z$"),
        scheme.box(5.3, 1.3, "$\\sum$"),
        scheme.box(6.8, 1.3, "result"),
    )
    for y, number in ((2.2, "1"), (1.3, "2"), (0.3, "M")):
        member = scheme.box(2.9, y, f"$T(z;\\,\\theta_{number})$", learned=True)
        scheme.arrow(scores, member)
        scheme.arrow(member, mixed, f"$w_{number}$", learned=True)
    scheme.axes.text(2.9, 0.8, "⋮", ha="center", va="center", fontsize=12, color=PLAIN)
    scheme.arrow(mixed, result)
    scheme.save("model-ensemble")


def data_ensemble() -> None:
    """The paper's figure of the data ensemble: all entries of the table teach one function."""
    scheme = Scheme(7.6, 2.6)
    pooled, learned = scheme.box(2.8, 1.3, "$n L$ pairs"), scheme.box(4.4, 1.3, "one $g$", learned=True)
    result = scheme.box(6.4, 1.3, "$g(z_l)\\,/\\,\\sum_k g(z_k)$")
    for y, label in ((2.2, "$(z_1, y_1)$"), (1.3, "$(z_2, y_2)$"), (0.3, "$(z_L, y_L)$")):
        scheme.arrow(scheme.box(0.9, y, label), pooled)
    scheme.axes.text(0.9, 0.8, "⋮", ha="center", va="center", fontsize=12, color=PLAIN)
    scheme.arrow(pooled, learned, learned=True)
    scheme.arrow(learned, result)
    scheme.save("data-ensemble")


def composition() -> None:
    """The paper's figure of the composition: a parametric map, then a non-parametric one."""
    scheme = Scheme(7.6, 1.1)
    scores, result = scheme.box(0.8, 0.55, "scores $z$"), scheme.box(6.9, 0.55, "result")
    first = scheme.box(2.7, 0.55, "efficient map\n(TS, ETS)", learned=True)
    second = scheme.box(4.9, 0.55, "expressive map\n(IROvA, IRM)", learned=True)
    for start, end in ((scores, first), (first, second), (second, result)):
        scheme.arrow(start, end)
    scheme.save("composition")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    reliability()
    comparison()
    learning()
    maps()
    decisions()
    model_ensemble()
    data_ensemble()
    composition()
