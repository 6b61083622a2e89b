"""A calibrated scikit-learn classifier as one ONNX model: converted by skl2onnx, with its maps behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnx import TensorProto, helper
from sklearn.frozen import FrozenEstimator

from mixnmatch._engine.frames import is_frame
from mixnmatch._estimators import is_pairwise
from mixnmatch.export.graph import Graph
from mixnmatch.export.lowering import lowered
from mixnmatch.export.onnx_classifier import appended, finish, rename, result_names
from mixnmatch.export.onnx_file import OPSET, Emitter, describe
from mixnmatch.maps.base import CalibrationMap

if TYPE_CHECKING:
    from mixnmatch.classifier import CalibratedClassifier


def classifier_model(fitted: CalibratedClassifier, X: Any, *, precision: str = "double") -> Any:
    """A fitted calibrated classifier as an ONNX model; see :meth:`CalibratedClassifier.to_onnx`."""
    parts = [_calibrated(fitted, estimator, map_, X, precision) for estimator, map_ in fitted.pairs_]
    model = parts[0]
    names = result_names(model)
    folds = []
    for number, part in enumerate(parts):
        _drop_label(part, names)
        folds.append(f"fold_{number}/{names[1]}")
        _put_aside(part, f"fold_{number}/")
        if number:
            model.graph.node.extend(part.graph.node)
            model.graph.initializer.extend(part.graph.initializer)
    emitter = Emitter(Graph(precision), OPSET)
    emitter.nodes.append(helper.make_node("Mean", folds, [names[1]]))
    del model.graph.value_info[:]
    finish(model, emitter, names, fitted.classes_, len(fitted.classes_))
    describe(model, fitted, fitted.classes_, precision)
    return model


def _calibrated(fitted: Any, estimator: Any, map_: CalibrationMap, X: Any, precision: str) -> Any:
    """One pair of a classifier and a map."""
    estimator = estimator.estimator if isinstance(estimator, FrozenEstimator) else estimator
    if len(estimator.classes_) != len(fitted.classes_):
        msg = "a classifier (of a fold) that has not seen all classes cannot be exported: use fewer folds, or more rows"
        raise ValueError(msg)
    logits = fitted._score_method(estimator) == "decision_function"
    if logits and len(fitted.classes_) > 2 and is_pairwise(estimator):
        msg = (
            "a classifier with a pairwise decision function cannot be exported: "
            "fit it with decision_function_shape='ovr', which gives the same predictions"
        )
        raise ValueError(msg)
    if logits != map_.takes_logits:
        msg = f"a {type(map_).__name__} that does not take the scores of the classifier as they are cannot be exported"
        raise ValueError(msg)
    model = _converted(estimator, X, logits)
    scores = model.graph.output[1].name
    if len(fitted.classes_) == 2:  # maps have seen the positive class: the last column, however many are declared
        column = helper.make_tensor("classifier/last", TensorProto.INT64, [1], [-1])
        model.graph.initializer.append(column)
        model.graph.node.append(helper.make_node("Gather", [scores, column.name], ["classifier/positive"], axis=1))
        scores = "classifier/positive"
    return appended(map_, lowered(map_, precision=precision), model, scores, len(fitted.classes_) == 2)


def _converted(estimator: Any, X: Any, logits: bool) -> Any:
    """The classifier alone: its second output are its scores."""
    try:
        from skl2onnx import to_onnx
    except ModuleNotFoundError as error:
        msg = "converting a classifier to ONNX needs the package skl2onnx: pip install skl2onnx"
        raise ModuleNotFoundError(msg, name="skl2onnx") from error
    last = estimator.steps[-1][1] if hasattr(estimator, "steps") else estimator
    wanted = {"raw_scores": True} if logits else {}
    # The columns of a data frame become inputs of their own, which only some first steps of a pipeline take.
    tables = [X[:1], X[:1].to_numpy()] if is_frame(X) else [X[:1]]
    failed: list[Exception] = []
    for table in tables:
        try:
            try:
                return to_onnx(estimator, table, options={id(last): {"zipmap": False, **wanted}})
            except NameError:  # some classifiers give an array without being told
                return to_onnx(estimator, table, options={id(last): wanted} if wanted else None)
        except Exception as error:  # converters raise all kinds of errors
            failed.append(error)
    last_error = failed[-1]
    scores, hint = "decision function" if logits else "probabilities", ""
    if type(last_error).__name__ in ("MissingShapeCalculator", "MissingConverter"):
        hint = (
            "; register a converter first (onnxmltools has those of XGBoost and LightGBM), or export the map alone: "
            "model.pairs_[0][1].to_onnx(path)"
        )
    elif logits:
        hint = '; with scores="predict_proba" it may be possible'
    why = f"{type(last_error).__name__}: {' '.join(str(last_error).split()):.200}"
    msg = f"skl2onnx cannot convert this {type(last).__name__} with its {scores}{hint} ({why})"
    raise ValueError(msg) from last_error


def _drop_label(model: Any, names: tuple[str, str]) -> None:
    """Remove the label output, which refers to the classes of one fold, and the nodes that only it needs."""
    del model.graph.output[0]
    needed = {names[1]}
    for k in range(len(model.graph.node) - 1, -1, -1):
        node = model.graph.node[k]
        if needed.isdisjoint(node.output):
            del model.graph.node[k]
        else:
            needed.update(node.input)
            needed.update(name for inner in _inner(node) for each in inner.node for name in each.input)
    for k in range(len(model.graph.initializer) - 1, -1, -1):
        if model.graph.initializer[k].name not in needed:
            del model.graph.initializer[k]


def _inner(node: Any) -> list[Any]:
    return [graph for attribute in node.attribute for graph in (*attribute.graphs, attribute.g)]


def _put_aside(model: Any, prefix: str) -> None:
    """Rename everything in a model but its inputs, so that names do not clash."""
    graph = model.graph
    names = {name for node in graph.node for name in node.output} | {each.name for each in graph.initializer}
    rename(graph, {name: prefix + name for name in names if name})
    for node in graph.node:
        node.name = prefix + node.name if node.name else ""
