"""Stands between an operator and its API server, and does to the connection what networks do.

`tcp_proxy` knows bytes only, so TLS goes through it as it is. `http_proxy` takes plain HTTP, speaks TLS to the server,
and can answer in its place: for answers that a server gives only once in a while.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, TypeAlias, final

import anyio
import anyio.abc
from anyio.streams.tls import TLSStream

__all__ = ["HttpProxy", "Proxied", "Substitute", "TcpProxy", "http_proxy", "tcp_proxy"]

_CHUNK: Final = 65536
_END_OF_HEAD: Final = b"\r\n\r\n"

Substitute: TypeAlias = Callable[[str, str], bytes | None]
"""Given a request's method and target: the raw answer to give in the server's place; None: the server is asked."""


def _flowing() -> anyio.Event:
    event = anyio.Event()
    event.set()
    return event


@final
@dataclass(slots=True, eq=False)
class Proxied:
    """One connection.

    Attributes:
        number: Which one it is, from 1.
        received: How many bytes came from the server.
        targets: What was asked for on it; only where the proxy understands requests.
    """

    number: int
    scope: anyio.CancelScope
    received: int = 0
    targets: list[str] = field(default_factory=list[str])
    flow: anyio.Event = field(default_factory=_flowing)

    def hold(self) -> None:
        """Keep back what comes from the server, and say nothing about it."""
        self.flow = anyio.Event()

    def release(self) -> None:
        """Let through what was kept back, and what comes."""
        self.flow.set()


@final
@dataclass(slots=True, kw_only=True)
class TcpProxy:
    """What happens to bytes is what its attributes say at that moment. All of it is for the loop that it runs on.

    Attributes:
        port: Where it listens, on loopback.
        refusing: New connections are closed at once.
        delay_seconds: How long each piece is held up, in either direction.
        bytes_per_second: How fast each connection is, in either direction; None: as fast as it goes.
        accepted: How many connections there have been.
        open: Those that there are.
    """

    port: int
    refusing: bool = False
    delay_seconds: float = 0.0
    bytes_per_second: float | None = None
    accepted: int = 0
    open: list[Proxied] = field(default_factory=list[Proxied])
    _flow: anyio.Event = field(default_factory=_flowing)

    def stall(self) -> None:
        """Let nothing through any more, in either direction, on new connections too, and say nothing about it."""
        self._flow = anyio.Event()

    def resume(self) -> None:
        """Let through what was held back, and what comes."""
        self._flow.set()

    def cut(self, *which: Proxied) -> int:
        """End connections without a word, all of them if none are named. Returns how many."""
        ending = list(which or self.open)
        for connection in ending:
            connection.scope.cancel()
        return len(ending)

    async def send(self, data: bytes, sink: anyio.abc.ByteSendStream) -> None:
        """Let a piece through, when its time has come."""
        if self.delay_seconds:
            await anyio.sleep(self.delay_seconds)
        if self.bytes_per_second is not None:
            await anyio.sleep(len(data) / self.bytes_per_second)
        while not self._flow.is_set():
            await self._flow.wait()
        await sink.send(data)


async def _copy(
    proxy: TcpProxy, source: anyio.abc.ByteReceiveStream, sink: anyio.abc.ByteSendStream, connection: Proxied | None
) -> None:
    while True:
        data = await source.receive(_CHUNK)
        if connection is not None:
            connection.received += len(data)
            while not connection.flow.is_set():
                await connection.flow.wait()
        await proxy.send(data, sink)


Conversation: TypeAlias = Callable[[Proxied, anyio.abc.ByteStream], Awaitable[None]]


async def _serve(proxy: TcpProxy, listener: anyio.abc.Listener[anyio.abc.SocketStream], converse: Conversation) -> None:
    """Have each connection lead a conversation until one side ends it, or it is cut."""

    async def one(client: anyio.abc.SocketStream) -> None:
        proxy.accepted += 1
        connection = Proxied(proxy.accepted, anyio.CancelScope())
        proxy.open.append(connection)
        try:
            async with client:
                with connection.scope:
                    if not proxy.refusing:
                        await converse(connection, client)
        except* (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            pass  # one side has ended it, or the server is not there
        finally:
            proxy.open.remove(connection)

    async with listener:
        await listener.serve(one)


@asynccontextmanager
async def tcp_proxy(server_port: int) -> AsyncGenerator[TcpProxy]:
    """A proxy in front of a server on loopback, which need not be there all the time."""
    listener = await _listen()
    proxy = TcpProxy(port=listener.extra(anyio.abc.SocketAttribute.local_port))

    async def converse(connection: Proxied, client: anyio.abc.ByteStream) -> None:
        async with await anyio.connect_tcp("127.0.0.1", server_port) as server, anyio.create_task_group() as tasks:
            tasks.start_soon(_copy, proxy, client, server, None)
            tasks.start_soon(_copy, proxy, server, client, connection)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_serve, proxy, listener, converse)
        try:
            yield proxy
        finally:
            tasks.cancel_scope.cancel()


@final
@dataclass(slots=True, kw_only=True)
class HttpProxy:
    """A proxy that understands requests.

    Attributes:
        tcp: What it does to bytes.
        substitute: What it answers in the server's place.
        requests: Method and target of each request that came.
    """

    tcp: TcpProxy
    substitute: Substitute = field(default=lambda _method, _target: None)
    requests: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def watching(self, plural: str) -> list[Proxied]:
        """The connections on which a kind is being watched."""
        found = [one for one in self.tcp.open if one.targets and "watch=true" in one.targets[-1]]
        return [one for one in found if one.targets[-1].partition("?")[0].endswith(f"/{plural}")]

    def targets(self, plural: str, *, watch: bool) -> list[str]:
        """What was asked for when a kind was watched, or listed."""
        return [
            target
            for method, target in self.requests
            if method == "GET" and target.partition("?")[0].endswith(f"/{plural}") and ("watch=true" in target) is watch
        ]


@asynccontextmanager
async def http_proxy(server_port: int, context: ssl.SSLContext) -> AsyncGenerator[HttpProxy]:
    """A proxy that takes plain HTTP/1.1 and asks a server on loopback by TLS. Credentials go through in headers."""
    listener = await _listen()
    proxy = HttpProxy(tcp=TcpProxy(port=listener.extra(anyio.abc.SocketAttribute.local_port)))

    async def requests(connection: Proxied, client: anyio.abc.ByteStream, server: anyio.abc.ByteStream) -> None:
        data = b""
        while True:
            while _END_OF_HEAD not in data:
                data += await client.receive(_CHUNK)
            head, _, data = data.partition(_END_OF_HEAD)
            first, *lines = head.decode("latin-1").split("\r\n")
            method, target, _ = first.split(" ")
            proxy.requests.append((method, target))
            connection.targets.append(target)
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            missing = int(headers.get("content-length", "0"))
            body = b""
            while len(body) < missing:
                taken, data = data[: missing - len(body)], data[missing - len(body) :]
                body += taken or await client.receive(missing - len(body))
            answer = proxy.substitute(method, target)
            if answer is None:
                await proxy.tcp.send(head + _END_OF_HEAD + body, server)
            else:
                await proxy.tcp.send(answer, client)

    async def converse(connection: Proxied, client: anyio.abc.ByteStream) -> None:
        plain = await anyio.connect_tcp("127.0.0.1", server_port)
        async with (
            await TLSStream.wrap(plain, hostname="127.0.0.1", ssl_context=context, standard_compatible=False) as server,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(requests, connection, client, server)
            tasks.start_soon(_copy, proxy.tcp, server, client, connection)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_serve, proxy.tcp, listener, converse)
        try:
            yield proxy
        finally:
            tasks.cancel_scope.cancel()


async def _listen() -> anyio.abc.Listener[anyio.abc.SocketStream]:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", backlog=256)
    (one,) = listener.listeners
    return one
