import numpy as np
import pytest
import scipy.sparse

import mixnmatch as mm
from mixnmatch._engine.labels import read_labels
from mixnmatch._engine.scores import read_scores
from mixnmatch._engine.weights import read_weight


@pytest.mark.parametrize(
    "scores, message",
    [
        ([[0.5, np.nan]], "row 0 .* NaN"),
        ([[0.5, 0.5], [0.5, np.inf]], "row 1 .* infinity"),
        ([[0.5, 0.5], [-0.1, 1.1]], "row 1 .* negative.*logits=True"),
        ([[0.5, 0.5], [0.6, 0.6]], "row 1 .* sums to 1.2.*logits=True"),
        ([[30.0, 70.0], [5.0, 95.0]], "row 0 .* sums to 100.*divide them by 100"),
        ([0.2, 1.5], "row 1 .* not a probability.*logits=True"),
        ([[0.5], [0.5]], "1 column"),
        ([], "empty"),
        (np.zeros((0, 3)), "empty"),
        (np.zeros((3, 0)), "empty"),
        (np.zeros((2, 2, 2)), "shape"),
        (0.5, "shape"),
        ([["a", "b"]], "real numbers"),
        (np.array([[0.5, None]], dtype=object), "real numbers"),
        ([[0.5, 0.5], [1.0]], "different lengths"),
        (np.array([[0.5 + 0j, 0.5]]), "real numbers"),
        (np.array([[True, False]]), "real numbers"),
        (scipy.sparse.csr_array(np.eye(2)), r"got a csr_array; pass scores\.toarray\(\)"),
        (None, "got a NoneType"),
    ],
)
def test_bad_scores_are_refused_with_the_reason(scores, message):
    with pytest.raises(ValueError, match=message):
        read_scores(scores)


def test_masked_arrays_are_refused():
    with pytest.raises(TypeError, match="masked"):
        read_scores(np.ma.masked_array([[0.5, 0.5]], mask=[[True, False]]))


def test_infinite_logits_are_refused_and_huge_ones_taken():
    with pytest.raises(ValueError, match="row 1"):
        read_scores([[0.0, 1.0], [np.inf, 0.0]], logits=True)
    assert read_scores([[1e300, -1e300]], logits=True).n_classes == 2


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64, np.uint8, ">f4", ">f8", np.longdouble])
@pytest.mark.parametrize("order", ["C", "F"])
def test_types_strides_and_byte_orders(dtype, order):
    values = np.asarray([[1, 0, 0], [0, 1, 0]], dtype=dtype, order=order)
    table = read_scores(values)
    assert table.dtype == (np.float32 if np.dtype(dtype).kind == "f" and np.dtype(dtype).itemsize <= 4 else np.float64)
    np.testing.assert_array_equal(table.read(0, 2), [[1, 0, 0], [0, 1, 0]])
    np.testing.assert_array_equal(read_scores(values[::-1, ::-1]).read(0, 2), [[0, 1, 0], [0, 0, 1]])


def test_rows_slightly_off_are_marked_for_renormalising():
    assert read_scores(np.array([[0.50004, 0.5]])).off_simplex
    assert not read_scores(np.array([[0.5, 0.5]])).off_simplex
    assert not read_scores(np.array([[0.3, 0.7]], dtype=np.float32)).off_simplex
    with pytest.raises(ValueError, match="sums to"):
        read_scores(np.array([[0.5, 0.503]]))


@pytest.mark.parametrize("n_classes", [2, 3, 10, 40, 300])
@pytest.mark.parametrize("decimals", [3, 4])
@pytest.mark.parametrize("cut", [np.round, lambda p, d: np.floor(p * 10**d) / 10**d], ids=["rounded", "cut off"])
def test_rounded_probabilities_are_taken_with_a_warning(n_classes, decimals, cut):
    """Those of peaked rows, as classifiers give them: small entries vanish, and the sum stays near 1."""
    rng = np.random.default_rng(n_classes)
    p = cut(rng.dirichlet(np.full(n_classes, 0.02), size=300), decimals)
    off = np.abs(p.sum(axis=1) - 1).max()
    if off <= 1e-4:
        read_scores(p)
        return
    with pytest.warns(UserWarning, match=rf"off by up to {off:.2g}\), probably because they were rounded"):
        table = read_scores(p)
    assert table.off_simplex
    with pytest.warns(UserWarning, match="rounded"):
        fitted = mm.TemperatureScaling().fit(p, p.argmax(axis=1))
    with pytest.warns(UserWarning, match="rounded"):
        out = fitted.predict_proba(p)
    np.testing.assert_allclose(out.sum(axis=1), 1, atol=1e-12)


@pytest.mark.parametrize(
    "scores",
    [
        [[0.5, 0.503]],  # further off than three decimals of two classes
        [[0.6, 0.6, 0.1]],
        [[0.9, 0.8, 0.7], [0.1, 0.2, 0.1]],  # scores of three separate yes-or-no questions
        [[2.0, 1.0, -1.0]],
        [[0.3, 0.3, 0.3]],
        np.full((3, 1000), 1.06e-3),
    ],
)
def test_logits_and_unnormalised_scores_are_still_refused(scores):
    with pytest.raises(ValueError, match="if these are logits, pass logits=True"):
        read_scores(np.array(scores))


