"""Invariant: a key that is turned away comes back when its object has become this process's."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager

import anyio
import pytest
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap

from opsdk.cache import Informer
from opsdk.client import ApiClient
from opsdk.controller import _share
from opsdk.controller._share import Share, Turn
from opsdk.models import request_of
from opsdk.testing import ApiServer
from opsdk.types import Request
from opsdk.workqueue import WorkQueue

pytestmark = pytest.mark.anyio


class Ticket:
    @contextmanager
    def taken(self) -> Generator[None]:
        yield


class Division:
    """Says what the test says."""

    def __init__(self) -> None:
        self.ours: Callable[[str], bool] = lambda _: False
        self.in_force = True
        self._changed: list[Callable[[Callable[[str], bool]], None]] = []

    def holds(self, uid: str, /) -> bool:
        return self.ours(uid)

    def turn(self, uid: str, /) -> Turn | None:
        return Ticket() if self.in_force and self.ours(uid) else None

    def subscribe(self, changed: Callable[[Callable[[str], bool]], None], /) -> None:
        self._changed.append(changed)

    def become(self, ours: Callable[[str], bool]) -> None:
        before, self.ours = self.ours, ours
        for changed in self._changed:
            changed(before)


class World:
    def __init__(self, client: ApiClient) -> None:
        self.client = client
        self.informer = Informer(client, ConfigMap)
        self.queue = WorkQueue[Request]("test")
        self.division = Division()
        self.share = Share(self.division, [self.informer], self.queue)

    async def create(self, name: str) -> Request:
        return request_of(await self.client.create(ConfigMap(metadata=ObjectMeta(name=name, namespace="default"))))

    def turn(self, request: Request) -> Turn | None:
        return self.share.turn(request, self.informer.read(request))

    async def queued(self, seconds: float = 5) -> list[Request]:
        found: list[Request] = []
        with anyio.move_on_after(seconds):
            while True:
                async with self.queue.lease() as request:
                    found.append(request)
        return found


@asynccontextmanager
async def world() -> AsyncGenerator[World]:
    async with ApiServer() as server, anyio.create_task_group() as tasks:
        made = World(server.client())
        tasks.start_soon(made.informer.run)
        await made.informer.wait_synced()
        yield made
        tasks.cancel_scope.cancel()


async def test_a_key_that_is_ours_is_kept_while_the_right_to_work_is_not_in_force() -> None:
    async with world() as made:
        request = await made.create("a")
        await anyio.sleep(1)
        made.division.become(lambda _: True)
        assert await made.queued() == [request]
        made.division.in_force = False
        assert made.turn(request) is None
        made.division.in_force = True
        assert await made.queued() == [request]
        assert made.turn(request) is not None


async def test_a_key_of_what_is_not_ours_is_dropped_and_comes_when_it_has_become_ours() -> None:
    async with world() as made:
        request = await made.create("a")
        await anyio.sleep(1)
        assert made.turn(request) is None
        assert await made.queued() == []
        made.division.become(lambda _: True)
        assert await made.queued() == [request]


@pytest.mark.parametrize("existed", [True, False])
async def test_a_key_of_what_is_not_there_comes_too_once(existed: bool) -> None:  # noqa: FBT001 - a parameter of a test
    async with world() as made:
        request = Request("a", "default")
        if existed:
            assert await made.create("a") == request
            await anyio.sleep(1)
            await made.client.delete(ConfigMap, "a", namespace="default")
            await anyio.sleep(1)
        assert made.turn(request) is None  # while the object moved, nobody had it
        made.division.become(lambda _: True)
        assert await made.queued() == [request]
        made.division.become(lambda _: False)
        made.division.become(lambda _: True)
        assert await made.queued() == []


async def test_of_keys_of_what_is_not_there_only_the_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_share, "_REMEMBERED", 3)
    async with world() as made:
        for number in range(5):
            assert made.turn(Request(f"a{number}", "default")) is None
        made.division.become(lambda _: True)
        assert [request.name for request in await made.queued()] == ["a2", "a3", "a4"]
