"""Every short name on outputs for CIFAR-100, and the differences that the paper leads one to expect.

Run `python benchmarks/cifar100_table.py FOLDER`. FOLDER holds .npz files of `logits` or `probs`, and `labels`, with
`cifar100` or `cifar-100` in their names. Of a pair `X_val.npz`, `X_test.npz` the first is the calibration set and the
second is evaluated; other files are cut at random, several times, into 5000 rows to fit on and the rest.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
from scipy.stats import t as student

import mixnmatch as mm
from mixnmatch.evaluation.error import calibration_error
from mixnmatch.evaluation.gain import calibration_gain
from mixnmatch.evaluation.scores import accuracy, brier_score, log_loss

CALIBRATION_ROWS = 5000
# Names that take long to fit see fewer of the random halves.
SLOW = {"matrix", "dirichlet", "auto"}
# What is above this line of a page is written by hand, what is below it by this program.
MARK = "<!-- From here on written by benchmarks/cifar100_table.py -->"

Build = Callable[[bool], mm.maps.CalibrationMap]


def irm() -> mm.maps.CalibrationMap:
    return mm.Pooled(mm.Isotonic(strict=True))


def sms(logits: bool) -> mm.maps.CalibrationMap:
    return mm.maps.StructuredMatrixScaling(logits=logits)


def methods() -> dict[str, Build]:
    """Short names of the registry, and the compositions whose cross-fitting is measured."""
    found: dict[str, Build] = {
        line.name: lambda logits, name=line.name: mm.calibrator(name, logits=logits)  # type: ignore[misc]
        for line in mm.calibrators()
    }
    ets = mm.EnsembleTemperatureScaling
    found["sms >> irm"] = lambda logits: sms(logits) >> irm()
    found["sms >> irm, cv=5"] = lambda logits: mm.Composition(sms(logits), irm(), cv=5)
    found["sms >> ets >> irm"] = lambda logits: sms(logits) >> (ets() >> irm())
    found["sms >> ets >> irm, cv=5"] = lambda logits: mm.Composition(sms(logits), ets() >> irm(), cv=5)
    return found


# What is said to be better, than what, and where that is said.
CLAIMS = (
    ("irm", "irova", "IRM better than IROvA"),
    ("irova-ts", "irova", "composition with TS helps IROvA"),
    ("irm-ts", "irm", "composition with TS helps IRM"),
    ("irova-ets", "irova-ts", "ETS for TS helps IROvA-TS"),
    ("irm-ets", "irm-ts", "ETS for TS helps IRM-TS"),
    ("irm-ets", "irova-ets", "IRM-ETS better than IROvA-ETS"),
    ("ets", "ts", "ETS better than TS"),
    ("irm-normalised", "irm", "normalisation inside the loss helps IRM"),
    ("sms >> irm, cv=5", "sms >> irm", "cross-fitting helps SMS >> IRM"),
    ("sms >> ets >> irm, cv=5", "sms >> ets >> irm", "cross-fitting helps SMS >> ETS >> IRM"),
    ("sms >> irm, cv=5", "sms", "IRM after SMS (cross-fitted) helps SMS"),
)


@dataclass(frozen=True)
class Row:
    """What one map did on one split of one file."""

    file: str
    split: int
    name: str
    accuracy: float
    nll: float
    brier: float
    gain: float
    ece: float
    changed: int
    preserving: bool
    seconds: float


@dataclass(frozen=True)
class Split:
    """A calibration set and a test set."""

    fit: np.ndarray
    fit_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray


def read(path: Path) -> tuple[np.ndarray, np.ndarray, bool]:
    with np.load(path) as data:
        logits = "logits" in data.files
        return data["logits" if logits else "probs"], data["labels"].astype(int), logits


def splits(path: Path, halves: int) -> Iterator[Split]:
    """The val/test pair that a file belongs to, or random halves of the file."""
    scores, labels, _ = read(path)
    if path.stem.endswith("_val"):
        test, test_labels, _ = read(path.with_name(path.name.replace("_val", "_test")))
        yield Split(scores, labels, test, test_labels)
        return
    for seed in range(halves):
        order = np.random.default_rng(seed).permutation(len(labels))
        fit, rest = np.split(order, [min(CALIBRATION_ROWS, len(order) // 2)])
        yield Split(scores[fit], labels[fit], scores[rest], labels[rest])


def measure(name: str, build: Build, file: str, number: int, split: Split, logits: bool) -> Row:
    # Processor seconds of all threads: what else the machine does at the time matters less to them.
    start = time.process_time()
    fitted = build(logits).fit(split.fit, split.fit_labels)
    seconds = time.process_time() - start
    p, y = fitted.predict_proba(split.test), split.test_labels
    return Row(
        file=file,
        split=number,
        name=name,
        accuracy=float(accuracy(p, y)),
        nll=float(log_loss(p, y)),
        brier=float(brier_score(p, y)),
        gain=float(calibration_gain(split.test, p, y, logits=logits)),
        ece=float(calibration_error(p, y)),
        changed=int((p.argmax(axis=1) != split.test.argmax(axis=1)).sum()),
        preserving=bool(fitted.accuracy_preserving),
        seconds=seconds,
    )


def measure_all(folder: Path, halves: int, slow_halves: int, csv_path: Path | None) -> list[Row]:
    paths = sorted(path for path in folder.glob("*.npz") if "cifar100" in path.name or "cifar-100" in path.name)
    rows: list[Row] = []
    for path in paths:
        if path.stem.endswith("_test"):
            continue
        logits, file = read(path)[2], path.stem.removesuffix("_val")
        for number, split in enumerate(splits(path, halves)):
            for name, build in methods().items():
                if name in SLOW and number >= slow_halves:
                    continue
                rows.append(measure(name, build, file, number, split, logits))
                print(f"{file} {number} {name}: {rows[-1].seconds:.2f} s", file=sys.stderr, flush=True)
            if csv_path is not None:
                write_csv(rows, csv_path)
    return rows


def write_csv(rows: list[Row], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([field.name for field in fields(Row)])
        for row in rows:
            writer.writerow([f"{v:.8g}" if isinstance(v, float) else v for v in asdict(row).values()])


def read_csv(path: Path) -> list[Row]:
    with path.open(newline="") as stream:
        return [
            Row(
                file=line["file"],
                split=int(line["split"]),
                name=line["name"],
                changed=int(line["changed"]),
                preserving=line["preserving"] == "True",
                **{key: float(line[key]) for key in ("accuracy", "nll", "brier", "gain", "ece", "seconds")},
            )
            for line in csv.DictReader(stream)
        ]


NUMBERS = ("accuracy", "nll", "brier", "gain", "ece", "changed", "seconds")


def means(rows: list[Row]) -> dict[str, dict[str, float]]:
    """Mean of every number over the splits of a file, for each name; 'splits' says over how many.

    Splits differ more than maps do. So a map that has seen only some of them gets what it is away from temperature
    scaling on these, added to what temperature scaling has on all.
    """
    grouped: dict[str, dict[int, Row]] = defaultdict(dict)
    for row in rows:
        grouped[row.name][row.split] = row
    every = grouped["ts"]
    found = {}
    for name, part in grouped.items():
        values = {}
        for key in NUMBERS:
            mean = np.mean([getattr(row, key) for row in part.values()])
            if len(part) < len(every) and key not in ("changed", "seconds"):
                mean += np.mean([getattr(row, key) for row in every.values()])
                mean -= np.mean([getattr(every[split], key) for split in part])
            values[key] = float(mean)
        found[name] = values | {"splits": float(len(part))}
    return found


# Column: title, key, factor, format, and whether the largest (1) or the smallest (-1) number is the best.
COLUMNS = (
    ("accuracy %", "accuracy", 100, ".2f", 1),
    ("predictions changed", "changed", 1, ".0f", 0),
    ("NLL", "nll", 1, ".4f", -1),
    ("Brier", "brier", 1, ".4f", -1),
    ("gain", "gain", 1, "+.4f", 1),
    ("top-label ECE %", "ece", 100, ".2f", -1),
    ("fit s", "seconds", 1, ".2f", 0),
)


def table(numbers: dict[str, dict[str, float]], most: float) -> list[str]:
    """A Markdown table; the best numbers of a column are bold, names with fewer splits are starred."""
    lines = ["| map | " + " | ".join(title for title, *_ in COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    shown = {
        name: [format(round(factor * values[key], 6) + 0.0, form) for _, key, factor, form, _ in COLUMNS]
        for name, values in numbers.items()
    }
    for k, (*_, sign) in enumerate(COLUMNS):
        if sign:  # uniform has no part in it: it is calibrated and knows nothing
            best = max((cells[k] for name, cells in shown.items() if name != "uniform"), key=lambda c: sign * float(c))
            for name, cells in shown.items():
                cells[k] = f"**{best}**" if cells[k] == best and name != "uniform" else cells[k]
    for name, cells in shown.items():
        star = "\\*" if numbers[name]["splits"] < most else ""
        lines.append(f"| {name}{star} | " + " | ".join(cells) + " |")
    return lines


def averaged(by_file: dict[str, dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Mean over files of the means over splits; a file counts the same whatever the number of its splits."""
    found = list(by_file.values())
    return {
        name: {key: float(np.mean([numbers[name][key] for numbers in found])) for key in found[0][name]}
        for name in found[0]
        if all(name in numbers for numbers in found)
    }


