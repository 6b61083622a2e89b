"""Estimated class frequencies under label shift: errors of this library, `abstention` and QuaPy on the same samples.

    python benchmarks/label_shift.py FOLDER --shifted FILE.npz --runs RUNS.csv --csv docs/results/label_shift.csv \
        --output docs/results/label_shift.md

FOLDER holds files of scores (`logits` or `probs`, and `labels`), in pairs NAME_val.npz and NAME_test.npz or single ones
that are cut at random. FILE.npz holds `probs_cal`, `labels_cal`, `probs_shifted` and `labels_shifted`. The peers are
optional: pip install quapy abstention.

For each repetition n samples (all there are, if fewer) are drawn without replacement to calibrate with, and class
frequencies from a Dirichlet distribution; n samples of the test set are drawn with replacement in these frequencies.
Error: mean over classes of the squared difference between estimated and true weights, a weight being the frequency of
the class among the drawn samples divided by that in the calibration set.

A method of a peer that fails for some draws is compared on the others.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import mixnmatch as mm

Estimator = Callable[[Any], Any]  # from scores of new samples to priors
Case = tuple[str, int, float]  # file, n, alpha
FILES = (
    "focalcal_cifar10_densenet121",
    "luferrer_psr_cifar10_resnet50",
    "netcal_lenet-5-cifar-10",
    "luferrer_pathmnist_resnet50",
    "labelerrors_imdb",
    "netcal_wideresnet-16-4-cifar-100",
)
ALPHAS, SIZES = (0.1, 1.0, 10.0), (500, 2000, 8000)
MAPS = ("identity", "ts", "bcts", "vector", "svs", "sms", "auto", "bcts-auto")
# The recommended map with the default estimator, and the one that was recommended before.
DEFAULT, BEFORE = "ours: Bayes + bcts-auto", "ours: EM + sms"
# KDEy compares all new samples with all known ones, class by class.
KDEY_TO, KDEY_TO_OF_MANY = 2000, 500


def log_softmax(scores: Any, *, logits: bool) -> Any:
    """Log-probabilities in float64; zeros as the smallest positive probability of the table."""
    u = np.asarray(scores, dtype=np.float64)
    if not logits:
        u = np.log(np.maximum(u, u[u > 0].min()))
    u = u - u.max(axis=1, keepdims=True)
    return u - np.log(np.exp(u).sum(axis=1, keepdims=True))


def read(path: Path) -> tuple[Any, Any]:
    with np.load(path, allow_pickle=False) as file:
        logits = "logits" in file.files
        return log_softmax(file["logits" if logits else "probs"], logits=logits), file["labels"].astype(int)


def pools(folder: Path, name: str) -> tuple[Any, Any, Any, Any]:
    """Scores and labels to calibrate and to test with."""
    for first, second in (("val", "test"), ("val", "tst")):
        pair = [folder / f"{name}_{part}.npz" for part in (first, second)]
        if all(path.exists() for path in pair):
            return (*read(pair[0]), *read(pair[1]))
    x, y = read(folder / f"{name}.npz")
    order = np.random.default_rng(0).permutation(len(y))
    half = len(y) // 2
    return x[order[:half]], y[order[:half]], x[order[half:]], y[order[half:]]


def ours(x: Any, y: Any, maps: tuple[str, ...] = MAPS) -> Iterator[tuple[str, Estimator]]:
    """Maximum likelihood after several maps, and two methods of moments, by this library."""
    fitted = {name: mm.calibrator(name, logits=True).fit(x, y) for name in maps}
    for title, method in (("EM", "em"), ("Bayes", "bayes")):
        for name, each in fitted.items():
            settings = {"method": method, "confidence": None}
            yield (
                f"ours: {title} + {name}",
                lambda new, each=each, settings=settings: mm.selection.estimate_priors(each, new, **settings).priors,
            )
    for method in ("bbse", "rlls") if "bcts" in maps else ():
        settings = {"method": method, "calibration": (x, y)}
        yield (
            f"ours: {method.upper()}",
            lambda new, settings=settings: mm.selection.estimate_priors(fitted["bcts"], new, **settings).priors,
        )


def abstention_methods(x: Any, y: Any) -> Iterator[tuple[str, Estimator]]:
    """`abstention`: EM after each of its calibrators, on calibrated probabilities, and BBSE."""
    from abstention import calibration, label_shift

    n_classes = x.shape[1]
    labels = np.eye(n_classes)[y]
    share = labels.mean(axis=0)
    made = {
        "BCTS": calibration.TempScaling(bias_positions="all"),
        "VS": calibration.VectorScaling(),
        "NBVS": calibration.NoBiasVectorScaling(),
    }
    calibrators: dict[str, Any] = {"none": lambda u: np.exp(u)}
    for name, factory in made.items():
        with suppress(Exception):  # some fits do not converge, which they say by an exception
            calibrators[name] = factory(x, labels)
    for name, calibrate in calibrators.items():
        known = calibrate(x)

        def em(new: Any, calibrate: Any = calibrate, known: Any = known) -> Any:
            adapter = label_shift.EMImbalanceAdapter(max_iterations=1000)
            found = adapter(tofit_initial_posterior_probs=calibrate(new), valid_posterior_probs=known)
            return found.multipliers * known.mean(axis=0)

        yield f"abstention: EM + {name}", em
    for soft in (False, True):
        known = calibrators.get("BCTS", calibrators["none"])(x)

        def bbse(new: Any, soft: bool = soft, known: Any = known) -> Any:
            adapter = label_shift.BBSEImbalanceAdapter(soft=soft)
            calibrate = calibrators.get("BCTS", calibrators["none"])
            return (
                adapter(
                    valid_labels=labels, tofit_initial_posterior_probs=calibrate(new), valid_posterior_probs=known
                ).multipliers
                * share
            )

        yield f"abstention: BBSE {'soft' if soft else 'hard'}", bbse


def quapy_methods(x: Any, y: Any) -> Iterator[tuple[str, Estimator]]:
    """QuaPy: its EMQ with calibration, adjusted counts and KDEy, on the probabilities of the network."""
    import quapy as qp
    from quapy.method.aggregative import ACC, EMQ, PACC, KDEyML
    from sklearn.base import BaseEstimator, ClassifierMixin

    qp.environ["N_JOBS"] = 1
    p = np.exp(x)
    n_classes = p.shape[1]

    class Given(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
        """A fitted classifier whose features are its probabilities."""

        def __init__(self) -> None:
            self.classes_ = np.arange(n_classes)

        def fit(self, X: Any, y: Any) -> Any:
            return self

        def predict_proba(self, X: Any) -> Any:
            return X

    settings = {"fit_classifier": False, "val_split": None}
    made = {f"EMQ + {calib}": EMQ(Given(), calib=calib, exact_train_prev=False, **settings) for calib in ("bcts", "vs")}
    made |= {"ACC": ACC(Given(), **settings), "PACC": PACC(Given(), **settings)}
    if len(y) <= (KDEY_TO if n_classes < 100 else KDEY_TO_OF_MANY):
        made["KDEyML"] = KDEyML(Given(), **settings)
    for name, quantifier in made.items():
        known = p.argmax(axis=1) if name == "ACC" else p
        try:
            quantifier.aggregation_fit(known, y)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {str(error)[:80]!r}", file=sys.stderr)
            continue
        yield (
            f"QuaPy: {name}",
            lambda new, quantifier=quantifier, hard=name == "ACC": quantifier.aggregate(
                np.exp(new).argmax(axis=1) if hard else np.exp(new)
            ),
        )


def peers() -> list[Callable[[Any, Any], Iterator[tuple[str, Estimator]]]]:
    found = []
    for module, methods in (("abstention", abstention_methods), ("quapy", quapy_methods)):
        try:
            __import__(module)
        except ImportError:
            print(f"{module} is not installed and left out", file=sys.stderr)
        else:
            found.append(methods)
    return found


def run(
    folder: Path, name: str, repetitions: int, sizes: tuple[int, ...], maps: tuple[str, ...] | None
) -> Iterator[dict[str, Any]]:
    x, y, x_test, y_test = pools(folder, name)
    n_classes = x.shape[1]
    by_class = [np.flatnonzero(y_test == k) for k in range(n_classes)]
    there = np.array([len(rows) > 0 for rows in by_class])
    methods = [ours, *peers()] if maps is None else [partial(ours, maps=maps)]
    repetitions = repetitions if n_classes < 100 else max(1, repetitions // 4)
    for n in sizes:
        for repetition in range(repetitions):
            rng = np.random.default_rng([n, repetition])
            pick = rng.choice(len(y), min(n, len(y)), replace=False)
            frequency = np.bincount(y[pick], minlength=n_classes) / len(pick)
            if (frequency[there] == 0).any():
                frequency = np.maximum(frequency, 1 / len(pick))  # 100 classes and 500 samples: some have none
            fitted = []
            for library in methods:
                fitted += list(library(x[pick], y[pick]))
            for alpha in ALPHAS:
                priors = np.zeros(n_classes)
                priors[there] = rng.dirichlet(np.full(there.sum(), alpha))
                labels = rng.choice(n_classes, n, p=priors)
                rows = np.array([rng.choice(by_class[label]) for label in labels])
                truth = np.bincount(labels, minlength=n_classes) / n / frequency
                for method, estimate in fitted:
                    start = time.process_time()
                    try:
                        weights = np.asarray(estimate(x_test[rows])) / frequency
                        error = float(np.mean((weights[there] - truth[there]) ** 2))
                    except Exception as problem:
                        print(f"{name} {n} {alpha} {method}: {type(problem).__name__}: {problem}", file=sys.stderr)
                        error = float("nan")
                    seconds = time.process_time() - start
                    yield {
                        "file": name, "n": n, "alpha": alpha, "repetition": repetition, "method": method,
                        "error": f"{error:.6g}", "seconds": f"{seconds:.4f}",
                    }  # fmt: skip


def shifted_accuracy(path: Path) -> list[tuple[str, float, float, float]]:
    """Accuracy before and after adapting, and the estimated frequency of class 3."""
    with np.load(path, allow_pickle=False) as file:
        known, labels, new, truth = (file[k] for k in ("probs_cal", "labels_cal", "probs_shifted", "labels_shifted"))
    found = []
    for name in MAPS:
        fitted = mm.calibrator(name).fit(known, labels)
        adapted = fitted.adapt(unlabelled=new)
        accuracy = [float((each.predict(new) == truth).mean()) for each in (fitted, adapted)]
        found.append((name, *accuracy, float(mm.selection.estimate_priors(fitted, new).priors[3])))
    return found


def runs_of(rows: list[dict[str, Any]]) -> dict[Case, dict[str, dict[int, float]]]:
    """Errors by setting (file, n, alpha), method and repetition; failures are left out."""
    found: dict[Case, dict[str, dict[int, float]]] = {}
    for row in rows:
        if np.isfinite(error := float(row["error"])):
            case = (row["file"], int(row["n"]), float(row["alpha"]))
            found.setdefault(case, {}).setdefault(row["method"], {})[int(row["repetition"])] = error
    return found


def add_stored(runs: dict[Case, dict[str, dict[int, float]]], path: Path) -> int:
    """Take means of an earlier run with the same draws for methods that were not run again; how many."""
    added = 0
    for row in csv.DictReader(path.open()):
        errors = runs.get((row["file"], int(row["n"]), float(row["alpha"])), {})
        draws = errors.get(DEFAULT, {})
        mean = float(row["mean_error"])
        if draws and row["method"] not in errors and int(row["repetitions"]) == len(draws) and np.isfinite(mean):
            errors[row["method"]] = dict.fromkeys(draws, mean)
            added += 1
    return added


@dataclass(frozen=True)
class Match:
    """One of our methods against the peer that leaves it the least, on the draws that the peer could handle."""

    peer: str
    theirs: float
    ratio: float
    standard_errors: float  # of the paired difference, ours minus theirs; NaN where only the peer's mean is known
    draws: int

    @classmethod
    def of(cls, errors: dict[str, dict[int, float]], method: str) -> Match:
        """The match with the largest ratio of errors."""
        found = []
        for peer, runs in errors.items():
            if peer.startswith("ours"):
                continue
            a, b = (np.array([errors[each][k] for k in runs]) for each in (method, peer))
            known = len(a) > 1 and np.ptp(b) > 0
            spread = max(float(np.std(a - b, ddof=1) / np.sqrt(len(a))), 1e-300) if known else np.nan
            ratio = float(a.mean() / b.mean())
            found.append(cls(peer, float(b.mean()), ratio, float((a - b).mean()) / spread, len(a)))
        return max(found, key=lambda match: match.ratio)


def page(runs: dict[Case, dict[str, dict[int, float]]], shifted: list[tuple[str, float, float, float]]) -> str:
    cases = sorted(runs, key=lambda case: (FILES.index(case[0]), case[1:]))
    lines = [*counts(runs), "", *overall(runs, cases), "", "## By file, n and alpha", ""]
    lines += [
        "Mean squared error of weights. The best peer is chosen in hindsight, setting by setting. Ratio: ours / peer.",
        "",
        "| file | n | alpha | " + " | ".join((BEFORE, DEFAULT)) + " | best of peers | ratio |",
        "|---" * 7 + "|",
    ]
    for case in cases:
        match = Match.of(runs[case], DEFAULT)
        cells = [f"{np.mean(list(runs[case][method].values())):.4g}" for method in (BEFORE, DEFAULT)]
        draws = len(runs[case][DEFAULT])
        some = "" if match.draws == draws else f", {match.draws} of {draws} draws"
        cells += [f"{match.theirs:.4g} ({match.peer}{some})", f"{match.ratio:.2f}"]
        lines.append(f"| {case[0]} | {case[1]} | {case[2]:g} | " + " | ".join(cells) + " |")
    if shifted:
        lines += ["", "## CIFAR-10 with 968 of 1000 samples of one class", ""]
        lines += ["| map | accuracy | after adapting | estimated frequency (true: 0.968) |", "|---|---|---|---|"]
        lines += [f"| {name} | {a:.3f} | {b:.3f} | {prior:.3f} |" for name, a, b, prior in shifted]
    return "\n".join(lines) + "\n"


def counts(runs: dict[Case, dict[str, dict[int, float]]]) -> list[str]:
    """In how many settings each fixed method of ours is at most the best peer, and how often clearly worse."""
    lines = [f"## One fixed method of ours against the best of the peers in each of {len(runs)} settings", ""]
    lines += ["| method | at most the best peer | better by 2 standard errors | worse by 2 | median ratio |"]
    lines += ["|---" * 5 + "|"]
    mine = list(dict.fromkeys(m for errors in runs.values() for m in errors if m.startswith("ours")))
    matches = {method: [Match.of(errors, method) for errors in runs.values() if method in errors] for method in mine}
    best = [
        min((Match.of(errors, m) for m in mine if m in errors), key=lambda each: each.ratio) for errors in runs.values()
    ]
    matches["ours: the best in each setting, in hindsight"] = best
    for method, found in matches.items():
        wins = sum(match.ratio <= 1 for match in found)
        better = sum(match.standard_errors <= -2 for match in found)
        worse = sum(match.standard_errors >= 2 for match in found)
        median = np.median([match.ratio for match in found])
        lines.append(f"| {method} | {wins} of {len(found)} | {better} | {worse} | {median:.2f} |")
    return lines


def overall(runs: dict[Case, dict[str, dict[int, float]]], cases: list[Case]) -> list[str]:
    """Errors relative to one method and mean ranks, over the settings and draws that all methods were run in."""
    methods = list(dict.fromkeys(m for errors in runs.values() for m in errors))
    full = {case: {m for m in methods if runs[case].get(m, {}).keys() == runs[case][DEFAULT].keys()} for case in cases}
    always = [m for m in methods if sum(m in full[case] for case in cases) >= 0.8 * len(cases)]
    common = [case for case in cases if all(m in full[case] for m in always)]
    means = {(case, m): np.mean(list(runs[case][m].values())) for case in common for m in always}
    lines = [f"## All methods, in the {len(common)} settings in which these methods never failed", ""]
    lines += [f"| method | error relative to {BEFORE} (geometric mean) | mean rank |", "|---|---|---|"]
    rank = {m: np.mean([sum(means[c, o] < means[c, m] for o in always) + 1 for c in common]) for m in always}
    for method in sorted(always, key=lambda m: rank[m]):
        ratio = np.exp(np.mean([np.log(means[case, method] / means[case, BEFORE]) for case in common]))
        lines.append(f"| {method} | {ratio:.2f} | {rank[method]:.1f} |")
    return lines


def write_means(path: Path, found: dict[Case, dict[str, dict[int, float]]]) -> None:
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["file", "n", "alpha", "method", "mean_error", "standard_error", "repetitions"])
        for (name, n, alpha), errors in found.items():
            for method, runs in errors.items():
                values = np.array(list(runs.values()))
                measured = len(values) > 1 and np.ptp(values) > 0
                spread = np.std(values, ddof=1) / np.sqrt(len(values)) if measured else np.nan
                writer.writerow([name, n, f"{alpha:g}", method, f"{values.mean():.5g}", f"{spread:.3g}", len(values)])


def versions() -> str:
    found = []
    for name in ("abstention", "quapy"):
        with suppress(Exception):
            found.append(f"{name} {version(name)}")
    return ", ".join([f"mixnmatch {mm.__version__}", *found])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", nargs="*", default=FILES)
    parser.add_argument("--sizes", nargs="*", type=int, default=SIZES)
    parser.add_argument("--repetitions", type=int, default=20, help="A quarter of it from 100 classes on.")
    parser.add_argument("--maps", nargs="*", help="Only this library, with these maps; samples are the same.")
    parser.add_argument("--stored", type=Path, help="CSV of means of an earlier run, for methods not run again.")
    parser.add_argument("--shifted", type=Path)
    parser.add_argument("--runs", type=Path, required=True, help="CSV of all runs; those already there are kept.")
    parser.add_argument("--csv", type=Path, help="CSV of the means.")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--text", type=Path, help="Text to put before the tables.")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    fields = ["file", "n", "alpha", "repetition", "method", "error", "seconds"]
    rows = list(csv.DictReader(options.runs.open())) if options.runs.exists() else []
    done = {(row["file"], int(row["n"])) for row in rows}
    with options.runs.open("a", newline="") as stream:
        writer = csv.DictWriter(stream, fields, lineterminator="\n")
        if not rows:
            writer.writeheader()
        for name in options.files:
            sizes = tuple(n for n in options.sizes if (name, n) not in done)
            for row in run(options.folder, name, options.repetitions, sizes, options.maps) if sizes else ():
                writer.writerow(row)
                rows.append({key: str(value) for key, value in row.items()})
                stream.flush()
    runs = runs_of(rows)
    if options.stored:
        print(f"{add_stored(runs, options.stored)} means are of an earlier run", file=sys.stderr)
    if options.csv:
        write_means(options.csv, runs)
    if options.output:
        shifted = shifted_accuracy(options.shifted) if options.shifted else []
        before = options.text.read_text() if options.text else "# Label shift\n"
        options.output.write_text(f"{before}\nVersions: {versions()}.\n\n{page(runs, shifted)}")


if __name__ == "__main__":
    main()
