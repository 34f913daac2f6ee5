"""What this process has written and its watches have not shown yet, so that it reads what it wrote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, final

from typing_extensions import TypeVar

from opsdk.cache.changes import Cached
from opsdk.cache.store import Key
from opsdk.protocols import KubeObject

__all__ = ["Overlay"]

T = TypeVar("T", bound=KubeObject)


@final
@dataclass(frozen=True, slots=True)
class _Gone:
    """A deletion that was confirmed, and whose event has not come."""

    uid: str
    lists: int
    """How many lists had begun by then: one that begins later shows the deletion."""


@final
class Overlay(Generic[T]):
    """Lays writes over one informer's store until its watch has caught up.

    A write counts until everything up to its resourceVersion has been seen: not until its own event, which may never
    come. A deletion, which has no version, counts until the object's event, or a list that began after it. It hides
    the object with that uid only, so an object made anew under the name is seen.
    """

    def __init__(self) -> None:
        self._written: dict[Key, Cached[T]] = {}
        self._gone: dict[Key, _Gone] = {}
        self._seen = 0
        self._lists = 0
        self._complete_lists = 0

    def __len__(self) -> int:
        return len(self._written) + len(self._gone)

    def wrote(self, key: Key, written: Cached[T], /) -> None:
        """An object was written: this is what the server answered."""
        order = written.header.order
        standing = self._written.get(key)
        if order <= self._seen or (standing is not None and standing.header.order >= order):
            return
        gone = self._gone.get(key)
        if gone is not None and gone.uid == written.header.uid:
            return  # an answer that was overtaken by the deletion
        self._written[key] = written

    def deleted(self, key: Key, uid: str, /) -> None:
        """An object is gone for good: the server said so."""
        written = self._written.get(key)
        if written is not None and written.header.uid == uid:
            del self._written[key]
        self._gone[key] = _Gone(uid, self._lists)

    def over(self, key: Key, stored: Cached[T] | None, /) -> Cached[T] | None:
        """What a read of `key` should see, given what the store has."""
        if not self._written and not self._gone:
            return stored
        written = self._written.get(key)
        if written is not None and (stored is None or stored.header.order < written.header.order):
            return written
        gone = self._gone.get(key)
        return None if stored is not None and gone is not None and gone.uid == stored.header.uid else stored

    def keys(self) -> list[Key]:
        """The keys that may read differently from the store."""
        return [*self._written, *self._gone]

    # What the informer sees.

    def caught_up(self, order: int, /) -> None:
        """Everything up to this version has been seen."""
        if order <= self._seen:
            return
        self._seen = order
        if self._written:
            self._written = {key: cached for key, cached in self._written.items() if cached.header.order > order}

    def saw_deletion(self, key: Key, uid: str, /) -> None:
        """The event of a deletion came."""
        gone = self._gone.get(key)
        if gone is not None and gone.uid == uid:
            del self._gone[key]

    def list_started(self) -> None:
        """A list begins."""
        self._lists += 1

    def list_ended(self, order: int, /) -> None:
        """It is complete."""
        self.caught_up(order)
        self._gone = {key: gone for key, gone in self._gone.items() if gone.lists >= self._lists}
