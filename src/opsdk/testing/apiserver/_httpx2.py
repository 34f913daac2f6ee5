"""httpx2's way into the server, for clients that are not ours."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import final

import httpx2

from opsdk.client.transport import HttpRequest, HttpStream, Transport

__all__ = ["MemoryHttpx2Transport"]


@final
class MemoryHttpx2Transport(httpx2.AsyncBaseTransport):
    """Sends httpx2's requests to a transport of ours."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer one request."""
        body = await request.aread()
        ours = HttpRequest(
            method=request.method,
            path=request.url.raw_path.partition(b"?")[0].decode("ascii"),
            query=tuple(request.url.params.multi_items()),
            headers={name.lower(): value for name, value in request.headers.items()},
            body=body or None,
        )
        stack = AsyncExitStack()
        stream = await stack.enter_async_context(self._transport.stream(ours))
        return httpx2.Response(
            stream.status, headers=dict(stream.headers), stream=_Body(stream, stack), request=request
        )


@final
class _Body(httpx2.AsyncByteStream):
    def __init__(self, stream: HttpStream, stack: AbstractAsyncContextManager[object]) -> None:
        self._stream = stream
        self._stack = stack

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream.chunks:
            yield chunk

    async def aclose(self) -> None:
        await self._stack.__aexit__(None, None, None)
