"""Warnings of the library that users may want to filter or to turn into errors."""


class CalibrationWarning(UserWarning):
    """The calibration set does not allow what was asked of it, or the fitted map does not fit it."""
