"""Maps as ONNX models: standard operators only, alone or appended to a classifier."""

from __future__ import annotations

import json
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.scores import ROUNDING
from mixnmatch._files import atomic_write
from mixnmatch._version import __version__
from mixnmatch.export.graph import GIVEN, INTEGER, OUTPUT, REAL, TRUTH, Graph, Step
from mixnmatch.export.lowering import NUDGE, lowered
from mixnmatch.maps.base import CalibrationMap

try:
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ModuleNotFoundError as error:
    msg = "writing ONNX files needs the package onnx: install mixnmatch[onnx]"
    raise ModuleNotFoundError(msg, name="onnx") from error

# Operators of this version are in every runtime since 2020; the ones used here have changed in one place since.
OPSET, IR_VERSION = 13, 7
_AXES_AS_INPUT = 18  # from here on ReduceMax and ReduceMin take their axes as an input
_PREFIX = "calibration_map/"
_REAL_TYPES = {"double": TensorProto.DOUBLE, "single": TensorProto.FLOAT}
SCORE_TYPES: dict[Any, np.dtype[Any]] = {
    TensorProto.FLOAT: np.dtype(np.float32),
    TensorProto.DOUBLE: np.dtype(np.float64),
    TensorProto.FLOAT16: np.dtype(np.float16),
}

# Steps that are one operator with the same inputs.
_OPERATORS = {
    "add": "Add",
    "subtract": "Sub",
    "multiply": "Mul",
    "divide": "Div",
    "negative": "Neg",
    "maximum": "Max",
    "minimum": "Min",
    "exp": "Exp",
    "log": "Log",
    "abs": "Abs",
    "sqrt": "Sqrt",
    "floor": "Floor",
    "where": "Where",
    "less_equal": "LessOrEqual",
    "equal": "Equal",
    "gather": "Gather",
    "matmul": "MatMul",
}


def onnx_model(
    fitted: CalibrationMap,
    *,
    classifier: Any = None,
    output: str | None = None,
    precision: str = "double",
    vector: bool = False,
) -> Any:
    """A fitted map as an ONNX model; see :meth:`CalibrationMap.to_onnx` for the parameters."""
    graph = lowered(fitted, precision=precision)
    if vector and fitted.n_classes_ != 2:
        msg = f"vector=True is for two classes, but the map was fitted with {fitted.n_classes_}"
        raise ValueError(msg)
    if classifier is None:
        if output is not None:
            msg = "output= names a tensor of the classifier: pass classifier= too"
            raise ValueError(msg)
        model = _alone(fitted, graph, vector)
    else:
        from mixnmatch.export.onnx_classifier import appended

        model = appended(fitted, graph, classifier, output, vector)
    logits = json.dumps(fitted.takes_logits)
    describe(model, fitted, fitted.classes_, precision, mixnmatch_logits=logits)
    return model


def describe(model: Any, made_by: Any, classes: NDArray[Any], precision: str, **more: str) -> None:
    """Write metadata to a model and check the model."""
    described = {
        "mixnmatch_version": __version__,
        "mixnmatch_map": " ".join(repr(made_by).split()),
        "mixnmatch_classes": json.dumps(classes.tolist()),
        "mixnmatch_precision": precision,
        **more,
    }
    known = {entry.key: entry.value for entry in model.metadata_props}
    helper.set_model_props(model, known | described)
    onnx.checker.check_model(model)


def write_onnx(fitted: CalibrationMap, path: str | PathLike[str], **settings: Any) -> None:
    """Write a fitted map to an ONNX file, atomically."""
    write_model(onnx_model(fitted, **settings), path)


def write_model(model: Any, path: str | PathLike[str]) -> None:
    """Write a model to a file, atomically."""
    atomic_write(Path(path), model.SerializeToString(deterministic=True))


def _alone(fitted: CalibrationMap, graph: Graph, vector: bool) -> Any:
    emitter = Emitter(graph, OPSET)
    emitter.run("scores", TensorProto.FLOAT, "probabilities", vector=vector)
    shape = ["n"] if vector else ["n", fitted.n_classes_]
    made = helper.make_graph(
        emitter.nodes,
        "calibration_map",
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, shape)],
        [probabilities_info("probabilities", fitted.n_classes_)],
        emitter.initializers,
    )
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(made, producer_name="mixnmatch", producer_version=__version__, opset_imports=opsets)
    model.ir_version = IR_VERSION
    return model


def probabilities_info(name: str, n_classes: int) -> Any:
    """Declaration of an output with calibrated probabilities."""
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", n_classes])


