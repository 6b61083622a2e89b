"""The statistic of the test of "it is calibrated": is there more than noise in the residuals, at any of four scales?"""

from __future__ import annotations

from typing import Final

import numpy as np

from mixnmatch.evaluation import _logistic
from mixnmatch.evaluation._binning import Floats
from mixnmatch.evaluation.series import Groups, orthonormal

# Numbers of functions in the four sums of squares: the mean, a logistic curve, and 8 and 18 cosines more.
ORDERS: Final = (1, 2, 10, 20)
SMALLEST: Final = 1e-300


class ScaleStatistic:
    r"""Evidence against calibration at four scales, for P problems with given confidences.

    Notes
    -----
    If calibrated, an outcome has the mean z and the variance z (1 - z). With the functions of
    :func:`~mixnmatch.evaluation.series.orthonormal` (intercept, slope, cosines of the rank) the coefficients of the
    standardised residuals,

    .. math:: c_k = \frac{1}{\sqrt n} \sum_i \psi_k(z_i) \frac{y_i - z_i}{\sqrt{z_i (1 - z_i)}},

    are close to independent standard normal variables, and :math:`Q_m = c_1^2 + \dots + c_m^2` to chi-squared with m
    degrees of freedom. Few functions find an offset or a slope, many find waves and single values that are off. The
    statistic is the harmonic mean of the four p-values of :math:`Q_1, Q_2, Q_{10}` and :math:`Q_{20}`, as the logarithm
    of the mean of 1/p [1]_. Its distribution is found by resampling, so that nothing depends on the approximations.

    References
    ----------
    .. [1] Wilson (2019), The harmonic mean p-value for combining dependent tests. PNAS 116.
    """

    def __init__(self, groups: Groups) -> None:
        z = _logistic.inside(groups.z)
        deviation = np.sqrt(z * (1 - z))
        columns, alive = orthonormal(groups, deviation, _logistic.log_odds(groups.z))
        root = np.sqrt(groups.count)
        self._expected = groups.count * groups.z
        scale = np.where(root > 0, root * deviation, np.inf)
        self._columns = columns[..., : max(ORDERS)] / scale[..., None]
        self._degrees = np.cumsum(alive, axis=-1)[:, [m - 1 for m in ORDERS]]

    def __call__(self, outcome: Floats) -> Floats:
        """Statistics of outcomes summed over the groups, (R, J) for one problem or (P, J) for each of P."""
        from scipy.special import chdtrc

        residual = outcome - self._expected
        if len(self._columns) == 1:
            coefficients = residual @ self._columns[0]
        else:
            coefficients = (residual[:, None, :] @ self._columns)[:, 0]
        sums = np.cumsum(coefficients**2, axis=-1)[:, [m - 1 for m in ORDERS]]
        p_values = np.where(self._degrees > 0, chdtrc(np.maximum(self._degrees, 1), sums), 1.0)
        return np.asarray(np.log((1.0 / np.maximum(p_values, SMALLEST)).mean(axis=-1)))
