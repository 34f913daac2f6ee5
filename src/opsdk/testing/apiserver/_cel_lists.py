"""CEL functions of lists: `isSorted`, `sum`, `min`, `max`, `indexOf`, `lastIndexOf`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any, Final

from opsdk.testing.apiserver._cel_function import Function, FunctionError, member

__all__ = ["LISTS"]

_COMPARABLE: Final = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_SUMMABLE: Final = ("int", "uint", "double", "duration")
_INT64: Final = (-(2**63), 2**63 - 1)


def _is_sorted(items: Sequence[Any]) -> bool:
    return all(not before > after for before, after in pairwise(items))


def _extreme(name: str, choose: Callable[[Sequence[Any]], object]) -> Callable[[Sequence[Any]], object]:
    def compute(items: Sequence[Any]) -> object:
        if not items:
            raise FunctionError(f"{name} called on empty list")
        return choose(items)

    return compute


def _sum(items: Sequence[Any]) -> object:
    if items and isinstance(items[0], timedelta):
        return sum(items, timedelta())
    total: int | float = sum(items)
    if not isinstance(total, float) and not _INT64[0] <= total <= _INT64[1]:
        raise FunctionError("integer overflow")
    return total


def _equal(one: object, other: object) -> bool:
    """CEL's equality: numbers by value, a truth value is no number."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def _index_of(items: Sequence[object], item: object) -> int:
    return next((at for at, each in enumerate(items) if _equal(each, item)), -1)


def _last_index_of(items: Sequence[object], item: object) -> int:
    return next((at for at in reversed(range(len(items))) if _equal(items[at], item)), -1)


LISTS: Final[tuple[Function, ...]] = (
    *(member("isSorted", "bool", _is_sorted, f"[{kind}]") for kind in _COMPARABLE),
    *(member("min", kind, _extreme("min", min), f"[{kind}]") for kind in _COMPARABLE),
    *(member("max", kind, _extreme("max", max), f"[{kind}]") for kind in _COMPARABLE),
    *(member("sum", kind, _sum, f"[{kind}]") for kind in _SUMMABLE),
    member("indexOf", "int", _index_of, "[A]", "A"),
    member("lastIndexOf", "int", _last_index_of, "[A]", "A"),
)
