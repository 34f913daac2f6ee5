"""TCP connections with as little as possible between the loop and the bytes.

anyio's streams tell the loop to look at a socket before each read and to look away after it, and look around for
cancellation on the way. For a small answer that is more work than reading it. Here asyncio reads what comes when it
comes, up to a limit, and trio is asked directly.

This module and `opsdk._backend` are the only ones of the library, besides `opsdk.testing`, that know asyncio and trio
by name.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
import select
import socket
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol, cast, final

import anyio

from opsdk._backend import is_on_trio

if TYPE_CHECKING:
    import trio

__all__ = ["TcpConnection", "connect_tcp"]

_RECEIVE_BYTES: Final = 262_144
_HELD_BYTES: Final = 262_144
_NEXT_ADDRESS_SECONDS: Final = 0.25
"""When the next address of a host is tried beside the one before (RFC 8305)."""


class TcpConnection(Protocol):
    """One connection, for one reader and one writer.

    All calls raise `OSError` when the connection is broken or was closed here; `TimeoutError` is one.
    """

    async def send(self, data: bytes, seconds: float, /) -> None:
        """Hand all of it to the operating system. The first byte goes before anybody else runs.

        Raises:
            TimeoutError: That took longer than so many seconds.
        """
        ...

    async def receive(self, seconds: float, /) -> bytes:
        """What has come since the last time, at least a byte; nothing once the other side will send no more.

        Raises:
            TimeoutError: Nothing has come for so long.
        """
        ...

    def is_quiet(self) -> bool:
        """Whether the connection stands and nothing has come that was not received."""
        ...

    def abort(self) -> None:
        """Close it at once. May be called again."""
        ...


async def connect_tcp(host: str, port: int) -> TcpConnection:
    """Connect, to the address of the host that answers first.

    Raises:
        OSError: None does.
    """
    if is_on_trio():
        import trio

        return _TrioConnection(await trio.open_tcp_stream(host, port, happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS))
    return await _connect_on_asyncio(host, port)


async def _connect_on_asyncio(host: str, port: int) -> _AsyncioConnection:
    if _is_address(host):  # asyncio would ask nobody, either; a resolver runs in a thread, which stays
        return await _connect_to_address(host, port)
    # asyncio's own race of addresses leaves sockets open when it is cancelled.
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(address[0] for *_, address in found))
    if len(addresses) == 1:
        return await _connect_to_address(addresses[0], port)
    winner: _AsyncioConnection | None = None
    errors: list[OSError] = []

    async def attempt(address: str, ended: anyio.Event) -> None:
        nonlocal winner
        try:
            connection = await _connect_to_address(address, port)
        except OSError as error:
            errors.append(error)
        else:
            if winner is None:
                winner = connection
                tasks.cancel_scope.cancel()
            else:
                connection.abort()
        finally:
            ended.set()

    try:
        async with anyio.create_task_group() as tasks:
            for address in addresses:
                ended = anyio.Event()
                tasks.start_soon(attempt, address, ended)
                with anyio.move_on_after(_NEXT_ADDRESS_SECONDS):
                    await ended.wait()
    except BaseException:
        if winner is not None:
            winner.abort()
        raise
    if winner is None:
        raise errors[0] if errors else OSError(f"{host} has no address")
    return winner


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def _connect_to_address(address: str, port: int) -> _AsyncioConnection:
    _, connection = await asyncio.get_running_loop().create_connection(_AsyncioConnection, address, port)
    return connection


@final
class _AsyncioConnection(asyncio.Protocol):
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._chunks: list[bytes] = []
        self._held = 0
        self._paused = False
        self._ended = False
        self._lost: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._writer: asyncio.Future[None] | None = None
        self._blocked = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=0)  # so that what was sent has left

    def data_received(self, data: bytes) -> None:
        self._chunks.append(data)
        self._held += len(data)
        if self._held > _HELD_BYTES and self._transport is not None:
            self._transport.pause_reading()
            self._paused = True
        _wake(self._reader)

    def eof_received(self) -> bool:
        self._ended = True
        _wake(self._reader)
        return True  # closed by whoever uses it

    def pause_writing(self) -> None:
        self._blocked = True

    def resume_writing(self) -> None:
        self._blocked = False
        _wake(self._writer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        self._lost = exc or ConnectionAbortedError("the connection was closed")
        _wake(self._reader)
        _wake(self._writer)

    async def send(self, data: bytes, seconds: float, /) -> None:
        if self._transport is None or self._transport.is_closing():
            raise _broken(self._lost)
        self._transport.write(data)
        if self._blocked:
            with anyio.fail_after(seconds):
                await self._drain()

    async def _drain(self) -> None:
        while self._blocked:
            if self._lost is not None:
                raise _broken(self._lost)
            self._writer = self._loop.create_future()
            try:
                await self._writer
            finally:
                self._writer = None

    async def receive(self, seconds: float, /) -> bytes:
        while not self._chunks:
            if self._ended:
                return b""
            if self._lost is not None:
                raise _broken(self._lost)
            self._reader = self._loop.create_future()
            self._limit(seconds)
            try:
                await self._reader
            finally:
                self._reader = None
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._held = 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return data

    def _limit(self, seconds: float) -> None:
        """Let the reader wait so long.

        The timer stays as it is when the deadline moves on, and looks again when it rings: one for each read would cost
        as much as the read.
        """
        self._deadline = self._loop.time() + seconds
        if self._timer is None or self._timer.when() > self._deadline:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None if seconds == math.inf else self._loop.call_at(self._deadline, self._look_at_the_time)

    def _look_at_the_time(self) -> None:
        self._timer = None
        if self._reader is None or self._reader.done():
            return
        if self._loop.time() < self._deadline:
            self._timer = self._loop.call_at(self._deadline, self._look_at_the_time)
        else:
            self._reader.set_exception(TimeoutError())

    def is_quiet(self) -> bool:
        if self._chunks or self._ended or self._transport is None or self._transport.is_closing():
            return False
        return not _readable(self._transport.get_extra_info("socket").fileno())  # before the loop has looked

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


def _broken(lost: Exception | None) -> OSError:
    """What to raise on a connection that was lost: an error of its own each time, for its traceback."""
    error = ConnectionAbortedError(str(lost or "") or "the connection broke")
    error.__cause__ = lost
    return error


@final
class _TrioConnection:
    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._lost: Exception | None = None

    async def send(self, data: bytes, seconds: float, /) -> None:
        with anyio.fail_after(seconds), self._remembering_errors():
            await self._stream.send_all(data)

    async def receive(self, seconds: float, /) -> bytes:
        import trio

        with trio.CancelScope(deadline=trio.current_time() + seconds), self._remembering_errors():
            return bytes(await self._stream.receive_some(_RECEIVE_BYTES))
        raise TimeoutError

    @contextmanager
    def _remembering_errors(self) -> Generator[None]:
        """A connection that was lost stays lost: the system says so once, and then that there is nothing to read."""
        import trio

        if self._lost is not None:
            raise _broken(self._lost)
        try:
            yield
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self._lost = error
            raise _broken(error) from error

    def is_quiet(self) -> bool:
        return self._lost is None and not _readable(self._stream.socket.fileno())

    def abort(self) -> None:
        self._stream.socket.close()


def _readable(number: int) -> bool:
    """Whether something has come, or the end; -1 is a closed socket's."""
    if number < 0:
        return True
    poll = select.poll()
    poll.register(number, select.POLLIN)
    return bool(poll.poll(0))
