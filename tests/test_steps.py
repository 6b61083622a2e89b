"""Loops that tell how far they are."""

import logging
import re

import pytest

from mixnmatch import calibrator
from mixnmatch._engine import fitting
from mixnmatch._engine.steps import listening, steps
from mixnmatch.cli.display import _LastMessage
from mixnmatch.evaluation import log_loss
from tests.conftest import make_problem


def test_a_listener_hears_of_every_step():
    told = []
    with listening(lambda *step: told.append(step)):
        assert list(steps("ab", "letters")) == ["a", "b"]
        with listening(None):
            list(steps("c", "more"))
    assert list(steps("d", "after")) == ["d"]
    assert told == [(0, 2, "letters"), (1, 2, "letters"), (2, 2, "letters")]


def test_resampled_intervals_tell():
    import numpy as np

    import mixnmatch as mm

    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 200)
    y = (p.cumsum(axis=1) < rng.random((200, 1))).sum(axis=1)
    told = []
    with listening(lambda *step: told.append(step)):
        heard = mm.calibration_error(p, y, notion="canonical", estimator="dirichlet", interval=True)
    assert {what for *_, what in told} == {"testing", "interval"}
    assert all(done <= total for done, total, _ in told)
    assert (
        heard.interval == mm.calibration_error(p, y, notion="canonical", estimator="dirichlet", interval=True).interval
    )


@pytest.mark.parametrize("name", ["vector", "ts", "irm", "keep-sms", "auto"])
def test_long_fits_say_how_far_they_are(name, caplog, monkeypatch):
    logits, labels = make_problem(200, 4, seed=1)
    quiet, told = calibrator(name, logits=True), calibrator(name, logits=True)
    with caplog.at_level(logging.INFO, logger="mixnmatch"):
        quiet.fit(logits, labels)
        assert not caplog.messages  # this takes less than two seconds
        monkeypatch.setattr(fitting, "EVERY", 0.0)
        told.fit(logits, labels)
    *parts, last = caplog.messages
    outer = type(told).__name__
    passes = [int(re.fullmatch(rf"{outer}(?: > \w+)*: 0 s, (\d+) passes .*", part)[1]) for part in parts]
    assert passes == list(range(1, len(parts) + 1))
    assert re.fullmatch(rf"{outer}: fitted in 0 s, {len(parts)} passes over the samples.*", last)
    if name == "vector":
        least = float(re.search("penalised loss (.*)", last)[1])
        assert told.loss_ <= least < log_loss(logits, labels, logits=True)
    assert (told.predict_proba(logits) == quiet.predict_proba(logits)).all()


def fail():
    fitting.count_pass()
    raise ZeroDivisionError


def test_a_failed_fit_leaves_nothing_behind(caplog, monkeypatch):
    monkeypatch.setattr(fitting, "EVERY", 0.0)
    with caplog.at_level(logging.INFO, logger="mixnmatch"):
        with fitting.fitting("Outer"):
            with pytest.raises(ZeroDivisionError), fitting.fitting("Inner"):
                fail()
            fitting.count_pass()
        fitting.count_pass()  # of no fit
        fitting.note_loss(1.0)
    before, after, last = (message.split(":")[0] for message in caplog.messages)
    assert (before, after, last) == ("Outer > Inner", "Outer", "Outer")


def test_a_display_keeps_the_last_message_and_restores_the_logger():
    messages, logger = _LastMessage(), logging.getLogger("mixnmatch")
    before = logger.level, list(logger.handlers)
    with messages.heard():
        logger.info("%d passes", 1)
        logger.info("%d passes", 2)
    logger.info("3 passes")
    assert messages.text == "2 passes"
    assert (logger.level, logger.handlers) == before
