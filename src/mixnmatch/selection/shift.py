"""Shift of the class frequencies: their estimation from unlabelled scores, with intervals and tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine import door
from mixnmatch._engine.errors import InputError
from mixnmatch._engine.rows import Rows
from mixnmatch._engine.scores import is_number
from mixnmatch._engine.shared import single_threaded_blas
from mixnmatch._engine.tabular import Record, Tabular, array_records
from mixnmatch.maps.base import CalibrationMap
from mixnmatch.maps.class_order import rows_for
from mixnmatch.maps.composition import Composition
from mixnmatch.maps.prior_shift import PriorShift
from mixnmatch.maps.summary import CalibrationSummary, summarise
from mixnmatch.selection.confusion import METHODS as MOMENT_METHODS
from mixnmatch.selection.confusion import confusion
from mixnmatch.selection.mixture import PriorLikelihood, profile_interval
from mixnmatch.selection.shrinkage import shrunken_shares
from mixnmatch.selection.uncertainty import Uncertainty

Array = NDArray[np.float64]
LIKELIHOOD_METHODS = ("bayes", "em")
METHODS = (*LIKELIHOOD_METHODS, *MOMENT_METHODS)
# Warn that label shift does not explain the new scores if chance alone would do so less often than this.
DOUBT = 0.01
# Priors further than so many standard errors from 0 and 1 have a normal approximation on the logit scale.
REGULAR = 4.0
# Above so many classes the others have it too: profiles of the likelihood would take too long.
PROFILE_TO = 50


@dataclass(frozen=True, eq=False)
class PriorEstimate(Tabular):
    """Class frequencies estimated from unlabelled scores.

    Attributes
    ----------
    classes : ndarray of shape (L,)
        Names of the classes.
    priors : ndarray of shape (L,)
        Estimated frequencies of the classes in the new data.
    source_priors : ndarray of shape (L,)
        Frequencies that the map assumes: its mean prediction on the calibration set.
    interval : ndarray of shape (L, 2)
        Confidence interval of each frequency, for the chance in the new samples and in the calibration set. It belongs
        to the maximum likelihood estimate, so that shrinkage does not narrow it. NaN for "bbse" and "rlls", and where
        none was asked for.
    confidence : float or None
        Confidence level of the intervals.
    p_value : float
        Of the hypothesis that nothing has shifted, from the likelihood; NaN for "bbse" and "rlls".
    fit_p_value : float
        Of the hypothesis that a shift of the class frequencies explains the new scores; NaN where there are too few
        samples to tell.
    warnings : tuple of str
        Why the estimate may be wrong.
    method : str
        How it was estimated.
    n_samples : float
        Number (weight) of the unlabelled samples.
    gap : float
        Bound of what the mean log-likelihood of the maximum likelihood estimate lacks to its maximum; NaN for "bbse"
        and "rlls".
    """

    classes: NDArray[Any]
    priors: Array
    source_priors: Array
    interval: Array
    confidence: float | None
    p_value: float
    fit_p_value: float
    warnings: tuple[str, ...]
    method: str
    n_samples: float
    gap: float

    @property
    def ratios(self) -> Array:
        """Estimated frequency of each class relative to the one that the map assumes (1 where both are zero)."""
        known = self.source_priors > 0
        return np.where(known, self.priors / np.where(known, self.source_priors, 1.0), 1.0)

    @property
    def smoothed_ratios(self) -> Array:
        """Ratios after mixing the priors with the source priors as if these were one more sample; all are positive."""
        known = self.source_priors > 0
        priors = (self.n_samples * self.priors + self.source_priors) / (self.n_samples + 1)
        return np.where(known, priors / np.where(known, self.source_priors, 1.0), 1.0)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        return {
            "method": self.method,
            "samples": self.n_samples,
            "classes": self.classes.tolist(),
            "priors": self.priors.tolist(),
            "interval": self.interval.tolist(),
            "confidence": self.confidence,
            "source_priors": self.source_priors.tolist(),
            "p_value": self.p_value,
            "fit_p_value": self.fit_p_value,
            "warnings": list(self.warnings),
        }

    def _records(self) -> list[Record]:
        low, high = self.interval.T
        return array_records(
            **{
                "class": self.classes,
                "before": self.source_priors,
                "now": self.priors,
                "now_low": low,
                "now_high": high,
            }
        )

    def _texts(self) -> tuple[list[str], list[str]]:
        return [], [*self.table().splitlines()[len(self.classes) + 1 :], *self.warnings]

    def table(self) -> str:
        """The classes line by line, and the outcome of the tests."""
        width = max(5, *(len(str(name)) for name in self.classes.tolist()))
        title = "" if self.confidence is None else f"{self.confidence:.0%} interval"
        lines = [f"{'class':<{width}}  before     now  {title}".rstrip()]
        for name, before, now, (low, high) in zip(
            self.classes.tolist(), self.source_priors, self.priors, self.interval, strict=True
        ):
            between = "" if np.isnan(low) else f"{low:.4f} to {high:.4f}"
            lines.append(f"{name!s:<{width}}  {before:.4f}  {now:.4f}  {between}".rstrip())
        if not np.isnan(self.p_value):
            lines.append(f"test of no shift: {_in_words(self.p_value)}")
        if not np.isnan(self.fit_p_value):
            lines.append(f"test that class frequencies explain the new scores: {_in_words(self.fit_p_value)}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return "\n".join([self.table(), *(f"Warning: {text}" for text in self.warnings)])


def _in_words(p_value: float) -> str:
    return "p < 0.0001" if p_value < 1e-4 else f"p = {p_value:.2g}"


def estimate_priors(
    fitted: CalibrationMap,
    scores: Any,
    *,
    method: str = "bayes",
    sample_weight: Any = None,
    calibration: Any = None,
    confidence: float | None = 0.95,
) -> PriorEstimate:
    r"""Estimate the class frequencies of new data from unlabelled scores.

    It assumes label shift: each class looks as it did in the calibration set, only the frequencies of the classes
    differ. The better the map, the better the estimate: use ``bcts-auto``, or a map that is faster to fit and has a
    bias for each class, such as ``sms``. Temperature scaling is not suitable.

    Parameters
    ----------
    fitted : CalibrationMap
        A fitted map. Of a map that was adapted before, only the part before the adaptation counts.
    scores : array of shape (n, L) or (n,)
        Scores of new samples, of the kind that the map takes.
    method : {"bayes", "em", "bbse", "rlls"}
        "bayes": expected class frequencies of the new samples under a prior around those of the calibration set, whose
        strength the new samples decide. With few samples per class it is far less noisy than "em", the maximum
        likelihood, solved to its global optimum. "bbse" and "rlls" match the frequencies of the predicted classes and
        are there for comparison; they need ``calibration``.
    sample_weight : array of shape (n,), optional
        Frequencies: a weight of k equals k repetitions of the sample.
    calibration : tuple (scores, y) or (scores, y, sample_weight), optional
        The calibration set, for maps that do not remember theirs and for the methods that need it.
    confidence : float, optional
        Confidence level of the intervals. None leaves them out, which is faster.

    Returns
    -------
    PriorEstimate
        Priors with intervals, tests of no shift and of label shift, and warnings.

    Notes
    -----
    With calibrated probabilities :math:`q_{ik}` and their mean :math:`\pi^s_k` on the calibration set, "em" maximises
    :math:`\frac1n \sum_i \log \sum_k \pi_k q_{ik} / \pi^s_k` over the simplex, a concave problem. The map is taken as
    correct: where it is miscalibrated, so are the estimates.

    "bayes" adds the prior :math:`\pi \sim \mathrm{Dirichlet}(\lambda \pi^s)`, lets n samples count as n m / (n + m) for
    a calibration set of m samples, and averages over strengths :math:`\lambda` by their evidence (Laplace
    approximation). A clear shift is hardly shrunk; frequencies that the samples cannot resolve stay near
    :math:`\pi^s`. Intervals and tests are those of "em".

    Intervals are normal approximations on the logit scale, and profiles of the likelihood for priors close to 0 or 1.
    Both include the chance in a calibration set with :math:`m_k` samples of class k: its covariance is
    :math:`F^{-1} E[\omega r r^T] F^{-1} - \mathrm{diag}(\pi_k^2 / m_k)` for :math:`r_{ik} = \partial_{\pi_k} \log
    \sum_j \pi_j q_{ij} / \pi^s_j`, :math:`F = E[r r^T]` and :math:`\omega_i = \sum_k \pi_k^2 r_{ik} / m_k`.

    The test of no shift is the likelihood-ratio test for n m / (n + m) samples. The test of label shift compares the
    histogram of the new log-odds with the mixture of the histograms of the classes in the calibration set, in the
    estimated proportions.

    References
    ----------
    Saerens, Latinne, Decaestecker (2002). Adjusting the outputs of a classifier to new a priori probabilities: a simple
    procedure. Neural Computation.

    Alexandari, Kundaje, Shrikumar (2020). Maximum likelihood with bias-corrected calibration is hard-to-beat at label
    shift adaptation. ICML.

    Lipton, Wang, Smola (2018). Detecting and correcting for label shift with black box predictors. ICML.

    Azizzadenesheli, Liu, Yang, Anandkumar (2019). Regularized learning for domain adaptation under label shifts. ICLR.

    Examples
    --------
    >>> from mixnmatch import calibrator, load_sample
    >>> from mixnmatch.selection import estimate_priors
    >>> sample = load_sample()
    >>> fitted = calibrator("bcts", logits=True).fit(sample.logits_cal, sample.labels_cal)
    >>> mostly_animals = (sample.labels_eval >= 2) & (sample.labels_eval <= 7)
    >>> found = estimate_priors(fitted, sample.logits_eval[mostly_animals])
    >>> bool(found.priors[[0, 1, 8, 9]].sum() < 0.02)
    True
    """
    if method not in METHODS:
        msg = f"method must be one of {', '.join(map(repr, METHODS))}, got {method!r}"
        raise ValueError(msg)
    if confidence is not None and (not is_number(confidence) or not 0 < confidence < 1):
        msg = f"confidence must be a number between 0 and 1, got {confidence!r}"
        raise ValueError(msg)
    base, _ = base_and_ratios(fitted)
    target = _unlabelled(base, scores, sample_weight)
    known = _calibration_rows(base, calibration)
    summary = summary_of(base, known)
    with single_threaded_blas():
        if method in LIKELIHOOD_METHODS:
            return _from_likelihood(base, target, summary, confidence, method)
        if known is None:
            template = "the method {method!r} needs the calibration set: pass {calibration}"
            raise InputError(template, method=method)
        priors = MOMENT_METHODS[method](confusion(base, known), confusion(base, target), summary, target.total_weight())
    return PriorEstimate(
        classes=base.classes_,
        priors=priors,
        source_priors=summary.mean_prediction,
        interval=np.full((len(priors), 2), np.nan),
        confidence=confidence,
        p_value=np.nan,
        fit_p_value=np.nan,
        warnings=tuple(_doubts_about(base)),
        method=method,
        n_samples=target.total_weight(),
        gap=np.nan,
    )


def _from_likelihood(
    base: CalibrationMap, target: Rows, summary: CalibrationSummary, confidence: float | None, method: str
) -> PriorEstimate:
    """Maximum likelihood, shrunk or not; intervals and tests are those of maximum likelihood."""
    likelihood = PriorLikelihood.of(target.through(base), summary.mean_prediction)
    likeliest, gap = likelihood.maximise()
    around = Uncertainty.of(likelihood, likeliest, summary)
    priors = shrunken_shares(likelihood, likeliest, summary.total_weight) if method == "bayes" else likeliest
    fit_p_value = around.fit_p_value()
    doubts = _doubts_about(base)
    if fit_p_value < DOUBT:
        doubts.append(
            f"a shift of the class frequencies does not explain the new scores ({_in_words(fit_p_value)}): the classes "
            "themselves look different, or the map is not calibrated; label some new samples and fit again"
        )
    absent = (summary.class_weights <= 0) & (priors > 1 / likelihood.n)
    if absent.any():
        names = ", ".join(repr(name) for name in base.classes_[absent].tolist())
        doubts.append(
            f"the calibration set has no sample of {names}: its estimated frequency relies on the model alone"
        )
    return PriorEstimate(
        classes=base.classes_,
        priors=priors,
        source_priors=summary.mean_prediction,
        interval=_intervals(likelihood, likeliest, around, confidence),
        confidence=confidence,
        p_value=around.no_shift_p_value(),
        fit_p_value=fit_p_value,
        warnings=tuple(doubts),
        method=method,
        n_samples=likelihood.n,
        gap=gap,
    )


def base_and_ratios(fitted: CalibrationMap) -> tuple[CalibrationMap, Array]:
    """The map before an adaptation, and the ratios of the adaptation (1 where there was none)."""
    if not hasattr(fitted, "n_classes_"):
        msg = f"{fitted!r:.80} is not fitted; fit it before adapting it"
        raise ValueError(msg)
    if isinstance(fitted, Composition) and isinstance(fitted.second_, PriorShift):
        return fitted.first_, np.exp(fitted.second_.log_ratios_)
    return fitted, np.ones(fitted.n_classes_)


def summary_of(fitted: CalibrationMap, known: Rows | None) -> CalibrationSummary:
    """What is known of the calibration set: from the set itself, or as the map remembers it."""
    if known is not None:
        return summarise(fitted, known)
    found: CalibrationSummary | None = getattr(fitted, "summary_", None)
    if found is None:
        template = (
            "this {kind} does not remember its calibration set (it is part of another map, or from a file of an older "
            "version): pass {calibration}"
        )
        raise InputError(template, kind=type(fitted).__name__)
    return found


def _calibration_rows(fitted: CalibrationMap, calibration: Any) -> Rows | None:
    if calibration is None:
        return None
    if isinstance(calibration, Rows):
        return door.labelled(rows_for(fitted, calibration))
    if not isinstance(calibration, tuple | list) or len(calibration) not in (2, 3):
        msg = "calibration must be a tuple (scores, y) or (scores, y, sample_weight)"
        raise ValueError(msg)
    return door.labelled(rows_for(fitted, *calibration))


def _unlabelled(fitted: CalibrationMap, scores: Any, sample_weight: Any) -> Rows:
    return rows_for(fitted, scores, sample_weight=sample_weight)


def _doubts_about(fitted: CalibrationMap) -> list[str]:
    if not _treats_classes_alike(fitted):
        return []
    text = (
        f"{type(fitted).__name__} has no class biases, so the estimated class frequencies can be far off; "
        "calibrate with 'bcts-auto', 'sms' or 'bcts' instead"
    )
    return [text]


def _treats_classes_alike(fitted: Any) -> bool:
    """Whether a map does the same to all classes, so that its mean prediction may miss the class frequencies."""
    from mixnmatch import maps
    from mixnmatch.selection.auto import Auto

    if isinstance(fitted, maps.Composition):
        return _treats_classes_alike(fitted.first_) and _treats_classes_alike(fitted.second_)
    if isinstance(fitted, maps.KeepWinner):
        return _treats_classes_alike(fitted.map_)
    if isinstance(fitted, Auto):
        return all(map(_treats_classes_alike, fitted.members_))
    alike = (
        maps.Identity,
        maps.Uniform,
        maps.TemperatureScaling,
        maps.EnsembleTemperatureScaling,
        maps.Ensemble,
        maps.Pooled,
        maps.NormalisedIsotonic,
        maps.IntraOrderPreserving,
        maps.ContextualOrderPreserving,
        maps.GaussianProcessCalibration,
    )
    return isinstance(fitted, alike)


def _intervals(likelihood: PriorLikelihood, priors: Array, around: Uncertainty, confidence: float | None) -> Array:
    if confidence is None:
        return np.full((len(priors), 2), np.nan)
    from scipy.special import chdtri, expit, logit, ndtri

    z = float(ndtri((1 + confidence) / 2))
    drop = float(chdtri(1, 1 - confidence)) / 2
    found = np.zeros((len(priors), 2))
    for k in np.flatnonzero(likelihood.source_priors > 0):
        error, p = around.standard_errors[k], priors[k]
        if REGULAR * error < min(p, 1 - p):
            found[k] = expit(logit(p) + np.array([-z, z]) * error / (p * (1 - p)))
        elif len(priors) <= PROFILE_TO:
            found[k] = profile_interval(likelihood, priors, int(k), drop * around.inflation[k])
        else:
            found[k] = np.clip(p + np.array([-z, z]) * error, 0, 1)
    return found
