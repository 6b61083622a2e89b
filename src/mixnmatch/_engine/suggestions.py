"""Suggest a known name for an unknown one: a similar spelling, or the name in another library."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Names of other libraries and of papers, and what they are called here; the first one that is known is meant.
SYNONYMS: dict[str, tuple[str, ...]] = {
    "acc": ("accuracy",),
    "ace": ("histogram", "calibration_error"),
    "adaptive-temperature": ("iop-context",),
    "bayesian-binning": ("bbq",),
    "bias-corrected-temperature": ("bcts",),
    "calibrate": ("fit",),
    "classwise": ("class-wise",),
    "confidence": ("top-label", "mean_confidence"),
    "cross-entropy": ("log_loss", "neg_log_loss", "nll"),
    "ece": ("histogram", "calibration_error", "neg_calibration_error"),
    "ensemble-temperature": ("ets",),
    "expected-calibration-error": ("histogram", "calibration_error", "neg_calibration_error"),
    "gaussian-process": ("gpc",),
    "gp": ("gpc",),
    "intra-order-preserving": ("iop",),
    "joint": ("canonical",),
    "kernel-calibration-error": ("skce",),
    "kernel-density": ("kde",),
    "log-loss": ("log_loss", "neg_log_loss", "nll"),
    "logistic": ("platt",),
    "logloss": ("log_loss", "neg_log_loss", "nll"),
    "marginal": ("class-wise",),
    "mce": ("histogram", "calibration_error"),
    "multiclass": ("canonical",),
    "nll": ("log_loss", "neg_log_loss"),
    "none": ("identity",),
    "predict": ("apply",),
    "raw": ("identity",),
    "sigmoid": ("platt",),
    "smece": ("smooth",),
    "smooth-ece": ("smooth",),
    "structured-matrix": ("sms",),
    "structured-vector": ("svs",),
    "temp": ("ts",),
    "temperature": ("ts",),
    "top": ("top-label",),
    "toplabel": ("top-label",),
    "train": ("fit",),
    "transform": ("apply",),
    "uncalibrated": ("identity",),
}
# Left out of names of methods: "vector scaling" is "vector" here.
_ENDINGS = ("-scaling", "-calibration", "-regression", "-binning", "-score")
# How alike two spellings must be, as difflib counts it.
_ALIKE = 0.6


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return a question for the end of a message, such as ". Did you mean 'ets'?"; empty if no name is close.

    Examples
    --------
    >>> did_you_mean("temperature", ["ts", "ets"])
    ". Did you mean 'ts'?"
    >>> did_you_mean("elephant", ["ts", "ets"])
    ''
    """
    meant = closest(name, known)
    return "" if meant is None else f". Did you mean {meant!r}?"


def closest(name: object, known: Iterable[str]) -> str | None:
    """The known name that is probably meant."""
    from difflib import get_close_matches

    by_spelling = {_plain(one): one for one in known}
    whole, words = _plain(name), _plain(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", str(name)))
    short = next((words.removesuffix(end) for end in _ENDINGS if words.endswith(end)), words)
    for spelling in (whole, words, short):
        if spelling in by_spelling:
            return by_spelling[spelling]
        for meant in SYNONYMS.get(spelling, ()):
            if _plain(meant) in by_spelling:
                return by_spelling[_plain(meant)]
    alike = get_close_matches(whole, by_spelling, n=1, cutoff=_ALIKE)
    return by_spelling[alike[0]] if alike else None


def _plain(name: object) -> str:
    """A name in small letters, its words joined by hyphens."""
    return re.sub(r"[\s_-]+", "-", str(name).strip()).lower()
