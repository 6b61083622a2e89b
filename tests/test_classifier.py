import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits, load_iris, make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score, cross_validate, train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.estimator_checks import parametrize_with_checks

from mixnmatch import CalibratedClassifier, Isotonic, Monitor, OneVsAll, TemperatureScaling, evaluate, load
from mixnmatch.exceptions import CalibrationWarning
from mixnmatch.maps.base import CalibrationMap
from tests.maps.expressions import ALL, expression

sklearn_version = tuple(int(part) for part in sklearn.__version__.split(".")[:2])


@parametrize_with_checks(
    [
        CalibratedClassifier(LogisticRegression(max_iter=200), cv=2),
        CalibratedClassifier(LogisticRegression(max_iter=200), map="ets", cv=2),
        CalibratedClassifier(GaussianNB(), map="irm", cv=2, ensemble=True),
        CalibratedClassifier(LogisticRegression(max_iter=200), map=TemperatureScaling() >> OneVsAll(Isotonic()), cv=2),
    ]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def blobs():
    X, y = make_classification(900, 12, n_informative=6, n_classes=3, class_sep=0.8, random_state=0)
    return train_test_split(X, np.array(["ant", "bee", "cat"])[y], random_state=0)


@pytest.mark.parametrize("ensemble", [False, True])
@pytest.mark.parametrize("name", ["ts", "ets", "irm", "irova-ts", "svs"])
def test_lowers_the_log_loss_of_naive_bayes(blobs, name, ensemble):
    X, X_test, y, y_test = blobs
    plain = GaussianNB().fit(X, y)
    model = CalibratedClassifier(GaussianNB(), map=name, ensemble=ensemble).fit(X, y)
    before, after = plain.predict_proba(X_test), model.predict_proba(X_test)
    rows = np.arange(len(y_test)), np.searchsorted(model.classes_, y_test)
    assert -np.log(after[rows]).mean() < -np.log(before[rows]).mean()
    assert set(model.predict(X_test)) <= {"ant", "bee", "cat"}


def test_prefitted_estimator_is_not_refitted(blobs):
    X, X_test, y, _ = blobs
    fitted = RandomForestClassifier(20, random_state=0).fit(X[:400], y[:400])
    before = fitted.predict_proba(X_test)
    model = CalibratedClassifier(FrozenEstimator(fitted), map="ts").fit(X[400:], y[400:])
    by_hand = TemperatureScaling(classes=fitted.classes_).fit(fitted.predict_proba(X[400:]), y[400:])
    np.testing.assert_array_equal(model.predict_proba(X_test), by_hand.predict_proba(before))
    np.testing.assert_array_equal(fitted.predict_proba(X_test), before)


def test_decision_function_is_taken_as_logits(blobs):
    X, X_test, y, _ = blobs
    model = CalibratedClassifier(LinearSVC(), map="ts").fit(X, y)
    estimator, fitted = model.pairs_[0]
    assert fitted.takes_logits
    by_hand = fitted.predict_proba(estimator.decision_function(X_test))
    np.testing.assert_array_equal(model.predict_proba(X_test), by_hand)
    binary = CalibratedClassifier(LinearSVC(), map="platt").fit(X, y == "ant")
    assert binary.predict_proba(X_test).shape == (len(X_test), 2)


@pytest.mark.skipif(sklearn_version < (1, 8), reason="scikit-learn has temperature scaling from version 1.8 on")
def test_agrees_with_scikit_learn_temperature(blobs):
    X, X_test, y, _ = blobs
    ours = CalibratedClassifier(LogisticRegression(), map="ts", cv=5).fit(X, y).predict_proba(X_test)
    theirs = CalibratedClassifierCV(LogisticRegression(), method="temperature", cv=5, ensemble=False).fit(X, y)
    np.testing.assert_allclose(ours, theirs.predict_proba(X_test), atol=1e-4)


def test_fold_without_a_class_keeps_the_columns():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(41, 3))
    y = np.array([0] * 20 + [1] * 20 + [2])  # the third class is missing from one training fold
    for ensemble in (False, True):
        model = CalibratedClassifier(GaussianNB(), map="ts", cv=3, ensemble=ensemble).fit(X, y)
        p = model.predict_proba(X)
        assert p.shape == (41, 3)
        np.testing.assert_allclose(p.sum(axis=1), 1)


