"""Settings of every kind for every map and measure: taken, or refused in words."""

import inspect
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mixnmatch as mm
from mixnmatch.evaluation.estimators import ESTIMATORS
from tests.conftest import make_problem, softmax
from tests.fuzz.running import answer, check_distribution, examples
from tests.maps.test_contracts import NAMES, build

VALUES = (
    None,
    True,
    False,
    0,
    1,
    2,
    3,
    -1,
    7.5,
    0.5,
    1e-300,
    1e300,
    math.nan,
    math.inf,
    -math.inf,
    10**9,
    10**30,
    "",
    "nll",
    "foo",
    "sturges",
    b"x",
    [],
    [1],
    (0.0, 0.5, 1.0),
    {},
    {"a": 1},
    object,
    np.float32(0.5),
    np.int8(2),
)
LOGITS, Y = make_problem(30, 3, seed=1)
P = softmax(LOGITS)
# Parts of a map are maps; what is put there instead of one is the business of the maps' own tests.
PARTS = ("map", "first", "second", "methods", "candidates")

# Options are drawn without a look at the scores: probabilities read as logits are part of it.
pytestmark = pytest.mark.filterwarnings("ignore::mixnmatch._engine.errors.InputWarning")


@pytest.mark.parametrize("name", NAMES)
def test_maps(name):
    settings = sorted(key for key in build(name).get_params() if key.split("__")[-1] not in PARTS)

    @examples(0.03 / len(NAMES), 4 if name in ("auto", "bcts-auto", "gpc") else 12)
    @given(st.sampled_from(settings), st.sampled_from(VALUES))
    def run(key, value):
        def call():
            return build(name).set_params(**{key: value}).fit(P if key != "logits" else LOGITS, Y)

        fitted = answer(f"setting of {name}", call)
        if fitted is not None:
            check_distribution(fitted.predict_proba(P), 3)

    run()


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_calibration_error(estimator):
    keys = ["notion", "norm", "root", "bins", "binning", "bandwidth", "kernel", "average", "confidence", "clusters"]

    @examples(0.02 / len(ESTIMATORS), 20)
    @given(st.dictionaries(st.sampled_from([*keys, "random_state", "classes"]), st.sampled_from(VALUES), max_size=2))
    def run(options):
        canonical = {"notion": "canonical"} if estimator in ("dirichlet", "skce") else {}

        def call():
            return mm.calibration_error(P, Y, estimator=estimator, **{**canonical, **options})

        error = answer(f"option of {estimator}", call)
        assert error is None or np.isfinite(error)

    run()


CURVE = tuple(
    k
    for k in inspect.signature(mm.evaluation.reliability_curve).parameters
    if k not in ("scores", "y", "sample_weight")
)


@examples(0.02, 60)
@given(st.dictionaries(st.sampled_from(CURVE), st.sampled_from(VALUES), max_size=2))
def test_reliability_curve(options):
    curve = answer("option of reliability_curve", lambda: mm.evaluation.reliability_curve(P, Y, **options))
    assert curve is None or np.isfinite(curve.value).all()
