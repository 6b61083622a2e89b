"""Cost matrices, Bayes decisions and what decisions cost, against brute force and closed forms."""

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixnmatch.decisions import CostMatrix, bayes_decisions, cost_threshold, expected_cost, realised_cost


def random_problem(seed, n=40, n_classes=3, n_decisions=4):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(n_classes, 0.5), n), rng.normal(size=(n_classes, n_decisions)), rng


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 5), st.integers(1, 5), st.booleans())
def test_no_other_decision_is_cheaper(seed, n_classes, n_decisions, with_abstention):
    p, costs, rng = random_problem(seed, 12, n_classes, n_decisions)
    abstain = float(rng.normal()) if with_abstention else None
    chosen = bayes_decisions(p, costs, abstain)
    options = [*range(n_decisions), *([-1] if with_abstention else [])]
    for row, decision in zip(p, chosen, strict=True):
        brute = {d: abstain if d == -1 else sum(row[k] * costs[k, d] for k in range(n_classes)) for d in options}
        assert brute[int(decision)] == pytest.approx(min(brute.values()), abs=1e-12)


def test_all_joint_decisions_of_a_few_samples():
    p, costs, _ = random_problem(1, 5, 3, 3)
    best = min(
        float(expected_cost(p, costs, np.array(decisions))) for decisions in itertools.product(range(3), repeat=5)
    )
    assert float(expected_cost(p, costs)) == pytest.approx(best, abs=1e-12)
    assert float(expected_cost(p, costs, bayes_decisions(p, costs))) == pytest.approx(best, abs=1e-12)


def test_zero_one_costs_give_the_most_probable_class():
    p, _, _ = random_problem(2, 500, 7)
    assert (bayes_decisions(p, 1 - np.eye(7)) == p.argmax(axis=1)).all()
    assert float(expected_cost(p, 1 - np.eye(7))) == pytest.approx(1 - p.max(axis=1).mean())


def test_ties_take_the_first_decision_and_do_not_abstain():
    costs = [[0, 1], [1, 0]]
    assert bayes_decisions([[0.5, 0.5]], costs).tolist() == [0]
    assert bayes_decisions([[0.5, 0.5]], costs, abstain=0.5).tolist() == [0]
    assert bayes_decisions([[0.5, 0.5]], costs, abstain=np.nextafter(0.5, 0)).tolist() == [-1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_zeros_and_ones(dtype):
    p = np.array([0.0, 1.0, 1e-30], dtype=dtype)
    assert bayes_decisions(p, [[0, 1], [1e6, 0]]).tolist() == [0, 1, 0]


def test_a_vector_two_columns_and_logits_are_one_problem():
    rng = np.random.default_rng(3)
    z = rng.normal(size=200) * 20
    p = 1 / (1 + np.exp(-z))
    costs = [[0, 3], [1, -0.5]]
    wanted = bayes_decisions(p, costs)
    assert (bayes_decisions(np.stack([1 - p, p], 1), costs) == wanted).all()
    assert (bayes_decisions(z, costs, logits=True) == wanted).all()
    assert (wanted == (p > cost_threshold(3, 1, true_positive=-0.5))).all()


def test_threshold_of_a_cost_ratio():
    assert cost_threshold(1, 1) == 0.5
    assert cost_threshold(0, 1) == 0.0
    assert cost_threshold(1, 0) == 1.0
    t = cost_threshold(3.0, 11.0, true_positive=2.0, true_negative=1.0)
    for p, decision in ((t - 1e-9, 0), (t + 1e-9, 1)):
        assert bayes_decisions([p], [[1, 3], [11, 2]]).tolist() == [decision]
    for wrong in ({"false_positive": 0, "false_negative": 0}, {"false_positive": -1, "false_negative": 2}):
        with pytest.raises(ValueError, match="cheaper than the right decision"):
            cost_threshold(**wrong)
    with pytest.raises(ValueError, match="finite number"):
        cost_threshold(np.nan, 1)


def test_weights_are_repetitions():
    p, costs, rng = random_problem(4)
    w = rng.integers(0, 4, len(p))
    decisions = rng.integers(0, 4, len(p))
    y = rng.integers(0, 3, len(p))
    again = np.repeat(np.arange(len(p)), w)
    with_weights = expected_cost(p, costs, decisions, w)
    assert float(with_weights) == pytest.approx(float(expected_cost(p[again], costs, decisions[again])))
    assert float(realised_cost(decisions, y, costs, w)) == pytest.approx(costs[y[again], decisions[again]].mean())
    assert with_weights.n_rows == (w > 0).sum()


def test_expected_and_realised_cost_agree_when_calibrated():
    rng = np.random.default_rng(5)
    p = rng.dirichlet([1, 1, 1], 20000)
    y = (p.cumsum(axis=1) < rng.random((20000, 1))).sum(axis=1)
    costs = rng.random((3, 3))
    expected = expected_cost(p, costs)
    realised = realised_cost(bayes_decisions(p, costs), y, costs)
    assert abs(expected - realised) < 4 * realised.standard_error


def test_one_sample_has_no_standard_error():
    found = expected_cost([[0.25, 0.75]], [[0, 4], [2, 0]])
    assert float(found) == 1.0
    assert np.isnan(found.standard_error)


def test_a_data_frame_names_classes_and_decisions():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"approve": [200, 0], "reject": [0, 50]}, index=["bad", "good"])
    p = pandas.DataFrame({"good": [0.9, 0.5], "bad": [0.1, 0.5]})
    found = bayes_decisions(p, frame, abstain=30)
    assert found.tolist() == ["approve", "reject"]
    assert bayes_decisions(p, frame, abstain=15).tolist() == ["abstain", "abstain"]
    assert float(expected_cost(p, frame, found)) == pytest.approx((20 + 25) / 2)
    assert float(realised_cost(found, ["bad", "good"], frame)) == pytest.approx((200 + 50) / 2)
    assert bayes_decisions(p.to_numpy(), frame, classes=["good", "bad"]).tolist() == ["approve", "reject"]
    assert float(realised_cost(pandas.Series(found), ["bad", "good"], frame)) == pytest.approx(125)
    with pytest.raises(ValueError, match="decision 0 of row 0 is not one of"):
        realised_cost([0, 1], ["bad", "good"], frame)
    with pytest.raises(ValueError, match="name each class once"):
        bayes_decisions(p.rename(columns={"good": "fine"}), frame)


