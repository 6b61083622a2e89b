"""ONNX files: what is in them, what they are appended to, what is refused."""

import json

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import mixnmatch as mm  # noqa: E402
from mixnmatch.export import lowering, onnx_model  # noqa: E402
from tests.export.problems import NAMES, all_rows, calibration_set, fitted_map  # noqa: E402
from tests.export.runtimes import Interpreter, run_onnx  # noqa: E402


def network(n_classes=3, *, name="logits", softmax=False, opset=17, kind=TensorProto.FLOAT, vector=False):
    """A linear classifier of four features, by hand."""
    rng = np.random.default_rng(0)
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    weight = rng.normal(size=(4, 1 if vector else n_classes)).astype(dtype)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["logits"])]
    if softmax:
        nodes.append(helper.make_node("Softmax", ["logits"], [name], axis=1))
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", kind, ["batch", 4])],
        [helper.make_tensor_value_info(name, kind, ["batch", 1 if vector else n_classes])],
        [numpy_helper.from_array(weight, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), weight


@pytest.mark.parametrize("name", NAMES)
def test_operators_are_standard_and_batches_dynamic(name):
    model = onnx_model(fitted_map(name, 3, False))
    onnx.checker.check_model(model, full_check=True)
    assert {node.domain for node in model.graph.node} == {""}
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 13)]
    for info in (*model.graph.input, *model.graph.output):
        assert info.type.tensor_type.elem_type == TensorProto.FLOAT
        assert info.type.tensor_type.shape.dim[0].dim_param == "n"
        assert info.type.tensor_type.shape.dim[1].dim_value == 3
    used = {name for node in model.graph.node for name in node.input}
    assert {each.name for each in model.graph.initializer} <= used
    single = onnx_model(fitted_map(name, 3, False), precision="single")
    inferred = onnx.shape_inference.infer_shapes(single)
    assert all(each.type.tensor_type.elem_type != TensorProto.DOUBLE for each in inferred.graph.value_info)


def test_the_file_says_what_it_is(tmp_path):
    scores, y = calibration_set(3, True)
    fitted = mm.calibrator("irm-ets", logits=True, classes=["cat", "dog", "eel"]).fit(
        scores, np.array(["cat", "dog", "eel"])[y]
    )
    path = tmp_path / "cal.onnx"
    path.write_text("old")
    fitted.to_onnx(path)
    properties = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    assert properties["mixnmatch_version"] == mm.__version__
    assert properties["mixnmatch_map"].startswith("Composition(first=EnsembleTemperatureScaling(")
    assert json.loads(properties["mixnmatch_logits"]) is True
    assert json.loads(properties["mixnmatch_classes"]) == ["cat", "dog", "eel"]
    assert [each.name for each in tmp_path.iterdir()] == ["cal.onnx"]
    again = tmp_path / "again.onnx"
    fitted.to_onnx(again)
    assert again.read_bytes() == path.read_bytes()


def test_a_loaded_map_is_exported_alike(tmp_path):
    fitted = fitted_map("irova-ts", 3, False)
    fitted.save(tmp_path / "cal.json")
    loaded = mm.load(tmp_path / "cal.json")
    assert onnx_model(loaded) == onnx_model(fitted)


@pytest.mark.parametrize("logits", [False, True])
@pytest.mark.parametrize("precision", ["double", "single"])
def test_vectors_of_the_positive_class(logits, precision):
    rng = np.random.default_rng(0)
    positive = (8 * rng.normal(size=300) if logits else rng.random(300)).astype(np.float32)
    positive[:2] = [-1e4, 1e4] if logits else [0, 1]
    y = (rng.random(300) < 0.5).astype(int)
    for name in ("ts", "ets", "beta", "svs"):
        fitted = mm.calibrator(name, logits=logits).fit(positive, y)
        found = run_onnx(onnx_model(fitted, vector=True, precision=precision), positive)
        np.testing.assert_allclose(found, fitted.predict_proba(positive), rtol=0, atol=1e-6)
    with pytest.raises(ValueError, match="two classes"):
        onnx_model(fitted_map("ts", 3, False), vector=True)


