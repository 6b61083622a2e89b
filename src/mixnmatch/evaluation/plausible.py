"""Residual curves that the data do not contradict: what intervals of calibration errors are made from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from mixnmatch.evaluation._binning import Floats
from mixnmatch.evaluation.series import TERMS, ResidualSeries

# Models with less than this part of the likelihood of the best one are not considered. It is small because
# likelihoods favour smooth models: a curve with a few jumps is mostly smooth, and its jumps are smoothed away.
PLAUSIBLE: Final = 0.005

# Errors of populations with these probabilities of the outcome in the groups (J, R), for R curves at once.
Functional = Callable[[Floats], Floats]


def model_errors(
    series: ResidualSeries, problem: int, functional: Functional, noise: Floats, tail: float
) -> tuple[Floats, Floats, Floats]:
    r"""Errors of the curves of every plausible model of one problem.

    Parameters
    ----------
    series : ResidualSeries
        The posterior. The start is taken at its maximum of likelihood, without shrinkage.
    problem : int
        Which of its problems.
    functional : callable
        The error of curves given by their probabilities in the groups.
    noise : array of shape (2 + TERMS, R)
        Standard normal numbers.
    tail : float
        Probability beyond the quantile.

    Returns
    -------
    centre : array of shape (models,)
        Error of the mean curve. Curves drawn around it are rougher, so that their errors are larger.
    median : array of shape (models,)
        Median of the errors of drawn curves.
    spread : array of shape (models,)
        From the median to the upper quantile.
    """
    gain = series.shrinkage[1][problem]
    n = float(series.groups.total[problem, 0])
    functions = series.functions[problem] / np.sqrt(n)
    moved = functions[:, :2] @ noise[:2]
    found = []
    for model in np.flatnonzero(gain >= gain.max() + np.log(PLAUSIBLE)):
        factor = series.shrinkage[0][problem, model]
        mean = series.start[problem] + functions[:, 2:] @ (factor * series.coefficients[problem])
        drawn = mean[:, None] + moved + functions[:, 2:] @ (np.sqrt(factor)[:, None] * noise[2:])
        errors = functional(np.clip(drawn, 0.0, 1.0))
        middle, upper = np.quantile(errors, [0.5, 1 - tail])
        found.append((float(functional(np.clip(mean[:, None], 0.0, 1.0))[0]), middle, upper - middle))
    centre, median, spread = np.array(found).T
    return centre, median, spread


def power_functional(series: ResidualSeries, problem: int, norm: int, noise: Floats) -> Functional:
    r"""The error :math:`E\,|\pi(z) - z|^d`, with ``noise`` (R standard normal numbers) for the sampling of z."""
    groups = series.groups
    share, z = groups.share[problem], groups.z[problem][:, None]
    n = float(groups.total[problem, 0])

    def functional(probability: Floats) -> Floats:
        power = np.abs(probability - z) ** norm
        mean = share @ power
        if probability.shape[1] == 1:
            return np.asarray(mean)
        spread = np.sqrt(np.maximum(share @ power**2 - mean**2, 0.0) / n)
        return np.asarray(np.maximum(mean + spread * noise, 0.0))

    return functional


def standard_normal(rng: np.random.Generator, draws: int) -> tuple[Floats, Floats]:
    """Numbers for the curves and for the sampling of the confidences."""
    return rng.standard_normal((2 + TERMS, draws)), rng.standard_normal(draws)
