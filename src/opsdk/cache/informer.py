"""One kind, kept in a store, with handlers that are told what changes."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Generic, final

import anyio
import msgspec
from typing_extensions import TypeVar

from opsdk._backend import current_loop
from opsdk.cache._streaming import StreamingRefusals
from opsdk.cache.changes import Cached, Change, Handler, ObjectAdded, ObjectDeleted
from opsdk.cache.header import order_of
from opsdk.cache.overlay import Overlay
from opsdk.cache.reflector import Reflector, ReflectorOptions, Verb
from opsdk.cache.selectors import Selector, selector_of
from opsdk.cache.store import MalformedHook, Store, key_of
from opsdk.client import ApiClient, RawEvent
from opsdk.errors import ApiError, ApiTimeoutError, ManagerError
from opsdk.models import ResourceInfo, is_metadata_only, resource_of
from opsdk.protocols import KubeObject
from opsdk.types import LabelSelector, Request

__all__ = ["Informer"]

T = TypeVar("T", bound=KubeObject)

_logger = logging.getLogger(__name__)


@final
class _Sink(msgspec.Struct, frozen=True, kw_only=True):
    """Lets a reflector at an informer's private side."""

    list_started: Callable[[], None]
    page: Callable[[Sequence[bytes]], None]
    initial: Callable[[RawEvent], None]
    list_ended: Callable[[str], None]
    event: Callable[[RawEvent], str]
    connected: Callable[[], None]
    bookmark: Callable[[str], None]
    failed: Callable[[Verb, ApiError], None]


