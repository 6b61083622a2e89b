"""Calibration maps, one small module each, and the combinators that turn maps into maps."""

from mixnmatch.maps.binning import BayesianBinning, HistogramBinning
from mixnmatch.maps.combine import OneVsAll, Pooled
from mixnmatch.maps.composition import Composition
from mixnmatch.maps.ensemble import Ensemble
from mixnmatch.maps.ensemble_temperature import EnsembleTemperatureScaling
from mixnmatch.maps.gaussian_process import GaussianProcessCalibration
from mixnmatch.maps.isotonic import Isotonic
from mixnmatch.maps.keep_winner import KeepWinner
from mixnmatch.maps.logistic import BetaScaling, PlattScaling
from mixnmatch.maps.normalised_isotonic import NormalisedIsotonic
from mixnmatch.maps.order_preserving import IntraOrderPreserving
from mixnmatch.maps.prior_shift import PriorShift
from mixnmatch.maps.scaling import (
    BiasCorrectedTemperatureScaling,
    DirichletScaling,
    MatrixScaling,
    StructuredMatrixScaling,
    StructuredVectorScaling,
    VectorScaling,
)
from mixnmatch.maps.temperature import TemperatureScaling
from mixnmatch.maps.trivial import Identity, Uniform
from mixnmatch.selection.auto import Auto

# Maps that a file may name. A name in this list stays loadable for ever.
SAVABLE = (
    Auto,
    BayesianBinning,
    BetaScaling,
    BiasCorrectedTemperatureScaling,
    Composition,
    DirichletScaling,
    Ensemble,
    EnsembleTemperatureScaling,
    GaussianProcessCalibration,
    HistogramBinning,
    Identity,
    IntraOrderPreserving,
    Isotonic,
    KeepWinner,
    MatrixScaling,
    NormalisedIsotonic,
    OneVsAll,
    PlattScaling,
    Pooled,
    PriorShift,
    StructuredMatrixScaling,
    StructuredVectorScaling,
    TemperatureScaling,
    Uniform,
    VectorScaling,
)

__all__ = [
    "SAVABLE",
    "Auto",
    "BayesianBinning",
    "BetaScaling",
    "BiasCorrectedTemperatureScaling",
    "Composition",
    "DirichletScaling",
    "Ensemble",
    "EnsembleTemperatureScaling",
    "GaussianProcessCalibration",
    "HistogramBinning",
    "Identity",
    "IntraOrderPreserving",
    "Isotonic",
    "KeepWinner",
    "MatrixScaling",
    "NormalisedIsotonic",
    "OneVsAll",
    "PlattScaling",
    "Pooled",
    "PriorShift",
    "StructuredMatrixScaling",
    "StructuredVectorScaling",
    "TemperatureScaling",
    "Uniform",
    "VectorScaling",
]
