"""Every map, on tables of every kind: a valid distribution or an error in words."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.running import answer, check_distribution, examples
from tests.fuzz.strategies import cases
from tests.maps.test_contracts import ALL, build

# Fits of many parameters or many stages: fewer cases.
SLOW = {"gpc": 0.1, "auto": 0.05, "bcts-auto": 0.05}
SLOW |= {"ensemble-beta": 0.3, "ensemble-platt": 0.3, "irm-normalised": 0.5, "iop": 0.3}
SHARE = 0.2 / sum(SLOW.get(name, 1) for name in ALL)


@pytest.mark.parametrize("name", ALL)
def test_fit_and_apply(name):
    share = SHARE * SLOW.get(name, 1)

    @examples(share, 6 if name in SLOW else 12)
    @given(data=st.data())
    def run(data):
        case = data.draw(cases())

        def call():
            return build(name).for_input(logits=case.logits).fit(case.scores, case.y, case.weight)

        fitted = answer(f"fit {name}", call)
        if fitted is None:
            return
        assert fitted.takes_logits == case.logits
        again = answer(f"apply {name}", lambda: fitted.predict_proba(case.scores))
        assert again is not None, "what was fitted to is not refused"
        check_distribution(again, fitted.n_classes_)
        other = data.draw(cases(fitted.n_classes_, logits=fitted.takes_logits))
        p = answer(f"apply {name}", lambda: fitted.predict_proba(other.scores))
        if p is not None:
            check_distribution(p, fitted.n_classes_)
            assert len(p) == len(other.scores)
            narrow = (
                isinstance(other.scores, np.ndarray) and other.scores.dtype.kind == "f" and other.scores.itemsize <= 4
            )
            assert p.dtype == (np.float32 if narrow else np.float64)

    run()
