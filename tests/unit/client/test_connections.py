"""What becomes of connections: kept, limited, replaced where that is safe, never spoilt by cancellation."""

from __future__ import annotations

import gc
import random
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from loopback import CHUNKED, Exchange, MakeTransport, chunk, config, connected, get, reply, serving, using
from opsdk.client import HttpRequest, HttpxTransport, LeanTransport, RawClient, Transport, _exchange
from opsdk.errors import ApiConnectionError

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


@pytest.fixture(params=[HttpxTransport, LeanTransport])
def make_transport(request: pytest.FixtureRequest) -> object:
    return request.param


def post() -> HttpRequest:
    return HttpRequest(method="POST", path="/x", body=b"{}")


async def test_nothing_is_sent_for_whoever_has_been_cancelled(make_transport: MakeTransport) -> None:
    async def ok(_: Exchange) -> bytes:
        return reply()

    async with serving(ok) as server, using(make_transport(config(server.url))) as transport:
        await transport.request(get())
        with anyio.CancelScope() as scope:
            scope.cancel()
            await transport.request(post())
        assert scope.cancelled_caught
        await transport.request(get())
        assert [one.method for one in server.exchanges] == ["GET", "GET"]


class DropsSecond:
    """Answers the first request of a connection, and closes it when the next one has come."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    async def __call__(self, exchange: Exchange) -> bytes | None:
        if exchange.connection in self.seen:
            return None
        self.seen.add(exchange.connection)
        return reply()


async def test_a_read_on_a_kept_connection_that_was_just_closed_is_sent_again_on_a_new_one() -> None:
    async with serving(DropsSecond()) as server, using(LeanTransport(config(server.url))) as transport:
        for _ in range(3):
            assert (await transport.request(get())).status == 200
    assert [one.connection for one in server.exchanges] == [1, 1, 2, 2, 3]


async def test_a_write_on_a_kept_connection_that_was_just_closed_is_never_sent_again(
    make_transport: MakeTransport,
) -> None:
    async with serving(DropsSecond()) as server, using(make_transport(config(server.url))) as transport:
        client = RawClient(transport)
        await client.request("GET", "/x")
        with pytest.raises(ApiConnectionError) as caught:
            await client.request("POST", "/x", body=b"{}")
        assert caught.value.sent
        assert [one.method for one in server.exchanges] == ["GET", "POST"]
        await client.request("GET", "/x")


async def test_a_read_whose_answer_has_begun_is_not_sent_again_by_the_transport() -> None:
    async def handler(exchange: Exchange) -> bytes | None:
        if len(server.exchanges) == 1:
            return reply()
        await exchange.stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort")
        return None

    async with serving(handler) as server, using(LeanTransport(config(server.url))) as transport:
        await transport.request(get())
        with pytest.raises(ApiConnectionError):
            await transport.request(get())
        assert len(server.exchanges) == 2


async def test_no_more_than_twenty_idle_connections_are_kept(make_transport: MakeTransport) -> None:
    together = 0

    async def handler(exchange: Exchange) -> bytes:
        nonlocal together
        together += 1
        while together < 30:  # noqa: ASYNC110 - they have to be there at once
            await anyio.sleep(0.005)
        return reply()

    async with serving(handler) as server, using(make_transport(config(server.url))) as transport:
        async with anyio.create_task_group() as tasks:
            for _ in range(30):
                tasks.start_soon(transport.request, get())
        assert server.connections == 30
        with anyio.fail_after(60):
            while server.open > 20:  # noqa: ASYNC110 - the server notices by itself
                await anyio.sleep(0.01)
        assert server.open > 0
        await transport.request(get())
        assert server.connections == 30


async def test_idle_connections_are_closed_when_they_have_not_been_used_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_exchange, "_KEPT_ALIVE_SECONDS", 0.2)
    together = 0

    async def handler(exchange: Exchange) -> bytes:
        nonlocal together
        together += 1
        while together < 5:  # noqa: ASYNC110 - they have to be there at once
            await anyio.sleep(0.005)
        return reply()

    async with serving(handler) as server, using(LeanTransport(config(server.url))) as transport:
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(transport.request, get())
        await anyio.sleep(0.3)
        await transport.request(get())
        assert server.connections == 6, "none of the old ones is used"
        with anyio.fail_after(60):
            while server.open > 1:  # noqa: ASYNC110 - the server notices by itself
                await anyio.sleep(0.01)


def body_of(path: str) -> bytes:
    """A body that belongs to one path: some fit into one packet, some need many."""
    number = int(path.removeprefix("/"))
    return path.encode() * (number % 4 * 12_000 + 1)


async def echo(exchange: Exchange) -> bytes | None:
    """Each answer in several pieces, so that there is much to interrupt."""
    body = body_of(exchange.target)
    if exchange.headers.get("x-stream"):
        await exchange.stream.send(CHUNKED)
        for start in range(0, len(body), 10_000):
            await exchange.stream.send(chunk(body[start : start + 10_000]))
            await anyio.lowlevel.checkpoint()
        return chunk(b"")
    await exchange.stream.send(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode())
    await anyio.lowlevel.checkpoint()
    return body


async def read(transport: Transport, path: str, *, stream: bool) -> bytes:
    if not stream:
        return (await transport.request(get(path))).body
    request = HttpRequest(method="GET", path=path, headers={"x-stream": "1"})
    async with transport.stream(request) as answer:
        return b"".join([piece async for piece in answer.chunks])


# Invariant: whatever is cancelled, wherever, every answer that is returned is the whole answer to its own request.
@pytest.mark.parametrize("stream", [False, True])
async def test_cancelled_at_any_step_a_request_poisons_no_connection(
    make_transport: MakeTransport,
    stream: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    async with connected(echo, make_transport) as transport:
        number = 0
        cancelled = 0
        for steps in [*range(25)] * 4:
            number += 1
            path = f"/{number}"
            async with anyio.create_task_group() as tasks:

                async def victim(path: str = path, scope: anyio.CancelScope = tasks.cancel_scope) -> None:
                    assert await read(transport, path, stream=stream) == body_of(path)
                    scope.cancel()  # it was faster

                tasks.start_soon(victim)
                for _ in range(steps):
                    await anyio.lowlevel.checkpoint()
                cancelled += 1
                tasks.cancel_scope.cancel()
            number += 1
            path = f"/{number}"
            assert await read(transport, path, stream=not stream) == body_of(path)
        assert cancelled >= 10


def open_files() -> int:
    """How many, where the system tells."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_under_random_cancellation_every_answer_is_the_right_one_and_nothing_is_left_open(
    make_transport: MakeTransport, seed: int
) -> None:
    chance = random.Random(seed)
    finished = 0

    async def one(transport: Transport, number: int) -> None:
        nonlocal finished
        path = f"/{number}"
        with anyio.move_on_after(chance.uniform(0, 0.03) if chance.random() < 0.6 else None):
            assert await read(transport, path, stream=chance.random() < 0.4) == body_of(path)
            finished += 1

    async with serving(echo) as server:
        gc.collect()
        before = open_files()
        async with using(make_transport(config(server.url))) as transport:
            for batch in range(8):
                async with anyio.create_task_group() as tasks:
                    for number in range(25):
                        tasks.start_soon(one, transport, batch * 25 + number)
            assert (await transport.request(get("/7"))).body == body_of("/7")
        assert finished >= 60
        with anyio.fail_after(60):
            while server.open:  # noqa: ASYNC110 - the server notices by itself
                await anyio.sleep(0.01)
        gc.collect()
        assert open_files() <= before
