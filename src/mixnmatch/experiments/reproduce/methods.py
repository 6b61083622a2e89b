"""The methods of the tables: the paper's, those that it announces, and newer ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from mixnmatch._engine.suggestions import did_you_mean
from mixnmatch.maps import registry
from mixnmatch.maps.base import CalibrationMap
from mixnmatch.maps.registry import calibrator

__all__ = ["ANNOUNCED", "LEARNING", "METHODS", "NEWER", "PAPER", "Method", "method"]

# The paper fits TS and ETS with squared error and does not smooth isotonic functions.
_SQUARED: Final = {"loss": "brier"}
_PLAIN: Final = {"smoothing": 0.0}
# The authors' code interpolates between the steps of isotonic functions.
_LINEAR: Final = {"shape": "linear"}


@dataclass(frozen=True)
class Method:
    """A column of the tables.

    Attributes
    ----------
    key : str
        Name on the command line and in CSV files.
    title : str
        Name in the tables.
    short : str
        Short name in the registry.
    options : dict
        Options that make it the paper's method.
    ours : bool
        Whether the paper marks it as its own.
    slow : bool
        Whether it sees fewer splits.
    """

    key: str
    title: str
    short: str
    options: dict[str, Any] = field(default_factory=dict)
    ours: bool = False
    slow: bool = False

    def build(self, *, logits: bool) -> CalibrationMap:
        """The unfitted map."""
        return calibrator(self.short, logits=logits, **self.options)


PAPER: Final = (
    Method("uncalibrated", "Uncalibrated", "identity"),
    Method("ts", "TS", "ts", _SQUARED),
    Method("ets", "ETS", "ets", _SQUARED, ours=True),
    Method("irm", "IRM", "irm", _PLAIN, ours=True),
    Method("irova", "IROvA", "irova", _PLAIN),
    Method("irova-ts", "IROvA-TS", "irova-ts", _SQUARED | _PLAIN, ours=True),
    Method("dirichlet", "DirODIR", "dirichlet", slow=True),
    Method("gpc", "GPC", "gpc", slow=True),
)
ANNOUNCED: Final = (
    Method("irm-ts", "IRM-TS", "irm-ts", _SQUARED | _PLAIN),
    Method("irm-ets", "IRM-ETS", "irm-ets", _SQUARED | _PLAIN),
    Method("irova-ets", "IROvA-ETS", "irova-ets", _SQUARED | _PLAIN),
    Method("irova-linear", "IROvA, interpolated", "irova", _PLAIN | _LINEAR),
    Method("irova-ts-linear", "IROvA-TS, interpolated", "irova-ts", _SQUARED | _PLAIN | _LINEAR),
    Method("beta", "Beta", "beta"),
    Method("beta-shared", "Beta, shared", "ensemble-beta", {**_SQUARED, "fixed": False}),
    Method("ensemble-beta", "Ensemble beta", "ensemble-beta", _SQUARED),
)
NEWER: Final = (
    Method("svs", "SVS", "svs"),
    Method("sms", "SMS", "sms", slow=True),
    Method("auto", "auto", "auto", slow=True),
)
METHODS: Final = {one.key: one for one in (*PAPER, *ANNOUNCED, *NEWER)}
# Methods of the learning curves: the paper's five, and the compositions that it announces.
LEARNING: Final[tuple[str, ...]] = (
    "uncalibrated",
    "ts",
    "ets",
    "irm",
    "irova",
    "irova-ts",
    "irm-ts",
    "irm-ets",
    "irova-ets",
)


def method(key: str) -> Method:
    """The method of a key: one of the tables', or any short name with its default options."""
    if key in METHODS:
        return METHODS[key]
    if key in registry.methods():
        return Method(key, key, key, slow=registry.methods()[key].slow)
    known = dict.fromkeys((*METHODS, *registry.methods()))
    msg = f"there is no method called {key!r}; known are {', '.join(known)}{did_you_mean(key, known)}"
    raise ValueError(msg)