def test_pipeline_grid_search_and_cross_validation(blobs):
    X, X_test, y, y_test = blobs
    model = make_pipeline(StandardScaler(), CalibratedClassifier(LogisticRegression(), map="ets", cv=3))
    assert model.fit(X, y).score(X_test, y_test) > 0.5
    inside = CalibratedClassifier(make_pipeline(StandardScaler(), LogisticRegression()), map="ets", cv=3)
    assert cross_val_score(inside, X, y, cv=3, scoring="neg_log_loss").mean() > -1.1
    grid = GridSearchCV(inside, {"map": ["ts", "irm"], "estimator__logisticregression__C": [0.1, 1.0]}, cv=2)
    assert grid.fit(X, y).best_params_["map"] in ("ts", "irm")
    assert clone(inside).get_params()["map"] == "ets"


def test_sample_weight_reaches_estimator_and_map(blobs):
    X, X_test, y, _ = blobs
    weight = np.where(y == "ant", 3.0, 1.0)
    weighted = CalibratedClassifier(LogisticRegression(), map="vector").fit(X, y, weight).predict_proba(X_test)
    plain = CalibratedClassifier(LogisticRegression(), map="vector").fit(X, y).predict_proba(X_test)
    assert weighted[:, 0].mean() > plain[:, 0].mean()


