"""A long-lived server: many threads, mixed requests, for as many minutes as MIXNMATCH_SOAK says (`make soak`)."""

import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import mixnmatch as mm

MINUTES = float(os.environ.get("MIXNMATCH_SOAK", "0"))
NAMES = ("ts", "ets", "irm", "irm-ets", "sms", "iop", "isotonic", "auto")
SIZES = (1, 7, 32, 1000, 5000)
THREADS = 8
# Bytes of resident memory that may come and go between two looks at it.
SLACK = 24 << 20


def resident():
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(MINUTES == 0, reason="takes minutes: make soak")
def test_memory_stays_flat_and_answers_the_same(tmp_path):
    sample, maps, requests = mm.load_sample(), {}, []
    for name in NAMES:
        mm.calibrator(name, logits=True).fit(sample.logits_cal, sample.labels_cal).save(tmp_path / f"{name}.json")
        maps[name] = mm.load(tmp_path / f"{name}.json")
        for size in SIZES:
            x = np.ascontiguousarray(sample.logits_eval[:size])
            requests.append((name, x, maps[name].predict_proba(x)))
    pools = sorted((pool["filepath"], pool["num_threads"]) for pool in threadpool_info())
    stop, wrong, counts = threading.Event(), [], [0] * THREADS

    def serve(number):
        rng = np.random.default_rng(number)
        while not stop.is_set():
            name, x, expected = requests[rng.integers(len(requests))]
            # Now and then a worker loads the map anew, as a rolling update would.
            map_ = mm.load(tmp_path / f"{name}.json") if rng.random() < 0.001 else maps[name]
            if not np.array_equal(map_.predict_proba(x), expected):
                wrong.append((name, len(x)))
                stop.set()
            counts[number] += 1

    threads = [threading.Thread(target=serve, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    looks, end = [], time.monotonic() + 60 * MINUTES
    while time.monotonic() < end and not stop.wait(1):
        looks.append(resident())
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert min(counts) > 0
    # The first quarter may still fill caches; from then on the level is what it was.
    first, last = np.median(looks[len(looks) // 4 : len(looks) // 2]), np.median(looks[-len(looks) // 4 :])
    print(f"{sum(counts)} requests, resident {first / 1e6:.0f} MB, then {last / 1e6:.0f} MB")
    assert last <= first + SLACK
    assert pools == sorted((pool["filepath"], pool["num_threads"]) for pool in threadpool_info())
