"""Which keys go first."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Priority"]


class Priority(IntEnum):
    """How urgent a key is. Keys of a lower priority still get their turn."""

    LOW = 0
    """Nothing happened: the initial list, a resync."""
    HIGH = 1
    """Something happened to the object."""
