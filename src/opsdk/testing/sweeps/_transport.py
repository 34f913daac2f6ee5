"""The transport of one process of the operator: where faults happen."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final, NoReturn, final

import anyio
import anyio.lowlevel
import httpx2
import msgspec

from opsdk.client.transport import HttpRequest, HttpResponse, HttpStream
from opsdk.errors import ApiConnectionError, ApiTimeoutError
from opsdk.testing.simulator import Target, parse_path
from opsdk.testing.sweeps._calls import (
    ApiCall,
    WatchEventSeen,
    as_object,
    as_sequence,
    is_dry_run,
    is_swept,
    parse_json,
    text_at,
)
from opsdk.testing.sweeps._faults import EVENT_FAULTS, READ_FAULTS, WRITE_FAULTS, FaultKind
from opsdk.testing.sweeps._injector import LAG_SECONDS, Injector, Lag, ProcessState, status_response
from opsdk.types import JsonObject

__all__ = ["ProcessTransport"]

_MISSED_SECONDS: Final = 5.0
_EVENT_SECONDS: Final = 0.02
"""How long an event travels. Without, a loop by way of a watch would stop the clock."""
_TIMEOUT_SECONDS: Final = 5.0
_ERRORS: Final[dict[FaultKind, HttpResponse]] = {
    "unavailable": status_response(503, "ServiceUnavailable", "the server is currently unable to handle the request"),
    "throttled": status_response(
        429, "TooManyRequests", "the server has received too many requests", retry_after_seconds=1
    ),
    "error": status_response(500, "InternalError", "Internal error occurred: etcdserver: leader changed"),
    "read-error": status_response(500, "InternalError", "Internal error occurred: etcdserver: leader changed"),
}
_EXPIRED: Final = status_response(410, "Expired", "too old resource version: 1 (2)")


@final
class ProcessTransport:
    """Carries the requests of one process, breaks those that the plan says, and carries none once it is dead.

    Args:
        injector: The calls of the run.
        process: Whose they are.
        reads_lag: Whether reads come from caches, which may be behind; if not, only watches are.
        for_httpx2: Raise what httpx2 raises when no answer comes, for clients that are not ours.
    """

    def __init__(self, injector: Injector, process: ProcessState, *, reads_lag: bool, for_httpx2: bool) -> None:
        self._injector = injector
        self._process = process
        self.reads_lag = reads_lag
        self._for_httpx2 = for_httpx2

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        """Send one request, or have it go wrong."""
        await self._reach()
        injector = self._injector
        target = parse_path(request.path)
        if target is None or not is_swept(target):
            return await injector.inner.request(request)
        injector.count_request(f"{request.method} {request.path}")
        injector.touch(target)
        if request.method in {"GET", "HEAD", "OPTIONS"} or is_dry_run(request):
            return await self._read(request, target)
        return await self._write(request, target)

    @asynccontextmanager
    async def stream(self, request: HttpRequest, /) -> AsyncGenerator[HttpStream]:
        """Open a watch, or have it go wrong."""
        await self._reach()
        injector = self._injector
        target = parse_path(request.path)
        if target is None or not is_swept(target) or not _is_watch(request):
            async with injector.inner.stream(request) as stream:
                yield stream
            return
        injector.count_request(f"watch {request.path}")
        injector.touch(target)
        version = dict(request.query).get("resourceVersion", "")
        gap = injector.gaps.get(target.resource)
        form = None if gap is None or gap.tells_all_from(version) else gap.form
        if version in {"", "0"}:  # it shows first what is there
            injector.listed(target.resource)
            form = None
        match form:
            case "gone-http":
                chunks = _Lines([_EXPIRED.body])
                yield HttpStream(status=410, headers=_EXPIRED.headers, chunks=chunks)
            case "gone-event":
                error = b'{"type":"ERROR","object":%s}\n' % _EXPIRED.body
                yield HttpStream(status=200, headers=_EXPIRED.headers, chunks=_Lines([error]))
            case _:
                async with injector.inner.stream(request) as stream:
                    if stream.status != 200:
                        yield stream
                        return
                    broken = _BrokenChunks(self, stream.chunks, target)
                    yield HttpStream(status=stream.status, headers=stream.headers, chunks=broken)

    async def aclose(self) -> None:
        """Nothing to close: the API server is not the operator's."""
        await anyio.lowlevel.checkpoint()

    # -- what may go wrong

    async def _reach(self) -> None:
        process = self._process
        if process.dead:
            await self._die()
        if process.cut:
            await process.healed.wait()
            self.broken("the connection was lost")

    async def _die(self) -> NoReturn:
        await anyio.lowlevel.checkpoint()  # cancelled here, unless shielded
        self.broken("this process has crashed: nothing that it sends arrives")

    def broken(self, why: str) -> NoReturn:
        """Raise what a client raises whose connection broke."""
        if self._for_httpx2:
            raise httpx2.ReadError(why)
        raise ApiConnectionError(why)

    def _timed_out(self) -> NoReturn:
        if self._for_httpx2:
            raise httpx2.ReadTimeout("no answer came in time")
        raise ApiTimeoutError("no answer came in time")

    async def _read(self, request: HttpRequest, target: Target) -> HttpResponse:
        injector = self._injector
        if target.name is None:
            injector.listed(target.resource)
        call = self._call(injector.next_number("read"), request, target, existed=True)
        fault = injector.take(READ_FAULTS, call.number, call)
        if fault is not None:
            response = _ERRORS[fault]
        else:
            revision = injector.stale_revision(target.resource) if self.reads_lag else None
            response = await (
                injector.inner.request(request) if revision is None else self._old(request, target, revision)
            )
        injector.reads.append(_answered(call, response.status))
        return response

    async def _old(self, request: HttpRequest, target: Target, revision: str) -> HttpResponse:
        """Answer as a cache does that has not seen the newest writes."""
        if target.subresource is not None or any(key in {"continue", "resourceVersion"} for key, _ in request.query):
            return await self._injector.inner.request(request)
        exactly = (("resourceVersion", revision), ("resourceVersionMatch", "Exact"))
        if target.name is None:
            query = (*request.query, *exactly)
            return await self._injector.inner.request(
                HttpRequest(method="GET", path=request.path, query=query, headers=request.headers)
            )
        response = await self._injector.inner.request(
            HttpRequest(
                method="GET",
                path=target.object_path.rpartition("/")[0],
                query=(*exactly, ("fieldSelector", f"metadata.name={target.name}")),
            )
        )
        answer = as_object(parse_json(response.body)) or {}
        items = [as_object(item) or {} for item in as_sequence(answer.get("items"))]
        if response.status != 200:
            return response
        if not items:
            group = f".{target.group}" if target.group else ""
            return status_response(404, "NotFound", f'{target.plural}{group} "{target.name}" not found')
        kind = text_at(answer, "kind").removesuffix("List")
        body = msgspec.json.encode({"apiVersion": target.api_version, "kind": kind, **items[0]})
        return HttpResponse(status=200, headers=response.headers, body=body)

    async def _write(self, request: HttpRequest, target: Target) -> HttpResponse:
        injector, process = self._injector, self._process
        before = await injector.read(target)
        await self._reach()
        call = self._call(injector.next_number("write"), request, target, existed=before is not None)
        if process.lost:
            injector.hooks.fail(f"the old replica still writes after it has lost its leadership: {call}")
        fault = injector.take(WRITE_FAULTS, call.number, call)
        match fault:
            case "crash-before":
                injector.writes.append(call)
                injector.hooks.crash(process)
                await self._die()
            case "unavailable" | "throttled" | "error":
                response = _ERRORS[fault]
                injector.writes.append(_answered(call, response.status))
                return response
            case "leader-lost":
                injector.hooks.replace(process, request, lambda code: _answered(call, code))
                await self._reach()
            case "conflict":
                if before is None or not await injector.edit(target, f"write {call.number}", kept=True):
                    injector.give_back(fault, call.number)
            case "stale":
                until = anyio.current_time() + LAG_SECONDS
                injector.lag = Lag(resource=target.resource, revision=await injector.revision(target), until=until)
            case _:
                pass
        response = await injector.inner.request(request)
        call = _answered(call, response.status)
        injector.writes.append(call)
        await injector.hooks.written(call, before, await self._after(request, response, target, before))
        match fault:
            case "crash-after":
                injector.hooks.crash(process)
                await self._die()
            case "timeout":
                await anyio.sleep(_TIMEOUT_SECONDS)
                self._timed_out()
            case "stale":
                injector.hooks.lagging(target.resource)
            case _:
                pass
        return response

    async def _after(
        self, request: HttpRequest, response: HttpResponse, target: Target, before: JsonObject | None
    ) -> JsonObject | None:
        if response.status >= 400:
            return before
        answer = as_object(parse_json(response.body))
        if request.method == "POST" and not target.subresource:
            return answer
        return await self._injector.read(target)

    def _call(self, number: int, request: HttpRequest, target: Target, *, existed: bool) -> ApiCall:
        name = target.name
        if name is None and request.method == "POST":
            name = text_at(as_object(parse_json(request.body)), "metadata", "name") or None
        return ApiCall(
            number=number,
            method=request.method,
            group=target.group,
            version=target.version,
            plural=target.plural,
            namespace=target.namespace,
            name=name,
            subresource=target.subresource,
            existed=existed,
            code=0,
            process=self._process.number,
        )

    # -- watches

    async def event(self, chunk: bytes, target: Target) -> FaultKind | None:
        """Which fault is at this event of a watch."""
        await anyio.sleep(_EVENT_SECONDS)
        await self._injector.caught_up(target.resource)
        await self._reach()
        document = as_object(parse_json(chunk))
        kind = text_at(document, "type")
        about = as_object((document or {}).get("object"))
        if kind not in {"ADDED", "MODIFIED", "DELETED"}:
            return None
        seen = WatchEventSeen(
            number=self._injector.next_number("event"),
            type=kind,
            plural=target.plural,
            namespace=text_at(about, "metadata", "namespace") or None,
            name=text_at(about, "metadata", "name"),
        )
        self._injector.events.append(seen)
        fault = self._injector.take(EVENT_FAULTS, seen.number, seen)
        if fault in {"gone-http", "gone-event"}:
            await self._injector.forget(target, fault)
        return fault

    async def gap(self, target: Target) -> NoReturn:
        """End a watch that has missed something, so that only a new list shows it."""
        await self._injector.forget(target, "gone-event")
        self.broken("the watch broke")


