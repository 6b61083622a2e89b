"""How fast a saved map is loaded and applied to few samples, in units of what a server does anyway.

Run it on an idle machine: ``python benchmarks/serving.py``. Times are the best of several; all of them on one thread.
New processes are started in turn, and measured in processor seconds.
"""

from __future__ import annotations

import compileall
import math
import resource
import subprocess
import sys
import tempfile
import timeit
from collections.abc import Callable
from pathlib import Path

import numpy as np

import mixnmatch as mm

NAMES = ("ts", "ets", "irm", "beta", "svs", "sms", "iop", "irm-ets", "isotonic", "auto")


def best(calls: dict[str, Callable[[], object]], rounds: int = 30, number: int = 50) -> dict[str, float]:
    """Seconds of calls, the best of several rounds in turn."""
    found = dict.fromkeys(calls, math.inf)
    for _ in range(rounds):
        for name, call in calls.items():
            found[name] = min(found[name], timeit.timeit(call, number=number) / number)
    return found


def started(codes: list[str], rounds: int = 15) -> list[float]:
    """Processor seconds of new processes that run some code each."""
    found = [math.inf] * len(codes)
    for _ in range(rounds):
        for k, code in enumerate(codes):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-c", code], check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            found[k] = min(found[k], after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return found


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
    names = ("ts", "irm", "auto")
    with tempfile.TemporaryDirectory() as folder:
        codes = ["import numpy"]
        for name in names:
            path = Path(folder, f"{name}.json")
            fitted[name].save(path)
            codes.append(f"import numpy, mixnmatch; mixnmatch.load({str(path)!r}).predict_proba(5 * numpy.eye(10))")
        plain, *took = started(codes)
    print(f"import numpy in a new process: {1e3 * plain:.0f} ms")
    for name, seconds in zip(names, took, strict=True):
        print(f"load {name} and predict in a new process: {seconds / plain:.2f} times that")
    with mm.engine(threads=1):
        for n in (1, 32):
            x = np.ascontiguousarray(sample.logits_eval[:n])
            calls: dict[str, Callable[[], object]] = {"softmax": lambda x=x: softmax(x)}
            times = best(calls | {name: lambda x=x, m=map_: m.predict_proba(x) for name, map_ in fitted.items()})
            unit = times.pop("softmax")
            print(f"\n{n} x 10 logits, one NumPy softmax takes {1e6 * unit:.1f} us")
            for name, seconds in times.items():
                print(f"  {name:<10}{1e6 * seconds:9.1f} us {seconds / unit:8.1f} softmaxes")


if __name__ == "__main__":
    main()
