"""Stops an operator that writes without end: on virtual time, no time passes while it does."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import final

import anyio

from opsdk.client.transport import HttpRequest, HttpResponse, HttpStream, Transport

__all__ = ["Brake"]


@final
class Brake:
    """Passes everything on, until there were too many writes; then no request is ever answered.

    Args:
        inner: Where requests go.
        limit: How many writes are too many.
    """

    def __init__(self, inner: Transport, *, limit: int) -> None:
        self._inner = inner
        self._limit = limit
        self._writes = 0

    @property
    def pulled(self) -> bool:
        """Whether there were too many."""
        return self._writes > self._limit

    def release(self) -> None:
        """Count from zero again, unless it is pulled."""
        if not self.pulled:
            self._writes = 0

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        """Send a request, or wait for ever."""
        if request.method not in {"GET", "HEAD", "OPTIONS"}:
            self._writes += 1
        if self.pulled:
            await anyio.sleep_forever()
        return await self._inner.request(request)

    def stream(self, request: HttpRequest, /) -> AbstractAsyncContextManager[HttpStream]:
        """Watches pass."""
        return self._inner.stream(request)

    async def aclose(self) -> None:
        """Close the inner transport."""
        await self._inner.aclose()