@final
class _BrokenChunks(AsyncIterator[bytes]):
    """The lines of a watch, some of them twice, late or never."""

    def __init__(self, transport: ProcessTransport, chunks: AsyncIterator[bytes], target: Target) -> None:
        self._transport = transport
        self._chunks = chunks
        self._target = target
        self._again: deque[bytes] = deque()
        self._gap_at: float | None = None

    def __aiter__(self) -> _BrokenChunks:
        return self

    async def __anext__(self) -> bytes:
        while True:
            if self._again:
                return self._again.popleft()
            chunk = await self._next()
            match await self._transport.event(chunk, self._target):
                case "event-doubled":
                    self._again.append(chunk)
                    return chunk
                case "event-missed":
                    self._gap_at = anyio.current_time() + _MISSED_SECONDS
                case "watch-broken" | "gone-http" | "gone-event":
                    self._transport.broken("the watch broke")
                case _:
                    return chunk

    async def _next(self) -> bytes:
        if self._gap_at is None:
            return await anext(self._chunks)
        with anyio.move_on_after(self._gap_at - anyio.current_time()):
            return await anext(self._chunks)
        return await self._transport.gap(self._target)


@final
class _Lines(AsyncIterator[bytes]):
    """A body that is there already."""

    def __init__(self, lines: list[bytes]) -> None:
        self._lines = deque(lines)

    def __aiter__(self) -> _Lines:
        return self

    async def __anext__(self) -> bytes:
        await anyio.lowlevel.checkpoint()
        if not self._lines:
            raise StopAsyncIteration
        return self._lines.popleft()


def _is_watch(request: HttpRequest) -> bool:
    return any(key == "watch" and value.lower() in {"1", "true"} for key, value in request.query)


def _answered(call: ApiCall, code: int) -> ApiCall:
    return replace(call, code=code)
