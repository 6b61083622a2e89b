"""How closely exported maps agree with ``predict_proba``, and how large, fast and frugal with memory they are.

    python benchmarks/export.py             # all short names, ten minutes
    python benchmarks/export.py ts irm-ets  # some of them

Scores are simulated. Every short name is fitted on 1000 rows, on probabilities and on logits of 3 and 10 classes, and
run on these rows and on 1000 others, some of them awkward (zeros, ones, ties, logits of 1e4). ONNX in
single precision leaves out rows with a score within 1e-6 of a knot of a map, which are counted; the others leave out
none. Half precision is that of the scores and the output. A second table is about saturated logits (30 times the usual
ones), logits rounded to whole numbers, masked classes and huge logits, of 2, 3 and 10 classes; a map is fitted on 2000
samples and run on these and on 2000 others. Memory is read from /proc, on Linux. Needs onnx, onnxruntime and torch.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import onnxruntime
import torch

from maps_speed import best

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.conftest import make_problem
from tests.export.problems import awkward, calibration_set, fresh_rows
from tests.export.runtimes import Interpreter, extra_memory

import mixnmatch as mm
from mixnmatch.export import onnx_model

NEAR = 1e-6
HARD = ("saturated", "rounded", "masked", "huge")


def session(model: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def differences(name: str, n_classes: int, logits: bool) -> tuple[list[float], int, int]:
    """Largest differences in four ways, rows left out of the second, and rows."""
    scores, y = calibration_set(n_classes, logits, n=1000)
    fitted = mm.calibrator(name, logits=logits).fit(scores, y)
    rows = np.concatenate([scores, fresh_rows(n_classes, logits, n=1000), awkward(n_classes, logits)])
    expected = fitted.predict_proba(rows)
    reader = Interpreter(fitted)
    reader(rows)
    kept = reader.nearest > NEAR
    found = []
    for precision in ("double", "single"):
        model = onnx_model(fitted, precision=precision).SerializeToString()
        apart = np.abs(session(model).run(None, {"scores": rows})[0] - expected).max(axis=1)
        found.append(apart.max() if precision == "double" else apart[kept].max(initial=0))
    module = fitted.to_torch()
    with torch.no_grad():
        apart = np.abs(module(torch.from_numpy(rows)).numpy() - expected).max(axis=1)
        found.append(apart.max())
        half = torch.from_numpy(rows).half()
        apart = np.abs(module(half).double().numpy() - fitted.predict_proba(half))[np.isfinite(half.numpy()).all(1)]
        found.append(apart.max())
    return [float(value) for value in found], int((~kept).sum()), len(rows)


def hard_logits(kind: str, n_classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits on which runtimes could differ, and labels."""
    sharpness = {"saturated": 30.0, "rounded": 3.0}.get(kind, 2.0)
    logits, y = make_problem(2000, n_classes, sharpness=sharpness, seed=seed, dtype=np.float32)
    rng = np.random.default_rng(seed + 10)
    which = rng.random(logits.shape) < 0.3
    which[np.arange(len(y)), rng.integers(n_classes, size=len(y))] = False
    if kind == "rounded":
        logits = np.round(logits)
    elif kind == "masked":
        logits[which] = -np.inf
    elif kind == "huge":
        logits[which] = rng.choice(np.array([np.finfo(np.float32).min, -1e10, -1e9, 1e10], np.float32), which.sum())
    return logits, y


def hard_differences(name: str, kind: str) -> str:
    """Largest difference on such logits, and rows that differ by more than 1e-6 in ONNX and PyTorch together."""
    largest, beyond = 0.0, 0
    for n_classes in (2, 3, 10):
        scores, y = hard_logits("usual" if kind in ("masked", "huge") else kind, n_classes, 0)
        fitted = mm.calibrator(name, logits=True).fit(scores, y)
        rows = np.concatenate([hard_logits(kind, n_classes, seed)[0] for seed in (0, 1)])
        expected = fitted.predict_proba(rows)
        model = onnx_model(fitted).SerializeToString()
        with torch.no_grad():
            results = session(model).run(None, {"scores": rows})[0], fitted.to_torch()(torch.from_numpy(rows)).numpy()
        for found in results:
            apart = np.abs(found - expected).max(axis=1)
            largest, beyond = max(largest, float(apart.max())), beyond + int((apart > NEAR).sum())
    return f"{largest:>9.1e}{beyond:>6}"


