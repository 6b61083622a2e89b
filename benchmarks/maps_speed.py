"""Ratios of speed: the maps beside scikit-learn and beside a fit like that of the paper's authors.

``make bench`` compares with all peers; this is the short run for the numbers on docs/results/speed.md.

Ratios are taken in one run, one after the other, best of several; run it on an idle machine:

    python benchmarks/maps_speed.py            # everything, about five minutes
    python benchmarks/maps_speed.py ts ets     # some of it
    python benchmarks/maps_speed.py --backend numpy

Scores are simulated, float32: over-confident logits of 25000 rows and 1000 classes unless said otherwise.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

import mixnmatch as mm
from peers.adapters import ScikitLearn
from peers.datasets import probabilities, simulated


def best(work: Callable[[], object], repeats: int = 5) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def line(name: str, ours: float, theirs: float | None = None) -> None:
    ratio = "" if theirs is None else f"{theirs * 1e3:12.4g} {theirs / ours:9.1f}x"
    print(f"{name:<52}{ours * 1e3:10.4g}{ratio}", flush=True)


def scikit_learn_temperature(logits: np.ndarray, labels: np.ndarray) -> None:
    ScikitLearn("temperature", logits=True, n_classes=logits.shape[1]).fit(logits, labels)


def two_stage_ets(logits: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray, float]:
    """Squared loss, t first and then w, SLSQP on float64 arrays: the way of the authors' script, written anew."""
    from scipy.optimize import minimize

    x = logits.astype(np.float64)
    one_hot = np.zeros_like(x)
    one_hot[np.arange(len(x)), labels] = 1

    def softmax(t: float) -> np.ndarray:
        e = np.exp(x / t - (x / t).max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    found = minimize(lambda t: np.mean((softmax(t[0]) - one_hot) ** 2), [1.5], method="SLSQP", bounds=[(0.05, 5.0)])
    t = float(found.x[0])
    members = [softmax(t), softmax(1.0), np.full_like(x, 1 / x.shape[1])]
    simplex = {"type": "eq", "fun": lambda w: w.sum() - 1}

    def loss(w: np.ndarray) -> float:
        return float(np.mean((w[0] * members[0] + w[1] * members[1] + w[2] * members[2] - one_hot) ** 2))

    found = minimize(loss, [1.0, 0.0, 0.0], method="SLSQP", bounds=[(0, 1)] * 3, constraints=[simplex], tol=1e-12)
    return t, found.x, loss(found.x) * x.shape[1]


def bench_ts() -> None:
    logits, labels = simulated(25_000, 1000)
    for loss in ("nll", "brier"):
        made = mm.TemperatureScaling(loss=loss, logits=True)
        made.fit(logits, labels)
        ours = best(lambda made=made: made.fit(logits, labels))
        theirs = best(lambda: scikit_learn_temperature(logits, labels), 2) if loss == "nll" else None
        line(
            f"fit TS {loss} 25000 x 1000 | scikit-learn",
            ours,
            theirs,
        )
    out = np.empty_like(logits)
    exp = best(lambda: np.exp(logits, out=out))
    line(
        "apply TS 25000 x 1000 | two plain np.exp passes",
        best(lambda: made.predict_proba(logits)),
        2 * exp,
    )


def bench_ets() -> None:
    logits, labels = simulated(25_000, 1000)
    made = mm.EnsembleTemperatureScaling(loss="brier", logits=True).fit(logits, labels)
    ours = best(lambda: made.fit(logits, labels), 3)
    start = time.perf_counter()
    _, _, their_loss = two_stage_ets(logits, labels)
    line(
        "fit ETS brier 25000 x 1000 | two-stage SLSQP",
        ours,
        time.perf_counter() - start,
    )
    print(f"    squared loss: ours {made.loss_:.9f}, two-stage {their_loss:.9f}")
    likelihood = mm.EnsembleTemperatureScaling(logits=True)
    line("fit ETS nll 25000 x 1000", best(lambda: likelihood.fit(logits, labels), 3))
    out = np.empty_like(logits)
    exp = best(lambda: np.exp(logits, out=out))
    line(
        "apply ETS 25000 x 1000 | two plain np.exp passes",
        best(lambda: made.predict_proba(logits)),
        2 * exp,
    )


def bench_small() -> None:
    for n_classes in (10, 100):
        logits, labels = simulated(5000, n_classes)
        for name in ("ts", "ets"):
            for loss in ("nll", "brier"):
                made = mm.calibrator(name, logits=True, loss=loss)
                took = best(lambda made=made, x=logits, y=labels: made.fit(x, y), 15)
                line(f"fit {name} {loss} 5000 x {n_classes}", took)
    rng = np.random.default_rng(0)
    z = rng.random(1_000_000)
    y = (rng.random(1_000_000) < z**2).astype(int)
    two = np.stack([1 - z, z], axis=1)
    for label, scores in (("vector", z), ("two columns", two)):
        made = mm.TemperatureScaling()
        took = best(lambda m=made, s=scores: m.fit(s, y))
        line(f"fit TS binary n=1e6, {label}", took, None)


def bench_row() -> None:
    """One row at a time, as a server gets them."""
    logits, labels = simulated(5_000, 100)
    p = probabilities(logits)
    twins = {"ts": "temperature", "platt": "sigmoid", "isotonic": "isotonic"}
    for name in ("ts", "ets", "irm", "isotonic", "irova-ts", "platt", "beta", "svs"):
        takes = p if name == "isotonic" else logits
        ours = mm.calibrator(name, logits=takes is logits).fit(takes, labels)
        mine, theirs = best(lambda m=ours, x=takes: m.predict_proba(x[:1]), 200), None
        if name in twins:
            peer = ScikitLearn(twins[name], logits=takes is logits, n_classes=100)
            peer.fit(takes, labels)
            theirs = best(lambda m=peer, x=takes: m.apply(x[:1]), 20)
        line(f"apply {name} 1 x 100" + (" | scikit-learn" if theirs else ""), mine, theirs)


def bench_irm() -> None:
    from sklearn.isotonic import IsotonicRegression

    logits, labels = simulated(25_000, 1000)
    p = probabilities(logits)
    irm = mm.calibrator("irm").fit(p, labels)
    ours = best(lambda: irm.fit(p, labels))
    one_hot = np.zeros(p.shape, dtype=np.float32)
    one_hot[np.arange(len(p)), labels] = 1
    theirs = best(lambda: IsotonicRegression().fit(p.ravel(), one_hot.ravel()), 1)
    line("fit IRM 25000 x 1000 | IsotonicRegression on pairs", ours, theirs)
    function = irm.map_.functions()[0]
    flat = p.ravel()
    interp = best(lambda: np.interp(flat, function.knots, function.values), 2)
    line("apply IRM 25000 x 1000 | np.interp", best(lambda: irm.predict_proba(p)), interp)
    irova = mm.calibrator("irova").fit(p, labels)
    ours = best(lambda: irova.fit(p, labels), 3)

    def one_vs_all() -> None:
        for k in range(p.shape[1]):
            IsotonicRegression(out_of_bounds="clip").fit(p[:, k], one_hot[:, k])

    line("fit IROvA 25000 x 1000 | scikit-learn one-vs-all", ours, best(one_vs_all, 1))
    line("apply IROvA 25000 x 1000", best(lambda: irova.predict_proba(p), 2))


def bench_big() -> None:
    logits, labels = simulated(200_000, 1000)
    for name in ("ts", "ets"):
        made = mm.calibrator(name, logits=True).fit(logits[:2000], labels[:2000])
        line(f"fit {name} 200000 x 1000", best(lambda made=made: made.fit(logits, labels), 2))


def bench_large_maps() -> None:
    """Maps with many parameters or a costly fit: once each, at the sizes that the paper could not run some of them."""
    for n, n_classes in ((5000, 100), (25_000, 1000)):
        logits, labels = simulated(n, n_classes)
        for name in ("svs", "sms", "dirichlet", "iop", "gpc"):
            made = mm.calibrator(name, logits=True)
            line(f"fit {name} {n} x {n_classes}", best(lambda m=made, x=logits, y=labels: m.fit(x, y), 1))


MEMORY = """
import resource, sys
import numpy as np, mixnmatch as mm
sys.path.insert(0, {folder!r})
from peers.datasets import probabilities, simulated
logits, labels = simulated({n}, 1000)
scores = logits if {logits} else probabilities(logits)
del logits
made = mm.calibrator({name!r}, **({{"logits": True}} if {logits} else {{}}))
made.fit(scores[:3000], labels[:3000])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with open("/proc/self/clear_refs", "w") as f: f.write("5")
def high():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
before = high()
made.fit(scores, labels)
print((high() - before) * 1024 / scores.nbytes)
"""


def bench_memory() -> None:
    from pathlib import Path

    cases = (
        ("ts", True, 25_000),
        ("ets", True, 25_000),
        ("irm", False, 25_000),
        ("gpc", True, 25_000),
        ("ts", True, 200_000),
    )
    for name, logits, n in cases:
        code = MEMORY.format(folder=str(Path(__file__).parent), n=n, logits=logits, name=name)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        print(f"peak memory of fitting {name} to {n} x 1000, in inputs: {float(done.stdout):.3f}")


def bench_start() -> None:
    def took(code: str) -> float:
        return best(lambda: subprocess.run([sys.executable, "-c", code], check=True), 5)

    line("import mixnmatch | import sklearn.isotonic", took("import mixnmatch"), took("import sklearn.isotonic"))
    everything = "import mixnmatch; [getattr(mixnmatch, name) for name in mixnmatch.__all__]"
    line("all public names | import sklearn.isotonic", took(everything), took("import sklearn.isotonic"))
    first = (
        "import numpy as np, time, mixnmatch as mm\n"
        "x = np.random.default_rng(0).normal(size=(20000, 100)).astype('f')\n"
        "s = time.perf_counter(); mm.calibrator('ets', logits=True).fit(x, np.arange(20000) % 100).predict_proba(x)\n"
        "print(time.perf_counter() - s)"
    )
    done = subprocess.run([sys.executable, "-c", first], capture_output=True, text=True, check=True)
    print(f"first fit in a new process: {float(done.stdout):.2f} s")


BENCHES = {
    "start": bench_start,
    "ts": bench_ts,
    "ets": bench_ets,
    "small": bench_small,
    "row": bench_row,
    "irm": bench_irm,
    "big": bench_big,
    "large": bench_large_maps,
    "memory": bench_memory,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="*", choices=[*BENCHES, []], help="what to measure; all if nothing is named")
    parser.add_argument("--backend", choices=["auto", "numpy", "compiled"], default="auto")
    options = parser.parse_args()
    print(f"{'':<52}{'ours ms':>10}{'theirs ms':>12}{'ratio':>10}")
    with mm.engine(backend=options.backend):
        for name in options.which or BENCHES:
            BENCHES[name]()
    print(f"peak of the whole process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GB")


if __name__ == "__main__":
    main()
