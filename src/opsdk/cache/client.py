"""A client that reads watched kinds from their informers, and sees its own writes."""

from __future__ import annotations

import builtins
import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, Generic, final

from typing_extensions import TypeVar

from opsdk.cache._own_writes import LOCAL_FIELDS, OwnWrites, with_fields
from opsdk.cache.changes import Cached
from opsdk.cache.informer import Informer
from opsdk.cache.informers import Informers
from opsdk.cache.selectors import Selector, selector_of
from opsdk.client import ApiClient, ApiStatusWriter
from opsdk.errors import ApiError, CacheNotSyncedError, DecodeError, NotFoundError, ObjectError
from opsdk.models import resource_of
from opsdk.protocols import Client, KubeObject, ObjectList, Snapshot, StatusWriter, Undecodable, WatchEvent
from opsdk.types import LabelSelector, Patch, Preconditions, PropagationPolicy, Request

__all__ = ["CachedClient", "CachedStatusWriter"]

T = TypeVar("T", bound=KubeObject)

_logger = logging.getLogger(__name__)


@final
class CachedStatusWriter:
    """Writes the status subresource, seen by later reads; reached as `client.status`."""

    def __init__(self, cache: OwnWrites) -> None:
        self._cache = cache
        self._status: ApiStatusWriter = cache.client.status

    async def replace(
        self, obj: T, /, *, namespace: str | None = None, dry_run: bool | None = None, field_manager: str | None = None
    ) -> T:
        """Like `CachedClient.replace`, for status."""
        self._cache.recall(obj)
        stored = await self._status.replace(obj, namespace=namespace, dry_run=dry_run, field_manager=field_manager)
        return self._cache.wrote(stored, dry_run)

    async def patch(
        self,
        kind: type[T],
        name: str,
        patch: Patch,
        *,
        namespace: str | None = None,
        dry_run: bool | None = None,
        field_manager: str | None = None,
    ) -> T:
        """Like `CachedClient.patch`, for status."""
        stored = await self._status.patch(
            kind, name, patch, namespace=namespace, dry_run=dry_run, field_manager=field_manager
        )
        return self._cache.wrote(stored, dry_run)

    async def patch_from(
        self, base: Snapshot[T], obj: T, /, *, dry_run: bool | None = None, field_manager: str | None = None
    ) -> T | None:
        """Like `CachedClient.patch_from`, for status."""
        self._cache.recall(obj)
        stored = await self._status.patch_from(base, obj, dry_run=dry_run, field_manager=field_manager)
        return None if stored is None else self._cache.wrote(stored, dry_run)

    async def apply(
        self,
        obj: T,
        /,
        *,
        namespace: str | None = None,
        force: bool = False,
        dry_run: bool | None = None,
        field_manager: str | None = None,
    ) -> T:
        """Like `CachedClient.apply`, for status."""
        stored = await self._status.apply(
            obj, namespace=namespace, force=force, dry_run=dry_run, field_manager=field_manager
        )
        return self._cache.wrote(stored, dry_run)