def speed(name: str) -> str:
    """Size of the file and times of 10000 x 100 scores and of one row, beside ``predict_proba``."""
    scores, y = calibration_set(100, True, n=10000)
    fitted = mm.calibrator(name, logits=True).fit(scores, y)
    tensor, one = torch.from_numpy(scores), scores[:1]
    parts = []
    for precision in ("double", "single"):
        model = onnx_model(fitted, precision=precision).SerializeToString()
        runner, module = session(model), fitted.to_torch(precision=precision)
        whole = 1000 * best(lambda r=runner: r.run(None, {"scores": scores}))
        with torch.no_grad():
            in_torch = 1000 * best(lambda m=module: m(tensor))
        single_row = 1e6 * best(lambda r=runner: r.run(None, {"scores": one}))
        parts.append(
            f"{precision} {len(model) / 1024:.1f} kB, ONNX {whole:.0f} ms, torch {in_torch:.0f} ms, "
            f"one row in ONNX {single_row:.0f} us"
        )
    return "; ".join([*parts, f"predict_proba {1000 * best(lambda: fitted.predict_proba(scores)):.0f} ms"])


def memory() -> None:
    """Memory that a module takes beside an input of 80 MB, its output of the same size included."""
    rows = torch.randn(20000, 1000)
    scores, y = calibration_set(1000, True, n=3000)
    print(f"  softmax of PyTorch {extra_memory(lambda: torch.softmax(rows, dim=1)) / 1e6:.0f} MB")
    for name in ("ts", "ets", "irm"):
        fitted = mm.calibrator(name, logits=True).fit(scores, y)
        parts = []
        for precision in ("single", "double"):
            module = fitted.to_torch(precision=precision)
            with torch.no_grad():
                module(rows[:1])
                parts.append(f"{precision} {extra_memory(lambda m=module: m(rows)) / 1e6:.0f} MB")
        print(f"  {name:<4} " + ", ".join(parts))


def main() -> None:
    warnings.simplefilter("ignore")
    names = sys.argv[1:] or [line.name for line in mm.calibrators()]
    print(f"{'':<16}{'onnx double':>13}{'onnx single':>13}{'torch':>11}{'torch half':>12}{'exempt rows':>15}")
    largest = np.zeros(4)
    exempt = total = 0
    for name in names:
        worst, left_out, rows = np.zeros(4), 0, 0
        for n_classes in (3, 10):
            for logits in (False, True):
                values, near, count = differences(name, n_classes, logits)
                worst, left_out, rows = np.maximum(worst, values), left_out + near, rows + count
        largest, exempt, total = np.maximum(largest, worst), exempt + left_out, total + rows
        print(f"{name:<16}" + "{:>13.1e}{:>13.1e}{:>11.1e}{:>12.1e}".format(*worst) + f"{left_out:>9}/{rows}")
    print(f"{'largest':<16}" + "{:>13.1e}{:>13.1e}{:>11.1e}{:>12.1e}".format(*largest) + f"{exempt:>9}/{total}")
    print("\nlargest difference, and rows of 24000 that differ by more than 1e-6, in double precision")
    print(f"{'':<16}" + "".join(f"{kind:>15}" for kind in HARD))
    for name in names:
        print(f"{name:<16}" + "".join(hard_differences(name, kind) for kind in HARD))
    print("\n10000 x 100 logits")
    for name in ("ts", "ets", "irm"):
        print(f"  {name:<4} {speed(name)}")
    print("\nmemory beside 20000 x 1000 float32 logits (80 MB), output included")
    memory()


if __name__ == "__main__":
    main()
