"""A network between an informer and the in-memory API server that can be made to fail."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import anyio
import msgspec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap

from opsdk.cache import (
    Change,
    Informer,
    Malformed,
    ObjectAdded,
    ObjectDeleted,
    ObjectModified,
    ReflectorOptions,
)
from opsdk.client import ApiClient, HttpRequest, HttpResponse, HttpStream, Transport
from opsdk.errors import ApiConnectionError
from opsdk.testing import ApiServer

__all__ = ["Answer", "Following", "Network", "following", "status", "text_of"]

Answer: TypeAlias = HttpResponse | Exception


def status(code: int, reason: str, message: str = "") -> HttpResponse:
    body = {"kind": "Status", "apiVersion": "v1", "code": code, "reason": reason, "message": message}
    return HttpResponse(status=code, headers={"content-type": "application/json"}, body=msgspec.json.encode(body))


class Network:
    """A transport that writes down what goes through, and does what a test says instead.

    `on_list` and `on_watch` are asked about each request; None lets it pass. `cut` ends all streams, `freeze` silences
    them. `limit` says of each new stream after how many lines it is cut, in the middle of the next; None: it is not.
    """

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.lists: list[float] = []
        self.watches: list[tuple[float, str]] = []
        self.on_list: Callable[[HttpRequest], Answer | None] = lambda _: None
        self.on_watch: Callable[[HttpRequest], Answer | None] = lambda _: None
        self.limit: Callable[[HttpRequest], int | None] = lambda _: None
        self.frozen = False
        self._cut = anyio.Event()

    def cut(self) -> None:
        self._cut.set()
        self._cut = anyio.Event()

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        if request.method == "GET":
            self.lists.append(anyio.current_time())
            answer = self.on_list(request)
            if isinstance(answer, Exception):
                raise answer
            if answer is not None:
                return answer
        return await self.inner.request(request)

    @asynccontextmanager
    async def stream(self, request: HttpRequest, /) -> AsyncGenerator[HttpStream]:
        version = dict(request.query).get("resourceVersion", "")
        self.watches.append((anyio.current_time(), version))
        answer = self.on_watch(request)
        if isinstance(answer, Exception):
            raise answer
        if answer is not None:
            yield HttpStream(status=answer.status, headers=answer.headers, chunks=_Once(answer.body))
            return
        async with self.inner.stream(request) as stream:
            yield HttpStream(
                status=stream.status,
                headers=stream.headers,
                chunks=_Cuttable(self, self._cut, stream.chunks, self.limit(request)),
            )

    async def aclose(self) -> None:
        await self.inner.aclose()


class _Once(AsyncIterator[bytes]):
    def __init__(self, body: bytes) -> None:
        self._left = [body] if body else []

    async def __anext__(self) -> bytes:
        if not self._left:
            raise StopAsyncIteration
        return self._left.pop()


class _Cuttable(AsyncIterator[bytes]):
    def __init__(self, network: Network, cut: anyio.Event, chunks: AsyncIterator[bytes], lines: int | None) -> None:
        self._network = network
        self._cut = cut
        self._chunks = chunks
        self._lines = lines

    async def __anext__(self) -> bytes:
        if self._lines == -1:
            raise ApiConnectionError("the peer reset the connection", sent=True)
        chunk: list[bytes | None] = []

        async def read() -> None:
            found = await anext(self._chunks, None)
            if self._network.frozen:
                await anyio.sleep_forever()
            chunk.append(found)
            tasks.cancel_scope.cancel()

        async def watch_for_cut() -> None:
            await self._cut.wait()
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            tasks.start_soon(watch_for_cut)
        if not chunk or chunk[0] is None:
            raise StopAsyncIteration
        if self._lines is None:
            return chunk[0]
        # The server in memory sends a line at a time.
        self._lines -= 1
        if self._lines == -1:
            return chunk[0][: len(chunk[0]) // 2]
        return chunk[0]


class Following:
    """One informer of ConfigMaps at work."""

    def __init__(self, server: ApiServer, options: ReflectorOptions) -> None:
        self.network = Network(server.transport())
        self.client = server.client()
        self.reports: list[Malformed] = []
        self.informer = Informer(ApiClient(self.network), ConfigMap, options=options, malformed=self.reports.append)
        self.changes: list[Change[ConfigMap]] = []
        self.informer.add_handler(self.changes.append)

    def told(self) -> list[str]:
        """What the handler was told since the last call."""
        changes, self.changes[:] = list(self.changes), []
        return [text_of(change) for change in changes]

    async def synced(self) -> None:
        """Wait until it has listed, and watches."""
        await self.informer.wait_synced()
        await anyio.sleep(1)

    async def create(self, name: str) -> ConfigMap:
        return await self.client.create(ConfigMap(metadata=ObjectMeta(name=name, namespace="default")))

    async def delete(self, name: str) -> None:
        await self.client.delete(ConfigMap, name, namespace="default")

    def names(self) -> list[str]:
        return sorted(cached.header.name for cached in self.informer.store.select())


def text_of(change: Change[ConfigMap]) -> str:
    match change:
        case ObjectAdded(new=new, initial=initial):
            return f"{'found' if initial else 'added'} {new.header.name}"
        case ObjectModified(new=new):
            return f"modified {new.header.name}"
        case ObjectDeleted(old=old):
            return f"deleted {old.header.name}"


@asynccontextmanager
async def following(
    *names: str, options: ReflectorOptions | None = None, prepare: Callable[[Following], None] = lambda _: None
) -> AsyncGenerator[Following]:
    async with ApiServer() as server:
        this = Following(server, options or ReflectorOptions())
        prepare(this)
        for name in names:
            await this.create(name)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(this.informer.run)
            yield this
            tasks.cancel_scope.cancel()
