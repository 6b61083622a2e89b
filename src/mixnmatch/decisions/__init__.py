"""Decisions from probabilities: costs, thresholds, decision curves, selective prediction."""

from mixnmatch.decisions.benefit import DecisionCurve, net_benefit
from mixnmatch.decisions.cost_matrix import CostMatrix
from mixnmatch.decisions.costs import bayes_decisions, cost_threshold, expected_cost, realised_cost
from mixnmatch.decisions.display import DecisionDisplay, RiskCoverageDisplay
from mixnmatch.decisions.miscalibration import MiscalibrationCost, cost_of_miscalibration
from mixnmatch.decisions.selective import RiskCoverageCurve, SelectiveCoverage, coverage_for, risk_coverage_curve
from mixnmatch.decisions.thresholds import Threshold, threshold_for

__all__ = [
    "CostMatrix",
    "DecisionCurve",
    "DecisionDisplay",
    "MiscalibrationCost",
    "RiskCoverageCurve",
    "RiskCoverageDisplay",
    "SelectiveCoverage",
    "Threshold",
    "bayes_decisions",
    "cost_of_miscalibration",
    "cost_threshold",
    "coverage_for",
    "expected_cost",
    "net_benefit",
    "realised_cost",
    "risk_coverage_curve",
    "threshold_for",
]
