"""Calibration errors, scores, intervals, tests, reliability curves, and accumulators for data that comes in parts.

Names are imported when they are first used.
"""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