def differences(rows: list[Row], key: str, name: str, other: str) -> dict[str, np.ndarray]:
    """Of each file, the differences on the splits that both maps have seen."""
    value = {(row.file, row.split, row.name): getattr(row, key) for row in rows}
    found: dict[str, list[float]] = defaultdict(list)
    for file, split, which in value:
        if which == name and (file, split, other) in value:
            found[file].append(value[file, split, name] - value[file, split, other])
    return {file: np.array(part) for file, part in found.items()}


def interval(parts: dict[str, np.ndarray]) -> tuple[float, float]:
    """Mean over files of the mean difference and half its 95% interval; files are the units (Student's t)."""
    each = np.array([part.mean() for part in parts.values()])
    if len(each) < 2:
        return float(each.mean()), math.nan
    width = student.ppf(0.975, len(each) - 1) * each.std(ddof=1) / math.sqrt(len(each))
    return float(each.mean()), float(width)


def claim_lines(rows: list[Row]) -> list[str]:
    lines = [
        "| expectation | maps | NLL | Brier | ECE | files with lower NLL, Brier, ECE |",
        "|---|---|---|---|---|---|",
    ]
    names = {row.name for row in rows}
    for name, other, text in CLAIMS:
        if not {name, other} <= names:
            continue
        cells, lower = [], []
        for key in ("nll", "brier", "ece"):
            parts = differences(rows, key, name, other)
            mean, width = interval(parts)
            bold = "**" if abs(mean) > width else ""
            cells.append(f"{bold}{1e3 * mean:+.2f} ± {1e3 * width:.2f}{bold}")
            lower.append(f"{sum(part.mean() < 0 for part in parts.values())}/{len(parts)}")
        maps = f"`{name}` against `{other}`"
        lines.append(f"| {text} | {maps} | " + " | ".join(cells) + f" | {', '.join(lower)} |")
    return lines


