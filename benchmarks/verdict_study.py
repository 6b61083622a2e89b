"""How good is the verdict? Prints what the rule of ``mixnmatch.selection.verdict`` was chosen by.

Four tables:

1. how often a method that is as good as all others is called significantly worse than the best;
2. held-out log loss of the method chosen by several rules, beside single choices, the identity and the best choice;
3. how optimistic the gain of the chosen method is, and the nested estimate;
4. what to do with very few samples.

The rules were chosen on simulated scores and on every other file of ``--logits``; the remaining files judge them.
``--cache`` keeps the losses of finished problems, which take most of the time::

    python benchmarks/verdict_study.py --logits DIR --cache DIR --repetitions 2
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mixnmatch.maps.temperature import TemperatureScaling
from mixnmatch.selection.comparison import compare
from mixnmatch.selection.methods import simplicity
from mixnmatch.selection.ties import CROSS_VALIDATED, near_best, select, tied_with_best

Floats = NDArray[np.float64]
SIZES = (32, 100, 300, 1000)
HELD_OUT = 2500
KINDS = {
    2: ("calibrated", "overconfident", "rare", "rare-undersampled", "curved"),
    3: ("calibrated", "overconfident", "underconfident", "biased", "curved"),
    10: ("calibrated", "overconfident", "underconfident", "biased", "curved"),
}
# A difference in held-out log loss that counts as harm, or as a better choice.
MATTERS = 1e-3


@dataclass(frozen=True)
class Record:
    """Losses of the default methods on one problem: for each sample by cross-validation, and the held-out means."""

    tag: str
    n: int
    names: list[str]
    nll: Floats
    brier: Floats
    fold: NDArray[np.intp]
    held_out: Floats
    held_out_brier: Floats
    counts: Floats

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.counts)

    def held(self, name: str) -> float:
        """Held-out log loss of a method that was fitted on all samples."""
        return float(self.held_out[self.names.index(name)])

    def usable(self, rows: NDArray[np.bool_] | slice = slice(None)) -> tuple[Floats, list[str]]:
        """Log losses and names of the methods with finite losses, without the identity."""
        kept = [k for k, name in enumerate(self.names) if name != "identity" and np.isfinite(self.nll[:, k]).all()]
        return self.nll[rows][:, kept], [self.names[k] for k in kept]


def simulate(kind: str, n_classes: int, n: int, rng: np.random.Generator) -> tuple[Floats, NDArray[np.intp]]:
    """Logits whose true map is known by construction, and labels."""
    if n_classes == 2:
        z = rng.normal(size=n) * 2.0 + (-3.0 if "rare" in kind else 0.0)
        y = (rng.random(n) < 1 / (1 + np.exp(-z))).astype(np.intp)
        changed = {"overconfident": 2.5 * z, "rare-undersampled": z + 3.0, "curved": np.sinh(z)}.get(kind, z)
        return np.stack([-changed / 2, changed / 2], axis=1), y
    z = rng.normal(size=(n, n_classes)) * 2.0
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    y = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(max=n_classes - 1)
    changed = {
        "calibrated": z,
        "overconfident": 2.5 * z,
        "underconfident": 0.5 * z,
        "biased": 2 * z + np.linspace(-1.5, 1.5, n_classes),
        "curved": np.log(np.maximum(p**3, 1e-12) + 0.02),
    }[kind]
    return changed, y


def measure(tag: str, calibration: tuple, held_out: tuple, logits: bool, seed: int) -> Record | None:
    """Cross-validate the main methods, whatever the number of samples, and fit them for the held-out set."""
    from mixnmatch.selection.methods import MANY_CLASSES, MATRIX_TO, TWO_CLASSES

    scores, labels = calibration
    if len(np.unique(labels)) < 2:
        return None
    n_classes = scores.shape[1]
    methods = [
        name for name in (TWO_CLASSES if n_classes == 2 else MANY_CLASSES) if name != "sms" or n_classes <= MATRIX_TO
    ]
    settings = {"methods": methods, "logits": logits, "random_state": seed}
    crossed = compare(scores, labels, **settings).losses
    held = compare(scores, labels, evaluation=held_out, **settings).losses
    if crossed is None or held is None or set(crossed.names) != set(held.names):
        return None
    order = [held.names.index(name) for name in crossed.names]
    return Record(
        tag,
        len(labels),
        list(crossed.names),
        crossed.nll,
        crossed.brier,
        crossed.fold,
        held.nll[:, order].mean(axis=0),
        held.brier[:, order].mean(axis=0),
        crossed.class_weights,
    )


def problems(logits: Path | None, sizes: tuple[int, ...], repetitions: int) -> Iterator[tuple[str, int, int, Callable]]:
    """Tag, size, repetition, and a function that measures the problem."""
    simulated = [(kind, n_classes) for n_classes, kinds in KINDS.items() for kind in kinds]
    files = [] if logits is None else [p for p in sorted(logits.glob("*.npz")) if not p.stem.endswith("_val")]
    for repetition in range(repetitions):
        for n in sizes:
            for k, (kind, n_classes) in enumerate(simulated):
                yield f"{kind}/{n_classes}", n, repetition, _simulated(kind, n_classes, n, repetition, k)
            for k, path in enumerate(files):
                yield path.stem, n, repetition, _stored(path, n, repetition, k)


def _simulated(kind: str, n_classes: int, n: int, repetition: int, k: int) -> Callable[[], Record | None]:
    def run() -> Record | None:
        rng = np.random.default_rng([7, repetition, n, k])
        parts = simulate(kind, n_classes, n, rng), simulate(kind, n_classes, HELD_OUT, rng)
        return measure(f"{kind}/{n_classes}", *parts, True, repetition)

    return run


def _stored(path: Path, n: int, repetition: int, k: int) -> Callable[[], Record | None]:
    def run() -> Record | None:
        archive = np.load(path)
        logits = "logits" in archive
        scores, labels = archive["logits" if logits else "probs"], archive["labels"]
        order = np.random.default_rng([11, repetition, n, k]).permutation(len(labels))
        first, second = np.sort(order[:n]), np.sort(order[n : n + HELD_OUT])
        return measure(path.stem, (scores[first], labels[first]), (scores[second], labels[second]), logits, repetition)

    return run


def collect(args: argparse.Namespace) -> list[Record]:
    """Measure all problems, or read them from the cache."""
    found = []
    for tag, n, repetition, run in problems(args.logits, tuple(args.sizes), args.repetitions):
        path = None if args.cache is None else args.cache / f"{tag.replace('/', '_')}_{n}_{repetition}.npz"
        if path is not None and path.exists():
            archive = np.load(path)
            rest = json.loads(str(archive["about"]))
            arrays = {key: archive[key] for key in archive.files if key != "about"}
            found.append(Record(**rest, **arrays))
            continue
        if args.cached_only:
            continue
        record = run()
        if record is None:
            continue
        found.append(record)
        if path is not None:
            arrays = {key: value for key, value in vars(record).items() if isinstance(value, np.ndarray)}
            about = json.dumps({"tag": record.tag, "n": record.n, "names": record.names})
            np.savez(path, about=about, **arrays)
    return found


def equal_methods(n: int, n_methods: int, repetitions: int) -> dict[str, float]:
    """Share of runs in which one of several equally good methods is called worse than the best, by each rule."""
    rng = np.random.default_rng([1, n, n_methods])
    called = {"paired interval": 0, "Hsu": 0, "one standard error": 0}
    for _ in range(repetitions):
        z = rng.normal(size=n) * 2
        y = rng.random(n) < 1 / (1 + np.exp(-z))
        logits = z[:, None] + rng.normal(size=(n, n_methods)) * 0.3
        losses = np.logaddexp(0, np.where(y[:, None], -logits, logits))
        _count(called, losses, 1.0)
    return {rule: count / repetitions for rule, count in called.items()}


class _Half(TemperatureScaling):
    """Temperature scaling on a random half of the samples: such methods are equally good, whatever their seeds."""

    def __init__(self, seed: int = 0, *, logits: bool = True):
        super().__init__(logits=logits)
        self.seed = seed

    def fit(self, scores: Floats, y: NDArray[np.intp]) -> _Half:  # type: ignore[override]
        """Fit on a half."""
        half = np.random.default_rng([self.seed, len(y)]).permutation(len(y))[: len(y) // 2]
        super().fit(scores[half], y[half])
        return self


def equal_fitted_methods(n: int, n_methods: int, repetitions: int, folds: int = 5) -> dict[str, float]:
    """The same for cross-validated fits, whose losses depend on each other."""
    called = {"paired interval": 0, "Hsu": 0, "one standard error": 0}
    for repetition in range(repetitions):
        rng = np.random.default_rng([2, n, repetition])
        logits, y = simulate("overconfident", 3, n, rng)
        fold = rng.permutation(n) % folds
        losses = np.empty((n, n_methods))
        for k in range(folds):
            inside = fold == k
            for m in range(n_methods):
                p = _Half(int(rng.integers(1 << 30))).fit(logits[~inside], y[~inside]).predict_proba(logits[inside])
                losses[inside, m] = -np.log(p[np.arange(len(p)), y[inside]])
        _count(called, losses, CROSS_VALIDATED)
    return {rule: count / repetitions for rule, count in called.items()}


def _count(called: dict[str, int], losses: Floats, inflation: float) -> None:
    """The first method is the one watched."""
    best = int(losses.mean(axis=0).argmin())
    difference = losses[:, 0] - losses[:, best]
    spread = difference.std(ddof=1) / np.sqrt(len(losses))
    called["paired interval"] += bool(difference.mean() > 1.96 * spread)
    called["Hsu"] += not tied_with_best(losses, inflation=inflation)[0]
    called["one standard error"] += not near_best(losses)[0]


def chosen_by(rule: str, record: Record, rows: NDArray[np.bool_] | slice = slice(None)) -> str:
    """The method that a rule chooses."""
    losses, names = record.usable(rows)
    if rule == "lowest log loss":
        return names[int(losses.mean(axis=0).argmin())]
    if rule == "simplest tied (Hsu)":
        tied = tied_with_best(losses, inflation=CROSS_VALIDATED)
        return simplicity([name for name, one in zip(names, tied, strict=True) if one], record.n_classes)[0]
    return select(losses, names, record.n_classes).method


def nested(rule: str, record: Record, table: Floats) -> Floats:
    """For each sample, the loss of the method chosen on the other folds."""
    out = np.empty(len(record.fold))
    for k in np.unique(record.fold):
        inside = record.fold == k
        out[inside] = table[inside, record.names.index(chosen_by(rule, record, ~inside))]
    return out


def with_identity(rule: str, record: Record) -> str:
    """The rule, with the identity where the nested improvement is significantly negative."""
    lower = record.nll[:, record.names.index("identity")] - nested(rule, record, record.nll)
    harms = lower.mean() < -1.96 * lower.std(ddof=1) / np.sqrt(len(lower))
    return "identity" if harms else chosen_by(rule, record)


def before(record: Record) -> str:
    """The rule of version 0.1: the identity unless the largest Brier gain is significant by itself."""
    means = record.brier.mean(axis=0)
    best = int(means.argmin())
    lower = record.brier[:, record.names.index("identity")] - record.brier[:, best]
    significant = lower.mean() > 1.96 * lower.std(ddof=1) / np.sqrt(len(lower))
    return record.names[best] if significant else "identity"


def few(record: Record) -> str:
    """TS, or ``auto`` for two classes."""
    return "auto" if record.n_classes == 2 else "ts"


def simple(record: Record) -> str:
    """The rule for very few samples: TS, or ``auto`` for two classes, unless that is shown to harm.

    Where no label has a probability below one half, no prediction is wrong, and the scores are left as they are.
    """
    name = few(record)
    given = record.nll[:, record.names.index("identity")]
    if not (given > np.log(2)).any():
        return "identity"
    lower = given - record.nll[:, record.names.index(name)]
    harms = lower.mean() < -1.96 * lower.std(ddof=1) / np.sqrt(len(lower))
    return "identity" if harms else name


RULES: dict[str, Callable[[Record], str]] = {
    "verdict": lambda record: with_identity("verdict", record),
    "verdict, never identity": lambda record: chosen_by("verdict", record),
    "simplest tied (Hsu)": lambda record: with_identity("simplest tied (Hsu)", record),
    "lowest log loss": lambda record: with_identity("lowest log loss", record),
    "version 0.1": before,
    "always identity": lambda _: "identity",
    "always ts": lambda _: "ts",
    "always ets": lambda _: "ets",
    "always ts or auto": few,
    "ts or auto, unless harmful": simple,
    "always auto": lambda _: "auto",
}


def rules_table(records: list[Record], title: str) -> str:
    """Mean held-out log loss of what rules choose, the excess over the best choice, and harm."""
    lines = [
        f"{title}: {len(records)} problems",
        "| rule | log loss | above the best choice | worst tenth | worse than identity | identity chosen (ts better) |",
        "|---|---|---|---|---|---|",
    ]
    finite = [record for record in records if np.isfinite(record.held("identity"))]
    for rule, choose in RULES.items():
        names = [choose(record) for record in records]
        loss = np.array([record.held(name) for record, name in zip(records, names, strict=True)])
        excess = loss - np.array([record.held_out.min() for record in records])
        harm = np.mean([record.held(choose(record)) > record.held("identity") + MATTERS for record in finite])
        idle = [record for record, name in zip(records, names, strict=True) if name == "identity"]
        better = sum(record.held("ts") < record.held("identity") - MATTERS for record in idle)
        lines.append(
            f"| {rule} | {loss.mean():.4f} | {excess.mean():.4f} | {np.quantile(excess, 0.9):.4f} | {harm:.0%} | "
            f"{len(idle)} ({better}) |"
        )
    return "\n".join(lines)


def gain_table(records: list[Record], sizes: tuple[int, ...]) -> str:
    """Gains of the method with the lowest loss, and nested ones, beside what they estimate."""
    lines = ["| n | gain on held-out data | gain of the best of all | nested gain |", "|---|---|---|---|"]
    for n in sizes:
        rows = []
        for record in records:
            if record.n != n or not np.isfinite(record.held("identity")):
                continue
            given = record.names.index("identity")
            rule = "lowest log loss"
            chosen = record.names.index(chosen_by(rule, record))
            own = (record.brier[:, given] - record.brier[:, chosen]).mean()
            apart = (record.brier[:, given] - nested(rule, record, record.brier)).mean()
            rows.append((record.held_out_brier[given] - record.held_out_brier[chosen], own, apart))
        if rows:
            true, own, apart = np.mean(rows, axis=0)
            lines.append(f"| {n} | {true:.4f} | {own:.4f} | {apart:.4f} |")
    return "\n".join(lines)


def main() -> None:
    """Run the study and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logits", type=Path, help="folder of .npz files with logits or probs, and labels")
    parser.add_argument("--cache", type=Path, help="folder to keep losses in")
    parser.add_argument("--cached-only", action="store_true", help="do not compute what is not in the cache")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--equal-runs", type=int, default=1000, help="runs of the first table")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if args.cache is not None:
        args.cache.mkdir(parents=True, exist_ok=True)
    print("Share of runs in which a method as good as 7 others is called worse than the best\n")
    print("| n | losses | paired interval | Hsu | one standard error |\n|---|---|---|---|---|")
    for n in (100, 300, 1000):
        found = equal_methods(n, 8, args.equal_runs)
        print(f"| {n} | independent | " + " | ".join(f"{share:.1%}" for share in found.values()) + " |")
    for n in (100, 300, 1000):
        found = equal_fitted_methods(n, 8, args.equal_runs // 5)
        print(f"| {n} | cross-validated | " + " | ".join(f"{share:.1%}" for share in found.values()) + " |")
    records = collect(args)
    stored = sorted({record.tag for record in records if "/" not in record.tag})
    judging = set(stored[1::2])
    for n in args.sizes:
        here = [record for record in records if record.n == n]
        print("\n" + rules_table([r for r in here if r.tag not in judging], f"n = {n}, chosen on"))
        if judging:
            print("\n" + rules_table([r for r in here if r.tag in judging], f"n = {n}, judged on"))
    print("\nCalibration gain (Brier score) of the method with the lowest log loss\n")
    print(gain_table(records, tuple(args.sizes)))


if __name__ == "__main__":
    main()
