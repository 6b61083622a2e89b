"""Public names; ``__init__.py`` imports each from here when it is first used."""

from . import decisions as decisions
from . import evaluation as evaluation
from . import exceptions as exceptions
from . import maps as maps
from . import monitoring as monitoring
from . import scorers as scorers
from . import selection as selection
from ._engine.door import rows as rows
from ._engine.passes import engine as engine
from ._engine.rows import Rows as Rows
from ._version import __version__ as __version__
from .classifier import CalibratedClassifier as CalibratedClassifier
from .data import load_sample as load_sample
from .evaluation import ReliabilityDisplay as ReliabilityDisplay
from .evaluation import accuracy_preserved as accuracy_preserved
from .evaluation import calibration_error as calibration_error
from .evaluation import calibration_gain as calibration_gain
from .evaluation import evaluate as evaluate
from .maps.combine import OneVsAll as OneVsAll
from .maps.combine import Pooled as Pooled
from .maps.composition import Composition as Composition
from .maps.ensemble import Ensemble as Ensemble
from .maps.ensemble_temperature import EnsembleTemperatureScaling as EnsembleTemperatureScaling
from .maps.isotonic import Isotonic as Isotonic
from .maps.registry import calibrator as calibrator
from .maps.registry import calibrators as calibrators
from .maps.temperature import TemperatureScaling as TemperatureScaling
from .monitoring import Monitor as Monitor
from .persistence import load as load
from .selection import compare as compare
from .selection import recommend as recommend
from .selection.auto import Auto as Auto

__all__ = [
    "Auto",
    "CalibratedClassifier",
    "Composition",
    "Ensemble",
    "EnsembleTemperatureScaling",
    "Isotonic",
    "Monitor",
    "OneVsAll",
    "Pooled",
    "ReliabilityDisplay",
    "Rows",
    "TemperatureScaling",
    "__version__",
    "accuracy_preserved",
    "calibration_error",
    "calibration_gain",
    "calibrator",
    "calibrators",
    "compare",
    "engine",
    "evaluate",
    "load",
    "load_sample",
    "recommend",
    "rows",
]
