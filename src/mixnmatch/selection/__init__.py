"""Selection: which method to use, how methods compare on one's own data, and whether more data would help."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mixnmatch.selection.comparison import compare
    from mixnmatch.selection.display import ComparisonDisplay, LearningCurveDisplay
    from mixnmatch.selection.learning import CurvePoint, LearningCurve, learning_curve
    from mixnmatch.selection.recommendation import Recommendation, recommend
    from mixnmatch.selection.results import Comparison, MethodResult
    from mixnmatch.selection.verdict import Verdict, decide

_HOME_OF = {
    "Comparison": "results",
    "ComparisonDisplay": "display",
    "CurvePoint": "learning",
    "LearningCurve": "learning",
    "LearningCurveDisplay": "display",
    "MethodResult": "results",
    "Recommendation": "recommendation",
    "Verdict": "verdict",
    "compare": "comparison",
    "decide": "verdict",
    "learning_curve": "learning",
    "recommend": "recommendation",
}

__all__ = [
    "Comparison",
    "ComparisonDisplay",
    "CurvePoint",
    "LearningCurve",
    "LearningCurveDisplay",
    "MethodResult",
    "Recommendation",
    "Verdict",
    "compare",
    "decide",
    "learning_curve",
    "recommend",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        msg = f"module 'mixnmatch.selection' has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(import_module(f"mixnmatch.selection.{home}"), name)
    globals()[name] = value
    return value
