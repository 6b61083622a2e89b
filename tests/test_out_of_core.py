"""Memory-mapped files larger than the memory that a process may use."""

import subprocess
import sys

import numpy as np
import pytest

from .conftest import make_problem, softmax

ROWS, CLASSES = 32_000, 1000  # 128 MB of float32
LIMIT = 80_000_000  # bytes over what the process has before it starts

CHILD = """
import resource, sys
import numpy as np
import mixnmatch as mm

limit, scores, labels = int(sys.argv[1]), *sys.argv[2:]
warm = np.random.default_rng(0).dirichlet(np.ones(20), 2000).astype(np.float32)
def work(x, y):
    found = [mm.calibrator(name).fit(x, y) for name in ("ts", "ets", "irm")]
    return [found[0].beta_, found[1].beta_, found[2].map_.values_.mean(), mm.calibration_error(x, y)]
work(warm, np.arange(2000) % 20)  # load what is loaded late
used = next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (used + limit, used + limit))
table, y = np.load(scores, mmap_mode="r"), np.load(labels)
try:
    np.array(table)
except MemoryError:
    print("the table does not fit")
with mm.engine(threads=1, backend="numpy"):
    print(*(float(value).hex() for value in work(table, y)))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_DATA counts mappings on Linux only")
def test_fits_and_an_estimate_under_a_limit_of_memory(tmp_path):
    import mixnmatch as mm

    logits, y = make_problem(ROWS // 10, CLASSES)
    p, y = np.tile(softmax(logits).astype(np.float32), (10, 1)), np.tile(y, 10)
    assert p.nbytes > 1.5 * LIMIT
    np.save(tmp_path / "scores.npy", p)
    np.save(tmp_path / "labels.npy", y)
    command = [sys.executable, "-c", CHILD, str(LIMIT), str(tmp_path / "scores.npy"), str(tmp_path / "labels.npy")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == "the table does not fit"
    found = [float.fromhex(value) for value in second.split()]
    with mm.engine(threads=1, backend="numpy"):
        maps = [mm.calibrator(name).fit(p, y) for name in ("ts", "ets", "irm")]
        error = mm.calibration_error(p, y)
    expected = [maps[0].beta_, maps[1].beta_, maps[2].map_.values_.mean(), float(error)]
    np.testing.assert_allclose(found, expected, rtol=1e-10)
