"""Ways to run an exported map, and a reader in NumPy that also tells how near scores came to the knots of a map."""

from importlib.util import find_spec

import numpy as np
import pytest

from mixnmatch import accuracy_preserved
from mixnmatch.export.lowering import NUDGE, lowered

RUNTIMES = ("numpy", "onnx", "torch")
INSTALLED = [name for name in RUNTIMES if find_spec(name)]
TOLERANCE = 1e-6

BINARY = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "less_equal": np.less_equal,
    "equal": np.equal,
    "matmul": np.matmul,
    "full_like": np.full_like,
    "gather": lambda table, index: table[index],
    "join": lambda a, b: np.concatenate([a, b], axis=1),
}
UNARY = {
    "negative": np.negative,
    "exp": np.exp,
    "log": np.log,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "floor": np.floor,
    "max": lambda a: a.max(axis=1, keepdims=True),
    "min": lambda a: a.min(axis=1, keepdims=True),
    "sum": lambda a: a.sum(axis=1, keepdims=True),
    "falling": lambda a: -np.sort(-a, axis=1),
    "running_sum": lambda a: a.cumsum(axis=1),
    "argmax": lambda a: a.argmax(axis=1)[:, None],
    "index": lambda a: a.astype(np.int64),
    "output": lambda a: a.astype(np.float32),
}


class Interpreter:
    """Runs the graph of a map on arrays; ``nearest`` is the distance of each row from a knot that it was held to."""

    def __init__(self, fitted, precision="double"):
        self.graph = lowered(fitted, precision=precision)
        self.real = np.float64 if precision == "double" else np.float32

    def __call__(self, scores):
        self.nearest = np.full(len(scores), np.inf)
        values = []
        with np.errstate(over="ignore"):  # a difference of huge logits may be larger than any float
            for step in self.graph.steps:
                values.append(self._run(step, values, scores))
        return values[-1]

    def _run(self, step, values, scores):
        real = {"integer": np.int64, "output": np.float32, "given": scores.dtype.type}
        literal = real.get(step.kind, self.real)
        inputs = [values[item] if isinstance(item, int) else literal(item) for item in step.inputs]
        if step.operation == "less_equal":
            self._measure(step, inputs)
        if step.operation == "constant":
            array = self.graph.constants[step.detail]
            return array if array.dtype.kind == "i" else array.astype(self.real)
        return {
            "input": lambda: scores,
            "real": lambda: inputs[0].astype(self.real),
            "largest": lambda: np.finfo(scores.dtype).max,
            "tolerance": lambda: self.real(1e-5),
            "spacing": lambda: np.float32(NUDGE * np.finfo(np.float32).eps),
            "column": lambda: inputs[0][:, step.detail : step.detail + 1],
            "where": lambda: np.where(*inputs),
            **{name: lambda f=f: f(*inputs) for name, f in (UNARY | BINARY).items()},
        }[step.operation]()

    def _measure(self, step, inputs):
        # A binary search compares every number with both of its neighbours among the knots.
        first = self.graph.steps[step.inputs[0]] if isinstance(step.inputs[0], int) else None
        if first is not None and first.operation == "gather":
            table = self.graph.constants[self.graph.steps[first.inputs[0]].detail]
            table = table[np.isfinite(table)]
            knots = table if (np.diff(table) >= 0).all() else inputs[0]  # of one function, or of many end to end
            if knots is table:  # only the knots of a cell are compared: look at all
                place = np.searchsorted(table, inputs[1])
                knots = np.stack([table[np.maximum(place - 1, 0)], table[np.minimum(place, len(table) - 1)]])
            apart = np.abs(knots - inputs[1]) * np.ones((len(self.nearest), 1))
            apart = apart.min(axis=0) if apart.ndim == 3 else apart
            self.nearest = np.minimum(self.nearest, apart.min(axis=1))


def run_onnx(model, *scores, output="probabilities"):
    """Run a model (bytes, a path or a ModelProto) by onnxruntime; warnings about the file are errors."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    content = model if isinstance(model, bytes | str) else model.SerializeToString()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    feed = dict(zip([each.name for each in session.get_inputs()], scores, strict=True))
    return session.run([output], feed)[0]


def run_torch(fitted, scores, precision="double"):
    import torch

    with torch.no_grad():
        return fitted.to_torch(precision=precision)(torch.from_numpy(scores)).numpy()


def ran(runtime, fitted, scores, precision, *, vector=False):
    """What a runtime gives for scores; ``vector`` for those of the positive class."""
    if runtime == "numpy":
        return Interpreter(fitted, precision)(scores)
    if runtime == "onnx":
        pytest.importorskip("onnx")
        pytest.importorskip("onnxruntime")
        from mixnmatch.export import onnx_model

        return run_onnx(onnx_model(fitted, precision=precision, vector=vector), scores)
    pytest.importorskip("torch")
    return run_torch(fitted, scores, precision)


def assert_same(found, fitted, scores, exempt=None):
    """Check that what was found is what ``predict_proba`` gives, but for exempt rows, and that winners are kept."""
    expected = fitted.predict_proba(scores)
    assert found.dtype == expected.dtype == np.float32
    kept = slice(None) if exempt is None else ~exempt
    np.testing.assert_allclose(found[kept], expected[kept], rtol=0, atol=TOLERANCE)
    if fitted.accuracy_preserving:
        assert accuracy_preserved(scores, found)


def extra_memory(work):
    """Bytes that a call takes beside what there was before, at its peak; on Linux."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak is what is used now
    before = _kilobytes("VmRSS")
    work()
    return 1024 * (_kilobytes("VmHWM") - before)


def _kilobytes(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name))
