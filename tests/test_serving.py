"""Serving a saved map: what is imported, what the whole process keeps, rows of every kind."""

import functools
import importlib
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import mixnmatch as mm
from mixnmatch import calibrator, calibrators, engine
from mixnmatch._engine import passes
from mixnmatch._engine.cached_property import cached_property
from mixnmatch._engine.kernels import compiled_available
from tests.conftest import make_problem

NAMES = [line.name for line in calibrators()]
LOGITS, Y = make_problem(300, 4, seed=5)

ALONE = """
import json, sys
import numpy as np
import mixnmatch
rows = np.array(json.loads(sys.argv[2]))
for name in json.loads(sys.argv[3]):
    fitted = mixnmatch.load(f"{sys.argv[1]}/{name}.json")
    p = fitted.predict_proba(rows)
    assert p.shape == rows.shape and np.allclose(p.sum(axis=1), 1)
    heavy = {"sklearn", "scipy", "pandas", "joblib", "threadpoolctl", "dask", "click", "jinja2", "markupsafe"}
    assert not heavy & set(sys.modules), (name, heavy & set(sys.modules))
"""


def test_loading_and_predicting_needs_numpy_alone(tmp_path):
    for name in NAMES:
        calibrator(name, logits=True).fit(LOGITS, Y).save(tmp_path / f"{name}.json")
    rows = json.dumps(LOGITS[:5].tolist())
    subprocess.run([sys.executable, "-c", ALONE, str(tmp_path), rows, json.dumps(NAMES)], check=True)


SERVING = """
import sys
import numpy as np
import mixnmatch as mm
rows = np.random.default_rng(0).normal(size=(20_000, 4)).astype(np.float32)
for path in sys.argv[1:]:
    fitted = mm.load(path)
    p = fitted.predict_proba(rows)  # several blocks: on several threads
    assert p.shape == rows.shape
watch = mm.Monitor(fitted)
watch.update(rows[:50], rows[:50].argmax(axis=1))
assert "50 samples" in str(watch.result())
assert mm.expected_performance(p).n_samples == 20_000
assert fitted.adapt(priors=np.full(4, 0.25)).predict_proba(rows[:1]).shape == (1, 4)
"""


def test_a_container_with_numpy_and_lazy_loader_serves(tmp_path):
    """What docs/deploying.md says to install; other packages are not on the path at all."""
    for name in NAMES:
        calibrator(name, logits=True).fit(LOGITS, Y).save(tmp_path / f"{name}.json")
    packages = tmp_path / "packages"
    packages.mkdir()
    for module in (np, importlib.import_module("lazy_loader"), mm):
        (packages / module.__name__).symlink_to(Path(module.__file__).parent)
    libraries = Path(np.__file__).parent.with_name("numpy.libs")
    if libraries.exists():
        (packages / "numpy.libs").symlink_to(libraries)
    paths = [str(tmp_path / f"{name}.json") for name in NAMES]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONHOME"} | {
        "PYTHONPATH": str(packages)
    }
    subprocess.run([sys.executable, "-S", "-c", SERVING, *paths], check=True, env=environment)


LIGHT = """
import sys
import numpy as np
import mixnmatch
mixnmatch.load(sys.argv[1]).predict_proba(5 * np.eye(4))
fits = [m for m in sys.modules if m.startswith("mixnmatch.") and m.endswith(("_fit", "_solver", "_solve", "_passes"))]
assert not fits and "_hashlib" not in sys.modules, fits
"""


@pytest.mark.parametrize("name", ["ts", "irm", "isotonic", "iop", "svs", "sms"])
def test_serving_imports_nothing_that_only_fits_need(name, tmp_path):
    """Loading a map and the first prediction take little more time than importing NumPy."""
    calibrator(name, logits=True).fit(LOGITS, Y).save(tmp_path / "map.json")
    subprocess.run([sys.executable, "-c", LIGHT, str(tmp_path / "map.json")], check=True)


BLAS_AFTER = """
import sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import scipy.linalg  # brings a BLAS of its own
from threadpoolctl import threadpool_info
import mixnmatch

def blas():
    return {pool["filepath"]: pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

maps = [mixnmatch.load(path) for path in sys.argv[1:]]
rows = np.random.default_rng(0).normal(size=(4000, 4)) * 3
before = blas()
mixnmatch.engine(block_bytes=1 << 14, threads=2).set_default()  # several blocks a call
with ThreadPoolExecutor(8) as pool:
    list(pool.map(lambda k: maps[k % len(maps)].predict_proba(rows[: 1 + k % 7 * 600]), range(20_000)))
    fits = [mixnmatch.calibrator(name, logits=True) for name in ("ts", "sms", "matrix")] * 4
    list(pool.map(lambda fit: fit.fit(rows[:500], rows[:500].argmax(axis=1)), fits))
assert blas() == before, (before, blas())
"""