@pytest.mark.parametrize(
    ("columns", "kind"),
    [([1, 2], int), ([True, False], bool), (["a", "b"], str), ([0.5, 2.0], float), ([1, "b"], object)],
)
def test_decisions_keep_their_types(columns, kind):
    frame = pd.DataFrame([[0, 1], [10, 0]], columns=columns)
    p = [0.02, 0.2, 0.9]
    found = bayes_decisions(p, frame)
    assert found.tolist() == [columns[0], columns[1], columns[1]]
    assert [type(one) for one in found.tolist()] == [type(columns[0]), type(columns[1]), type(columns[1])]
    assert found.dtype.kind == np.dtype(kind).kind
    asked = bayes_decisions(p, frame, abstain=0.3)
    assert asked.tolist() == [columns[0], "abstain", columns[1]]
    assert type(asked.tolist()[0]) is type(columns[0])
    assert float(expected_cost(p, frame, found)) == pytest.approx((0.2 + 0.8 + 0.1) / 3)
    for decisions in (asked, pd.Series(asked), asked.tolist(), [str(one) for one in asked.tolist()]):
        assert float(expected_cost(p, frame, decisions, abstain=0.3)) == pytest.approx((0.2 + 0.3 + 0.1) / 3)


def test_rows_of_costs_are_matched_as_columns_of_scores_are():
    p = pd.DataFrame({"prob_0": [0.9, 0.2], "prob_1": [0.1, 0.8]})
    wanted = bayes_decisions(p, [[0, 1], [10, 0]])
    for index in (["1", "0"], [True, False], [1.0, 0.0], ["true", "false"], ["prob_1", "prob_0"]):
        costs = pd.DataFrame([[10, 0], [0, 1]], index=index)
        assert (bayes_decisions(p, costs, classes=[0, 1]) == wanted).all(), index
        assert (bayes_decisions(p, costs) == wanted).all(), index
        for y in ([1, 0], [True, False], [1.0, 0.0], pd.Series([1, 0], dtype="Int64")):
            assert float(realised_cost([0, 1], y, costs)) == pytest.approx(11 / 2), index
    y = ["ill", "well", "well"]
    with pytest.raises(ValueError, match=r"the labels are text: pass classes=\[\.\.\.\]"):
        realised_cost([0, 1, 1], y, [[0, 1], [10, 0]])
    assert float(realised_cost([0, 1, 1], y, [[0, 1], [10, 0]], classes=["ill", "well"])) == 0
    assert float(realised_cost([0, 1, 1], y, [[0, 1], [10, 0]], classes=["well", "ill"])) == pytest.approx(12 / 3)


def test_names_of_classes_from_scores_and_costs():
    costs = pd.DataFrame({"pay": [0, 100], "check": [1, 1]}, index=["fine", "fraud"])
    p = np.array([0.001, 0.5])
    wanted = ["pay", "check"]
    assert bayes_decisions(pd.Series(p, name="fraud"), costs).tolist() == wanted
    assert bayes_decisions(pd.Series(1 - p, name="fine"), costs).tolist() == wanted
    assert float(expected_cost(pd.Series(1 - p, name="fine"), costs)) == pytest.approx((0.1 + 1) / 2)
    assert bayes_decisions(pd.DataFrame({"prob_fraud": p, "prob_fine": 1 - p}), costs).tolist() == wanted
    with pytest.raises(ValueError, match=r"and pass classes=\[\.\.\.\] to name the columns"):
        bayes_decisions(p, costs)
    with pytest.raises(ValueError, match="the labels are numbers, such as 0, and the classes are text, such as 'fine'"):
        realised_cost(["pay", "check"], [0, 1], costs)


