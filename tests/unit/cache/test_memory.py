"""How much memory lists take, the first and later ones, as multiples of what is in the cache and in a page."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import anyio.lowlevel
import pytest
from lightkube.resources.core_v1 import ConfigMap

from opsdk.cache import Informer, ReflectorOptions
from opsdk.client import ApiClient, HttpRequest, HttpResponse, HttpStream

pytestmark = pytest.mark.anyio

PAGE = 100
OBJECT_BYTES = 4_000
MANAGED_BYTES = 1_500


class Many:
    """A server of so many objects, which it makes up when it is asked for them.

    `round` counts the lists: the objects of each are newer than those of the one before. A watch is silent until
    `forget` is set, and is then told that its version is too old.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.round = 0
        self.forget = anyio.Event()

    def _object(self, number: int) -> str:
        version = self.round * self.count + number + 1
        metadata = f'"name":"n{number}","namespace":"default","uid":"u{number}","resourceVersion":"{version}"'
        managed = f'[{{"manager":"m","operation":"Update","fieldsV1":{{"f:{"y" * MANAGED_BYTES}":{{}}}}}}]'
        text = "x" * (OBJECT_BYTES - MANAGED_BYTES)
        return f'{{"metadata":{{{metadata},"managedFields":{managed}}},"data":{{"k":"{text}"}}}}'

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        begin = int(dict(request.query).get("continue", "0"))
        self.round += begin == 0
        end = min(begin + PAGE, self.count)
        token = str(end) if end < self.count else ""
        items = ",".join(map(self._object, range(begin, end)))
        body = f'{{"metadata":{{"resourceVersion":"999999","continue":"{token}"}},"items":[{items}]}}'
        del items
        return HttpResponse(status=200, headers={"content-type": "application/json"}, body=body.encode())

    @asynccontextmanager
    async def stream(self, request: HttpRequest, /) -> AsyncGenerator[HttpStream]:
        if "sendInitialEvents" in dict(request.query):
            self.round += 1
            yield HttpStream(status=200, headers={}, chunks=self._events())
            return
        await self.forget.wait()
        self.forget = anyio.Event()
        body = b'{"kind":"Status","code":410,"reason":"Expired"}'
        yield HttpStream(status=410, headers={}, chunks=_pieces(body))

    async def _events(self) -> AsyncIterator[bytes]:
        for number in range(self.count):
            await anyio.lowlevel.checkpoint()
            yield f'{{"type":"ADDED","object":{self._object(number)}}}\n'.encode()
        annotations = '{"k8s.io/initial-events-end":"true"}'
        metadata = f'{{"resourceVersion":"9","annotations":{annotations}}}'
        yield f'{{"type":"BOOKMARK","object":{{"metadata":{metadata}}}}}\n'.encode()

    async def aclose(self) -> None:
        """There is nothing to close."""


async def _pieces(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Shares of what is in the cache, or multiples of a page.

    Args:
        kept: What is kept after the first sync, of the objects' bytes without managedFields.
        above: The peak of the first sync above what is kept, in pages.
        again: The peak of a second list in which all objects are new, above what is kept, in pages.
    """

    kept: float
    above: float
    again: float


async def measured(count: int, *, streams: bool = False) -> Measured:
    server = Many(count)
    options = ReflectorOptions(page_size=PAGE, stream_lists=streams)
    informer = Informer(ApiClient(server), ConfigMap, options=options)
    kept = peak = again = 0
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.run)
            await informer.wait_synced()
            kept, peak = tracemalloc.get_traced_memory()
            await anyio.sleep(1)
            tracemalloc.reset_peak()
            server.forget.set()
            await anyio.sleep(5)
            assert server.round == 2
            assert {cached.header.order > count for cached in informer.store.select()} == {True}
            _, again = tracemalloc.get_traced_memory()
            tasks.cancel_scope.cancel()
    finally:
        tracemalloc.stop()
    assert len(informer.store) == count
    return Measured(
        kept=(kept - before) / (count * (OBJECT_BYTES - MANAGED_BYTES)),
        above=(peak - kept) / (PAGE * OBJECT_BYTES),
        again=(again - kept) / (PAGE * OBJECT_BYTES),
    )


@pytest.mark.parametrize("streams", [False, True], ids=["pages", "stream"])
async def test_w12_w13_a_list_takes_the_store_and_a_page_however_many_objects_there_are(
    streams: bool,  # noqa: FBT001 - given by pytest
) -> None:
    await measured(PAGE, streams=streams)  # what is made once
    few, many = await measured(5 * PAGE, streams=streams), await measured(20 * PAGE, streams=streams)
    # One page, whole and cut into objects, for a moment; never two. Of a stream, next to nothing.
    most = 0.2 if streams else 2.0
    assert few.above < most
    assert many.above < most
    assert few.kept < 1.5
    assert many.kept < few.kept + 0.1
    # Later a name is kept twice, by its key and by the newer object; the new set as a whole would be 20 pages.
    assert many.again < most + 1.5