@pytest.mark.parametrize("module, name", [("xgboost", "XGBClassifier"), ("lightgbm", "LGBMClassifier")])
def test_boosting_libraries(blobs, module, name):
    kind = getattr(pytest.importorskip(module), name)
    quiet = {"verbose": -1} if module == "lightgbm" else {"verbosity": 0}
    X, X_test, y, _ = blobs
    codes = np.unique(y, return_inverse=True)[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # these libraries warn about scikit-learn's newest API
        estimator = kind(n_estimators=60, n_jobs=1, **quiet)
        model = CalibratedClassifier(estimator, map="ets", cv=3).fit(X, codes)
        after = model.predict_proba(X_test)
        estimator.fit(X, codes)
        before = estimator.predict_proba(X_test)
    y_test = np.unique(blobs[3], return_inverse=True)[1]
    rows = np.arange(len(y_test)), y_test
    assert -np.log(after[rows]).mean() < -np.log(np.maximum(before[rows], 1e-15)).mean()


def test_errors_name_the_cause(blobs):
    X, _, y, _ = blobs
    with pytest.raises(ValueError, match="needs a classifier"):
        CalibratedClassifier(StandardScaler()).fit(X, y)
    with pytest.raises(ValueError, match="no method called"):
        CalibratedClassifier(GaussianNB(), map="tss").fit(X, y)
    with pytest.raises(ValueError, match="scores must be one of"):
        CalibratedClassifier(GaussianNB(), scores="logits").fit(X, y)


@pytest.mark.parametrize("name", ALL)
def test_every_map_takes_margins_and_probabilities(name):
    X, y = make_classification(120, 5, n_informative=4, n_redundant=0, n_classes=3, random_state=1)
    for estimator, logits in ((LinearSVC(random_state=0), True), (GaussianNB(), False)):
        model = CalibratedClassifier(estimator, map=_for_classifier(name), cv=2).fit(X, np.array(["a", "b", "c"])[y])
        fitted_estimator, fitted = model.pairs_[0]
        assert fitted.takes_logits == logits
        assert fitted.classes_.tolist() == ["a", "b", "c"]
        p = model.predict_proba(X)
        np.testing.assert_allclose(p.sum(axis=1), 1)
        scores = fitted_estimator.decision_function(X) if logits else fitted_estimator.predict_proba(X)
        np.testing.assert_array_equal(p, fitted.predict_proba(scores))


def _for_classifier(name):
    """Short names stay names."""
    made = expression(name)
    return name if not isinstance(name, CalibrationMap) and " " not in name and name != "pooled" else made


def test_the_default_map_goes_by_the_number_of_classes(blobs):
    X, _, y, _ = blobs
    three = CalibratedClassifier(GaussianNB()).fit(X, y).pairs_[0][1]
    assert type(three).__name__ == "EnsembleTemperatureScaling"
    two = CalibratedClassifier(GaussianNB()).fit(X, y == "ant").pairs_[0][1]
    assert type(two).__name__ == "Auto"


@pytest.mark.parametrize("load_data", [load_iris, load_digits])
@pytest.mark.parametrize("wrap", [lambda e: e, lambda e: make_pipeline(StandardScaler(), e)])
def test_pairwise_decision_functions_are_turned_into_votes(load_data, wrap):
    X, y = load_data(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X[:600], y[:600], random_state=0)
    pairwise, plain = (
        CalibratedClassifier(wrap(SVC(decision_function_shape=shape)), cv=3).fit(X, y) for shape in ("ovo", "ovr")
    )
    np.testing.assert_array_equal(pairwise.predict_proba(X_test), plain.predict_proba(X_test))
    assert pairwise.score(X_test, y_test) > 0.9


@pytest.mark.parametrize("wrap", [lambda e: e, lambda e: make_pipeline(StandardScaler(), make_pipeline(e))])
def test_weights_reach_the_last_step_of_a_pipeline(blobs, wrap):
    """A weight of two equals two copies, in the estimator too."""
    X, _, y, _ = blobs
    rng = np.random.default_rng(0)
    weight = rng.integers(1, 4, len(y)).astype(float)
    seen = []

    class Watched(LogisticRegression):
        def fit(self, X, y, sample_weight=None):
            seen.append(None if sample_weight is None else np.array(sample_weight))
            return super().fit(X, y, sample_weight)

    cv = [(np.arange(300), np.arange(300, len(y)))]
    CalibratedClassifier(wrap(Watched()), map="ts", cv=cv).fit(X, y, weight)
    np.testing.assert_array_equal(seen[0], weight[:300])
    np.testing.assert_array_equal(seen[1], weight)


@pytest.mark.parametrize("routing", [False, True])
def test_weights_that_an_estimator_cannot_take_are_said(blobs, routing):
    with sklearn.config_context(enable_metadata_routing=routing):
        weights_are_missed(*blobs)


def weights_are_missed(X, _, y, __):
    weight = np.ones(len(y))
    scaler = StandardScaler()
    if sklearn.get_config()["enable_metadata_routing"]:
        scaler.set_fit_request(sample_weight=False)
    for estimator in (KNeighborsClassifier(), make_pipeline(scaler, KNeighborsClassifier())):
        with pytest.warns(UserWarning, match="KNeighborsClassifier does not take sample_weight") as caught:
            CalibratedClassifier(estimator, map="ts").fit(X, y, weight)
        assert caught[0].filename == __file__
    fitted = KNeighborsClassifier().fit(X, y)
    CalibratedClassifier(FrozenEstimator(fitted), map="ts").fit(X, y, weight)  # nothing to fit with them


class Remembering(ClassifierMixin, BaseEstimator):
    """A classifier that keeps what its fit was given."""

    def fit(self, X, y, sample_weight=None, colour=None):
        self.given_ = {"sample_weight": sample_weight, "colour": colour}
        self.rows_ = np.asarray(X)[:, 0].astype(int)
        self.inside_ = LogisticRegression().fit(X, y)
        self.classes_ = self.inside_.classes_
        return self

    def predict_proba(self, X):
        return self.inside_.predict_proba(X)


@pytest.fixture
def grouped():
    """Features whose first column is the index of the sample, labels and groups."""
    rng = np.random.default_rng(0)
    X = np.c_[np.arange(80), rng.normal(size=(80, 2))]
    return X, (X[:, 1] + rng.normal(size=80) > 0).astype(int), np.arange(80) // 8


@pytest.mark.parametrize("routing", [False, True])
def test_groups_reach_the_splitter(grouped, routing):
    X, y, groups = grouped
    with sklearn.config_context(enable_metadata_routing=routing):
        model = CalibratedClassifier(Remembering(), map="ts", cv=GroupKFold(4), ensemble=True).fit(X, y, groups=groups)
        for estimator, _ in model.pairs_:
            outside = np.setdiff1d(np.arange(80), estimator.rows_)
            assert not set(groups[outside]) & set(groups[estimator.rows_])
            assert 16 <= len(outside) <= 24
        with pytest.raises(ValueError, match="inconsistent numbers"):
            model.fit(X, y, groups=groups[:-1])


def test_groups_that_a_splitter_ignores_are_said(grouped):
    X, y, groups = grouped
    with pytest.warns(UserWarning, match="groups parameter is ignored"):
        CalibratedClassifier(Remembering(), map="ts").fit(X, y, groups=groups)


def test_metadata_are_routed(grouped):
    X, y, groups = grouped
    weight, colour = np.arange(80.0) + 1, np.arange(80) % 3
    with sklearn.config_context(enable_metadata_routing=True):
        inner = Remembering().set_fit_request(sample_weight=True, colour=True)
        model = CalibratedClassifier(inner, map="ts", cv=GroupKFold(4))
        model.set_fit_request(sample_weight=True).set_score_request(sample_weight=False)
        model.fit(X, y, sample_weight=weight, colour=colour, groups=groups)
        given = model.pairs_[0][0].given_
        np.testing.assert_array_equal(given["sample_weight"], weight)
        np.testing.assert_array_equal(given["colour"], colour)
        assert model.pairs_[0][1].total_weight_ == weight.sum()
        # From outside: a cross-validation hands the metadata of its training samples on.
        found = cross_validate(
            model, X, y, cv=GroupKFold(5), params={"sample_weight": weight, "groups": groups}, return_estimator=True
        )
        for each in found["estimator"]:
            rows = each.pairs_[0][0].rows_
            np.testing.assert_array_equal(each.pairs_[0][0].given_["sample_weight"], weight[rows])
            assert each.pairs_[0][1].total_weight_ == weight[rows].sum()
        unset = CalibratedClassifier(Remembering(), map="ts")
        with pytest.raises(sklearn.exceptions.UnsetMetadataPassedError, match="sample_weight"):
            unset.fit(X, y, sample_weight=weight)
        refused = CalibratedClassifier(Remembering().set_fit_request(sample_weight=False, colour=False), map="ts")
        refused.fit(X, y, sample_weight=weight)
        assert refused.pairs_[0][0].given_["sample_weight"] is None
        assert refused.pairs_[0][1].total_weight_ == weight.sum()
        CalibratedClassifier(map="ts").fit(X[:, 1:], y, sample_weight=weight)


@pytest.mark.parametrize("ensemble", [False, True])
def test_jobs_do_not_change_the_result(blobs, ensemble):
    X, X_test, y, _ = blobs
    one, two = (
        CalibratedClassifier(LogisticRegression(), map="ets", cv=3, ensemble=ensemble, n_jobs=jobs).fit(X, y)
        for jobs in (None, 2)
    )
    np.testing.assert_array_equal(one.predict_proba(X_test), two.predict_proba(X_test))


@pytest.mark.parametrize(
    "names, saved",
    [
        (["ant", "bee", "cat"], ["ant", "bee", "cat"]),
        (np.array(["ant", "bee", "cat"], dtype=object), ["ant", "bee", "cat"]),
        ([5, 7, 11], [5, 7, 11]),
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]),
    ],
)
def test_saved_maps_know_the_classes(blobs, tmp_path, names, saved):
    X, X_test, y, _ = blobs
    labels = np.asarray(names)[np.unique(y, return_inverse=True)[1]]
    model = CalibratedClassifier(LogisticRegression(), map="irova-ts").fit(X, labels)
    assert model.save(tmp_path / "map.json") == [tmp_path / "map.json"]
    loaded = load(tmp_path / "map.json")
    assert loaded.classes_.tolist() == saved
    scores = model.pairs_[0][0].decision_function(X_test)
    np.testing.assert_array_equal(loaded.predict_proba(scores), model.predict_proba(X_test))
    kind = loaded.classes_.dtype
    np.testing.assert_array_equal(loaded.predict(scores), model.predict(X_test).astype(kind))


