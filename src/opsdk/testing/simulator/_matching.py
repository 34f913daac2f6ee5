"""What an expected object must look like, typed by its kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, final

from typing_extensions import TypeVar

__all__ = ["Matching", "matching"]

T_contra = TypeVar("T_contra", contravariant=True)
T = TypeVar("T")


@final
class Matching(Generic[T_contra]):
    """A predicate on objects of a kind, with a name for failure texts. Made by `matching`."""

    __slots__ = ("_predicate", "description")

    def __init__(self, predicate: Callable[[T_contra], bool], description: str) -> None:
        self._predicate = predicate
        self.description: str = description

    def holds(self, obj: T_contra, /) -> bool:
        """Whether the object is as wanted. What the predicate raises, propagates."""
        return bool(self._predicate(obj))

    def __repr__(self) -> str:
        return f"matching({self.description})"


def matching(predicate: Callable[[T], bool], description: str = "") -> Matching[T]:
    """Expect an object for which `predicate` is true.

    Args:
        predicate: Takes the object as it is after the write (for a delete: as it was before).
        description: What failure texts call it; by default the function's name and place.
    """
    return Matching(predicate, description or _describe(predicate))


def _describe(predicate: Callable[[T], bool]) -> str:
    name: object = getattr(predicate, "__qualname__", None)
    if not isinstance(name, str):
        return repr(predicate)
    readable = name.replace(".<locals>", "")
    code: object = getattr(predicate, "__code__", None)
    line: object = getattr(code, "co_firstlineno", None)
    file: object = getattr(code, "co_filename", None)
    if isinstance(line, int) and isinstance(file, str):
        return f"{readable}, {file.replace(chr(92), '/').rsplit('/', 1)[-1]}:{line}"
    return readable