def test_threads_of_blas_are_as_before_after_20000_concurrent_calls(tmp_path):
    paths = [str(tmp_path / f"{name}.json") for name in ("ts", "sms", "irm")]
    for path, name in zip(paths, ("ts", "sms", "irm"), strict=True):
        calibrator(name, logits=True).fit(LOGITS, Y).save(path)
    subprocess.run([sys.executable, "-W", "ignore", "-c", BLAS_AFTER, *paths], check=True, timeout=300)


@pytest.mark.parametrize("name", NAMES)
def test_no_rows_give_no_rows(name):
    fitted = calibrator(name, logits=True).fit(LOGITS, Y)
    for dtype in (np.float32, np.float64):
        p = fitted.predict_proba(np.empty((0, 4), dtype))
        assert p.shape == (0, 4)
        assert p.dtype == dtype
    assert fitted.predict(np.empty((0, 4))).shape == (0,)


@pytest.mark.parametrize("nothing", [[], np.empty(0)])
def test_an_empty_list_is_a_table_without_rows(nothing):
    fitted = calibrator("ts", logits=True).fit(LOGITS, Y)
    assert fitted.predict_proba(nothing).shape == (0, 4)


def test_no_rows_of_a_vector():
    fitted = calibrator("beta").fit(np.linspace(0.1, 0.9, 50), np.arange(50) % 2)
    assert fitted.predict_proba(np.empty(0)).shape == (0, 2)


def test_one_sample_as_a_vector_is_told_how_to_be_passed():
    fitted = calibrator("ts", logits=True).fit(LOGITS, Y)
    with pytest.raises(ValueError, match=r"one sample as scores\[None, :\]"):
        fitted.predict_proba(LOGITS[0])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_masked_classes_stay_at_exactly_zero(name, dtype):
    fitted = calibrator(name, logits=True).fit(LOGITS, Y)
    masked = LOGITS[:40].astype(dtype)
    masked[:20, 1] = -np.inf
    masked[5:15, 2] = -np.inf
    p = fitted.predict_proba(masked)
    assert (p[np.isneginf(masked)] == 0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-5)
    assert np.isfinite(p).all()
    if fitted.accuracy_preserving:
        np.testing.assert_array_equal(p.argmax(axis=1), masked.argmax(axis=1))
    # Rows without a mask are what they are without those beside them.
    np.testing.assert_allclose(p[20:], fitted.predict_proba(masked[20:]), rtol=1e-5 if dtype == np.float32 else 1e-12)


def test_a_masked_class_of_two_given_as_a_vector():
    fitted = calibrator("platt", logits=True).fit(np.linspace(-3, 3, 60), np.arange(60) % 2)
    np.testing.assert_array_equal(fitted.predict_proba(np.array([-np.inf, 0.5]))[0], [1, 0])


@pytest.mark.parametrize("bad, why", [(np.nan, "NaN"), (np.inf, "an infinity")])
def test_other_numbers_that_are_not_finite_are_refused(bad, why):
    fitted = calibrator("ts", logits=True).fit(LOGITS, Y)
    rows = LOGITS[:10].copy()
    rows[2, 3] = -np.inf  # fine
    rows[7, 1] = bad
    with pytest.raises(ValueError, match=f"row 7 of the scores holds {why}"):
        fitted.predict_proba(rows)


def test_a_sample_without_a_class_is_refused():
    fitted = calibrator("ts", logits=True).fit(LOGITS, Y)
    with pytest.raises(ValueError, match="row 0 of the scores masks every class"):
        fitted.predict_proba(np.full((1, 4), -np.inf))


def test_calibration_set_with_masked_classes():
    """Masked classes weigh nothing in a fit; a label that is masked is an error."""
    masked = LOGITS.copy()
    masked[np.arange(300), (Y + 1) % 4] = -np.inf
    fitted = calibrator("ts", logits=True).fit(masked, Y)
    three = np.stack([np.delete(row, (y + 1) % 4) for row, y in zip(LOGITS, Y, strict=True)])
    labels = np.where(Y > (Y + 1) % 4, Y - 1, Y)
    assert fitted.beta_ == pytest.approx(calibrator("ts", logits=True).fit(three, labels).beta_, rel=1e-9)
    bad = LOGITS.copy()
    bad[3, Y[3]] = -np.inf
    with pytest.raises(ValueError, match="row 3 has a label that is masked"):
        calibrator("ts", logits=True).fit(bad, Y)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("logits", [True, False])
