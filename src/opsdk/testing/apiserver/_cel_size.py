"""Sizes of values that are known within limits; nothing is larger than what 64 bits hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

__all__ = ["ENDLESS", "ONE", "UNKNOWN", "Size", "capped", "scaled"]

ENDLESS: Final = 2**64 - 1


def capped(value: int) -> int:
    """The value, or the largest there is."""
    return min(value, ENDLESS)


def scaled(value: int, factor: float) -> int:
    """The value times a factor, rounded up."""
    return capped(math.ceil(value * factor)) if value < ENDLESS else ENDLESS


@final
@dataclass(frozen=True, slots=True)
class Size:
    """How many characters, items or entries a value can have.

    Args:
        least: At least so many.
        most: At most so many.
    """

    least: int
    most: int

    @staticmethod
    def exactly(value: int) -> Size:
        """A size that is known."""
        return Size(value, value)

    @staticmethod
    def around(sizes: Sequence[Size]) -> Size:
        """The limits of all of them; nothing has no size."""
        return Size(min((each.least for each in sizes), default=0), max((each.most for each in sizes), default=0))

    def plus(self, other: Size) -> Size:
        """Both in a row."""
        return Size(capped(self.least + other.least), capped(self.most + other.most))

    def times(self, other: Size) -> Size:
        """The one as often as the other says."""
        return Size(capped(self.least * other.least), capped(self.most * other.most))


ONE: Final = Size(1, 1)
UNKNOWN: Final = Size(0, ENDLESS)