@pytest.mark.parametrize("opset", [13, 17, 18, 21])
@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16])
def test_appended_to_a_network(opset, kind):
    classifier, _ = network(opset=opset, kind=kind)
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    x = np.random.default_rng(1).normal(size=(50, 4)).astype(dtype)
    for name in ("ets", "irm"):
        fitted = fitted_map(name, 3, True)
        model = onnx_model(fitted, classifier=classifier)
        expected = fitted.predict_proba(run_onnx(classifier, x, output="logits"))
        # Runtimes may leave out the rounding of 16-bit logits between the classifier and the map.
        tolerance = 1e-3 if kind == TensorProto.FLOAT16 else 1e-6
        np.testing.assert_allclose(run_onnx(model, x), expected, rtol=0, atol=tolerance)
        np.testing.assert_array_equal(run_onnx(model, x, output="label"), run_onnx(model, x).argmax(axis=1))
        assert [each.name for each in model.graph.input] == ["x"]
        assert [each.name for each in model.graph.output] == ["label", "probabilities"]


def test_a_tensor_inside_and_a_clash_of_names():
    classifier, weight = network(name="probabilities", softmax=True)
    x = np.random.default_rng(1).normal(size=(50, 4)).astype(np.float32)
    logits, fitted = x @ weight, fitted_map("ets", 3, True)
    inside = onnx_model(fitted, classifier=classifier, output="logits")
    np.testing.assert_allclose(run_onnx(inside, x), fitted.predict_proba(logits), rtol=0, atol=1e-6)
    fitted = fitted_map("ets", 3, False)
    outside = onnx_model(fitted, classifier=classifier)
    expected = fitted.predict_proba(run_onnx(classifier, x))
    np.testing.assert_allclose(run_onnx(outside, x), expected, rtol=0, atol=1e-6)


def test_names_inside_of_branches():
    """A classifier with an If, whose branches use a tensor that has the name of one of our outputs."""
    branches = []
    for name, operator in (("one", "Identity"), ("other", "Neg")):
        node = helper.make_node(operator, ["label"], [name])
        branches.append(
            helper.make_graph([node], name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)])
        )
    nodes = [
        helper.make_node("Abs", ["x"], ["label"]),
        helper.make_node("If", ["flip"], ["logits"], then_branch=branches[1], else_branch=branches[0]),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3]),
            helper.make_tensor_value_info("flip", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 3])],
    )
    classifier = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    before = classifier.SerializeToString()
    x, fitted = all_rows(3, True), fitted_map("ets", 3, True)
    model = onnx_model(fitted, classifier=classifier)
    assert classifier.SerializeToString() == before
    for flip in (False, True):
        expected = fitted.predict_proba(-np.abs(x) if flip else np.abs(x))
        np.testing.assert_allclose(run_onnx(model, x, np.array(flip)), expected, rtol=0, atol=1e-6)


def test_one_column_is_the_positive_class():
    classifier, weight = network(vector=True)
    x = np.random.default_rng(1).normal(size=(50, 4)).astype(np.float32)
    margin = (x @ weight)[:, 0]
    fitted = mm.calibrator("ts", logits=True).fit(margin, (margin > 0).astype(int) ^ (np.arange(50) % 5 == 0))
    found = run_onnx(onnx_model(fitted, classifier=classifier), x)
    np.testing.assert_allclose(found, fitted.predict_proba(margin), rtol=0, atol=1e-6)
    with pytest.raises(ValueError, match="one column"):
        onnx_model(fitted_map("ts", 3, True), classifier=classifier)


def test_what_cannot_be_appended():
    fitted = fitted_map("ts", 3, True)
    with pytest.raises(ValueError, match="has 5 columns, but the map was fitted with 3"):
        onnx_model(fitted, classifier=network(5)[0])
    with pytest.raises(ValueError, match=r"no tensor 'margin'; its outputs are \['logits'\]"):
        onnx_model(fitted, classifier=network()[0], output="margin")
    with pytest.raises(ValueError, match="version 9 of the ONNX operators"):
        onnx_model(fitted, classifier=network(opset=9)[0])
    with pytest.raises(ValueError, match="pass classifier= too"):
        onnx_model(fitted, output="logits")
    two = network()[0]
    two.graph.output.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [4, 3]))
    with pytest.raises(ValueError, match=r"Name it by output=; there are \['logits', 'w'\]"):
        onnx_model(fitted, classifier=two)
    with pytest.raises(ValueError, match="precision must be"):
        onnx_model(fitted, precision="half")


