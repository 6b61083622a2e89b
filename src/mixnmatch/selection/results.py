"""The results of a comparison of methods: a table ranked by a proper score, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from textwrap import fill
from typing import TYPE_CHECKING, Any

from mixnmatch._engine.cached_property import cached_property
from mixnmatch._engine.errors import PYTHON
from mixnmatch._engine.suggestions import did_you_mean
from mixnmatch._engine.tabular import Cells, Record, Tabular, interval_columns
from mixnmatch._engine.text import table
from mixnmatch.evaluation._means import MeanEstimate
from mixnmatch.evaluation.gain import CalibrationGain
from mixnmatch.evaluation.result import CalibrationError
from mixnmatch.selection.evaluation_set import LossTable
from mixnmatch.selection.verdict import SCORES, Verdict, decide

if TYPE_CHECKING:
    from mixnmatch.selection.display import ComparisonDisplay

# Columns of a terminal that a printed comparison takes at most, unless a name is very long.
WIDTH = 80


@dataclass(frozen=True)
class MethodResult:
    """Results of one method on held-out samples.

    Attributes
    ----------
    name : str
        Short name, or the expression.
    gain : CalibrationGain or None
        Calibration gain over the uncalibrated scores (decrease of the Brier score), with its interval.
    behind : MeanEstimate or None
        Difference of the ranking score from that of the best method: the mean of paired differences, with its interval.
    nll, brier, accuracy : MeanEstimate or None
        Log loss, Brier score and accuracy.
    accuracy_change : MeanEstimate or None
        Accuracy after calibration minus before.
    winners_changed : float or None
        Share of samples whose predicted class changed.
    accuracy_preserving : bool
        Whether the method never changes a predicted class.
    error : CalibrationError or None
        Calibration error by the default estimator, of the positive class if there are two classes and of the
        predicted class otherwise. Methods are never ranked by it.
    seconds : float
        Seconds for a fit.
    failure : str or None
        Error message, if the method failed.
    """

    name: str
    gain: CalibrationGain | None = None
    behind: MeanEstimate | None = None
    nll: MeanEstimate | None = None
    brier: MeanEstimate | None = None
    accuracy: MeanEstimate | None = None
    accuracy_change: MeanEstimate | None = None
    winners_changed: float | None = None
    accuracy_preserving: bool = False
    error: CalibrationError | None = None
    seconds: float = 0.0
    failure: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        values: dict[str, Any] = {}
        for key, value in vars(self).items():
            values[key] = value.to_dict() if hasattr(value, "to_dict") else value
        return values


@dataclass(frozen=True)
class Comparison(Tabular):
    """Methods ranked by a proper score, the best first and those that failed last.

    Attributes
    ----------
    results : tuple of MethodResult
        One for each method.
    how : str
        Description of the evaluation, such as "5-fold cross-validation".
    n_rows, n_classes : int
        Samples of the evaluation set, and classes.
    confidence : float
        Coverage of the intervals.
    left_out : tuple of str
        Short names of methods that were not compared.
    losses : LossTable or None
        Losses of the methods for each sample.
    scoring : {"nll", "brier"}
        The score ranked by: log loss or Brier score.
    held_out : bool
        Whether methods were evaluated on a held-out set rather than cross-validated.
    """

    results: tuple[MethodResult, ...]
    how: str
    n_rows: int
    n_classes: int
    confidence: float
    left_out: tuple[str, ...] = ()
    losses: LossTable | None = field(default=None, repr=False, compare=False)
    scoring: str = "nll"
    held_out: bool = False

    @property
    def best(self) -> MethodResult:
        """The method with the lowest score."""
        return self.results[0]

    @cached_property
    def verdict(self) -> Verdict:
        """Which of the methods to use; see :func:`decide`."""
        return decide(self)

    @property
    def failed(self) -> tuple[MethodResult, ...]:
        """Methods that failed."""
        return tuple(result for result in self.results if result.failure is not None)

    def tied(self) -> tuple[MethodResult, ...]:
        """The best method to calibrate with and those that are statistically tied with it, by the verdict."""
        verdict = self.verdict
        names = {verdict.best, verdict.method, *verdict.tied_with} - {"identity"}
        return tuple(result for result in self.results if result.name in names)

    def __getitem__(self, name: str) -> MethodResult:
        """The result of a method."""
        for result in self.results:
            if result.name == name:
                return result
        compared = [result.name for result in self.results]
        msg = f"{name!r} was not compared; compared were {', '.join(compared)}{did_you_mean(name, compared)}"
        raise KeyError(msg)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        return {
            "how": self.how,
            "n_rows": self.n_rows,
            "n_classes": self.n_classes,
            "confidence": self.confidence,
            "ranked_by": SCORES[self.scoring],
            "verdict": None if self.losses is None else self.verdict.to_dict(),
            "left_out": list(self.left_out),
            "results": [result.to_dict() for result in self.results],
        }

    def _records(self) -> list[Record]:
        return [
            {
                "method": result.name,
                "log_loss": None if result.nll is None else float(result.nll),
                **interval_columns("behind", result.behind),
                **interval_columns("gain", result.gain),
                "brier_score": None if result.brier is None else float(result.brier),
                "accuracy": None if result.accuracy is None else float(result.accuracy),
                "accuracy_preserving": result.accuracy_preserving,
                **interval_columns("calibration_error", result.error),
                "seconds": result.seconds,
                "failure": result.failure,
            }
            for result in self.results
        ]

    def _cells(self) -> Cells:
        return [self._header, *(self._line(result) for result in self.results if result.failure is None)]

    def _texts(self) -> tuple[list[str], list[str]]:
        failed = [f"{result.name} failed: {result.failure}" for result in self.failed]
        return [self.how], [*([] if self.losses is None else str(self.verdict).splitlines()), *failed]

    def plot(self, ax: Any = None) -> ComparisonDisplay:
        """Draw the gains with their intervals; see :class:`ComparisonDisplay`.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; by default on a new figure.
        """
        from mixnmatch.selection.display import ComparisonDisplay

        return ComparisonDisplay(self).plot(ax)

    def __str__(self) -> str:
        return self.text()

    def text(self, options: Mapping[str, str] = PYTHON) -> str:
        """The results and the verdict; ``options`` says what options are called on the surface that prints them."""
        lines = self.table_lines(options)
        if self.losses is None:
            return "\n".join([*lines, *(f"{result.name} failed: {result.failure}" for result in self.failed)])
        return "\n".join([*lines, "", *(line for text in str(self.verdict).splitlines() for line in wrapped(text))])

    def table_lines(self, options: Mapping[str, str] = PYTHON) -> list[str]:
        """The results as lines of text, without the verdict."""
        score = SCORES[self.scoring]
        good = [result for result in self.results if result.failure is None]
        lines = [self.how, table(self._cells()), ""]
        notion = next((result.error.notion for result in good if result.error is not None), "")
        lines += wrapped(
            f"Ranked by {score}; behind best: paired difference; gain: calibration gain, the decrease of the Brier "
            f"score; ±: {self.confidence:.0%} confidence interval of one difference; ties are corrected for the number "
            f"of methods; ECE: {notion} calibration error; s: seconds for a fit."
        )
        if not all(result.accuracy_preserving for result in good):
            lines.append("*: the method may change the predicted class")
        if self.left_out:
            lines += wrapped(f"Not compared: {', '.join(self.left_out)}; {options['all']} compares them too.")
        return lines

    @property
    def _header(self) -> tuple[str, ...]:
        return ("method", SCORES[self.scoring], "behind best", "gain", "accuracy", "ECE", "s")

    def _line(self, result: MethodResult) -> tuple[str, ...]:
        assert result.gain is not None
        assert result.behind is not None
        assert result.error is not None
        return (
            result.name,
            f"{result.nll if self.scoring == 'nll' else result.brier:.4f}",
            f"{float(result.behind):.4f} {_half_width(result.behind)}",
            f"{float(result.gain):+.4f} {_half_width(result.gain)}",
            f"{result.accuracy:.4f}{' ' if result.accuracy_preserving else '*'}",
            f"{100 * result.error:.2f}%",
            f"{result.seconds:.1f}",
        )


def wrapped(text: str) -> list[str]:
    """Lines of a text, those after the first one indented."""
    indent = " " * 15 if text.startswith("  ") else "  "
    return fill(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False).splitlines()


def _half_width(estimate: MeanEstimate) -> str:
    """Half of an interval, which is as long to either side."""
    low, high = estimate.interval
    return f"±{(high - low) / 2:.4f}" if math.isfinite(high - low) else ""
