"""opsdk's own layers, broken at every call: what they promise holds whatever goes wrong."""

from __future__ import annotations

import pytest
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Namespace, Secret

from opsdk import Client, For, Manager, ManagerOptions, Request, ResourceOwner, Result
from opsdk.client import ApiClient
from opsdk.testing.sweeps import World, sweep
from sweep_gadgets import Gadget, data_of, gadget

pytestmark = pytest.mark.anyio


def applied(owner: Gadget) -> list[ConfigMap]:
    """As many as the spec says: the first is always there, the others come and go."""
    data = {"size": str(owner.spec.size)}
    return [ConfigMap(metadata=ObjectMeta(name=f"g-{number}"), data=data) for number in range(owner.spec.size)]


def elsewhere(owner: Gadget) -> list[Secret]:
    """In another namespace, where no garbage collector follows an owner reference."""
    return [
        Secret(metadata=ObjectMeta(name="g", namespace="vault"), stringData={"password": f"of-{owner.metadata.name}"})
    ]


class Owner:
    def __init__(self, client: Client) -> None:
        self.client = client
        self.children = ResourceOwner(
            Gadget,
            client,
            [
                For(ConfigMap, applied, apply=True),
                For(Secret, elsewhere, finalizer="gadgets.example.com/vault"),
            ],
        )

    async def reconcile(self, request: Request) -> Result:
        found = await self.client.find(Gadget, request.name, namespace=request.namespace)
        return Result() if found is None else await self.children.reconcile(found)


async def children_come_and_go(world: World) -> None:
    await world.create(Namespace(metadata=ObjectMeta(name="vault")))
    await world.create(gadget(size=2))
    await world.exists(ConfigMap, "g-1")
    await world.exists(Secret, "g", namespace="vault")

    def shrink(found: Gadget) -> None:
        found.spec.size = 1

    await world.edit(Gadget, "g", shrink)
    await world.gone(ConfigMap, "g-1")
    await world.until(ConfigMap, "g-0", lambda child: data_of(child) == {"size": "1"}, what="is of size 1")
    await world.settle()
    await world.create(gadget("h"))
    await world.delete(Gadget, "g")
    await world.gone(Gadget, "g")


def managed(client: ApiClient) -> Manager:
    options = ManagerOptions(leader_election=False, serve_metrics=False, serve_probes=False)
    manager = Manager(options, client=client)
    manager.controller(Gadget).owns(ConfigMap).owns(Secret).complete(Owner(manager.client))
    return manager


async def test_owned_children_are_as_declared_whatever_goes_wrong() -> None:
    result = await sweep(Owner, children_come_and_go, install=[Gadget], sample=24)
    assert (len(result.runs), result.missed) == (24, ())


async def test_owned_children_are_as_declared_whatever_goes_wrong_with_the_caches() -> None:
    result = await sweep(managed, children_come_and_go, install=[Gadget], sample=16)
    assert (len(result.runs), result.missed) == (16, ())
