"""Loops that tell how far they are."""

from mixnmatch._engine.steps import listening, steps


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
