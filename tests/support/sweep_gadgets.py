"""Operators for sweeps: one that is right, and many that are wrong in one way each."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol, cast

from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap
from pydantic import Field

from opsdk import (
    Client,
    CustomResource,
    Manager,
    ManagerOptions,
    Model,
    Request,
    Result,
    StateCondition,
    StateEvent,
    StateHandler,
    StateMachine,
    States,
    clock,
)
from opsdk.client import ApiClient
from opsdk.errors import AlreadyExistsError, ConflictError
from opsdk.models import MachineStatus, owner_reference_to
from opsdk.testing.sweeps import World
from opsdk.types import Json, MergePatch

FINALIZER = "gadgets.example.com/account"


class GadgetSpec(Model):
    size: int = 1


class GadgetStatus(Model):
    phase: str = ""
    child: str = ""
    count: int = 0


class Gadget(CustomResource[GadgetSpec, GadgetStatus], group="example.com", version="v1"):
    """Has a ConfigMap, and perhaps an account at somebody else's."""


class MachineGadgetStatus(MachineStatus):
    accounts: int = Field(default=0)


class MachineGadget(CustomResource[GadgetSpec, MachineGadgetStatus], group="example.com", version="v1"):
    """The same with a state machine."""

    def get_machine_status(self) -> MachineGadgetStatus:
        return self.status


class _HasData(Protocol):
    data: Mapping[str, str] | None


def data_of(child: ConfigMap) -> dict[str, str]:
    """Typed: lightkube declares the map as a bare `dict`."""
    return dict(cast("_HasData", child).data or {})


class Accounts:
    """What is outside of the cluster: an account for each gadget."""

    def __init__(self) -> None:
        self.open: dict[str, int] = {}

    async def reset(self) -> None:
        self.open.clear()

    async def state(self) -> Json:
        return dict(sorted(self.open.items()))


def gadget(name: str = "g", size: int = 1) -> Gadget:
    return Gadget(metadata=ObjectMeta(name=name), spec=GadgetSpec(size=size))


def in_phase(phase: str) -> Callable[[Gadget], bool]:
    def holds(found: Gadget) -> bool:
        return found.status.phase == phase

    return holds


async def create_and_wait(world: World) -> None:
    await world.create(gadget())
    await world.until(Gadget, "g", in_phase("Ready"), what="in phase Ready")


async def create_and_delete(world: World) -> None:
    await create_and_wait(world)
    await world.delete(Gadget, "g")
    await world.gone(Gadget, "g")


async def delete_at_once(world: World) -> None:
    await world.create(gadget())
    await world.exists(ConfigMap, "g")
    await world.delete(Gadget, "g")
    await world.gone(Gadget, "g")


async def whole_life(world: World) -> None:
    await create_and_wait(world)

    def grow(found: Gadget) -> None:
        found.spec.size = 2

    await world.edit(Gadget, "g", grow)
    await world.until(ConfigMap, "g", lambda child: data_of(child) == {"size": "2"})
    await world.settle()
    await world.delete(Gadget, "g")
    await world.gone(Gadget, "g")


def managed(client: ApiClient, *, elect: bool = True) -> Manager:
    options = ManagerOptions(
        leader_election=elect,
        leader_election_id="gadgets",
        leader_election_namespace="default",
        serve_metrics=False,
        serve_probes=False,
    )
    return Manager(options, client=client)


def child_of(owner: Gadget, name: str | None = None, *, generate: str | None = None) -> ConfigMap:
    return ConfigMap(
        metadata=ObjectMeta(
            name=name,
            generateName=generate,
            namespace=owner.metadata.namespace,
            labels={"gadget": owner.metadata.name or ""},
            ownerReferences=[owner_reference_to(owner)],
        ),
        data={"size": str(owner.spec.size)},
    )


