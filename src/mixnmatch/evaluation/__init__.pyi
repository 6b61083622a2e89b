"""Public names; ``__init__.py`` imports each from here when it is first used."""

from ._evaluate import evaluate as evaluate
from ._evaluation import Evaluation as Evaluation
from .decomposition import cross_validated_decomposition as cross_validated_decomposition
from .decomposition import score_decomposition as score_decomposition
from .display import ReliabilityDisplay as ReliabilityDisplay
from .error import CalibrationMetric as CalibrationMetric
from .error import calibration_error as calibration_error
from .estimators import Dirichlet as Dirichlet
from .estimators import Histogram as Histogram
from .estimators import KernelCalibration as KernelCalibration
from .estimators import KernelDensity as KernelDensity
from .estimators import ResidualKernel as ResidualKernel
from .estimators import Smooth as Smooth
from .estimators import Sweep as Sweep
from .estimators import estimator as estimator
from .gain import CalibrationGain as CalibrationGain
from .gain import GainComparison as GainComparison
from .gain import calibration_gain as calibration_gain
from .gain import compare_gains as compare_gains
from .reliability import ReliabilityCurve as ReliabilityCurve
from .reliability import reliability_curve as reliability_curve
from .reliability import worst_classes as worst_classes
from .result import CalibrationError as CalibrationError
from .scores import accuracy as accuracy
from .scores import brier_score as brier_score
from .scores import log_loss as log_loss
from .streaming import AccuracyAccumulator as AccuracyAccumulator
from .streaming import BrierAccumulator as BrierAccumulator
from .streaming import CalibrationErrorAccumulator as CalibrationErrorAccumulator
from .streaming import CalibrationGainAccumulator as CalibrationGainAccumulator
from .streaming import LogLossAccumulator as LogLossAccumulator
from .streaming import ReliabilityAccumulator as ReliabilityAccumulator
from .two_classes import BinaryMeasure as BinaryMeasure
from .two_classes import binary_measures as binary_measures
from .winners import accuracy_preserved as accuracy_preserved

__all__ = [
    "AccuracyAccumulator",
    "BinaryMeasure",
    "BrierAccumulator",
    "CalibrationError",
    "CalibrationErrorAccumulator",
    "CalibrationGain",
    "CalibrationGainAccumulator",
    "CalibrationMetric",
    "Dirichlet",
    "Evaluation",
    "GainComparison",
    "Histogram",
    "KernelCalibration",
    "KernelDensity",
    "LogLossAccumulator",
    "ReliabilityAccumulator",
    "ReliabilityCurve",
    "ReliabilityDisplay",
    "ResidualKernel",
    "Smooth",
    "Sweep",
    "accuracy",
    "accuracy_preserved",
    "binary_measures",
    "brier_score",
    "calibration_error",
    "calibration_gain",
    "compare_gains",
    "cross_validated_decomposition",
    "estimator",
    "evaluate",
    "log_loss",
    "reliability_curve",
    "score_decomposition",
    "worst_classes",
]
