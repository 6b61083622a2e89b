"""After deployment: is a map still calibrated, how good are its predictions, and have the scores changed?

Names are imported when they are first used: applying a map and watching it needs no SciPy.
"""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