@pytest.mark.parametrize("name", ["identity", "ts", "ets", "irm", "beta", "sms", "iop"])
def test_small_tables_get_what_large_ones_get(name, logits, dtype):
    """Small arrays take a short cut past everything that data frames, tensors and Dask need."""
    scores = (LOGITS if logits else np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)).astype(dtype)
    fitted = calibrator(name, logits=logits).fit(scores, Y)
    short = fitted.predict_proba(scores[:50])
    wide = np.asfortranarray(scores)[:50]  # not contiguous: goes the long way
    np.testing.assert_allclose(short, fitted.predict_proba(wide), rtol=1e-5 if dtype == np.float32 else 1e-12)


def test_short_cut_warns_and_refuses_as_the_long_way_does():
    fitted = calibrator("ts").fit([[0.7, 0.3], [0.4, 0.6], [0.2, 0.8], [0.6, 0.4]], [0, 1, 1, 1])
    with pytest.raises(ValueError, match="sums to"):
        fitted.predict_proba(np.array([[0.4, 0.4]]))
    with pytest.raises(ValueError, match="negative"):
        fitted.predict_proba(np.array([[1.4, -0.4]]))
    with pytest.raises(ValueError, match="classes"):
        fitted.predict_proba(np.array([[0.4, 0.4, 0.2]]))
    of_logits = calibrator("ts", logits=True).fit(LOGITS, Y)
    with pytest.warns(UserWarning, match="probably probabilities"):
        of_logits.predict_proba(np.full((20, 4), 0.25))