@final
class CachedClient:
    """Reads watched kinds from their informers and all others from the server; implements `opsdk.protocols.Client`.

    A kind is watched where an informer of its class has every object of the namespace that is read; a read of one that
    has not synced yet is a `CacheNotSyncedError`. What goes to the server all the same: field selectors other than on
    name and namespace, `watch`, and everything through `uncached`.

    Guarantees: a read sees what this client wrote before, deletions too, however far behind the watch is. Every object
    that is read is the reader's own.

    Not promised: that others' writes are seen at once. Objects that do not fit their model are left out of lists, and
    reported by the informers' hook.

    Args:
        client: Where everything else goes, and all writes.
        informers: What is watched.
    """

    def __init__(self, client: ApiClient, informers: Informers) -> None:
        self._client = client
        self._informers = informers
        self._cache = OwnWrites(client, informers)
        self._status = CachedStatusWriter(self._cache)

    @property
    def uncached(self) -> ApiClient:
        """The same, reading from the server always. What it writes is seen here when the watch shows it."""
        return self._client

    @property
    def informers(self) -> Informers:
        """What is watched."""
        return self._informers

    @property
    def status(self) -> StatusWriter:
        """The same for the status subresource."""
        return self._status

    # Reads

    async def get(self, kind: type[T], name: str, *, namespace: str | None = None) -> T:
        """Read one object.

        Raises:
            NotFoundError: There is none of that name.
            DecodeError: It does not fit its model.
            ObjectError: The kind is namespaced and no namespace was given, or the other way round.
            CacheNotSyncedError: The kind is watched, and its cache is not complete yet.
        """
        informers = self._synced(self._informers.covering(kind, namespace))
        if not informers:
            return await self._client.get(kind, name, namespace=namespace)
        informer = informers[0]
        found = self._find(informer, name, namespace)
        if found is None:
            resource = informer.resource
            raise NotFoundError(
                404,
                reason="NotFound",
                message=f'{resource.plural} "{name}" not found',
                kind=resource.plural,
                name=name,
                request=f"cached get of {resource} {Request(name, namespace)}",
            )
        return informer.store.decode(found)

    async def find(self, kind: type[T], name: str, *, namespace: str | None = None) -> T | None:
        """Read one object; None when there is none. Otherwise like `get`."""
        informers = self._synced(self._informers.covering(kind, namespace))
        if not informers:
            return await self._client.find(kind, name, namespace=namespace)
        informer = informers[0]
        found = self._find(informer, name, namespace)
        return None if found is None else informer.store.decode(found)

    async def list(
        self,
        kind: type[T],
        *,
        namespace: str | None = None,
        labels: LabelSelector | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> ObjectList[T]:
        """Read all objects that match, sorted by namespace and name; `namespace=None` means all namespaces.

        From a cache, objects that do not fit their model are left out, and the list's resourceVersion is empty.

        Raises:
            DecodeError: The kind is not watched, and an object does not fit its model.
            ObjectError: `labels` is no selector.
            CacheNotSyncedError: The kind is watched, and its cache is not complete yet.
        """
        selection = self._select(kind, namespace, labels, fields)
        if selection is None:
            return await self._client.list(kind, namespace=namespace, labels=labels, fields=fields)
        informers, found = selection
        return ObjectList([obj for obj in _decoded(informers, found) if not isinstance(obj, Undecodable)], "")

    def stream(
        self,
        kind: type[T],
        *,
        namespace: str | None = None,
        labels: LabelSelector | None = None,
        fields: Mapping[str, str] | None = None,
        page_size: int = 500,
    ) -> AsyncIterator[T | Undecodable]:
        """Like `list`, one object at a time. What does not decode is reported.

        Raises:
            ObjectError: `labels` is no selector.
            CacheNotSyncedError: The kind is watched, and its cache is not complete yet.
        """
        selection = self._select(kind, namespace, labels, fields)
        if selection is None:
            return self._client.stream(kind, namespace=namespace, labels=labels, fields=fields, page_size=page_size)
        informers, found = selection
        return _CachedStream(informers, found)

    def watch(
        self,
        kind: type[T],
        *,
        namespace: str | None = None,
        labels: LabelSelector | None = None,
        fields: Mapping[str, str] | None = None,
        resource_version: str | None = None,
        timeout: timedelta | None = None,
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent[T]]]:
        """One watch request of its own: see `ApiClient.watch`. Handlers of an informer cost no request."""
        return self._client.watch(
            kind, namespace=namespace, labels=labels, fields=fields, resource_version=resource_version, timeout=timeout
        )

    def _synced(self, informers: Sequence[Informer[T]]) -> Sequence[Informer[T]]:
        for informer in informers:
            if not informer.synced:
                raise CacheNotSyncedError(informer.resource.kind)
        return informers

    def _find(self, informer: Informer[T], name: str, namespace: str | None) -> Cached[T] | None:
        resource = informer.resource
        if resource.namespaced and namespace is None:
            raise ObjectError(f"{resource.kind} {name!r} is namespaced: say in which namespace")
        if not resource.namespaced and namespace is not None:
            raise ObjectError(f"{resource.kind} is cluster-scoped, so namespace {namespace!r} makes no sense here")
        return informer.read(Request(name, namespace))

    def _select(
        self, kind: type[T], namespace: str | None, labels: LabelSelector | None, fields: Mapping[str, str] | None
    ) -> tuple[Sequence[Informer[T]], builtins.list[Cached[T]]] | None:
        """Which informers answer a list, and with what; None: the server has to."""
        if fields and not LOCAL_FIELDS.issuperset(fields):
            return None
        selector = selector_of(labels)
        informers = self._informers.covering(kind, namespace)
        if not informers:
            informers = self._informers.selecting(kind, namespace, selector)
            selector = Selector()  # they have nothing else
        if not self._synced(informers):
            return None
        found = [
            cached for informer in informers for cached in informer.select(namespace=namespace, labels=selector or None)
        ]
        found = with_fields(found, fields or {})
        found.sort(key=_place)
        return informers, found

    # Writes

    async def create(
        self, obj: T, /, *, namespace: str | None = None, dry_run: bool | None = None, field_manager: str | None = None
    ) -> T:
        """See `ApiClient.create`; seen by the next read."""
        stored = await self._client.create(obj, namespace=namespace, dry_run=dry_run, field_manager=field_manager)
        return self._cache.wrote(stored, dry_run)

    async def replace(
        self, obj: T, /, *, namespace: str | None = None, dry_run: bool | None = None, field_manager: str | None = None
    ) -> T:
        """See `ApiClient.replace`; seen by the next read."""
        self._cache.recall(obj)
        stored = await self._client.replace(obj, namespace=namespace, dry_run=dry_run, field_manager=field_manager)
        return self._cache.wrote(stored, dry_run)

    async def patch(
        self,
        kind: type[T],
        name: str,
        patch: Patch,
        *,
        namespace: str | None = None,
        dry_run: bool | None = None,
        field_manager: str | None = None,
    ) -> T:
        """See `ApiClient.patch`; seen by the next read."""
        stored = await self._client.patch(
            kind, name, patch, namespace=namespace, dry_run=dry_run, field_manager=field_manager
        )
        return self._cache.wrote(stored, dry_run)

    async def patch_from(
        self, base: Snapshot[T], obj: T, /, *, dry_run: bool | None = None, field_manager: str | None = None
    ) -> T | None:
        """See `ApiClient.patch_from`; seen by the next read."""
        self._cache.recall(obj)
        stored = await self._client.patch_from(base, obj, dry_run=dry_run, field_manager=field_manager)
        return None if stored is None else self._cache.wrote(stored, dry_run)

    async def apply(
        self,
        obj: T,
        /,
        *,
        namespace: str | None = None,
        force: bool = False,
        dry_run: bool | None = None,
        field_manager: str | None = None,
    ) -> T:
        """See `ApiClient.apply`; seen by the next read."""
        stored = await self._client.apply(
            obj, namespace=namespace, force=force, dry_run=dry_run, field_manager=field_manager
        )
        return self._cache.wrote(stored, dry_run)

    async def delete(
        self,
        kind: type[T],
        name: str,
        *,
        namespace: str | None = None,
        preconditions: Preconditions | None = None,
        propagation: PropagationPolicy | None = None,
        grace_period: timedelta | None = None,
        dry_run: bool | None = None,
    ) -> None:
        """See `ApiClient.delete`; seen by the next read."""
        answered = self._cache.deleting(resource_of(kind), Request(name, namespace))
        answer = await self._client.delete_raw(
            kind,
            name,
            namespace=namespace,
            preconditions=preconditions,
            propagation=propagation,
            grace_period=grace_period,
            dry_run=dry_run,
        )
        if not self._cache.is_dry(dry_run):
            answered(answer)

    async def delete_collection(
        self,
        kind: type[T],
        *,
        namespace: str | None = None,
        labels: LabelSelector | None = None,
        fields: Mapping[str, str] | None = None,
        propagation: PropagationPolicy | None = None,
        dry_run: bool | None = None,
    ) -> None:
        """See `ApiClient.delete_collection`; seen by the next read, for which a watched kind costs a list.

        When `fields` are others than name and namespace, or that list fails, it is seen when the watch shows it.
        """
        resource = resource_of(kind)
        answered = None
        if not self._cache.is_dry(dry_run) and LOCAL_FIELDS.issuperset(fields or ()):
            answered = self._cache.deleting_all(resource, namespace, labels, fields or {})
        await self._client.delete_collection(
            kind, namespace=namespace, labels=labels, fields=fields, propagation=propagation, dry_run=dry_run
        )
        if answered is not None:
            try:
                await answered()
            except ApiError as error:
                _logger.debug("what is left of a deleted collection of %s is not known: %s", resource, error)

    def snapshot(self, obj: T, /) -> Snapshot[T]:
        """Remember what `obj` looks like now, as the base of a later `patch_from`."""
        self._cache.recall(obj)
        return self._client.snapshot(obj)


