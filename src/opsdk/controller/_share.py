"""The part of its objects that one controller works on, where several processes divide the work."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Final, Generic, Protocol, final

from typing_extensions import TypeVar

from opsdk.cache import Cached, Change, Informer, ObjectAdded, ObjectDeleted, ObjectModified
from opsdk.protocols import KubeObject
from opsdk.types import Request
from opsdk.workqueue import Priority, WorkQueue

__all__ = ["OwnShare", "Share", "Turn", "WorkDivision"]

T = TypeVar("T", bound=KubeObject)

_REMEMBERED: Final = 4096
_SUSPENDED: Final = timedelta(seconds=1)


class Turn(Protocol):
    """The right to work on one object, for the length of a `with` block, which is cancelled when the right ends."""

    def taken(self) -> AbstractContextManager[None]:
        """Take it."""
        ...


class WorkDivision(Protocol):
    """Says which objects are this process's."""

    def holds(self, uid: str, /) -> bool:
        """Whether the object with this uid is this process's now."""
        ...

    def turn(self, uid: str, /) -> Turn | None:
        """The right to work on an object; None: it is not this process's."""
        ...

    def subscribe(self, changed: Callable[[Callable[[str], bool]], None], /) -> None:
        """Have `changed` be called, on the loop, after each change, with what `holds` said before it."""
        ...


class OwnShare(Protocol):
    """What a controller needs to know of its share."""

    @property
    def objects(self) -> int:
        """How many objects are ours. May be read from any thread."""
        ...

    def turn(self, request: Request, cached: Cached[KubeObject] | None) -> Turn | None:
        """The right to work on what `request` names; None: it is another process's."""
        ...


@final
class Share(Generic[T]):
    """Follows a division: counts the objects that are ours, and queues those that have become ours.

    A key that is turned away is not lost: where it is ours by the division, and only the right to work is not in force,
    it comes back by itself; else with its object, when that has become ours. Of keys that no object stands behind, the
    last 4,096 are remembered for that.

    Args:
        division: Says which are.
        informers: All objects of the controller's kind.
        queue: The controller's.
    """

    def __init__(self, division: WorkDivision, informers: Sequence[Informer[T]], queue: WorkQueue[Request]) -> None:
        self._division = division
        self._informers = informers
        self._queue = queue
        self._gone: OrderedDict[Request, str] = OrderedDict()
        self._turned_away: OrderedDict[Request, str] = OrderedDict()
        self.objects: int = 0
        """How many objects are ours. Read from any thread."""
        for informer in informers:
            informer.add_handler(self._handle)
        division.subscribe(self._changed)

    def turn(self, request: Request, cached: Cached[KubeObject] | None) -> Turn | None:
        """The right to work on what `request` names; None: it is another process's.

        An object that is gone belongs to whom it belonged to. One that never was, to whoever its name falls to.
        """
        uid = self._gone.get(request, str(request)) if cached is None else cached.header.uid
        turn = self._division.turn(uid)
        if turn is None and self._division.holds(uid):
            # Whether the right comes back, by a renewal that was under way, or is lost: nobody tells us of the former.
            self._queue.add_after(request, _SUSPENDED)
        elif turn is None and cached is None:
            _remember(self._turned_away, request, uid)
        return turn

    def _handle(self, change: Change[T]) -> None:
        match change:
            case ObjectAdded(new=new):
                self._gone.pop(new.header.request, None)
                self._turned_away.pop(new.header.request, None)
                self.objects += self._division.holds(new.header.uid)
            case ObjectDeleted(old=old):
                _remember(self._gone, old.header.request, old.header.uid)
                self.objects -= self._division.holds(old.header.uid)
            case ObjectModified():
                pass

    def _changed(self, held: Callable[[str], bool]) -> None:
        ours = 0
        for informer in self._informers:
            for cached in informer.store.select():
                header = cached.header
                if self._division.holds(header.uid):
                    ours += 1
                    if not held(header.uid):
                        self._queue.add(header.request, priority=Priority.LOW)
        self.objects = ours
        for request, uid in list(self._turned_away.items()):
            if self._division.holds(uid):
                del self._turned_away[request]
                self._queue.add(request, priority=Priority.LOW)


def _remember(known: OrderedDict[Request, str], request: Request, uid: str) -> None:
    known[request] = uid
    known.move_to_end(request)
    if len(known) > _REMEMBERED:
        known.popitem(last=False)
