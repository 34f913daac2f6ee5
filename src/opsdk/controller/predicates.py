"""Which changes are worth a reconcile.

Combine with `&`, `|` and `~`: `generation_changed() | labels_changed()`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, final

from typing_extensions import TypeVar

from opsdk.cache import Cached, Change, ObjectAdded, ObjectDeleted, ObjectModified
from opsdk.protocols import KubeObject

__all__ = ["Predicate", "annotations_changed", "changed", "generation_changed", "labels_changed", "resource_changed"]

T = TypeVar("T", bound=KubeObject)
T_contra = TypeVar("T_contra", bound=KubeObject, contravariant=True)


@final
class Predicate(Generic[T_contra]):
    """A question about a change; only changes for which the answer is yes cause a reconcile.

    Args:
        test: The question. Called on the loop for each change: must be quick. `Cached.decode` costs the most.
        name: For people.
    """

    def __init__(self, test: Callable[[Change[T_contra]], bool], name: str = "custom") -> None:
        self._test = test
        self._name = name

    def __call__(self, change: Change[T_contra], /) -> bool:
        """Whether the change is worth a reconcile."""
        return self._test(change)

    def __and__(self, other: Predicate[T_contra], /) -> Predicate[T_contra]:
        """Both have to say yes."""
        return Predicate[T_contra](lambda change: self(change) and other(change), f"({self._name} & {other._name})")

    def __or__(self, other: Predicate[T_contra], /) -> Predicate[T_contra]:
        """One has to say yes."""
        return Predicate[T_contra](lambda change: self(change) or other(change), f"({self._name} | {other._name})")

    def __invert__(self) -> Predicate[T_contra]:
        """The contrary. Of a question about modifications: adds and deletions, to which it says yes, are left out."""
        return Predicate[T_contra](lambda change: not self(change), f"~{self._name}")

    def __repr__(self) -> str:
        return f"<Predicate {self._name}>"


def changed(test: Callable[[Cached[T], Cached[T]], bool], name: str = "changed") -> Predicate[T]:
    """Yes to objects that come and go, and to modifications for which `test(old, new)` says yes."""

    def ask(change: Change[T]) -> bool:
        match change:
            case ObjectModified(old=old, new=new):
                return test(old, new)
            case ObjectAdded() | ObjectDeleted():
                return True

    return Predicate(ask, name)


def generation_changed() -> Predicate[KubeObject]:
    """The spec changed, or deletion was asked for; objects that come and go pass. Ignores writes to status."""
    return changed(
        lambda old, new: old.header.generation != new.header.generation or old.header.deleting != new.header.deleting,
        "generation_changed",
    )


def labels_changed() -> Predicate[KubeObject]:
    """A label changed; objects that come and go pass."""
    return changed(lambda old, new: old.header.labels != new.header.labels, "labels_changed")


def annotations_changed() -> Predicate[KubeObject]:
    """An annotation changed; objects that come and go pass."""
    return changed(lambda old, new: old.annotations() != new.annotations(), "annotations_changed")


def resource_changed() -> Predicate[KubeObject]:
    """Anything changed: no to a modification that only repeats a version."""
    return changed(lambda old, new: old.header.resource_version != new.header.resource_version, "resource_changed")
