"""The transport on anyio and h11: a quarter of the CPU that a general HTTP client needs for a small request."""

from __future__ import annotations

import select
import socket
import ssl
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final, Protocol, final
from urllib.parse import urlencode, urlsplit

import anyio
import anyio.abc
import h11
from anyio.streams.tls import TLSStream

from opsdk.client._auth import authorization_of
from opsdk.client._credentials import Certificate, Credential, authorized
from opsdk.client._tls import load_certificate, ssl_context_of
from opsdk.client.kubeconfig import ClientConfig
from opsdk.client.transport import HttpRequest, HttpResponse, HttpStream
from opsdk.errors import ApiConnectionError, ApiProtocolError, ApiTimeoutError, ConfigurationError

__all__ = ["LeanTransport"]

_CONNECT_SECONDS: Final = 10.0
_READ_SECONDS: Final = 30.0
_WRITE_SECONDS: Final = 30.0
_KEPT_ALIVE: Final = 20
_KEPT_ALIVE_SECONDS: Final = 60.0
_RECEIVE_BYTES: Final = 65_536
_LONGEST_HEAD_BYTES: Final = 65_536
# ssl.SSLError and ConnectionError are OSErrors.
_BROKEN: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError, h11.RemoteProtocolError, OSError)


@final
class LeanTransport:
    """Carries requests over HTTP/1.1, on connections that are kept and used again.

    Every request and every stream that is under way has a connection of its own, in any number: many watches starve
    nobody. A kept connection that turns out to be closed is replaced where nothing can be done twice: for a GET.

    *Not promised*: proxies (use `HttpxTransport`), HTTP/2.

    Args:
        config: The server and the credentials.

    Raises:
        ConfigurationError: A certificate or credential cannot be used, or a proxy is asked for; the text names the
            field.
    """

    def __init__(self, config: ClientConfig) -> None:
        if config.proxy_url is not None:
            raise ConfigurationError(f"{config.source}: cluster.proxy-url needs HttpxTransport")
        url = urlsplit(config.server)
        self._server = config.server.rstrip("/")
        self._prefix = url.path.rstrip("/")
        self._host = url.hostname or ""
        self._port = url.port or (443 if url.scheme == "https" else 80)
        self._tls: ssl.SSLContext | None = None
        if url.scheme == "https":
            self._tls = ssl_context_of(config)
            self._tls.set_alpn_protocols(["http/1.1"])
        self._tls_hostname = config.tls_server_name or self._host
        self._authorization = authorization_of(config)
        self._certificate: Certificate | None = None
        self._source = config.source
        self._headers = [("host", url.netloc.rpartition("@")[2])]
        if config.impersonate is not None:
            self._headers += config.impersonate.headers()
        self._idle: list[_Connection] = []
        self._closed = False

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        """Send and read the whole answer."""

        async def send(credential: Credential) -> HttpResponse:
            exchange = await self._begin(request, [("accept-encoding", "gzip")], credential)
            try:
                parts = [chunk async for chunk in exchange]
            finally:
                await self._end(exchange)
            return HttpResponse(status=exchange.status, headers=exchange.headers, body=b"".join(parts))

        async def discard(response: HttpResponse) -> None:
            """It was read to its end."""

        return await authorized(self._authorization, send, lambda response: response.status, discard)

    @asynccontextmanager
    async def stream(self, request: HttpRequest, /) -> AsyncGenerator[HttpStream]:
        """Send and hand out the answer as it comes; leaving the context drops the connection if more was to come."""

        async def send(credential: Credential) -> _Exchange:
            return await self._begin(request, [], credential)

        exchange = await authorized(self._authorization, send, lambda exchange: exchange.status, self._end)
        try:
            yield HttpStream(status=exchange.status, headers=exchange.headers, chunks=exchange)
        finally:
            await self._end(exchange)

    async def aclose(self) -> None:
        """Close all connections that are not in use; the others are closed when they are done."""
        self._closed = True
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()

    async def _begin(self, request: HttpRequest, headers: list[tuple[str, str]], credential: Credential) -> _Exchange:
        """Send the request and read the head of the answer."""
        what = f"{request.method} {self._server}{request.path}"
        if self._closed:
            raise ApiConnectionError(f"{what}: the client is closed", sent=False)
        if credential.certificate is not None and credential.certificate != self._certificate:
            await self._use(credential.certificate)
        headers = [*self._headers, *request.headers.items(), *headers]
        if credential.header is not None:
            headers.append(("authorization", credential.header))
        if request.body is not None or request.method != "GET":
            headers.append(("content-length", str(len(request.body or b""))))
        target = f"{self._prefix}{request.path}"
        if request.query:
            target += f"?{urlencode(request.query)}"
        try:
            head = h11.Request(method=request.method, target=target, headers=headers)
        except h11.LocalProtocolError:
            raise ApiProtocolError(f"{what}: a header or the path has characters that HTTP does not allow") from None
        read_seconds = _READ_SECONDS if request.read_timeout is None else request.read_timeout.total_seconds()
        while True:
            connection = await self._take_idle()
            kept = connection is not None
            if connection is None:
                connection = await self._connect(what)
            exchange = _Exchange(connection, what, read_seconds)
            try:
                await exchange.begin(head, request.body)
            except ApiTimeoutError:
                await connection.close()
                raise
            except ApiConnectionError:
                await connection.close()
                if kept and request.method == "GET" and not exchange.answered:
                    continue
                raise
            except BaseException:
                await connection.close()
                raise
            return exchange

    async def _use(self, certificate: Certificate) -> None:
        """Connect with that certificate from now on, and not again on connections made with another."""
        if self._tls is not None:
            load_certificate(self._tls, certificate, source=self._source)
        self._certificate = certificate
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()

    async def _end(self, exchange: _Exchange) -> None:
        """Keep the connection if the answer was read to its end, else close it."""
        connection = exchange.take_connection()
        if connection is None:
            return
        if (
            self._closed
            or connection.certificate != self._certificate
            or len(self._idle) >= _KEPT_ALIVE
            or not connection.start_next_cycle()
        ):
            await connection.close()
        else:
            self._idle.append(connection)

    async def _take_idle(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()  # the one used last: the others can grow old
            if not connection.stale():
                return connection
            await connection.close()
        return None

    async def _connect(self, what: str) -> _Connection:
        certificate = self._certificate
        try:
            with anyio.fail_after(_CONNECT_SECONDS):
                stream: anyio.abc.ByteStream = await anyio.connect_tcp(self._host, self._port)
                if self._tls is not None:
                    stream = await self._encrypt(stream, self._tls)
        except TimeoutError as error:
            raise ApiTimeoutError(f"{what}: no connection in {_CONNECT_SECONDS:g} s", sent=False) from error
        except (anyio.EndOfStream, *_BROKEN) as error:
            raise ApiConnectionError(f"{what}: {_why(error)}", sent=False) from error
        return _Connection(stream, certificate)

    async def _encrypt(self, stream: anyio.abc.ByteStream, context: ssl.SSLContext) -> anyio.abc.ByteStream:
        try:
            return await TLSStream.wrap(
                stream, hostname=self._tls_hostname, ssl_context=context, standard_compatible=False
            )
        except BaseException:
            await anyio.aclose_forcefully(stream)
            raise


def _why(error: BaseException) -> str:
    """What the error says, or what it came from."""
    reason: BaseException | None = error
    while reason is not None:
        if text := str(reason):
            return text
        reason = reason.__cause__ or reason.__context__
    return "the connection broke"


@final
class _Connection:
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

    def stale(self) -> bool:
        """Whether it has been idle for too long, or the server has closed it: a server does not speak first."""
        if anyio.current_time() - self._idle_since > _KEPT_ALIVE_SECONDS:
            return True
        return self._socket is not None and _readable(self._socket)

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
class _Exchange(AsyncIterator[bytes]):
    """One request and its answer; iterates over the answer's body."""

    def __init__(self, connection: _Connection, what: str, read_seconds: float) -> None:
        self._connection: _Connection | None = connection
        self._stream = connection.stream
        self._http = connection.http
        self._what = what
        self._read_seconds = read_seconds
        self._unzip: _Unzip | None = None
        self._done = False
        self.answered = False
        self.status = 0
        self.headers: Mapping[str, str] = {}

    def take_connection(self) -> _Connection | None:
        """The connection, the first time."""
        connection, self._connection = self._connection, None
        return connection

    async def begin(self, head: h11.Request, body: bytes | None) -> None:
        """Send the request and read the answer's head."""
        parts = [self._http.send(head)]
        if body:
            parts.append(self._http.send(h11.Data(data=body)))
        parts.append(self._http.send(h11.EndOfMessage()))
        data = b"".join(part for part in parts if part)
        try:
            with anyio.fail_after(_WRITE_SECONDS):
                await self._stream.send(data)
        except TimeoutError as error:
            raise ApiTimeoutError(f"{self._what}: the server does not read") from error
        except _BROKEN as error:
            raise ApiConnectionError(f"{self._what}: {_why(error)}") from error
        while True:
            event = await self._event()
            if isinstance(event, h11.Response):
                break
            if not isinstance(event, h11.InformationalResponse):
                raise ApiConnectionError(f"{self._what}: the connection ended without an answer")
        self.status = event.status_code
        self.headers = {name.decode("ascii").lower(): value.decode("latin-1") for name, value in event.headers}
        match self.headers.get("content-encoding", "identity").lower():
            case "identity":
                pass
            case "gzip":
                self._unzip = zlib.decompressobj(zlib.MAX_WBITS | 16)
            case other:
                raise ApiProtocolError(f"{self._what}: the answer is encoded as {other!r}, which was not asked for")

    def __aiter__(self) -> _Exchange:
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
                with anyio.fail_after(self._read_seconds):
                    try:
                        data = await self._stream.receive(_RECEIVE_BYTES)
                    except anyio.EndOfStream:
                        data = b""
                self.answered = self.answered or bool(data)
                self._http.receive_data(data)
        except TimeoutError as error:
            raise ApiTimeoutError(f"{self._what}: no answer in {self._read_seconds:g} s") from error
        except _BROKEN as error:
            raise ApiConnectionError(f"{self._what}: {_why(error)}") from error
        return event
