"""One fitted map used from many threads gives what one thread gives, bit for bit; fits side by side the same map."""

import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from mixnmatch import calibrator, calibrators, engine
from mixnmatch.maps.base import CalibrationMap
from tests.conftest import make_problem

NAMES = [line.name for line in calibrators()]
LOGITS, Y = make_problem(300, 4, seed=21)
OTHERS = [make_problem(150 + 10 * k, 4, seed=30 + k)[0] for k in range(8)]


@pytest.mark.parametrize("name", NAMES)
def test_one_map_in_eight_threads(name):
    fitted = calibrator(name, logits=True).fit(LOGITS, Y)
    with engine(block_bytes=2000):  # several blocks a call, so that calls meet in the shared pool
        alone = [fitted.predict_proba(scores) for scores in OTHERS]
    with ThreadPoolExecutor(8) as pool:

        def work(k):
            with engine(block_bytes=2000):
                return [fitted.predict_proba(OTHERS[(k + step) % 8]) for step in range(8)]

        together = list(pool.map(work, range(8)))
    for k, answers in enumerate(together):
        for step, answer in enumerate(answers):
            np.testing.assert_array_equal(answer, alone[(k + step) % 8])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_of_matrices_do_not_depend_on_threads(dtype):
    """Neither on ours nor on those of BLAS, which calls in other threads may change meanwhile."""
    logits, y = make_problem(2000, 100, seed=22, dtype=dtype)
    fitted = calibrator("sms", logits=True).fit(logits[:400], y[:400])
    for rows in (32, 80, 200, 2000):
        with engine(threads=1):
            alone = fitted.predict_proba(logits[:rows])
        for threads in (2, 3, 4):
            with engine(threads=threads):
                np.testing.assert_array_equal(fitted.predict_proba(logits[:rows]), alone)
        with threadpool_limits(1):
            np.testing.assert_array_equal(fitted.predict_proba(logits[:rows]), alone)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("auto", "bcts-auto", "gpc")])
def test_fits_side_by_side(name):
    problems = [make_problem(120 + k, 3, seed=50 + k) for k in range(8)]

    def fit(problem):
        return calibrator(name, logits=True).fit(*problem).predict_proba(problem[0])

    with ThreadPoolExecutor(1) as pool:
        alone = list(pool.map(fit, problems))
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(fit, problems))
    for one, other in zip(together, alone, strict=True):  # last bits of matrix products are not the same every time
        np.testing.assert_allclose(one, other, rtol=1e-9)


def test_nothing_global_is_left_changed():
    """Filters of warnings are shared by all threads: fits that overlap must leave them as they were."""
    problem = make_problem(60, 3, seed=70)
    before = list(warnings.filters)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: calibrator("ensemble-beta", logits=True).fit(*problem), range(16)))
    assert warnings.filters == before


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("auto", "bcts-auto", "gpc")])
def test_refitting_does_not_tear_answers(name, monkeypatch):
    """The map is refitted between two blocks of a call, as another thread may do: the call ends with the old map."""
    fitted = calibrator(name, logits=True).fit(LOGITS, Y)
    other = LOGITS[:, ::-1] * np.array([0.2, 3.0, 1.0, 0.5])
    before = fitted.predict_proba(LOGITS)
    after = calibrator(name, logits=True).fit(other, Y).predict_proba(LOGITS)
    real, calls = CalibrationMap._calibrate, []

    def refitted_meanwhile(map_, block, out):
        calls.append(len(out))
        if len(calls) == 2:
            fitted.fit(other, Y)
        real(map_, block, out)

    monkeypatch.setattr(CalibrationMap, "_calibrate", refitted_meanwhile)
    with engine(block_bytes=40_000, threads=1):
        answer = fitted.predict_proba(np.concatenate([LOGITS] * 40))
    assert len(calls) > 2
    np.testing.assert_allclose(answer, np.concatenate([before] * 40), rtol=1e-12, atol=1e-15)
    monkeypatch.undo()
    np.testing.assert_allclose(fitted.predict_proba(LOGITS), after, rtol=1e-9)


def test_refitting_does_not_change_the_names_of_an_answer(monkeypatch):
    fitted = calibrator("ts", logits=True).fit(LOGITS, Y)
    before = fitted.predict(LOGITS)
    real = CalibrationMap.predict_proba

    def refitted_meanwhile(map_, scores):
        answer = real(map_, scores)
        monkeypatch.undo()
        names = np.array(["a", "b", "c", "d"])
        fitted.set_params(classes=names).fit(LOGITS, names[Y])
        return answer

    monkeypatch.setattr(CalibrationMap, "predict_proba", refitted_meanwhile)
    np.testing.assert_array_equal(fitted.predict(LOGITS), before)
    assert fitted.predict(LOGITS).tolist() == np.array(["a", "b", "c", "d"])[before].tolist()


@pytest.mark.parametrize("name", ["ts", "ets", "irova-ets", "irm", "sms", "beta", "ensemble-beta"])
def test_predicting_while_another_thread_refits(name):
    """Every answer is that of one of the two fits, never of attributes of both."""
    other = LOGITS[:, ::-1] * np.array([0.2, 3.0, 1.0, 0.5])
    expected = [calibrator(name, logits=True).fit(scores, Y).predict_proba(LOGITS) for scores in (LOGITS, other)]
    fitted = calibrator(name, logits=True).fit(LOGITS, Y)
    ended = threading.Event()

    def refit():
        for _ in range(10):
            fitted.fit(other, Y)
            fitted.fit(LOGITS, Y)
        ended.set()

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(refit)
        answers = [fitted.predict_proba(LOGITS)]
        while not ended.is_set() and not done.done():
            answers.append(fitted.predict_proba(LOGITS))
        done.result()
    for answer in answers:
        assert any(np.allclose(answer, one, rtol=1e-9, atol=1e-15) for one in expected)
