"""An HTTP/1.1 server on loopback in front of any `Transport`, for kubectl and programs in other processes.

Why not a server off the shelf: `docs/design/serving.md`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final, final
from urllib.parse import parse_qsl

import anyio
import anyio.abc
import h11
from anyio.abc import SocketAttribute

from opsdk.client.transport import HttpRequest, HttpResponse, Transport
from opsdk.errors import ApiError
from opsdk.testing.apiserver._json import Document, encode

__all__ = ["ServedApi", "serve"]

_log = logging.getLogger(__name__)
_MAX_BODY_BYTES: Final = 3 * 1024 * 1024
_MAX_HEADER_BYTES: Final = 256 * 1024
_CHUNK_BYTES: Final = 65536
# What belongs to the connection, not to the answer.
_HOP_BY_HOP: Final = frozenset(
    {"connection", "content-encoding", "content-length", "keep-alive", "transfer-encoding", "upgrade"}
)
_BROKEN: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, h11.ProtocolError)


@final
class ServedApi:
    """A server that listens.

    Args:
        port: The port on 127.0.0.1.
    """

    def __init__(self, port: int) -> None:
        self._port = port

    @property
    def port(self) -> int:
        """The port on 127.0.0.1."""
        return self._port

    @property
    def url(self) -> str:
        """`http://127.0.0.1:<port>`."""
        return f"http://127.0.0.1:{self._port}"

    def kubeconfig(self, *, namespace: str = "default") -> str:
        """The text of a kubeconfig whose current context is this server.

        Args:
            namespace: The context's namespace.
        """
        return (
            "apiVersion: v1\n"
            "kind: Config\n"
            "current-context: opsdk\n"
            "clusters:\n"
            "- name: opsdk\n"
            "  cluster:\n"
            f"    server: {self.url}\n"
            "contexts:\n"
            "- name: opsdk\n"
            "  context:\n"
            "    cluster: opsdk\n"
            "    user: opsdk\n"
            f"    namespace: {namespace}\n"
            "users:\n"
            "- name: opsdk\n"
            "  user: {}\n"
        )


@asynccontextmanager
async def serve(
    transport: Transport, *, port: int = 0, grace: timedelta = timedelta(seconds=2)
) -> AsyncGenerator[ServedApi]:
    """Serve a transport over HTTP while the context is open.

    On leaving, watches and idle connections end at once; requests that are being answered get `grace`.

    *Not promised*: sense on virtual time. Sockets are real, so the loop has to be on real time.

    Args:
        transport: What answers. It is not closed.
        port: Port on 127.0.0.1; 0: a free one.
        grace: How long to wait for answers under way.

    Raises:
        OSError: The port is taken.
    """
    server = _Server(transport)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
    local_port = listener.extra_attributes[SocketAttribute.local_port]()
    failure: Exception | None = None
    async with anyio.create_task_group() as connections:
        async with listener, anyio.create_task_group() as accepting:
            accepting.start_soon(listener.serve, server.handle_connection, connections)
            try:
                yield ServedApi(local_port)
            except Exception as error:  # noqa: BLE001 - raised again outside, where no task group wraps it
                failure = error
            finally:
                accepting.cancel_scope.cancel()
        server.close()
        with anyio.move_on_after(grace.total_seconds()):
            await server.drained()
        connections.cancel_scope.cancel()
    if failure is not None:
        raise failure


@final
class _Server:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._connections: set[_Connection] = set()
        self._closing = False
        self._empty = anyio.Event()

    async def handle_connection(self, stream: anyio.abc.SocketStream) -> None:
        connection = _Connection(stream, self._transport)
        self._connections.add(connection)
        try:
            if not self._closing:
                await connection.run()
        except _BROKEN:
            pass  # the client went away or does not speak HTTP; either way there is nobody to tell
        finally:
            self._connections.discard(connection)
            if self._closing and not self._connections:
                self._empty.set()
            with anyio.CancelScope(shield=True):
                await anyio.aclose_forcefully(stream)

    def close(self) -> None:
        """No further requests: idle connections and streams end, the others after their answer."""
        self._closing = True
        if not self._connections:
            self._empty.set()
        for connection in self._connections:
            connection.close()

    async def drained(self) -> None:
        await self._empty.wait()


@final
class _Connection:
    """One client, one request after the other."""

    def __init__(self, stream: anyio.abc.SocketStream, transport: Transport) -> None:
        self._stream = stream
        self._transport = transport
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEADER_BYTES)
        self._scope = anyio.CancelScope()
        self._answering = False
        self._closing = False

    def close(self) -> None:
        self._closing = True
        if not self._answering:
            self._scope.cancel()

    async def run(self) -> None:
        with self._scope:
            while not self._closing:
                request = await self._next_request()
                if request is None:
                    return
                await self._answer(request)
                if self._h11.our_state is not h11.DONE or self._h11.their_state is not h11.DONE:
                    return
                self._h11.start_next_cycle()

    async def _next_request(self) -> HttpRequest | None:
        """The next request with its body; None when the client is done."""
        head: h11.Request | None = None
        body: list[bytes] = []
        size = 0
        while True:
            event = self._h11.next_event()
            if event is h11.NEED_DATA:
                if self._h11.they_are_waiting_for_100_continue:
                    await self._send(h11.InformationalResponse(status_code=100, headers=[]))
                try:
                    self._h11.receive_data(await self._stream.receive(_CHUNK_BYTES))
                except anyio.EndOfStream:
                    self._h11.receive_data(b"")
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                size += len(event.data)
                if size > _MAX_BODY_BYTES:
                    await self._refuse_body()
                    return None
                body.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                return _request_of(head, b"".join(body))
            else:
                return None

    async def _refuse_body(self) -> None:
        text = f"Request entity too large: limit is {_MAX_BODY_BYTES}"
        await self._send_whole(_status(413, "RequestEntityTooLarge", text))

    async def _answer(self, request: HttpRequest) -> None:
        if _is_stream(request):
            await self._answer_stream(request)
            return
        self._answering = True
        try:
            await self._send_whole(await self._respond(request))
        finally:
            self._answering = False

    async def _respond(self, request: HttpRequest) -> HttpResponse:
        try:
            return await self._transport.request(request)
        except ApiError as error:  # a transport that is a client of another server
            return _status(502, "", f"error trying to reach service: {error}")
        except Exception as error:  # noqa: BLE001 - whatever fails is this request's failure, not the server's
            _log.exception("%s %s failed", request.method, request.path)
            return _status(500, "InternalError", f"Internal error occurred: {error}")

    async def _answer_stream(self, request: HttpRequest) -> None:
        """Pass a stream on as it comes, until it ends or the client goes away."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_for_hangup, tasks.cancel_scope)
            try:
                async with self._transport.stream(request) as answer:
                    await self._send(_head(answer.status, answer.headers, length=None))
                    async for chunk in answer.chunks:
                        if chunk:
                            await self._send(h11.Data(data=chunk))
                await self._send(h11.EndOfMessage())
            except _BROKEN:
                pass
            except Exception:  # noqa: BLE001 - as above
                # Cut the stream: a chunked body without its end is how HTTP says that something broke.
                _log.exception("%s %s failed", request.method, request.path)
            tasks.cancel_scope.cancel()

    async def _watch_for_hangup(self, scope: anyio.CancelScope) -> None:
        try:
            while True:
                data = await self._stream.receive(_CHUNK_BYTES)
                self._h11.receive_data(data)  # the next request of a client that does not wait
        except _BROKEN:
            scope.cancel()

    async def _send_whole(self, response: HttpResponse) -> None:
        head = _head(response.status, response.headers, length=len(response.body))
        data = self._h11.send(head) or b""
        if response.body:
            data += self._h11.send(h11.Data(data=response.body)) or b""
        data += self._h11.send(h11.EndOfMessage()) or b""
        await self._stream.send(data)

    async def _send(self, event: h11.Event) -> None:
        data = self._h11.send(event)
        if data:
            await self._stream.send(data)


def _request_of(head: h11.Request, body: bytes) -> HttpRequest:
    target = head.target.decode("ascii")
    path, _, query = target.partition("?")
    headers: dict[str, str] = {}
    for raw_name, raw_value in head.headers:
        name, value = raw_name.decode("ascii").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return HttpRequest(
        method=head.method.decode("ascii"),
        path=path,
        query=tuple(parse_qsl(query, keep_blank_values=True)),
        headers=headers,
        body=body or None,
    )


def _is_stream(request: HttpRequest) -> bool:
    """Whether the answer comes bit by bit: a watch, or a log that is followed."""
    if request.method != "GET":
        return False
    return any(name in {"watch", "follow"} and value not in {"false", "0"} for name, value in request.query)


def _head(status: int, headers: Mapping[str, str], *, length: int | None) -> h11.Response:
    kept = [(name, value) for name, value in headers.items() if name not in _HOP_BY_HOP]
    kept.append(("transfer-encoding", "chunked") if length is None else ("content-length", str(length)))
    return h11.Response(status_code=status, headers=kept)


def _status(code: int, reason: str, message: str) -> HttpResponse:
    document: Document = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    return HttpResponse(status=code, headers={"content-type": "application/json"}, body=encode(document))
