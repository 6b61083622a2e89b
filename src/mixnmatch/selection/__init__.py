"""Selection: which method to use, how methods compare on one's own data, and whether more data would help.

Names are imported when they are first used.
"""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
