"""Requests, lists and watches at the level of bytes: what caches and tools build on.

Nothing here knows a model. Objects are the bytes in which the server sent them.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final, Literal, Protocol, final

import anyio
import msgspec

from opsdk.client._lines import LineBuffer
from opsdk.client._queries import selection, whole_seconds
from opsdk.client._status import status_error
from opsdk.client.transport import HttpRequest, HttpStream, Transport
from opsdk.errors import ApiConnectionError, ApiProtocolError, ApiStatusError, ApiTimeoutError
from opsdk.models import ResourceInfo
from opsdk.types import LabelSelector

__all__ = ["RawClient", "RawEvent", "RawPage", "RequestObserver", "WriteGate"]

WriteGate = Callable[[], None]
"""Called before each request that may change something is sent; raises to stop it.

It is asked before each try, so that a closed gate costs no connection, and by the transport once more, in the task that
sends: when there is a connection, right before the first byte goes. It must be quick, and must not wait.
"""

VERSION: Final = "0.1.0"
"""What pyproject.toml says, which a test compares: to ask for it would load zipfile and email, 10 ms of a start."""

_USER_AGENT: Final = f"opsdk/{VERSION}"
_TRIES: Final = 3
_FIRST_BACKOFF_SECONDS: Final = 0.2
_LONGEST_WAIT: Final = timedelta(seconds=30)
_NEVER: Final = timedelta(days=1)
_SLACK: Final = timedelta(seconds=30)
_HEAD_SLACK: Final = timedelta(seconds=1)
"""Beyond the inactivity limit, which is kept here: so the transport's limit is for an answer that does not begin."""
_LONGEST_ERROR_BYTES: Final = 65_536
_NO_ANSWER: Final = "<error>"
# A server that cannot write metadata alone sends the whole.
_LIST_OF_METADATA: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"


class RequestObserver(Protocol):
    """Told about every request that was sent, each try counted."""

    def observe(self, *, verb: str, host: str, code: str, seconds: float) -> None:
        """One request was answered.

        Args:
            verb: The HTTP method.
            host: The API server, as `host:port`; empty when it is in memory.
            code: The status code, or `<error>` when no answer came.
            seconds: Time until the whole answer was there; for a watch, until its head was.
        """
        ...


