"""Properties that are worked out once and kept."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:

    class cached_property(functools.cached_property):
        """The property of Python 3.12 and later, without a lock.

        In Python 3.11 each property has one lock for all objects. Threads wait there for each other's work, and the
        child of a fork waits for ever if another thread held the lock at that moment.
        """

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self.attrname] = self.func(instance)
            return value


__all__ = ["cached_property"]
