"""The part of its objects that one controller works on, where several processes divide the work."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final, Generic, Protocol, final

from typing_extensions import TypeVar

from opsdk.cache import Cached, Change, Informer, ObjectAdded, ObjectDeleted, ObjectModified
from opsdk.protocols import KubeObject
from opsdk.types import Request
from opsdk.workqueue import Priority, WorkQueue

__all__ = ["OwnShare", "Share", "Turn", "WorkDivision"]

T = TypeVar("T", bound=KubeObject)

_GONE_REMEMBERED: Final = 4096


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
        return self._division.turn(uid)

    def _handle(self, change: Change[T]) -> None:
        match change:
            case ObjectAdded(new=new):
                self._gone.pop(new.header.request, None)
                self.objects += self._division.holds(new.header.uid)
            case ObjectDeleted(old=old):
                request = old.header.request
                self._gone[request] = old.header.uid
                self._gone.move_to_end(request)
                if len(self._gone) > _GONE_REMEMBERED:
                    self._gone.popitem(last=False)
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