@final
class RawPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a list.

    Args:
        items: The objects. Those of built-in kinds come without `apiVersion` and `kind`.
        resource_version: The list's own, never an item's.
        continue_token: Asks for the next page; empty on the last.
    """

    items: list[bytes]
    resource_version: str
    continue_token: str


@final
class RawEvent(msgspec.Struct, frozen=True, gc=False):
    """One event of a watch.

    Args:
        type: What happened.
        object: The object; of a bookmark, one that has metadata only.
    """

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: bytes


class _ListMeta(msgspec.Struct):
    resource_version: str | None = msgspec.field(name="resourceVersion", default=None)
    continue_token: str | None = msgspec.field(name="continue", default=None)


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


_LISTS: Final = msgspec.json.Decoder(_List)
_EVENTS: Final = msgspec.json.Decoder(_Event)


@final
class RawClient:
    """Sends requests and turns answers that are errors into exceptions.

    What is tried again, up to three times in all, with exponential backoff and jitter: a request of which nothing was
    sent; a GET whose connection broke; and, after as long as the server asks for but at most 30 s, a GET or a request
    with a precondition that was answered with 429 or 503 and `Retry-After`. Nothing else is repeated.

    Args:
        transport: Carries the requests; not closed by this class.
        observer: Told about every request.
        write_gate: Called before each try of a request other than GET, and again right before its first byte goes.
        host: The API server, for the observer.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        observer: RequestObserver | None = None,
        write_gate: WriteGate | None = None,
        host: str = "",
    ) -> None:
        self._transport = transport
        self._observer = observer
        self._write_gate = write_gate
        self._host = host

    @property
    def transport(self) -> Transport:
        """What carries the requests."""
        return self._transport

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        read_timeout: timedelta | None = None,
        preconditioned: bool = False,
    ) -> bytes:
        """Send one request and return the answer's body.

        Args:
            method: The HTTP method.
            path: Absolute and percent-encoded.
            query: Parameters, not encoded.
            body: What to send.
            content_type: What `body` is.
            accept: What the answer should be.
            read_timeout: Longest silence to accept; None: the transport's default.
            preconditioned: The request cannot take effect twice, so it may be repeated when the server is too busy.

        Raises:
            ApiStatusError: The server answered with anything but success.
            ApiConnectionError: No answer came.
        """
        headers = {"accept": accept, "user-agent": _USER_AGENT}
        if body is not None:
            headers["content-type"] = content_type
        request = HttpRequest(
            method=method,
            path=path,
            query=tuple(query),
            headers=headers,
            body=body,
            read_timeout=read_timeout,
            gate=None if method == "GET" else self._write_gate,
        )
        safe = method == "GET"
        tries = 0
        while True:
            tries += 1
            if request.gate is not None:
                request.gate()
            started = anyio.current_time()
            try:
                response = await self._transport.request(request)
            except ApiConnectionError as error:
                self._observe(method, _NO_ANSWER, started)
                repeatable = not error.sent or (safe and not isinstance(error, ApiTimeoutError))
                if tries == _TRIES or not repeatable:
                    raise
                delay = _backoff_seconds(tries)
            else:
                self._observe(method, str(response.status), started)
                if 200 <= response.status < 300:
                    return response.body
                failure = status_error(
                    response.status, response.body, headers=response.headers, request=f"{method} {path}"
                )
                if tries == _TRIES or not (safe or preconditioned) or not _asks_to_wait(failure):
                    raise failure
                asked = 0.0 if failure.retry_after is None else failure.retry_after.total_seconds()
                delay = asked + _backoff_seconds(1)
            await anyio.sleep(delay)

    async def get(self, path: str, /, *, metadata_only: bool = False) -> bytes:
        """Read one object; with `metadata_only`, its PartialObjectMetadata.

        Raises:
            ApiStatusError: The server answered with anything but success.
            ApiConnectionError: No answer came.
        """
        return await self.request("GET", path, accept=_METADATA if metadata_only else "application/json")

    async def list_page(
        self,
        resource: ResourceInfo,
        *,
        namespace: str | None = None,
        labels: LabelSelector | None = None,
        fields: Mapping[str, str] | None = None,
        limit: int | None = None,
        continue_token: str | None = None,
        resource_version: str | None = None,
        resource_version_match: Literal["Exact", "NotOlderThan"] | None = None,
        metadata_only: bool = False,
    ) -> RawPage:
        """Read one page of a list; with `metadata_only`, of PartialObjectMetadata.

        Raises:
            GoneError: The continue token has expired: start over.
            ApiProtocolError: The answer is no list.
        """
        query = selection(labels, fields)
        if limit is not None:
            query.append(("limit", str(limit)))
        if continue_token:
            query.append(("continue", continue_token))
        if resource_version is not None:
            query.append(("resourceVersion", resource_version))
        if resource_version_match is not None:
            query.append(("resourceVersionMatch", resource_version_match))
        path = resource.path(namespace=namespace)
        body = await self.request(
            "GET", path, query=query, accept=_LIST_OF_METADATA if metadata_only else "application/json"
        )
        try:
            page = _LISTS.decode(body)
        except msgspec.MsgspecError as error:
            raise ApiProtocolError(f"GET {path}: the answer is no list: {error}") from error
        return RawPage(
            items=[bytes(item) for item in page.items or ()],
            resource_version=page.metadata.resource_version or "",
            continue_token=page.metadata.continue_token or "",
        )

    @asynccontextmanager
    async def watch(
        self,
        resource: ResourceInfo,
        *,
        namespace: str | None = None,
        labels: LabelSelector | None = None,
        fields: Mapping[str, str] | None = None,
        resource_version: str | None = None,
        timeout: timedelta | None = None,  # noqa: ASYNC109 - the server's timeout, not ours
        send_initial_events: bool = False,
        inactivity: timedelta | None = None,
        answer_within: timedelta | None = None,
        metadata_only: bool = False,
    ) -> AsyncGenerator[AsyncIterator[RawEvent]]:
        """One watch request, with bookmarks; never repeated.

        Args:
            resource: The kind to watch.
            namespace: None: all namespaces.
            labels: Label selector.
            fields: Field selector.
            resource_version: Events after this version; None: first an ADDED for each object there is.
            timeout: The server ends the watch after this long; None leaves it to the server.
            send_initial_events: Begin with all objects and a bookmark that says they are complete.
            inactivity: Longest silence to accept, by anyio's clock; None: no limit but `timeout`.
            answer_within: Longest wait for the answer to begin. Default: `inactivity`.
            metadata_only: Objects come as PartialObjectMetadata.

        Raises:
            GoneError: The version is too old, as an answer or within the stream.
            ApiStatusError: The server refused the watch, or ended it with an ERROR event.
            ApiConnectionError: The connection could not be made, or broke, in the middle of a line or between lines.
            ApiTimeoutError: The answer did not begin within `answer_within`, or the stream was silent for longer than
                `inactivity`.
            ApiProtocolError: A line is no event.
        """
        query = [("watch", "true"), ("allowWatchBookmarks", "true"), *selection(labels, fields)]
        if resource_version is not None:
            query.append(("resourceVersion", resource_version))
        if send_initial_events:
            query += [("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan")]
        if timeout is not None:
            query.append(("timeoutSeconds", whole_seconds(timeout)))
        path = resource.path(namespace=namespace)
        within = inactivity if answer_within is None else answer_within
        silence = min(
            _NEVER if timeout is None else timeout + _SLACK, _NEVER if within is None else within + _HEAD_SLACK
        )
        request = HttpRequest(
            method="GET",
            path=path,
            query=tuple(query),
            headers={"accept": _METADATA if metadata_only else "application/json", "user-agent": _USER_AGENT},
            read_timeout=silence,
        )
        started = anyio.current_time()
        answered = False
        try:
            async with self._transport.stream(request) as stream:
                answered = True
                self._observe("GET", str(stream.status), started)
                if stream.status != 200:
                    body = await _error_body(stream)
                    raise status_error(stream.status, body, headers=stream.headers, request=f"GET {path}")
                yield _RawWatch(stream.chunks, path, inactivity)
        except ApiConnectionError:
            if not answered:
                self._observe("GET", _NO_ANSWER, started)
            raise

    def _observe(self, method: str, code: str, started: float) -> None:
        if self._observer is not None:
            seconds = anyio.current_time() - started
            self._observer.observe(verb=method, host=self._host, code=code, seconds=seconds)