def test_truth_values_as_classes(blobs, tmp_path):
    X, X_test, y, _ = blobs
    model = CalibratedClassifier(GaussianNB()).fit(X, y == "ant")
    assert model.predict(X_test).dtype == bool
    model.save(tmp_path / "map.json")
    assert load(tmp_path / "map.json").classes_.tolist() == [0, 1]


def test_an_ensemble_saves_a_map_for_each_fold(blobs, tmp_path):
    X, X_test, y, _ = blobs
    model = CalibratedClassifier(GaussianNB(), map="ts", cv=3, ensemble=True).fit(X, y)
    files = model.save(tmp_path / "map.json")
    assert [file.name for file in files] == ["map-0.json", "map-1.json", "map-2.json"]
    parts = [
        load(file).predict_proba(pair[0].predict_proba(X_test)) for file, pair in zip(files, model.pairs_, strict=True)
    ]
    np.testing.assert_array_equal(np.mean(parts, axis=0), model.predict_proba(X_test))


def test_one_class_is_refused(blobs):
    X, _, y, _ = blobs
    with pytest.raises(ValueError, match="all samples are of one class, 'ant'"):
        CalibratedClassifier(GaussianNB()).fit(X, np.full(len(y), "ant"))
    with pytest.raises(ValueError, match="one class, 'bee'"):
        CalibratedClassifier(GaussianNB()).fit(X, y, (y == "bee").astype(float))
    with pytest.raises(ValueError, match="weight"):
        CalibratedClassifier(GaussianNB()).fit(X, y, np.zeros(len(y)))
    fitted = FrozenEstimator(GaussianNB().fit(X, y))
    with pytest.raises(ValueError, match="one class, 'cat'"):
        CalibratedClassifier(fitted).fit(X[y == "cat"], y[y == "cat"])
    order = np.argsort(y)
    folds = [(order[100:], order[:100]), (order[:-100], order[-100:])]
    with pytest.warns(UserWarning, match=r"all labels are of class '(ant|cat)'"):
        CalibratedClassifier(GaussianNB(), cv=folds, ensemble=True).fit(X, y)


