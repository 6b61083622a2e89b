"""Public names; ``__init__.py`` imports each from here when it is first used."""

from .drift import ScoreDrift as ScoreDrift
from .drift import score_drift as score_drift
from .expected import Expectation as Expectation
from .expected import ExpectedPerformance as ExpectedPerformance
from .expected import expected_performance as expected_performance
from .intervals import ClassOffset as ClassOffset
from .monitor import Monitor as Monitor
from .result import MonitorResult as MonitorResult
from .result import StepRecord as StepRecord
from .state import StateFileError as StateFileError

__all__ = [
    "ClassOffset",
    "Expectation",
    "ExpectedPerformance",
    "Monitor",
    "MonitorResult",
    "ScoreDrift",
    "StateFileError",
    "StepRecord",
    "expected_performance",
    "score_drift",
]
