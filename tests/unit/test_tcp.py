"""Connections lose nothing, wait for nobody for ever and leave nothing open, on both backends, in real time."""

from __future__ import annotations

import random
import socket
import ssl
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import final

import anyio
import anyio.abc
import anyio.lowlevel
import pytest
from anyio.streams.tls import TLSListener

from opsdk._tcp import TcpConnection, connect_tcp
from opsdk.client._wire import TlsWire, Wire
from opsdk.testing.controlplane._pki import Authority

pytestmark = pytest.mark.anyio

LONG = 10.0
"""Seconds that are never reached."""


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pki")
    Authority(folder).issue("server", common_name="server", addresses=("kube",))
    return folder


Handler = Callable[[anyio.abc.ByteStream], Awaitable[None]]


@asynccontextmanager
async def serving(handler: Handler, *, tls: ssl.SSLContext | None = None) -> AsyncGenerator[int]:
    """The port of a server that ends with the context."""
    inner = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port: int = inner.extra(anyio.abc.SocketAttribute.local_port)
    listener: anyio.abc.Listener[anyio.abc.ByteStream] = inner
    if tls is not None:
        listener = TLSListener(inner, ssl_context=tls, standard_compatible=False)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, handler)
        yield port
        tasks.cancel_scope.cancel()
    await listener.aclose()


@asynccontextmanager
async def connected(port: int, pki: Path | None = None) -> AsyncGenerator[Wire]:
    """A connection; over TLS if there are keys."""
    connection: Wire = await connect_tcp("127.0.0.1", port)
    try:
        if pki is not None:
            context = ssl.create_default_context(cafile=pki / "ca.crt")
            tls = TlsWire(connection, context, "kube")
            await tls.shake_hands(LONG)
            connection = tls
        yield connection
    finally:
        connection.abort()
        await anyio.lowlevel.checkpoint()


@pytest.fixture(params=["plain", "tls1.2", "tls1.3"])
def keys(request: pytest.FixtureRequest, pki: Path) -> tuple[ssl.SSLContext | None, Path | None]:
    """What the server and the client encrypt with."""
    if request.param == "plain":
        return None, None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pki / "server.crt", pki / "server.key")
    if request.param == "tls1.2":
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context, pki


Keys = tuple[ssl.SSLContext | None, Path | None]
MUCH = random.Random(1).randbytes(3_000_000)


async def echo(stream: anyio.abc.ByteStream) -> None:
    async with stream:
        async for data in stream:
            await stream.send(data)


async def test_much_goes_both_ways_and_arrives_as_it_was(keys: Keys) -> None:
    async with serving(echo, tls=keys[0]) as port, connected(port, keys[1]) as wire, anyio.create_task_group() as tasks:
        tasks.start_soon(wire.send, MUCH, LONG)
        found = bytearray()
        while len(found) < len(MUCH):
            found += await wire.receive(LONG)
        assert found == MUCH
        assert wire.is_quiet()


async def test_a_reader_that_is_cancelled_again_and_again_loses_nothing(keys: Keys) -> None:
    chance = random.Random(2)

    async def drip(stream: anyio.abc.ByteStream) -> None:
        async with stream:
            for start in range(0, 40_000, 400):
                await stream.send(MUCH[start : start + 400])
                await anyio.sleep(chance.uniform(0, 0.002))

    async with serving(drip, tls=keys[0]) as port, connected(port, keys[1]) as wire:
        found = bytearray()
        with anyio.fail_after(LONG):
            while len(found) < 40_000:
                with anyio.move_on_after(chance.uniform(0, 0.003)):
                    found += await wire.receive(LONG)
    assert found == MUCH[:40_000]


async def test_the_end_is_no_bytes_each_time_it_is_asked_for(keys: Keys) -> None:
    async def say_one_thing(stream: anyio.abc.ByteStream) -> None:
        async with stream:
            await stream.send(b"bye")

    async with serving(say_one_thing, tls=keys[0]) as port, connected(port, keys[1]) as wire:
        assert await wire.receive(LONG) == b"bye"
        assert [await wire.receive(LONG) for _ in range(3)] == [b"", b"", b""]
        assert not wire.is_quiet()


async def silent(stream: anyio.abc.ByteStream) -> None:
    async with stream:
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            await stream.receive(1)  # before the first one anyio takes in whatever comes
            await anyio.sleep_forever()


async def test_silence_is_a_timeout_and_the_connection_can_still_be_read(keys: Keys) -> None:
    go_on = anyio.Event()

    async def later(stream: anyio.abc.ByteStream) -> None:
        async with stream:
            await go_on.wait()
            await stream.send(b"late")
            await anyio.sleep_forever()

    async with serving(later, tls=keys[0]) as port, connected(port, keys[1]) as wire:
        for seconds in (0.05, 0.01, 0.03):
            started = anyio.current_time()
            with pytest.raises(TimeoutError):
                await wire.receive(seconds)
            assert anyio.current_time() - started >= seconds * 0.9
        go_on.set()
        assert await wire.receive(LONG) == b"late"


