"""What a client that reads from caches has to do so that it reads what it wrote."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, final

import msgspec
from typing_extensions import TypeVar

from opsdk.cache._deletions import read_answer
from opsdk.cache.changes import Cached
from opsdk.cache.informers import Informers
from opsdk.cache.selectors import selector_of
from opsdk.client import ApiClient
from opsdk.models import ResourceInfo, resource_of
from opsdk.protocols import KubeObject
from opsdk.types import LabelSelector, Request

__all__ = ["LOCAL_FIELDS", "OwnWrites", "with_fields"]

T = TypeVar("T", bound=KubeObject)

LOCAL_FIELDS: Final = frozenset({"metadata.name", "metadata.namespace"})
"""The fields that can be selected by without asking the server."""

_PAGE_SIZE: Final = 500


class _Uid(msgspec.Struct):
    uid: str = ""


class _WithUid(msgspec.Struct):
    metadata: _Uid


_WITH_UID: Final = msgspec.json.Decoder(_WithUid)


@final
class OwnWrites:
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
            if informer.metadata_only:
                continue  # what it has is not the document
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
            deleted = read_answer(answer)
            if deleted is None:
                return
            for informer, before in known:
                if deleted.gone:
                    informer.deleted(request, deleted.uid, before=before)
                else:
                    informer.wrote(answer)

        return answered

    def deleting_all(
        self, resource: ResourceInfo, namespace: str | None, labels: LabelSelector | None, fields: Mapping[str, str]
    ) -> Callable[[], Awaitable[None]]:
        """Remember what is known of a collection before its deletion is sent; await the result of the result then."""
        selector = selector_of(labels)
        known = {
            (informer, cached.header.request): cached.header.uid
            for informer in self.informers.of(resource, namespace)
            for cached in with_fields(informer.select(namespace=namespace, labels=selector), fields)
        }

        async def answered() -> None:
            """Ask what is left of them: the answer to the deletion only says what was there before."""
            if not known:
                return
            waited_for, left = set(known.values()), dict[str, bytes]()
            token: str | None = None
            while token != "":
                # All of the namespace, as one that the selector no longer finds need not have been deleted.
                page = await self.client.raw.list_page(
                    resource, namespace=namespace, limit=_PAGE_SIZE, continue_token=token
                )
                left.update((uid, raw) for raw in page.items if (uid := _uid_of(raw)) in waited_for)
                token = page.continue_token
            for (informer, request), uid in known.items():
                if uid in left:
                    informer.wrote(left[uid])
                else:
                    informer.deleted(request, uid)

        return answered

    def is_dry(self, dry_run: bool | None) -> bool:  # noqa: FBT001 - passed on
        """Whether nothing is stored."""
        return self.client.dry_run if dry_run is None else dry_run


def with_fields(found: list[Cached[T]], fields: Mapping[str, str]) -> list[Cached[T]]:
    """Those of a name and namespace, which are the only fields that can be selected by here."""
    name, place = fields.get("metadata.name"), fields.get("metadata.namespace")
    if name is None and place is None:
        return found
    return [
        cached
        for cached in found
        if name in {None, cached.header.name} and place in {None, cached.header.namespace or ""}
    ]


def _uid_of(raw: bytes) -> str:
    try:
        return _WITH_UID.decode(raw).metadata.uid
    except msgspec.MsgspecError:
        return ""
