"""Calibration maps, one small module each, and the combinators that turn maps into maps.

Classes are imported when they are first used.
"""

from typing import Any

from mixnmatch.maps.base import BinaryMap, CalibrationMap
from mixnmatch.maps.registry import CLASSES, calibrator, calibrators, default_method, map_class, register_map

_LAYER_ABOVE = "mixnmatch.selection"
__all__ = [
    *(name for name, home in CLASSES.items() if not home.startswith(_LAYER_ABOVE)),
    "BinaryMap",
    "CalibrationMap",
    "calibrator",
    "calibrators",
    "default_method",
    "register_map",
]


def __getattr__(name: str) -> Any:
    kind = map_class(name) if name in __all__ else None
    if kind is None:
        msg = f"module 'mixnmatch.maps' has no attribute {name!r}"
        raise AttributeError(msg)
    return kind


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
