"""Numbers of the paper's Tables 1 and 2, in per cent, for the networks that published files have, too."""

from __future__ import annotations

from typing import Final

_TABLE_1: Final = ("uncalibrated", "ts", "ets", "irm", "irova", "irova-ts", "dirichlet", "gpc")
_TABLE_2: Final = _TABLE_1[1:]


def _row(columns: tuple[str, ...], numbers: str) -> dict[str, str]:
    return dict(zip(columns, numbers.split(), strict=True))


# By metric, then by data set and model, as manifests name them.
PUBLISHED: Final[dict[str, dict[tuple[str, str], dict[str, str]]]] = {
    "ece": {
        ("CIFAR-10", "LeNet 5"): _row(_TABLE_1, "1.42 1.16 1.13 1.19 1.26 1.26 1.29 1.14"),
        ("CIFAR-10", "ResNet 110"): _row(_TABLE_1, "4.25 2.05 2.05 1.53 1.45 1.39 1.82 1.40"),
        ("CIFAR-100", "LeNet 5"): _row(_TABLE_1, "2.76 1.11 1.05 1.33 3.67 3.18 1.17 1.36"),
        ("CIFAR-100", "ResNet 110"): _row(_TABLE_1, "13.61 2.75 1.93 4.78 5.27 3.00 2.46 1.98"),
        ("ImageNet", "DenseNet 161"): _row(_TABLE_1, "5.09 1.72 1.33 2.13 3.97 3.01 4.61 –"),
        ("ImageNet", "VGG 19"): _row(_TABLE_1, "3.31 1.64 1.36 1.85 3.77 3.03 4.04 –"),
        ("ImageNet", "like DenseNet 161"): _row(_TABLE_1, "5.09 1.72 1.33 2.13 3.97 3.01 4.61 –"),
    },
    "gain": {
        ("CIFAR-10", "LeNet 5"): _row(_TABLE_2, "0.027 0.028 -0.028 -0.004 -0.007 -0.119 0.022"),
        ("CIFAR-10", "ResNet 110"): _row(_TABLE_2, "0.821 0.821 0.976 1.11 1.15 1.13 1.02"),
        ("CIFAR-100", "LeNet 5"): _row(_TABLE_2, "0.077 0.085 0.028 -0.576 -0.558 -0.445 0.055"),
        ("CIFAR-100", "ResNet 110"): _row(_TABLE_2, "3.14 3.17 2.90 2.63 3.09 3.50 3.14"),
        ("ImageNet", "like DenseNet 161"): _row(_TABLE_2, "0.397 0.423 0.368 -0.518 -0.438 -1.63 –"),
    },
}
