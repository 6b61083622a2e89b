"""Compute the numbers that other packages give on a small fixed data set, and write them to values.json.

Run in an environment of its own (requirements.txt beside this file): ``python parity/make_values.py``. The tests of
mixnmatch read values.json and need none of these packages.

Scores are multiples of 1/128, which float32 and float64 hold exactly, so that no number depends on the type that a
package works in. They hit the edges of 16 bins but never those of 15, except at 0 and 1; exact zeros, ones and ties
occur many times.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

UNITS = 128
HERE = Path(__file__).resolve().parent
PACKAGES = (
    "MAPIE", "netcal", "numpy", "probcal", "relplot", "scikit-learn", "scipy", "statsmodels", "torch", "torchmetrics",
)  # fmt: skip


def random_integers(seed: int) -> Iterator[int]:
    """31-bit integers of a linear congruential generator: the same on every platform and in every version."""
    state = seed
    while True:
        state = (6364136223846793005 * state + 1442695040888963407) % 2**64
        yield state >> 33


def make_data(n_rows: int = 400, n_classes: int = 4, seed: int = 2020) -> dict[str, Any]:
    """Counts of 128ths for a multi-class and a binary problem, and labels that are less certain than the scores."""
    numbers = random_integers(seed)
    table, labels = [], []
    for row in range(n_rows):
        if row % 20 == 0:  # certain
            winner = next(numbers) % n_classes
            counts = [UNITS if k == winner else 0 for k in range(n_classes)]
        elif row % 20 == 1:  # two classes tied for the top
            counts = [UNITS // 2, UNITS // 2, 0, 0]
        else:
            cuts = sorted(next(numbers) % (UNITS + 1) for _ in range(n_classes - 1))
            counts = [b - a for a, b in zip([0, *cuts], [*cuts, UNITS], strict=True)]
        draw = next(numbers) % UNITS
        likely = next(k for k in range(n_classes) if draw < sum(counts[: k + 1]))
        labels.append(next(numbers) % n_classes if next(numbers) % 5 == 0 else likely)
        table.append(counts)
    positive, outcome = [], []
    for row in range(n_rows):
        count = (0, UNITS)[row % 2] if row % 25 < 2 else next(numbers) % (UNITS + 1)
        # Not uniform: more scores near the ends, as classifiers give them.
        count = count if next(numbers) % 2 else (count * count // UNITS if row % 3 else UNITS - count * count // UNITS)
        positive.append(count)
        outcome.append(int(next(numbers) % UNITS < (count + UNITS // 4) // 2 + UNITS // 8))
    return {
        "units": UNITS,
        "multiclass": {"counts": table, "labels": labels},
        "binary": {"counts": positive, "labels": outcome},
    }


def netcal_values(p: Any, y: Any, z: Any, o: Any) -> dict[str, Any]:
    """Expected and maximum calibration error; temperature scaling of float64 and float32 probabilities."""
    from netcal.metrics import ACE, ECE, MCE
    from netcal.scaling import TemperatureScaling

    smoothed = 0.98 * p + 0.02 / p.shape[1]
    temperature = {}
    for name in ("float64", "float32"):
        scaling = TemperatureScaling()
        scaling.fit(smoothed.astype(name), y)
        temperature[name] = np.asarray(scaling.transform(smoothed.astype(name)), dtype=float)[2].tolist()
    return {
        "ECE(15) multiclass": ECE(15).measure(p, y),
        "ECE(16) multiclass": ECE(16).measure(p, y),
        "ECE(10, equal_intervals=False) multiclass": ECE(10, equal_intervals=False).measure(p, y),
        "MCE(15) multiclass": MCE(15).measure(p, y),
        "ACE(15) multiclass": ACE(15).measure(p, y),
        "ECE(15) binary": ECE(15).measure(z, o),
        "ECE(16) binary": ECE(16).measure(z, o),
        "TemperatureScaling third row, float64": temperature["float64"],
        "TemperatureScaling third row, float32": temperature["float32"],
    }


def torchmetrics_values(p: Any, y: Any, z: Any, o: Any) -> dict[str, Any]:
    """Calibration errors, on all rows and on those whose confidence is below 1."""
    import torch
    from torchmetrics.functional.classification import binary_calibration_error, multiclass_calibration_error

    values = {}
    below = p.max(axis=1) < 1
    for rows, name in ((slice(None), "all rows"), (below, "confidence below 1")):
        scores, labels = torch.tensor(p[rows]), torch.tensor(y[rows])
        for bins in (15, 16):
            for norm in ("l1", "l2", "max"):
                error = multiclass_calibration_error(scores, labels, p.shape[1], bins, norm)
                values[f"multiclass_calibration_error({bins}, {norm}) {name}"] = float(error)
    below = z < 1
    for rows, name in ((slice(None), "all rows"), (below, "confidence below 1")):
        for bins in (15, 16):
            error = binary_calibration_error(torch.tensor(z[rows]), torch.tensor(o[rows]), bins, "l1")
            values[f"binary_calibration_error({bins}, l1) {name}"] = float(error)
    return values


def relplot_values(p: Any, y: Any, z: Any, o: Any) -> dict[str, Any]:
    """Smooth and binned calibration errors."""
    import relplot
    from relplot.metrics import binnedECE

    confidence, correct = relplot.multiclass_logits_to_confidences(p, y, probs=True)
    inside = (z > 0) & (z < 1)
    values = {}
    for rows, name in ((slice(None), "all rows"), (inside, "confidence inside (0, 1)")):
        value, width = relplot.metrics.smECE(z[rows], o[rows], return_width=True)
        values[f"smECE binary, {name}"] = float(value)
        values[f"smECE width binary, {name}"] = float(width)
        for sigma in (0.05, 0.2):
            values[f"smECE_sigma({sigma}) binary, {name}"] = float(relplot.smECE_sigma(z[rows], o[rows], sigma))
    below = confidence < 1
    return {
        **values,
        "smECE top-label, confidence below 1": float(relplot.smECE(confidence[below], correct[below])),
        "binnedECE(16) binary": float(binnedECE(z, o, 16)),
        "binnedECE(16) binary, confidence below 1": float(binnedECE(z[z < 1], o[z < 1], 16)),
    }


def sklearn_values(p: Any, y: Any, z: Any, o: Any) -> dict[str, Any]:
    """Proper scores, accuracy and calibration curves."""
    from sklearn.calibration import calibration_curve
    from sklearn.metrics import accuracy_score, brier_score_loss, log_loss

    smoothed = 0.98 * p + 0.02 / p.shape[1]
    curves = {}
    for strategy in ("uniform", "quantile"):
        for bins in (10, 16):
            fraction, mean = calibration_curve(o, z, n_bins=bins, strategy=strategy)
            curves[f"calibration_curve({bins}, {strategy})"] = {"fraction": fraction.tolist(), "mean": mean.tolist()}
    return {
        "accuracy_score multiclass": accuracy_score(y, p.argmax(axis=1)),
        "brier_score_loss multiclass": brier_score_loss(y, p, labels=range(p.shape[1])),
        "brier_score_loss binary": brier_score_loss(o, z),
        "log_loss multiclass, smoothed": log_loss(y, smoothed, labels=range(p.shape[1])),
        "log_loss binary, zeros included": log_loss(o, z),
        "log_loss binary, smoothed": log_loss(o, 0.98 * z + 0.01),
        **curves,
    }


def mapie_values(p: Any, y: Any, z: Any, o: Any) -> dict[str, Any]:
    """Expected calibration errors of the correctness of a prediction."""
    from mapie.metrics.calibration import expected_calibration_error, top_label_ece

    confidence, correct = p.max(axis=1), (p.argmax(axis=1) == y).astype(int)
    order = np.argsort(confidence, kind="stable")
    return {
        "expected_calibration_error(50, uniform)": expected_calibration_error(correct, confidence, 50, "uniform"),
        "expected_calibration_error(16, uniform)": expected_calibration_error(correct, confidence, 16, "uniform"),
        "expected_calibration_error(10, array split)": expected_calibration_error(
            correct, confidence, 10, "array split"
        ),
        "expected_calibration_error(10, array split), sorted rows": expected_calibration_error(
            correct[order], confidence[order], 10, "array split"
        ),
        "top_label_ece(50, uniform)": top_label_ece(y, p, num_bins=50, split_strategy="uniform"),
    }


def probcal_values(p: Any, y: Any, z: Any, o: Any) -> dict[str, Any]:
    """Calibration intercept and slope, and Spiegelhalter's test, without probabilities of 0 and 1."""
    from probcal.metrics import calibration_intercept, calibration_slope, spiegelhalter_z

    smoothed, weight = 0.98 * z + 0.01, 1 + np.arange(len(z)) % 3
    test = spiegelhalter_z(o, smoothed)
    return {
        "calibration_intercept": calibration_intercept(o, smoothed),
        "calibration_slope": calibration_slope(o, smoothed),
        "calibration_intercept, weighted": calibration_intercept(o, smoothed, sample_weight=weight),
        "calibration_slope, weighted": calibration_slope(o, smoothed, sample_weight=weight),
        "spiegelhalter_z": test.z,
        "spiegelhalter_z, p-value": test.p_value,
    }


