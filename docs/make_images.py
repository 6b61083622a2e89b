"""Draw the pictures of the README and the documentation: `python docs/make_images.py`.

What shows data comes from the embedded sample or is generated, so that anyone gets the same pictures. Each is drawn
twice, for light and for dark pages; docs/conf.py puts the right one into the site.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.figure import Figure
from PIL import Image

from mixnmatch import ReliabilityDisplay, calibrator, load_sample, rows
from mixnmatch._drawing import COLOURS, GREY, without_frame
from mixnmatch.decisions import DecisionDisplay, RiskCoverageDisplay, coverage_for
from mixnmatch.evaluation import reliability_curve
from mixnmatch.maps.display import MapDisplay
from mixnmatch.report import write_report
from mixnmatch.selection import compare, learning_curve

FOLDER = Path(__file__).parent / "images"
INK = "#cfd0d0"
DARK = {
    "figure.facecolor": "#131416",
    "axes.facecolor": "#131416",
    "legend.facecolor": "#131416",
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
    "grid.color": "#3a3c3f",
}
PICTURES: dict[str, Callable[[], Any]] = {}


def picture(name: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Register a function that draws a picture of that name and returns a figure, or a display that has one."""

    def register(draw: Callable[[], Any]) -> Callable[[], Any]:
        PICTURES[name] = draw
        return draw

    return register


def save(name: str) -> None:
    """Write both versions of a picture, which are the same each time."""
    for ending, settings in (("", {}), ("-dark", DARK)):
        with matplotlib.rc_context(settings):
            drawn = PICTURES[name]()
            figure = getattr(drawn, "figure_", drawn)
            figure.savefig(FOLDER / f"{name}{ending}.png", dpi=110, metadata={"Software": None})
            pyplot.close("all")


def ink() -> str:
    """Colour of lines and words that have no meaning of their own."""
    return str(matplotlib.rcParams["text.color"])


@picture("reliability")
def reliability() -> Any:
    """Reliability of the top label before and after ensemble temperature scaling, on rows that were not fitted on."""
    sample = load_sample()
    fitted = calibrator("ets", logits=True).fit(sample.logits_cal, sample.labels_cal)
    return ReliabilityDisplay.compare(
        sample.labels_eval,
        {"before": sample.logits_eval, "after ETS": fitted.predict_proba(sample.logits_eval)},
        logits=["before"],
    )


@picture("comparison")
def comparison() -> Any:
    """Calibration gain of methods."""
    sample = load_sample()
    evaluation = (sample.logits_eval, sample.labels_eval)
    methods = ["ts", "ets", "irm", "irova", "irova-ts", "vector", "sms"]
    found = compare(sample.logits_cal, sample.labels_cal, methods=methods, logits=True, evaluation=evaluation)
    return found.plot()


@picture("learning")
def learning() -> Any:
    """Log loss over the number of calibration rows."""
    sample = load_sample()
    evaluation = (sample.logits_eval, sample.labels_eval)
    return learning_curve(sample.logits_cal, sample.labels_cal, logits=True, evaluation=evaluation).plot()


def map_of(name: str, ax: Any = None, **options: Any) -> MapDisplay:
    """What a method does to a confidence, fitted to the embedded sample."""
    sample = load_sample()
    fitted = calibrator(name, logits=True).fit(sample.logits_cal, sample.labels_cal)
    return MapDisplay.from_map(fitted, ax=ax, **options)


@picture("map-ensemble-beta")
def map_ensemble_beta() -> Any:
    """The members of an ensemble."""
    return map_of("ensemble-beta")


@picture("map-irm")
def map_irm() -> Any:
    """One function for all classes."""
    return map_of("irm")


@picture("map-irova")
def map_irova() -> Any:
    """A function for each class."""
    return map_of("irova", classes=[3, 5, 9])


# Methods by family, as on the page of methods.
FAMILIES = {
    "temperature": ["ts", "ets", "bcts", "iop", "iop-context", "ensemble-platt", "ensemble-beta"],
    "logistic": ["platt", "beta", "platt-shrunk", "beta-shrunk", "quadratic", "spline", "kernel"],
    "linear": ["vector", "matrix", "dirichlet", "svs", "sms", "keep-sms", "keep-context-sms"],
    "isotonic": ["isotonic", "venn-abers", "irm", "irm-normalised", "irm-ts", "irm-ets", "irova-ts", "irova-ets"],
    "bins": ["histogram", "bbq", "gpc", "auto", "identity", "uniform"],
}


