"""What this process has written and its watches have not shown yet, so that it reads what it wrote."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Final, Generic, final

import anyio
import msgspec
from typing_extensions import TypeVar

from opsdk.cache.changes import Cached
from opsdk.cache.store import Key
from opsdk.protocols import KubeObject

__all__ = ["Overlay"]

T = TypeVar("T", bound=KubeObject)

_EVENTS_ARE_NO_LATER_SECONDS: Final = 300.0
_DELETIONS_REMEMBERED: Final = 1024
"""Events that may overtake the answer to the request that caused them: as many as requests can be under way."""


@final
class _Written(msgspec.Struct, Generic[T], frozen=True):
    """What the server answered to a write."""

    cached: Cached[T]
    lists: int
    """How many lists had begun by then: one that begins later shows the write, or what came after it."""


@final
class _Floor(msgspec.Struct, frozen=True):
    """A write that a deletion followed."""

    order: int
    lists: int


@final
class _Gone(msgspec.Struct, frozen=True):
    """A deletion that was confirmed, and whose event has not come."""

    key: Key
    at: float
    lists: int
    """How many lists had begun by then: one that begins later shows the deletion."""


@final
class Overlay(Generic[T]):
    """Lays writes over one informer's store until its watch has caught up.

    A write counts until everything up to its resourceVersion has been seen, or a list that began after it: not until
    its own event, which may never come. A deletion, which has no version, counts until the object's event, or such a
    list. It hides objects by uid, so an object made anew under the name is seen. The answer to a request may come after
    its event.

    Not promised: which of several requests about one object wins that this process has under way at the same time; nor
    that, after this process deleted what it had never seen, the watch does not show for a moment an incarnation before
    that, if it had not seen that either. The answer to a deletion does not say when it was.

    Args:
        clock: Tells the time in seconds. A deletion of which no event came, because the object had come and gone
            between two lists, is forgotten when the watch has been alive for five minutes since.
    """

    def __init__(self, clock: Callable[[], float] = anyio.current_time) -> None:
        self._clock = clock
        self._written: dict[Key, _Written[T]] = {}
        self._gone: dict[str, _Gone] = {}  # by uid: several incarnations of a name may be on their way
        self._floors: dict[Key, _Floor] = {}  # what is older than a write that was deleted is older than the deletion
        self._seen_deletions: OrderedDict[str, None] = OrderedDict()
        self._seen = 0
        self._lists = 0

    def __len__(self) -> int:
        return len(self._written) + len(self._gone) + len(self._floors)

    def wrote(self, key: Key, written: Cached[T], /) -> None:
        """An object was written: this is what the server answered."""
        order = written.header.order
        standing = self._written.get(key)
        if order <= self._seen or (standing is not None and standing.cached.header.order >= order):
            return
        if written.header.uid in self._gone:
            return  # an answer that was overtaken by the deletion
        self._written[key] = _Written(written, self._lists)

    def deleted(self, key: Key, uid: str, /, *, before: Collection[str] = ()) -> None:
        """An object is gone for good: the server said so.

        Args:
            key: Its key.
            uid: Its uid.
            before: The uids under which the key was known when the deletion was sent. Where they are others, they are
                of earlier incarnations, which are gone as well.
        """
        gone = {uid, *before}
        written = self._written.get(key)
        if written is not None and written.cached.header.uid in gone:
            del self._written[key]
            self._floors[key] = _Floor(written.cached.header.order, self._lists)
        for each in gone:
            if each not in self._seen_deletions:
                self._gone[each] = _Gone(key, self._clock(), self._lists)

    def over(self, key: Key, stored: Cached[T] | None, /) -> Cached[T] | None:
        """What a read of `key` should see, given what the store has."""
        if not self._written and not self._gone and not self._floors:
            return stored
        written = self._written.get(key)
        if written is not None and (stored is None or stored.header.order < written.cached.header.order):
            return written.cached
        if stored is None or stored.header.uid in self._gone:
            return None
        floor = self._floors.get(key)
        return None if floor is not None and stored.header.order < floor.order else stored

    def keys(self) -> list[Key]:
        """The keys that may read differently from the store."""
        return [*self._written, *self._floors, *(gone.key for gone in self._gone.values())]

    # What the informer sees.

    def caught_up(self, order: int, /) -> None:
        """Everything up to this version has been seen."""
        if self._gone:
            late = self._clock() - _EVENTS_ARE_NO_LATER_SECONDS
            self._gone = {uid: gone for uid, gone in self._gone.items() if gone.at > late}
        if order <= self._seen:
            return
        self._seen = order
        if self._written:
            self._written = {k: written for k, written in self._written.items() if written.cached.header.order > order}
        if self._floors:
            self._floors = {key: floor for key, floor in self._floors.items() if floor.order > order}

    def saw_deletion(self, uid: str, /) -> None:
        """The event of a deletion came, or a list showed that an object is gone."""
        self._gone.pop(uid, None)
        self._seen_deletions[uid] = None
        self._seen_deletions.move_to_end(uid)
        if len(self._seen_deletions) > _DELETIONS_REMEMBERED:
            self._seen_deletions.popitem(last=False)

    def list_started(self) -> None:
        """A list begins."""
        self._lists += 1

    def list_ended(self, order: int, /) -> None:
        """It is complete."""
        self.caught_up(order)
        self._seen = order  # even if that is less than before: a server restored from a backup counts from there
        self._written = {key: written for key, written in self._written.items() if written.lists >= self._lists}
        self._floors = {key: floor for key, floor in self._floors.items() if floor.lists >= self._lists}
        self._gone = {uid: gone for uid, gone in self._gone.items() if gone.lists >= self._lists}
