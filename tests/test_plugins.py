"""A map and an estimator from outside the package: registered in a line, they take part in everything.

Formats of files have tests of their own in io/test_formats.py.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

import mixnmatch as mm
from mixnmatch.cli.app import cli
from mixnmatch.evaluation.estimators import ESTIMATORS, Estimator, register_estimator
from mixnmatch.maps import register_map, registry
from mixnmatch.maps.columns import take
from tests.conftest import make_problem, softmax


class Lift(mm.maps.BinaryMap):
    """Multiply probabilities so that their mean is the class frequency."""

    strictly_increasing = False
    _fitted = ("ratio_",)

    ratio_: NDArray[np.float64]

    def _fit_columns(self, columns):
        return {"ratio_": (columns.positive_weights() + 1) / (columns.total(_sums) + 1)}

    def _transform_columns(self, block, scheme):
        return np.minimum(take(np.asarray(block.probabilities(), dtype=np.float64), scheme) * self.ratio_, 1.0)

    def _lower(self, rows, scheme):
        p = rows.probabilities.column(1) if scheme == "positive" else rows.probabilities
        return (rows.graph.constant("ratio", self.ratio_ if scheme == "each" else self.ratio_[0]) * p).at_most(1.0)


def _sums(block, scheme):
    p = take(np.asarray(block.probabilities(), dtype=np.float64), scheme)
    weight = block.weight
    if weight is None:
        return p.sum(axis=0)
    return np.repeat(weight, len(p) // len(weight)) @ p


@dataclass(frozen=True)
class MeanGap(Estimator):
    """The absolute difference of the means: a lower bound of every calibration error."""

    norms = (1,)

    def __call__(self, outcomes, norm=1):
        return float(abs(np.average(outcomes.y - outcomes.z, weights=outcomes.weight)))


@pytest.fixture(autouse=True)
def registered():
    register_map(Lift, name="lift")
    register_estimator("mean-gap", MeanGap)
    yield
    registry.METHODS.pop("lift")
    registry._registered.pop("Lift")
    ESTIMATORS.pop("mean-gap")


@pytest.fixture(params=[2, 4])
def problem(request):
    logits, y = make_problem(400, request.param, seed=2)
    return softmax(logits), y


def test_a_map_has_a_short_name_and_works_alone_and_combined(problem):
    p, y = problem
    assert "lift" in [line.name for line in mm.calibrators()]
    fitted = mm.calibrator("lift").fit(p, y)
    assert isinstance(fitted, mm.OneVsAll)
    assert_allclose(fitted.predict_proba(p).sum(axis=1), 1)
    for made in (
        mm.Pooled(Lift()),
        mm.TemperatureScaling() >> mm.OneVsAll(Lift()),
        mm.maps.KeepWinner(mm.OneVsAll(Lift())),
    ):
        q = made.fit(p, y).predict_proba(p)
        assert_allclose(q.sum(axis=1), 1)
        assert (q >= 0).all()


def test_a_map_is_saved_and_loaded(problem, tmp_path):
    p, y = problem
    fitted = (mm.TemperatureScaling() >> mm.calibrator("lift")).fit(p, y)
    fitted.save(tmp_path / "map.json")
    assert_array_equal(mm.load(tmp_path / "map.json").predict_proba(p), fitted.predict_proba(p))


@pytest.mark.parametrize("annotation", [np.ndarray, NDArray[np.float64], "NDArray[np.float64]", "np.ndarray"])
def test_annotations_of_fitted_attributes_may_be_types_or_text(problem, tmp_path, annotation, monkeypatch):
    p, y = problem
    monkeypatch.setitem(Lift.__annotations__, "ratio_", annotation)
    mm.calibrator("lift").fit(p, y).save(tmp_path / "map.json")
    assert isinstance(mm.load(tmp_path / "map.json").map_, Lift)


def test_a_map_without_annotations_is_refused_when_it_is_saved(problem, tmp_path, monkeypatch):
    p, y = problem
    monkeypatch.delitem(Lift.__annotations__, "ratio_")
    with pytest.raises(TypeError, match="annotate it in the class, such as ratio_: NDArray"):
        mm.calibrator("lift").fit(p, y).save(tmp_path / "map.json")
    assert not (tmp_path / "map.json").exists()


@pytest.mark.parametrize("make", [lambda: mm.calibrator("lift"), lambda: mm.Pooled(Lift())])
def test_a_map_is_exported(problem, tmp_path, make):
    onnxruntime = pytest.importorskip("onnxruntime")
    torch = pytest.importorskip("torch")
    p, y = problem
    p = p.astype(np.float32)
    fitted = make().fit(p, y)
    expected = fitted.predict_proba(p)
    fitted.to_onnx(tmp_path / "map.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "map.onnx", providers=["CPUExecutionProvider"])
    assert_allclose(session.run(None, {"scores": p})[0], expected, atol=1e-6)
    assert_allclose(fitted.to_torch()(torch.from_numpy(p)).numpy(), expected, atol=1e-6)


def test_a_map_runs_on_dask(problem):
    da = pytest.importorskip("dask.array")
    p, y = problem
    fitted = mm.calibrator("lift").fit(da.from_array(p, chunks=(90, -1)), y)
    assert_allclose(fitted.map_.ratio_, mm.calibrator("lift").fit(p, y).map_.ratio_, rtol=1e-12)


def test_a_map_is_compared_and_on_the_command_line(problem, tmp_path):
    p, y = problem
    result = mm.compare(p, y, methods=["lift", "ts"])
    assert {one.name for one in result.results} == {"lift", "ts", "identity"}
    np.savez(tmp_path / "scores.npz", probs=p, labels=y)
    arguments = ["fit", str(tmp_path / "scores.npz"), "--method", "lift", "-o", str(tmp_path / "map.json")]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    assert isinstance(mm.load(tmp_path / "map.json").map_, Lift)


def test_names_that_are_taken_are_refused():
    class TemperatureScaling(Lift):
        pass

    with pytest.raises(ValueError, match="there is a map called TemperatureScaling already"):
        register_map(TemperatureScaling, name="other")
    with pytest.raises(ValueError, match="'ts' is taken"):
        register_map(type("Another", (Lift,), {}), name="ts")
    with pytest.raises(TypeError, match="subclass of CalibrationMap"):
        register_map(dict, name="dict")
    with pytest.raises(ValueError, match="'kde' is taken"):
        register_estimator("kde", MeanGap)


def test_an_estimator_has_intervals_notions_and_the_command_line(problem, tmp_path):
    p, y = problem
    error = mm.calibration_error(p, y, estimator="mean-gap", interval=True)
    assert error.estimator == "mean-gap"
    assert error.interval[0] <= error.interval[1]
    each = mm.calibration_error(p, y, estimator="mean-gap", notion="class-wise").per_class
    assert_allclose(each, np.abs(p.mean(axis=0) - np.bincount(y) / len(y)), atol=1e-12)
    np.savez(tmp_path / "scores.npz", probs=p, labels=y)
    done = CliRunner().invoke(cli, ["evaluate", str(tmp_path / "scores.npz"), "--estimator", "mean-gap"])
    assert done.exit_code == 0, done.output
    assert "mean-gap" in done.output


def test_a_built_in_estimator_is_a_module_and_one_line(problem, monkeypatch):
    p, y = problem
    monkeypatch.setitem(ESTIMATORS, "from-its-module", f"{__name__}:MeanGap")
    error = mm.calibration_error(p, y, estimator="from-its-module")
    assert float(error) == float(mm.calibration_error(p, y, estimator="mean-gap"))
