"""Nested expressions that tests of several surfaces share."""

import mixnmatch as mm
from mixnmatch.maps import VectorScaling

NESTED = {
    "keep (ts >> irova)": lambda: mm.maps.KeepWinner(mm.TemperatureScaling() >> mm.OneVsAll(mm.Isotonic())),
    "(a >> b) >> c": lambda: (mm.TemperatureScaling() >> VectorScaling()) >> mm.Pooled(mm.Isotonic(strict=True)),
    "a >> (b >> c)": lambda: mm.TemperatureScaling() >> (VectorScaling() >> mm.Pooled(mm.Isotonic(strict=True))),
    "keep keep a >> b": lambda: mm.maps.KeepWinner(mm.maps.KeepWinner(VectorScaling()) >> mm.TemperatureScaling()),
    "pooled": lambda: mm.Pooled(mm.maps.BetaScaling()),
    "auto": lambda: mm.Auto(cv=3, accuracy_preserving=True),
    "auto >> a": lambda: mm.Auto(cv=3) >> mm.TemperatureScaling(),
}
NAMES = [line.name for line in mm.calibrators()]
ALL = NAMES + list(NESTED)


def expression(name):
    """The unfitted map of a short name or of a nested expression, for probabilities."""
    return NESTED[name]() if name in NESTED else mm.calibrator(name)
