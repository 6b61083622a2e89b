import numpy as np
import pytest

from mixnmatch._engine import door
from mixnmatch.maps.registry import METHODS
from mixnmatch.selection.methods import (
    MANY_CLASSES,
    SIMPLICITY,
    TWO_CLASSES,
    check_labels,
    default_methods,
    simplicity,
    too_few,
)


def test_every_short_name_has_its_place_in_the_order():
    assert len(set(SIMPLICITY)) == len(SIMPLICITY)
    assert set(SIMPLICITY) <= set(METHODS)
    assert {*MANY_CLASSES, *TWO_CLASSES} <= set(METHODS)


def test_two_classes_are_tried_with_an_intercept():
    assert {"platt", "beta", "isotonic", "auto"} <= set(TWO_CLASSES)


def test_simpler_ones_come_first():
    assert simplicity(["auto", "A >> B", "sms", "ts"], 5) == ["ts", "sms", "A >> B", "auto"]
    assert simplicity(["beta", "ets", "platt", "ts"], 2) == ["ts", "platt", "ets", "beta"]
    assert simplicity(["beta", "ets", "platt", "ts"], 3) == ["ts", "ets", "platt", "beta"]


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        ([30, 33], "63"),
        ([32, 32], ""),
        ([991, 9], "9 of 1000"),
        ([990, 10], ""),
        ([0, 5, 5, 990], ""),
        ([995, 0, 5], "5 of"),
    ],
)
def test_too_few_samples(counts, reason):
    found = too_few(np.array(counts, dtype=float))
    assert reason in found
    assert bool(found) == bool(reason)


def test_defaults_depend_on_the_size():
    def names(n, n_classes):
        return default_methods(door.rows(np.zeros((n, n_classes)), np.arange(n) % n_classes, logits=True))[0]

    assert names(40, 3) == ["identity", "ts"]
    assert names(40, 2) == ["identity", "auto"]
    assert "sms" not in names(300, 201)
    assert "auto" in names(300, 201)
    assert "auto" not in names(50_000, 10)
    assert "auto" in names(300_000, 2)


def test_one_class_is_named():
    source = door.rows(np.zeros((5, 2)), ["b"] * 5, logits=True, classes=["a", "b"])
    with pytest.raises(ValueError, match=r"labels: all samples are of class 'b'; .* at least two classes"):
        check_labels(source)