@final
class Informer(Generic[T]):
    """Follows one kind, in one namespace or all, and keeps what it finds in a store.

    Guarantees: handlers are told of each object's changes in order, after the store has them. Once synced it stays
    synced: while the server cannot be read, the last known state is served, and `freshness` and `last_error` say so.

    Args:
        client: How to reach the server.
        kind: The class of the objects; `metadata_only(kind)` where metadata will do.
        namespace: None: all namespaces.
        labels: Only objects that match; None: all.
        options: How to talk to the server.
        malformed: Is told about objects that do not fit their model.
        refusals: What the server is known not to stream; shared by informers of one server.
    """

    def __init__(
        self,
        client: ApiClient,
        kind: type[T],
        *,
        namespace: str | None = None,
        labels: LabelSelector | None = None,
        options: ReflectorOptions | None = None,
        malformed: MalformedHook | None = None,
        refusals: StreamingRefusals | None = None,
    ) -> None:
        self._kind = kind
        self._resource = resource_of(kind)
        self._namespace = namespace
        self._selector = selector_of(labels)
        self._store = Store(kind, keep_manager=client.field_manager, malformed=malformed)
        self._overlay = Overlay[T]()
        self._reflector = Reflector(
            client.raw,
            self._resource,
            _Sink(
                list_started=self._list_started,
                page=self._page,
                initial=self._initial,
                list_ended=self._list_ended,
                event=self._event,
                connected=self._connected,
                bookmark=self._alive,
                failed=self._failed,
            ),
            namespace=namespace,
            labels=str(self._selector) or None,
            metadata_only=self.metadata_only,
            options=options,
            refusals=refusals,
        )
        self._handlers: list[Handler[T]] = []
        self._running = False
        self._synced = False
        self._sync_event: anyio.Event | None = None
        self._heard_at: float | None = None
        self._clock: Callable[[], float] = anyio.current_time  # replaced by what it asks: each event asks
        self._error: ApiError | None = None
        self._failing: Verb = "list"

    def __repr__(self) -> str:
        return f"<Informer of {self.describe()}>"

    def describe(self) -> str:
        """What it follows, for people: kind, namespace, selector."""
        where = "" if self._namespace is None else f" in {self._namespace}"
        which = f" with {self._selector}" if self._selector else ""
        what = f"metadata of {self._resource}" if self.metadata_only else str(self._resource)
        return f"{what}{where}{which}"

    @property
    def kind(self) -> type[T]:
        """The class of the objects."""
        return self._kind

    @property
    def resource(self) -> ResourceInfo:
        """The kind."""
        return self._resource

    @property
    def metadata_only(self) -> bool:
        """Whether its objects are metadata and nothing else: its class came from `metadata_only`."""
        return is_metadata_only(self._kind)

    @property
    def namespace(self) -> str | None:
        """The namespace that is followed; None: all."""
        return self._namespace

    @property
    def selector(self) -> Selector:
        """Which objects are followed; empty: all."""
        return self._selector

    @property
    def store(self) -> Store[T]:
        """What the watch has shown. Without what this process wrote since; `read` and `select` have that."""
        return self._store

    @property
    def synced(self) -> bool:
        """Whether the first list is complete."""
        return self._synced

    @property
    def last_error(self) -> ApiError | None:
        """Why the server cannot be read now; None when it can."""
        return self._error

    @property
    def trouble(self) -> str:
        """What cannot be done now, and why, for people: `cannot list: …`; empty when all is well."""
        return "" if self._error is None else f"cannot {self._failing}: {self._error}"

    @property
    def freshness(self) -> timedelta:
        """How long ago the last page of a list, event or bookmark came.

        Before any: how long that has been tried. Call it on the loop.
        """
        if self._heard_at is None:
            return timedelta(0)
        return timedelta(seconds=max(anyio.current_time() - self._heard_at, 0.0))

    def add_handler(self, handler: Handler[T], /) -> None:
        """Tell `handler` what changes from now on, and first, as initial, of what is there already, in random order.

        Random, so that an operator which is interrupted again and again gets to every object in the end, and not only
        to those that a list has first.
        """
        self._handlers.append(handler)
        present = list(self._store.select())
        random.shuffle(present)
        for cached in present:
            self._tell(handler, ObjectAdded(new=cached, initial=True))

    def remove_handler(self, handler: Handler[T], /) -> None:
        """Tell `handler` nothing more. Harmless when it is not told anything."""
        if handler in self._handlers:
            self._handlers.remove(handler)

    def covers(self, namespace: str | None, /) -> bool:
        """Whether all objects of the namespace (None: of all namespaces) are in the store."""
        return not self._selector and (self._namespace is None or self._namespace == namespace)

    async def wait_synced(self) -> None:
        """Wait until the first list is complete. Needs the informer to run, in this task's loop."""
        if self._synced:
            return
        if self._sync_event is None:
            self._sync_event = anyio.Event()
        await self._sync_event.wait()

    async def run(self) -> None:
        """Follow the kind until cancelled. Afterwards it may run again, and goes on from what it has.

        Raises:
            ManagerError: It runs already.
        """
        if self._running:
            raise ManagerError(f"the informer of {self.describe()} runs already")
        self._running = True
        try:
            self._clock = current_loop().time
            self._heard_at = self._clock()
            await self._reflector.run()
        finally:
            self._running = False

    # Reading, with what this process wrote.

    def read(self, request: Request, /) -> Cached[T] | None:
        """The object, as last seen or as last written by this process, whichever is newer; None: there is none."""
        found = self._store.cached(request)
        if len(self._overlay):
            found = self._overlay.over(key_of(request), found)
        return found if not self._selector.requirements else self._in_reach(found)

    def select(
        self, *, namespace: str | None = None, labels: LabelSelector | Selector | None = None
    ) -> list[Cached[T]]:
        """The objects of a namespace, or of all, whose labels match, with what this process wrote; in no order.

        Args:
            namespace: None: all namespaces.
            labels: A text such as `tier=web`, a mapping, or what `selector_of` has made of one; None: all objects.

        Raises:
            ObjectError: `labels` is no selector.
        """
        selector = selector_of(labels)
        if not len(self._overlay):
            return list(self._store.select(namespace=namespace, labels=selector))
        touched = set(self._overlay.keys())
        found = [
            cached
            for cached in self._store.select(namespace=namespace, labels=selector)
            if (cached.header.namespace or "", cached.header.name) not in touched
        ]
        for place, name in touched:
            if namespace is not None and place != namespace:
                continue
            cached = self.read(Request(name, place or None))
            if cached is not None and selector.matches(cached.header.labels):
                found.append(cached)
        return found

    def wrote(self, raw: bytes, /) -> None:
        """This process wrote an object, and the server answered with this."""
        written = self._store.read(raw)
        if written is not None and self._reaches(written):
            self._overlay.wrote((written.header.namespace or "", written.header.name), written)

    def uids(self, request: Request, /) -> frozenset[str]:
        """The uids under which an object of that name is known: what was seen, and what this process wrote."""
        found = (self._store.cached(request), self.read(request))
        return frozenset(cached.header.uid for cached in found if cached is not None)

    def deleted(self, request: Request, uid: str, /, *, before: frozenset[str] = frozenset()) -> None:
        """This process deleted an object, and the server says that it is gone.

        Args:
            request: The object.
            uid: The uid that the server deleted.
            before: What `uids` said before the deletion was sent.
        """
        self._overlay.deleted(key_of(request), uid, before=before)

    def _reaches(self, cached: Cached[T]) -> bool:
        return self._namespace is None or cached.header.namespace == self._namespace

    def _in_reach(self, cached: Cached[T] | None) -> Cached[T] | None:
        return cached if cached is not None and self._selector.matches(cached.header.labels) else None

    # What the reflector finds.

    def _tell_all(self, changes: Sequence[Change[T]]) -> None:
        for change in changes:
            if isinstance(change, ObjectDeleted):
                self._overlay.saw_deletion(change.old.header.uid)
            for handler in tuple(self._handlers):
                self._tell(handler, change)

    def _tell(self, handler: Handler[T], change: Change[T]) -> None:
        try:
            handler(change)
        except Exception:
            _logger.exception("%s: a handler failed", self.describe())

    def _list_started(self) -> None:
        self._store.list_started()
        self._overlay.list_started()

    def _page(self, items: Sequence[bytes]) -> None:
        self._alive("")
        for item in items:
            cached = self._store.read(item)
            if cached is not None:
                self._list_shows(cached)

    def _initial(self, event: RawEvent) -> None:
        self._alive("")
        cached = self._store.read(event.object)
        if cached is None:
            return
        if event.type == "DELETED":  # while the list was on its way
            self._overlay.saw_deletion(cached.header.uid)
            self._tell_all(self._store.discard(cached))
        else:
            self._list_shows(cached)

    def _list_shows(self, cached: Cached[T]) -> None:
        self._tell_all(self._store.put(cached, initial=not self._synced, listed=True))

    def _list_ended(self, resource_version: str) -> None:
        self._overlay.list_ended(order_of(resource_version))
        self._tell_all(self._store.discard_unlisted())
        self._alive("")
        if not self._synced:
            self._synced = True
            _logger.debug("%s: synced, %d objects", self.describe(), len(self._store))
            if self._sync_event is not None:
                self._sync_event.set()

    def _event(self, event: RawEvent) -> str:
        cached = self._store.read(event.object)
        if cached is None:
            self._alive("")
            return ""
        header = cached.header
        if event.type == "DELETED":
            changes = self._store.discard(cached)
            self._overlay.saw_deletion(header.uid)
        else:
            changes = self._store.put(cached)
        self._alive(header.resource_version)
        self._tell_all(changes)
        return header.resource_version

    def _connected(self) -> None:
        # A peer that was silent for too long is not believed before it says something.
        if not isinstance(self._error, ApiTimeoutError):
            self._recovered()

    def _alive(self, resource_version: str) -> None:
        self._heard_at = self._clock()
        if self._error is not None:
            self._recovered()
        if resource_version:
            self._overlay.caught_up(order_of(resource_version))

    def _recovered(self) -> None:
        if self._error is not None:
            _logger.info("%s: the server can be read again", self.describe())
            self._error = None

    def _failed(self, verb: Verb, error: ApiError) -> None:
        self._error, self._failing = error, verb
        _logger.warning("%s: %s", self.describe(), self.trouble)
