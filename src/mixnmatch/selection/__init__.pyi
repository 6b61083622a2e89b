"""Public names; ``__init__.py`` imports each from here when it is first used."""

from .auto import Auto as Auto
from .comparison import compare as compare
from .display import ComparisonDisplay as ComparisonDisplay
from .display import LearningCurveDisplay as LearningCurveDisplay
from .learning import CurvePoint as CurvePoint
from .learning import LearningCurve as LearningCurve
from .learning import learning_curve as learning_curve
from .recommendation import Recommendation as Recommendation
from .recommendation import recommend as recommend
from .results import Comparison as Comparison
from .results import MethodResult as MethodResult
from .shift import estimate_priors as estimate_priors
from .verdict import Verdict as Verdict
from .verdict import decide as decide

__all__ = [
    "Auto",
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
    "estimate_priors",
    "learning_curve",
    "recommend",
]