def family(names: list[str]) -> Any:
    """What each method of a family does to the confidence that an image shows a cat (class 3 of the sample)."""
    figure, grid = pyplot.subplots(2, 4, figsize=(8.4, 4.6), layout="constrained", sharey=True)
    for place, axes in enumerate(grid.flat):
        if place >= len(names):
            axes.axis("off")
            continue
        map_of(names[place], axes, classes=[3])
        axes.set(title=names[place], ylim=(-0.01, 1.01), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
        axes.set(xlabel="before", ylabel="after" if place % 4 == 0 else "")
        if axes.get_legend():
            axes.get_legend().remove()
    return figure


for each, methods in FAMILIES.items():
    picture(f"maps-{each}")(lambda methods=methods: family(methods))


# Corners of a triangle, one for each of three classes.
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])


@picture("simplex")
def simplex() -> Any:
    """Where maps of three classes move probabilities: cats, deer and dogs of the embedded sample."""
    sample = load_sample()
    kept = [3, 4, 5]
    inside = np.isin(sample.labels_cal, kept)
    logits, labels = sample.logits_cal[inside][:, kept], np.searchsorted(kept, sample.labels_cal[inside])
    steps = 14
    grid = np.array([(i, j, steps - i - j) for i in range(1, steps) for j in range(1, steps - i)]) / steps
    figure, several = pyplot.subplots(1, 4, figsize=(10.4, 2.9), layout="constrained")
    for name, axes in zip(("ts", "vector", "irm", "isotonic"), several, strict=True):
        fitted = calibrator(name, logits=True).fit(logits, labels)
        start = grid @ CORNERS
        move = fitted.predict_proba(np.log(grid)) @ CORNERS - start
        outline = np.vstack([CORNERS, CORNERS[:1]])
        axes.plot(*outline.T, color=ink(), lw=1)
        arrows = {"angles": "xy", "scale_units": "xy", "scale": 1, "color": COLOURS[5], "width": 0.006}
        axes.quiver(*start.T, *move.T, **arrows)
        for corner, word, side in zip(CORNERS, ("cat", "deer", "dog"), ("top", "top", "bottom"), strict=True):
            axes.text(*corner, word, ha="center", va=side)
        axes.set(title=name, aspect="equal", xlim=(-0.1, 1.1), ylim=(-0.15, 1.0))
        axes.axis("off")
    return figure


@picture("shapes")
def shapes() -> Any:
    """Reliability diagrams of generated scores: four faults to recognise."""
    rng = np.random.default_rng(0)

    def drawn(n: int, slope: float, shift: float) -> tuple[Any, Any]:
        odds = rng.normal(0, 1.6, n)  # of the truth
        y = (rng.random(n) < 1 / (1 + np.exp(-odds))).astype(int)
        return 1 / (1 + np.exp(-(slope * odds + shift))), y

    cases = {
        "overconfident": drawn(5000, 2.0, 0.0),
        "underconfident": drawn(5000, 0.5, 0.0),
        "base rate too high": drawn(5000, 1.0, 1.2),
        "calibrated, 100 samples": drawn(100, 1.0, 0.0),
    }
    figure, several = pyplot.subplots(1, 4, figsize=(11.2, 3.4), layout="constrained", sharey=True)
    for (title, (p, y)), axes in zip(cases.items(), several, strict=True):
        curve = reliability_curve(p, y)
        axes.plot([0, 1], [0, 1], color=GREY, ls=":", lw=1.2)
        axes.fill_between(curve.confidence, curve.low, curve.high, color=COLOURS[1], alpha=0.2, lw=0)
        axes.plot(curve.confidence, curve.value, color=COLOURS[1], lw=2)
        axes.set(title=title, xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="predicted probability")
        without_frame(axes)
    several[0].set_ylabel("observed frequency")
    return figure


@picture("decision-cost")
def decision_cost() -> Any:
    """Cost over thresholds of the generated payments of docs/decisions.md."""
    page = (FOLDER.parent / "decisions.md").read_text(encoding="utf-8")
    shared: dict[str, Any] = {}
    first, second = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[:2]
    exec(first, shared)
    exec(second, shared)
    both = {"raw": shared["scores"], "calibrated": shared["calibrated"]}
    return DecisionDisplay.compare(shared["y"], both, kind="cost", thresholds=np.linspace(0.005, 0.5, 100))


@picture("risk-coverage")
def risk_coverage() -> Any:
    """Risk over coverage of the sample."""
    sample = load_sample()
    fitted = calibrator("ets", logits=True).fit(sample.logits_cal, sample.labels_cal)
    p = fitted.predict_proba(sample.logits_eval)
    allowed = coverage_for(p, sample.labels_eval, risk=0.1)
    return RiskCoverageDisplay.from_predictions(sample.labels_eval, p, name="LeNet-5", guarantee=allowed)