def test_threads_by_environment_and_by_process():
    code = "from mixnmatch._engine.passes import available_threads; print(available_threads())"
    environment = os.environ | {"MIXNMATCH_THREADS": "3"}
    found = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "3"
    wrong = os.environ | {"MIXNMATCH_THREADS": "many"}
    failed = subprocess.run([sys.executable, "-c", code], env=wrong, check=False, capture_output=True, text=True)
    assert "MIXNMATCH_THREADS must be a positive whole number" in failed.stderr
    assert engine(threads=np.int64(2))._asked == {"threads": 2}
    code = f"import mixnmatch; mixnmatch.engine(threads=5).set_default(); {code}"
    found = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "5"


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("MIXNMATCH_THREADS", "0", "MIXNMATCH_THREADS must be a positive whole number, got '0'"),
        ("MIXNMATCH_BACKEND", "fast", "MIXNMATCH_BACKEND: backend must be"),
    ],
)
def test_a_wrong_environment_is_no_fault_of_a_file(variable, value, message, tmp_path):
    path = tmp_path / "map.json"
    calibrator("ts", logits=True).fit(LOGITS, Y).save(path)
    np.savez(tmp_path / "new.npz", logits=LOGITS)
    code = f"import mixnmatch; mixnmatch.load({str(path)!r})"
    environment = os.environ | {variable: value}
    failed = subprocess.run([sys.executable, "-c", code], env=environment, check=False, capture_output=True, text=True)
    assert f"ValueError: {message}" in failed.stderr
    command = [sys.executable, "-m", "mixnmatch", "apply", str(path), str(tmp_path / "new.npz"), "-o", "out.csv"]
    failed = subprocess.run(command, env=environment, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert failed.returncode == 1
    assert failed.stderr.startswith(f"Error: {message}")


def test_settings_hold_in_threads_that_others_start():
    """A context variable does not reach threads of a plain pool; the default of the process does."""
    seen = []
    before = passes._default
    try:
        engine(threads=7).set_default()
        thread = threading.Thread(target=lambda: seen.append(passes.available_threads()))
        thread.start()
        thread.join()
        with engine(threads=2), ThreadPoolExecutor(1) as pool:
            assert passes.available_threads() == 2
            seen.append(pool.submit(passes.available_threads).result())
    finally:
        passes._default = before
    assert seen == [7, 7]


@pytest.mark.parametrize("bad", [0, -1, 1.5, True])
def test_impossible_settings_are_refused(bad):
    with pytest.raises(ValueError, match="threads must be a positive whole number"):
        engine(threads=bad)


@pytest.mark.parametrize(
    "files, expected",
    [
        ({"cpu.max": "max 100000"}, None),
        ({"cpu.max": "150000 100000"}, 2),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"}, 4),
        ({}, None),
        ({"system.slice/a.service/cpu.max": "100000 100000"}, 1),
        ({"system.slice/cpu.max": "300000 100000", "system.slice/a.service/cpu.max": "max 100000"}, 3),
        ({"system.slice/b.service/cpu.max": "100000 100000"}, None),
        ({"cpu/docker/a/cpu.cfs_quota_us": "200000", "cpu/docker/a/cpu.cfs_period_us": "100000"}, 2),
    ],
)
def test_cpu_quota_of_a_container(tmp_path, files, expected):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    own = tmp_path / "own"
    own.write_text("4:memory:/far:away\n1:cpu,cpuacct:/docker/a\n0::/system.slice/a.service\n")
    assert passes._cpu_quota(str(tmp_path), str(own)) == expected
    assert passes._cpu_quota(str(tmp_path), str(tmp_path / "none")) == (None if "/a" in str(files) else expected)


def test_a_property_in_work_does_not_stop_that_of_another_object():
    started, done = threading.Event(), threading.Event()

    class Slow:
        def __init__(self, wait):
            self.wait = wait

        @cached_property
        def value(self):
            if self.wait:
                started.set()
                assert done.wait(timeout=60)
            return [self.wait]

    first, second = Slow(True), Slow(False)
    with ThreadPoolExecutor(1) as other:
        value = other.submit(lambda: first.value)
        assert started.wait(timeout=60)
        assert second.value is second.value == [False]
        done.set()
        assert value.result() is first.value == [True]
    assert isinstance(vars(Slow)["value"], functools.cached_property)  # tools that draw pages know it as a property


FIRST_FITS = """
import sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import mixnmatch
rows = np.random.default_rng(0).normal(size=(500, 4)) * 3
with ThreadPoolExecutor(8) as pool:
    fits = [mixnmatch.calibrator(name, logits=True) for name in ("ts", "sms", "matrix")] * 4
    list(pool.map(lambda fit: fit.fit(rows, rows.argmax(axis=1)), fits))
"""


def test_first_fits_in_threads_end():
    """Some of them load libraries while others look through the loaded ones for those of linear algebra."""
    for _ in range(5):
        subprocess.run([sys.executable, "-W", "ignore", "-c", FIRST_FITS], check=True, timeout=60)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fork_during_fits_does_not_block_the_child():
    """A child that was forked while other threads were inside a fit can fit and predict."""
    code = """
import os, sys, threading
import numpy as np
import mixnmatch
sys.setswitchinterval(1e-6)  # so that forks meet threads in the midst of everything
x = np.random.default_rng(0).normal(size=(2000, 4)); y = x.argmax(axis=1)
# Everything is imported by now: Python itself cannot fork safely while a thread imports a module.
[mixnmatch.calibrator(name, logits=True).fit(x, y).predict_proba(x) for name in ("sms", "vector")]
stop = threading.Event()
def work():
    while not stop.is_set():
        with mixnmatch.engine(block_bytes=1 << 12, threads=4):
            mixnmatch.calibrator("sms", logits=True).fit(x, y).predict_proba(x)
threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
[thread.start() for thread in threads]
failed = 0
for _ in range(60):
    child = os.fork()
    if child == 0:
        with mixnmatch.engine(block_bytes=1 << 12, threads=2):
            mixnmatch.calibrator("vector", logits=True).fit(x[:200], y[:200]).predict_proba(x)
        os._exit(0)
    failed += os.waitpid(child, 0)[1] != 0
stop.set()
sys.exit(failed)
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=240)


@pytest.mark.skipif(not compiled_available(), reason="needs the compiled kernels")
def test_compiled_kernels_are_used_from_the_first_row_on():
    assert mm.rows(LOGITS[:1], logits=True).backend == "compiled"


@pytest.mark.parametrize("name", ["irm-ets", "irova-ets", "irm-ts"])
@pytest.mark.parametrize("spread", [1.0, 40.0], ids=["plain", "saturated"])
def test_step_maps_do_not_depend_on_kernels_and_blocks(name, spread):
    x = spread * LOGITS
    answers = []
    for backend, block_bytes in [("numpy", None), ("numpy", 1 << 13), ("auto", None), ("auto", 1 << 13)]:
        with engine(backend=backend, block_bytes=block_bytes):
            answers.append(calibrator(name, logits=True).fit(x, Y).predict_proba(x))
    for other in answers[1:]:
        np.testing.assert_allclose(other, answers[0], atol=1e-9)


FIRST_FIT = """
import sys
import numpy as np
import mixnmatch
scores, labels = np.eye(4)[np.arange(80) % 4] * 3, np.arange(80) % 4
labels[:20] = 0
mixnmatch.calibrator(sys.argv[1], logits=True).fit(scores, labels)
assert "scipy" not in sys.modules
"""


@pytest.mark.parametrize("name", ["ts", "ets", "vector", "sms", "beta"])
def test_the_first_fit_of_a_process_does_not_load_scipy(name):
    subprocess.run([sys.executable, "-W", "ignore", "-c", FIRST_FIT, name], check=True)
