"""Fit of ensemble temperature scaling: the temperature and the weights together, for both losses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.block import Block
from mixnmatch._engine.rows import Rows
from mixnmatch.maps._simplex import simplex_minimum, simplex_step
from mixnmatch.maps._solve import LEAST_MEAN, STEEPEST, TOLERANCE, Point, Solution, minimise_scalar, newton
from mixnmatch.maps.temperature import PREVIEW_ROWS

Vector = NDArray[np.float64]
# Relative rounding of sums over many samples.
ROUNDING = 1e-12
# Nodes of the scan over beta, as multiples of the inverse temperature that is best for temperature scaling alone.
SCAN = 2.0 ** np.array([-4.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 4.0])
# Bytes of a block of two classes: what a statistic keeps of a row, eleven numbers, is more than the row itself.
PAIR_BYTES = 1 << 17
# Rows of the larger sample.
LARGER_PREVIEW_ROWS = 32_768


@dataclass(frozen=True)
class Candidate:
    """An inverse temperature with weights, the loss there, and the relative fall of it that another step promises."""

    beta: float
    weights: Vector
    value: float
    residual: float = np.inf


# Squared error: a Gram matrix of the members for each temperature, and a search over the temperature.


def _gram_statistic(block: Block, beta: float, floor: float) -> Vector:
    """All sums that the squared error and its derivatives need, whatever the weights."""
    rows = block.kernels.mixture_rows(block.log_scores(floor), block.y, beta)
    p_y, slope_y, pp, pd, dd, variance, q_y, qq, pq, qd, qdd = rows
    # p'' = p ((x - E x)^2 - Var x), and p (x - E x) is the slope.
    bend_y = np.divide(slope_y**2, p_y, out=np.zeros_like(p_y), where=p_y > 0) - variance * p_y
    bends = [2 * dd - variance * pp, qdd - variance * pq, bend_y]
    return block.weighted_sum(np.stack([pp, pq, qq, p_y, q_y, pd, qd, slope_y, *bends]))


def _brier_profile(source: Rows, beta: float, floor: float) -> tuple[float, float, float, Vector]:
    """Least squared error over the weights at ``beta``, its slope and curvature in beta, and the weights."""
    n = source.total_weight()
    u = n / source.n_classes
    pp, pq, qq, p_y, q_y, pd, qd, slope_y, bend_p, bend_q, bend_y = source.total(
        _gram_statistic, beta, floor, block_bytes=PAIR_BYTES if source.n_classes == 2 else None
    )
    gram = np.array([[pp, pq, u], [pq, qq, u], [u, u, u]])
    linear = np.array([p_y, q_y, u])
    w = simplex_minimum(gram, linear)
    value = w @ gram @ w - 2 * linear @ w + n
    slope = 2 * w[0] * (w[0] * pd + w[1] * qd - slope_y)  # the envelope theorem
    curvature = 2 * w[0] * (w[0] * bend_p + w[1] * bend_q - bend_y)
    mixed = 2 * np.array([2 * w[0] * pd + w[1] * qd - slope_y, w[0] * qd, 0.0])
    # The weights move along: on their face of the simplex, by d, which lowers the curvature.
    face = np.flatnonzero(w > 0)
    if len(face) > 1:
        system = np.ones((len(face) + 1, len(face) + 1))
        system[:-1, :-1] = 2 * gram[np.ix_(face, face)]
        system[-1, -1] = 0.0
        moved = np.linalg.lstsq(system, np.append(-mixed[face], 0.0), rcond=1e-13)[0][:-1]
        curvature += mixed[face] @ moved
    return float(value), float(slope), float(curvature), w


def fit_brier(source: Rows, beta_ts: float, floor: float) -> Candidate:
    preview = source.preview(PREVIEW_ROWS)
    single = source.scores.dtype == np.float32 and not source.chain
    beta_ts = float(np.float32(beta_ts)) if single else beta_ts
    known: dict[float, tuple[float, float, float, Vector]] = {}
    settle = partial(minimise_scalar, single=single, low=1e-6 * beta_ts, high=min(1e6 * beta_ts, STEEPEST))

    def profile(beta: float) -> tuple[float, float, float, Vector]:
        if beta not in known:
            known[beta] = _brier_profile(source, beta, floor)
        return known[beta]

    scanned = np.array([_brier_profile(preview, float(b), floor)[0] for b in beta_ts * SCAN])
    near = [float(beta_ts * SCAN[node]) for node in _local_minima(scanned)[:2]]
    for preview in _samples(source):  # settle on samples first: what is left to do on all rows is little
        on_preview = partial(_brier_profile, preview, floor=floor)
        near = [settle(on_preview, beta, tolerance=1e-2).beta for beta in near]
    profiles = [(beta, _brier_profile(preview, beta, floor)) for beta in near]
    residual = {}
    for start in _promising([Candidate(beta, w, value) for beta, (value, _, _, w) in profiles]):
        # Often temperature scaling is the answer, or next to it: then its own temperature is the better start.
        beta = beta_ts if abs(np.log(start.beta / beta_ts)) < 0.15 else start.beta
        end = settle(profile, beta, tolerance=1e-5 if single else 1e-10)
        residual[end.beta] = end.promised / max(end.value, LEAST_MEAN * source.total_weight())
        profile(end.beta)
    profile(beta_ts)
    beta, (value, _, _, weights) = min(known.items(), key=lambda item: item[1][0])
    # Any other node of the searches is the best one only where rounding decides.
    return Candidate(beta, weights, value, residual.get(beta, min(residual.values())))


def _samples(source: Rows) -> list[Rows]:
    """Samples of the rows, a larger one last where there are many more: on it most starts go the way of all rows."""
    first, second = source.preview(PREVIEW_ROWS), source.preview(LARGER_PREVIEW_ROWS)
    many = second.n_rows * 4 < source.n_rows
    return ([] if first is source else [first]) + ([second] if many and second is not first else [])


def _local_minima(values: Vector) -> list[int]:
    """Nodes below both of their neighbours, best first."""
    padded = np.concatenate([[np.inf], values, [np.inf]])
    nodes = np.flatnonzero((values < padded[:-2]) & (values <= padded[2:]))
    return [int(k) for k in nodes[np.argsort(values[nodes])]]


# Log loss: Newton steps in the logarithm of the inverse temperature and the weights together.


def _member_rows(block: Block, beta: float, floor: float) -> Vector:
    """Per row: log of each member at the label, and slope and curvature parts of the free one."""
    x = block.log_scores(floor)
    log_p, slope, variance = block.kernels.nll_rows(x, block.y, beta)
    log_q = block.kernels.nll_rows(x, block.y, 1.0)[0]
    return np.stack([log_p, log_q, np.full(len(log_p), -np.log(x.shape[1])), slope, variance])


def _nll_derivatives(rows: Vector, w: Vector, weight: Vector | None) -> Vector:
    """Loss, gradient (4) and Hessian (4 x 4) in (beta, w1, w2, w3), summed over rows, in one vector."""
    logs, slope, variance = rows[:3], rows[3], rows[4]
    with np.errstate(divide="ignore"):
        weighted = np.log(w)[:, None] + logs
    top = weighted.max(axis=0)
    mixture = top + np.log(np.exp(weighted - top).sum(axis=0))
    ratio = np.exp(np.minimum(logs - mixture, 300.0))  # each member over the mixture
    share = w[0] * ratio[0]  # what the free member contributes to it
    gradient = np.concatenate([[-share * slope], -ratio])
    counted = gradient if weight is None else gradient * weight
    per_row = np.ones(len(mixture)) if weight is None else weight
    hessian = counted @ gradient.T
    hessian[0, 0] -= per_row @ (share * (slope**2 - variance))
    cross = per_row @ (ratio[0] * slope)
    hessian[0, 1] -= cross
    hessian[1, 0] -= cross
    return np.concatenate([[-(per_row @ mixture)], counted.sum(axis=1), hessian.ravel()])


def _nll_statistic(block: Block, beta: float, w: Vector, floor: float) -> Vector:
    return _nll_derivatives(_member_rows(block, beta, floor), w, block.weight)


def _corner_statistic(block: Block, beta: float, floor: float) -> Vector:
    """Log loss of each member alone."""
    return -block.weighted_sum(_member_rows(block, beta, floor)[:3])


def _unpack(statistic: Vector, beta: float) -> tuple[float, Vector, NDArray[np.float64]]:
    """Value, gradient and Hessian in (log beta, w), from those in (beta, w)."""
    value, gradient, hessian = float(statistic[0]), statistic[1:5].copy(), statistic[5:].reshape(4, 4).copy()
    hessian[0] *= beta
    hessian[:, 0] *= beta
    gradient[0] *= beta
    hessian[0, 0] += gradient[0]
    return value, gradient, hessian


def _newton(source: Rows, beta: float, w: Vector, floor: float, tolerance: float) -> Solution:
    """Damped Newton steps in (log beta, w) from a start; the value never rises."""

    def at(theta: Vector) -> Point:
        beta = float(np.exp(theta[0]))
        return Point(theta, *_unpack(source.total(_nll_statistic, beta, theta[1:], floor), beta))

    def on_simplex(theta: Vector) -> Vector:
        w = np.maximum(theta[1:], 0.0)
        return np.append(theta[0], w / w.sum())

    return newton(
        at,
        at(np.append(np.log(beta), w)),
        lambda point: simplex_step(point.gradient, point.curvature, point.theta[1:]),
        weight=source.total_weight(),
        project=on_simplex,
        tolerance=tolerance,
        unseen=True,
    )


def _scan_nll(preview: Rows, beta_ts: float, floor: float) -> list[tuple[float, float, Vector]]:
    """Local optima in beta on a sample of rows, best first: (value, beta, weights)."""
    betas = [float(beta) for beta in beta_ts * SCAN]
    parts = list(preview.map_blocks(_scan_rows, [*betas, 1.0], floor))
    rows = np.concatenate([part[0] for part in parts], axis=1)
    weight = None if parts[0][1] is None else np.concatenate([part[1] for part in parts])
    uniform = np.full(rows.shape[1], -np.log(preview.n_classes))
    scanned = []
    for beta, row in zip(betas, rows, strict=False):
        value, w = _weights_at(np.stack([row, rows[-1], uniform]), weight)
        scanned.append((value, beta, w))
    return [scanned[k] for k in _local_minima(np.array([value for value, _, _ in scanned]))]


def _scan_rows(block: Block, betas: list[float], floor: float) -> tuple[Vector, Vector | None]:
    """Log-probability of the label at each inverse temperature, and the weights."""
    x = block.log_scores(floor)
    return np.stack([block.kernels.nll_rows(x, block.y, beta)[0] for beta in betas]), block.weight


def _weights_at(rows: Vector, weight: Vector | None) -> tuple[float, Vector]:
    """Weights with the least log loss for given members (the temperature stands still): EM, which always converges."""
    w = np.full(3, 1 / 3)
    top = rows.max(axis=0)
    members = np.exp(rows - top)
    weight = np.ones(members.shape[1]) if weight is None else weight
    for _ in range(20):
        mixture = w @ members
        updated = w * (members @ (weight / mixture)) / weight.sum()
        if np.abs(updated - w).max() < 1e-4:
            break
        w = updated
    return float(-(weight @ (np.log(w @ members) + top))), w


def fit_nll(source: Rows, beta_ts: float, floor: float) -> Candidate:
    def refined(rows: Rows, start: Candidate, tolerance: float) -> Candidate:
        solution = _newton(rows, start.beta, start.weights, floor, tolerance)
        theta = solution.point.theta
        return Candidate(float(np.exp(theta[0])), theta[1:], solution.point.value, solution.residual)

    starts = [
        Candidate(beta, w, value) for value, beta, w in _scan_nll(source.preview(PREVIEW_ROWS), beta_ts, floor)[:2]
    ]
    for sample in _samples(source):  # settle on samples first: what is left to do on all rows is little
        starts = [refined(sample, start, 1e-5) for start in starts]
    fits = [refined(source, start, TOLERANCE) for start in _promising(starts)]
    corners = source.total(_corner_statistic, beta_ts, floor)
    k = int(np.argmin(corners))
    corner = Candidate(beta_ts, np.eye(3)[k], float(corners[k]))
    best = min(fits, key=lambda fit: fit.value)
    # Often the optimum is this corner, whose loss was added up in another way: more than rounding must tell them apart.
    # A temperature that was found roughly is refined, as is a valley that the scan has missed.
    rounding = ROUNDING * abs(best.value)
    if corner.value < best.value - rounding:
        best = refined(source, corner, TOLERANCE)
    return best if best.value <= corner.value + rounding else replace(corner, residual=best.residual)


def _promising(starts: list[Candidate]) -> list[Candidate]:
    """Starts that are neither next to a better one nor clearly worse than the best."""
    chosen: list[Candidate] = []
    least = min(start.value for start in starts)
    for start in sorted(starts, key=lambda start: start.value):
        near = any(
            abs(np.log(start.beta / other.beta)) < 0.1 and np.abs(start.weights - other.weights).max() < 0.1
            for other in chosen
        )
        if not near and start.value <= least + 0.005 * abs(least):
            chosen.append(start)
    return chosen
