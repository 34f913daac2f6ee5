"""One HTTP/1.1 connection, and one request and its answer on it."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final, Protocol, final

import anyio
import anyio.lowlevel

from opsdk.client._credentials import Certificate
from opsdk.client._http1 import Answer
from opsdk.client._wire import Wire
from opsdk.errors import ApiConnectionError, ApiProtocolError, ApiTimeoutError

__all__ = ["Connection", "Exchange", "why"]

_WRITE_SECONDS: Final = 30.0
_KEPT_ALIVE_SECONDS: Final = 60.0


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
    """One connection, kept for the next request while it can be."""

    def __init__(self, wire: Wire, certificate: Certificate | None) -> None:
        self.wire = wire
        self.certificate = certificate
        self._idle_since = 0.0

    def rest(self) -> None:
        """It is idle from now on."""
        self._idle_since = anyio.current_time()

    @property
    def expired(self) -> bool:
        """Whether it has been idle for too long."""
        return anyio.current_time() - self._idle_since > _KEPT_ALIVE_SECONDS

    def stale(self) -> bool:
        """Whether it is expired, or the server has closed it: a server does not speak first."""
        return self.expired or not self.wire.is_quiet()

    def close(self) -> None:
        """Close it at once."""
        self.wire.abort()


class _Unzip(Protocol):
    @property
    def eof(self) -> bool: ...
    def decompress(self, data: bytes, /) -> bytes: ...


@final
class Exchange(AsyncIterator[bytes]):
    """One request and its answer; iterates over the answer's body."""

    def __init__(self, connection: Connection, what: str, read_seconds: float) -> None:
        self._connection: Connection | None = connection
        self._wire = connection.wire
        self._answer = Answer()
        self._what = what
        self._read_seconds = read_seconds
        self._unzip: _Unzip | None = None
        self.answered = False
        self.body = b""

    @property
    def status(self) -> int:
        """The answer's status code."""
        return self._answer.status

    @property
    def headers(self) -> Mapping[str, str]:
        """The answer's headers."""
        return self._answer.headers

    @property
    def reusable(self) -> bool:
        """Whether another request may follow on the connection."""
        return self._answer.reusable

    def take_connection(self) -> Connection | None:
        """The connection, the first time."""
        connection, self._connection = self._connection, None
        return connection

    async def begin(self, data: bytes, *, whole: bool, gate: Callable[[], None] | None = None) -> None:
        """Send the request, if `gate` does not raise, and read the answer's head, or all of it into `body`."""
        await anyio.lowlevel.checkpoint_if_cancelled()  # asyncio's sockets take bytes from whoever gives them
        if gate is not None:
            gate()
        try:
            await self._wire.send(data, _WRITE_SECONDS)
        except TimeoutError as error:
            raise ApiTimeoutError(f"{self._what}: the server does not read") from error
        except OSError as error:
            raise self._broken(error) from error
        try:
            while not self._answer.read_head():
                await self._more()
        except OSError as error:
            raise self._broken(error) from error
        match self._answer.headers.get("content-encoding", "identity").lower():
            case "identity":
                pass
            case "gzip":
                self._unzip = zlib.decompressobj(zlib.MAX_WBITS | 16)
            case other:
                raise ApiProtocolError(f"{self._what}: the answer is encoded as {other!r}, which was not asked for")
        if whole:
            parts: list[bytes] = []
            while part := await self._next():
                parts.append(part)
            self.body = parts[0] if len(parts) == 1 else b"".join(parts)

    def __aiter__(self) -> Exchange:
        return self

    async def __anext__(self) -> bytes:
        data = await self._next()
        if not data:
            raise StopAsyncIteration
        return data

    async def _next(self) -> bytes:
        """More of the body; nothing at its end."""
        answer = self._answer
        while True:
            try:
                while not (data := answer.read_body()) and not answer.done:
                    await self._more()
            except OSError as error:
                raise self._broken(error) from error
            if self._unzip is None:
                return data
            if data and (data := self._unzipped(self._unzip, data)):
                return data
            if answer.done:
                if not self._unzip.eof and self.status not in {204, 304}:
                    raise ApiConnectionError(f"{self._what}: the compressed answer was cut")
                return b""

    def _unzipped(self, unzip: _Unzip, data: bytes) -> bytes:
        try:
            return unzip.decompress(data)
        except zlib.error as error:
            raise ApiProtocolError(f"{self._what}: the answer cannot be decompressed: {error}") from error

    async def _more(self) -> None:
        data = await self._wire.receive(self._read_seconds)
        self.answered = self.answered or bool(data)
        self._answer.feed(data)

    def _broken(self, error: OSError) -> ApiConnectionError:
        if isinstance(error, TimeoutError):
            return ApiTimeoutError(f"{self._what}: no answer in {self._read_seconds:g} s")
        return ApiConnectionError(f"{self._what}: {why(error)}")
