"""After deployment: is a map still calibrated, how good are its predictions, and have the scores changed?"""

from mixnmatch.monitoring.drift import ScoreDrift, score_drift
from mixnmatch.monitoring.expected import Expectation, ExpectedPerformance, expected_performance
from mixnmatch.monitoring.intervals import ClassOffset
from mixnmatch.monitoring.monitor import Monitor
from mixnmatch.monitoring.result import MonitorResult, StepRecord
from mixnmatch.monitoring.state import StateFileError

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
