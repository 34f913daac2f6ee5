"""One HTTP/1.1 connection, and one request and its answer on it."""

from __future__ import annotations

import select
import socket
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final, Protocol, final

import anyio
import anyio.abc
import h11

from opsdk.client._credentials import Certificate
from opsdk.errors import ApiConnectionError, ApiProtocolError, ApiTimeoutError

__all__ = ["BROKEN", "Connection", "Exchange", "why"]

_WRITE_SECONDS: Final = 30.0
_KEPT_ALIVE_SECONDS: Final = 60.0
_RECEIVE_BYTES: Final = 65_536
_LONGEST_HEAD_BYTES: Final = 65_536
# ssl.SSLError and ConnectionError are OSErrors.
BROKEN: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError, h11.RemoteProtocolError, OSError)


def why(error: BaseException) -> str:
    """What the error says, or what it came from."""
    reason: BaseException | None = error
    while reason is not None:
        if text := str(reason):
            return text
        reason = reason.__cause__ or reason.__context__
    return "the connection broke"


@final
class Connection:
    """One connection, and where it is in the conversation."""

    def __init__(self, stream: anyio.abc.ByteStream, certificate: Certificate | None) -> None:
        self.stream = stream
        self.certificate = certificate
        self.http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_LONGEST_HEAD_BYTES)
        self._idle_since = 0.0
        self._socket: socket.socket | None = stream.extra(anyio.abc.SocketAttribute.raw_socket, None)  # noqa: S610 - not Django's

    def start_next_cycle(self) -> bool:
        """Get ready for another request; False when that is not possible."""
        if self.http.our_state is not h11.DONE or self.http.their_state is not h11.DONE:
            return False
        self.http.start_next_cycle()
        self._idle_since = anyio.current_time()
        return True

    @property
    def expired(self) -> bool:
        """Whether it has been idle for too long."""
        return anyio.current_time() - self._idle_since > _KEPT_ALIVE_SECONDS

    def stale(self) -> bool:
        """Whether it is expired, or the server has closed it: a server does not speak first."""
        return self.expired or (self._socket is not None and _readable(self._socket))

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.aclose_forcefully(self.stream)


def _readable(one: socket.socket) -> bool:
    number = one.fileno()
    if number < 0:
        return True
    poll = select.poll()
    poll.register(number, select.POLLIN)
    return bool(poll.poll(0))


class _Unzip(Protocol):
    @property
    def eof(self) -> bool: ...
    def decompress(self, data: bytes, /) -> bytes: ...


@final
class Exchange(AsyncIterator[bytes]):
    """One request and its answer; iterates over the answer's body."""

    def __init__(self, connection: Connection, what: str, read_seconds: float) -> None:
        self._connection: Connection | None = connection
        self._stream = connection.stream
        self._http = connection.http
        self._what = what
        self._read_seconds = read_seconds
        self._unzip: _Unzip | None = None
        self._done = False
        self._deadline: _MovingDeadline | None = None
        self.answered = False
        self.status = 0
        self.body = b""
        self.headers: Mapping[str, str] = {}

    def take_connection(self) -> Connection | None:
        """The connection, the first time."""
        connection, self._connection = self._connection, None
        return connection

    async def begin(
        self, head: h11.Request, body: bytes | None, *, whole: bool, gate: Callable[[], None] | None = None
    ) -> None:
        """Send the request, if `gate` does not raise, and read the answer's head, or all of it into `body`.

        One scope limits all of that, with a deadline that moves on: a scope for each step costs as much as decoding
        a small answer.
        """
        parts = [self._http.send(head)]
        if body:
            parts.append(self._http.send(h11.Data(data=body)))
        parts.append(self._http.send(h11.EndOfMessage()))
        data = b"".join(part for part in parts if part)
        if gate is not None:
            gate()
        overdue = "the server does not read"
        with anyio.move_on_after(_WRITE_SECONDS) as scope:
            try:
                await self._stream.send(data)
            except BROKEN as error:
                raise ApiConnectionError(f"{self._what}: {why(error)}") from error
            overdue = self._overdue
            self._deadline = _MovingDeadline(scope, self._read_seconds)
            await self._read_head()
            if whole:
                self.body = b"".join([chunk async for chunk in self])
            self._deadline = None
            return
        raise ApiTimeoutError(f"{self._what}: {overdue}")

    @property
    def _overdue(self) -> str:
        return f"no answer in {self._read_seconds:g} s"

    async def _read_head(self) -> None:
        while True:
            event = await self._event()
            if isinstance(event, h11.Response):
                break
            if not isinstance(event, h11.InformationalResponse):
                raise ApiConnectionError(f"{self._what}: the connection ended without an answer")
        self.status = event.status_code
        self.headers = {name.decode("ascii"): value.decode("latin-1") for name, value in event.headers}
        match self.headers.get("content-encoding", "identity").lower():
            case "identity":
                pass
            case "gzip":
                self._unzip = zlib.decompressobj(zlib.MAX_WBITS | 16)
            case other:
                raise ApiProtocolError(f"{self._what}: the answer is encoded as {other!r}, which was not asked for")

    def __aiter__(self) -> Exchange:
        return self

    async def __anext__(self) -> bytes:
        while not self._done:
            event = await self._event()
            if isinstance(event, h11.Data):
                data = bytes(event.data)
                if self._unzip is None:
                    return data
                if data := self._unzipped(self._unzip, data):
                    return data
            elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                self._done = True
                if self._unzip is not None and not self._unzip.eof and self.status not in {204, 304}:
                    raise ApiConnectionError(f"{self._what}: the compressed answer was cut")
        raise StopAsyncIteration

    def _unzipped(self, unzip: _Unzip, data: bytes) -> bytes:
        try:
            return unzip.decompress(data)
        except zlib.error as error:
            raise ApiProtocolError(f"{self._what}: the answer cannot be decompressed: {error}") from error

    async def _event(self) -> object:
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                if self._deadline is None:
                    data = await self._receive_in_time()
                else:
                    data = await self._receive()
                    self._deadline.move()
                self.answered = self.answered or bool(data)
                self._http.receive_data(data)
        except ApiTimeoutError:  # which is an OSError, too
            raise
        except BROKEN as error:
            raise ApiConnectionError(f"{self._what}: {why(error)}") from error
        return event

    async def _receive_in_time(self) -> bytes:
        with anyio.CancelScope(deadline=anyio.current_time() + self._read_seconds):
            return await self._receive()
        raise ApiTimeoutError(f"{self._what}: {self._overdue}")

    async def _receive(self) -> bytes:
        try:
            return await self._stream.receive(_RECEIVE_BYTES)
        except anyio.EndOfStream:
            return b""


@final
class _MovingDeadline:
    """Ends a scope when nothing has come for so long, or a thirtieth earlier: not every piece moves the deadline."""

    def __init__(self, scope: anyio.CancelScope, seconds: float) -> None:
        self._scope = scope
        self._seconds = seconds
        self._set_at = anyio.current_time()
        scope.deadline = self._set_at + seconds

    def move(self) -> None:
        """Something came."""
        now = anyio.current_time()
        if now - self._set_at > self._seconds / 30:
            self._set_at = now
            self._scope.deadline = now + self._seconds
