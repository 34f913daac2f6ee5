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
from lightkube.resources.core_v1 import ConfigMap, Secret

from opsdk import Manager, Request, Result
from opsdk.client import ApiClient
from opsdk.errors import AlreadyExistsError, ApiError
from opsdk.models import owner_reference_to
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
    managed,
    whole_life,
)

pytestmark = pytest.mark.anyio


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
