"""False alarms and power of the monitor, on the streams that probcal's monitor was published with.

python benchmarks/monitor_power.py                       # all streams, 300 runs each: about an hour on one core
python benchmarks/monitor_power.py --only "offset 0.2"   # one of them
python benchmarks/monitor_power.py --runs 50 --csv out.csv

A run is 24 batches of 2,000 samples with new labels. With two classes the log-odds of the scores are normal with mean
-3.2 and standard deviation 1.1, the same in every batch (about 6% events); with ten classes the logits are normal with
standard deviation 2. After 12 batches the calibration changes. A run counts as detected if the first alarm is in one of
the 12 changed batches: an alarm before that is false. The delay is 0 for an alarm in the first changed batch. The
advice is that after the last batch.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import mixnmatch as mm
from mixnmatch.monitoring import Monitor

BATCHES, ONSET, SIZE = 24, 12, 2000


@dataclass(frozen=True)
class Stream:
    """A kind of stream: number of classes, change after half of the batches, and what was published for it."""

    name: str
    n_classes: int = 2
    offsets: tuple[float, ...] = ()
    slope: float = 1.0
    published: str = ""

    @property
    def changes(self) -> bool:
        """Whether there is a change at all."""
        return bool(self.offsets) or self.slope != 1.0


TEN = tuple(np.linspace(-0.3, 0.3, 10).round(3).tolist())
STREAMS = (
    Stream("no change, 2 classes", published="0.016 false alarms"),
    Stream("no change, 10 classes", 10),
    Stream("offset 0.2", offsets=(0.0, 0.2), published="0.94, median delay 6"),
    Stream("offset 0.4", offsets=(0.0, 0.4), published="0.99, median delay 2"),
    Stream("slope 0.8", slope=0.8, published="0.99, median delay 2"),
    Stream("slope 1.25", slope=1.25, published="0.99, median delay 3"),
    Stream("10 classes, offsets -0.3 to 0.3", 10, offsets=TEN),
    Stream("10 classes, offset 0.3 of one", 10, offsets=(*[0.0] * 9, 0.3)),
    Stream("10 classes, slope 0.9", 10, slope=0.9),
)


def softmax(u: np.ndarray) -> np.ndarray:
    e = np.exp(u - u.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def draw(p: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return (p.cumsum(axis=1) < rng.random((len(p), 1))).sum(axis=1).clip(max=p.shape[1] - 1)


def run(stream: Stream, seed: int, alpha: float) -> tuple[int | None, str]:
    """Number of the first batch with an alarm, and the advice after the last batch."""
    fixed, rng = np.random.default_rng(42), np.random.default_rng([seed, 1])
    if stream.n_classes == 2:
        logits = np.stack([np.zeros(SIZE), fixed.normal(-3.2, 1.1, SIZE)], axis=1)
    else:
        logits = 2 * fixed.normal(size=(SIZE, stream.n_classes))
    p = softmax(logits)
    changed = softmax(stream.slope * logits + (np.array(stream.offsets) if stream.offsets else 0.0))
    monitor = Monitor(mm.maps.Identity().fit(p, draw(p, rng)), alpha=alpha)
    first = None
    for batch in range(1, BATCHES + 1):
        result = monitor.update(p, draw(changed if stream.changes and batch > ONSET else p, rng))
        if result.alarm and first is None:
            first = batch
    return first, result.advice


def summary(stream: Stream, runs: int, alpha: float) -> dict[str, str]:
    alarms = [run(stream, seed, alpha) for seed in range(runs)]
    early = sum(first is not None and first <= ONSET for first, _ in alarms)
    delays = [first - ONSET - 1 for first, _ in alarms if first is not None and first > ONSET]
    advice = Counter(text for first, text in alarms if first is not None and first > ONSET)
    row = {"stream": stream.name, "runs": str(runs), "published": stream.published}
    if not stream.changes:
        share = (early + len(delays)) / runs
        error = math.sqrt(max(share * (1 - share), 1e-9) / runs)
        return row | {"false alarms": f"{share:.3f} +- {error:.3f}", "detected": "", "median delay": "", "advice": ""}
    return row | {
        "false alarms": f"{early / runs:.3f}",
        "detected": f"{len(delays) / runs:.3f}",
        "median delay": f"{np.median(delays):g}" if delays else "",
        "advice": ", ".join(f"{name} {number / len(delays):.2f}" for name, number in advice.most_common()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--alpha", type=float, default=0.05)
    parser.add_argument("--only", action="append", help="name of a stream; may be repeated")
    parser.add_argument("--csv", type=Path, help="file for the table")
    asked = parser.parse_args()
    rows = []
    for stream in STREAMS:
        if asked.only and stream.name not in asked.only:
            continue
        rows.append(summary(stream, asked.runs, asked.alpha))
        print(" | ".join(f"{name}: {value}" for name, value in rows[-1].items() if value), flush=True)
    if asked.csv and rows:
        columns = ["stream", "runs", "false alarms", "detected", "median delay", "advice", "published"]
        with asked.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
