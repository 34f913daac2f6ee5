"""How much memory a first sync takes, as a multiple of what is in the cache and in a page."""

from __future__ import annotations

import tracemalloc
from contextlib import AbstractAsyncContextManager

import anyio
import pytest
from lightkube.resources.core_v1 import ConfigMap

from opsdk.cache import Informer, ReflectorOptions
from opsdk.client import ApiClient, HttpRequest, HttpResponse, HttpStream
from opsdk.errors import ApiConnectionError

pytestmark = pytest.mark.anyio

PAGE = 100
OBJECT_BYTES = 4_000
MANAGED_BYTES = 1_500


class Many:
    """A server of so many objects, which it makes up when it is asked for them."""

    def __init__(self, count: int) -> None:
        self.count = count

    def _object(self, number: int) -> str:
        metadata = f'"name":"n{number}","namespace":"default","uid":"u{number}","resourceVersion":"{number + 1}"'
        managed = f'[{{"manager":"m","operation":"Update","fieldsV1":{{"f:{"y" * MANAGED_BYTES}":{{}}}}}}]'
        text = "x" * (OBJECT_BYTES - MANAGED_BYTES)
        return f'{{"metadata":{{{metadata},"managedFields":{managed}}},"data":{{"k":"{text}"}}}}'

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        begin = int(dict(request.query).get("continue", "0"))
        end = min(begin + PAGE, self.count)
        token = str(end) if end < self.count else ""
        items = ",".join(map(self._object, range(begin, end)))
        body = f'{{"metadata":{{"resourceVersion":"999999","continue":"{token}"}},"items":[{items}]}}'
        del items
        return HttpResponse(status=200, headers={"content-type": "application/json"}, body=body.encode())

    def stream(self, request: HttpRequest, /) -> AbstractAsyncContextManager[HttpStream]:
        raise ApiConnectionError("no watch here")

    async def aclose(self) -> None:
        """There is nothing to close."""


async def measured(count: int) -> tuple[float, float]:
    """What is kept of an object, as a share of its bytes without managedFields; and the peak above that, in pages."""
    informer = Informer(ApiClient(Many(count)), ConfigMap, options=ReflectorOptions(page_size=PAGE))
    tracemalloc.start()
    kept = peak = 0
    try:
        before = tracemalloc.get_traced_memory()[0]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.run)
            await informer.wait_synced()
            kept, peak = tracemalloc.get_traced_memory()
            tasks.cancel_scope.cancel()
    finally:
        tracemalloc.stop()
    assert len(informer.store) == count
    return (kept - before) / (count * (OBJECT_BYTES - MANAGED_BYTES)), (peak - kept) / (PAGE * OBJECT_BYTES)


async def test_w12_the_first_sync_takes_the_store_and_a_page_however_many_objects_there_are() -> None:
    await measured(PAGE)  # what is made once
    few_kept, few_above = await measured(5 * PAGE)
    many_kept, many_above = await measured(20 * PAGE)
    # One page, whole and cut into objects, for a moment; never two.
    assert few_above < 2.0
    assert many_above < 2.0
    assert few_kept < 1.5
    assert many_kept < few_kept + 0.1
