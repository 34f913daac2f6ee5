"""What a sweep runs, what it reports, and what it refuses."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import cast

import anyio
import pytest
from lightkube import AsyncClient
from lightkube.core.exceptions import ApiError as LightkubeError
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Namespace, Secret

from opsdk import Client, Manager, ManagerOptions, Request, Result
from opsdk.client import ApiClient
from opsdk.errors import AlreadyExistsError, ApiError
from opsdk.models import owner_reference_to
from opsdk.protocols import Added, Modified
from opsdk.testing.sweeps import (
    FAULT_KINDS,
    FaultKind,
    ScenarioError,
    SweepError,
    SweepResult,
    SweepUsageError,
    World,
    sweep,
)
from opsdk.types import Json
from sweep_gadgets import (
    Accounts,
    Base,
    Gadget,
    RandomName,
    Right,
    RightWithAccounts,
    child_of,
    create_and_delete,
    create_and_wait,
    data_of,
    gadget,
    in_phase,
    whole_life,
)

pytestmark = pytest.mark.anyio


def managed(client: ApiClient, *, elect: bool = True) -> Manager:
    options = ManagerOptions(
        leader_election=elect,
        leader_election_id="gadgets",
        leader_election_namespace="default",
        serve_metrics=False,
        serve_probes=False,
    )
    return Manager(options, client=client)


# ---- right operators -----------------------------------------------------------------------------------------------


async def test_a_reconciler_that_is_right_survives_every_fault_at_every_call() -> None:
    result = await sweep(Right, whole_life, install=[Gadget])
    assert [str(write) for write in result.writes] == [
        "POST configmaps/default/g",
        "PATCH gadgets/default/g status",
        "PATCH configmaps/default/g",
    ]
    assert {plan.partition(":")[0] for plan in result.runs} == set(FAULT_KINDS)
    assert not result.missed
    assert str(result) == f"all {len(result.runs)} runs with a fault ended as the one without"


async def test_an_account_outside_is_closed_whatever_goes_wrong() -> None:
    accounts = Accounts()
    await sweep(lambda client: RightWithAccounts(client, accounts), create_and_delete, outside=accounts)


async def test_a_manager_that_is_right_survives_every_fault_with_its_caches() -> None:
    def operator(client: ApiClient) -> Manager:
        manager = managed(client, elect=False)
        manager.controller(Gadget).owns(ConfigMap).complete(Right(manager.client))
        return manager

    result = await sweep(operator, whole_life, install=[Gadget], sample=24)
    assert len(result.runs) == 24


async def test_a_manager_that_loses_its_lease_at_any_write_makes_way_for_another() -> None:
    def operator(client: ApiClient) -> Manager:
        manager = managed(client)
        manager.controller(Gadget).owns(ConfigMap).complete(Right(manager.client))
        return manager

    result = await sweep(operator, create_and_wait, install=[Gadget], faults=["leader-lost"])
    assert result.runs == ("leader-lost:1", "leader-lost:2")
    assert not any("leases" in str(write) for write in result.writes)


async def test_a_reconciler_on_lightkubes_own_client_survives_every_fault() -> None:
    class OnLightkube:
        def __init__(self, client: AsyncClient) -> None:
            self.client = client

        async def reconcile(self, request: Request) -> Result:
            try:
                found = await self.client.get(ConfigMap, request.name, namespace=request.namespace)
            except LightkubeError as error:
                if error.status.code == 404:
                    return Result()
                raise
            if data_of(found) != {"size": "1"}:
                found.data = {"size": "1"}
                await self.client.replace(found)
            return Result()

    async def create(world: World) -> None:
        await world.create(ConfigMap(metadata=ObjectMeta(name="c")))
        await world.until(ConfigMap, "c", lambda found: data_of(found) == {"size": "1"})

    result = await sweep(OnLightkube, create, client_type=AsyncClient)
    assert {"timeout:1", "crash-before:1", "stale:1", "gone-http:1"} <= set(result.runs)


async def test_children_with_generated_names_are_the_same_whatever_they_are_called() -> None:
    class Named(Base):
        """Looks past its cache before it creates what has no name of its own."""

        async def follow(self, found: Gadget) -> None:
            if found.status.child:
                return
            name = f"g-{(found.metadata.uid or '')[:8]}"
            with suppress(AlreadyExistsError):
                await self.client.create(child_of(found, name))
            await self.say(found, phase="Ready", child=name)

    await sweep(Named, create_and_wait, install=[Gadget])


# ---- operators that are a loop of their own ------------------------------------------------------------------------


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


# ---- what is run ---------------------------------------------------------------------------------------------------


async def test_only_runs_just_the_fault_of_a_recipe() -> None:
    with pytest.raises(SweepError) as caught:
        await sweep(RandomName, create_and_wait, install=[Gadget], only="crash-after:1")
    assert caught.value.result.runs == ("crash-after:1",)
    await sweep(RandomName, create_and_wait, install=[Gadget], only="crash-before:1")
    result = await sweep(RandomName, create_and_wait, install=[Gadget], only="none")
    assert result.runs == ()


async def test_a_sample_is_chosen_by_the_seed() -> None:
    async def run(seed: int) -> SweepResult:
        return await sweep(Right, create_and_wait, install=[Gadget], sample=4, seed=seed)

    first, again, other = await run(1), await run(1), await run(2)
    assert len(first.runs) == 4
    assert first == again
    assert first.runs != other.runs


async def test_the_same_seed_finds_the_same_in_the_same_words() -> None:
    async def text() -> str:
        with pytest.raises(SweepError) as caught:
            await sweep(RandomName, create_and_wait, install=[Gadget])
        return str(caught.value)

    assert await text() == await text()


async def test_a_pair_that_fails_is_cut_down_to_what_it_needs() -> None:
    class TakesOneErrorOnly(Base):
        """Survives one failed creation, and takes the second one for the end."""

        failed = 0

        async def follow(self, found: Gadget) -> None:
            if found.status.phase:
                return
            try:
                await self.client.create(child_of(found, found.metadata.name))
            except AlreadyExistsError:
                pass
            except ApiError:
                self.failed += 1
                if self.failed == 1:
                    raise
                await self.say(found, phase="Failed")
                return
            await self.say(found, phase="Ready")

    async def find(pairs: int) -> SweepResult:
        return await sweep(
            TakesOneErrorOnly, create_and_wait, install=[Gadget], faults=["error", "crash-after"], pairs=pairs
        )

    await find(pairs=0)
    with pytest.raises(SweepError) as caught:
        await find(pairs=20)
    assert {failure.plan for failure in caught.value.result.failures} == {"error:1+error:2"}
    failure = caught.value.result.failures[0]
    assert failure.recipe.splitlines()[0] == (
        "500 instead of write 1: POST configmaps/default/g, then 500 instead of write 2: POST configmaps/default/g"
    )
    assert len(failure.recipe.splitlines()) == 3


async def test_failures_are_collected_up_to_a_limit() -> None:
    with pytest.raises(SweepError) as caught:
        await sweep(RandomName, create_and_wait, install=[Gadget], most_failures=3)
    assert len(caught.value.result.failures) == 3


async def test_secrets_are_compared_and_never_shown() -> None:
    class Keeps(Base):
        async def follow(self, found: Gadget) -> None:
            password = "hunter2" if found.status.phase == "" else "swordfish"
            secret = Secret(
                metadata=ObjectMeta(name="g", namespace="default", ownerReferences=[owner_reference_to(found)]),
                stringData={"password": password},
            )
            if await self.client.find(Secret, "g", namespace="default") is None:
                await self.say(found, phase="Ready")
                await self.client.create(secret)

    async def create(world: World) -> None:
        await world.create(gadget())
        await world.settle()

    with pytest.raises(SweepError) as caught:
        await sweep(Keeps, create, install=[Gadget], faults=["crash-before"])
    text = str(caught.value)
    assert "Secret default/g: data.password: (hidden) -> (hidden)" in text
    assert "aHVudGVyMg" not in text
    assert "c3dvcmRmaXNo" not in text


# ---- what is refused -----------------------------------------------------------------------------------------------


async def test_what_is_no_fault_is_refused_with_the_kinds_there_are() -> None:
    with pytest.raises(SweepUsageError, match=r"'crash:1' is no fault; it has to look like 'crash-after:3'"):
        await sweep(Right, create_and_wait, install=[Gadget], only="crash:1")


async def test_a_fault_that_does_not_happen_is_no_success() -> None:
    with pytest.raises(SweepUsageError, match=r"crash-after:9 did not happen, so nothing was tried: .* 2 writes"):
        await sweep(Right, create_and_wait, install=[Gadget], only="crash-after:9")
    with pytest.raises(SweepUsageError, match="conflict:1 did not happen"):  # there is nothing that could be edited
        await sweep(Right, create_and_wait, install=[Gadget], only="conflict:1")


async def test_an_operator_that_does_nothing_is_no_success() -> None:
    class Idle:
        """Perhaps it has another client than the one that it was given."""

        def __init__(self, client: ApiClient) -> None:
            self.client = client

        async def run(self) -> None:
            await anyio.sleep_forever()

    class OnlyCreates(Base):
        async def follow(self, found: Gadget) -> None:
            with suppress(AlreadyExistsError):
                await self.client.create(child_of(found, "c"))

    async def create(world: World) -> None:
        await world.create(gadget())
        await world.settle()

    with pytest.raises(SweepUsageError, match=r"nothing to break: the operator made 0 writes"):
        await sweep(Idle, create, install=[Gadget])
    with pytest.raises(SweepUsageError, match=r"none is one for conflict"):
        await sweep(OnlyCreates, create, install=[Gadget], faults=["conflict"])


async def test_what_would_run_nothing_is_refused() -> None:
    misspelt = cast("FaultKind", "crash-aftr")
    with pytest.raises(SweepUsageError, match=r"'crash-aftr' is no kind of fault; there are crash-before, "):
        await sweep(Right, create_and_wait, install=[Gadget], faults=["timeout", misspelt])
    with pytest.raises(SweepUsageError, match=r"faults=\[\] breaks nothing"):
        await sweep(Right, create_and_wait, install=[Gadget], faults=[])
    with pytest.raises(SweepUsageError, match="at least 1"):
        await sweep(Right, create_and_wait, install=[Gadget], sample=0)
    with pytest.raises(SweepUsageError, match="at least 1"):
        await sweep(Right, create_and_wait, install=[Gadget], most_failures=0)


async def test_a_fault_that_hits_another_call_than_was_planned_is_counted() -> None:
    runs = 0

    class InAnyOrder(Base):
        """Its runs end alike, and get there by other ways."""

        async def follow(self, found: Gadget) -> None:
            for name in ("a", "b") if runs % 2 else ("b", "a"):
                if await self.child(found, name) is None:
                    await self.client.create(child_of(found, name))
            await self.say(found, phase="Ready")

    async def create(world: World) -> None:
        nonlocal runs
        runs += 1
        await create_and_wait(world)

    result = await sweep(InAnyOrder, create, install=[Gadget], faults=["crash-before", "error"])
    assert result.missed == ("crash-before:2", "error:1")
    assert str(result).endswith("; in 2 of them it did not happen where it was planned")


async def test_a_run_that_does_not_repeat_without_faults_says_what_to_ignore() -> None:
    runs = 0

    class Whim(Base):
        async def follow(self, found: Gadget) -> None:
            if not found.status.phase:
                await self.say(found, phase="Ready", count=runs)

    async def create(world: World) -> None:
        nonlocal runs
        runs += 1
        await create_and_wait(world)

    with pytest.raises(SweepUsageError, match=r"(?s)ignore=.*Gadget default/g: status.count: 1 -> 2"):
        await sweep(Whim, create, install=[Gadget])
    await sweep(Whim, create, install=[Gadget], ignore=["status.count"], faults=["timeout"])


async def test_a_scenario_that_waits_in_vain_says_for_what() -> None:
    async def never(world: World) -> None:
        await world.create(gadget())
        await world.until(Gadget, "g", lambda found: found.status.count == 7, what="counts to seven")

    with pytest.raises(SweepError, match=r"still not: Gadget g counts to seven") as caught:
        await sweep(Right, never, install=[Gadget], patience=timedelta(minutes=2))
    assert caught.value.result.failures[0].plan == "none"
    assert issubclass(ScenarioError, AssertionError)


def test_real_time_is_refused() -> None:
    async def main() -> None:
        await sweep(Right, create_and_wait, install=[Gadget])

    with pytest.raises(SweepUsageError, match="needs virtual time"):
        anyio.run(main)
