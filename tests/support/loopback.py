"""A small HTTP server on loopback that does what a test says, byte by byte."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import anyio
import anyio.abc
from anyio.streams.tls import TLSListener

from opsdk.client import ClientConfig, HttpRequest, Transport
from opsdk.types import Json

__all__ = [
    "CHUNKED",
    "Exchange",
    "Handler",
    "MakeTransport",
    "Server",
    "chunk",
    "config",
    "connected",
    "get",
    "reply",
    "serving",
    "using",
]

MakeTransport = Callable[[ClientConfig], Transport]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request as the server saw it, and the connection it came on."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    connection: int
    stream: anyio.abc.ByteStream


Handler = Callable[[Exchange], Awaitable[bytes | None]]
"""Returns the raw answer to send; None ends the connection."""


@dataclass(slots=True)
class Server:
    """Where it is, and what came so far."""

    port: int
    connections: int = 0
    open: int = 0
    exchanges: list[Exchange] = field(default_factory=list[Exchange])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def reply(body: bytes = b"{}", *, status: str = "200 OK", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


@asynccontextmanager
async def serving(handler: Handler, *, tls: ssl.SSLContext | None = None) -> AsyncGenerator[Server]:
    listener: anyio.abc.Listener[anyio.abc.ByteStream] = await anyio.create_tcp_listener(
        local_host="127.0.0.1", backlog=256
    )
    server = Server(listener.extra(anyio.abc.SocketAttribute.local_port))
    if tls is not None:
        listener = TLSListener(listener, ssl_context=tls, standard_compatible=False)

    async def serve(stream: anyio.abc.ByteStream) -> None:
        server.connections += 1
        number = server.connections
        server.open += 1
        data = b""
        try:
            async with stream:
                while True:
                    while b"\r\n\r\n" not in data:
                        data += await stream.receive()
                    head, data = data.split(b"\r\n\r\n", 1)
                    first, *lines = head.decode().split("\r\n")
                    headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in lines)}
                    length = int(headers.get("content-length", "0"))
                    while len(data) < length:
                        data += await stream.receive()
                    method, target, _ = first.split(" ")
                    exchange = Exchange(
                        method=method,
                        target=target,
                        headers=headers,
                        body=data[:length],
                        connection=number,
                        stream=stream,
                    )
                    data = data[length:]
                    server.exchanges.append(exchange)
                    answer = await handler(exchange)
                    if answer is None:
                        return
                    await stream.send(answer)
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, ssl.SSLError):
            pass
        finally:
            server.open -= 1

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        try:
            yield server
        finally:
            tasks.cancel_scope.cancel()


def config(
    server: str, *, user: Mapping[str, Json] | None = None, cluster: Mapping[str, Json] | None = None
) -> ClientConfig:
    return ClientConfig.from_dict(
        {
            "current-context": "x",
            "clusters": [{"name": "x", "cluster": {"server": server, **(cluster or {})}}],
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
            "users": [{"name": "x", "user": dict(user or {})}],
        }
    )


@asynccontextmanager
async def using(transport: Transport) -> AsyncGenerator[Transport]:
    try:
        yield transport
    finally:
        await transport.aclose()


@asynccontextmanager
async def connected(handler: Handler, make_transport: MakeTransport) -> AsyncGenerator[Transport]:
    async with serving(handler) as server, using(make_transport(config(server.url))) as transport:
        yield transport


def get(path: str = "/x", *, read_timeout: timedelta | None = None) -> HttpRequest:
    return HttpRequest(method="GET", path=path, read_timeout=read_timeout)