def _place(cached: Cached[T]) -> tuple[str, str]:
    return cached.header.namespace or "", cached.header.name


def _decoded(informers: Sequence[Informer[T]], found: Iterable[Cached[T]]) -> Iterator[T | Undecodable]:
    """The objects, decoded as they are asked for; what does not fit is reported by the store that it is in."""
    stores = {informer.namespace: informer.store for informer in informers}
    for cached in found:
        store = stores.get(cached.header.namespace) or informers[0].store
        try:
            yield store.decode(cached)
        except DecodeError as error:
            yield Undecodable("ADDED", cached.metadata(), error)


@final
class _CachedStream(AsyncIterator["T | Undecodable"], Generic[T]):
    """The objects of a cache. A class, not a generator: nothing is left to be closed when a loop is left."""

    def __init__(self, informers: Sequence[Informer[T]], found: Iterable[Cached[T]]) -> None:
        decoded = _decoded(informers, found)
        self._objects: Iterator[T | Undecodable] = decoded

    def __aiter__(self) -> _CachedStream[T]:
        return self

    async def __anext__(self) -> T | Undecodable:
        for found in self._objects:
            return found
        raise StopAsyncIteration


if TYPE_CHECKING:
    _client: type[Client] = CachedClient
    _status: type[StatusWriter] = CachedStatusWriter
