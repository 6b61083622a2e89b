"""One fitted map used from many threads gives what one thread gives, bit for bit; fits side by side the same map."""

import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mixnmatch import calibrator, calibrators, engine
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


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("auto", "gpc")])
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
