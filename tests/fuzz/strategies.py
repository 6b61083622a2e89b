"""Arrays as users and accidents make them: every type, shape, stride and byte order, and every kind of bad value."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

LOGITS = ("normal", "wide", "extreme", "denormal", "constant", "whole", "tied", "separable")
PROBABILITIES = ("sharp", "flat", "one-hot", "uniform", "denormal", "rounded", "off", "negative zero")
DTYPES = ("f2", "f4", "f8", "g", ">f4", ">f8", "i1", "i8", "u1", "u8", ">i2")
STRANGE_DTYPES = ("?", "c8", "O", "U8", "S8", "M8[s]", "m8[s]", "V8")
LAYOUTS = ("plain", "Fortran", "strided", "reversed", "columns reversed", "read-only", "unaligned", "list", "matrix")
DAMAGE = ("nan", "inf", "-inf", "negative", "large", "masked", "no mask", "empty", "no columns", "one column", "cube")
LABELS = ("i8", "i1", "u1", "u8", ">i4", "f8", "f2", "text", "bytes", "objects", "column", "list", "one class")
BAD_LABELS = ("nan", "half", "negative", "too large", "1e300", "short", "square", "none", "masked", "complex", "mixed")
WEIGHTS = ("whole", "real", "zeros", "one row", "huge", "tiny", ">f4", "bool", "list")
BAD_WEIGHTS = (
    "nan",
    "inf",
    "negative",
    "all zero",
    "denormal",
    "overflow",
    "masked",
    "objects",
    "text",
    "short",
    "cube",
)


@dataclass
class Case:
    """Arguments of a call. ``what`` tells in words what they are."""

    scores: Any
    y: Any
    weight: Any
    logits: bool
    what: str


@st.composite
def cases(draw: Any, n_classes: int | None = None, *, logits: bool | None = None, max_rows: int = 40) -> Case:
    """Scores, labels and weights; most are usable, and many are odd in one way or another.

    Without ``logits`` scores are of either kind.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    # A choice between "as usual" and "odd", three or more to one, lets odd things meet usual ones and get far.
    odd = st.sampled_from((False, False, False, True))
    n = draw(st.sampled_from((1, 2, 3, 10, max_rows)))
    n_classes = n_classes or draw(st.sampled_from((2, 2, 3, 5)))
    logits = draw(st.booleans()) if logits is None else logits
    kind = draw(st.sampled_from(LOGITS if logits else PROBABILITIES))
    values = (_logits if logits else _probabilities)(rng, kind, n, n_classes)
    y = rng.integers(0, n_classes, n)
    words = [kind, f"{n} x {n_classes}"]
    if n_classes == 2 and draw(odd):
        values = values[:, 1]
        words.append("vector")
    dtype = draw(st.sampled_from(STRANGE_DTYPES if draw(odd) and draw(odd) else DTYPES)) if draw(odd) else "f8"
    layout = draw(st.sampled_from(LAYOUTS)) if draw(odd) else "plain"
    damage = draw(st.sampled_from(DAMAGE)) if draw(odd) and draw(odd) else ""
    values = _laid_out(_damaged(_cast(values, dtype), damage, rng), layout)
    labels = draw(st.sampled_from(BAD_LABELS if draw(odd) and draw(odd) else LABELS)) if draw(odd) else "i8"
    weights = draw(st.sampled_from(BAD_WEIGHTS if draw(odd) and draw(odd) else WEIGHTS)) if draw(odd) else "none"
    words += [dtype, layout, damage or "sound", f"labels {labels}", f"weights {weights}"]
    return Case(values, _labels(y, labels, n_classes), _weights(rng, n, weights), logits, ", ".join(words))


def _logits(rng: np.random.Generator, kind: str, n: int, n_classes: int) -> Any:
    shape = (n, n_classes)
    normal = rng.normal(size=shape)
    if kind == "extreme":  # a range that no difference of two numbers can hold
        return rng.choice([-1.7e308, -1e300, -1.0, 0.0, 1.0, 3e38, 1.7e308], shape)
    if kind == "separable":
        return np.eye(n_classes)[rng.integers(0, n_classes, n)] * 1e3
    return {
        "normal": 2 * normal,
        "wide": 1e4 * normal,
        "denormal": 5e-324 * np.round(9 * normal),
        "constant": np.full(shape, normal[0, 0]),
        "whole": np.round(40 * normal),
        "tied": np.repeat(normal[:, :1], n_classes, axis=1),
    }[kind]


def _probabilities(rng: np.random.Generator, kind: str, n: int, n_classes: int) -> Any:
    if kind in ("one-hot", "negative zero"):
        p = np.eye(n_classes)[rng.integers(0, n_classes, n)]
        return np.where(p == 0, -0.0, p) if kind == "negative zero" else p
    if kind == "denormal":
        p = np.full((n, n_classes), 5e-324)
        p[np.arange(n), rng.integers(0, n_classes, n)] = 1.0
        return p
    if kind == "uniform":
        return np.full((n, n_classes), 1 / n_classes)
    p = rng.dirichlet([0.1 if kind == "sharp" else 2.0] * n_classes, n)
    if kind == "rounded":
        p = np.round(p * 4) / 4
        p[:, 0] = 1 - p[:, 1:].sum(axis=1)
        return np.abs(p) / np.abs(p).sum(axis=1, keepdims=True)
    return p * (1 + 5e-5 * rng.uniform(-1, 1, (n, 1))) if kind == "off" else p


