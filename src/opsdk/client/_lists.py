"""Lists over several pages: all at once, or one object at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Final, Generic, final

import msgspec
from typing_extensions import TypeVar

from opsdk.client._decoding import ObjectDecoder
from opsdk.client._documents import head_of
from opsdk.client.raw import RawClient, RawPage
from opsdk.errors import GoneError
from opsdk.models import ResourceInfo
from opsdk.protocols import KubeObject, ObjectList, Undecodable
from opsdk.types import LabelSelector

__all__ = ["PAGE_SIZE", "ObjectStream", "Selection", "list_objects"]

T = TypeVar("T", bound=KubeObject)

PAGE_SIZE: Final = 500


@final
class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which objects are meant.

    Args:
        info: The kind.
        namespace: None: all namespaces.
        labels: Label selector.
        fields: Field selector.
        metadata_only: Whether only their metadata is wanted.
    """

    info: ResourceInfo
    namespace: str | None
    labels: LabelSelector | None
    fields: Mapping[str, str] | None
    metadata_only: bool = False


@final
class _Pages:
    """Asks for page after page. When the server forgets the list on the way: from the beginning, then in one piece."""

    def __init__(self, raw: RawClient, selection: Selection, page_size: int) -> None:
        self._raw = raw
        self._selection = selection
        self._limit: int | None = page_size
        self._token: str | None = None
        self.restarts = 0

    @property
    def done(self) -> bool:
        """Whether there are no more."""
        return self._token == ""

    async def next(self) -> RawPage | None:
        """The next page; None: the list has to be started over.

        Raises:
            GoneError: The server has forgotten what it was not even asked for before.
        """
        try:
            page = await self._raw.list_page(
                self._selection.info,
                namespace=self._selection.namespace,
                labels=self._selection.labels,
                fields=self._selection.fields,
                limit=self._limit,
                continue_token=self._token,
                metadata_only=self._selection.metadata_only,
            )
        except GoneError:
            if self._token is None:
                raise
            self._token = None
            self.restarts += 1
            if self.restarts > 1:
                self._limit = None  # the third time in one piece, which cannot expire
            return None
        self._token = page.continue_token
        return page


async def list_objects(raw: RawClient, selection: Selection, decoder: ObjectDecoder[T]) -> ObjectList[T]:
    """All objects, of one version."""
    pages = _Pages(raw, selection, PAGE_SIZE)
    found: list[T] = []
    version: str | None = None
    while not pages.done:
        page = await pages.next()
        if page is None:
            found, version = [], None
            continue
        found += decoder.decode_page(page.items)
        version = version or page.resource_version
    return ObjectList(found, version or "")


@final
class ObjectStream(AsyncIterator["T | Undecodable"], Generic[T]):
    """The objects of a list, page by page. A class, not a generator: leaving a loop leaves nothing to be closed."""

    def __init__(self, raw: RawClient, selection: Selection, decoder: ObjectDecoder[T], *, page_size: int) -> None:
        self._pages = _Pages(raw, selection, page_size)
        self._decoder = decoder
        self._page: list[bytes] = []
        self._given: set[tuple[str | None, str | None]] = set()

    def __aiter__(self) -> ObjectStream[T]:
        return self

    async def __anext__(self) -> T | Undecodable:
        while True:
            while not self._page:
                if self._pages.done:
                    raise StopAsyncIteration
                page = await self._pages.next()
                if page is not None:
                    self._page = page.items[::-1]
            raw = self._page.pop()
            head = head_of(raw)
            if self._pages.restarts and head[0] and head in self._given:
                continue
            self._given.add(head)
            return self._decoder.decode("ADDED", raw)
