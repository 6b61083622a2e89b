"""One fresh process: it measures the tasks it was given as JSON and prints one line of JSON for each.

    python -m peers.task '{"kind": "fit", "size": "C10", "cache": ".bench", "keys": ["mixnmatch: ts"]}'

What libraries print goes to stderr, so that stdout holds results only.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

MEMORY_LIMIT = 18 * 2**30
LONG = 10.0
# Log loss of an exact zero at the label is that of this probability.
PROBABILITY_FLOOR = 1e-37
Result = dict[str, Any]


def high_water() -> int:
    """Largest resident memory so far, in bytes."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) * 1024


def forget_high_water() -> None:
    """Give freed memory back to the system and let the mark start again from what is resident now."""
    gc.collect()
    if "linux" in sys.platform:
        ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


@dataclass(frozen=True)
class Timing:
    """Seconds of the first call, median seconds of later ones, peak memory of the second, and what the last returned.

    Compiled kernels, threads and lazy imports are loaded by the first call, so it is left out of the others, unless it
    took so long (``LONG`` seconds) that this is no matter and it stands for all.
    """

    first: float
    seconds: float
    memory: int
    result: Any


def timed(work: Callable[[], Any], at_least: int = 7, short: float = 0.05, budget: float = 0.5) -> Timing:
    """Call something ``at_least`` so many times and for ``short`` seconds, but stop after ``budget`` seconds.

    The call whose memory is watched starts with none that is free, which makes it slower: it counts for time only
    where it takes longer than ``budget``.
    """
    first, memory, result = call(work)
    if first > LONG:
        return Timing(first, first, memory, result)
    seconds, memory, result = call(work)
    times = [seconds] if seconds > budget else []
    while not times or ((len(times) < at_least or sum(times) < short) and sum(times) < budget):
        start = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - start)
    return Timing(first, statistics.median(times), memory, result)


def call(work: Callable[[], Any]) -> tuple[float, int, Any]:
    """Seconds, growth of the peak memory and result of one call."""
    forget_high_water()
    before = high_water()
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, high_water() - before, result


@lru_cache(maxsize=3)
def loaded(path: Path, dtype: str) -> Any:
    """An array of a file, read once for the methods of a process that take the same."""
    import numpy as np

    return np.load(path).astype(dtype, copy=False)


def measure_fit(key: str, size: str, cache: Path) -> Result:
    """Time and memory of fitting and applying a method to simulated scores; the first call is reported separately."""
    import numpy as np

    from peers.adapters import all_methods
    from peers.datasets import SIZES, new_scores, speed_files

    method = all_methods()[key]
    files = speed_files(cache, size)
    x, y = loaded(files[method.stored], method.dtype), loaded(files["labels"], "int64")
    logits = method.stored == "logits"

    def fitted() -> Any:
        made = method.make(logits, SIZES[size][1])  # anew: some start from what they found the last time
        made.fit(x, y)
        return made

    fit = timed(fitted)
    apply = timed(lambda: fit.result.apply(x))
    new, y = new_scores(size, method.stored)
    p = fit.result.apply(new.astype(method.dtype, copy=False))
    loss = float(-np.log(np.maximum(p[np.arange(len(y)), y], PROBABILITY_FLOOR), dtype=np.float64).mean())
    return {"first": fit.first, "fit": fit.seconds, "fit_memory": fit.memory, "apply": apply.seconds,
            "apply_memory": apply.memory, "input": x.nbytes, "value": loss}  # fmt: skip


def measure_metric(key: str, size: str, cache: Path) -> Result:
    """Time and memory of a metric of simulated scores."""
    import numpy as np

    from peers.datasets import SIZES, speed_files
    from peers.metrics import all_metrics

    metric = all_metrics()[key]
    files = speed_files(cache, size)
    x, y = loaded(files["probs"], metric.dtype), loaded(files["labels"], "int64")
    measure = metric.make(SIZES[size][1])
    found = timed(lambda: measure(x, y))
    value = found.result
    number = float(value) if np.isscalar(value) or isinstance(value, float) else None
    return {"first": found.first, "fit": found.seconds, "fit_memory": found.memory, "input": x.nbytes, "value": number}


def measure_import(module: str) -> Result:
    """Time and memory of an import; ours includes building a map, since names are imported when they are used."""
    before = high_water()
    start = time.perf_counter()
    __import__(module)
    if module == "mixnmatch":
        sys.modules[module].calibrator("ts")
    return {"fit": time.perf_counter() - start, "fit_memory": high_water() - before}


