"""Place our maps among the published results of CalArena (arXiv 2605.30188), for those who have its files.

    python -m tabular.calarena calibration_benchmarks/tabrepo-binary.h5 --results results/tabrepo-binary

Both paths are in a checkout of CalArena: the HDF5 file holds, for each data set and model, a group ``DATA/MODEL`` of
``probas_cal``, ``labels_cal``, ``probas_test`` and ``labels_test``; the folder has a table of published results for
each method. Tables of our methods are written to ``--output`` with the same columns (but Kuiper's statistic), as they
come, so that a run that was stopped goes on where it was. Then win rates of all methods are printed.
Needs the package h5py. CalArena's own ``run_benchmark.py`` does the same with ``mixnmatch.experiments.calarena``.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mixnmatch import calibration_error
from mixnmatch.experiments.calarena import CUSTOM_CALIBRATORS, CalArenaCalibrator
from peers.adapters import two_columns
from peers.league import Values, league
from peers.task import scores

# Its log loss replaces smaller probabilities by this one.
FLOOR = float(np.finfo(np.float32).tiny)
METRICS = {"brier": "brier", "logloss": "nll", "ece-15": "ece", "accuracy": "accuracy"}


@dataclass(frozen=True)
class Experiment:
    """A model on a data set: probabilities and labels to calibrate on, and to judge on."""

    dataset: str
    model: str
    probas_cal: np.ndarray
    labels_cal: np.ndarray
    probas_test: np.ndarray
    labels_test: np.ndarray


def experiments(file: Mapping[str, Any]) -> Iterator[Experiment]:
    """Experiments of an open HDF5 file, or of anything that is nested in the same way."""
    for dataset in sorted(file):
        for model in sorted(file[dataset]):
            group = file[dataset][model]
            arrays = [group[key][:] for key in ("probas_cal", "labels_cal", "probas_test", "labels_test")]
            yield Experiment(dataset, model, *arrays)


def measured(name: str, made: CalArenaCalibrator, experiment: Experiment) -> dict[str, Any]:
    """A line of the table of a method, with the columns of CalArena."""
    start = time.perf_counter()
    made.fit(experiment.probas_cal, experiment.labels_cal)
    p = made.predict_proba(experiment.probas_test)
    seconds = time.perf_counter() - start
    before = experiment.probas_test.reshape(len(p), -1)
    winner = (two_columns(before[:, 0]) if before.shape[1] == 1 else before).argmax(axis=1)
    found = scores(p, experiment.labels_test.astype(np.int64), winner, FLOOR)
    about = {"dataset": experiment.dataset, "model": experiment.model, "cal_size": len(experiment.labels_cal),
             "test_size": len(experiment.labels_test)}  # fmt: skip
    if p.shape[1] > 2:
        about["n_classes"] = p.shape[1]
    else:  # its error with two classes is that of the positive class
        found["ece"] = float(calibration_error(p[:, 1], experiment.labels_test, estimator="histogram", bins=15))
    return about | {f"{name}_{theirs}": found[ours] for theirs, ours in METRICS.items()} | {f"{name}_time": seconds}


def run(file: Mapping[str, Any], names: list[str], output: Path) -> None:
    """Write a table for each of our methods; experiments that it has already are left alone."""
    output.mkdir(parents=True, exist_ok=True)
    for name in names:
        path = output / f"{name}.csv"
        done = {(row["dataset"], row["model"]) for row in lines(path)}
        for experiment in experiments(file):
            if (experiment.dataset, experiment.model) in done:
                continue
            row = measured(name, CUSTOM_CALIBRATORS[name](), experiment)
            with path.open("a", newline="", encoding="utf-8") as table:
                writer = csv.DictWriter(table, list(row))
                if table.tell() == 0:
                    writer.writeheader()
                writer.writerow(row)


def lines(path: Path) -> list[dict[str, str]]:
    """Lines of a table, none if it is not there."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def placed(tables: list[Path], metric: str) -> list[tuple[str, float, float, int]]:
    """Method, win rate, mean and number of experiments, best first, over the experiments that all tables have."""
    found: dict[str, dict[str, float | None]] = {}
    for path in tables:
        for row in lines(path):
            value = float(row[f"{path.stem}_{metric}"])
            found.setdefault(f"{row['dataset']}/{row['model']}", {})[path.stem] = None if np.isnan(value) else value
    methods = [path.stem for path in tables]
    common: Values = {key: values for key, values in found.items() if len(values) == len(methods)}
    return [(row.method, row.win_rate, row.mean, len(common)) for row in league(common, methods, methods[0])]


def main() -> None:
    """Run our methods on a file and print where they are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="an HDF5 file of CalArena")
    parser.add_argument("--results", type=Path, help="folder of published results of the same benchmark")
    parser.add_argument("--output", type=Path, default=Path("out/calarena"), help="folder of our results")
    parser.add_argument("--methods", nargs="+", choices=list(CUSTOM_CALIBRATORS), default=["mixnmatch-auto"])
    options = parser.parse_args()
    import h5py

    output = options.output / options.file.stem
    with h5py.File(options.file, "r") as file:
        run(file, options.methods, output)
    print(f"our results are in {output}")
    if options.results:
        tables = [output / f"{name}.csv" for name in options.methods]
        tables += [path for path in sorted(options.results.glob("*.csv")) if path.stem not in CUSTOM_CALIBRATORS]
        for metric in ("logloss", "brier"):
            print(f"by {metric}:")
            for name, rate, mean, n in placed(tables, metric):
                print(f"  {name:<24}{rate:.3f}  mean {mean:.5f} over {n} experiments")


if __name__ == "__main__":
    main()
