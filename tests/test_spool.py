import os
import tempfile

import numpy as np
import pandas as pd
import pytest

import mixnmatch as mm
from mixnmatch._engine.spool import spool


def batches_of(table, *others, size=7):
    for start in range(0, len(table), size):
        yield tuple(values[start : start + size] for values in (table, *others))


def some_rows(n=40, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, classes)).astype(np.float32)
    return logits, rng.integers(classes, size=n), rng.integers(1, 4, size=n).astype(float)


def test_batches_come_back_as_arrays():
    scores, labels, weight = some_rows()
    with spool(batches_of(scores, labels, weight)) as rows:
        assert isinstance(rows.scores, np.memmap)
        assert rows.scores.dtype == np.float32
        np.testing.assert_array_equal(rows.scores, scores)
        np.testing.assert_array_equal(rows.labels, labels)
        np.testing.assert_array_equal(rows.weight, weight)


def test_vectors_names_and_no_weights():
    scores, labels = np.linspace(0, 1, 20), np.array(["no", "yes"] * 10)
    with spool(batches_of(scores, labels)) as rows:
        np.testing.assert_array_equal(rows.scores, scores)
        assert rows.labels.tolist() == labels.tolist()
        assert rows.weight is None


def test_labels_may_be_absent_and_batches_empty():
    scores, _, _ = some_rows()
    with spool([(scores[:0], None), (scores, None), (scores[:0], None)]) as rows:
        assert rows.labels is None
        np.testing.assert_array_equal(rows.scores, scores)


def test_whole_numbers_and_the_other_order_in_memory():
    table = np.arange(12).reshape(3, 4).T
    with spool([(table, np.zeros(4))]) as rows:
        assert rows.scores.dtype == np.float64
        np.testing.assert_array_equal(rows.scores, table)


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_left_behind(tmp_path, fails):
    scores, labels, _ = some_rows()

    def batches():
        yield scores, labels
        # While batches come in, the file takes room in the directory asked for but has no name in it.
        assert os.listdir(tmp_path) == [] or os.name == "nt"
        if fails:
            msg = "the model broke"
            raise RuntimeError(msg)

    if fails:
        with pytest.raises(RuntimeError, match="broke"), spool(batches(), directory=tmp_path):
            pass
    else:
        with spool(batches(), directory=tmp_path) as rows:
            assert len(rows.scores) == len(scores)
    assert os.listdir(tmp_path) == []


def test_the_directory_is_used(tmp_path):
    scores, labels, _ = some_rows()
    with pytest.raises(OSError, match="missing"), spool([(scores, labels)], directory=tmp_path / "missing"):
        pass


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (lambda s, y, w: (s[:, :2], y, w), r"batch 1 has scores of shape \(40, 2\)"),
        (lambda s, y, w: (s, y[:-1], w), r"batch 1 has labels of shape \(39,\) for 40 rows"),
        (lambda s, y, w: (s, y), "all batches have weights or none, but batch 1"),
        (lambda s, y, w: s, r"batch 1 is not \(scores, labels\)"),
        (lambda s, y, w: (s.astype(str), y, w), "batch 1 must have numbers"),
        (lambda s, y, w: (s[None], y, w), "batch 1 must have numbers"),
    ],
)
def test_batches_that_do_not_fit_are_named(second, message):
    rows = some_rows()
    with pytest.raises(ValueError, match=message), spool([rows, second(*rows)]):
        pass


def test_no_rows():
    for batches in ([], [(np.zeros((0, 3)), np.zeros(0))]):
        with pytest.raises(ValueError, match="no rows"), spool(batches):
            pass


@pytest.mark.parametrize("name", ["ts", "irm-ets"])
def test_a_map_fitted_on_batches_is_the_one_fitted_on_arrays(name):
    scores, labels, weight = some_rows(300)
    made = mm.calibrator(name, logits=True)
    whole = made.fit(scores, labels, weight).predict_proba(scores)
    batched = made.fit_batches(batches_of(scores, labels, weight)).predict_proba(scores)
    np.testing.assert_array_equal(batched, whole)


