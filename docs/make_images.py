"""Draw the pictures of the README and the documentation: `python docs/make_images.py`.

All of them come from the embedded sample, so that anyone gets the same ones.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from mixnmatch import ReliabilityDisplay, calibrator, load_sample

FOLDER = Path(__file__).parent / "images"


def reliability() -> None:
    """Reliability of the top label before and after ensemble temperature scaling, on rows that were not fitted on."""
    sample = load_sample()
    fitted = calibrator("ets", logits=True).fit(sample.logits_cal, sample.labels_cal)
    display = ReliabilityDisplay.compare(
        sample.labels_eval,
        {"before": sample.logits_eval, "after ETS": fitted.predict_proba(sample.logits_eval)},
        logits=["before"],
    )
    display.figure_.savefig(FOLDER / "reliability.png", dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    reliability()