class Emitter:
    """Writes the steps of a graph as nodes and initializers."""

    def __init__(self, graph: Graph, opset: int):
        self.graph = graph
        self.opset = opset
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self._names: list[str] = []
        self._stored: dict[tuple[Any, ...], str] = {}
        self._types: dict[str, Any] = {
            REAL: _REAL_TYPES[graph.precision],
            OUTPUT: TensorProto.FLOAT,
            INTEGER: TensorProto.INT32,  # half the memory of what ArgMax gives
            TRUTH: TensorProto.BOOL,
        }

    def run(self, scores: str, kind: Any, result: str, *, vector: bool) -> None:
        """Emit the whole graph, from a tensor of scores of an element type to a tensor of probabilities."""
        self._tolerance = ROUNDING[SCORE_TYPES[kind].name] or ROUNDING["float32"]
        if kind == TensorProto.FLOAT16:  # few runtimes search for the largest of these
            scores, kind = self.node("Cast", scores, to=TensorProto.FLOAT), TensorProto.FLOAT
        if vector:
            scores, kind = self._two_columns(scores), self._types[REAL]
        self._types[GIVEN] = kind
        for step in self.graph.steps:
            self._names.append(scores if step.operation == "input" else self._emit(step))
        self.nodes.append(helper.make_node("Identity", [self._names[-1]], [result]))

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Append a node and return the name of its output."""
        name = f"{_PREFIX}{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], name=f"{name}_{operator}", **attributes))
        return name

    def store(self, array: NDArray[Any], name: str | None = None) -> str:
        """Append an initializer, unless the same unnamed one is there, and return its name."""
        key = (array.dtype.str, array.shape, array.tobytes())
        if name is None and key in self._stored:
            return self._stored[key]
        full = _PREFIX + (name or f"number_{len(self.initializers)}")
        self.initializers.append(numpy_helper.from_array(array, full))
        self._stored[key] = full
        return full

    def _two_columns(self, scores: str) -> str:
        """Scores of the positive class as scores of both classes."""
        column = self.node("Reshape", scores, self.store(np.array([-1, 1])))
        positive = self.node("Cast", column, to=self._types[REAL])
        logits = self.graph.steps[0].detail == "logits"
        if logits:
            first = self.node("Expand", self._number(0.0, REAL), self.node("Shape", positive))
        else:
            first = self.node("Sub", self._number(1.0, REAL), positive)
        return self.node("Concat", first, positive, axis=1)

    def _number(self, value: float, kind: str) -> str:
        dtype = helper.tensor_dtype_to_np_dtype(self._types[kind])
        return self.store(np.asarray(value, dtype=dtype))

    def _emit(self, step: Step) -> str:
        operation = step.operation
        if operation == "constant":
            array = self.graph.constants[step.detail]
            return self.store(array.astype(helper.tensor_dtype_to_np_dtype(self._types[step.kind])), step.detail)
        if operation == "tolerance":
            return self._number(self._tolerance, REAL)
        if operation == "largest":
            largest = np.finfo(helper.tensor_dtype_to_np_dtype(self._types[GIVEN])).max
            return self._number(float(largest), GIVEN)
        if operation == "spacing":
            return self._number(NUDGE * float(np.finfo(np.float32).eps), OUTPUT)
        inputs = self._inputs(step)
        if operation in _OPERATORS:
            return self.node(_OPERATORS[operation], *inputs)
        emit: Callable[..., str] = getattr(self, f"_emit_{operation}")
        return emit(step, *inputs)

    def _inputs(self, step: Step) -> list[str]:
        """Names of the inputs of a step; a bare number gets the type of the input other_kind it."""
        kinds = [self.graph.steps[item].kind for item in step.inputs if isinstance(item, int)]
        other_kind = next((kind for kind in kinds if kind != TRUTH), REAL)
        return [self._names[item] if isinstance(item, int) else self._number(item, other_kind) for item in step.inputs]

    def _emit_sum(self, _step: Step, x: str) -> str:
        return self.node("ReduceSum", x, self.store(np.array([1])), keepdims=1)

    def _emit_max(self, _step: Step, x: str) -> str:
        return self._extreme("ReduceMax", x)

    def _emit_min(self, _step: Step, x: str) -> str:
        return self._extreme("ReduceMin", x)

    def _extreme(self, operator: str, x: str) -> str:
        if self.opset >= _AXES_AS_INPUT:
            return self.node(operator, x, self.store(np.array([1])), keepdims=1)
        return self.node(operator, x, axes=[1], keepdims=1)

    def _emit_falling(self, step: Step, x: str) -> str:
        # A row is put below and taken off again: onnxruntime 1.20 dies of TopK on none.
        row = np.zeros((1, step.detail), helper.tensor_dtype_to_np_dtype(self._types[step.kind]))
        padded = self.node("Concat", x, self.store(row), axis=0)
        name = self.node("TopK", padded, self.store(np.array([step.detail])), axis=1)
        self.nodes[-1].output.append(f"{name}_places")  # it also says where the entries were
        first, end, axis = (self.store(np.array([value])) for value in (0, -1, 0))
        return self.node("Slice", name, first, end, axis)

    def _emit_running_sum(self, _step: Step, x: str) -> str:
        return self.node("CumSum", x, self.store(np.array(1)))

    def _emit_argmax(self, step: Step, x: str) -> str:
        return self.node("Cast", self.node("ArgMax", x, axis=1, keepdims=1), to=self._types[step.kind])

    def _emit_join(self, _step: Step, a: str, b: str) -> str:
        return self.node("Concat", a, b, axis=1)

    def _emit_column(self, step: Step, x: str) -> str:
        return self.node("Gather", x, self.store(np.array([step.detail])), axis=1)

    def _emit_full_like(self, _step: Step, x: str, value: str) -> str:
        return self.node("Expand", value, self.node("Shape", x))

    def _emit_index(self, step: Step, x: str) -> str:
        return self._cast(step, x)

    def _emit_real(self, step: Step, x: str) -> str:
        return self._cast(step, x)

    def _emit_output(self, step: Step, x: str) -> str:
        return self._cast(step, x)

    def _cast(self, step: Step, x: str) -> str:
        source = step.inputs[0]
        assert isinstance(source, int)
        if self._types[self.graph.steps[source].kind] == self._types[step.kind]:
            return x
        return self.node("Cast", x, to=self._types[step.kind])
