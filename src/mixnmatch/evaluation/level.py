"""How well scores are calibrated, in a word: one rule for the report and the command line."""

from __future__ import annotations

import math

from mixnmatch.evaluation.result import CalibrationError

# An error below this is small, even if it is significant.
SMALL_ERROR = 0.03
# For two classes an error is small if it is also below this share of how often the rarer one occurs.
SHARE_OF_RARE = 0.5
# The error has a direction if at least this share of it remains in the difference of the means.
DIRECTED = 0.6
SENTENCES = {
    "bad": "Not calibrated",
    "slight": "Slightly miscalibrated",
    "good": "Calibrated, as far as these data can tell",
    "unclear": "Too few samples to tell whether the scores are calibrated",
}


def significance(error: CalibrationError) -> float:
    """Level of the test that belongs to the interval of an error."""
    return 1 - error.confidence


def is_significant(error: CalibrationError) -> bool:
    """Whether the scores are significantly miscalibrated: just when 0 is outside the interval of the error."""
    return error.p_value is not None and error.p_value <= significance(error)


def small_error(error: CalibrationError, positives: float) -> float:
    """What a small error is: for a rare event, a gap that would be small elsewhere may be most of its probability.

    Parameters
    ----------
    error : CalibrationError
        The error; only its notion counts.
    positives : float
        For the binary notion, how often the positive class occurs.
    """
    if error.notion != "binary":
        return SMALL_ERROR
    return min(SMALL_ERROR, SHARE_OF_RARE * min(positives, 1 - positives))


def level(error: CalibrationError, positives: float) -> str:
    """One of good, slight, bad and unclear; parameters are those of :func:`small_error`."""
    small = small_error(error, positives)
    if is_significant(error):
        return "bad" if error >= small else "slight"
    high = math.inf if error.interval is None else error.interval[1]
    return "good" if high <= small else "unclear"


def is_directed(error: CalibrationError, lead: float) -> bool:
    """Whether scores are too high, or too low, as a whole.

    Otherwise some are too high and others too low. ``lead`` is by how much the mean score exceeds the mean outcome.
    """
    return abs(lead) >= DIRECTED * error
