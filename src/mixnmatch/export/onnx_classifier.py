"""Appending a map to a classifier in ONNX, so that one file goes from features to calibrated probabilities."""

from __future__ import annotations

import os
from os import PathLike
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from mixnmatch._engine.labels import is_text
from mixnmatch.export.graph import Graph
from mixnmatch.export.onnx_file import IR_VERSION, OPSET, SCORE_TYPES, Emitter, probabilities_info
from mixnmatch.maps.base import CalibrationMap


def appended(fitted: CalibrationMap, graph: Graph, classifier: Any, output: str | None, vector: bool) -> Any:
    """The classifier with the map behind it; its inputs keep their names."""
    given = _read(classifier) if isinstance(classifier, str | PathLike) else classifier
    opset = _opset(given)
    scores = _scores(given, output)
    kind, width = _type_and_width(given, scores)
    vector = vector or width == 1
    if not vector and width is not None and width != fitted.n_classes_:
        msg = (
            f"{scores!r} of the classifier has {width} columns, but the map was fitted with {fitted.n_classes_} classes"
        )
        raise ValueError(msg)
    if vector and fitted.n_classes_ != 2:
        msg = f"{scores!r} of the classifier has one column, but the map was fitted with {fitted.n_classes_} classes"
        raise ValueError(msg)
    model = onnx.ModelProto()
    model.CopyFrom(given)
    names = result_names(model)
    new_names = {name: f"classifier/{name}" for name in names}
    rename(model.graph, new_names)
    emitter = Emitter(graph, opset)
    emitter.run(new_names.get(scores, scores), kind, names[1], vector=vector)
    finish(model, emitter, names, fitted.classes_, fitted.n_classes_)
    if not any(entry.domain in ("", "ai.onnx") for entry in model.opset_import):
        model.opset_import.append(helper.make_opsetid("", opset))
    model.ir_version = max(model.ir_version, IR_VERSION)
    return model


def result_names(model: Any) -> tuple[str, str]:
    """Return names for the outputs (label and probabilities) that differ from all input names."""
    inputs = {each.name for each in model.graph.input}
    label, probabilities = (_free(name, inputs) for name in ("label", "probabilities"))
    return label, probabilities


def finish(model: Any, emitter: Emitter, names: tuple[str, str], classes: Any, n_classes: int) -> None:
    """Add the emitted nodes and the label; label and probabilities become the outputs."""
    label = _label(emitter, classes, *names)
    model.graph.node.extend(emitter.nodes)
    model.graph.initializer.extend(emitter.initializers)
    del model.graph.output[:]
    model.graph.output.extend([label, probabilities_info(names[1], n_classes)])


def _read(path: str | PathLike[str]) -> Any:
    from google.protobuf.message import DecodeError

    try:
        return onnx.load(os.fspath(path), format="protobuf")
    except DecodeError:
        msg = f"{os.fspath(path)} is not an ONNX model, or was cut short"
        raise ValueError(msg) from None


def _opset(model: Any) -> int:
    found = next((int(entry.version) for entry in model.opset_import if entry.domain in ("", "ai.onnx")), OPSET)
    if found < OPSET:
        msg = (
            f"the classifier uses version {found} of the ONNX operators, the map needs {OPSET}: "
            "convert the classifier again with a newer target_opset, or with onnx.version_converter"
        )
        raise ValueError(msg)
    return found


def _scores(model: Any, output: str | None) -> str:
    """Name of the tensor with the scores."""
    outputs: dict[str, Any] = {each.name: each for each in model.graph.output}
    if output is not None:
        inside = {name for node in model.graph.node for name in node.output}
        if output not in outputs and output not in inside:
            msg = f"the classifier has no tensor {output!r}; its outputs are {sorted(outputs)}"
            raise ValueError(msg)
        _refuse_dictionaries(outputs.get(output))
        return output
    for each in outputs.values():
        _refuse_dictionaries(each)
    numbers = [name for name, each in outputs.items() if each.type.tensor_type.elem_type in SCORE_TYPES]
    if len(numbers) != 1:
        msg = f"which output of the classifier holds the scores? Name it by output=; there are {sorted(outputs)}"
        raise ValueError(msg)
    return numbers[0]


def _refuse_dictionaries(info: Any) -> None:
    if info is not None and not info.type.HasField("tensor_type"):
        msg = (
            f"{info.name!r} of the classifier is not a tensor but a list of dictionaries: convert the classifier "
            'with options={"zipmap": False}'
        )
        raise ValueError(msg)


def _type_and_width(model: Any, name: str) -> tuple[Any, int | None]:
    """Element type of a tensor, and its number of columns if the model says it; 1 for a vector."""
    known = [*model.graph.output, *model.graph.value_info]
    info = next((each for each in known if each.name == name), None)
    if info is None:
        inferred = onnx.shape_inference.infer_shapes(model)
        info = next((each for each in inferred.graph.value_info if each.name == name), None)
    if info is None:
        return TensorProto.FLOAT, None
    tensor = info.type.tensor_type
    if tensor.elem_type not in SCORE_TYPES:
        msg = f"{name!r} of the classifier does not hold real numbers"
        raise ValueError(msg)
    if not tensor.HasField("shape"):
        return tensor.elem_type, None
    shape = tensor.shape.dim
    if len(shape) > 2 or len(shape) == 0:
        msg = f"{name!r} of the classifier has {len(shape)} axes; scores have shape (n, L) or (n,)"
        raise ValueError(msg)
    if len(shape) == 1:
        return tensor.elem_type, 1
    return tensor.elem_type, int(shape[1].dim_value) if shape[1].HasField("dim_value") else None


def rename(graph: Any, new_names: dict[str, str]) -> None:
    """Rename tensors, in subgraphs too, so that outputs get the expected names."""
    for each in (*graph.initializer, *graph.value_info, *graph.output):
        each.name = new_names.get(each.name, each.name)
    for node in graph.node:
        node.input[:] = [new_names.get(name, name) for name in node.input]
        node.output[:] = [new_names.get(name, name) for name in node.output]
        for attribute in node.attribute:
            for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                rename(inner, new_names)


def _free(name: str, taken: set[str]) -> str:
    return name if name not in taken else f"calibrated_{name}"


def _label(emitter: Emitter, classes: Any, label: str, probabilities: str) -> Any:
    """Add the most probable class, as ``predict`` gives it, and return its declaration."""
    names = np.asarray(classes)
    text = is_text(names)
    stored = emitter.store(names.astype(object) if text else names.astype(np.int64), "classes")
    winner = emitter.node("ArgMax", probabilities, axis=1, keepdims=0)
    emitter.nodes.append(helper.make_node("Gather", [stored, winner], [label], axis=0))
    return helper.make_tensor_value_info(label, TensorProto.STRING if text else TensorProto.INT64, ["n"])
