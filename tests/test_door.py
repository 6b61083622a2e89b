import threading

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import mixnmatch
from mixnmatch import Rows, calibration_error, calibrator, engine, rows
from mixnmatch._engine import scores as scores_module
from mixnmatch._engine.kernels import choose_backend
from mixnmatch.evaluation import evaluate
from tests.conftest import make_problem, softmax

NAMES = np.array(["cat", "dog", "fox"])


@pytest.fixture
def three():
    logits, y = make_problem(300, 3, seed=5)
    return softmax(logits), y


@pytest.fixture
def two():
    rng = np.random.default_rng(1)
    p = rng.beta(1, 4, 500)
    return p, (rng.random(500) < p**1.5).astype(int)


@pytest.fixture
def count_checks(monkeypatch):
    """How often a whole table is checked."""
    seen = []
    check = scores_module._checked

    def counting(table, *args):
        seen.append(table.n_rows)
        return check(table, *args)

    monkeypatch.setattr(scores_module, "_checked", counting)
    return seen


def test_rows_hold_what_was_given_and_cannot_be_changed(three):
    p, y = three
    given = rows(p, NAMES[y], np.full(300, 2.0), classes=NAMES)
    assert (given.n_rows, given.n_classes, given.form, given.backend) == (300, 3, "probabilities", choose_backend())
    assert_array_equal(given.labels, y)
    assert_array_equal(given.classes, NAMES)
    assert repr(given) == "<Rows: 300 samples, 3 classes, probabilities, with labels, with weights>"
    with pytest.raises(AttributeError):
        given.labels = None
    assert rows(given) is given


def test_rows_take_the_place_of_arrays_everywhere(three):
    p, y = three
    given = rows(p, y)
    fitted = calibrator("ets").fit(given)
    assert_array_equal(fitted.predict_proba(given), calibrator("ets").fit(p, y).predict_proba(p))
    assert calibration_error(given) == calibration_error(p, y)
    for metric in (mixnmatch.evaluation.brier_score, mixnmatch.evaluation.log_loss, mixnmatch.evaluation.accuracy):
        assert metric(given) == metric(p, y)


def test_nothing_can_be_added_to_rows(three):
    p, y = three
    given = rows(p, y)
    with pytest.raises(ValueError, match="these are Rows already"):
        calibration_error(given, y)
    with pytest.raises(ValueError, match="hold probabilities"):
        calibration_error(given, logits=True)
    with pytest.raises(ValueError, match="make the map with logits=False"):
        calibrator("ts", logits=True).fit(given)
    with pytest.raises(ValueError, match="labels are needed"):
        calibrator("ts").fit(rows(p))


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_columns_of_a_frame_are_matched_by_name(three, frame):
    p, y = three
    plain = calibrator("vector").fit(p, y)
    swapped = frame({"prob_fox": p[:, 2], "prob_cat": p[:, 0], "prob_dog": p[:, 1]})
    fitted = calibrator("vector").fit(swapped, NAMES[y])
    assert fitted.classes_.tolist() == ["fox", "cat", "dog"]
    assert_allclose(fitted.predict_proba(swapped), plain.predict_proba(p)[:, [2, 0, 1]], atol=1e-6)
    straight = frame({"prob_cat": p[:, 0], "prob_dog": p[:, 1], "prob_fox": p[:, 2]})
    assert_array_equal(fitted.predict_proba(straight), fitted.predict_proba(swapped))
    named = calibrator("vector", classes=NAMES).fit(swapped, NAMES[y])
    assert named.classes_.tolist() == NAMES.tolist()
    assert_allclose(named.predict_proba(swapped), plain.predict_proba(p), atol=1e-6)


def test_a_saved_map_matches_columns_too(three, tmp_path):
    p, y = three
    frame = pd.DataFrame(p, columns=["a", "b", "c"])
    fitted = calibrator("ts").fit(frame, y)  # labels are positions, columns are names
    assert fitted.classes_.tolist() == [0, 1, 2]
    fitted.save(tmp_path / "map.json")
    loaded = mixnmatch.load(tmp_path / "map.json")
    assert_array_equal(loaded.predict_proba(frame[["c", "a", "b"]]), fitted.predict_proba(frame))
    with pytest.raises(ValueError, match="but the map was fitted with"):
        loaded.predict_proba(frame.rename(columns={"a": "d"}))


