"""Each of these operators is wrong in one way, and a sweep says in three lines how to see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from lightkube import AsyncClient
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap

from opsdk import Client, Request, Result
from opsdk.testing.sweeps import FAULT_KINDS, FaultKind, Scenario, SweepError, SweepFailure, World, sweep
from opsdk.types import MergePatch
from sweep_gadgets import (
    Accounts,
    Base,
    DeletedOnlyWhenReady,
    FinalizerTooEarly,
    Gadget,
    GadgetSpec,
    GivesUp,
    Heartbeat,
    HotLoop,
    LateWriter,
    LostRequeue,
    MachineGadget,
    NeedsItsMemory,
    NoAlreadyExists,
    OneAccountMore,
    RandomName,
    StaleDuplicate,
    StatusLostOnConflict,
    create_and_delete,
    create_and_wait,
    data_of,
    delete_at_once,
)

pytestmark = pytest.mark.anyio


async def failures_of(
    make: Callable[[Client], Base],
    scenario: Scenario = create_and_wait,
    *,
    faults: Sequence[FaultKind] = FAULT_KINDS,
) -> list[SweepFailure]:
    with pytest.raises(SweepError) as caught:
        await sweep(make, scenario, install=[Gadget], faults=faults)
    return checked(caught.value)


def checked(error: SweepError) -> list[SweepFailure]:
    for failure in error.result.failures:
        assert len(failure.recipe.splitlines()) == 3
        assert f'only="{failure.plan}", seed=0' in failure.recipe
    assert error.result.failures[0].recipe in str(error)
    return list(error.result.failures)


def plans(failures: list[SweepFailure]) -> set[str]:
    return {failure.plan for failure in failures}


async def test_a_child_that_is_named_at_random_is_found_twice_after_a_crash() -> None:
    failures = await failures_of(RandomName)
    assert {"crash-after:1", "crash-before:2", "timeout:1"} <= plans(failures)
    assert failures[0].recipe == (
        "crash before write 2: PATCH gadgets/default/g status\n"
        '  to run just this: sweep(…, only="crash-before:2", seed=0)\n'
        "  the end state is another one:"
    )
    assert failures[0].details == ("ConfigMap default/* #2: not there -> there",)


async def test_a_status_that_is_lost_on_conflict_is_found_by_an_edit_in_between() -> None:
    failures = await failures_of(StatusLostOnConflict)
    (conflict,) = [failure for failure in failures if failure.plan == "conflict:2"]
    assert conflict.what == "somebody else's edit just before write 2: PATCH gadgets/default/g status"
    assert "still not: Gadget g in phase Ready" in conflict.reason
    assert "  PATCH gadgets/default/g status (409)" in conflict.details


async def test_an_enter_that_is_not_idempotent_is_found_by_a_crash_before_its_status_is_written() -> None:
    accounts = Accounts()

    async def create(world: World) -> None:
        await world.create(MachineGadget(metadata=ObjectMeta(name="g"), spec=GadgetSpec()))
        await world.until(MachineGadget, "g", lambda found: found.status.state == "open", what="open")

    with pytest.raises(SweepError) as caught:
        await sweep(lambda client: OneAccountMore(client, accounts), create, outside=accounts)
    failures = checked(caught.value)
    assert "crash-before:1" in plans(failures)
    assert failures[0].details == ("outside: state.uid of MachineGadget default/g: 1 -> 2",)


async def test_a_finalizer_that_goes_too_early_is_found_by_a_crash_after_it_went() -> None:
    accounts = Accounts()
    with pytest.raises(SweepError) as caught:
        await sweep(lambda client: FinalizerTooEarly(client, accounts), create_and_delete, outside=accounts)
    failures = checked(caught.value)
    assert plans(failures) == {"crash-after:4", "timeout:4"}
    assert failures[0].what == "crash after write 4: PATCH gadgets/default/g"
    assert failures[0].details == ("outside: state.uid of gone Gadget default/g: (none) -> 1",)


async def test_a_hot_loop_is_found_without_any_fault() -> None:
    (failure,) = await failures_of(HotLoop)
    assert failure.plan == "none"
    assert failure.reason.startswith("hot loop: 3000 calls within a minute")


async def test_a_status_that_is_written_every_ten_seconds_never_rests() -> None:
    (failure,) = await failures_of(Heartbeat)
    assert failure.reason == "it does not come to rest: after 600 s it still writes"


async def test_a_heartbeat_that_is_ignored_is_rest() -> None:
    result = await sweep(Heartbeat, create_and_wait, install=[Gadget], ignore=["Gadget status.count"], faults=["stale"])
    assert result.runs


async def test_a_duplicate_for_the_sake_of_a_stale_read_is_found_by_a_cache_that_is_behind() -> None:
    failures = await failures_of(StaleDuplicate)
    assert "stale:1" in plans(failures)
    assert not {"crash-after:1", "timeout:1"} & plans(failures)  # nothing else finds it
    assert failures[0].details[0] == "ConfigMap default/g-* #2: not there -> there"


async def test_a_deletion_that_only_one_phase_knows_is_found_when_it_comes_in_another() -> None:
    failures = await failures_of(DeletedOnlyWhenReady, delete_at_once, faults=["crash-before", "crash-after"])
    assert "crash-after:2" in plans(failures)
    assert "still not: Gadget g gone (its finalizers: gadgets.example.com/account)" in failures[0].reason


async def test_a_deletion_that_is_stuck_is_found_although_nobody_waits_for_it() -> None:
    async def never_mind(world: World) -> None:
        await create_and_wait(world)
        await world.delete(Gadget, "g")

    class NeverLetsGo(Base):
        async def follow(self, found: Gadget) -> None:
            if found.metadata.deletionTimestamp is None:
                await self.finalizers(found, "gadgets.example.com/account")
                await self.say(found, phase="Ready")

    (failure,) = await failures_of(NeverLetsGo, never_mind)
    assert failure.reason == "a deletion does not complete"
    assert failure.details == ("Gadget default/g: held by gadgets.example.com/account",)


@pytest.mark.parametrize("wrong", [LostRequeue, NeedsItsMemory])
async def test_what_is_known_only_in_memory_is_found_by_a_crash_after_the_creation(wrong: type[Base]) -> None:
    failures = await failures_of(wrong)
    assert {"crash-after:1", "crash-before:2"} <= plans(failures)


async def test_a_create_that_does_not_expect_its_child_to_be_there_is_found_by_a_lost_answer() -> None:
    failures = await failures_of(NoAlreadyExists)
    assert {"timeout:1", "crash-after:1"} <= plans(failures)
    assert "  POST configmaps/default/g (409)" in failures[0].details


async def test_an_operator_that_takes_an_error_for_the_end_is_found_by_errors() -> None:
    failures = await failures_of(GivesUp)
    assert plans(failures) == {"timeout:1", "unavailable:1", "throttled:1", "error:1"}


async def test_a_step_that_is_forgotten_when_its_second_write_fails_is_found() -> None:
    assert "unavailable:3" in plans(await failures_of(LateWriter))


async def test_a_write_that_erases_what_others_have_written_is_found_by_an_edit_in_between() -> None:
    class Overwrites:
        """Puts back what it read before, without saying which version that was."""

        def __init__(self, client: AsyncClient) -> None:
            self.client = client

        async def reconcile(self, request: Request) -> Result:
            found = await self.client.get(ConfigMap, request.name, namespace=request.namespace)
            assert found.metadata is not None
            if data_of(found) != {"kept": "yes"}:
                found.metadata.resourceVersion = None
                found.data = {"kept": "yes"}
                await self.client.replace(found)
            return Result()

    async def create(world: World) -> None:
        await world.create(ConfigMap(metadata=ObjectMeta(name="c")))
        await world.settle()

    with pytest.raises(SweepError) as caught:
        await sweep(Overwrites, create, client_type=AsyncClient)
    failures = checked(caught.value)
    (conflict,) = [failure for failure in failures if failure.plan == "conflict:1"]
    assert conflict.reason == "the operator erased what somebody else wrote: an annotation of configmaps/default/c"


async def test_a_late_write_without_precondition_is_found_by_lost_leadership() -> None:
    class SetsItBack(Base):
        """Writes what follows from what it has read, whatever has happened since."""

        async def follow(self, found: Gadget) -> None:
            name, namespace = found.metadata.name or "", found.metadata.namespace
            if not found.status.child:
                patch = MergePatch({"status": {"child": "pending"}})
                await self.client.status.patch(Gadget, name, patch, namespace=namespace)
            elif not found.status.phase:
                patch = MergePatch({"status": {"child": "made", "phase": "Ready"}})
                await self.client.status.patch(Gadget, name, patch, namespace=namespace)

    failures = await failures_of(SetsItBack)
    assert plans(failures) == {"leader-lost:1"}
    assert failures[0].what == "leadership is lost at, and late comes, write 1: PATCH gadgets/default/g status"
    assert failures[0].details == ('Gadget default/g: status.child: "made" -> "pending"',)


async def test_an_invariant_is_looked_at_after_every_write() -> None:
    async def never_two(world: World) -> None:
        children = await world.client.list(ConfigMap, namespace="default")
        assert len(children) <= 1, f"there are {len(children)}"

    with pytest.raises(SweepError) as caught:
        await sweep(StaleDuplicate, create_and_wait, install=[Gadget], always=never_two, faults=["stale"])
    failures = checked(caught.value)
    assert failures[0].reason == ("an invariant is broken after POST configmaps/default: AssertionError: there are 2")
