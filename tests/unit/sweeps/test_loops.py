"""Operators that are a loop of their own: what they watch, what they miss, and how they end."""

from __future__ import annotations

from contextlib import suppress

import anyio
import pytest
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Namespace

from opsdk import Client, Manager
from opsdk.client import ApiClient
from opsdk.errors import AlreadyExistsError, ApiError
from opsdk.protocols import Added, Modified
from opsdk.testing.sweeps import (
    SweepError,
    World,
    sweep,
)
from opsdk.types import Json
from sweep_gadgets import (
    Accounts,
    Base,
    Gadget,
    Right,
    child_of,
    create_and_wait,
    gadget,
    in_phase,
    managed,
)

pytestmark = pytest.mark.anyio


class Loop:
    """Lists and watches by hand."""

    def __init__(self, client: ApiClient) -> None:
        self.client = client

    async def follow(self, found: Gadget) -> None:
        with suppress(AlreadyExistsError):
            await self.client.create(child_of(found, found.metadata.name))
        base = self.client.snapshot(found)
        found.status.phase = "Ready"
        await self.client.status.patch_from(base, found)


class RightLoop(Loop):
    async def run(self) -> None:
        while True:
            with suppress(ApiError):
                await self.once()
            await anyio.sleep(1)

    async def once(self) -> None:
        listed = await self.client.list(Gadget)
        for found in listed:
            await self.follow(found)
        async with self.client.watch(Gadget, resource_version=listed.resource_version) as events:
            async for event in events:
                if isinstance(event, Added | Modified):
                    await self.follow(event.object)


class WatchesWithoutLists(Loop):
    """Goes on from where it was when the watch breaks, and never lists."""

    async def run(self) -> None:
        listed = await self.client.list(Gadget)
        version = listed.resource_version
        for found in listed:
            await self.follow(found)
        while True:
            try:
                async with self.client.watch(Gadget, resource_version=version) as events:
                    async for event in events:
                        if isinstance(event, Added | Modified):
                            version = event.object.metadata.resourceVersion or version
                        if isinstance(event, Added):
                            await self.follow(event.object)
            except ApiError:
                pass
            await anyio.sleep(1)


async def test_a_loop_that_lists_again_survives_every_fault() -> None:
    result = await sweep(RightLoop, create_and_wait, install=[Gadget])
    assert {"gone-event:1", "event-missed:1", "watch-broken:1"} <= set(result.runs)


async def test_a_loop_that_never_lists_again_is_found_by_a_watch_that_missed_something() -> None:
    async def create_later(world: World) -> None:
        await anyio.sleep(1)
        await create_and_wait(world)

    with pytest.raises(SweepError) as caught:
        await sweep(WatchesWithoutLists, create_later, install=[Gadget], faults=["watch-broken", "event-missed"])
    assert {failure.plan for failure in caught.value.result.failures} == {"event-missed:1"}


async def test_a_list_by_another_part_does_not_tell_a_watch_what_it_has_missed() -> None:
    class ListsBeside(WatchesWithoutLists):
        async def run(self) -> None:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.count)
                await super().run()

        async def count(self) -> None:
            while True:
                with suppress(ApiError):
                    await self.client.list(Gadget)
                await anyio.sleep(0.3)

    async def create_later(world: World) -> None:
        await anyio.sleep(1)
        await create_and_wait(world)

    with pytest.raises(SweepError) as caught:
        await sweep(ListsBeside, create_later, install=[Gadget], faults=["event-missed", "gone-http"])
    assert {failure.plan for failure in caught.value.result.failures} == {"event-missed:1", "gone-http:1"}


async def test_a_loop_that_counts_events_is_found_by_one_that_comes_twice() -> None:
    class Counts(Loop):
        async def run(self) -> None:
            count = 0
            async with self.client.watch(Gadget, resource_version="0") as events:
                async for event in events:
                    if isinstance(event, Added):
                        count += 1
                        with suppress(AlreadyExistsError):
                            await self.client.create(child_of(event.object, f"child-{count}"))
            await anyio.sleep_forever()

    async def create(world: World) -> None:
        await world.create(gadget())
        await world.settle()

    with pytest.raises(SweepError) as caught:
        await sweep(Counts, create, install=[Gadget], faults=["event-doubled"])
    failure = caught.value.result.failures[0]
    assert failure.what == "delivered twice event 1: ADDED gadgets/default/g"
    assert failure.details == ("ConfigMap default/child-2: not there -> there",)


async def test_one_that_crashes_just_before_it_is_restarted_runs_only_once() -> None:
    alive: list[int] = [0]

    class Alone(RightLoop):
        async def run(self) -> None:
            alive.append(alive[-1] + 1)
            try:
                await super().run()
            finally:
                alive.append(alive[-1] - 1)

    async def restarted(world: World) -> None:
        await world.create(gadget())
        await anyio.sleep(0.5)
        world.restart_operator()
        await world.until(Gadget, "g", in_phase("Ready"), what="in phase Ready")

    await sweep(Alone, restarted, install=[Gadget], faults=["crash-before", "crash-after"])
    assert max(alive) == 1


async def test_an_operator_that_keeps_ending_is_a_failure() -> None:
    class Falls:
        def __init__(self, client: ApiClient) -> None:
            self.client = client

        async def run(self) -> None:
            raise RuntimeError("no")

    async def nothing(world: World) -> None:
        await world.settle()

    with pytest.raises(SweepError, match=r"ended by itself 6 times: RuntimeError: no"):
        await sweep(Falls, nothing)


async def test_a_replica_that_writes_after_it_lost_its_leadership_is_found() -> None:
    class LastWords:
        """Writes when it is ended, with the client that does not ask who leads."""

        def __init__(self, client: Client) -> None:
            self.client = client

        async def run(self) -> None:
            try:
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True), suppress(ApiError):
                    await anyio.sleep(15)
                    found = await self.client.get(Gadget, "g", namespace="default")
                    base = self.client.snapshot(found)
                    found.status.count += 1
                    await self.client.status.patch_from(base, found)

    def operator(client: ApiClient) -> Manager:
        manager = managed(client)
        manager.controller(Gadget).owns(ConfigMap).complete(Right(manager.client))
        manager.add(LastWords(manager.api_client))
        return manager

    with pytest.raises(SweepError) as caught:
        await sweep(operator, create_and_wait, install=[Gadget], faults=["leader-lost"])
    assert caught.value.result.failures[0].reason == (
        "the old replica still writes after it has lost its leadership: PATCH gadgets/default/g status"
    )


async def test_a_state_outside_that_cannot_be_read_is_a_failure() -> None:
    class Broken(Accounts):
        async def state(self) -> Json:
            raise OSError("no connection")

    with pytest.raises(SweepError, match="the end state cannot be read: OSError: no connection"):
        await sweep(Right, create_and_wait, install=[Gadget], outside=Broken())


async def test_a_namespace_that_is_left_behind_is_found() -> None:
    class NamedByItsMemory(Base):
        """Counts, so that after a crash it is another namespace."""

        async def follow(self, found: Gadget) -> None:
            if not found.status.phase:
                name = f"of-g-{len(await self.client.list(Namespace))}"
                await self.client.create(Namespace(metadata=ObjectMeta(name=name)))
                await self.say(found, phase="Ready")

    with pytest.raises(SweepError) as caught:
        await sweep(NamedByItsMemory, create_and_wait, install=[Gadget], faults=["crash-after"])
    (details,) = {failure.details for failure in caught.value.result.failures}
    assert [line.partition(": ")[2] for line in details] == ["not there -> there"]
