"""What the type checkers must know about ownership. Never run."""

from __future__ import annotations

from typing import assert_type

from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Secret, Service

from opsdk.client import ApiClient
from opsdk.models import CustomResource, MachineStatus, Model
from opsdk.ownership import (
    For,
    OwnedKind,
    OwnedResources,
    OwnershipPlan,
    PlannedAction,
    ReleaseReport,
    ResourceOwner,
    release,
)
from opsdk.protocols import Client, KubeObject
from opsdk.statemachine import StateHandler, States, Transition
from opsdk.types import Result


class Spec(Model):
    size: int = 1


class Widget(CustomResource[Spec, MachineStatus], group="demo.example.com", version="v1"):
    def get_machine_status(self) -> MachineStatus:
        return self.status


class Gadget(CustomResource[Spec, MachineStatus], group="demo.example.com", version="v1"):
    pass


def build_service(widget: Widget) -> list[Service]:
    return [Service(metadata=ObjectMeta(name=widget.metadata.name))]


def build_config(widget: Widget) -> list[ConfigMap]:
    return [ConfigMap(metadata=ObjectMeta(name=widget.metadata.name))]


def build_nothing(widget: Widget) -> list[Secret] | None:
    return None if widget.spec.size else []


def build_any(owner: KubeObject) -> list[Secret]:
    return [Secret(metadata=owner.metadata)]


def build_for_gadget(gadget: Gadget) -> list[Secret]:
    return [Secret(metadata=ObjectMeta(name=gadget.metadata.name))]


def update_service(widget: Widget, existing: Service) -> Service:
    return existing if widget.spec.size else Service()


def update_config(widget: Widget, existing: ConfigMap) -> ConfigMap:
    return existing if widget.spec.size else ConfigMap()


def service_ready(service: Service) -> bool:
    return service.spec is not None


OWNED: OwnedResources[Widget] = [
    For(Service, build_service, update=update_service, ready=service_ready),
    For(ConfigMap, build_config, apply=True),
    For(Secret, build_nothing),
]

assert_type(For(Service, build_service), For[Widget, Service])
assert_type(For(Service, build_service, ready=service_ready).kind, type[Service])


def the_child_is_hidden_in_the_list(owned: OwnedResources[Widget]) -> None:
    assert_type(owned[0], OwnedKind[Widget])


async def the_owner_knows_its_class(client: Client) -> None:
    owner = ResourceOwner(Widget, client, OWNED)
    assert_type(owner, ResourceOwner[Widget])
    assert_type(
        ResourceOwner(Widget, client, [For(Service, build_service), For(ConfigMap, build_config)]),
        ResourceOwner[Widget],
    )
    widget = await client.get(Widget, "w", namespace="default")
    assert_type(await owner.reconcile(widget), Result)
    assert_type(await owner.is_ready(widget, Service), bool)
    assert_type(await owner.are_all_ready(widget), bool)
    assert_type(owner.kinds, tuple[type[KubeObject], ...])


def an_owner_serves_as_hook_and_condition(owner: ResourceOwner[Widget]) -> None:
    states: States[Widget] = {
        "new": StateHandler(
            enter=owner.reconcile,
            reconcile=owner.reconcile,
            transitions=[Transition(to="new", when=owner.are_all_ready)],
        )
    }
    assert states


def what_serves_every_owner_serves_one() -> None:
    owned: OwnedResources[Widget] = [For(Secret, build_any)]
    assert owned


def options_know_the_owner_and_the_child() -> None:
    conditional = For(Service, build_service, when=lambda widget: widget.spec.size > 1, after=(ConfigMap, Secret))
    assert_type(conditional, For[Widget, Service])
    assert_type(conditional.after, tuple[type[KubeObject], ...])
    assert_type(For(ConfigMap, build_config, apply=True, force=True, adopt=True), For[Widget, ConfigMap])


async def plans_are_data(owner: ResourceOwner[Widget], widget: Widget) -> None:
    plan = await owner.plan(widget)
    assert_type(plan, OwnershipPlan)
    assert_type(plan.changes[0].action, PlannedAction)
    assert_type(plan.writes, bool)


async def a_release_is_of_classes_and_names(client: ApiClient) -> None:
    assert_type(await release(client, finalizers=["a.b/c"], kinds=[Widget, "configmaps"]), ReleaseReport)


async def wrong_combinations_are_refused(client: Client) -> None:
    For(Deployment, build_service)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    For(Service, build_service, update=update_config)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    mixed: OwnedResources[Widget] = [
        For(Secret, build_for_gadget),  # type: ignore[arg-type]  # pyright: ignore[reportAssignmentType]
    ]
    owner = ResourceOwner(Widget, client, mixed)
    gadget = await client.get(Gadget, "g", namespace="default")
    await owner.reconcile(gadget)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await owner.is_ready(gadget, Service)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    For(Service, build_service, when=lambda widget: widget.nothing)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownLambdaType]
