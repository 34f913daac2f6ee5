"""The HTTP server in front of a transport: what clients on a socket see."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta

import anyio
import anyio.abc
import pytest

from opsdk.client.transport import HttpRequest, HttpResponse, HttpStream
from opsdk.errors import ApiConnectionError
from opsdk.testing.apiserver._serve import ServedApi, serve

pytestmark = pytest.mark.anyio

_JSON = {"content-type": "application/json"}


class EchoTransport:
    """Remembers requests, answers with the path; streams until it is told to end."""

    def __init__(self) -> None:
        self.requests: list[HttpRequest] = []
        self.asked = anyio.Event()
        self.stream_closed = anyio.Event()
        self.end_stream = anyio.Event()
        self.answer_slowly: anyio.Event | None = None

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        self.requests.append(request)
        self.asked.set()
        if request.path == "/unreachable":
            msg = "nobody is there"
            raise ApiConnectionError(msg)
        if request.path == "/broken":
            msg = "a bug"
            raise RuntimeError(msg)
        if self.answer_slowly is not None:
            await self.answer_slowly.wait()
        return HttpResponse(status=200, headers={**_JSON, "x-extra": "1"}, body=request.path.encode())

    def stream(self, request: HttpRequest, /) -> AbstractAsyncContextManager[HttpStream]:
        self.requests.append(request)
        return self._stream()

    @asynccontextmanager
    async def _stream(self) -> AsyncGenerator[HttpStream]:
        try:
            yield HttpStream(status=200, headers=_JSON, chunks=self._chunks())
        finally:
            self.stream_closed.set()

    async def _chunks(self) -> AsyncIterator[bytes]:
        yield b'{"first":1}\n'
        await self.end_stream.wait()
        yield b'{"last":1}\n'

    async def aclose(self) -> None:
        pass


async def _exchange(served: ServedApi, text: str) -> bytes:
    """Send bytes and read until the server closes."""
    async with await anyio.connect_tcp("127.0.0.1", served.port) as stream:
        await stream.send(text.replace("\n", "\r\n").encode())
        return await _read_all(stream)


async def _read_all(stream: anyio.abc.ByteStream) -> bytes:
    received = b""
    with anyio.fail_after(60):
        try:
            while True:
                received += await stream.receive()
        except anyio.EndOfStream:
            return received


async def _read_until(stream: anyio.abc.ByteStream, end: bytes) -> bytes:
    received = b""
    with anyio.fail_after(60):
        while end not in received:
            received += await stream.receive()
    return received


async def test_a_request_reaches_the_transport_with_path_query_headers_and_body() -> None:
    transport = EchoTransport()
    async with serve(transport) as served:
        answer = await _exchange(
            served,
            "POST /api/v1/x%2Fy?a=1&b=two+words&a=%26&empty= HTTP/1.1\nHost: x\nX-Thing: One\n"
            "Content-Length: 5\nConnection: close\n\nhello",
        )
    (request,) = transport.requests
    assert request.method == "POST"
    assert request.path == "/api/v1/x%2Fy"
    assert request.query == (("a", "1"), ("b", "two words"), ("a", "&"), ("empty", ""))
    assert request.headers["x-thing"] == "One"
    assert request.body == b"hello"
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert b"x-extra: 1" in head
    assert body == b"/api/v1/x%2Fy"


async def test_a_connection_carries_one_request_after_the_other() -> None:
    async with serve(EchoTransport()) as served:
        answer = await _exchange(
            served, "GET /one HTTP/1.1\nHost: x\n\nGET /two HTTP/1.1\nHost: x\nConnection: close\n\n"
        )
    assert answer.count(b"HTTP/1.1 200") == 2
    assert answer.index(b"/one") < answer.index(b"/two")


@pytest.mark.parametrize("query", ["watch=true", "watch=1", "watch=", "follow=true"])
async def test_a_watch_is_passed_on_as_it_comes(query: str) -> None:
    transport = EchoTransport()
    async with serve(transport) as served, await anyio.connect_tcp("127.0.0.1", served.port) as stream:
        await stream.send(f"GET /api/v1/pods?{query} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        received = await _read_until(stream, b'{"first":1}\n')
        assert b'{"last":1}' not in received
        transport.end_stream.set()
        received = await _read_until(stream, b"0\r\n\r\n")
        assert b'{"last":1}\n' in received


@pytest.mark.parametrize("query", ["watch=false", "watch=0", "limit=1"])
async def test_what_is_no_watch_is_answered_whole(query: str) -> None:
    async with serve(EchoTransport()) as served:
        answer = await _exchange(served, f"GET /x?{query} HTTP/1.1\nHost: x\nConnection: close\n\n")
    assert b"content-length: 2" in answer


async def test_a_client_that_hangs_up_ends_its_watch() -> None:
    transport = EchoTransport()
    async with serve(transport) as served:
        async with await anyio.connect_tcp("127.0.0.1", served.port) as stream:
            await stream.send(b"GET /x?watch=true HTTP/1.1\r\nHost: x\r\n\r\n")
            await _read_until(stream, b"first")
        with anyio.fail_after(60):
            await transport.stream_closed.wait()


async def test_a_connection_can_be_used_again_after_a_watch_has_ended() -> None:
    transport = EchoTransport()
    transport.end_stream.set()
    async with serve(transport) as served, await anyio.connect_tcp("127.0.0.1", served.port) as stream:
        await stream.send(b"GET /x?watch=true HTTP/1.1\r\nHost: x\r\n\r\n")
        await _read_until(stream, b"0\r\n\r\n")
        await stream.send(b"GET /again HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200" in await _read_until(stream, b"/again")


async def test_watches_and_idle_connections_end_when_the_server_closes() -> None:
    transport = EchoTransport()
    async with anyio.create_task_group() as tasks:
        closing = anyio.Event()

        async def run(*, task_status: anyio.abc.TaskStatus[ServedApi]) -> None:
            async with serve(transport, grace=timedelta(seconds=30)) as served:
                task_status.started(served)
                await closing.wait()

        served: ServedApi = await tasks.start(run)
        async with (
            await anyio.connect_tcp("127.0.0.1", served.port) as watching,
            await anyio.connect_tcp("127.0.0.1", served.port) as idle,
        ):
            await watching.send(b"GET /x?watch=true HTTP/1.1\r\nHost: x\r\n\r\n")
            await _read_until(watching, b"first")
            closing.set()
            assert b"0\r\n\r\n" not in await _read_all(watching)
            assert await _read_all(idle) == b""


async def test_an_answer_under_way_is_finished_before_the_server_closes() -> None:
    transport = EchoTransport()
    transport.answer_slowly = anyio.Event()
    async with anyio.create_task_group() as tasks:
        closing = anyio.Event()

        async def run(*, task_status: anyio.abc.TaskStatus[ServedApi]) -> None:
            async with serve(transport, grace=timedelta(seconds=30)) as served:
                task_status.started(served)
                await closing.wait()

        served: ServedApi = await tasks.start(run)
        async with await anyio.connect_tcp("127.0.0.1", served.port) as stream:
            await stream.send(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
            await transport.asked.wait()
            closing.set()
            await anyio.sleep(0.01)
            transport.answer_slowly.set()
            assert b"/slow" in await _read_all(stream)


async def test_a_failing_transport_is_a_500_and_the_server_goes_on() -> None:
    async with serve(EchoTransport()) as served:
        answer = await _exchange(served, "GET /broken HTTP/1.1\nHost: x\nConnection: close\n\n")
        assert answer.startswith(b"HTTP/1.1 500")
        assert b'"reason":"InternalError"' in answer
        answer = await _exchange(served, "GET /unreachable HTTP/1.1\nHost: x\nConnection: close\n\n")
        assert answer.startswith(b"HTTP/1.1 502")
        answer = await _exchange(served, "GET /fine HTTP/1.1\nHost: x\nConnection: close\n\n")
        assert answer.startswith(b"HTTP/1.1 200")


async def test_a_body_above_three_mebibytes_is_refused() -> None:
    async with serve(EchoTransport()) as served, await anyio.connect_tcp("127.0.0.1", served.port) as stream:
        size = 3 * 1024 * 1024 + 1
        await stream.send(f"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode())
        await stream.send(b"x" * size)
        answer = await _read_until(stream, b"limit is 3145728")
    assert answer.startswith(b"HTTP/1.1 413")


async def test_garbage_closes_the_connection_and_the_server_goes_on() -> None:
    async with serve(EchoTransport()) as served:
        await _exchange(served, "\x16\x03\x01 not http at all\n\n")
        assert b"200" in await _exchange(served, "GET /x HTTP/1.1\nHost: x\nConnection: close\n\n")


async def test_an_expectation_of_100_continue_is_answered() -> None:
    async with serve(EchoTransport()) as served, await anyio.connect_tcp("127.0.0.1", served.port) as stream:
        await stream.send(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n")
        await _read_until(stream, b"HTTP/1.1 100")
        await stream.send(b"x")
        assert b"HTTP/1.1 200" in await _read_until(stream, b"/x")


async def test_an_error_of_the_body_comes_out_as_it_is() -> None:
    async def fail_while_serving() -> None:
        async with serve(EchoTransport()):
            msg = "mine"
            raise ValueError(msg)

    with pytest.raises(ValueError, match="mine"):
        await fail_while_serving()


async def test_a_port_that_is_taken_is_an_os_error() -> None:
    async with serve(EchoTransport()) as served:
        with pytest.raises(OSError, match="in use"):
            await serve(EchoTransport(), port=served.port).__aenter__()


async def test_the_kubeconfig_names_the_server() -> None:
    async with serve(EchoTransport()) as served:
        assert f"server: http://127.0.0.1:{served.port}\n" in served.kubeconfig()
        assert "namespace: other\n" in served.kubeconfig(namespace="other")