def file_lines(rows: list[Row], key: str) -> list[str]:
    """Mean differences of each file, with the 95% interval over its random halves."""
    files = list(dict.fromkeys(row.file for row in rows))
    lines = ["| maps | " + " | ".join(files) + " |", "|---" * (len(files) + 1) + "|"]
    for name, other, _ in CLAIMS:
        cells = []
        for file in files:
            part = differences(rows, key, name, other).get(file)
            if part is None:
                cells.append("")
            elif len(part) == 1:
                cells.append(f"{1e3 * part[0]:+.2f}")
            else:
                width = student.ppf(0.975, len(part) - 1) * part.std(ddof=1) / math.sqrt(len(part))
                cells.append(f"{1e3 * part.mean():+.2f} ± {1e3 * width:.2f}")
        lines.append(f"| `{name}` − `{other}` | " + " | ".join(cells) + " |")
    return lines


def preserved_line(rows: list[Row]) -> str:
    kept = [row for row in rows if row.preserving]
    names = list(dict.fromkeys(row.name for row in kept))
    return (
        f"Accuracy-preserving maps ({', '.join(f'`{name}`' for name in names)}) changed "
        f"**{sum(row.changed for row in kept)}** predictions in {len(kept)} fits."
    )


def page(rows: list[Row]) -> str:
    files = list(dict.fromkeys(row.file for row in rows))
    by_file = {file: means([row for row in rows if row.file == file]) for file in files}
    most = {file: max(v["splits"] for v in numbers.values()) for file, numbers in by_file.items()}
    lines = [
        MARK,
        "",
        "## Averages over files",
        "",
        "Every file counts the same. Gain: calibration gain, the decrease of the Brier score. ECE: residual kernel",
        "estimate, the default. Fit: processor seconds of one fit. The best of a column is bold, `uniform` left aside.",
        "\\*: slow to fit, only on the first halves of files that are halved; the numbers are what `ts` has on all of",
        "them plus the difference from `ts` on those.",
        "",
        *table(averaged(by_file), float(np.mean(list(most.values())))),
        "",
        "## Paired differences",
        "",
        "First map minus second, in thousandths: negative is better for the first. Mean over files of the mean over",
        "splits, ± the half width of a 95% interval in which files are the units (Student's t). Bold: away from 0.",
        "",
        *claim_lines(rows),
        "",
        preserved_line(rows),
        "",
    ]
    for key, title in (("nll", "NLL"), ("brier", "Brier score"), ("ece", "Top-label ECE")):
        lines += [f"### {title}, file by file", "", *file_lines(rows, key), ""]
    lines += [
        "The intervals are over random halves of one file: they overlap, so take them as a hint of the spread.",
        "",
    ]
    for file in files:
        splits_seen = int(most[file])
        how = "fitted on val, evaluated on test" if splits_seen == 1 else f"mean of {splits_seen} random halves"
        lines += [f"## {file}", "", f"{how[0].upper()}{how[1:]}.", "", *table(by_file[file], most[file]), ""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--output", type=Path, help="Markdown page; what is written by hand in it stays")
    parser.add_argument("--csv", type=Path, help="file for the numbers of every fit")
    parser.add_argument("--halves", type=int, default=10, help="random halves of a file without a pair")
    parser.add_argument("--slow-halves", type=int, default=2, help="halves for maps that are slow to fit")
    parser.add_argument("--tables-only", action="store_true", help="make the page from the numbers in --csv again")
    options = parser.parse_args()
    if options.tables_only:
        rows = read_csv(options.csv)
    else:
        rows = measure_all(options.folder, options.halves, options.slow_halves, options.csv)
    text = page(rows)
    print(text)
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        old = options.output.read_text() if options.output.exists() else "# Calibration maps on CIFAR-100\n\n"
        options.output.write_text(old.split(MARK)[0] + text)


if __name__ == "__main__":
    main()