def test_a_pipeline_of_scikit_learn(tmp_path):
    skl2onnx = pytest.importorskip("skl2onnx")
    from sklearn.datasets import make_classification
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, codes = make_classification(600, 8, n_informative=5, n_classes=3, random_state=0)
    X, names = X.astype(np.float32), np.array(["cat", "dog", "eel"])
    pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(X[:300], names[codes[:300]])
    options = {id(pipeline): {"zipmap": False}}
    converted = skl2onnx.to_onnx(pipeline, X[:1], options=options)
    path = tmp_path / "pipeline.onnx"
    path.write_bytes(converted.SerializeToString())
    p = pipeline.predict_proba(X[300:])
    for name in ("ts", "ets", "beta", "sms", "irm"):
        fitted = mm.calibrator(name, classes=pipeline.classes_).fit(p, names[codes[300:]])
        out = tmp_path / f"{name}.onnx"
        fitted.to_onnx(out, classifier=path)
        found = run_onnx(str(out), X)
        # The converted pipeline itself differs from Python's by the rounding of float32.
        theirs = run_onnx(str(path), X)
        np.testing.assert_allclose(found, fitted.predict_proba(theirs), rtol=0, atol=1e-6)
        ours = fitted.predict_proba(pipeline.predict_proba(X))
        reader = Interpreter(fitted)
        reader(theirs)
        exempt = reader.nearest <= 1e-6
        assert exempt.sum() < (100 if name == "irm" else 1)  # scores of the calibration set, which are its knots
        np.testing.assert_allclose(found[~exempt], ours[~exempt], rtol=0, atol=5e-6)
        labels = run_onnx(str(out), X, output="label")
        assert (labels[~exempt] == fitted.predict(pipeline.predict_proba(X))[~exempt]).all()
    with pytest.raises(ValueError, match="zipmap"):
        fitted.to_onnx(out, classifier=skl2onnx.to_onnx(pipeline, X[:1]))


def test_a_map_of_the_user():
    class Squared(mm.maps.CalibrationMap):
        def _fit(self, source):
            return {"power_": 2.0}

        def _proba(self, block):
            p = block.probabilities() ** self.power_
            return p / p.sum(axis=1, keepdims=True)

    scores, y = calibration_set(3, False)
    fitted = (mm.TemperatureScaling() >> Squared()).fit(scores, y)
    with pytest.raises(TypeError, match=r"a Squared cannot be exported.*mixnmatch.export.lowering\(Squared\)"):
        onnx_model(fitted)

    from mixnmatch.export import Softmax
    from mixnmatch.export.lowering import _LOWERINGS

    @lowering(Squared)
    def squared(fitted, rows):
        floor = rows.graph.constant("floor", 1e-37)
        return Softmax(rows.logs(floor) * rows.graph.constant("power", fitted.power_), rows.n_classes)

    try:
        found = run_onnx(onnx_model(fitted), scores)
    finally:
        del _LOWERINGS[Squared]
    np.testing.assert_allclose(found, fitted.predict_proba(scores), rtol=0, atol=1e-6)


def test_a_subclass_is_not_taken_for_its_parent():
    class Hotter(mm.TemperatureScaling):
        pass

    scores, y = calibration_set(3, False)
    with pytest.raises(TypeError, match="a Hotter cannot be exported"):
        onnx_model(Hotter().fit(scores, y))


def test_what_has_no_lowering():
    scores, y = calibration_set(3, False)
    from sklearn.linear_model import LogisticRegression

    from mixnmatch.maps.shared_function import SharedFunction

    for each in (SharedFunction(np.square), mm.TemperatureScaling() >> LogisticRegression()):
        with pytest.raises(TypeError, match="cannot be exported"):
            onnx_model(each.fit(scores, y))
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        mm.TemperatureScaling().to_onnx("never.onnx")


def test_rows_do_not_depend_on_each_other():
    fitted, rows = fitted_map("irm-ets", 3, False), all_rows(3, False)
    model = onnx_model(fitted)
    np.testing.assert_array_equal(run_onnx(model, rows)[7:9], run_onnx(model, rows[7:9].copy()))
