"""Slopes that depend on the context of a sample: their parameters, the passes over samples, and the fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.along_rows import log_softmax, picked, row_maxima, row_sums, winners
from mixnmatch._engine.block import Block
from mixnmatch._engine.passes import add
from mixnmatch._engine.rows import Rows
from mixnmatch.maps._nodes import tempered
from mixnmatch.maps._order_fit import LEAST_SLOPE, bounded_minimum
from mixnmatch.maps._solve import Point, certify, newton

Array = NDArray[np.float64]

# Contexts read lower log-scores as this one, so that a class that is masked by a huge negative logit does not drown the
# others.
LOWEST = -100.0
# Entries of a chunk of samples: what a statistic writes beside it stays in the cache.
CHUNK_ENTRIES = 1 << 13
# Relative size of what is added to curvatures so that steps are defined where neither data nor penalty say anything.
DAMPING = 1e-9


def contexts(x: Array) -> Array:
    """Lead of the first class, how far the second stands out, and entropy of all but the first, n x 3."""
    x = np.maximum(x, LOWEST)
    top, index = winners(x), np.arange(len(x))
    first = picked(x, top)
    rest = x.copy()
    rest[index, top] = -np.inf
    second = row_maxima(rest)
    mean = (row_sums(x) - first) / (x.shape[1] - 1)
    rest -= second[:, None]
    p = np.exp(rest)
    rest[index, top] = 0.0
    total = row_sums(p)
    entropy = np.log(total) - np.einsum("nl,nl->n", p, rest) / total
    return np.stack([first - second, second - mean, entropy], axis=1)


def hat_shares(x: Array, knots: Array) -> Array:
    """Hat functions of all contexts side by side, n x (M K); the sum over a row is 1."""
    shares = np.zeros((len(x), *knots.shape))
    shares[:, :, 0] = 1 / len(knots)
    if knots.shape[1] > 1:
        rises = (contexts(x)[:, :, None] - knots[:, :-1]) / np.diff(knots)
        np.minimum(np.maximum(rises, 0.0, out=rises), 1.0, out=rises)
        rises /= len(knots)
        shares[:, :, 1:] = rises
        shares[:, :, :-1] -= rises
    return shares.reshape(len(x), -1)


def weights_of(block: Block) -> Array:
    """Weight of each sample of a block."""
    return np.ones(len(block.values)) if block.weight is None else block.weight


@dataclass(frozen=True)
class Chunk:
    """Some samples, and what their logits are made of."""

    block: Block
    x: Array  # log-probabilities after temperature scaling, n x L
    shares: Array  # hat functions of the contexts, n x K for all K knots of all contexts
    ramps: Array  # how far x reaches into each cell, not positive, n x J x L
    at_label: Array  # the same for the label, n x J

    def log_softmax(self, slopes: Array) -> Array:
        """Log-probabilities for G slopes of each sample and cell (n x G x J), n x G x L."""
        u = np.matmul(slopes - 1, self.ramps)
        u += self.x[:, None, :]
        shape = u.shape
        return log_softmax(u.reshape(-1, shape[2])).reshape(shape)

    def label_losses(self, log_p: Array) -> Array:
        """Log loss of each sample, n x G."""
        return np.asarray(-log_p[np.arange(len(log_p)), :, self.block.y])


@dataclass(frozen=True)
class Slopes:
    """Slopes in each cell as a function of the contexts: what the parameters, K x J of them in a row, stand for."""

    floor: float
    beta: float
    knots: Array
    context_knots: Array

    @property
    def n_cells(self) -> int:
        """Number of cells of g."""
        return len(self.knots) - 1

    @property
    def size(self) -> int:
        """Number of parameters."""
        return self.context_knots.size * self.n_cells

    def of_samples(self, chunk: Chunk, theta: Array) -> Array:
        """Slopes for G sets of parameters (G x P), n x G x J."""
        table = theta.reshape(len(theta), -1, self.n_cells)
        return np.asarray(np.tensordot(chunk.shares, table, (1, 1)))

    def chunks(self, block: Block) -> Iterator[Chunk]:
        """The samples of a block, some at a time."""
        step = max(1, CHUNK_ENTRIES // block.values.shape[1])
        upper, lower = self.knots[:-1, None], self.knots[1:, None]
        for start in range(0, len(block.values), step):
            part = block.part(slice(start, start + step))
            x = tempered(part, self.floor, self.beta)
            ramps = np.clip(x[:, None, :], lower, upper)
            ramps -= upper
            at_label = ramps[np.arange(len(x)), :, part.y]
            yield Chunk(part, x, hat_shares(x, self.context_knots), ramps, at_label)

    def moments(self, chunk: Chunk, log_p: Array) -> tuple[Array, Array]:
        """Means of the ramps (n x G x J) and their covariances, of each pair of cells once (n x G x J (J + 1) / 2)."""
        p, ramps = np.exp(log_p), chunk.ramps.transpose(0, 2, 1)
        mean = np.matmul(p, ramps)
        first, second = np.triu_indices(self.n_cells)
        # What reaches into a cell has passed those above it: there its ramp is minus the width of the cell.
        products = mean[..., second] * np.diff(self.knots)[first]
        products[..., first == second] = np.matmul(p, np.square(ramps))
        return mean, products - mean[..., first] * mean[..., second]

    def penalty(self) -> Array:
        """Matrix of the penalty with strength 1."""
        n_contexts, n_knots = self.context_knots.shape
        mean = np.full((self.context_knots.size,) * 2, self.context_knots.size**-2.0)
        own = np.kron(np.eye(n_contexts), np.eye(n_knots) - 1 / n_knots) / n_contexts**2
        return np.kron(mean + own, np.eye(self.n_cells))


def _pairs(size: int) -> NDArray[np.intp]:
    """Where each pair of ``size`` things is in a list that has every pair once."""
    first, second = np.triu_indices(size)
    place = np.empty((size, size), dtype=np.intp)
    place[first, second] = place[second, first] = np.arange(len(first))
    return place


def log_loss_statistic(block: Block, slopes: Slopes, theta: Array) -> tuple[Array, Array, Array]:
    """Log loss, gradient and curvature for G sets of parameters; of the curvature each pair of knots and cells once."""
    n_fits, n_knots, n_cells = len(theta), slopes.context_knots.size, slopes.n_cells
    first, second = np.triu_indices(n_knots)
    curvature = np.zeros((n_fits, len(first), n_cells * (n_cells + 1) // 2))
    total = np.zeros(n_fits), np.zeros((n_fits, slopes.size)), curvature
    for chunk in slopes.chunks(block):
        weight, shares = weights_of(chunk.block), chunk.shares
        log_p = chunk.log_softmax(slopes.of_samples(chunk, theta))
        mean, covariance = slopes.moments(chunk, log_p)
        residual = mean - chunk.at_label[:, None, :]
        gradient = np.tensordot(weight[:, None] * shares, residual, (0, 0)).transpose(1, 0, 2)
        pairs = weight[:, None] * shares[:, first] * shares[:, second]
        curvature = np.tensordot(pairs, covariance, (0, 0)).transpose(1, 0, 2)
        total = add(total, (weight @ chunk.label_losses(log_p), gradient.reshape(n_fits, -1), curvature))
    return total


def fit_slopes(source: Rows, slopes: Slopes, strengths: Array, who: str) -> tuple[Array, Array]:
    """Parameters with the least penalised loss for each strength (G x P), and the curvature there (G x P x P)."""
    penalty = strengths[:, None, None] * slopes.penalty()
    knots, cells = _pairs(slopes.context_knots.size), _pairs(slopes.n_cells)

    def at(theta: Array) -> Point:
        loss, gradient, moments = source.total(log_loss_statistic, slopes, theta)
        curvature = moments[:, knots][..., cells].transpose(0, 1, 3, 2, 4).reshape(penalty.shape)
        pull = np.einsum("gpq,gq->gp", penalty, theta - 1)
        value = loss + 0.5 * np.einsum("gp,gp->g", pull, theta - 1)
        return Point(theta, value, gradient + pull, _damped(curvature + penalty))

    def step(point: Point) -> Array:
        problems = zip(point.curvature, point.gradient, point.theta, strict=True)
        return np.stack([bounded_minimum(h, g - h @ theta, LEAST_SLOPE) - theta for h, g, theta in problems])

    start = at(np.ones((len(strengths), slopes.size)))
    solution = newton(at, start, step, weight=source.total_weight())
    certify(who, solution.residual)
    return solution.point.theta, solution.point.curvature


def _damped(curvature: Array) -> Array:
    """Curvatures with a little more on the diagonal: slopes may move between contexts without any effect."""
    largest = np.einsum("gpp->gp", curvature).max(axis=1)
    return np.asarray(curvature + (DAMPING * largest)[:, None, None] * np.eye(curvature.shape[1]))


def inverses(curvature: Array, theta: Array) -> Array:
    """Inverse of each curvature over the parameters that are not on their bound, 0 for the others."""
    inverse = np.zeros_like(curvature)
    for matrix, fit, inverse_of_fit in zip(curvature, theta, inverse, strict=True):
        free = np.ix_(*(np.flatnonzero(fit > LEAST_SLOPE),) * 2)
        inverse_of_fit[free] = np.linalg.inv(matrix[free])
    return inverse


def leave_one_out_statistic(block: Block, slopes: Slopes, theta: Array, inverse: Array) -> Array:
    """Sum of the approximate leave-one-out losses of each of G fits, and of the losses of temperature scaling."""
    n_fits, n_knots, n_cells = len(theta), slopes.context_knots.size, slopes.n_cells
    cells = _pairs(n_cells)
    spreads = inverse.reshape(n_fits, n_knots, n_cells, n_knots, n_cells).transpose(1, 3, 0, 2, 4)
    first, second = np.triu_indices(n_knots)
    # A pair of different knots counts twice; both of its blocks are needed for a symmetric sum.
    twice = spreads[first, second] + spreads[second, first] * (first != second)[:, None, None, None]
    total = np.zeros(n_fits + 1)
    for chunk in slopes.chunks(block):
        weight = weights_of(chunk.block)
        at = slopes.of_samples(chunk, theta)
        mean, covariance = slopes.moments(chunk, chunk.log_softmax(at))
        # One of several repetitions is left out, and of a sample that counts less than one all of it.
        out = np.minimum(weight, 1.0)[:, None, None]
        spread = np.tensordot(chunk.shares[:, first] * chunk.shares[:, second], twice, (1, 0))
        system = np.eye(n_cells) - np.matmul(out[..., None] * covariance[..., cells], spread)
        residual = out * (mean - chunk.at_label[:, None, :])
        move = np.matmul(spread, np.linalg.solve(system, residual[..., None]))[..., 0]
        losses = chunk.label_losses(chunk.log_softmax(at + move))
        total += np.append(weight @ losses, -weight @ picked(chunk.x, chunk.block.y))
    return total
