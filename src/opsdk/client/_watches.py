"""A watch's events, typed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, Generic, assert_never, final

import msgspec
from typing_extensions import TypeVar

from opsdk.client._decoding import ObjectDecoder
from opsdk.client.raw import RawEvent
from opsdk.errors import ApiProtocolError
from opsdk.protocols import Added, Bookmark, Deleted, KubeObject, Modified, Undecodable, WatchEvent

__all__ = ["TypedWatch"]

T = TypeVar("T", bound=KubeObject)

_INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"


@final
class TypedWatch(AsyncIterator[WatchEvent[T]], Generic[T]):
    """Decodes event by event. A class, not a generator: leaving a loop leaves nothing to be closed."""

    def __init__(self, events: AsyncIterator[RawEvent], decoder: ObjectDecoder[T]) -> None:
        self._events = events
        self._decoder = decoder

    def __aiter__(self) -> TypedWatch[T]:
        return self

    async def __anext__(self) -> WatchEvent[T]:
        event = await anext(self._events)
        if event.type == "BOOKMARK":
            return _bookmark(event.object)
        found = self._decoder.decode(event.type, event.object)
        if isinstance(found, Undecodable):
            return found
        match event.type:
            case "ADDED":
                return Added(found)
            case "MODIFIED":
                return Modified(found)
            case "DELETED":
                return Deleted(found)
            case _ as never:
                assert_never(never)


class _BookmarkMeta(msgspec.Struct):
    resource_version: str | None = msgspec.field(name="resourceVersion", default=None)
    annotations: dict[str, str] | None = None


class _BookmarkObject(msgspec.Struct):
    metadata: _BookmarkMeta


def _bookmark(raw: bytes) -> Bookmark:
    try:
        metadata = msgspec.json.decode(raw, type=_BookmarkObject).metadata
    except msgspec.MsgspecError as error:
        raise ApiProtocolError(f"a watch's bookmark cannot be read: {error}") from error
    return Bookmark(metadata.resource_version or "", (metadata.annotations or {}).get(_INITIAL_EVENTS_END) == "true")
