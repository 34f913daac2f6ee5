"""`settle` does what a controller would do if all was left alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Namespace

from opsdk import clock
from opsdk.clock import ManualClock
from opsdk.errors import RetryError, TerminalError
from opsdk.models import CustomResource, Model, owner_reference_to
from opsdk.ownership.labels import OWNER_UID_LABEL
from opsdk.protocols import Client
from opsdk.testing.simulator import NotSettledError, Simulator
from opsdk.types import MergePatch, Request, Result

pytestmark = pytest.mark.anyio


class ThingSpec(Model):
    size: int = 1


class ThingStatus(Model):
    seen: int = 0


class Thing(CustomResource[ThingSpec, ThingStatus], group="demo.example.com", version="v1"):
    pass


class Does:
    def __init__(self, client: Client, what: Callable[[Client, Request], Awaitable[Result | None]]) -> None:
        self.client = client
        self.what = what

    async def reconcile(self, request: Request) -> Result:
        return await self.what(self.client, request) or Result()


def does(what: Callable[[Client, Request], Awaitable[Result | None]]) -> Callable[[Client], Does]:
    return lambda client: Does(client, what)


def thing() -> Thing:
    return Thing(metadata=ObjectMeta(name="t"), spec=ThingSpec())


async def test_settle_follows_requeues_by_moving_the_clock() -> None:
    times: list[float] = []

    async def waits(client: Client, request: Request) -> Result:
        times.append((clock.now() - ManualClock().now()).total_seconds())
        return Result(requeue_after=timedelta(hours=1)) if len(times) < 4 else Result()

    async with Simulator(does(waits)) as sim:
        await sim.create(thing())
        await sim.settle()
    assert times == [0.0, 3600.0, 7200.0, 10800.0]


async def test_settle_follows_the_changes_that_the_reconciler_makes_to_its_own_object() -> None:
    passes: list[int] = []

    async def counts(client: Client, request: Request) -> None:
        found = await client.get(Thing, request.name, namespace=request.namespace)
        passes.append(found.status.seen)
        if found.status.seen < 3:
            patch = MergePatch({"status": {"seen": found.status.seen + 1}})
            await client.status.patch(Thing, request.name, patch, namespace=request.namespace)

    async with Simulator(does(counts)) as sim:
        await sim.create(thing())
        await sim.settle()
        sim.clear()
    assert passes == [0, 1, 2, 3]


async def test_settle_sees_changes_of_children_and_of_nothing_else() -> None:
    passes: list[str] = []

    async def makes_a_child(client: Client, request: Request) -> None:
        owner = await client.get(Thing, request.name, namespace=request.namespace)
        passes.append(request.name)
        if await client.find(ConfigMap, "child", namespace="default") is None:
            metadata = ObjectMeta(name="child", namespace="default", ownerReferences=[owner_reference_to(owner)])
            await client.create(ConfigMap(metadata=metadata))

    async with Simulator(does(makes_a_child)) as sim:
        await sim.create(thing())
        await sim.settle()
        sim.expect_create(ConfigMap)
        assert len(passes) == 2  # the created child is an event, too
        await sim.fake_client.create(ConfigMap(metadata=ObjectMeta(name="stranger", namespace="default")))
        await sim.settle()
        assert len(passes) == 2
        await sim.fake_client.delete(ConfigMap, "child", namespace="default")
        await sim.settle()
        assert len(passes) == 4
        sim.expect_create(ConfigMap, "child")


async def test_settle_gives_up_on_an_object_that_never_rests() -> None:
    async def spins(client: Client, request: Request) -> None:
        found = await client.get(Thing, request.name, namespace=request.namespace)
        patch = MergePatch({"status": {"seen": found.status.seen + 1}})
        await client.status.patch(Thing, request.name, patch, namespace=request.namespace)

    async with Simulator(does(spins)) as sim:
        await sim.create(thing())
        with pytest.raises(NotSettledError) as caught:
            await sim.settle(limit=20)
        assert "after 20 reconciles" in str(caught.value)
        assert "default/t is due because it, or a child of it, keeps changing" in str(caught.value)
        assert "status.seen: 19 -> 20" in str(caught.value)
        sim.clear()


async def test_settle_stops_where_it_is_told_to_for_a_reconciler_that_always_comes_back() -> None:
    passes: list[str] = []

    async def polls(client: Client, request: Request) -> Result:
        passes.append(request.name)
        return Result(requeue_after=timedelta(minutes=10))

    async with Simulator(does(polls)) as sim:
        await sim.create(thing())
        with pytest.raises(NotSettledError, match="asks to be called again in 600 s"):
            await sim.settle(limit=5)
        passes.clear()
        before = sim.clock.now()
        await sim.settle(within=timedelta(minutes=35))
        assert len(passes) == 3
        assert sim.clock.now() - before == timedelta(minutes=35)


async def test_a_failed_reconcile_stays_due() -> None:
    times: list[float] = []

    async def fails_once(client: Client, request: Request) -> None:
        times.append((clock.now() - ManualClock().now()).total_seconds())
        if len(times) == 1:
            raise RetryError("later", requeue_after=timedelta(minutes=2))

    async with Simulator(does(fails_once)) as sim:
        with pytest.raises(RetryError):
            await sim.create(thing())
        await sim.settle()
        await sim.settle()
    assert times == [0.0, 120.0]


async def test_a_reconcile_that_raised_anything_else_is_due_at_once() -> None:
    passes: list[str] = []

    async def fails_once(client: Client, request: Request) -> None:
        passes.append(request.name)
        if len(passes) == 1:
            raise KeyError("mine")

    async with Simulator(does(fails_once)) as sim:
        with pytest.raises(KeyError):
            await sim.create(thing())
        await sim.settle()
    assert len(passes) == 2


async def test_a_terminal_error_is_not_due_again() -> None:
    passes: list[str] = []

    async def gives_up(client: Client, request: Request) -> None:
        passes.append(request.name)
        raise TerminalError("never")

    async with Simulator(does(gives_up)) as sim:
        with pytest.raises(TerminalError):
            await sim.create(thing())
        await sim.settle()
    assert len(passes) == 1


async def test_settle_sees_children_where_no_owner_reference_can_point() -> None:
    passes: list[str] = []

    async def looks(client: Client, request: Request) -> None:
        passes.append(request.name)
        await client.list(ConfigMap)

    async with Simulator(does(looks)) as sim:
        owner = await sim.create(thing())
        await sim.fake_client.create(Namespace(metadata=ObjectMeta(name="elsewhere")))
        labels = {OWNER_UID_LABEL: owner.metadata.uid}
        await sim.fake_client.create(ConfigMap(metadata=ObjectMeta(name="c", namespace="elsewhere", labels=labels)))
        await sim.settle()
    assert len(passes) == 2


async def test_advance_moves_the_clock_and_runs_nothing() -> None:
    passes: list[str] = []

    async def notes(client: Client, request: Request) -> None:
        passes.append(request.name)

    async with Simulator(does(notes)) as sim:
        await sim.create(thing())
        sim.advance(timedelta(days=1))
        assert len(passes) == 1
        await sim.settle()
        assert len(passes) == 1
        stored = await sim.fake_client.create(ConfigMap(metadata=ObjectMeta(name="c", namespace="default")))
        assert stored.metadata is not None
        assert stored.metadata.creationTimestamp == ManualClock().now() + timedelta(days=1)
