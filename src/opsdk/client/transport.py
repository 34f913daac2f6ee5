"""The one thing the client needs of HTTP, so that what carries the bytes can be chosen.

Implementations: `HttpxTransport` (lightkube's configuration and httpx2) here, `opsdk.testing.ApiServer.transport()` in
memory.

*Guarantees* asked of an implementation: any status code is an answer, not an exception; header names of answers are
lower-case; a connection that could not be made or broke is an `ApiConnectionError`, one that was too slow an
`ApiTimeoutError`; cancellation at any point leaves the transport usable. A request's `gate` is called when there is a
connection to send it on, right before its first byte goes, each time it is sent; what it raises is passed on, and
nothing has been sent.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol, final

__all__ = ["HttpRequest", "HttpResponse", "HttpStream", "Transport"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """One request, relative to the API server's address.

    Args:
        method: `GET`, `POST`, `PUT`, `PATCH` or `DELETE`.
        path: Absolute path, already percent-encoded, without query.
        query: Query parameters in order, not yet encoded.
        headers: Names are lower-case.
        body: Bytes to send, if any.
        read_timeout: Longest silence to accept while reading; None: the transport's default (30 s). A watch sets
            its own.
        gate: Called right before the first byte goes; raises to stop the request. None: nothing is asked.
    """

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes | None = None
    read_timeout: timedelta | None = None
    gate: Callable[[], None] | None = field(default=None, compare=False, repr=False)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class HttpResponse:
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class HttpStream:
    """An answer whose body is still coming.

    Args:
        status: The status code.
        headers: Names are lower-case.
        chunks: The body, decompressed, in pieces of any size; ends when the server ends it.
    """

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]


class Transport(Protocol):
    """Carries requests to one API server."""

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        """Send and read the whole answer."""
        ...

    def stream(self, request: HttpRequest, /) -> AbstractAsyncContextManager[HttpStream]:
        """Send and hand out the answer as it comes; leaving the context drops the connection's rest."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...
