"""Calibration errors, scores, intervals, tests, reliability curves, and accumulators for data that comes in parts."""

from mixnmatch.evaluation._evaluate import evaluate
from mixnmatch.evaluation._evaluation import Evaluation
from mixnmatch.evaluation.decomposition import cross_validated_decomposition, score_decomposition
from mixnmatch.evaluation.display import ReliabilityDisplay
from mixnmatch.evaluation.error import CalibrationMetric, calibration_error
from mixnmatch.evaluation.estimators import (
    Dirichlet,
    Histogram,
    KernelCalibration,
    KernelDensity,
    ResidualKernel,
    Smooth,
    Sweep,
    estimator,
)
from mixnmatch.evaluation.gain import CalibrationGain, GainComparison, calibration_gain, compare_gains
from mixnmatch.evaluation.reliability import ReliabilityCurve, reliability_curve, worst_classes
from mixnmatch.evaluation.result import CalibrationError
from mixnmatch.evaluation.scores import accuracy, brier_score, log_loss
from mixnmatch.evaluation.streaming import (
    AccuracyAccumulator,
    BrierAccumulator,
    CalibrationErrorAccumulator,
    CalibrationGainAccumulator,
    LogLossAccumulator,
    ReliabilityAccumulator,
)
from mixnmatch.evaluation.two_classes import BinaryMeasure, binary_measures
from mixnmatch.evaluation.winners import accuracy_preserved

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
