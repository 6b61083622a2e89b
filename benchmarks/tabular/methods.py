"""Which methods take part in the tabular part, for two classes and for more."""

from __future__ import annotations

from dataclasses import replace

from peers.adapters import Method, netcal, others, ours, probmetrics, scikit_learn, torch_uncertainty
from peers.calarena import calarena
from peers.two_classes import probcal

# Our names that make sense for three classes and more only, or stand for another name with two classes.
FOR_MORE_CLASSES = (
    "ensemble-beta", "ensemble-platt", "bcts", "vector", "matrix", "dirichlet", "svs", "sms", "keep-sms", "irm",
    "irm-normalised", "irova-ts", "irova-ets", "irm-ts", "irm-ets", "iop", "sms-ets-irm",
)  # fmt: skip
# The Gaussian process takes minutes where the others take seconds; maps that keep the predicted class are a league of
# their own, on the page about the peers.
LEFT_OUT = ("gpc", "auto (keeps accuracy)", "auto (keeps accuracy, brier)")
# Methods of probmetrics that are not in CalArena. Its order-preserving network takes 20 s on 300 samples.
MORE_OF_PROBMETRICS = ("ts-mix", "logistic-mix", "ets")


def methods(task: str) -> dict[str, Method]:
    """All methods for a task ("binary" or "multiclass") by their keys, ours first.

    Everybody gets float64, as most models give it, but the scalers of torch-uncertainty, which know float32 only.
    """
    own = [m for m in ours() if m.name not in LEFT_OUT and (task == "multiclass" or m.name not in FOR_MORE_CLASSES)]
    more = [m for m in probmetrics() if m.name in MORE_OF_PROBMETRICS]
    lists = [own, scikit_learn(), netcal(), calarena(task), more, others()]
    if task == "binary":
        lists.append(probcal())
    found = [replace(method, dtype="float64") for methods in lists for method in methods] + torch_uncertainty()
    return {method.key: method for method in found}
