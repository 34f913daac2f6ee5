"""Where a controller's keys come from: changes of the kind itself, of what it owns, of what it watches, and streams."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, Generic, Protocol, TypeAlias, final

import anyio
import anyio.lowlevel
import msgspec
from typing_extensions import TypeIs, TypeVar

from opsdk._backend import no_stray_cancellation
from opsdk.cache import Cached, Change, Header, Informer, ObjectAdded, ObjectDeleted, ObjectModified
from opsdk.controller._malformed import MalformedObjects
from opsdk.controller._self_trigger import SelfTriggerDetector
from opsdk.controller.predicates import Predicate
from opsdk.errors import DecodeError
from opsdk.models import ResourceInfo
from opsdk.ownership import OWNER_UID_LABEL
from opsdk.protocols import KeySink, KubeObject
from opsdk.types import Request
from opsdk.workqueue import Priority, WorkQueue

__all__ = ["KeyStream", "MapFunction", "MappedSource", "OwnedSource", "PrimarySource", "Source", "StreamSource"]

C = TypeVar("C", bound=KubeObject)
T = TypeVar("T", bound=KubeObject)

MapFunction: TypeAlias = Callable[[C], "Iterable[Request] | Awaitable[Iterable[Request]]"]
"""Which objects to reconcile when this one has changed. Sync or async."""

KeyStream: TypeAlias = AsyncIterable[Request] | Callable[[KeySink[Request]], Awaitable[None]]
"""Keys as they come: an async iterable of them, or an async function that puts them where it is told."""

logger = logging.getLogger(__name__)

_CLOSING_SECONDS: Final = 5.0
_MOST_SIDES: Final = 16
"""How long a stream may take to close when the controller is cancelled."""


class Syncing(Protocol):
    """Something that is complete at some time; an informer."""

    async def wait_synced(self) -> None:
        """Wait until it is."""
        ...


class Source(Protocol):
    """One origin of keys."""

    @property
    def informers(self) -> Sequence[Syncing]:
        """What has to be synced before the first reconcile."""
        ...

    async def run(self, queue: WorkQueue[Request], /) -> None:
        """Feed the queue until cancelled, or until there is nothing more to come."""
        ...


def _sides(change: Change[T]) -> tuple[Cached[T], ...]:
    match change:
        case ObjectAdded(new=new):
            return (new,)
        case ObjectModified(old=old, new=new):
            return (old, new)
        case ObjectDeleted(old=old):
            return (old,)


def _wanted(predicates: Sequence[Predicate[T]], change: Change[T], controller: str) -> bool:
    """Whether all say yes. One that raises is logged and says yes: one reconcile too many is better than none."""
    for predicate in predicates:
        try:
            if not predicate(change):
                return False
        except Exception:
            request = _sides(change)[-1].header.request
            logger.exception(
                "controller %s: %r failed for %s, which is reconciled all the same", controller, predicate, request
            )
    return True


def _priority(change: Change[T]) -> Priority:
    return Priority.LOW if isinstance(change, ObjectAdded) and change.initial else Priority.HIGH


async def _follow(informers: Sequence[Informer[T]], handler: Callable[[Change[T]], None]) -> None:
    """Have a handler be told until cancelled."""
    try:
        for informer in informers:
            informer.add_handler(handler)
        await anyio.sleep_forever()
    finally:
        for informer in informers:
            informer.remove_handler(handler)


@final
class PrimarySource(Generic[T]):
    """The objects that are reconciled."""

    def __init__(
        self,
        informers: Sequence[Informer[T]],
        predicates: Sequence[Predicate[T]],
        detector: SelfTriggerDetector[T],
        malformed: MalformedObjects,
        controller: str,
    ) -> None:
        self.informers = informers
        self._predicates = predicates
        self._detector = detector
        self._malformed = malformed
        self._controller = controller

    async def run(self, queue: WorkQueue[Request], /) -> None:
        """Feed the queue until cancelled."""

        def handle(change: Change[T]) -> None:
            request = (change.old if isinstance(change, ObjectDeleted) else change.new).header.request
            if isinstance(change, ObjectDeleted):
                self._detector.gone(request)
            if not _wanted(self._predicates, change, self._controller) and request not in self._malformed:
                return
            if isinstance(change, ObjectDeleted):
                self._malformed.discard(request)
            elif isinstance(change, ObjectModified):
                self._detector.changed(request, change.old, change.new)
            queue.add(request, priority=_priority(change))

        await _follow(self.informers, handle)


@final
class OwnedSource(Generic[C, T]):
    """Children: their owner is reconciled. Found by the controller reference, and by our label of the owner's uid."""

    def __init__(
        self,
        informers: Sequence[Informer[C]],
        predicates: Sequence[Predicate[C]],
        owner: ResourceInfo,
        owners: Sequence[Informer[T]],
        controller: str,
    ) -> None:
        self.informers = informers
        self._predicates = predicates
        self._owner = owner
        self._owners = owners
        self._controller = controller

    async def run(self, queue: WorkQueue[Request], /) -> None:
        """Feed the queue until cancelled."""

        def handle(change: Change[C]) -> None:
            if not _wanted(self._predicates, change, self._controller):
                return
            priority = _priority(change)
            for request in {owner for side in _sides(change) for owner in self._owners_of(side.header)}:
                queue.add(request, priority=priority)

        await _follow(self.informers, handle)

    def _owners_of(self, child: Header) -> Iterable[Request]:
        reference = child.controller
        if reference is not None and (reference.kind, reference.group) == (self._owner.kind, self._owner.group):
            yield Request(reference.name, child.namespace if self._owner.namespaced else None)
        uid = child.labels.get(OWNER_UID_LABEL)
        if uid and (reference is None or reference.uid != uid):
            for informer in self._owners:
                owner = informer.store.by_uid(uid)
                if owner is not None:
                    yield owner.header.request


