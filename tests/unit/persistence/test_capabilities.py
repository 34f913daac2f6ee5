"""Each protocol is optional: a kind with only one of them works, and does what it can."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from lightkube.models.meta_v1 import Condition, ObjectMeta
from pydantic import Field

from opsdk.errors import NotReadyError, RetryError
from opsdk.models import Conditions, CustomResource, Model, find_condition
from opsdk.persistence import PersistenceReconciler
from opsdk.protocols import Client, KubeObject
from opsdk.testing.simulator import Simulator
from opsdk.types import MergePatch

pytestmark = pytest.mark.anyio

FINALIZER = "things.demo.example.com/row"
T = TypeVar("T", bound=KubeObject)


class Spec(Model):
    size: int = 1


class Status(Model):
    conditions: Conditions = Field(default_factory=list[Condition])
    observed_generation: int = 0


class Bare(CustomResource[Spec, Status], group="demo.example.com", version="v1"):
    """Has nothing."""


class Conditioned(CustomResource[Spec, Status], group="demo.example.com", version="v1"):
    def get_status_conditions(self) -> list[Condition]:
        return self.status.conditions


class Observing(CustomResource[Spec, Status], group="demo.example.com", version="v1"):
    def set_observed_generation(self, generation: int) -> None:
        self.status.observed_generation = generation


class Telling(CustomResource[Spec, Status], group="demo.example.com", version="v1"):
    """Knows its generation from somewhere: here from what the hook writes."""

    def get_observed_generation(self) -> int:
        return self.status.observed_generation


class Patching(CustomResource[Spec, Status], group="demo.example.com", version="v1"):
    """Has its own patch, and conditions that only this patch could write."""

    def get_status_conditions(self) -> list[Condition]:
        return self.status.conditions

    def set_observed_generation(self, generation: int) -> None:
        self.status.observed_generation = generation

    def generate_status_patch(self, previous: Patching) -> MergePatch | None:
        assert previous.status.observed_generation < (self.metadata.generation or 0)
        if self.spec.size == 1:
            return None
        return MergePatch({"status": {"observedGeneration": self.status.observed_generation}})


async def nothing(_: KubeObject) -> None: ...


async def not_ready(_: KubeObject) -> None:
    raise NotReadyError("Waiting", "for it")


async def failing(_: KubeObject) -> None:
    raise ValueError("away")


def keeps(kind: type[T], on_upsert: Callable[[T], Awaitable[None]]) -> Callable[[Client], PersistenceReconciler[T]]:
    async def delete(uid: str) -> None: ...

    return lambda client: PersistenceReconciler(
        kind, client, on_upsert=on_upsert, on_delete=delete, finalizer=FINALIZER
    )


def metadata() -> ObjectMeta:
    return ObjectMeta(name="thing", namespace="default")


async def test_a_kind_with_none_of_them_is_stored_announced_and_deleted() -> None:
    async with Simulator(keeps(Bare, nothing)) as sim:
        await sim.create(Bare(metadata=metadata(), spec=Spec()))
        sim.expect_patch(Bare)  # the finalizer, and no status
        sim.expect_event("Created")
        await sim.fake_client.delete(Bare, "thing", namespace="default")
        await sim.reconcile()
        sim.expect_patch(Bare)
        sim.expect_event("Deleted")


async def test_a_kind_with_none_of_them_warns_once_that_it_is_not_ready() -> None:
    async with Simulator(keeps(Bare, not_ready)) as sim:
        await sim.create(Bare(metadata=metadata(), spec=Spec()))
        await sim.reconcile()
        await sim.reconcile()
        assert [event.reason for event in sim.events] == ["Created", "Waiting"]
        sim.clear()


async def test_conditions_alone_are_set() -> None:
    async with Simulator(keeps(Conditioned, not_ready)) as sim:
        made = await sim.create(Conditioned(metadata=metadata(), spec=Spec()))
        condition = find_condition(made.status.conditions, "Ready")
        assert condition is not None
        assert (condition.status, condition.reason, condition.observedGeneration) == ("False", "Waiting", 1)
        assert made.status.observed_generation == 0
        sim.clear()


async def test_the_observed_generation_alone_is_set() -> None:
    async with Simulator(keeps(Observing, nothing)) as sim:
        made = await sim.create(Observing(metadata=metadata(), spec=Spec()))
        assert (made.status.observed_generation, made.status.conditions) == (1, [])
        sim.clear()


async def test_a_failure_does_not_move_the_observed_generation() -> None:
    async with Simulator(keeps(Observing, failing)) as sim:
        with pytest.raises(RetryError):
            await sim.create(Observing(metadata=metadata(), spec=Spec()))
        assert (await sim.fake_client.get(Observing, "thing", namespace="default")).status.observed_generation == 0
        sim.clear()


async def test_a_getter_alone_tells_created_and_updated_apart() -> None:
    async def observe(thing: Telling) -> None:
        thing.status.observed_generation = thing.metadata.generation or 0

    async with Simulator(keeps(Telling, observe)) as sim:
        await sim.create(Telling(metadata=metadata(), spec=Spec()))
        await sim.fake_client.patch(Telling, "thing", MergePatch({"spec": {"size": 2}}), namespace="default")
        await sim.reconcile()
        assert [event.reason for event in sim.events] == ["Created", "Updated"]
        sim.clear()


@pytest.mark.parametrize(("size", "observed"), [(1, 0), (2, 1)])
async def test_a_patch_of_its_own_decides_although_there_are_conditions(size: int, observed: int) -> None:
    async with Simulator(keeps(Patching, nothing)) as sim:
        made = await sim.create(Patching(metadata=metadata(), spec=Spec(size=size)))
        assert (made.status.observed_generation, made.status.conditions) == (observed, [])
        sim.clear()
