"""Unknown names get the one that is probably meant, the same in Python and on the command line."""

import numpy as np
import pytest

import mixnmatch as mm
from mixnmatch._engine.suggestions import SYNONYMS, closest, did_you_mean
from mixnmatch.evaluation import estimators, evaluate
from mixnmatch.evaluation.notion import NOTIONS
from mixnmatch.maps.registry import METHODS
from mixnmatch.scorers import get_scorer


@pytest.mark.parametrize(
    "name, meant",
    [
        ("etz", "ets"),
        ("temperature", "ts"),
        ("temperature-scaling", "ts"),
        ("TemperatureScaling", "ts"),
        ("Temperature scaling", "ts"),
        ("ensemble_temperature_scaling", "ets"),
        ("platt-scaling", "platt"),
        ("sigmoid", "platt"),
        ("isotonic-regression", "isotonic"),
        ("IsotonicRegression", "isotonic"),
        ("vector-scaling", "vector"),
        ("histogram_binning", "histogram"),
        ("beta-calibration", "beta"),
        ("none", "identity"),
        ("vennabers", "venn-abers"),
        ("elephant", None),
        ("", None),
    ],
)
def test_methods(name, meant):
    assert closest(name, METHODS) == meant
    with pytest.raises(ValueError, match=f"Did you mean '{meant}'" if meant else "lists the methods"):
        mm.calibrator(name)


@pytest.mark.parametrize(
    "name, meant",
    [("ece", "histogram"), ("expected-calibration-error", "histogram"), ("smECE", "smooth"), ("hist", "histogram")],
)
def test_estimators(name, meant):
    with pytest.raises(ValueError, match=f"Did you mean '{meant}'"):
        estimators.estimator(name)


def test_other_names():
    sample = mm.load_sample()
    given = (sample.logits_cal[:100], sample.labels_cal[:100])
    with pytest.raises(ValueError, match="Did you mean 'log_loss'"):
        evaluate(*given, logits=True, metrics=("nll",))
    with pytest.raises(ValueError, match="Did you mean 'calibration_error'"):
        evaluate(*given, logits=True, metrics=("ece",))
    with pytest.raises(ValueError, match="Did you mean 'top-label'"):
        mm.calibration_error(*given, logits=True, notion="toplabel")
    with pytest.raises(ValueError, match="Did you mean 'class-wise'"):
        mm.evaluation.reliability_curve(*given, logits=True, notion="classwise", label=1)
    with pytest.raises(ValueError, match="Did you mean 'neg_calibration_error'"):
        get_scorer("ece")
    named = mm.calibrator("bcts", logits=True, classes=sample.class_names)
    fitted = named.fit(given[0], np.array(sample.class_names)[given[1]])
    with pytest.raises(ValueError, match="Did you mean 'airplane'"):
        fitted.adapt(priors={"aeroplane": 0.5})
    with pytest.raises(KeyError, match="Did you mean 'identity'"):
        mm.compare(*given, methods=["ts"], logits=True)["uncalibrated"]


def test_every_synonym_means_a_name_that_exists():
    from mixnmatch.cli.app import COMMANDS
    from mixnmatch.evaluation._evaluate import METRICS
    from mixnmatch.scorers import get_scorer_names

    known = {*METHODS, *estimators.ESTIMATORS, *METRICS, "calibration_error", *NOTIONS, *get_scorer_names(), "nll"}
    known |= set(COMMANDS)
    for synonym, meant in SYNONYMS.items():
        assert set(meant) <= known, synonym
        assert synonym not in METHODS


def test_the_question():
    assert did_you_mean("etz", ["ets"]) == ". Did you mean 'ets'?"
    assert did_you_mean("xyz", ["ets"]) == ""