def test_polars_costs_name_decisions():
    polars = pytest.importorskip("polars")
    costs = polars.DataFrame({"pay": [0, 100], "check": [1, 1]})
    assert bayes_decisions([0.001, 0.5], costs).tolist() == ["pay", "check"]
    assert bayes_decisions([0.001, 0.5], polars.DataFrame(costs.to_numpy())).tolist() == [0, 1]


@pytest.mark.parametrize("index", [["fine", "fraud"], ["fraud", "fine"]])
@pytest.mark.parametrize("columns", [["a", "a", "b"], [1, True, 2]])
def test_decisions_of_one_name_are_refused(index, columns):
    frame = pd.DataFrame([[0, 1, 9], [10, 0, 0.0]], index=index, columns=columns)
    with pytest.raises(ValueError, match="name each decision once"):
        bayes_decisions(pd.DataFrame({"fine": [0.5], "fraud": [0.5]}), frame)


def test_decisions_of_one_name_as_written():
    frame = pd.DataFrame([[0, 1], [10, 0]], columns=[1, "1"])
    found = bayes_decisions([0.02, 0.9], frame)
    assert found.tolist() == [1, "1"]
    assert float(realised_cost(found, [0, 0], frame)) == 0.5
    frame = pd.DataFrame([[0, 1], [10, 0]], columns=["0", "1"])
    assert float(realised_cost([0, 1], [0, 0], frame)) == 0.5  # as read back from a file of numbers
    with pytest.raises(ValueError, match="is not one of"):
        realised_cost(np.array([["0"], {}], dtype=object), [0, 0], frame)


def test_intervals_of_costs_allow_for_what_was_not_seen():
    """Of 60 payments, none may have been a fraud although one in fifty is."""
    costs = [[0, 1], [100, 1]]
    unseen = realised_cost([0] * 60, [0] * 60, costs)
    assert float(unseen) == 0
    low, high = unseen.interval
    assert low == 0
    assert high == pytest.approx(100 * (1 - 0.025 ** (1 / 60)))
    assert np.isnan(realised_cost([1], [0], costs).interval).all()
    constant = realised_cost([1] * 60, [0] * 60, costs)  # costs 1, whatever the label
    assert constant.interval == pytest.approx((1, 1))
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        y = (rng.random(200) < 0.02).astype(int)
        low, high = realised_cost(np.zeros(200, dtype=int), y, costs).interval
        covered += low <= 2 <= high
    assert covered >= 0.93 * 400  # 0.92 with Student's interval, 0.7 for 60 samples


def test_many_classes_and_many_decisions():
    rng = np.random.default_rng(6)
    p = rng.dirichlet(np.full(1000, 0.1), 20)
    costs = rng.random((1000, 100))
    chosen = bayes_decisions(p, costs)
    assert (chosen == (p @ costs).argmin(axis=1)).all()
    assert float(expected_cost(p, costs, chosen)) == pytest.approx((p @ costs).min(axis=1).mean())


@pytest.mark.parametrize(
    ("costs", "settings", "message"),
    [
        ([[0, 1]], {}, "a row for each of the 2 classes"),
        ([0, 1], {}, "a row for each of the 2 classes"),
        ([[0, np.inf], [1, 0]], {}, "row 0, column 1 is inf"),
        ([[0, "x"], [1, 0]], {}, "costs must be numbers"),
        ([[0, 1], [1, 0]], {"abstain": np.nan}, "the cost of abstaining"),
    ],
)
def test_costs_that_cannot_be(costs, settings, message):
    with pytest.raises(ValueError, match=message):
        bayes_decisions([0.3], costs, **settings)


def test_decisions_that_cannot_be():
    costs = [[0, 1], [1, 0]]
    with pytest.raises(ValueError, match=r"decision 2 of row 1 is not one of \[0, 1\]"):
        expected_cost([0.3, 0.4], costs, [0, 2])
    with pytest.raises(ValueError, match="pass abstain="):
        expected_cost([0.3, 0.4], costs, [0, -1])
    with pytest.raises(ValueError, match="one for each sample"):
        expected_cost([0.3, 0.4], costs, [0])
    assert float(expected_cost([0.3, 0.4], costs, [0, -1], abstain=0.25)) == pytest.approx((0.3 + 0.25) / 2)
    assert CostMatrix.of(costs, n_classes=2, abstain=1.0).options.shape == (2, 3)


def test_indexes_that_differ_are_refused():
    p = pd.Series([0.1, 0.7, 0.3], index=[3, 1, 2])
    costs = [[0, 1], [10, 0]]
    decisions = pd.Series(bayes_decisions(p, costs), index=p.index)
    y = pd.Series([0, 1, 0])
    with pytest.raises(ValueError, match=r"decisions and labels have different indexes: row 0 is 3 in one and 0"):
        realised_cost(decisions, y, costs)
    with pytest.raises(ValueError, match=r"probs and decisions have different indexes"):
        expected_cost(p, costs, decisions.sort_index())
    assert realised_cost(decisions, y.set_axis(p.index), costs) == realised_cost(decisions.to_numpy(), y, costs)
