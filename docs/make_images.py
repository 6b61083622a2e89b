"""Draw the pictures of the README and the documentation: `python docs/make_images.py`.

All of them come from the embedded sample, so that anyone gets the same ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from mixnmatch import MapDisplay, ReliabilityDisplay, calibrator, load_sample
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


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    reliability()
    comparison()
    learning()
    maps()
