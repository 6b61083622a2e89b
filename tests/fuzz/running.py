"""How fuzzing is run: how many cases, what counts as an answer, and the count of cases that were run.

``MIXNMATCH_FUZZ=100000`` asks for about that many cases, drawn anew each time; without it a fixed, fast subset runs.
"""

import linecache
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings

import mixnmatch

if sys.platform == "linux":
    import resource

TOTAL = int(float(os.environ.get("MIXNMATCH_FUZZ", "0")))
PACKAGE = str(Path(mixnmatch.__file__).parent)
SLOWEST = 60.0  # seconds of processor time that a call on a tiny table may take
ran: dict[str, int] = {}
if TOTAL and sys.platform == "linux":  # what takes more memory than this fails, and does not take the machine with it
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))


def examples(share: float, fast: int) -> Any:
    """Settings of a test that gets a share of all cases in a full run, and ``fast`` cases otherwise."""
    checks = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]
    if TOTAL:
        return settings(
            max_examples=max(fast, round(share * TOTAL)), derandomize=False, database=None, suppress_health_check=checks
        )
    return settings(max_examples=fast, suppress_health_check=checks)


def answer(
    name: str,
    call: Callable[[], Any],
    refusals: tuple[type[Exception], ...] = (ValueError, TypeError),
    words_of: str = PACKAGE,
) -> Any:
    """What a call returns, or ``None`` if it was refused in words of this package (or another one).

    Anything else is a failure: other exceptions, errors that NumPy or SciPy raised and nobody put into words, warnings
    of the numerical kind, and calls that take very long.
    """
    ran[name] = ran.get(name, 0) + 1
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", UserWarning)  # those that tell users what to do
        try:
            return call()
        except refusals as error:
            if not (_in_words(error, words_of) and str(error).strip()):
                raise
            return None
        finally:
            assert time.process_time() - start < SLOWEST


def _in_words(error: Exception, package: str) -> bool:
    """Whether the error was raised by a ``raise`` of a package."""
    trace = error.__traceback__
    assert trace is not None
    while trace.tb_next is not None:
        trace = trace.tb_next
    file = trace.tb_frame.f_code.co_filename
    ours = file.startswith((PACKAGE, package))
    return ours and linecache.getline(file, trace.tb_lineno).strip().startswith("raise")


def check_distribution(p: Any, n_classes: int) -> None:
    """Assert that rows are finite, not negative, of a floating type, and sum to 1."""
    assert p.ndim == 2
    assert p.shape[1] == n_classes
    assert p.dtype in (np.float32, np.float64)
    assert np.isfinite(p).all()
    assert (p >= 0).all()
    # Rows that were given so close to 1 are the rounding of their own type, and may be handed on as they are.
    rounding = 1e-5 if p.dtype == np.float32 else 1e-9
    np.testing.assert_allclose(p.sum(axis=1, dtype=np.float64), 1, atol=rounding, rtol=0)