def test_numbered_columns_are_matched_by_number(three):
    p, y = three
    swapped = pd.DataFrame({"p2": p[:, 2], "p0": p[:, 0], "p1": p[:, 1]})
    given = rows(swapped, y)
    assert given.classes.tolist() == [2, 0, 1]
    assert float(mixnmatch.evaluation.accuracy(given)) == float(mixnmatch.evaluation.accuracy(p, y))


def test_frames_that_do_not_fit_are_refused(three):
    p, y = three
    frame = pd.DataFrame(p, columns=NAMES)
    with pytest.raises(ValueError, match="are not among the columns"):
        rows(frame, np.array(["cat", "cow", "fox"])[y])
    with pytest.raises(ValueError, match="looks like a row number"):
        rows(frame.assign(id=np.arange(300)), NAMES[y])
    with pytest.raises(ValueError, match=r"columns \['name'\] of the scores are not numbers"):
        rows(frame.assign(name="x"), NAMES[y])
    with pytest.raises(ValueError, match="are not the classes"):
        rows(frame, y, classes=["cat", "dog", "wolf"])


def test_misaligned_indexes_are_an_error(three):
    p, y = three
    frame = pd.DataFrame(p, columns=NAMES)
    shuffled = pd.Series(NAMES[y]).sample(frac=1, random_state=0)
    with pytest.raises(ValueError, match=r"different indexes.*loc\[scores.index\]"):
        rows(frame, shuffled)
    assert_array_equal(rows(frame, shuffled.loc[frame.index]).labels, y)
    assert_array_equal(rows(frame, shuffled.to_numpy()).labels, NAMES.searchsorted(shuffled))
    with pytest.raises(ValueError, match="sample_weight have different indexes"):
        rows(frame, NAMES[y], pd.Series(np.ones(300), index=np.arange(300)[::-1]))


def test_text_labels_of_a_vector_need_the_positive_class(two):
    p, y = two
    text = np.where(y == 1, "bad", "good")  # the positive class sorts first
    with pytest.raises(ValueError, match="positive="):
        calibrator("beta").fit(p, text)
    fitted = calibrator("beta").fit(p, text, positive="bad")
    assert fitted.classes_.tolist() == ["good", "bad"]
    assert_array_equal(fitted.predict_proba(p), calibrator("beta").fit(p, y).predict_proba(p))
    by_name = calibrator("beta").fit(pd.Series(p, name="bad"), text)
    assert by_name.classes_.tolist() == ["good", "bad"]
    one_column = calibrator("beta").fit(pd.DataFrame({"bad": p}), text)
    assert_array_equal(one_column.predict_proba(pd.DataFrame({"bad": p})), fitted.predict_proba(p))
    with pytest.raises(ValueError, match="not two classes"):
        rows(p, text, positive="ugly")


def test_labels_of_minus_one_and_one(two):
    p, y = two
    signs = 2 * y - 1
    assert rows(p, signs).classes.tolist() == [-1, 1]
    assert_array_equal(rows(np.c_[1 - p, p], signs).labels, y)


@pytest.mark.parametrize(
    "classes", [np.array(NAMES, dtype=object), pd.Index(NAMES), pd.Series(NAMES), NAMES.tolist(), tuple(NAMES)]
)
def test_classes_may_come_as_objects(three, classes):
    p, y = three
    given = rows(p, pd.Series(NAMES[y], dtype=object), classes=classes)
    assert_array_equal(given.labels, y)
    assert given.classes.dtype.kind == "U"


def test_labels_as_objects_and_categories(three):
    p, y = three
    assert_array_equal(rows(p, pd.Series(y, dtype=object)).labels, y)
    assert_array_equal(rows(p, pd.Series(y, dtype="Int64")).labels, y)
    assert_array_equal(rows(p, pd.Categorical(NAMES[y])).labels, y)
    with pytest.raises(ValueError, match="all text or all whole numbers"):
        rows(p, pd.Series([None, *NAMES[y][1:]], dtype=object))


def test_digit_strings_sort_as_in_scikit_learn():
    p = np.full((3, 3), 1 / 3)
    assert rows(p, ["10", "2", "1"]).classes.tolist() == ["1", "10", "2"]