async def test_each_piece_that_comes_moves_the_deadline_on() -> None:
    async def slow(stream: anyio.abc.ByteStream) -> None:
        async with stream:
            for _ in range(4):
                await anyio.sleep(0.4)
                await stream.send(b"x")

    async with serving(slow) as port, connected(port) as wire:
        found = b""
        while part := await wire.receive(1.2):
            found += part
        assert found == b"xxxx"


async def test_a_longer_limit_after_a_shorter_one_is_kept() -> None:
    async def slow(stream: anyio.abc.ByteStream) -> None:
        async with stream:
            await stream.send(b"x")
            await anyio.sleep(0.8)
            await stream.send(b"y")
            await anyio.sleep_forever()

    async with serving(slow) as port, connected(port) as wire:
        assert await wire.receive(0.6) == b"x"
        assert await wire.receive(LONG) == b"y"


async def test_a_server_that_does_not_read_is_a_timeout(keys: Keys) -> None:
    waits = anyio.Event()
    stands_still = anyio.Event()

    async def read_twice(stream: anyio.abc.ByteStream) -> None:
        async with stream:
            await stream.receive(1)
            waits.set()
            await stream.receive(1)  # until it has waited for something anyio takes in whatever comes
            stands_still.set()
            await anyio.sleep_forever()

    async with serving(read_twice, tls=keys[0]) as port, connected(port, keys[1]) as wire:
        await wire.send(b"x", LONG)
        await waits.wait()
        await anyio.wait_all_tasks_blocked()
        await wire.send(b"y", LONG)
        await stands_still.wait()
        with pytest.raises(TimeoutError):
            await wire.send(bytes(30_000_000), 0.1)


async def test_what_nobody_reads_is_not_taken_in() -> None:
    sent = 0

    async def flood(stream: anyio.abc.ByteStream) -> None:
        nonlocal sent
        async with stream:
            for start in range(0, 60_000_000, 100_000):
                await stream.send(bytes(100_000))
                sent = start + 100_000

    async with serving(flood) as port, connected(port) as wire:
        seen = -1
        while sent != seen:  # until the server stands still
            seen = sent
            await anyio.sleep(0.2)
        assert sent < 30_000_000
        found = 0
        while part := await wire.receive(LONG):
            found += len(part)
        assert found == 60_000_000


async def test_a_connection_that_is_reset_is_an_error_for_whoever_reads_and_writes() -> None:
    async def reset(stream: anyio.abc.ByteStream) -> None:
        raw: socket.socket = stream.extra(anyio.abc.SocketAttribute.raw_socket)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        await stream.receive()
        await stream.aclose()

    async with serving(reset) as port, connected(port) as wire:
        await wire.send(b"x", LONG)
        for _ in range(2):
            with pytest.raises(OSError):
                await wire.receive(LONG)
        assert not wire.is_quiet()
        with pytest.raises(OSError):  # noqa: PT012 - the system's words; the first may still be taken
            await wire.send(b"x", LONG)
            await wire.send(b"x", LONG)


async def test_closing_wakes_the_reader_with_an_error() -> None:
    async with serving(silent) as port, connected(port) as wire, anyio.create_task_group() as tasks:

        async def read() -> None:
            with pytest.raises(OSError):
                await wire.receive(LONG)

        tasks.start_soon(read)
        await anyio.sleep(0.05)
        wire.abort()
        wire.abort()
        assert not wire.is_quiet()


async def test_what_has_come_by_itself_makes_a_connection_unquiet(keys: Keys) -> None:
    async def speak_first(stream: anyio.abc.ByteStream) -> None:
        async with stream:
            await stream.send(b"unasked")
            await anyio.sleep_forever()

    async with serving(speak_first, tls=keys[0]) as port, connected(port, keys[1]) as wire:
        with anyio.fail_after(LONG):
            while wire.is_quiet():  # noqa: ASYNC110 - nobody tells
                await anyio.sleep(0.01)
        assert await wire.receive(LONG) == b"unasked"


async def test_a_host_with_several_addresses_is_reached_by_one_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first refuses, the second never answers, the third is the server's."""
    full = socket.create_server(("127.0.0.3", 0), backlog=0)
    port = full.getsockname()[1]
    fillers = [socket.socket() for _ in range(4)]
    for one in fillers:
        one.setblocking(False)
        one.connect_ex(("127.0.0.3", port))
    server = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)

    def resolved(*_: object, **__: object) -> object:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            for address in ("127.0.0.2", "127.0.0.3", "127.0.0.1")
        ]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve, echo)
        with anyio.fail_after(LONG):
            connection = await connect_tcp("kube.example", port)
        await connection.send(b"here", LONG)
        assert await connection.receive(LONG) == b"here"
        connection.abort()
        tasks.cancel_scope.cancel()
    await server.aclose()
    for one in [full, *fillers]:
        one.close()


