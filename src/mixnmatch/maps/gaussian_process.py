"""Gaussian-process calibration: one latent function of the log-scores, shared by all classes, with a GP prior."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.along_rows import log_softmax
from mixnmatch._engine.block import Block
from mixnmatch._engine.passes import total
from mixnmatch._engine.prepared import Prepared
from mixnmatch._engine.rows import Rows
from mixnmatch.maps._order_passes import (
    FACTOR,
    FINE,
    Array,
    Cells,
    Located,
    Nodes,
    nll_statistic,
    on_nodes,
    tempered,
)
from mixnmatch.maps._solve import Point, Solution, certify, newton
from mixnmatch.maps.base import CalibrationMap
from mixnmatch.maps.fitted import check_range, check_shape
from mixnmatch.maps.temperature import fit_beta

# Kernel variances that are searched: standard deviations of a logit from 0.001 to 100.
LEAST_VARIANCE, MOST_VARIANCE = 1e-6, 1e4
# Added to the diagonal of the prior correlations of the inducing values, which are nearly singular.
JITTER = 1e-7
# A step that promises less than this part of the variational objective is the last, and the rounding of its sums.
TOLERANCE, ROUNDING = 1e-12, 1e-13
# How far logarithms of variance and length scale may go in a step, and shorter distances to try.
RADII = [np.array([2.5, 0.7]) / 4**k for k in range(14)] + [np.zeros(2)]
# Rows that a first fit looks at where there are many more.
PREVIEW_ROWS = 4096


class GaussianProcessCalibration(CalibrationMap):
    r"""Gaussian-process calibration, GPC: :math:`T(z) = \mathrm{softmax}(f(x_1), ..., f(x_L))`.

    Here x are the logarithms of the probabilities after temperature scaling, and f is a function with a Gaussian
    process prior that all classes share. Its prior mean is the identity, so temperature scaling is the prior guess, and
    its covariance is :math:`\sigma^2 \exp(-(x - x')^2 / (2 \ell^2))`.

    Parameters
    ----------
    n_inducing : int
        Number of inducing points, at which the posterior of f is represented.
    logits : bool
        Whether scores are logits rather than probabilities.
    classes : sequence, optional
        Names of the columns, needed where labels are not column indices and a class may be absent.
    weights : {"frequency", "importance"}
        What sample weights mean.

    Attributes
    ----------
    beta_ : float
        Inverse temperature of the prior mean.
    variance_, lengthscale_ : float
        Learned parameters of the covariance.
    inducing_points_ : array of shape (n_inducing,)
        Inducing points in terms of x.
    inducing_mean_ : array of shape (n_inducing,)
        Posterior mean of f(x) - x at the inducing points.
    deviation_ : array
        Posterior mean of f(x) - x at the nodes between which f is interpolated, from x = 0 downwards.
    deviation_std_ : array
        Posterior standard deviation of f there.
    bound_ : str or None
        "temperature" if no f is better than temperature scaling; the map then is temperature scaling.
    loss_ : float
        Mean log loss on the calibration set; never above that of temperature scaling.
    backend_ : str
        Kernels that the fit of the inverse temperature used.

    Notes
    -----
    Variational inference with inducing values u, :math:`q(u) = N(m, S)`, maximises

    .. math:: \sum_i E_q[\log \mathrm{softmax}(f(x_i))_{y_i}] - KL(q(u), p(u)).

    The expectation is taken to second order around the posterior mean,

    .. math:: E_q[\log \mathrm{softmax}(f)_y] \approx \log p_y - \tfrac12 \mathrm{tr}[(\mathrm{diag}(p) - p p') \Sigma],

    with :math:`p = \mathrm{softmax}(E f)` and :math:`\Sigma` the covariance of the entries of a row under q. (The prior
    is that of the functions which the inducing points span. What they leave out between them is below a fiftieth of
    the variance even for the shortest length scale admitted, which is their distance.) Then the best S for a given m is
    known, :math:`S^{-1} = I + A' H A` in whitened coordinates, where H is the Hessian of the log loss and A takes
    whitened inducing values to f. What is left to minimise,

    .. math:: - \sum_i \log p_{i y_i} + \tfrac12 |m|^2 + \tfrac12 \log \det (I + A' H(m) A),

    depends on the rows only through the log loss, its gradient and its Hessian as functions of f at the nodes of a fine
    grid. A pass over the rows sums these; mean and covariance parameters are then optimised on the sums, with
    gradients, and the next pass follows, until nothing changes (6 to 15 steps on the outputs of published classifiers).

    Since the correction does not depend on the class, the normalised geometric mean of the posterior predictions is to
    second order the softmax of the posterior mean: that is what ``predict_proba`` returns. Should it have a log loss
    above that of temperature scaling on the calibration set, the posterior mean is replaced by the prior mean.

    The function may decrease, so the map may change predictions. Far below the inducing points, which end where
    probabilities no longer matter, f returns to the prior mean.

    References
    ----------
    Wenger, Kjellström, Triebel (2020). Non-parametric calibration for classification. AISTATS.

    Examples
    --------
    >>> scores = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]]
    >>> map = GaussianProcessCalibration().fit(scores, [0, 1, 1, 1])
    >>> map.predict_proba([[0.9, 0.1]]).round(2)
    array([[0.79, 0.21]])
    """

    _fitted: ClassVar[tuple[str, ...]] = (
        "beta_",
        "variance_",
        "lengthscale_",
        "inducing_points_",
        "inducing_mean_",
        "deviation_",
        "deviation_std_",
        "bound_",
        "probability_floor_",
        "loss_",
        "backend_",
    )

    beta_: float
    variance_: float
    lengthscale_: float
    inducing_points_: Array
    inducing_mean_: Array
    deviation_: Array
    deviation_std_: Array
    bound_: str | None
    probability_floor_: float
    loss_: float
    backend_: str

    def __init__(self, *, n_inducing: int = 16, logits: bool = False, classes: Any = None, weights: str = "frequency"):
        self.n_inducing = n_inducing
        super().__init__(logits=logits, classes=classes, weights=weights)

    def _check_params(self) -> None:
        if not (isinstance(self.n_inducing, (int, np.integer)) and 4 <= self.n_inducing <= 64):
            msg = f"n_inducing must be an integer from 4 to 64, got {self.n_inducing!r}"
            raise ValueError(msg)

    def _check_fitted(self) -> None:
        check_range(self, "beta_", 0.0)
        check_range(self, "probability_floor_", 0.0, 1.0)
        check_range(self, "variance_", 0.0)
        check_range(self, "lengthscale_", 0.0)
        count, points = Nodes.of(self.n_classes_).count, len(self.inducing_points_)
        for name, size in (("inducing_points_", points), ("inducing_mean_", points), ("deviation_", count)):
            check_shape(self, name, size)
            check_range(self, name)
        check_shape(self, "deviation_std_", count)
        check_range(self, "deviation_std_", 0.0)

    def _fit(self, source: Rows) -> dict[str, Any]:
        floor = source.probability_floor()
        beta = fit_beta(source, "nll", floor).beta
        nodes = Nodes.of(source.n_classes)
        prior = Prior(nodes, int(self.n_inducing))

        settings = Located.of, nodes, floor, beta
        rows = Prepared.of(source, *settings)
        theta = np.concatenate([np.zeros(len(prior.points)), [0.0, 0.5 * (prior.low[1] + prior.high[1])]])
        before = rows.total(nll_statistic, np.zeros(nodes.count))[0]
        if source.n_rows > 2 * PREVIEW_ROWS:
            theta = minimise(Prepared.of(source.preview(PREVIEW_ROWS), *settings), prior, theta, 1e-6).point.theta
        solution = minimise(rows, prior, theta, TOLERANCE)
        certify(type(self).__name__, solution.residual)
        fit, hyper = solution.point, solution.point.theta[-2:]
        better = fit.loss < before
        return {
            "beta_": beta,
            "variance_": float(np.exp(hyper[0])),
            "lengthscale_": float(np.exp(hyper[1])),
            "inducing_points_": prior.points,
            "inducing_mean_": prior.lower(hyper) @ fit.theta[:-2] if better else np.zeros(len(prior.points)),
            "deviation_": fit.deviation if better else np.zeros(nodes.count),
            "deviation_std_": np.sqrt(np.diag(fit.covariance)),
            "bound_": None if better else "temperature",
            "probability_floor_": floor,
            "loss_": min(fit.loss, before) / source.total_weight(),
            "backend_": source.backend,
        }

    def _proba_into(self, block: Block, out: NDArray[Any]) -> None:
        out[...] = self._proba(block)
        np.maximum(out, np.finfo(out.dtype).tiny, out=out)

    def _log_proba(self, block: Block) -> Array:
        nodes = Nodes.of(block.values.shape[1])
        x = tempered(block, self.probability_floor_, self.beta_)
        return log_softmax(block.kernels.add_deviation(x, nodes.low, FINE, FACTOR, self.deviation_))


def trace_statistic(chunks: list[Located], deviation: Array, covariance: Array) -> Array:
    """Gradient in the mean deviations of tr(H covariance) / 2, H the Hessian of the log loss of some rows."""
    return total(trace_gradient(chunk.at(deviation), covariance) for chunk in chunks)


def trace_gradient(rows: Cells, covariance: Array) -> Array:
    """The same for a chunk; its H is the sum of E[h h'] - E[h] E[h]', with h the hat functions of the nodes."""
    w = rows.weight
    m0, m1, m2, m3 = rows.moments(rows.p, 4)
    mass = on_nodes(m0, m1)
    # The variance of f in a cell is b0 + b1 t + b2 t^2; v is the covariance with the mean of f over the row.
    corner, side = np.diag(covariance), np.diag(covariance, 1)
    b = corner[:-1], 2 * (side - corner[:-1]), corner[:-1] - 2 * side + corner[1:]
    v = covariance @ mass
    upper, rise = v[:-1], np.diff(v, axis=0)
    sums = [moment @ w for moment in (m0, m1, m2, m3)]
    zeroth = 0.5 * (b[0] * sums[0] + b[1] * sums[1] + b[2] * sums[2]) - (m0 * upper + m1 * rise) @ w
    first = 0.5 * (b[0] * sums[1] + b[1] * sums[2] + b[2] * sums[3]) - (m1 * upper + m2 * rise) @ w
    centre = 0.5 * (b[0] @ m0 + b[1] @ m1 + b[2] @ m2) - np.einsum("ij,ij->j", v, mass)
    return np.asarray(on_nodes(zeroth, first) - mass @ (w * centre))


class Prior:
    """The prior of the deviations at the nodes: A v, v standard normal, with A set by (log variance, log length)."""

    def __init__(self, nodes: Nodes, n_inducing: int):
        self.points = np.linspace(nodes.low, 0.0, n_inducing)
        self.between = np.subtract.outer(self.points, self.points) ** 2
        self.across = np.subtract.outer(self.points, nodes.positions) ** 2
        shortest, longest = -nodes.low / (n_inducing - 1), -nodes.low / 2
        self.low = np.log([LEAST_VARIANCE, shortest])
        self.high = np.log([MOST_VARIANCE, longest])

    def lower(self, hyper: Array) -> Array:
        """Cholesky factor of the prior covariance of the deviations at the inducing points."""
        correlation = np.exp(-0.5 * np.exp(-2 * hyper[1]) * self.between)
        lower = np.linalg.cholesky(correlation + JITTER * np.eye(len(correlation)))
        return np.asarray(np.exp(hyper[0] / 2) * lower, dtype=np.float64)

    def root(self, hyper: Array) -> tuple[Array, Array]:
        """A, and its derivative in the logarithm of the length scale."""
        from scipy.linalg import solve_triangular

        precision, lower = np.exp(-2 * hyper[1]), self.lower(hyper)
        among = np.exp(hyper[0] - 0.5 * precision * self.between)
        to_nodes = np.exp(hyper[0] - 0.5 * precision * self.across)
        to_nodes[:, -1] = 0.0  # beyond the nodes the deviation stays what it is at the last: none
        root = solve_triangular(lower, to_nodes, lower=True)
        # For K = L L', dL = L times the lower triangle of L^-1 dK L^-T with half of its diagonal.
        inner = solve_triangular(lower, precision * self.between * among, lower=True)
        inner = np.tril(solve_triangular(lower, inner.T, lower=True))
        inner[np.diag_indices_from(inner)] /= 2
        change = solve_triangular(lower, precision * self.across * to_nodes, lower=True) - inner @ root
        return root.T, change.T


@dataclass(frozen=True, kw_only=True)
class Fit(Point):
    """A state of the fit; theta is the whitened mean, then the logarithms of variance and length scale.

    The curvature is that of the log loss in the deviations at the nodes.
    """

    loss: float
    deviation: Array  # mean deviations at the nodes
    slope: Array  # of the objective in these
    covariance: Array


def evaluate(rows: Prepared, prior: Prior, theta: Array) -> Fit:
    """The variational objective with the best covariance, and its gradient: two passes over the rows."""
    mean, (root, change) = theta[:-2], prior.root(theta[-2:])
    deviation = root @ mean
    loss, slope, hessian = rows.total(nll_statistic, deviation)
    curved = hessian @ root
    precision = np.eye(len(mean)) + root.T @ curved
    covariance = root @ np.linalg.solve(precision, root.T)
    slope = slope + rows.total(trace_statistic, deviation, covariance)
    in_root = np.outer(slope, mean) + np.linalg.solve(precision, curved.T).T
    return Fit(
        theta,
        float(loss + 0.5 * (mean @ mean) + 0.5 * np.linalg.slogdet(precision)[1]),
        np.concatenate([root.T @ slope + mean, _in_hyper(in_root, root, change)]),
        hessian,
        loss=loss,
        deviation=deviation,
        slope=slope,
        covariance=covariance,
    )


def _in_hyper(in_root: Array, root: Array, change: Array) -> Array:
    """Gradient in the logarithms of variance and length scale, from that in the root of the prior covariance."""
    return np.array([0.5 * np.sum(in_root * root), np.sum(in_root * change)])


def evidence(prior: Prior, hyper: Array, fit: Fit) -> tuple[float, Array, Array]:
    """Least objective over the mean with rows replaced by their quadratic model at a fit; its gradient; the mean."""
    root, change = prior.root(hyper)
    curved = fit.curvature @ root
    precision = np.eye(root.shape[1]) + root.T @ curved
    mean = np.linalg.solve(precision, root.T @ (fit.curvature @ fit.deviation - fit.slope))
    step = root @ mean - fit.deviation
    pull = fit.curvature @ step
    value = fit.loss + step @ (fit.slope + 0.5 * pull) + 0.5 * (mean @ mean) + 0.5 * np.linalg.slogdet(precision)[1]
    in_root = np.outer(fit.slope + pull, mean) + np.linalg.solve(precision, curved.T).T
    return float(value), _in_hyper(in_root, root, change), np.asarray(mean)


def _model_step(prior: Prior, fit: Fit, radius: Array) -> tuple[Array, float]:
    """Step to the least quadratic model at a fit, and by how much the model falls."""
    from scipy.optimize import minimize

    given = fit.theta[-2:]
    low, high = np.maximum(prior.low, given - radius), np.minimum(prior.high, given + radius)
    options: Any = {"ftol": 1e-15, "gtol": 1e-8, "maxiter": 200}
    search: Any = {"method": "L-BFGS-B", "bounds": list(zip(low, high, strict=True)), "options": options}
    hyper = np.asarray(minimize(lambda h: evidence(prior, h, fit)[:2], given, jac=True, **search).x, dtype=np.float64)
    value, _, mean = evidence(prior, hyper, fit)
    return np.concatenate([mean, hyper]) - fit.theta, fit.value - value


def _local_step(prior: Prior, fit: Fit) -> Array:
    """Step as long as the slope at the fit says something about where it leads.

    Where a function is convex it falls by at most what its slope promises. Where the model falls by much more, it is
    bent downwards or has another valley: the logarithms of variance and length scale then go less far.
    """
    for radius in RADII:
        direction, fall = _model_step(prior, fit, radius)
        if -fit.gradient @ direction >= max(0.5 * fall, 0.0):
            break
    return direction


def minimise(rows: Prepared, prior: Prior, start: Array, tolerance: float) -> Solution:
    """The fit with the least variational objective, and the part of it that another step promises to gain.

    Long steps lead from valley to valley while they gain; Newton's method does the rest.
    """
    at = partial(evaluate, rows, prior)
    fit = at(start)
    while (trial := at(fit.theta + _model_step(prior, fit, RADII[0])[0])).value < (1 - tolerance) * fit.value:
        fit = trial
    return newton(
        at,
        fit,
        partial(_local_step, prior),
        weight=rows.source.total_weight(),
        tolerance=tolerance,
        rounding=ROUNDING * fit.value,
    )