def statsmodels_values(p: Any, y: Any, z: Any, o: Any) -> dict[str, Any]:
    """Calibration intercept and slope with their intervals, as logistic regressions, and an exact interval."""
    import statsmodels.api as sm
    from statsmodels.stats.proportion import proportion_confint

    smoothed = 0.98 * z + 0.01
    u, family, one = np.log(smoothed / (1 - smoothed)), sm.families.Binomial(), np.ones((len(z), 1))
    precise = {"tol": 1e-14, "maxiter": 200}
    intercept = sm.GLM(o, one, family=family, offset=u).fit(**precise)
    slope = sm.GLM(o, np.column_stack([one, u]), family=family).fit(**precise)
    return {
        "GLM, intercept": intercept.params[0],
        "GLM, intercept, interval": list(map(float, intercept.conf_int()[0])),
        "GLM, slope": slope.params[1],
        "GLM, slope, interval": list(map(float, slope.conf_int()[1])),
        "proportion_confint(beta)": list(map(float, proportion_confint(int(o.sum()), len(o), method="beta"))),
    }


def main() -> None:
    """Compute and write all values."""
    data = make_data()
    p = np.array(data["multiclass"]["counts"]) / UNITS
    y = np.array(data["multiclass"]["labels"])
    z = np.array(data["binary"]["counts"]) / UNITS
    o = np.array(data["binary"]["labels"])
    makers = {
        "MAPIE": mapie_values,
        "netcal": netcal_values,
        "probcal": probcal_values,
        "relplot": relplot_values,
        "scikit-learn": sklearn_values,
        "statsmodels": statsmodels_values,
        "torchmetrics": torchmetrics_values,
    }
    result = {
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name).split("+")[0] for name in PACKAGES},
        "data": data,
        "values": {name: make(p, y, z, o) for name, make in makers.items()},
    }
    text = json.dumps(result, indent=1, default=float)
    # Lists on one line each: the file stays readable and its diffs small.
    text = re.sub(r"\[[\s\d.,e+-]*\]", lambda found: re.sub(r"\s+", " ", found.group()), text)
    (HERE / "values.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
