"""Ownership and state machines through a client that reads from informers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

import anyio
import pytest
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Secret
from pydantic import Field

from opsdk.cache import CachedClient, Informers
from opsdk.client import ApiClient, HttpRequest, HttpResponse, HttpStream, Transport
from opsdk.models import CustomResource, MachineStatus, Model
from opsdk.ownership import For, OwnedResources, ResourceOwner
from opsdk.statemachine import StateHandler, StateMachine, Transition
from opsdk.testing import ApiServer
from opsdk.types import MergePatch, Result

pytestmark = pytest.mark.anyio


class Spec(Model):
    keys: dict[str, str] = Field(default={"a": "1", "b": "2"})


class Widget(CustomResource[Spec, MachineStatus], group="demo.example.com", version="v1"):
    def get_machine_status(self) -> MachineStatus:
        return self.status


class Tap:
    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.seen: list[str] = []

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        self.seen.append(f"{request.method} {request.path.rpartition('/')[2]}")
        return await self.inner.request(request)

    @asynccontextmanager
    async def stream(self, request: HttpRequest, /) -> AsyncGenerator[HttpStream]:
        async with self.inner.stream(request) as stream:
            yield stream

    async def aclose(self) -> None:
        await self.inner.aclose()


def build(widget: Widget) -> list[ConfigMap]:
    return [ConfigMap(metadata=ObjectMeta(name=widget.metadata.name), data=dict(widget.spec.keys))]


@asynccontextmanager
async def caches(server: ApiServer) -> AsyncGenerator[tuple[CachedClient, Tap]]:
    tap = Tap(server.transport())
    below = ApiClient(tap)
    informers = Informers(below)
    informers.informer(Widget)
    informers.informer(ConfigMap)
    informers.informer(Secret)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(informers.run)
        with anyio.fail_after(30):
            await informers.wait_synced()
        tap.seen.clear()
        yield CachedClient(below, informers), tap
        tasks.cancel_scope.cancel()


@pytest.fixture
async def server() -> AsyncGenerator[ApiServer]:
    async with ApiServer() as server:
        await server.install(Widget)
        await server.client().create(Widget(metadata=ObjectMeta(name="w", namespace="default"), spec=Spec()))
        yield server


async def test_applied_children_settle_without_a_single_read_from_the_server(server: ApiServer) -> None:
    async with caches(server) as (client, tap):
        owner = ResourceOwner(Widget, client, [For(ConfigMap, build, apply=True)])

        async def one_pass() -> list[str]:
            widget = await client.get(Widget, "w", namespace="default")
            tap.seen.clear()
            await owner.reconcile(widget)
            return list(tap.seen)

        assert "PATCH w" in await one_pass()
        assert await one_pass() == []

        await client.patch(Widget, "w", MergePatch({"spec": {"keys": {"b": None}}}), namespace="default")
        assert "PATCH w" in await one_pass()
        stored = await server.client().get(ConfigMap, "w", namespace="default")
        assert stored.data == {"a": "1"}  # pyright: ignore[reportUnknownMemberType] - lightkube's bare dict
        assert await one_pass() == []


def update(widget: Widget, existing: ConfigMap) -> ConfigMap:
    existing.data = dict(widget.spec.keys)
    return existing


def build_elsewhere(widget: Widget) -> list[Secret]:
    return [Secret(metadata=ObjectMeta(name=widget.metadata.name, namespace="kube-public"))]


@pytest.mark.parametrize("mode", ["kept", "update", "apply"])
async def test_a_reconcile_with_nothing_to_do_makes_no_api_call(server: ApiServer, mode: str) -> None:
    match mode:
        case "kept":
            configs = For(ConfigMap, build)
        case "update":
            configs = For(ConfigMap, build, update=update)
        case _:
            configs = For(ConfigMap, build, apply=True)
    apply = mode == "apply"
    owned: OwnedResources[Widget] = [
        configs,
        For(Secret, build_elsewhere, apply=apply, after=(ConfigMap,), finalizer="demo.example.com/elsewhere"),
    ]
    async with caches(server) as (client, tap):
        owner = ResourceOwner(Widget, client, owned)
        await owner.reconcile(await client.get(Widget, "w", namespace="default"))
        for _ in range(2):
            tap.seen.clear()
            widget = await client.get(Widget, "w", namespace="default")
            assert await owner.reconcile(widget) == Result()
            assert await owner.are_all_ready(widget)
            assert not (await owner.plan(widget)).changes
            assert tap.seen == []
            await anyio.sleep(60)  # the watch has caught up
    async with caches(server) as (client, tap):  # and so it is after a restart
        owner = ResourceOwner(Widget, client, owned)
        await owner.reconcile(await client.get(Widget, "w", namespace="default"))
        assert tap.seen == []


async def test_after_a_restart_what_is_no_longer_built_is_still_known_to_be_ours(server: ApiServer) -> None:
    async with caches(server) as (client, _):
        widget = await client.get(Widget, "w", namespace="default")
        await ResourceOwner(Widget, client, [For(ConfigMap, build, apply=True)]).reconcile(widget)
        await client.patch(Widget, "w", MergePatch({"spec": {"keys": {"b": None}}}), namespace="default")
    async with caches(server) as (client, tap):
        owner = ResourceOwner(Widget, client, [For(ConfigMap, build, apply=True)])
        for expected in (["PATCH w"], []):
            widget = await client.get(Widget, "w", namespace="default")
            tap.seen.clear()
            await owner.reconcile(widget)
            assert tap.seen == expected


async def test_children_that_were_created_once_are_taken_over_by_apply(server: ApiServer) -> None:
    async with caches(server) as (client, tap):
        widget = await client.get(Widget, "w", namespace="default")
        await ResourceOwner(Widget, client, [For(ConfigMap, build)]).reconcile(widget)
        owner = ResourceOwner(Widget, client, [For(ConfigMap, build, apply=True)])
        # A cache shows nothing of what others own, and we own nothing yet by apply: the server is asked once. Then
        # what was created by an update is handed over, and applied.
        for expected in (["GET w", "PATCH w", "PATCH w"], []):
            tap.seen.clear()
            await owner.reconcile(widget)
            assert tap.seen == expected
        await client.patch(Widget, "w", MergePatch({"spec": {"keys": {"b": None}}}), namespace="default")
        await owner.reconcile(await client.get(Widget, "w", namespace="default"))
        stored = await server.client().get(ConfigMap, "w", namespace="default")
        assert stored.data == {"a": "1"}  # pyright: ignore[reportUnknownMemberType] - lightkube's bare dict


async def test_a_machine_runs_through_its_states_without_waiting_for_the_watch(server: ApiServer) -> None:
    async with caches(server) as (client, _):
        machine = StateMachine(
            Widget,
            client,
            "a",
            {
                "a": StateHandler(transitions=[Transition(to="b", after=timedelta(0))]),
                "b": StateHandler(transitions=[Transition(to="c", after=timedelta(0))]),
                "c": StateHandler(),
            },
        )
        results = [await machine.reconcile(await client.get(Widget, "w", namespace="default")) for _ in range(4)]
        assert results == [Result(requeue_after=timedelta(0))] * 3 + [Result()]
        widget = await server.client().get(Widget, "w", namespace="default")
        assert [step.to for step in widget.status.state_history] == ["a", "b", "c"]
