"""How long maps take to fit to the logits of a language model with a vocabulary of 50,257 words.

Run ``python benchmarks/vocabulary.py``: 2000 simulated samples in float32, 400 MB. Word frequencies follow Zipf's law,
the model is overconfident, and its errors depend on the class, so that every map has something to learn. Times are
processor seconds on one thread.
"""

from __future__ import annotations

import argparse
import logging
import time

import numpy as np

import mixnmatch as mm

NAMES = ("ts", "ets", "bcts", "svs", "vector")


def language_model(n: int, n_classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logits and labels: true log-odds are Zipf's plus normal noise; the model has them too steep and off by class."""
    rng = np.random.default_rng(seed)
    prior = -np.log(np.arange(n_classes) + 3.0)
    true = (prior + 2.5 * rng.standard_normal((n, n_classes), dtype=np.float32)).astype(np.float32)
    gumbel = true - np.log(rng.standard_exponential((n, n_classes), dtype=np.float32) + np.float32(1e-30))
    labels = gumbel.argmax(axis=1)
    true *= 1.4
    true += 0.3 * rng.standard_normal(n_classes, dtype=np.float32)
    return true, labels


def main() -> None:
    """Print one line for each map."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--classes", type=int, default=50_257)
    parser.add_argument("--maps", nargs="+", default=NAMES)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logits, labels = language_model(args.samples, args.classes)
    mm.engine(threads=1).set_default()
    print(f"{args.samples} x {args.classes} logits in float32, one thread")
    for name in args.maps:
        calibrator = mm.calibrator(name, logits=True)
        start = time.process_time()
        fitted = calibrator.fit(logits, labels)
        print(f"{name:<8}{time.process_time() - start:8.1f} s, log loss {fitted.loss_:.6f}", flush=True)


if __name__ == "__main__":
    main()
