"""Our maps as calibrators of CalArena, the benchmark of post-hoc calibration by Berta et al. (arXiv 2605.30188).

CalArena runs every calibrator of the dictionary ``CUSTOM_CALIBRATORS`` in its file ``custom_calibrators.py``. In a
checkout of CalArena with mixnmatch installed, that file needs one line::

    from mixnmatch.experiments.calarena import CUSTOM_CALIBRATORS

and then, with its HDF5 files in place::

    python run_benchmark.py --benchmark tabrepo-binary --calibrator mixnmatch-auto

writes ``results/tabrepo-binary/mixnmatch-auto.csv`` beside the published results. Other methods and options are
registered by :func:`factory`. This module imports neither CalArena nor h5py.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mixnmatch import calibrator
from mixnmatch.exceptions import CalibrationWarning

__all__ = ["CUSTOM_CALIBRATORS", "CalArenaCalibrator", "factory"]


class CalArenaCalibrator:
    """A calibration map behind the two methods that CalArena calls.

    Parameters
    ----------
    name : str
        Short name of a map, as in `mixnmatch.calibrator`.
    **options
        Options of the map.

    Notes
    -----
    CalArena stores the probability of the positive class for two classes, as a vector or as one column, and one column
    for each class otherwise. Labels are column numbers of any type. Both methods return at once what CalArena measures:
    `predict_proba` an array with one column for each class, also for two classes. Classes that the calibration set
    lacks keep their columns.

    Examples
    --------
    >>> import numpy as np
    >>> p = np.array([0.1, 0.3, 0.8, 0.9])
    >>> fitted = CalArenaCalibrator("beta-shrunk").fit(p, np.array([0, 0, 1, 1]))
    >>> fitted.predict_proba(p).shape
    (4, 2)
    """

    def __init__(self, name: str, **options: Any) -> None:
        self.name = name
        self.options = options

    def fit(self, p_cal: ArrayLike, y_cal: ArrayLike) -> CalArenaCalibrator:
        """Fit the map to probabilities and labels of the calibration set."""
        labels = np.asarray(y_cal)
        numbers = labels.astype(np.int64)
        if not np.array_equal(numbers, labels):
            msg = "y_cal: labels must be column numbers, 0, 1, 2, ..."
            raise ValueError(msg)
        with warnings.catch_warnings():
            # The benchmark measures what a map does to unusual data; nobody reads its warnings there.
            warnings.simplefilter("ignore", CalibrationWarning)
            self.map_ = calibrator(self.name, **self.options).fit(scores(p_cal), numbers)
        return self

    def predict_proba(self, p_test: ArrayLike) -> NDArray[np.float64]:
        """Return calibrated probabilities, one column for each class."""
        return np.asarray(self.map_.predict_proba(scores(p_test)), dtype=np.float64)


def scores(p: ArrayLike) -> NDArray[Any]:
    """Return probabilities as a vector for two classes in one column, unchanged otherwise."""
    columns = np.asarray(p)
    return columns[:, 0] if columns.ndim == 2 and columns.shape[1] == 1 else columns


def factory(name: str, **options: Any) -> Callable[[], CalArenaCalibrator]:
    """Return a function without parameters that makes a new calibrator, as CalArena registers it.

    Examples
    --------
    >>> CUSTOM_CALIBRATORS = {"Our-Beta": factory("beta", loss="brier")}
    >>> CUSTOM_CALIBRATORS["Our-Beta"]().name
    'beta'
    """
    return lambda: CalArenaCalibrator(name, **options)


#: Display names and calibrators, in the form of CalArena's ``custom_calibrators.py``.
CUSTOM_CALIBRATORS: dict[str, Callable[[], CalArenaCalibrator]] = {
    "mixnmatch-auto": factory("auto"),
    "mixnmatch-beta-shrunk": factory("beta-shrunk"),
    "mixnmatch-sms": factory("sms"),
    "mixnmatch-irm-ets": factory("irm-ets"),
}
