"""What happens to replicas, and on their way to the API server: pauses, partitions, lost answers, wrong clocks."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Protocol

import anyio

from opsdk.client import HttpRequest, HttpResponse, HttpStream, Transport
from opsdk.errors import ApiConnectionError

__all__ = ["Link", "SkewedClock", "WithData", "data_of", "until"]


class WithData(Protocol):
    """A ConfigMap: lightkube does not say what its data are."""

    @property
    def data(self) -> Mapping[str, str] | None: ...


def data_of(obj: WithData) -> dict[str, str]:
    """The data of a ConfigMap."""
    return dict(obj.data or {})


class SkewedClock:
    """A monotonic clock that started at another time and runs at another speed."""

    def __init__(self, *, rate: float = 1.0, offset: float = 0.0) -> None:
        self.rate = rate
        self.offset = offset

    def __call__(self) -> float:
        return self.offset + self.rate * anyio.current_time()


class Link:
    """A transport between one replica and the server.

    `pause` stops the replica, as far as anybody else can tell: nothing that it does goes out, nothing comes in, and its
    clock runs on. What it was about to send goes when it is resumed, after its gate was asked, as in a process that was
    stopped before that; with `late`, what had passed the gate goes without being asked again.
    """

    def __init__(self, inner: Transport, *, seed: int = 0) -> None:
        self.inner = inner
        self.random = random.Random(seed)
        self.cut = False
        self.status: int | None = None
        self.loses_answers = 0.0
        self.delays: tuple[float, ...] = (0.0,)
        self.late = False
        self._resumed: anyio.Event | None = None

    def pause(self) -> None:
        if self._resumed is None:
            self._resumed = anyio.Event()

    def resume(self) -> None:
        if self._resumed is not None:
            self._resumed.set()
            self._resumed = None

    @property
    def paused(self) -> bool:
        return self._resumed is not None

    def heal(self) -> None:
        self.cut, self.status, self.loses_answers, self.delays = False, None, 0.0, (0.0,)
        self.resume()

    async def _pass(self) -> None:
        delay = self.random.choice(self.delays)
        if delay:
            await anyio.sleep(delay)
        while self._resumed is not None:
            await self._resumed.wait()
        if self.cut:
            await anyio.sleep(1)
            raise ApiConnectionError("the network is cut")

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        if self.late and request.gate is not None:
            request.gate()
            request = replace(request, gate=None)
        await self._pass()
        if self.status is not None:
            return HttpResponse(status=self.status, headers={}, body=b"etcd is away")
        answer = await self.inner.request(request)
        await self._pass()
        if self.random.random() < self.loses_answers:
            raise ApiConnectionError("the answer was lost")
        return answer

    @asynccontextmanager
    async def stream(self, request: HttpRequest, /) -> AsyncGenerator[HttpStream]:
        await self._pass()
        async with self.inner.stream(request) as stream:
            yield stream

    async def aclose(self) -> None:
        await self.inner.aclose()


async def until(condition: Callable[[], bool], within: float) -> None:
    with anyio.fail_after(within):
        while not condition():  # noqa: ASYNC110 - what is waited for depends on time alone
            await anyio.sleep(0.05)