def test_a_map_for_logits_is_copied_for_probabilities(blobs):
    X, X_test, y, _ = blobs
    given = TemperatureScaling(logits=True, classes=["x", "y", "z"])
    model = CalibratedClassifier(GaussianNB(), map=given).fit(X, y)
    plain = CalibratedClassifier(GaussianNB(), map="ts").fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X_test), plain.predict_proba(X_test))
    assert given.logits
    assert not hasattr(given, "classes_")


def test_negative_weights_are_refused():
    X, y = make_classification(100, random_state=0)
    weight = np.ones(100)
    weight[7] = -1
    with pytest.raises(ValueError, match="sample_weight in row 7 is -1"):
        CalibratedClassifier().fit(X, y, sample_weight=weight)


@pytest.mark.parametrize("ensemble", [False, True])
def test_one_positive_does_not_stop_the_fit(ensemble):
    rng = np.random.default_rng(0)
    model = CalibratedClassifier(RandomForestClassifier(5, random_state=0), ensemble=ensemble)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        p = model.fit(rng.normal(size=(60, 3)), np.r_[1, np.zeros(59, int)]).predict_proba(rng.normal(size=(4, 3)))
    assert p.shape == (4, 2)
    assert np.isfinite(p).all()


def test_prefit_says_what_replaced_it():
    X, y = make_classification(60, random_state=0)
    with pytest.raises(ValueError, match="FrozenEstimator"):
        CalibratedClassifier(cv="prefit").fit(X, y)


def test_a_frozen_estimator_must_be_fitted():
    X, y = make_classification(60, random_state=0)
    with pytest.raises(NotFittedError):
        CalibratedClassifier(FrozenEstimator(LogisticRegression())).fit(X, y)


@pytest.fixture(scope="module")
def frauds():
    """Features and labels of payments, 3% of them positive, as pandas objects."""
    rng = np.random.default_rng(0)
    odds = rng.normal(-5.2, 1.9, 6000)
    y = (rng.random(6000) < 1 / (1 + np.exp(-odds))).astype(int)
    return pd.DataFrame({"odds": odds, "noise": rng.normal(size=6000)}), pd.Series(y, name="fraud")


@pytest.mark.parametrize("what", ["y", "sample_weight", "groups"])
def test_indexes_that_differ_are_refused(frauds, what):
    X, y = frauds[0][:300], frauds[1][:300]
    other = {"y": y, what: pd.Series(np.arange(300) % 2).sample(frac=1, random_state=0)}
    with pytest.raises(ValueError, match=rf"X and {what} have different indexes: .*{what}.loc\[X.index\]"):
        CalibratedClassifier().fit(X, **other)


