"""Gaussian-process calibration: one latent function of the log-scores, shared by all classes, with a GP prior."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

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
    Statistic,
    nll_statistic,
    on_nodes,
    tempered,
)
from mixnmatch.maps._solve import certify
from mixnmatch.maps.base import CalibrationMap
from mixnmatch.maps.fitted import check_range, check_shape
from mixnmatch.maps.temperature import fit_beta, log_softmax

# Kernel variances that are searched: standard deviations of a logit from 0.001 to 100.
LEAST_VARIANCE, MOST_VARIANCE = 1e-6, 1e4
# Added to the diagonal of the prior correlations of the inducing values, which are nearly singular.
JITTER = 1e-7
# Relative gain of a step below which the variational objective counts as minimised, and the most steps.
TOLERANCE, STEPS = 1e-13, 100
# How far logarithms of variance and length scale may go in a step.
RADIUS = np.array([2.5, 0.7])
# Rows that a first fit looks at where there are many more.
LOOK = 4096


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

    _applied_by_blas = True

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
        self.logits = logits
        self.classes = classes
        self.weights = weights

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
        values, hyper = np.zeros(len(prior.points)), 0.5 * (prior.low + prior.high)
        hyper[0] = 0.0
        before = rows.total(nll_statistic, np.zeros(nodes.count))[0]
        if source.n_rows > 2 * LOOK:
            rough = _minimise(Prepared.of(source.preview(LOOK), *settings), prior, values, hyper, 1e-6)
            values, hyper = rough.values, rough.hyper
        fit = _minimise(rows, prior, values, hyper, TOLERANCE)
        certify(type(self).__name__, fit.left)
        better = fit.loss < before
        mean = fit.deviation if better else np.zeros(nodes.count)
        return {
            "beta_": beta,
            "variance_": float(np.exp(fit.hyper[0])),
            "lengthscale_": float(np.exp(fit.hyper[1])),
            "inducing_points_": prior.points,
            "inducing_mean_": fit.values if better else np.zeros(len(prior.points)),
            "deviation_": mean,
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


@dataclass(frozen=True)
class Fit:
    """A state of the fit: whitened mean, (log variance, log length scale), and what a pass over the rows says there."""

    mean: Array
    hyper: Array
    values: Array  # mean deviations at the inducing points
    deviation: Array  # and at the nodes
    covariance: Array
    loss: float
    gradient: Array
    hessian: Array
    objective: float
    bend: Array  # gradient of half the logarithm of the determinant: a second pass finds it
    left: float = np.inf  # part of the objective that the last step has gained


def evaluate(statistic: Callable[[Array], Statistic], prior: Prior, values: Array, hyper: Array) -> Fit:
    """The variational objective at deviations at the inducing points, with the best covariance for them."""
    root = prior.root(hyper)[0]
    mean = np.asarray(np.linalg.solve(prior.lower(hyper), values), dtype=np.float64)
    deviation = root @ mean
    loss, gradient, hessian = statistic(deviation)
    precision = np.eye(len(mean)) + root.T @ hessian @ root
    objective = loss + 0.5 * (mean @ mean) + 0.5 * np.linalg.slogdet(precision)[1]
    covariance = root @ np.linalg.solve(precision, root.T)
    return Fit(mean, hyper, values, deviation, covariance, loss, gradient, hessian, float(objective), 0 * gradient)


def evidence(prior: Prior, hyper: Array, fit: Fit) -> tuple[float, Array, Array]:
    """Least objective over the mean with rows replaced by their quadratic model at a fit; its gradient; the mean."""
    root, change = prior.root(hyper)
    curved = fit.hessian @ root
    precision = np.eye(root.shape[1]) + root.T @ curved
    slope = fit.gradient + fit.bend
    mean = np.linalg.solve(precision, root.T @ (fit.hessian @ fit.deviation - slope))
    step = root @ mean - fit.deviation
    pull = fit.hessian @ step
    value = fit.loss + step @ (slope + 0.5 * pull) + 0.5 * (mean @ mean) + 0.5 * np.linalg.slogdet(precision)[1]
    in_root = np.outer(slope + pull, mean) + np.linalg.solve(precision, curved.T).T
    return float(value), np.array([0.5 * np.sum(in_root * root), np.sum(in_root * change)]), np.asarray(mean)


def _improved(prior: Prior, fit: Fit, radius: Array) -> tuple[Array, Array]:
    """Best deviations at the inducing points and parameters of the covariance, for the quadratic model at a fit."""
    from scipy.optimize import minimize

    def value(hyper: Array) -> tuple[float, Array]:
        return evidence(prior, hyper, fit)[:2]

    options: Any = {"ftol": 1e-15, "gtol": 1e-8, "maxiter": 200}
    low, high = np.maximum(prior.low, fit.hyper - radius), np.minimum(prior.high, fit.hyper + radius)
    bounds: Any = list(zip(low, high, strict=True))
    hyper = fit.hyper
    if radius.any():
        found = minimize(value, hyper, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        hyper = np.asarray(found.x, dtype=np.float64)
    return prior.lower(hyper) @ evidence(prior, hyper, fit)[2], hyper


def _minimise(rows: Prepared, prior: Prior, values: Array, hyper: Array, tolerance: float) -> Fit:
    """The fit with the least variational objective, by steps of a quadratic model that never raise it."""

    def at(values: Array, hyper: Array) -> Fit:
        return evaluate(lambda d: rows.total(nll_statistic, d), prior, values, hyper)

    fit, radius = at(values, hyper), RADIUS
    for _ in range(STEPS):
        fit = replace(fit, bend=rows.total(trace_statistic, fit.deviation, fit.covariance))
        rounding = tolerance * abs(fit.objective)
        trial = at(*_improved(prior, fit, radius))
        joint = trial.objective <= fit.objective + rounding
        if not joint:  # the quadratic model went too far: a shorter step of the mean alone surely gains
            values, length = _improved(prior, fit, 0 * radius)[0], 1.0
            while trial.objective > fit.objective + rounding and length > 1e-6:
                trial = at(fit.values + length * (values - fit.values), fit.hyper)
                length /= 3
        gain = fit.objective - trial.objective
        left = max(gain, 0.0) / max(abs(fit.objective), np.finfo(float).tiny)
        fit = replace(trial if gain > 0 else fit, left=left)
        if gain <= rounding and (joint or radius[0] < 1e-3):
            break
        radius = np.minimum(2 * radius, RADIUS) if joint else radius / 4
    return fit
