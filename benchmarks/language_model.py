"""Maps on the outputs of a real language model with many classes, made by recipes/language_model.py.

    python benchmarks/language_model.py WORDS_1000.npz [WORDS_10000.npz ...]

Prints tables in Markdown: log loss and Brier score before and after each map on modules that neither the model nor the
map has seen, with 95% intervals of the differences to the uncalibrated scores. Samples of one module depend on each
other, so standard errors are over modules.
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

import numpy as np

import mixnmatch as mm

NAMES = (
    "ts", "ets", "irm", "irm-ets", "irova-ts", "iop", "iop-context", "vector", "svs", "sms", "keep-sms", "dirichlet",
    "keep-context-sms", "auto",
)  # fmt: skip
# Above so many classes, maps with a matrix have too many parameters, and those for each class take minutes.
MANY = 2000
FOR_MANY = ("ts", "ets", "irm", "irm-ets", "iop", "iop-context", "vector", "svs")


def rows_of(p: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log loss and Brier score of each row."""
    p = p.astype(np.float64)
    own = p[np.arange(len(y)), y]
    return -np.log(np.maximum(own, 1e-300)), (p**2).sum(axis=1) - 2 * own + 1


def over_modules(values: np.ndarray, modules: np.ndarray) -> tuple[float, float]:
    """Mean, and half the length of its 95% interval."""
    mean = values.mean()
    sums = np.bincount(modules, values - mean)
    return float(mean), float(1.96 * np.sqrt((sums**2).sum()) / len(values))


def table(path: Path) -> None:
    """Fit, apply and print."""
    with np.load(path) as file:
        data = {name: file[name] for name in file.files}
    x, y, modules = data["logits_eval"], data["labels_eval"], data["clusters_eval"]
    n, classes = data["logits_cal"].shape
    seen = np.bincount(data["labels_cal"], minlength=classes)
    print(f"{classes} words; {n} samples for calibration, {len(x)} for evaluation in {len(set(modules))} modules. "
          f"{(seen < 10).mean():.0%} of the words occur less than ten times in the calibration set.\n")  # fmt: skip
    print("| map | log loss | change | Brier score | change | accuracy | top-label ECE | fit, s |")
    print("|---|---|---|---|---|---|---|---|")
    before = rows_of(
        mm.calibrator("identity", logits=True).fit(data["logits_cal"], data["labels_cal"]).predict_proba(x), y
    )
    for name in ("identity", *(NAMES if classes <= MANY else FOR_MANY)):
        began = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", mm.exceptions.CalibrationWarning)
            fitted = mm.calibrator(name, logits=True).fit(data["logits_cal"], data["labels_cal"])
        seconds = time.process_time() - began
        p = fitted.predict_proba(x)
        after = rows_of(p, y)
        cells = []
        for first, second in zip(before, after, strict=True):
            change, reach = over_modules(second - first, modules)
            cells += [f"{second.mean():.4f}", "" if name == "identity" else f"{change:+.4f} ± {reach:.4f}"]
        cells += [f"{(p.argmax(1) == y).mean():.2%}", f"{float(mm.calibration_error(p, y)):.2%}", f"{seconds:.1f}"]
        print(f"| `{name}` | {' | '.join(cells)} |", flush=True)
    print(f"\nMade with {', '.join(data['versions'].tolist())}.\n")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        table(Path(argument))