def test_equal_indexes_in_any_order_and_arrays_are_fine(frauds):
    X, _, y, _ = train_test_split(*frauds, train_size=2000, random_state=0)
    model = CalibratedClassifier().fit(X, y)
    np.testing.assert_array_equal(CalibratedClassifier().fit(X, y.to_numpy()).predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("weight", [20.0, "balanced"])
def test_class_weights_that_reach_the_map_are_said(frauds, weight):
    X, y = frauds
    w = compute_sample_weight("balanced", y) if weight == "balanced" else np.where(y == 1, weight, 1.0)
    with pytest.warns(CalibrationWarning, match=r"class 1 makes up .*%, not 2\.\d%"):
        CalibratedClassifier().fit(X, y, sample_weight=w)


def test_weights_that_undo_sampling_or_differ_within_classes_are_fine(frauds):
    X, y = frauds
    kept = (y == 1) | (np.arange(len(y)) % 20 == 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CalibratedClassifier().fit(X[kept], y[kept], sample_weight=np.where(y[kept] == 1, 1.0, 20.0))
        CalibratedClassifier().fit(X, y, sample_weight=1.0 + np.arange(len(y)) % 2)
        CalibratedClassifier().fit(X, y, sample_weight=np.full(len(y), 3.0))


def test_weights_of_a_step_go_to_the_estimator_alone(frauds):
    X, y = frauds
    w = compute_sample_weight("balanced", y)
    model = CalibratedClassifier(make_pipeline(LogisticRegression())).fit(X, y, logisticregression__sample_weight=w)
    estimator, _ = model.pairs_[0]
    assert estimator.predict_proba(X)[:, 1].mean() > 0.15
    assert model.predict_proba(X)[:, 1].mean() == pytest.approx(y.mean(), rel=0.05)


@pytest.mark.parametrize("dtype", ["Int64", "boolean", "object", "category"])
def test_numbers_of_any_pandas_type_are_whole_numbers(frauds, dtype, tmp_path):
    X, y = frauds[0], frauds[1].astype(dtype)
    model = CalibratedClassifier().fit(X, y)
    model.save(tmp_path / "map.json")
    assert load(tmp_path / "map.json").classes_.dtype.kind == "i"
    assert load(tmp_path / "map.json").classes_.tolist() == [0, 1]
    assert CalibratedClassifier().fit(X, y.astype(float)).pairs_[0][1].classes_.dtype.kind == "i"


@pytest.mark.parametrize("dtype", ["Int64", "Float64", "object", "string", "category", "boolean"])
def test_missing_labels_are_named_by_their_row(frauds, dtype):
    X, y = frauds
    y = (y.map({0: "no", 1: "yes"}) if dtype in ("string", "category") else y).astype(dtype)
    y = y.where(y.index != 17)
    with pytest.raises(ValueError, match=r"label \S+ in row 17 is not a class"):
        CalibratedClassifier().fit(X, y)


def test_labels_of_another_kind_than_the_classes_of_a_frozen_estimator(frauds):
    X, y = frauds
    frozen = FrozenEstimator(LogisticRegression().fit(X, y))
    with pytest.raises(ValueError, match=r"labels such as 'no' are not among the classes \[0, 1\] .*encode them alike"):
        CalibratedClassifier(frozen).fit(X, y.map({0: "no", 1: "yes"}))
    with pytest.raises(ValueError, match=r"labels such as 7 are not among the classes \[0, 1\]"):
        CalibratedClassifier(frozen).fit(X, y + 7 * (y == 1).to_numpy() - (y == 1).to_numpy())


def test_a_classifier_in_place_of_its_map_says_where_the_map_is(frauds):
    X, y = frauds
    model = CalibratedClassifier().fit(X, y)
    with pytest.raises(ValueError, match=r"estimator, fitted = model.pairs_\[0\]"):
        Monitor(model)
    estimator, fitted = model.pairs_[0]
    scores = estimator.decision_function(X)
    with pytest.raises(ValueError, match=r"is not a fitted map; .*model.pairs_\[0\]"):
        evaluate(scores, y, map=model, logits=True)
    assert not Monitor(fitted).update(scores, y).alarm


def test_samples_of_weight_zero_are_as_if_left_out():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], [100, 50])
    weight = np.where(np.arange(150) < 95, 0.0, 1.0)  # five of the first class are left, next to each other
    X = rng.normal(size=(150, 2)) + y[:, None]
    there = weight > 0
    for cv in (5, 3):
        whole = CalibratedClassifier(LogisticRegression(), map="platt", cv=cv).fit(X, y, weight)
        part = CalibratedClassifier(LogisticRegression(), map="platt", cv=cv).fit(X[there], y[there], weight[there])
        np.testing.assert_allclose(whole.predict_proba(X), part.predict_proba(X), rtol=1e-9)
