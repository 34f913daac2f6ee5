"""A client that reads watched kinds from their informers, and sees its own writes."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Generic, final

import msgspec
from typing_extensions import TypeVar

from opsdk.cache.changes import Cached
from opsdk.cache.informer import Informer
from opsdk.cache.informers import Informers
from opsdk.cache.selectors import Selector, selector_of
from opsdk.client import ApiClient, ApiStatusWriter
from opsdk.errors import CacheNotSyncedError, DecodeError, NotFoundError, ObjectError
from opsdk.models import ResourceInfo, resource_of
from opsdk.protocols import Client, KubeObject, ObjectList, Snapshot, StatusWriter, Undecodable, WatchEvent
from opsdk.types import LabelSelector, Patch, Preconditions, PropagationPolicy, Request

__all__ = ["CachedClient", "CachedStatusWriter"]

T = TypeVar("T", bound=KubeObject)

_LOCAL_FIELDS: Final = frozenset({"metadata.name", "metadata.namespace"})


class _Details(msgspec.Struct):
    uid: str = ""


class _Answer(msgspec.Struct):
    kind: str = ""
    details: _Details | None = None


_ANSWERS: Final = msgspec.json.Decoder(_Answer)


@final
class _Cache:
    """What the two writers of one client share."""

    def __init__(self, client: ApiClient, informers: Informers) -> None:
        self.client = client
        self.informers = informers

    def recall(self, obj: KubeObject) -> None:
        """Have the client know the document of the version that `obj` is of, if a store has it."""
        metadata = obj.metadata
        if metadata is None or not metadata.name or self.client.document(obj) is not None:
            return
        request = Request(metadata.name, metadata.namespace)
        for informer in self.informers.of(resource_of(type(obj)), metadata.namespace):
            for cached in (informer.read(request), informer.store.cached(request)):
                header = None if cached is None else cached.header
                if (
                    cached is not None
                    and header is not None
                    and (header.uid, header.resource_version) == (metadata.uid, metadata.resourceVersion)
                ):
                    self.client.remember(cached.raw, uid=header.uid, resource_version=header.resource_version)
                    return

    def wrote(self, stored: T, dry_run: bool | None) -> T:  # noqa: FBT001 - passed on
        """Let later reads see what was written."""
        metadata = stored.metadata
        if metadata is not None and not self.is_dry(dry_run):
            informers = self.informers.of(resource_of(type(stored)), metadata.namespace)
            raw = self.client.document(stored) if informers else None
            if raw is not None:
                for informer in informers:
                    informer.wrote(raw)
        return stored

    def deleting(self, resource: ResourceInfo, request: Request) -> Callable[[bytes], None]:
        """Remember what is known of an object before its deletion is sent; call the result with the answer."""
        known = [(informer, informer.uids(request)) for informer in self.informers.of(resource, request.namespace)]

        def answered(answer: bytes) -> None:
            try:
                status = _ANSWERS.decode(answer)
            except msgspec.MsgspecError:
                return
            for informer, before in known:
                if status.kind != "Status":
                    informer.wrote(answer)  # it is on its way out
                elif status.details is not None and status.details.uid:
                    informer.deleted(request, status.details.uid, before=before)

        return answered

    def is_dry(self, dry_run: bool | None) -> bool:  # noqa: FBT001 - passed on
        """Whether nothing is stored."""
        return self.client.dry_run if dry_run is None else dry_run


@final
class CachedStatusWriter:
    """Writes the status subresource, seen by later reads; reached as `client.status`."""

    def __init__(self, cache: _Cache) -> None:
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

    Not promised: that others' writes are seen at once; that what `delete_collection` deleted is gone from the next
    read. Objects that do not fit their model are left out of lists, and reported by the informers' hook.

    Args:
        client: Where everything else goes, and all writes.
        informers: What is watched.
    """

    def __init__(self, client: ApiClient, informers: Informers) -> None:
        self._client = client
        self._informers = informers
        self._cache = _Cache(client, informers)
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
        informer = self._synced(self._informers.covering(kind, namespace))
        if informer is None:
            return await self._client.get(kind, name, namespace=namespace)
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
        informer = self._synced(self._informers.covering(kind, namespace))
        if informer is None:
            return await self._client.find(kind, name, namespace=namespace)
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
        informer, found = selection
        return ObjectList(informer.store.decode_all(found), "")

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
        return _CachedStream(*selection)

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

    def _synced(self, informer: Informer[T] | None) -> Informer[T] | None:
        if informer is not None and not informer.synced:
            raise CacheNotSyncedError(informer.resource.kind)
        return informer

    def _find(self, informer: Informer[T], name: str, namespace: str | None) -> Cached[T] | None:
        resource = informer.resource
        if resource.namespaced and namespace is None:
            raise ObjectError(f"{resource.kind} {name!r} is namespaced: say in which namespace")
        if not resource.namespaced and namespace is not None:
            raise ObjectError(f"{resource.kind} is cluster-scoped, so namespace {namespace!r} makes no sense here")
        return informer.read(Request(name, namespace))

    def _select(
        self, kind: type[T], namespace: str | None, labels: LabelSelector | None, fields: Mapping[str, str] | None
    ) -> tuple[Informer[T], builtins.list[Cached[T]]] | None:
        """Which informer answers a list, and with what; None: the server has to."""
        if fields and not _LOCAL_FIELDS.issuperset(fields):
            return None
        selector = selector_of(labels)
        informer = self._informers.covering(kind, namespace)
        if informer is None:
            informer = self._informers.selecting(kind, namespace, selector)
            selector = Selector()  # it has nothing else
        informer = self._synced(informer)
        if informer is None:
            return None
        found = informer.select(namespace=namespace, labels=selector or None)
        if fields:
            name, place = fields.get("metadata.name"), fields.get("metadata.namespace")
            found = [
                cached
                for cached in found
                if name in {None, cached.header.name} and place in {None, cached.header.namespace or ""}
            ]
        found.sort(key=_place)
        return informer, found

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
        """See `ApiClient.delete_collection`; seen when the watch shows it."""
        await self._client.delete_collection(
            kind, namespace=namespace, labels=labels, fields=fields, propagation=propagation, dry_run=dry_run
        )

    def snapshot(self, obj: T, /) -> Snapshot[T]:
        """Remember what `obj` looks like now, as the base of a later `patch_from`."""
        self._cache.recall(obj)
        return self._client.snapshot(obj)


def _place(cached: Cached[T]) -> tuple[str, str]:
    return cached.header.namespace or "", cached.header.name


@final
class _CachedStream(AsyncIterator["T | Undecodable"], Generic[T]):
    """The objects of a cache, decoded as they are asked for."""

    def __init__(self, informer: Informer[T], found: builtins.list[Cached[T]]) -> None:
        self._store = informer.store
        self._found = found[::-1]

    def __aiter__(self) -> _CachedStream[T]:
        return self

    async def __anext__(self) -> T | Undecodable:
        if not self._found:
            raise StopAsyncIteration
        cached = self._found.pop()
        try:
            return self._store.decode(cached)
        except DecodeError as error:
            return Undecodable("ADDED", cached.metadata(), error)


if TYPE_CHECKING:
    _client: type[Client] = CachedClient
    _status: type[StatusWriter] = CachedStatusWriter
