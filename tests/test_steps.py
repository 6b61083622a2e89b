"""Loops that tell how far they are."""

import logging
import os
import re

import pytest

from mixnmatch import calibrator
from mixnmatch._engine import fitting
from mixnmatch._engine.steps import listening, steps
from mixnmatch.cli import display
from mixnmatch.cli.display import _LastMessage
from mixnmatch.evaluation import log_loss
from tests.conftest import make_problem, softmax


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


@pytest.mark.parametrize("name", ["vector", "ts", "irm", "keep-sms", "auto", "gpc", "venn-abers", "bbq"])
def test_long_fits_report_progress(name, caplog, monkeypatch):
    logits, labels = make_problem(200, 4, seed=1)
    scores = softmax(logits) if name == "bbq" else logits  # which it reads without making a block of them
    quiet, told = (calibrator(name, logits=scores is logits) for _ in range(2))
    with caplog.at_level(logging.INFO, logger="mixnmatch"):
        monkeypatch.setattr(fitting, "SECONDS_BETWEEN_MESSAGES", 1e9)
        quiet.fit(scores, labels)
        assert not caplog.messages
        monkeypatch.setattr(fitting, "SECONDS_BETWEEN_MESSAGES", 0.0)
        told.fit(scores, labels)
    *parts, last = caplog.messages
    outer, rest = type(told).__name__, r"(\d+) pass(?:es)? over the samples in \d+ s(?:, loss (.*))?"
    seen = [re.fullmatch(rf"{outer}(?: > \w+)*: {rest}", part) for part in parts]
    assert [int(one[1]) for one in seen] == list(range(1, len(parts) + 1))
    end = re.fullmatch(rf"{outer} fitted: {rest}", last)
    assert int(end[1]) == len(parts)
    if name == "vector":
        assert float(end[2]) == pytest.approx(told.loss_, rel=0.05)
        assert told.loss_ < log_loss(logits, labels, logits=True)
    if name == "gpc":
        assert 0 < float(end[2]) < 2  # a mean, not a sum
    assert (told.predict_proba(scores) == quiet.predict_proba(scores)).all()


def test_losses_are_those_of_the_map_that_is_named(caplog, monkeypatch):
    monkeypatch.setattr(fitting, "SECONDS_BETWEEN_MESSAGES", 0.0)
    with caplog.at_level(logging.INFO, logger="mixnmatch"), fitting.fitting("Outer"):
        with fitting.fitting("First"):
            fitting.note_loss(0.5)
            fitting.count_pass()
        with fitting.fitting("Second"):
            fitting.count_pass()
    assert [message.rpartition(" s")[2] for message in caplog.messages] == [", loss 0.5", "", ""]


def fail():
    fitting.count_pass()
    raise ZeroDivisionError


def test_a_failed_fit_leaves_nothing_behind(caplog, monkeypatch):
    monkeypatch.setattr(fitting, "SECONDS_BETWEEN_MESSAGES", 0.0)
    with caplog.at_level(logging.INFO, logger="mixnmatch"):
        with fitting.fitting("Outer"):
            with pytest.raises(ZeroDivisionError), fitting.fitting("Inner"):
                fail()
            fitting.count_pass()
        fitting.count_pass()  # of no fit
        fitting.note_loss(1.0)
    assert [message.split(":")[0] for message in caplog.messages] == ["Outer > Inner", "Outer", "Outer fitted"]


@pytest.mark.parametrize("level", [logging.NOTSET, logging.DEBUG, logging.WARNING])
def test_a_display_keeps_the_last_message_and_restores_the_logger(level):
    messages, logger = _LastMessage(), logging.getLogger("mixnmatch")
    before = logger.level, list(logger.handlers)
    try:
        logger.setLevel(level)
        with messages.listening():
            assert logger.level == min(level or logging.INFO, logging.INFO)
            logger.info("%d passes", 1)
            logger.info("%d passes over the samples in 2 s", 2)
        logger.error("3 passes")
        assert messages.text == "2 passes in 2 s"
        assert (logger.level, logger.handlers) == (level, before[1])
    finally:
        logger.setLevel(before[0])


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_the_line_of_a_long_fit_fits_the_terminal(columns, monkeypatch):
    monkeypatch.setattr(display.shutil, "get_terminal_size", lambda: os.terminal_size((columns, 24)))
    long, short = "Auto > StructuredMatrixScaling: 131 passes over the samples in 12 s, loss 4.86387", ""
    line = display.progress_line("Fitting", 14.2, long)
    assert len(line) <= columns - 1
    assert line.startswith("Fitting: 14 s")
    assert ("131 passes" in line) == (columns >= 80)
    assert ("loss 4.86387" in line) == (columns >= 200)
    assert display.progress_line("Fitting", 3.0, short) == "Fitting: 3 s"