def test_batches_are_read_once():
    scores, labels, _ = some_rows(300)
    read = []

    def batches():
        for start in range(0, 300, 50):
            read.append(start)
            yield scores[start : start + 50], labels[start : start + 50]

    mm.TemperatureScaling(logits=True).fit_batches(batches())
    assert read == list(range(0, 300, 50))


def test_tensors_and_a_data_loader():
    torch = pytest.importorskip("torch")
    scores, labels, _ = some_rows(200)
    data = torch.utils.data.TensorDataset(torch.tensor(scores, requires_grad=True), torch.tensor(labels))
    expected = mm.TemperatureScaling(logits=True).fit(scores, labels).temperature_
    for loader in (torch.utils.data.DataLoader(data, batch_size=32), iter([data[:]])):
        found = mm.TemperatureScaling(logits=True).fit_batches(loader)
        assert found.temperature_ == expected
    half = ((x.detach().bfloat16(), y) for x, y in torch.utils.data.DataLoader(data, batch_size=32))
    assert mm.TemperatureScaling(logits=True).fit_batches(half).temperature_ == pytest.approx(expected, rel=0.05)


def test_memory_stays_small():
    import tracemalloc

    rng = np.random.default_rng(0)

    def batches():
        for _ in range(64):
            yield rng.normal(size=(1000, 100)).astype(np.float32), rng.integers(100, size=1000)

    tracemalloc.start()
    try:
        with spool(batches(), directory=tempfile.gettempdir()) as rows:
            assert rows.scores.nbytes == 64 * 1000 * 100 * 4
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < rows.scores.nbytes / 5


FRAUD = np.random.default_rng(0).random(400) ** 3
FRAME = pd.DataFrame({"genuine": 1 - FRAUD, "fraud": FRAUD})
NAMES = pd.Series(np.where(np.random.default_rng(1).random(400) < FRAUD, "fraud", "genuine"))


@pytest.mark.parametrize("classes", [None, ["fraud", "genuine"], ["genuine", "fraud"]])
def test_frames_of_batches_are_matched_by_name(classes):
    batches = [(FRAME[:150], NAMES[:150]), (FRAME[["fraud", "genuine"]][150:], NAMES[150:])]
    fitted = mm.calibrator("platt", classes=classes).fit_batches(batches)
    whole = mm.calibrator("platt", classes=classes).fit(FRAME, NAMES)
    assert fitted.classes_.tolist() == whole.classes_.tolist()
    np.testing.assert_allclose(fitted.predict_proba(FRAME), whole.predict_proba(FRAME), rtol=1e-9)


def test_series_of_batches_are_about_the_class_that_they_are_called_like():
    fitted = mm.calibrator("platt").fit_batches([(FRAME["fraud"][:150], NAMES[:150]), (FRAME.fraud[150:], NAMES[150:])])
    whole = mm.calibrator("platt").fit(FRAME["fraud"], NAMES)
    np.testing.assert_allclose(fitted.predict_proba(FRAUD), whole.predict_proba(FRAUD), rtol=1e-9)
    assert fitted.classes_.tolist() == ["genuine", "fraud"]


@pytest.mark.parametrize(
    "second, message",
    [
        ((FRAME[150:], NAMES[150:][::-1]), "batch 1: scores and labels have different indexes"),
        ((FRAME[150:].rename(columns={"fraud": "Fraud"}), NAMES[150:]), r"batch 1 has .* 'Fraud'\], but those before"),
        ((FRAME[150:].to_numpy(), NAMES[150:]), r"batch 1 has scores with the columns None, but"),
    ],
)
def test_batches_whose_names_do_not_fit_are_refused(second, message):
    with pytest.raises(ValueError, match=message):
        mm.calibrator("platt").fit_batches([(FRAME[:150], NAMES[:150]), second])