def test_a_vector_and_two_columns_are_one_problem(two):
    p, y = two
    both = np.c_[1 - p, p]
    for options in ({}, {"notion": "top-label"}, {"estimator": "histogram"}, {"interval": True}):
        one, other = calibration_error(p, y, **options), calibration_error(both, y, **options)
        assert one.notion == other.notion
        assert float(one) == pytest.approx(float(other), abs=1e-12)
    assert calibration_error(both, y).notion == "binary"
    assert (
        mixnmatch.evaluation.reliability_curve(p, y).problem == mixnmatch.evaluation.reliability_curve(both, y).problem
    )
    a, b = calibrator("beta").fit(p, y), calibrator("beta").fit(both, y)
    assert_allclose(a.predict_proba(p), b.predict_proba(both), atol=1e-12)


def test_each_table_is_checked_once(three, count_checks):
    p, y = three
    given = rows(p, y)
    fitted = calibrator("irm-ets").fit(given)
    fitted.predict_proba(given)
    evaluate(given, map=fitted)
    calibration_error(given, interval=True)
    assert count_checks == [300]
    calibrator("auto").fit(given)
    assert count_checks == [300]


def test_settings_of_the_engine_hold_on_worker_threads(three):
    p, y = three
    seen = set()
    both = threading.Barrier(2)

    def statistic(block):
        from mixnmatch._engine.passes import asked_backend, available_threads

        if block.index[0] < 2:  # the first two blocks wait for each other, so that two threads are at work
            both.wait(timeout=60)
        seen.add((threading.current_thread().name, asked_backend(), available_threads()))
        return 0.0

    with engine(backend="numpy", threads=2, block_bytes=1):
        rows(p, y).total(statistic)
    assert len({name for name, *_ in seen}) > 1
    assert {(backend, threads) for _, backend, threads in seen} == {("numpy", 2)}


def test_a_prediction_during_a_fit_sees_one_map(three):
    p, y = three
    fitted = calibrator("ets").fit(p, y)
    one = fitted.predict_proba(p)
    frozen = fitted._snapshot()
    fitted.fit(p, (y + 1) % 3)
    assert_array_equal(frozen.predict_proba(p), one)
    assert not np.array_equal(fitted.predict_proba(p), one)


def test_every_map_says_which_kernels_fitted_it(two):
    p, y = two
    for name in ("identity", "beta", "isotonic", "irova-ts", "iop"):
        assert calibrator(name).fit(p, y).backend_ == choose_backend()
    with engine(backend="numpy"):
        assert calibrator("ts").fit(p, y).backend_ == "numpy"
    assert isinstance(rows(p, y), Rows)


def test_the_positive_class_of_a_frame_becomes_the_second_column():
    p = np.array([0.1, 0.8, 0.3])
    frame = pd.DataFrame({"fraud": p, "genuine": 1 - p})
    given = rows(frame, ["genuine", "fraud", "genuine"], positive="fraud")
    assert given.positive == "fraud"
    assert given.columns.tolist() == ["genuine", "fraud"]
    assert_array_equal(given.scores.values, np.stack([1 - p, p], axis=1))
    assert given.labels.tolist() == [0, 1, 0]
    evaluation = mixnmatch.evaluate(frame, ["genuine", "fraud", "genuine"], positive="fraud", interval=False)
    assert float(evaluation["base_rate"]) == pytest.approx(1 / 3)
    assert evaluation.positive == "fraud"
    assert "positive class fraud" in str(evaluation)


@pytest.mark.parametrize("what", ["groups", "clusters"])
@pytest.mark.parametrize(
    "values",
    [
        pd.Series([1.0, np.nan, 2.0]),
        pd.Series([1, None, 2], dtype="Int64"),
        pd.Series(pd.to_datetime(["2026-01-01", None, "2026-01-03"])),
    ],
    ids=["float", "Int64", "dates"],
)
def test_missing_groups_are_refused_in_words(what, values):
    with pytest.raises(ValueError, match=f"{what}: row 1 has no value .*drop or fill missing"):
        evaluate([0.2, 0.3, 0.9], [0, 1, 1], **{what: values})


def test_groups_of_intervals_are_to_be_converted_to_text():
    groups = pd.cut(pd.Series([1.0, 2.0, 3.0]), 2)
    with pytest.raises(ValueError, match=r"groups must be .*, got Interval; convert them with \.astype\(str\)"):
        evaluate([0.2, 0.3, 0.9], [0, 1, 1], groups=groups)


def test_a_metric_can_be_asked_for_by_its_name_alone():
    assert list(evaluate([0.2, 0.3, 0.9], [0, 1, 1], metrics="log_loss")) == ["log_loss"]
