"""Lets lightkube's own clients speak to a `Transport` of ours."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import final

import httpx2
from lightkube import AsyncClient
from lightkube.config.kubeconfig import KubeConfig
from lightkube.config.models import Cluster, User

from opsdk.client.transport import HttpRequest, Transport

__all__ = ["TransportAdapter", "lightkube_client"]

_HOST = "http://simulator.invalid"  # never resolved: the transport carries everything


def lightkube_client(transport: Transport, *, namespace: str, field_manager: str) -> AsyncClient:
    """A lightkube client whose requests go through `transport`."""
    config = KubeConfig.from_one(cluster=Cluster(server=_HOST), user=User(), namespace=namespace)
    return AsyncClient(
        config=config,
        namespace=namespace,
        field_manager=field_manager,
        trust_env=False,
        transport=TransportAdapter(transport),
    )


@final
class TransportAdapter(httpx2.AsyncBaseTransport):
    """An httpx2 transport on top of a `Transport`."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; a watch is streamed."""
        path = request.url.raw_path.partition(b"?")[0].decode("ascii")
        query = tuple(request.url.params.multi_items())
        asked = HttpRequest(
            method=request.method,
            path=path,
            query=query,
            headers={key.lower(): value for key, value in request.headers.items()},
            body=await request.aread() or None,
        )
        if any(key == "watch" and value.lower() in {"1", "true"} for key, value in query):
            opened = _Opened()
            return await opened.start(self._inner, asked)
        answer = await self._inner.request(asked)
        return httpx2.Response(answer.status, headers=_headers(answer.headers), content=answer.body)


@final
class _Opened(httpx2.AsyncByteStream):
    """The body of a watch; closing it leaves the inner stream."""

    def __init__(self) -> None:
        self._exits = AsyncExitStack()
        self._chunks: AsyncIterator[bytes] | None = None

    async def start(self, inner: Transport, request: HttpRequest) -> httpx2.Response:
        stream = await self._exits.enter_async_context(inner.stream(request))
        self._chunks = stream.chunks
        return httpx2.Response(stream.status, headers=_headers(stream.headers), stream=self)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._chunks is not None:
            async for chunk in self._chunks:
                yield chunk

    async def aclose(self) -> None:
        await self._exits.aclose()


def _headers(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """The bytes are decoded already, so what described the encoded ones goes."""
    return [(key, value) for key, value in headers.items() if key not in {"content-encoding", "content-length"}]
