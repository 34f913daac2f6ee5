"""The transport on httpx2: proxies, and whatever else httpx2 can do."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Final, final

import anyio
import httpx2

from opsdk.client._auth import authorization_of
from opsdk.client._credentials import Certificate, Credential, authorized
from opsdk.client._gates import gate_extension
from opsdk.client._tls import load_certificate, ssl_context_of
from opsdk.client.kubeconfig import ClientConfig
from opsdk.client.transport import HttpRequest, HttpResponse, HttpStream
from opsdk.errors import ApiConnectionError, ApiError, ApiProtocolError, ApiTimeoutError

__all__ = ["HttpxTransport"]

_CONNECT_SECONDS: Final = 10.0
_READ_SECONDS: Final = 30.0
_KEPT_ALIVE: Final = 20
_KEPT_ALIVE_SECONDS: Final = 60.0


@final
class HttpxTransport:
    """Carries requests over HTTP/1.1 with httpx2.

    Streams and ordinary requests have connections of their own, in any number: many watches starve nobody. With client
    certificates from an exec plugin no connection is used twice.

    Args:
        config: The server and the credentials.

    Raises:
        ConfigurationError: A certificate or credential cannot be used; the text names the field.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._server = config.server
        self._authorization = authorization_of(config)
        self._headers = [] if config.impersonate is None else config.impersonate.headers()
        self._extensions: dict[str, str] = {}
        if config.tls_server_name is not None:
            self._extensions["sni_hostname"] = config.tls_server_name
        self._source = config.source
        self._certificate: Certificate | None = None
        self._context = ssl_context_of(config)

        def connect(kept_alive: int) -> httpx2.AsyncClient:
            return httpx2.AsyncClient(
                base_url=config.server,
                verify=self._context,
                proxy=config.proxy_url,
                timeout=httpx2.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS),
                limits=httpx2.Limits(
                    max_connections=None,
                    max_keepalive_connections=kept_alive,
                    keepalive_expiry=_KEPT_ALIVE_SECONDS,
                ),
            )

        self._unary = connect(_KEPT_ALIVE)
        self._streams = connect(0)
        self._closed = False

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        """Send and read the whole answer."""
        try:
            response = await self._send(self._unary, request)
            try:
                body = await response.aread()
            finally:
                await response.aclose()
        except httpx2.HTTPError as error:
            raise _failure(self._server, request, error) from error
        return HttpResponse(status=response.status_code, headers=_headers(response), body=body)

    @asynccontextmanager
    async def stream(self, request: HttpRequest, /) -> AsyncGenerator[HttpStream]:
        """Send and hand out the answer as it comes; leaving the context drops the connection."""
        # A kube-apiserver compresses the initial events of a watch, and what follows as further gzip members, which
        # httpx2 takes for the end of the body: everything after the initial events would be lost without a sign.
        request = replace(request, headers={"accept-encoding": "identity", **request.headers})
        try:
            response = await self._send(self._streams, request)
        except httpx2.HTTPError as error:
            raise _failure(self._server, request, error) from error
        chunks = _Chunks(self._server, request, response)
        try:
            yield HttpStream(status=response.status_code, headers=_headers(response), chunks=chunks)
        finally:
            await chunks.drop()

    async def aclose(self) -> None:
        """Close all connections."""
        self._closed = True
        await self._unary.aclose()
        await self._streams.aclose()

    async def _send(self, client: httpx2.AsyncClient, request: HttpRequest) -> httpx2.Response:
        """Send with credentials; the body is not read yet."""
        if self._closed:
            raise ApiConnectionError(f"{request.method} {request.path}: the client is closed", sent=False)

        async def send(credential: Credential) -> httpx2.Response:
            if credential.certificate is None:
                return await self._send_as(client, request, credential.header)
            if credential.certificate != self._certificate:
                load_certificate(self._context, credential.certificate, source=self._source)
                self._certificate = credential.certificate
            # Kept connections would go on with the certificate that they were made with.
            return await self._send_as(self._streams, request, credential.header)

        return await authorized(
            self._authorization, send, lambda response: response.status_code, httpx2.Response.aclose
        )

    async def _send_as(
        self, client: httpx2.AsyncClient, request: HttpRequest, authorization: str | None
    ) -> httpx2.Response:
        headers = [*request.headers.items(), *self._headers]
        if authorization is not None:
            headers.append(("authorization", authorization))
        read = _READ_SECONDS if request.read_timeout is None else request.read_timeout.total_seconds()
        prepared = client.build_request(
            request.method,
            request.path,
            params=list(request.query) or None,
            headers=headers,
            content=request.body,
            timeout=httpx2.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS, read=read),
            extensions={**self._extensions, **gate_extension(request.gate)},
        )
        return await client.send(prepared, stream=True)


def _failure(server: str, request: HttpRequest, error: httpx2.HTTPError) -> ApiError:
    what = f"{request.method} {server.rstrip('/')}{request.path}: {_why(error)}"
    match error:
        case httpx2.ConnectTimeout() | httpx2.PoolTimeout():
            return ApiTimeoutError(what, sent=False)
        case httpx2.TimeoutException():
            return ApiTimeoutError(what)
        case httpx2.ConnectError() | httpx2.ProxyError() | httpx2.UnsupportedProtocol():
            return ApiConnectionError(what, sent=False)
        case httpx2.TransportError():
            return ApiConnectionError(what)
        case _:
            return ApiProtocolError(what)


def _why(error: httpx2.HTTPError) -> str:
    match error:
        case httpx2.ConnectTimeout():
            return f"no connection in {timedelta(seconds=_CONNECT_SECONDS).total_seconds():g} s"
        case httpx2.ReadTimeout():
            return "no answer in time"
        case _:
            return _text(error)


def _text(error: BaseException) -> str:
    """What the error says, or what it came from: on trio, httpx2's own text is often empty."""
    reason: BaseException | None = error
    while reason is not None:
        if text := str(reason):
            return text
        reason = reason.__cause__ or reason.__context__
    return type(error).__name__


def _headers(response: httpx2.Response) -> Mapping[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}


@final
class _Chunks(AsyncIterator[bytes]):
    def __init__(self, server: str, request: HttpRequest, response: httpx2.Response) -> None:
        self._server = server
        self._request = request
        self._response = response
        self._body = response.aiter_bytes()

    def __aiter__(self) -> _Chunks:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await anext(self._body)
        except httpx2.HTTPError as error:
            raise _failure(self._server, self._request, error) from error

    async def drop(self) -> None:
        """Close the connection, and the generators within generators that httpx2 leaves half-way.

        Reading on is what ends all of them: what the connection had still received comes first, then an error.
        """
        with anyio.CancelScope(shield=True):
            await self._response.aclose()
            with suppress(httpx2.HTTPError, httpx2.StreamError):
                async for _ in self._body:
                    pass
            await self._body.aclose()
