"""What type checkers must know about models, and must refuse. Checked by mypy and pyright, never run."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Generic, assert_type

from lightkube.core.resource import ApiInfo, NamespacedResourceG, ResourceDef
from lightkube.core.schema import DictMixin
from lightkube.models.core_v1 import ResourceRequirements
from lightkube.models.meta_v1 import Condition, ObjectMeta, OwnerReference
from lightkube.resources.apps_v1 import Deployment
from pydantic import Field
from typing_extensions import TypeVar

from opsdk import clock
from opsdk.client import ApiClient, InstalledCrd, install_crds
from opsdk.models import (
    AnyMachineStatus,
    Cel,
    Codec,
    Conditions,
    CustomResource,
    Duration,
    Immutable,
    IntOrString,
    K8s,
    MachineStatus,
    MachineStatusStruct,
    Model,
    NoStatus,
    Quantity,
    StateTransition,
    StateTransitionStruct,
    codec_of,
    crd_losses,
    crd_manifest,
    crd_manifests,
    find_condition,
    metadata_of,
    owner_reference_to,
    request_of,
    resource_of,
    set_condition,
    view_of,
)
from opsdk.protocols import (
    KubeObject,
    MachineObject,
    MachineStatusView,
    ObservedGenerationSetter,
    StateTransitionView,
    StatusConditioner,
)
from opsdk.types import Json, JsonObject, Request


class WidgetSpec(Model):
    replicas: int = Field(default=1, ge=0)
    paused_reason: str | None = None
    port: IntOrString = 80
    resources: K8s[ResourceRequirements] | None = None


class WidgetStatus(MachineStatus):
    ready_replicas: int = 0


class Widget(CustomResource[WidgetSpec, WidgetStatus], group="demo.example.com", version="v1"):
    def get_machine_status(self) -> WidgetStatus:
        return self.status

    def get_status_conditions(self) -> list[Condition]:
        return self.status.conditions

    def set_observed_generation(self, generation: int) -> None:
        self.status.observed_generation = generation


class RoleStatus(Model):
    conditions: Conditions = []  # noqa: RUF012 - pydantic copies it


class Plain(CustomResource[WidgetSpec], group="demo.example.com", version="v1"):
    pass


S = TypeVar("S", bound=Model)


class Base(CustomResource[S, MachineStatus], Generic[S], group="demo.example.com"):
    pass


class Gizmo(Base[WidgetSpec], version="v1"):
    pass


class StructWidget(NamespacedResourceG, DictMixin, kw_only=True):
    _api_info = ApiInfo(resource=ResourceDef("demo.example.com", "v1", "StructWidget"), plural="s", verbs=[])
    metadata: ObjectMeta | None = None
    status: MachineStatusStruct | None = None

    def get_machine_status(self) -> MachineStatusStruct:
        return self.status or MachineStatusStruct()


NOW = clock.now()

# what must hold

widget = Widget(metadata=ObjectMeta(name="w"), spec=WidgetSpec(replicas=3))
assert_type(widget.metadata, ObjectMeta)
assert_type(widget.spec, WidgetSpec)
assert_type(widget.status, WidgetStatus)
assert_type(widget.spec.replicas, int)
assert_type(widget.spec.port, int | str)
assert_type(widget.spec.resources, ResourceRequirements | None)
assert_type(widget.status.conditions, list[Condition])
assert_type(widget.status.state_history, list[StateTransition])
assert_type(widget.apiVersion, str)
assert_type(Plain(spec=WidgetSpec()).status, NoStatus)
assert_type(Gizmo(spec=WidgetSpec()).spec, WidgetSpec)
assert_type(Gizmo(spec=WidgetSpec()).status, MachineStatus)

assert_type(codec_of(Widget), Codec[Widget])
assert_type(codec_of(Widget).decode(b""), Widget)
assert_type(codec_of(Deployment).decode(b""), Deployment)
assert_type(codec_of(Widget).encode(widget, only_set=True), bytes)
assert_type(resource_of(Widget).path(namespace="n", name="w"), str)
assert_type(metadata_of(widget), ObjectMeta)
assert_type(request_of(widget), Request)
assert_type(owner_reference_to(widget), OwnerReference)
assert_type(crd_manifest(Widget), dict[str, Json])
assert_type(find_condition(widget.status.conditions, "Ready"), Condition | None)
view_labels = view_of(widget).labels
for key, value in (view_labels or {}).items():
    assert_type(key, str)
    assert_type(value, str)


def takes(
    _object: KubeObject, _machine: MachineObject, _conditioner: StatusConditioner, _setter: ObservedGenerationSetter
) -> None: ...


def takes_statuses(_any: AnyMachineStatus, _view: MachineStatusView) -> None: ...


def takes_transitions(_entry: StateTransitionView) -> None: ...


def takes_machine(_machine: MachineObject) -> None: ...


takes(widget, widget, widget, widget)
takes_machine(StructWidget(metadata=ObjectMeta(name="w")))
assert_type(codec_of(StructWidget).decode(b""), StructWidget)
takes_statuses(widget.status, widget.status)
takes_statuses(MachineStatusStruct(), MachineStatusStruct(state="a", observed_generation=1, pending_entry=True))
takes_transitions(StateTransition(from_="a", to="b", reason="R", timestamp=NOW))
takes_transitions(StateTransitionStruct(from_="a", to="b", reason="R", timestamp=NOW))


class Timed(Model, rules=[Cel("self.limit != '0'")]):
    limit: Quantity = "1"
    drain: Duration | None = None
    fixed: Annotated[str | None, Immutable(once_set=True)] = None


assert_type(Timed().limit, str)
assert_type(Timed(drain=timedelta(minutes=5)).drain, timedelta | None)
assert_type(Timed().fixed, str | None)


async def installs(client: ApiClient) -> None:
    assert_type(await install_crds(client, Widget, StructWidget), list[InstalledCrd])
    assert_type((await install_crds(client, Widget, allow_data_loss=True))[0].changes, tuple[str, ...])
    await install_crds(client, WidgetSpec)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await install_crds(client, Widget, True)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def lossless(before: JsonObject, after: JsonObject) -> bool:
    assert_type(crd_manifests(Widget, StructWidget), list[dict[str, Json]])
    assert_type(crd_losses(before, after), list[str])
    return not crd_losses(before, after)


# what must be refused

Timed(drain="1h")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Cel("self > 0", "no message here")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Immutable(True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

WidgetSpec(replicas="three")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
WidgetSpec(replicsa=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Widget(metadata=ObjectMeta(name="w"))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Widget(spec=WidgetSpec(), metadata=None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
widget.spec.replicas = "three"  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
widget.spec.pausedReason  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # noqa: B018
StateTransition(to="a")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
codec_of(int)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
codec_of(Widget).encode(Deployment())  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportArgumentType, reportCallIssue]
set_condition([], type="Ready", status="Yes", reason="R")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
set_condition([], "Ready", "True", "R")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
metadata_of("w")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
view_of(widget).name = "x"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
