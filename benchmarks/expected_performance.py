"""Expected performance without labels beside NannyML's CBPE: employment in Massachusetts, 2015 to 2017.

python benchmarks/expected_performance.py employment_ma_2015_2017.parquet [--csv out.csv]

The file (NannyML's dataset, see its documentation) has the probabilities of a model that was trained before 2015, and
the true outcomes. 2015 is the calibration set (the reference of CBPE); 2016 and 2017 are estimated without labels, by
year and in chunks of 5,000 samples in the order of the file, and compared with what the labels say afterwards.
Without NannyML the script prints our numbers alone.

The probabilities in the file are float32. CBPE adds them up one by one in that type, which changes its ROC AUC of a
year by 9e-5; it is run with float64 as well. The chance in the labels of a year is ten times that: the last lines say
in how many bootstrap samples of the year our estimate is closer to the truth than CBPE's.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import f1_score, roc_auc_score

import mixnmatch as mm
from mixnmatch.monitoring import expected_performance

CHUNK = 5000
METRICS = ("accuracy", "f1", "roc_auc")
MAPS = ("identity", "platt", "beta", "beta-shrunk", "isotonic", "histogram", "bbq", "auto")
RESAMPLES = 200


def read(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    import pyarrow.parquet as parquet

    table = parquet.read_table(path, columns=["year", "predicted_probability", "employed"])
    return tuple(np.asarray(table.column(name).to_numpy()) for name in table.column_names)  # type: ignore[return-value]


def parts_of(years: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Years, and chunks of a year; a last chunk that is not full belongs to the one before."""
    found = []
    for year in (2016, 2017):
        rows = np.flatnonzero(years == year)
        found.append((f"{year}", rows))
        chunks = [rows[start : start + CHUNK] for start in range(0, len(rows) - CHUNK + 1, CHUNK)]
        chunks[-1] = rows[CHUNK * (len(chunks) - 1) :]
        found += [(f"{year} chunk {k + 1}", chunk) for k, chunk in enumerate(chunks)]
    return found


def realised(p: np.ndarray, y: np.ndarray) -> tuple[float, ...]:
    predicted = (p > 0.5).astype(int)
    return float((predicted == y).mean()), float(f1_score(y, predicted)), float(roc_auc_score(y, p))


def ours(method: str, p: np.ndarray, y: np.ndarray, years: np.ndarray, rows: np.ndarray) -> tuple[float, ...]:
    """Decisions stay those of the model: its probability above a half."""
    if method not in FITTED:
        FITTED[method] = mm.calibrator(method).fit(p[years == 2015], y[years == 2015])
    decided = (p[rows] > 0.5).astype(int)
    found: Any = expected_performance(p[rows], fitted=FITTED[method], predictions=decided, ranking=p[rows])
    return tuple(getattr(found, name).value for name in METRICS)


FITTED: dict[str, Any] = {}


def cbpe(p: np.ndarray, y: np.ndarray, years: np.ndarray, parts: list[tuple[str, np.ndarray]]) -> dict[str, Any]:
    """Estimates of NannyML, fitted on 2015; every part is estimated as one chunk."""
    import nannyml
    import pandas

    frame = pandas.DataFrame({"y_prob": p, "y_pred": (p > 0.5).astype(int), "y": y})
    estimator = nannyml.CBPE(
        y_pred_proba="y_prob",
        y_pred="y_pred",
        y_true="y",
        problem_type="classification_binary",
        metrics=list(METRICS),
        chunk_size=CHUNK,
    ).fit(frame[years == 2015])
    found = {}
    for name, rows in parts:
        estimator.chunker = nannyml.chunk.SizeBasedChunker(chunk_size=len(rows))
        table = estimator.estimate(frame.iloc[rows]).filter(period="analysis").to_df()
        found[name] = tuple(float(table[(metric, "value")].iloc[0]) for metric in METRICS)
    return found


def closer(year: str, rows: np.ndarray, p: np.ndarray, y: np.ndarray, estimates: dict[str, Any]) -> list[str]:
    """How often isotonic calibration, as CBPE uses it, is closer to the ROC AUC of a bootstrap sample than CBPE."""
    rng = np.random.default_rng(0)
    picks = (rng.choice(rows, len(rows)) for _ in range(RESAMPLES))
    true = np.array([roc_auc_score(y[pick], p[pick]) for pick in picks])
    found = [f"{year}: standard deviation of the ROC AUC over bootstrap samples {true.std():.5f}"]
    mine = np.abs(estimates["isotonic"][year][2] - true)
    for peer in ("NannyML CBPE", "NannyML CBPE, float64"):
        difference = estimates["isotonic"][year][2] - estimates[peer][year][2]
        share = float((mine < np.abs(estimates[peer][year][2] - true)).mean())
        found.append(f"{year}: ours minus {peer} {difference:+.6f}; ours is closer in {share:.0%} of the samples")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--csv", type=Path)
    asked = parser.parse_args()
    years, p, y = read(asked.data)
    parts = parts_of(years)
    estimates = {method: {name: ours(method, p, y, years, rows) for name, rows in parts} for method in MAPS}
    if find_spec("nannyml"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            estimates["NannyML CBPE"] = cbpe(p, y, years, parts)
            estimates["NannyML CBPE, float64"] = cbpe(p.astype(np.float64), y, years, parts)
    true = {name: realised(p[rows], y[rows]) for name, rows in parts}
    lines = []
    for scope in ("2016", "2017", "chunks"):
        names = [
            name
            for name, _ in parts
            if ("chunk" in name) == (scope == "chunks") and (scope in name or scope == "chunks")
        ]
        for method, found in estimates.items():
            errors = np.abs([np.subtract(found[name], true[name]) for name in names]).mean(axis=0)
            lines.append(
                {"scope": scope, "method": method} | dict(zip(METRICS, (f"{e:.5f}" for e in errors), strict=True))
            )
            print(" | ".join(f"{key}: {value}" for key, value in lines[-1].items()))
    for year in ("2016", "2017") if "NannyML CBPE" in estimates else ():
        for line in closer(year, dict(parts)[year], p, y, estimates):
            print(line)
    if asked.csv:
        with asked.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, lines[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(lines)


if __name__ == "__main__":
    main()
