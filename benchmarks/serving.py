"""How fast a saved map is loaded and applied to few samples, in units of what a server does anyway.

Run it on an idle machine: ``python benchmarks/serving.py``. Times are the best of several; all of them on one thread.
"""

from __future__ import annotations

import compileall
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable
from pathlib import Path

import numpy as np

import mixnmatch as mm

NAMES = ("ts", "ets", "irm", "beta", "svs", "sms", "iop", "irm-ets", "isotonic", "auto")


def best(call: Callable[[], object], rounds: int = 7) -> float:
    """Seconds of a call, the best of several rounds of about 20 ms each."""
    timer = timeit.Timer(call)
    once = max(timer.timeit(1), 1e-7)
    number = max(int(0.02 / once), 1)
    return min(timer.repeat(rounds, number)) / number


def started(code: str, rounds: int = 9) -> float:
    """Seconds of a new process that runs some code."""
    found = []
    for _ in range(rounds):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        found.append(time.perf_counter() - start)
    return min(found)


def softmax(x: np.ndarray) -> np.ndarray:
    """A plain softmax in NumPy."""
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def main() -> None:
    """Print both tables."""
    sample = mm.load_sample()
    fitted = {name: mm.calibrator(name, logits=True).fit(sample.logits_cal, sample.labels_cal) for name in NAMES}
    # An installed package comes with its bytecode; a checkout may have none.
    compileall.compile_dir(Path(mm.__file__).parent, quiet=1)
    plain = started("import numpy")
    print(f"import numpy in a new process: {1e3 * plain:.0f} ms")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("ts", "irm", "auto"):
            path = Path(folder, f"{name}.json")
            fitted[name].save(path)
            code = f"import numpy, mixnmatch; mixnmatch.load({str(path)!r}).predict_proba(5 * numpy.eye(10))"
            print(f"load {name} and predict in a new process: {started(code) / plain:.2f} times that")
    with mm.engine(threads=1):
        for n in (1, 32):
            x = np.ascontiguousarray(sample.logits_eval[:n])
            unit = best(lambda x=x: softmax(x))
            print(f"\n{n} x 10 logits, one NumPy softmax takes {1e6 * unit:.1f} us")
            for name, map_ in fitted.items():
                took = best(lambda x=x, m=map_: m.predict_proba(x))
                print(f"  {name:<10}{1e6 * took:9.1f} us {took / unit:8.1f} softmaxes")


if __name__ == "__main__":
    main()
