"""How closely exported maps agree with ``predict_proba``, how large the files are and how fast they run.

    python benchmarks/export.py             # all short names, a minute or two
    python benchmarks/export.py ts irm-ets  # some of them

Scores are simulated. Every short name is fitted on 1000 rows, on probabilities and on logits of 3 and 10 classes, and
run on these rows and on 1000 others, some of them awkward (zeros, ones, ties, logits of 1e4). ONNX in
single precision leaves out rows with a score within 1e-6 of a knot of a map, which are counted; the others leave out
none. Half precision is that of the scores and the output. Needs onnx, onnxruntime and torch.
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

from tests.export.problems import awkward, calibration_set, fresh_rows
from tests.export.runtimes import Interpreter

import mixnmatch as mm
from mixnmatch.export import onnx_model

NEAR = 1e-6


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


def speed(name: str) -> str:
    """Size of the file and time of 10000 x 100 scores, in either precision, beside ``predict_proba``."""
    scores, y = calibration_set(100, True, n=10000)
    p = np.exp(scores.astype(float) - scores.max(axis=1, keepdims=True))
    p = (p / p.sum(axis=1, keepdims=True)).astype(np.float32)
    fitted = mm.calibrator(name).fit(p, y)
    parts = []
    for precision in ("double", "single"):
        model = onnx_model(fitted, precision=precision).SerializeToString()
        runner = session(model)
        parts.append(
            f"{precision} {len(model) / 1024:.1f} kB {1000 * best(lambda r=runner: r.run(None, {'scores': p})):.0f} ms"
        )
    return ", ".join([*parts, f"predict_proba {1000 * best(lambda: fitted.predict_proba(p)):.0f} ms"])


def main() -> None:
    warnings.simplefilter("ignore")
    print(f"{'':<16}{'onnx double':>13}{'onnx single':>13}{'torch':>11}{'torch half':>12}{'exempt rows':>15}")
    largest = np.zeros(4)
    exempt = total = 0
    for name in sys.argv[1:] or [line.name for line in mm.calibrators()]:
        worst, left_out, rows = np.zeros(4), 0, 0
        for n_classes in (3, 10):
            for logits in (False, True):
                values, near, count = differences(name, n_classes, logits)
                worst, left_out, rows = np.maximum(worst, values), left_out + near, rows + count
        largest, exempt, total = np.maximum(largest, worst), exempt + left_out, total + rows
        print(f"{name:<16}" + "{:>13.1e}{:>13.1e}{:>11.1e}{:>12.1e}".format(*worst) + f"{left_out:>9}/{rows}")
    print(f"{'largest':<16}" + "{:>13.1e}{:>13.1e}{:>11.1e}{:>12.1e}".format(*largest) + f"{exempt:>9}/{total}")
    print("\n10000 x 100 probabilities")
    for name in ("ts", "ets", "irm"):
        print(f"  {name:<4} {speed(name)}")


if __name__ == "__main__":
    main()