def _backoff_seconds(tries: int) -> float:
    return _FIRST_BACKOFF_SECONDS * 2.0 ** (tries - 1) * random.uniform(0.5, 1.5)  # noqa: S311 - jitter, not a secret


def _asks_to_wait(error: ApiStatusError) -> bool:
    return error.code in {429, 503} and error.retry_after is not None and error.retry_after <= _LONGEST_WAIT


async def _error_body(stream: HttpStream) -> bytes:
    body = bytearray()
    async for chunk in stream.chunks:
        body += chunk
        if len(body) >= _LONGEST_ERROR_BYTES:
            break
    return bytes(body)


@final
class _RawWatch(AsyncIterator[RawEvent]):
    """The events of one stream. A class, not a generator: nothing is left to be closed when a loop is left."""

    def __init__(self, chunks: AsyncIterator[bytes], path: str, inactivity: timedelta | None) -> None:
        self._chunks = chunks
        self._path = path
        self._inactivity_seconds = None if inactivity is None else inactivity.total_seconds()
        self._lines = LineBuffer()
        self._done = False

    def __aiter__(self) -> _RawWatch:
        return self

    async def __anext__(self) -> RawEvent:
        if self._done:
            raise StopAsyncIteration
        try:
            while (line := self._lines.pop()) is None:
                self._lines.feed(await self._receive())
            return self._event(line)
        except Exception:
            self._done = True  # after an error or the end there is nothing more to read
            raise

    async def _receive(self) -> bytes:
        try:
            if self._inactivity_seconds is None:
                return await anext(self._chunks)
            # A bare scope: `fail_after` costs more than reading the event that comes.
            with anyio.CancelScope(deadline=anyio.current_time() + self._inactivity_seconds):
                return await anext(self._chunks)
        except StopAsyncIteration:
            if self._lines.cut:
                raise ApiConnectionError(f"watch {self._path}: the stream ended in the middle of a line") from None
            raise
        raise ApiTimeoutError(
            f"watch {self._path}: silent for {self._inactivity_seconds:g} s, so the connection was given up"
        )

    def _event(self, line: bytes) -> RawEvent:
        try:
            event = _EVENTS.decode(line)
        except msgspec.MsgspecError as error:
            raise ApiProtocolError(f"watch {self._path}: a line is no watch event: {error}") from error
        match event.type:
            case "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK":
                return RawEvent(event.type, bytes(event.object))
            case "ERROR":
                raise status_error(None, bytes(event.object), request=f"watch {self._path}")
            case _:
                raise ApiProtocolError(f"watch {self._path}: unknown event type {event.type!r}")