# What is learned is drawn in this colour (Okabe and Ito's vermillion), all else in grey.
LEARNED = "#D55E00"


class Scheme:
    """A schematic figure: boxes, arrows and words, in units of boxes."""

    def __init__(self, width: float, height: float):
        self.figure = Figure(figsize=(width, height))
        self.axes: Any = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set(xlim=(0, width), ylim=(0, height))
        self.axes.axis("off")

    def box(self, x: float, y: float, text: str, *, learned: bool = False) -> Any:
        """A box around (x, y), to draw arrows between."""
        color = LEARNED if learned else ink()
        style = {
            "boxstyle": "round,pad=0.3",
            "facecolor": matplotlib.rcParams["figure.facecolor"],
            "edgecolor": color,
            "linewidth": 1.4,
        }
        return self.axes.text(x, y, text, ha="center", va="center", fontsize=11, color=color, bbox=style)

    def arrow(self, start: Any, end: Any, text: str = "", *, learned: bool = False) -> None:
        """An arrow from box to box, with words above it."""
        color = LEARNED if learned else ink()
        style = {"arrowstyle": "-|>", "color": color, "linewidth": 1.2, "shrinkA": 2, "shrinkB": 2}
        ends = {"patchA": start.get_bbox_patch(), "patchB": end.get_bbox_patch()}
        first, last = start.get_position(), end.get_position()
        self.axes.annotate("", last, first, arrowprops=style | ends)
        if text:
            middle = (first[0] + last[0]) / 2, (first[1] + last[1]) / 2 + 0.1
            self.axes.text(*middle, text, ha="center", va="bottom", fontsize=11, color=color)


@picture("model-ensemble")
def model_ensemble() -> Any:
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
    scheme.axes.text(2.9, 0.8, "⋮", ha="center", va="center", fontsize=12, color=ink())
    scheme.arrow(mixed, result)
    return scheme.figure


@picture("data-ensemble")
def data_ensemble() -> Any:
    """The paper's figure of the data ensemble: all entries of the table teach one function."""
    scheme = Scheme(7.6, 2.6)
    pooled, learned = scheme.box(2.8, 1.3, "$n L$ pairs"), scheme.box(4.4, 1.3, "one $g$", learned=True)
    result = scheme.box(6.4, 1.3, "$g(z_l)\\,/\\,\\sum_k g(z_k)$")
    for y, label in ((2.2, "$(z_1, y_1)$"), (1.3, "$(z_2, y_2)$"), (0.3, "$(z_L, y_L)$")):
        scheme.arrow(scheme.box(0.9, y, label), pooled)
    scheme.axes.text(0.9, 0.8, "⋮", ha="center", va="center", fontsize=12, color=ink())
    scheme.arrow(pooled, learned, learned=True)
    scheme.arrow(learned, result)
    return scheme.figure


@picture("composition")
def composition() -> Any:
    """The paper's figure of the composition: a parametric map, then a non-parametric one."""
    scheme = Scheme(7.6, 1.1)
    scores, result = scheme.box(0.8, 0.55, "scores $z$"), scheme.box(6.9, 0.55, "result")
    first = scheme.box(2.7, 0.55, "efficient map\n(TS, ETS)", learned=True)
    second = scheme.box(4.9, 0.55, "expressive map\n(IROvA, IRM)", learned=True)
    for start, end in ((scores, first), (first, second), (second, result)):
        scheme.arrow(start, end)
    return scheme.figure


def report() -> None:
    """The first screen of a report, as Chromium shows it."""
    browser = shutil.which("chromium")
    if browser is None:
        sys.exit("the picture of the report needs chromium")
    sample = load_sample()
    held_out = rows(sample.logits_eval, sample.labels_eval, logits=True)
    with TemporaryDirectory() as folder:
        page = Path(folder, "report.html")
        methods = ["identity", "ts", "ets", "irm"]
        calibration = rows(sample.logits_cal, sample.labels_cal, logits=True)
        write_report(page, calibration, evaluation=held_out, methods=methods, title="LeNet-5 on CIFAR-10")
        for ending, scheme in (("", "default"), ("-dark", "dark")):
            options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1000,1560"]
            look = [f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}"]
            target = FOLDER / f"report{ending}.png"
            shot = [browser, *options, *look, f"--screenshot={target}", page.as_uri()]
            subprocess.run(shot, check=True, capture_output=True)
            with Image.open(target) as picture:
                small = picture.convert("P", palette=Image.Palette.ADAPTIVE, colors=160)
            small.save(target, optimize=True)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for each in sys.argv[1:] or [*PICTURES, "report"]:
        report() if each == "report" else save(each)