def _cast(values: Any, dtype: str) -> Any:
    with np.errstate(all="ignore"):
        if dtype == "V8":
            return values.astype([("score", "f8")])
        if dtype in ("M8[s]", "m8[s]"):
            return values.astype("i8").astype(dtype)
        if np.dtype(dtype).kind in "iu":  # numbers that the type can hold, ends included
            limits = np.iinfo(dtype)
            return np.clip(np.nan_to_num(values), limits.min, limits.max).astype(dtype)
        return values.astype(dtype)


def _damaged(values: Any, damage: str, rng: np.random.Generator) -> Any:
    if damage in ("masked", "no mask"):
        return np.ma.array(values, mask=rng.random(values.shape) < 0.3 if damage == "masked" else False)
    if damage == "empty":
        return values[:0]
    if damage == "no columns":
        return values.reshape(len(values), -1)[:, :0]
    if damage == "one column":
        return values.reshape(len(values), -1)[:, :1]
    if damage == "cube":
        return values[..., None, None]
    special = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf, "negative": -0.25, "large": 3.5}
    if damage in special and values.dtype.kind == "f":
        values = values.copy()
        values.reshape(-1)[rng.integers(values.size)] = special[damage]
    return values


def _laid_out(values: Any, layout: str) -> Any:
    if np.ma.isMaskedArray(values) or layout == "plain":
        return values
    if layout == "Fortran":
        return np.asfortranarray(values)
    if layout == "strided":
        return np.repeat(np.repeat(values, 2, axis=0), 3, axis=-1)[::2, ..., ::3] if values.ndim > 1 else values[::1]
    if layout == "reversed":
        return values[::-1].copy()[::-1]
    if layout == "columns reversed":
        return values[..., ::-1].copy()[..., ::-1]
    if layout == "unaligned" and not values.dtype.hasobject:
        raw = np.frombuffer(b"\0" + values.tobytes(), dtype=np.uint8)[1:]
        return raw.view(values.dtype).reshape(values.shape)
    if layout == "list":
        return values.tolist()
    if layout == "matrix" and values.ndim == 2:
        return values.view(np.matrix)
    values = values.copy()
    values.setflags(write=False)
    return values


def _labels(y: Any, kind: str, n_classes: int) -> Any:
    names = np.array([f"class {index}" for index in range(n_classes)])
    if kind in ("nan", "half", "1e300"):
        return np.where(np.arange(len(y)) == len(y) - 1, {"nan": np.nan, "half": 0.5, "1e300": 1e300}[kind], y)
    special = {
        "text": lambda: names[y],
        "bytes": lambda: names[y].astype("S"),
        "objects": lambda: names[y].astype(object),
        "column": lambda: y[:, None],
        "list": y.tolist,
        "one class": lambda: np.zeros_like(y),
        "negative": lambda: y - 1,
        "too large": lambda: y.astype("u8") + np.uint64(2**63),
        "short": lambda: y[:-1],
        "square": lambda: np.eye(n_classes)[y],
        "none": lambda: None,
        "masked": lambda: np.ma.array(y, mask=y == 0),
        "complex": lambda: y.astype("c16"),
        "mixed": lambda: np.array([*y[:-1].tolist(), "b"], dtype=object),
    }
    return special[kind]() if kind in special else y.astype(kind)


def _weights(rng: np.random.Generator, n: int, kind: str) -> Any:
    real = rng.random(n) * 4
    first = np.arange(n) == 0
    return {
        "none": lambda: None,
        "whole": lambda: rng.integers(1, 5, n),
        "real": lambda: real + 1,
        "zeros": lambda: rng.integers(0, 3, n),
        "one row": lambda: 2 * first,
        "huge": lambda: np.where(first, 1e300, 1.0),
        "tiny": lambda: np.where(first, 5.0 + n, 1e-300),
        ">f4": lambda: (real + 1).astype(">f4"),
        "bool": lambda: np.ones(n, bool),
        "list": lambda: (real + 1).tolist(),
        "nan": lambda: np.where(first, np.nan, 1.0),
        "inf": lambda: np.where(first, np.inf, 1.0),
        "negative": lambda: np.where(first, -1.0, 1.0),
        "all zero": lambda: np.zeros(n),
        "denormal": lambda: np.full(n, 5e-324),
        "overflow": lambda: np.full(n, 1.7e308),
        "masked": lambda: np.ma.array(real + 1, mask=first),
        "objects": lambda: (real + 1).astype(object),
        "text": lambda: np.full(n, "1"),
        "short": lambda: np.ones(max(n - 1, 0)),
        "cube": lambda: np.ones((n, 1, 1)),
    }[kind]()
