"""Numbers without exponents, and lines that fit a terminal."""

import math

import pytest

from mixnmatch._engine.text import WIDTH, significant, wrapped


@pytest.mark.parametrize(
    "value, digits, text",
    [
        (4540.0, 3, "4540"),
        (4537.6, 3, "4538"),
        (-4537.6, 3, "-4538"),
        (1234567, 6, "1234567"),
        (9999.7, 4, "10000"),
        (120.3, 2, "120"),
        (0.0123456, 3, "0.0123"),
        (12.34, 4, "12.34"),
        (0.0, 4, "0"),
        (-0.0, 4, "0"),
        (1e-7, 4, "1e-07"),
        (1e20, 4, "1e+20"),
        (math.inf, 4, "inf"),
        (math.nan, 4, "nan"),
    ],
)
def test_numbers(value, digits, text):
    assert significant(value, digits) == text


def test_signs():
    assert significant(4537.6, 3, sign=True) == "+4538"
    assert significant(0.5, sign=True) == "+0.5"


def test_no_result_has_an_exponent_for_a_large_number():
    import numpy as np

    import mixnmatch as mm
    from mixnmatch.decisions import cost_of_miscalibration

    sample = mm.load_sample()
    scores, labels = sample.logits_cal[:300], sample.labels_cal[:300]
    costs = 1e6 * (1 - np.eye(10))
    found = cost_of_miscalibration(scores, labels, costs, logits=True)
    assert "e+" not in str(found)
    weight = np.full(300, 5000)
    error = mm.calibration_error(scores, labels, logits=True, sample_weight=weight)
    assert "n = 1500000," in repr(error)
    assert "n = 300 " in error.advice


def test_prose_is_wrapped_and_tables_are_not():
    prose = "  " + "word " * 30
    lines = wrapped(f"short\n{prose}").split("\n")
    assert lines[0] == "short"
    assert max(map(len, lines)) <= WIDTH
    assert lines[1].startswith("  word")
    assert lines[2].startswith("    word")
    row = "a  b".ljust(100, "x")
    assert wrapped(row) == row
    path = "/".join(["folder"] * 20)
    assert path in wrapped(f"{path}: no such file")
