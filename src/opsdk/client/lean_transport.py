"""The transport with nothing to spare: a fifth of the CPU that a general HTTP client needs for a small request."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final, final
from urllib.parse import urlencode, urlsplit

import anyio

from opsdk._tcp import connect_tcp
from opsdk.client._auth import authorization_of
from opsdk.client._credentials import Certificate, Credential, authorized
from opsdk.client._exchange import Connection, Exchange, why
from opsdk.client._http1 import header_block, request_line
from opsdk.client._tls import load_certificate, ssl_context_of
from opsdk.client._wire import TlsWire, Wire
from opsdk.client.kubeconfig import ClientConfig
from opsdk.client.transport import HttpRequest, HttpResponse, HttpStream
from opsdk.errors import ApiConnectionError, ApiProtocolError, ApiTimeoutError, ConfigurationError

__all__ = ["LeanTransport"]

_CONNECT_SECONDS: Final = 10.0
_READ_SECONDS: Final = 30.0
_KEPT_ALIVE: Final = 20
_REMEMBERED_HEADERS: Final = 64


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
        self._idle: list[Connection] = []
        self._blocks: dict[tuple[tuple[str, str], ...], bytes] = {}  # most requests have the same headers
        self._closed = False

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        """Send and read the whole answer."""

        async def send(credential: Credential) -> HttpResponse:
            exchange = await self._begin(request, credential, whole=True)
            await self._end(exchange)
            return HttpResponse(status=exchange.status, headers=exchange.headers, body=exchange.body)

        async def discard(response: HttpResponse) -> None:
            """It was read to its end."""

        return await authorized(self._authorization, send, lambda response: response.status, discard)

    @asynccontextmanager
    async def stream(self, request: HttpRequest, /) -> AsyncGenerator[HttpStream]:
        """Send and hand out the answer as it comes; leaving the context drops the connection if more was to come."""

        async def send(credential: Credential) -> Exchange:
            return await self._begin(request, credential, whole=False)

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
            connection.close()

    async def _begin(self, request: HttpRequest, credential: Credential, *, whole: bool) -> Exchange:
        """Send the request and read the head of the answer, or all of it."""
        what = f"{request.method} {self._server}{request.path}"
        if self._closed:
            raise ApiConnectionError(f"{what}: the client is closed", sent=False)
        if credential.certificate is not None and credential.certificate != self._certificate:
            await self._use(credential.certificate)
        data = self._encoded(request, credential, what, compressed=whole)
        read_seconds = _READ_SECONDS if request.read_timeout is None else request.read_timeout.total_seconds()
        while True:
            connection = await self._take_idle()
            kept = connection is not None
            if connection is None:
                connection = await self._connect(what)
            exchange = Exchange(connection, what, read_seconds)
            try:
                await exchange.begin(data, whole=whole, gate=request.gate)
            except ApiTimeoutError:
                connection.close()
                raise
            except ApiConnectionError:
                connection.close()
                if kept and request.method == "GET" and not exchange.answered:
                    continue
                raise
            except BaseException:
                connection.close()
                raise
            return exchange

    def _encoded(self, request: HttpRequest, credential: Credential, what: str, *, compressed: bool) -> bytes:
        headers = [*self._headers, *request.headers.items()]
        if compressed:
            headers.append(("accept-encoding", "gzip"))
        if credential.header is not None:
            headers.append(("authorization", credential.header))
        target = f"{self._prefix}{request.path}"
        if request.query:
            target += f"?{urlencode(request.query)}"
        key = tuple(headers)
        try:
            line = request_line(request.method, target)
            block = self._blocks.get(key) or header_block(key)
        except ValueError as error:
            raise ApiProtocolError(f"{what}: {error}") from None
        if key not in self._blocks:
            if len(self._blocks) >= _REMEMBERED_HEADERS:
                self._blocks.clear()
            self._blocks[key] = block
        if request.body is None and request.method == "GET":
            return b"%b%b\r\n" % (line, block)
        body = request.body or b""
        return b"%b%bcontent-length: %d\r\n\r\n%b" % (line, block, len(body), body)

    async def _use(self, certificate: Certificate) -> None:
        """Connect with that certificate from now on, and not again on connections made with another."""
        if self._tls is not None:
            load_certificate(self._tls, certificate, source=self._source)
        self._certificate = certificate
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    async def _end(self, exchange: Exchange) -> None:
        """Keep the connection if the answer was read to its end, else close it."""
        connection = exchange.take_connection()
        if connection is None:
            return
        if (
            self._closed
            or connection.certificate != self._certificate
            or len(self._idle) >= _KEPT_ALIVE
            or not exchange.reusable
        ):
            connection.close()
            return
        connection.rest()
        self._idle.append(connection)
        while self._idle and self._idle[0].expired:  # the one used least recently
            self._idle.pop(0).close()

    async def _take_idle(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()  # the one used last: the others can grow old
            if not connection.stale():
                return connection
            connection.close()
        return None

    async def _connect(self, what: str) -> Connection:
        certificate = self._certificate
        try:
            with anyio.fail_after(_CONNECT_SECONDS):
                wire: Wire = await connect_tcp(self._host, self._port)
                if self._tls is not None:
                    wire = await self._encrypt(wire, self._tls)
        except TimeoutError as error:
            raise ApiTimeoutError(f"{what}: no connection in {_CONNECT_SECONDS:g} s", sent=False) from error
        except OSError as error:  # ssl.SSLError is one
            raise ApiConnectionError(f"{what}: {why(error)}", sent=False) from error
        return Connection(wire, certificate)

    async def _encrypt(self, connection: Wire, context: ssl.SSLContext) -> Wire:
        wire = TlsWire(connection, context, self._tls_hostname)
        try:
            await wire.shake_hands(_CONNECT_SECONDS)
        except BaseException:
            wire.abort()
            raise
        return wire