@pytest.mark.parametrize("n_classes", [2, 5])
def test_probabilities_that_are_called_logits_give_a_warning(n_classes):
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(n_classes), size=50)
    for scores in (p, p.astype(np.float32), p.round(3), p[:, 1]):
        with pytest.warns(UserWarning, match="probably probabilities"):
            read_scores(scores, logits=True)
    read_scores(np.log(p), logits=True)
    read_scores(p - 0.1, logits=True)
    read_scores(p[:5], logits=True)  # too few rows to tell
    read_scores(p[:5, 1], logits=True)
    read_scores(p[:, 1] - 0.1, logits=True)
    read_scores(p, logits=True, order_only=True)
    mixed = np.concatenate([p, [[0.9] * n_classes]])
    read_scores(mixed, logits=True)
    assert read_scores(np.array([[0.505, 0.5]], dtype=np.float16)).off_simplex


@pytest.mark.parametrize(
    "labels, message",
    [
        ([0, 1], "2 labels for 3 rows"),
        ([0, 1, 3], "label 3 in row 2"),
        ([0, -1, 1], "label -1 in row 1"),
        ([0, 1.5, 1], "row 1 is not a class"),
        ([0, np.nan, 1], "row 1 is not a class; leave out samples whose label is missing"),
        ([[1, 0, 0], [0, 1, 0], [0, 0, 1]], "one label for each sample"),
        (np.array([0, None, 1], dtype=object), "all text or all whole numbers"),
        (["a", "b", "a"], "name 2 classes.*classes="),
    ],
)
def test_bad_labels_are_refused_with_the_reason(labels, message):
    with pytest.raises(ValueError, match=message):
        read_labels(labels, 3, 3)


def test_labels_are_matched_to_columns():
    codes, names = read_labels(["b", "a", "c"], 3, 3)
    np.testing.assert_array_equal(codes, [1, 0, 2])
    codes, names = read_labels(["b", "a", "b"], 3, 3, classes=["c", "b", "a"])
    np.testing.assert_array_equal(codes, [1, 2, 1])
    np.testing.assert_array_equal(names, ["c", "b", "a"])
    codes, _ = read_labels([30, 10, 20], 3, 3, classes=[10, 20, 30])
    np.testing.assert_array_equal(codes, [2, 0, 1])
    np.testing.assert_array_equal(read_labels([True, False], 2, 2)[0], [1, 0])
    np.testing.assert_array_equal(read_labels([[1.0], [0.0]], 2, 2)[0], [1, 0])
    with pytest.raises(ValueError, match="'z' in row 1"):
        read_labels(["a", "z"], 2, 2, classes=["a", "b"])
    with pytest.raises(ValueError, match="each of the 2 columns once"):
        read_labels(["a", "a"], 2, 2, classes=["a", "a"])
    with pytest.raises(ValueError, match="the labels are numbers, such as 0, and the classes are text, such as 'a'"):
        read_labels([0, 1], 2, 2, classes=["a", "b"])


def test_weights():
    assert read_weight(None, 3) is None
    np.testing.assert_array_equal(read_weight([1, 2, 0], 3), [1.0, 2.0, 0.0])
    for bad, message in [([1, 2], "shape"), ([1, -1, 1], "row 1"), ([1, np.nan, 1], "row 1"), ([0, 0, 0], "zero")]:
        with pytest.raises(ValueError, match=message):
            read_weight(bad, 3)
    with pytest.warns(UserWarning, match="importance"):
        read_weight([0.1, 0.2, 0.3], 3)
    kish = read_weight([0.1, 0.2, 0.3], 3, weights="importance")
    assert kish.sum() == pytest.approx(0.6**2 / (0.01 + 0.04 + 0.09))
    with pytest.raises(ValueError, match="frequency"):
        read_weight([1, 1, 1], 3, weights="probability")


@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "bfloat16"])
def test_tensors_come_in_by_every_door(kind):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(5), 60).astype(np.float32)
    y = rng.integers(5, size=60)
    scores = torch.tensor(p, requires_grad=True).to(getattr(torch, kind))
    weight = torch.tensor(rng.integers(1, 3, size=60), dtype=torch.float64, requires_grad=True)
    plain = scores.detach().double().numpy()
    plain /= plain.sum(axis=1, keepdims=True)
    arrays = mm.TemperatureScaling().fit(plain, y, weight.detach().numpy())
    tensors = mm.TemperatureScaling().fit(scores, torch.tensor(y), weight)
    assert tensors.temperature_ == pytest.approx(arrays.temperature_, rel=1e-3)
    np.testing.assert_allclose(tensors.predict_proba(scores), arrays.predict_proba(plain), atol=1e-4)
    error = mm.calibration_error(scores, torch.tensor(y), sample_weight=weight)
    assert float(error) == pytest.approx(float(mm.calibration_error(plain, y, sample_weight=weight.detach())), abs=1e-4)
    assert mm.accuracy_preserved(scores, tensors.predict_proba(scores))


def test_warnings_point_at_the_line_that_calls_the_library():
    rounded = np.array([[0.333, 0.333, 0.333], [0.5, 0.3, 0.199], [0.2, 0.4, 0.399]])
    with pytest.warns(UserWarning, match="probably because they were rounded") as caught:
        mm.calibrator("ts").fit(rounded, [1, 0, 2])
    assert caught[0].filename == __file__