class Base:
    """Reads the gadget; subclasses do the rest."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def reconcile(self, request: Request) -> Result:
        found = await self.client.find(Gadget, request.name, namespace=request.namespace)
        if found is None:
            return Result()
        return await self.follow(found) or Result()

    async def follow(self, found: Gadget) -> Result | None:
        raise NotImplementedError

    async def child(self, found: Gadget, name: str | None = None) -> ConfigMap | None:
        return await self.client.find(ConfigMap, name or found.metadata.name or "", namespace=found.metadata.namespace)

    async def children(self, found: Gadget) -> Sequence[ConfigMap]:
        labels = {"gadget": found.metadata.name or ""}
        return await self.client.list(ConfigMap, namespace=found.metadata.namespace, labels=labels)

    async def say(self, found: Gadget, **status: Json) -> None:
        base = self.client.snapshot(found)
        for name, value in status.items():
            setattr(found.status, name, value)
        await self.client.status.patch_from(base, found)

    async def finalizers(self, found: Gadget, *finalizers: str) -> None:
        base = self.client.snapshot(found)
        found.metadata.finalizers = list(finalizers)
        await self.client.patch_from(base, found)


class Right(Base):
    """Does it all as it should."""

    async def follow(self, found: Gadget) -> Result | None:
        if found.metadata.deletionTimestamp is not None:
            return None
        child = await self.child(found)
        wanted = {"size": str(found.spec.size)}
        if child is None:
            await self.client.create(child_of(found, found.metadata.name))
        elif data_of(child) != wanted:
            base = self.client.snapshot(child)
            child.data = wanted
            await self.client.patch_from(base, child)
        await self.say(found, phase="Ready")
        return None


class RightWithAccounts(Base):
    """Opens an account, and closes it before it lets go."""

    def __init__(self, client: Client, accounts: Accounts) -> None:
        super().__init__(client)
        self.accounts = accounts

    async def follow(self, found: Gadget) -> Result | None:
        uid = found.metadata.uid or ""
        if found.metadata.deletionTimestamp is not None:
            self.accounts.open.pop(uid, None)
            await self.finalizers(found)
            return None
        if FINALIZER not in (found.metadata.finalizers or []):
            await self.finalizers(found, FINALIZER)
        self.accounts.open[uid] = found.spec.size
        await self.say(found, phase="Ready")
        return None


class FinalizerTooEarly(RightWithAccounts):
    """Lets go first, and closes the account then."""

    async def follow(self, found: Gadget) -> Result | None:
        if found.metadata.deletionTimestamp is None:
            return await super().follow(found)
        await self.finalizers(found)
        self.accounts.open.pop(found.metadata.uid or "", None)
        return None


class StatusLostOnConflict(Base):
    """Takes a conflict for an answer, and thinks of the status only when it creates the child."""

    async def follow(self, found: Gadget) -> Result | None:
        if await self.child(found) is None:
            await self.client.create(child_of(found, found.metadata.name))
            try:
                await self.say(found, phase="Ready")
            except ConflictError:
                return None
        return None


class RandomName(Base):
    """Notes the name of its child after it has created it."""

    async def follow(self, found: Gadget) -> Result | None:
        if not found.status.child:
            created = await self.client.create(child_of(found, f"g-{random.getrandbits(32):08x}"))
            await self.say(found, phase="Ready", child=created.metadata.name if created.metadata else "")
        return None


class HotLoop(Base):
    """Counts its own reconciles in status, and each count is a change."""

    async def follow(self, found: Gadget) -> Result | None:
        await self.say(found, phase="Ready", count=found.status.count + 1)
        return None


class Heartbeat(Base):
    """Writes every ten seconds that it still is there."""

    async def follow(self, found: Gadget) -> Result | None:
        await self.say(found, phase="Ready", count=int(clock.now().timestamp()) // 10)
        return Result(requeue_after=timedelta(seconds=10))


class StaleDuplicate(Base):
    """Believes its cache when that says that there is no child."""

    async def follow(self, found: Gadget) -> Result | None:
        if not await self.children(found):
            await self.client.create(child_of(found, generate="g-"))
        await self.say(found, phase="Ready")
        return None


class DeletedOnlyWhenReady(Right):
    """Has no way out of any other phase."""

    async def follow(self, found: Gadget) -> Result | None:
        if found.metadata.deletionTimestamp is not None:
            if found.status.phase == "Ready":
                await self.finalizers(found)
            return None
        if FINALIZER not in (found.metadata.finalizers or []):
            await self.finalizers(found, FINALIZER)
        return await super().follow(found)


class LostRequeue(Base):
    """Asks to be called again when it creates the child, and only then."""

    async def follow(self, found: Gadget) -> Result | None:
        if await self.child(found) is None:
            await self.client.create(child_of(found, found.metadata.name))
            self.look_at = clock.now() + timedelta(seconds=10)
        if found.status.phase != "Ready" and self.look_at is not None:
            if clock.now() < self.look_at:
                return Result(requeue_after=self.look_at - clock.now())
            await self.say(found, phase="Ready")
        return None

    look_at: datetime | None = None


class NeedsItsMemory(Base):
    """Knows only in memory that it has created the child, and what comes next."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.created: set[str] = set()

    async def follow(self, found: Gadget) -> Result | None:
        uid = found.metadata.uid or ""
        if await self.child(found) is None:
            await self.client.create(child_of(found, found.metadata.name))
            self.created.add(uid)
        if uid in self.created:
            await self.say(found, phase="Ready")
        return None


class NoAlreadyExists(Base):
    """Creates because status does not say that it has, and does not expect the child to be there."""

    async def follow(self, found: Gadget) -> Result | None:
        if found.status.phase != "Ready":
            await self.client.create(child_of(found, found.metadata.name))
            await self.say(found, phase="Ready")
        return None


class OneAccountMore:
    """A state machine whose `enter` adds to what is there."""

    def __init__(self, client: Client, accounts: Accounts) -> None:
        self.client = client
        self.accounts = accounts
        states: States[MachineGadget] = {
            "open": StateHandler(
                conditions=[StateCondition(type="Ready", status="True", reason="Open")],
                event=StateEvent(reason="Opened", message="the account is open"),
                enter=self.open_account,
            ),
        }
        self.machine = StateMachine(MachineGadget, client, "open", states)

    async def open_account(self, found: MachineGadget) -> None:
        uid = found.metadata.uid or ""
        self.accounts.open[uid] = self.accounts.open.get(uid, 0) + 1

    async def reconcile(self, request: Request) -> Result:
        found = await self.client.find(MachineGadget, request.name, namespace=request.namespace)
        return Result() if found is None else await self.machine.reconcile(found)


class GivesUp(Base):
    """Takes an error of the server for the end, and says so."""

    async def follow(self, found: Gadget) -> Result | None:
        if found.status.phase:
            return None
        try:
            await self.client.create(child_of(found, found.metadata.name))
        except AlreadyExistsError:
            pass
        except Exception:  # noqa: BLE001 - this is what is wrong
            await self.say(found, phase="Failed")
            return None
        await self.say(found, phase="Ready")
        return None


class LateWriter(Base):
    """Writes its status without a precondition, and does not look at it again."""

    async def follow(self, found: Gadget) -> Result | None:
        name, namespace = found.metadata.name or "", found.metadata.namespace
        if found.status.phase == "":
            patch = MergePatch({"status": {"phase": "Creating"}})
            await self.client.status.patch(Gadget, name, patch, namespace=namespace)
        elif found.status.phase == "Creating" and await self.child(found) is None:
            await self.client.create(child_of(found, name))
            patch = MergePatch({"status": {"phase": "Ready"}})
            await self.client.status.patch(Gadget, name, patch, namespace=namespace)
        return None