async def test_an_address_needs_no_resolver() -> None:
    """A resolver runs in a thread, which an operator keeps for all its life."""
    async with serving(echo) as port:
        threads = set(threading.enumerate())
        connection = await connect_tcp("127.0.0.1", port)
        connection.abort()
        assert set(threading.enumerate()) <= threads
        await anyio.sleep(0.01)


async def test_a_host_that_refuses_is_an_error() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and does not listen
        with pytest.raises(OSError):
            await connect_tcp("127.0.0.1", bound.getsockname()[1])


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_connecting_can_be_cancelled_at_any_moment_and_leaves_nothing_open(host: str) -> None:
    chance = random.Random(3)
    kept: list[TcpConnection] = []
    async with serving(echo) as port:
        for _ in range(60):
            with anyio.move_on_after(chance.uniform(0, 0.004)):
                kept.append(await connect_tcp(host, port))
        for connection in kept:
            connection.abort()
        await anyio.sleep(0.01)
    # a socket that was left open is a ResourceWarning, which fails the run


async def test_a_server_with_another_name_is_refused_and_told_why(pki: Path) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pki / "server.crt", pki / "server.key")

    async with serving(echo, tls=context) as port:
        connection = await connect_tcp("127.0.0.1", port)
        wire = TlsWire(connection, ssl.create_default_context(cafile=pki / "ca.crt"), "other")
        with pytest.raises(ssl.SSLCertVerificationError, match="other"):
            await wire.shake_hands(LONG)
        wire.abort()
        await anyio.sleep(0.01)


@final
class ByHand:
    """The server's side of TLS, record by record."""

    def __init__(self, stream: anyio.abc.ByteStream, pki: Path) -> None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(pki / "server.crt", pki / "server.key")
        self._stream = stream
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    async def until_done(self, call: Callable[[], object]) -> None:
        """Call it until the peer has sent what it needs."""
        while True:
            try:
                call()
            except ssl.SSLWantReadError:
                if self._outgoing.pending:
                    await self._stream.send(self._outgoing.read())
                self._incoming.write(await self._stream.receive())
            else:
                return

    def records(self) -> bytes:
        """What was written since the last time."""
        return self._outgoing.read()


async def test_a_broken_record_behind_good_ones_is_an_error_and_no_end(pki: Path) -> None:
    async def forge(stream: anyio.abc.ByteStream) -> None:
        server = ByHand(stream, pki)
        async with stream:
            await server.until_done(server.tls.do_handshake)
            await server.until_done(server.tls.read)
            server.tls.write(b"good")
            records = server.records()
            server.tls.write(b"evil")
            records += server.records()
            await stream.send(records[:-1] + bytes([records[-1] ^ 1]))
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                await stream.receive()

    async with serving(forge) as port, connected(port, pki) as wire:
        await wire.send(b"?", LONG)
        assert await wire.receive(LONG) == b"good"
        for _ in range(2):
            with pytest.raises(ssl.SSLError, match=r"(?i)bad.record.mac"):
                await wire.receive(LONG)
        assert not wire.is_quiet()


async def test_what_follows_a_goodbye_is_not_read_and_the_connection_is_not_used_again(pki: Path) -> None:
    left = anyio.Event()

    async def goodbye(stream: anyio.abc.ByteStream) -> None:
        server = ByHand(stream, pki)
        async with stream:
            await server.until_done(server.tls.do_handshake)
            server.tls.write(b"last")
            with suppress(ssl.SSLError):
                server.tls.unwrap()
            await stream.send(server.records() + b"and more")
            await left.wait()  # the connection itself stands

    async with serving(goodbye) as port, connected(port, pki) as wire:
        assert await wire.receive(LONG) == b"last"
        assert not wire.is_quiet()
        for _ in range(2):
            assert await wire.receive(LONG) == b""
        left.set()


async def test_a_server_that_speaks_no_tls_or_hangs_up_is_an_error(pki: Path) -> None:
    async def rude(stream: anyio.abc.ByteStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(b"HTTP/1.0 400 Bad Request\r\n\r\n")

    async def hang_up(stream: anyio.abc.ByteStream) -> None:
        async with stream:
            await stream.receive()

    for handler in (rude, hang_up):
        async with serving(handler) as port:
            connection = await connect_tcp("127.0.0.1", port)
            wire = TlsWire(connection, ssl.create_default_context(cafile=pki / "ca.crt"), "kube")
            with pytest.raises(ssl.SSLError):
                await wire.shake_hands(LONG)
            wire.abort()
            await anyio.sleep(0.01)