@final
class _Unmapped(msgspec.Struct, Generic[C]):
    """What one object was since its map was last told of it: first what that was, last what it is."""

    sides: list[Cached[C]]
    priority: Priority


@final
class MappedSource(Generic[C]):
    """Objects of another kind, and a function that says which of ours they concern.

    The function is called in a task of its own, one object at a time, in the order of their first change. What it
    raises is logged, with the object; the others are not held up. While it is busy, changes of one object become one
    turn, with what the object was, what it has been since, and what it is. What it has been matters: a reconcile for
    another reason may have seen it so. The last 14 of that are kept, so that what waits is bounded by how many objects
    there are, however slow the function.
    """

    def __init__(
        self,
        informers: Sequence[Informer[C]],
        predicates: Sequence[Predicate[C]],
        function: MapFunction[C],
        controller: str,
    ) -> None:
        self.informers = informers
        self._predicates = predicates
        self._function = function
        self._controller = controller
        self._waiting: dict[Request, _Unmapped[C]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    async def run(self, queue: WorkQueue[Request], /) -> None:
        """Feed the queue until cancelled."""
        came = anyio.Event()

        def handle(change: Change[C]) -> None:
            if _wanted(self._predicates, change, self._controller):
                self._remember(change)
                came.set()

        try:
            for informer in self.informers:
                informer.add_handler(handle)
            while True:
                await came.wait()
                came = anyio.Event()
                while self._waiting:
                    request = next(iter(self._waiting))
                    await self._map(self._waiting.pop(request), queue)
                    await anyio.lowlevel.checkpoint()
        finally:
            for informer in self.informers:
                informer.remove_handler(handle)

    def _remember(self, change: Change[C]) -> None:
        sides, priority = _sides(change), _priority(change)
        request = sides[-1].header.request
        known = self._waiting.get(request)
        if known is None:
            self._waiting[request] = _Unmapped(list(sides), priority)
            return
        known.sides.append(sides[-1])
        known.priority = max(known.priority, priority)
        if len(known.sides) > _MOST_SIDES:
            del known.sides[1]

    async def _map(self, unmapped: _Unmapped[C], queue: WorkQueue[Request]) -> None:
        requests: dict[Request, None] = {}
        for side in unmapped.sides:
            try:
                with no_stray_cancellation("a map function"):
                    found = self._function(side.decode())
                    requests.update(dict.fromkeys(await found if _is_awaitable(found) else found))
            except DecodeError as error:
                logger.warning("controller %s: an object cannot be mapped: %s", self._controller, error)
            except Exception:
                logger.exception("controller %s: the map function failed for %s", self._controller, side.header.request)
        for request in requests:
            queue.add(request, priority=unmapped.priority)


def _is_awaitable(
    found: Iterable[Request] | Awaitable[Iterable[Request]],
) -> TypeIs[Awaitable[Iterable[Request]]]:
    return inspect.isawaitable(found)


@final
class StreamSource:
    """Keys from outside the cluster."""

    def __init__(self, stream: KeyStream) -> None:
        self.informers: Sequence[Syncing] = ()
        self._stream = stream

    async def run(self, queue: WorkQueue[Request], /) -> None:
        """Feed the queue until cancelled, or until the stream ends."""
        stream = self._stream
        if callable(stream):
            await stream(queue)
            return
        keys = aiter(stream)
        close = getattr(keys, "aclose", None)
        try:
            async for request in keys:
                queue.add(request)
        finally:
            if close is not None:
                with anyio.move_on_after(_CLOSING_SECONDS, shield=True), suppress(Exception):
                    await close()