def measure_yardstick(name: str) -> Result:
    """What the hardware does: one pass of exp, one sort, one read of memory, over 25e6 float32 numbers."""
    import numpy as np

    x = np.random.default_rng(0).standard_normal(25_000_000, dtype=np.float32)
    out = np.empty_like(x)
    work = {"exp": lambda: np.exp(x, out=out), "sort": lambda: np.sort(x), "read": lambda: x.max()}[name]
    found = timed(work)
    return {"first": found.first, "fit": found.seconds, "fit_memory": found.memory, "input": x.nbytes}


def judge(method: Any, problem: Any, floor: float = PROBABILITY_FLOOR) -> Result:
    """Quality of a method on a problem: proper scores, accuracy, top-label ECE and the seconds it took."""
    import numpy as np

    x, logits = method.natural(problem.scores, problem.logits)
    new, _ = method.natural(problem.new_scores, problem.logits)
    y, y_new = problem.labels.astype(np.int64), problem.new_labels.astype(np.int64)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
    start = time.perf_counter()
    adapter = method.make(logits, x.shape[1])
    adapter.fit(x, y)
    middle = time.perf_counter()
    p = np.asarray(adapter.apply(new), dtype=np.float64)
    end = time.perf_counter()
    before = problem.new_scores.argmax(axis=1)
    return scores(p, y_new, before, floor) | {"fit": middle - start, "apply": end - middle}


def scores(p: Any, y: Any, before: Any, floor: float = PROBABILITY_FLOOR) -> Result:
    """Scores of calibrated probabilities; what is not a distribution over the classes is refused.

    In log loss, smaller probabilities than ``floor`` at the label count as ``floor``.
    """
    import numpy as np

    from mixnmatch import calibration_error

    n_classes = int(max(before.max(), y.max())) + 1
    if p.ndim != 2 or len(p) != len(y) or p.shape[1] < n_classes:
        msg = f"shape {p.shape} for {len(y)} rows and at least {n_classes} classes"
        raise ValueError(msg)
    wrong = {
        "are not finite": ~np.isfinite(p).all(axis=1),
        "have negative entries": p.min(axis=1) < 0,
        "do not sum to 1": np.abs(p.sum(axis=1) - 1) > 1e-2,
    }
    for what, rows in wrong.items():
        if rows.any():
            msg = f"{rows.sum()} of {len(p)} rows {what}"
            raise ValueError(msg)
    index = np.arange(len(y))
    top = p.argmax(axis=1)
    return {
        "nll": float(-np.log(np.maximum(p[index, y], floor)).mean()),
        "brier": float((np.square(p).sum(axis=1) - 2 * p[index, y] + 1).mean()),
        "accuracy": float((top == y).mean()),
        "accuracy_change": float((top == y).mean() - (before == y).mean()),
        "ece": float(
            calibration_error(p / p.sum(axis=1, keepdims=True), y, notion="top-label", estimator="histogram", bins=15)
        ),
    }


def results(task: dict[str, Any]) -> Iterator[Result]:
    """One result for each key of a task; an exception is a result too."""
    problem = None
    for key in task["keys"]:
        try:
            if task["kind"] == "quality":
                from peers.adapters import all_methods
                from peers.datasets import Problem

                problem = problem or Problem.load(Path(task["problem"]))
                found = judge(all_methods()[key], problem)
            elif task["kind"] == "tabular":
                from tabular.judging import judge_size

                found = judge_size(*key)
            elif task["kind"] == "import":
                found = measure_import(key)
            elif task["kind"] == "yardstick":
                found = measure_yardstick(key)
            else:
                measure = measure_fit if task["kind"] == "fit" else measure_metric
                found = measure(key, task["size"], Path(task["cache"]))
            yield {"key": key, "problem": ""} | found
        except MemoryError:
            yield {"key": key, "problem": f"out of memory ({MEMORY_LIMIT >> 30} GB)"}
        except Exception as error:  # a peer may raise anything, and that is a result
            yield {"key": key, "problem": f"{type(error).__name__}: {error}"[:300]}


def main() -> None:
    """Do the task that is given on the command line."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_LIMIT, MEMORY_LIMIT))
    warnings.simplefilter("ignore")
    for result in results(json.loads(sys.argv[1])):
        print(json.dumps(result), file=out, flush=True)


if __name__ == "__main__":
    main()
