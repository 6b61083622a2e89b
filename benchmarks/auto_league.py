"""League table of calibration methods on a folder of real classifier outputs.

    python benchmarks/auto_league.py FOLDER [--csv league.csv] [--cache DIR] [--rows 5000] [--seeds 1]

FOLDER holds .npz files with ``logits`` or ``probs``, and ``labels``. Pairs NAME_val.npz and NAME_test.npz (or _tst) are
fitted on the first and evaluated on the second; other files are halved at random. The win rate of a method is the share
of the other methods that it beats within a data set (ties count half), averaged over data sets. Families are told apart
by the first word of a file's name; the table is printed for all of them and for either half of them.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from mixnmatch import calibrator
from mixnmatch.maps.auto import Auto
from mixnmatch.selection.text import table

# Halves by source, to see whether the ranking depends on the files. The rules of auto (candidates, pull) were chosen
# while looking at files of both halves, so neither is unseen data for them.
FIRST_HALF = ("focalcal", "luferrer", "sctl", "vlm")
PRESERVING = ("identity", "ts", "ets", "irm", "irm-ts", "irm-ets", "iop")
MATRIX_TO = 200


def methods(logits: bool, n_classes: int) -> dict[str, Any]:
    names = ["identity", "ts", "ets", "irm", "irm-ts", "irm-ets", "iop", "beta", "irova", "irova-ts", "irova-ets"]
    names += ["vector", "svs"]
    if n_classes <= MATRIX_TO:
        names.append("sms")
    made = {name: calibrator(name, logits=logits) for name in names}
    if n_classes <= MATRIX_TO:
        made["sms-ets-irm"] = calibrator("sms", logits=logits) >> calibrator("irm-ets")
    made["auto"] = Auto(logits=logits)
    made["auto (brier)"] = Auto(logits=logits, scoring="brier")
    made["auto (keeps accuracy)"] = Auto(logits=logits, accuracy_preserving=True)
    made["auto (keeps accuracy, brier)"] = Auto(logits=logits, accuracy_preserving=True, scoring="brier")
    return made


def read(path: Path) -> tuple[np.ndarray, np.ndarray, bool]:
    with np.load(path) as archive:
        logits = "logits" in archive.files
        return archive["logits" if logits else "probs"], archive["labels"], logits


def tasks(folder: Path, seeds: int) -> list[tuple[str, Path, Path | None, int]]:
    found: list[tuple[str, Path, Path | None, int]] = []
    for path in sorted(folder.glob("*.npz")):
        stem = path.stem
        if stem.endswith(("_test", "_tst")):
            continue
        if stem.endswith("_val"):
            pair = next(p for end in ("_test", "_tst") if (p := folder / f"{stem[:-4]}{end}.npz").exists())
            found.append((stem[:-4], path, pair, 0))
        else:
            found += [(f"{stem}#{seed}", path, None, seed) for seed in range(seeds)]
    return found


def split(path: Path, pair: Path | None, seed: int, rows: int) -> tuple[Any, ...]:
    scores, labels, logits = read(path)
    if pair is not None:
        other, other_labels, _ = read(pair)
        return scores[:rows], labels[:rows], other, other_labels, logits
    order = np.random.default_rng(seed).permutation(len(labels))
    size = min(rows, len(labels) // 2)
    fit, rest = order[:size], order[size : size + 10_000]
    return scores[fit], labels[fit], scores[rest], labels[rest], logits


def losses(p: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    index = np.arange(len(y))
    p = p.astype(np.float64)
    nll = -np.log(np.maximum(p[index, y], 1e-37)).mean()
    brier = (np.square(p).sum(axis=1) - 2 * p[index, y] + 1).mean()
    return float(nll), float(brier), float((p.argmax(axis=1) == y).mean())


def run(name: str, path: Path, pair: Path | None, seed: int, rows: int, cache: Path | None) -> dict[str, list[float]]:
    kept = None if cache is None else cache / f"{name}-{rows}.json"
    results: dict[str, list[float]] = json.loads(kept.read_text()) if kept is not None and kept.exists() else {}
    x, y, x_new, y_new, logits = split(path, pair, seed, rows)
    for method, calibration in methods(logits, x.shape[1]).items():
        if method in results:
            continue
        began = time.perf_counter()
        try:
            calibration.fit(x, y)
        except ValueError as error:
            print(f"{name}: {method} failed: {error}", flush=True)
            continue
        seconds = time.perf_counter() - began
        results[method] = [*losses(calibration.predict_proba(x_new), y_new), seconds]
        if kept is not None:
            kept.write_text(json.dumps(results))
    return results


def win_rates(results: dict[str, dict[str, list[float]]], field: list[str], measure: int) -> dict[str, float]:
    rates: dict[str, list[float]] = {method: [] for method in field}
    for found in results.values():
        value = {method: round(found[method][measure], 12) for method in field if method in found}
        for method, own in value.items():
            others = [other for name, other in value.items() if name != method]
            rates[method].append(float(np.mean([(own < other) + 0.5 * (own == other) for other in others])))
    return {method: float(np.mean(rate)) for method, rate in rates.items() if rate}


def league(results: dict[str, dict[str, list[float]]], field: list[str], measure: int, against: str) -> list[list[Any]]:
    from scipy.stats import t

    rates = win_rates(results, field, measure)
    lines = []
    for method in sorted(rates, key=lambda name: -rates[name]):
        both = [found for found in results.values() if method in found and against in found]
        difference = np.array([found[method][measure] - found[against][measure] for found in both])
        reach = 0.0
        if len(difference) > 1:
            reach = t.ppf(0.975, len(difference) - 1) * difference.std(ddof=1) / np.sqrt(len(difference))
        mean = float(np.mean([found[method][measure] for found in results.values() if method in found]))
        seconds = float(np.mean([found[method][3] for found in results.values() if method in found]))
        below = float(np.mean((difference < 0) + 0.5 * (difference == 0)))
        middle = float(difference.mean())
        lines.append([method, rates[method], mean, middle, middle - reach, middle + reach, below, seconds])
    return lines


def show(title: str, lines: list[list[Any]], against: str) -> None:
    header = ["method", "win rate", "mean", f"minus {against}", "95% interval", f"better than {against}", "seconds"]
    rows = [
        [m, f"{w:.3f}", f"{v:.5f}", f"{d:+.5f}", f"{a:+.5f} {b:+.5f}", f"{s:.2f}", f"{c:.1f}"]
        for m, w, v, d, a, b, s, c in lines
    ]
    print(f"\n{title}\n{table(header, rows)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--cache", type=Path, help="folder that keeps results between runs")
    parser.add_argument("--rows", type=int, default=5000, help="calibration rows, at most")
    parser.add_argument("--seeds", type=int, default=1, help="splits of each file that is not a pair")
    parser.add_argument("--classes", type=int, nargs=2, default=(2, 1000), help="fewest and most classes of a file")
    given = parser.parse_args()
    if given.cache is not None:
        given.cache.mkdir(parents=True, exist_ok=True)
    results = {}
    for name, path, pair, seed in tasks(given.folder, given.seeds):
        if not given.classes[0] <= read(path)[0].shape[1] <= given.classes[1]:
            continue
        results[name] = run(name, path, pair, seed, given.rows, given.cache)
        print(f"{name}: {sum(found[3] for found in results[name].values()):.0f} s", flush=True)
    report(results, given.csv)


def report(results: dict[str, dict[str, list[float]]], path: Path | None) -> None:
    halves = {
        "all families": results,
        "first half of the families": {k: v for k, v in results.items() if k.startswith(FIRST_HALF)},
        "other half of the families": {k: v for k, v in results.items() if not k.startswith(FIRST_HALF)},
    }
    everything = list(dict.fromkeys(method for found in results.values() for method in found))
    others = [method for method in everything if not method.startswith("auto")]
    written = []
    for which, part in halves.items():
        if not part:
            continue
        for measure, label in ((0, "NLL"), (1, "Brier")):
            for field, against, kind in (
                ([*others, "auto"], "sms", "all, auto by log loss"),
                ([*others, "auto (brier)"], "sms", "all, auto by squared error"),
                ([*PRESERVING, "auto (keeps accuracy)"], "iop", "accuracy-preserving, auto by log loss"),
                ([*PRESERVING, "auto (keeps accuracy, brier)"], "iop", "accuracy-preserving, auto by squared error"),
            ):
                lines = league(part, field, measure, against)
                show(f"{label}, {which} ({len(part)} data sets), {kind}", lines, against)
                written += [[label, which, kind, *line] for line in lines]
    if path is not None:
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            head = ["score", "families", "field", "method", "win_rate", "mean", "difference", "low", "high"]
            writer.writerow([*head, "share_better", "seconds"])
            writer.writerows(written)


if __name__ == "__main__":
    main()
