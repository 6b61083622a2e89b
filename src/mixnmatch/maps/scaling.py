"""The softmax-linear family: vector, bias-corrected temperature, matrix, Dirichlet and structured scaling."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.rows import Rows
from mixnmatch._engine.scores import is_number
from mixnmatch.maps.fitted import check_range
from mixnmatch.maps.linear import SoftmaxLinear

if TYPE_CHECKING:  # fits alone need it
    from mixnmatch.maps._linear_passes import Problem

# Strengths of ODIR that are tried, from strong to weak, up to so many classes.
PATH, FINE_TO = 10.0 ** np.arange(4.0, -4.5, -0.5), 200
# The strength is cross-validated in so many folds up to so many classes and scores. Larger tables have one split.
FOLDS, FEW_CLASSES, FEW_SCORES = 5, 20, 1 << 20
# Ways to make the folds that are tried.
SPLITS = 21
# Where there are no rows to choose it on.
FIXED_STRENGTH = 1.0


class VectorScaling(SoftmaxLinear):
    r"""Vector scaling (Guo et al. 2017): :math:`T(z) = \mathrm{softmax}(v \odot \log z + b)`.

    Parameters
    ----------
    ridge : float
        Strength of a ridge towards temperature scaling, in units of one observation. The default only makes sure that
        an optimum exists (separable data, absent classes).
    loss : {"nll", "brier"}
        What is minimised on the calibration set.
    logits, classes, weights
        As for :class:`TemperatureScaling`.

    Notes
    -----
    It acts on log-probabilities, so logits and their softmax give the same map.

    Log loss is minimised by Newton's method, until another step would lower the mean loss by less than 1e-9 of its
    value (1e-8 from 400 classes on, for float32 scores). The sampling error of a calibration set is far larger.

    Examples
    --------
    >>> VectorScaling(logits=True)
    VectorScaling(logits=True)
    """

    def __init__(
        self,
        *,
        ridge: float = 1.0,
        loss: str = "nll",
        logits: bool = False,
        classes: Any = None,
        weights: str = "frequency",
    ):
        super().__init__(loss=loss, logits=logits, classes=classes, weights=weights)
        self.ridge = ridge

    def _check_params(self) -> None:
        super()._check_params()
        _check_positive("ridge", self.ridge)

    def _ridges(self, source: Rows) -> tuple[float, float, float]:
        each = self.ridge / source.total_weight()
        return each, each, each


class BiasCorrectedTemperatureScaling(VectorScaling):
    r"""Bias-corrected temperature scaling, BCTS: :math:`T(z) = \mathrm{softmax}(\beta \log z + b)`.

    One inverse temperature for all classes, and an intercept (bias) for each: vector scaling with a shared slope. The
    mean calibrated prediction of each class then equals the frequency of the class in the calibration set, which
    temperature scaling does not achieve. Adapting to other class frequencies relies on that (Alexandari et al. 2020).

    Parameters
    ----------
    ridge : float
        As for :class:`VectorScaling`.
    loss : {"nll", "brier"}
        What is minimised on the calibration set.
    logits, classes, weights
        As for :class:`TemperatureScaling`.

    References
    ----------
    Alexandari, Kundaje, Shrikumar (2020). Maximum likelihood with bias-corrected calibration is hard-to-beat at label
    shift adaptation. ICML.

    Examples
    --------
    >>> BiasCorrectedTemperatureScaling(logits=True)
    BiasCorrectedTemperatureScaling(logits=True)
    """

    _shared = True


class MatrixScaling(VectorScaling):
    r"""Matrix scaling (Guo et al. 2017): :math:`T(z) = \mathrm{softmax}(W \log z + b)`.

    With L^2 parameters it overfits unless n is far above L^2; prefer :class:`StructuredMatrixScaling`.

    Parameters
    ----------
    ridge : float
        As for :class:`VectorScaling`.
    loss : {"nll", "brier"}
        What is minimised on the calibration set.
    logits, classes, weights
        As for :class:`TemperatureScaling`.

    Examples
    --------
    >>> MatrixScaling(ridge=10.0)
    MatrixScaling(ridge=10.0)
    """

    _full = True


class StructuredVectorScaling(SoftmaxLinear):
    r"""Structured vector scaling, SVS (Berta et al. 2025): a ridge that grows with the number of classes.

    After temperature scaling, :math:`T(z) = \mathrm{softmax}((1 + v) \odot s + b)` for scaled log-probabilities s, with
    the penalty :math:`\frac{L}{2 n} (\Vert v \Vert^2 + \Vert b \Vert^2)` on the mean loss, for L classes and n
    samples.

    Parameters
    ----------
    strength : float
        Factor of the ridge.
    loss : {"nll", "brier"}
        What is minimised on the calibration set.
    logits, classes, weights
        As for :class:`TemperatureScaling`.

    References
    ----------
    Berta, Holzmueller, Jordan, Bach (2025). Structured matrix scaling for multi-class calibration.

    Examples
    --------
    >>> StructuredVectorScaling()
    StructuredVectorScaling()
    """

    def __init__(
        self,
        *,
        strength: float = 1.0,
        loss: str = "nll",
        logits: bool = False,
        classes: Any = None,
        weights: str = "frequency",
    ):
        super().__init__(loss=loss, logits=logits, classes=classes, weights=weights)
        self.strength = strength

    def _check_params(self) -> None:
        super()._check_params()
        _check_positive("strength", self.strength)

    def _ridges(self, source: Rows) -> tuple[float, float, float]:
        classes = source.n_classes
        each = self.strength * classes / source.total_weight()
        return each, each * (classes - 1), each


class StructuredMatrixScaling(StructuredVectorScaling):
    r"""Structured matrix scaling, SMS (Berta et al. 2025): :math:`\mathrm{softmax}((I + \mathrm{diag}\,v + M) s + b)`.

    The penalty is :math:`\frac{L (L - 1)}{2 n} \Vert M \Vert^2` for the off-diagonal entries M, and that of
    :class:`StructuredVectorScaling` for v and b.

    Parameters
    ----------
    strength : float
        Factor of the ridges.
    loss : {"nll", "brier"}
        What is minimised on the calibration set.
    logits, classes, weights
        As for :class:`TemperatureScaling`.

    Examples
    --------
    >>> StructuredMatrixScaling(loss="brier")
    StructuredMatrixScaling(loss='brier')
    """

    _full = True


class DirichletScaling(SoftmaxLinear):
    r"""Dirichlet calibration with off-diagonal and intercept regularisation, ODIR (Kull et al. 2019).

    :math:`T(z) = \mathrm{softmax}(W \log z + b)`, minimising the mean loss
    :math:`+ \lambda \sum_{i \ne j} W_{ij}^2 / (L (L - 1)) + \lambda \sum_j b_j^2 / L`.

    Parameters
    ----------
    strength : float, optional
        The strength lambda. If not given it is chosen by five-fold cross-validation from one warm-started path of
        strengths, and the map is fitted to all samples with it. Above 20 classes or a million scores one fold is held
        out. Samples with equal scores are in the same fold, whatever the order of samples and classes: a weight of k
        equals k repetitions here too, unless almost all scores are equal. The path goes down from
        10000 by half powers of ten, above 200 classes by whole ones from L^4 / 2n on, where the ridge is that of SMS;
        it ends when a strength ten times lower is no better.
    loss : {"nll", "brier"}
        What is minimised on the calibration set.
    random_state : int
        Seed of the folds.
    logits, classes, weights
        As for :class:`TemperatureScaling`.

    Attributes
    ----------
    strength_ : float
        The strength used.

    References
    ----------
    Kull, Perello-Nieto, Kaengsepp, Silva Filho, Song, Flach (2019). Beyond temperature scaling: obtaining
    well-calibrated multiclass probabilities with Dirichlet calibration. NeurIPS.

    Examples
    --------
    >>> DirichletScaling(strength=0.01)
    DirichletScaling(strength=0.01)
    """

    _fitted: ClassVar[tuple[str, ...]] = (*SoftmaxLinear._fitted, "strength_")
    _full = True

    strength_: float

    def __init__(
        self,
        *,
        strength: float | None = None,
        loss: str = "nll",
        random_state: int = 0,
        logits: bool = False,
        classes: Any = None,
        weights: str = "frequency",
    ):
        super().__init__(loss=loss, logits=logits, classes=classes, weights=weights)
        self.strength = strength
        self.random_state = random_state

    def _check_params(self) -> None:
        super()._check_params()
        if self.strength is not None:
            _check_positive("strength", self.strength)

    def _check_fitted(self) -> None:
        super()._check_fitted()
        check_range(self, "strength_", 0.0)

    def _fit(self, source: Rows) -> dict[str, Any]:
        from mixnmatch.maps._linear_passes import scaled_rows
        from mixnmatch.maps._linear_solver import Penalty, solve

        problem = self._problem(source)
        strength, start = self.strength, None
        if strength is None:
            strength, start = self._search(source, problem)
        rows, penalty = scaled_rows(source, problem), Penalty(*self._odir(source, problem, strength))
        theta, value = solve(rows, problem, penalty, start, who=type(self).__name__)
        return {**self._attributes(problem, theta, value, source.n_classes), "strength_": float(strength)}

    def _odir(self, source: Rows, problem: Problem, strength: float) -> tuple[float, float, float]:
        # The penalty is on W = beta (I + diag v + M); the diagonal is free but for what makes an optimum exist.
        classes = source.n_classes
        off_diagonal = 2 * strength * problem.beta**2 / (classes * (classes - 1))
        return 1 / source.total_weight(), off_diagonal, 2 * strength / classes

    def _search(self, source: Rows, problem: Problem) -> tuple[float, NDArray[np.float64] | None]:
        """Strength with the least loss on held-out rows, along paths that start each fit from the one before."""
        from mixnmatch.maps._linear_passes import gradient_statistic, scaled_rows
        from mixnmatch.maps._linear_solver import ROUGH, Penalty, solve

        splits = self._splits(source)
        if not splits:
            return FIXED_STRENGTH, None
        tables = [[scaled_rows(part, problem) for part in split] for split in splits]
        strengths = _path(source.n_classes, splits[0][0].total_weight())
        thetas: list[Any] = [None] * len(splits)
        best, least, kept = float(strengths[0]), np.inf, None
        for strength in map(float, strengths):
            if strength < 0.09 * best:
                break
            value = 0.0
            for k, (seen, unseen) in enumerate(tables):
                penalty = Penalty(*self._odir(splits[k][0], problem, strength))
                thetas[k], _ = solve(seen, problem, penalty, thetas[k], tolerance=ROUGH)
                value += float(unseen.total(gradient_statistic, problem, thetas[k])[0])
            if value < least:
                best, least, kept = strength, value, thetas[0]
        return best, kept

    def _splits(self, source: Rows) -> list[tuple[Rows, Rows]]:
        """About four fifths of the samples, and the others, for each fold; none if there are no such folds.

        Samples with equal scores stay together, so that folds do not depend on the order of samples and classes, nor on
        whether a sample is repeated or has a weight. Only where few scores differ are they split by their place.
        """
        n = source.total_weight()
        few = source.n_classes <= FEW_CLASSES and source.n_entries <= FEW_SCORES
        for shift in range(SPLITS):
            # The last one goes by the place in the table.
            by_scores = shift < SPLITS - 1
            seed = self.random_state + shift if shift and by_scores else self.random_state
            fold = partial(source.fold, n_folds=FOLDS, seed=seed, by_scores=by_scores)
            weight = [fold(k, keep=True).total_weight() for k in range(FOLDS if few else 1)]
            if max(weight) <= 0.5 * n and (few or weight[0] >= 0.05 * n):
                return [(fold(k, keep=False), fold(k, keep=True)) for k in range(len(weight)) if weight[k] > 0]
        return []


def _path(n_classes: int, n: float) -> NDArray[np.float64]:
    """Strengths to try. They are divided by the number of entries: the more classes, the stronger they must be."""
    if n_classes <= FINE_TO:
        return PATH
    strongest = max(4.0, np.ceil(np.log10(n_classes**4 / (2 * n))))
    return 10.0 ** np.arange(strongest, -4.5, -1.0)


def _check_positive(name: str, value: Any) -> None:
    if not is_number(value) or value <= 0:
        msg = f"{name} must be a positive number, got {value!r}"
        raise ValueError(msg)
