"""Children of an object: created, changed, collected, released."""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol, cast

import msgspec
import pytest
from lightkube.models.apps_v1 import DeploymentSpec, StatefulSetSpec
from lightkube.models.core_v1 import (
    Container,
    EmptyDirVolumeSource,
    PodSpec,
    PodTemplateSpec,
    Probe,
    ResourceRequirements,
    ServicePort,
    ServiceSpec,
    TCPSocketAction,
    Volume,
)
from lightkube.models.meta_v1 import Condition, LabelSelector, ObjectMeta, OwnerReference
from lightkube.models.rbac_v1 import RoleRef, Subject
from lightkube.resources.apps_v1 import Deployment, StatefulSet
from lightkube.resources.core_v1 import ConfigMap, Namespace, Secret, Service
from lightkube.resources.rbac_authorization_v1 import ClusterRole, ClusterRoleBinding
from pydantic import Field

from opsdk.client import ApiClient, HttpRequest, HttpResponse, HttpStream, Transport
from opsdk.client.finalizers import add_finalizers, remove_finalizers
from opsdk.errors import (
    ChildConflictError,
    InvalidOwnedResourcesError,
    ObjectError,
    TerminalError,
    UndeclaredKindError,
)
from opsdk.models import CustomResource, MachineStatus, Model, metadata_of, view_of
from opsdk.ownership import OWNER_SET_LABEL, OWNER_UID_LABEL, For, OwnedKind, OwnedResources, ResourceOwner
from opsdk.protocols import Client, EventType, KubeObject
from opsdk.statemachine import StateHandler, StateMachine
from opsdk.testing import ApiServer
from opsdk.types import JsonObject, JsonPatch, MergePatch, Result

pytestmark = pytest.mark.anyio

FINALIZER = "demo.example.com/children"
OTHER = "demo.example.com/other"
SET = "widget.demo.example.com"


class Spec(Model):
    replicas: int = 1
    names: list[str] = Field(default=[])
    image: str = "nginx:1.27"
    text: str = "x"


class Widget(CustomResource[Spec, MachineStatus], group="demo.example.com", version="v1"):
    def get_machine_status(self) -> MachineStatus:
        return self.status

    def get_status_conditions(self) -> list[Condition]:
        return self.status.conditions


class Plain(CustomResource[Spec], group="demo.example.com", version="v1"):
    """A kind without status and conditions."""


class Fleet(CustomResource[Spec], group="demo.example.com", version="v1", scope="Cluster"):
    """A cluster-scoped owner."""


class Tap:
    """A transport that notes writes, and can let something happen before one."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.writes: list[str] = []
        self.before: dict[str, Callable[[], Awaitable[None]]] = {}

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        what = f"{request.method} {'/'.join(request.path.split('/')[-2:])}"
        if (before := self.before.pop(what, None)) is not None:
            await before()
        if request.method != "GET":
            self.writes.append(what)
        return await self.inner.request(request)

    @asynccontextmanager
    async def stream(self, request: HttpRequest, /) -> AsyncGenerator[HttpStream]:
        async with self.inner.stream(request) as stream:
            yield stream

    async def aclose(self) -> None:
        await self.inner.aclose()


class Events:
    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    async def record(self, obj: KubeObject, /, type: EventType, reason: str, message: str) -> None:  # noqa: A002 - the API's word
        self.seen.append((type, reason))


@dataclass
class Bench:
    """A server with one widget; `client` is the operator's, `others` everybody else's."""

    client: ApiClient
    others: ApiClient
    tap: Tap
    events: Events = field(default_factory=Events)

    def owner(self, *owned: OwnedKind[Widget], name: str | None = None) -> ResourceOwner[Widget]:
        return ResourceOwner(Widget, self.client, owned, name=name, event_recorder=self.events)

    async def get(self) -> Widget:
        return await self.others.get(Widget, "w", namespace="default")

    async def one_pass(self, owner: ResourceOwner[Widget]) -> Result:
        """Read the widget, run one pass. Forgets what was written before."""
        widget = await self.get()
        self.tap.writes.clear()
        return await owner.reconcile(widget)

    async def change(self, **spec: object) -> None:
        await self.others.patch(Widget, "w", MergePatch(msgspec.to_builtins({"spec": spec})), namespace="default")

    async def config(self, name: str, namespace: str = "default") -> ConfigMap | None:
        return await self.others.find(ConfigMap, name, namespace=namespace)


@pytest.fixture
async def bench() -> AsyncGenerator[Bench]:
    async with ApiServer() as server:
        await server.install(Widget, Plain, Fleet)
        tap = Tap(server.transport())
        bench = Bench(ApiClient(tap, field_manager="widget-operator"), server.client(field_manager="people"), tap)
        await bench.others.create(Namespace(metadata=ObjectMeta(name="elsewhere")))
        await bench.others.create(
            Widget(metadata=ObjectMeta(name="w", namespace="default"), spec=Spec(names=["one", "two"]))
        )
        yield bench


def config(name: str, text: str = "x", namespace: str | None = None) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace), data={"text": text})


def build(widget: Widget) -> list[ConfigMap]:
    return [config(name, widget.spec.text) for name in widget.spec.names]


def build_elsewhere(widget: Widget) -> list[ConfigMap]:
    return [config(name, namespace="elsewhere") for name in widget.spec.names]


def update(widget: Widget, existing: ConfigMap) -> ConfigMap:
    existing.data = {"text": widget.spec.text}
    return existing


class HasData(Protocol):
    """`ConfigMap`, typed: lightkube declares its maps as bare `dict`."""

    @property
    def data(self) -> Mapping[str, str] | None: ...


def data_of(child: HasData | None) -> Mapping[str, str]:
    assert child is not None
    return child.data or {}


class HasSelector(Protocol):
    @property
    def selector(self) -> Mapping[str, str] | None: ...


def selector_of(spec: HasSelector | None) -> Mapping[str, str]:
    assert spec is not None
    return spec.selector or {}


def is_ready(existing: ConfigMap) -> bool:
    return data_of(existing).get("ready") == "yes"


def build_role(widget: Widget) -> list[ClusterRole]:
    return [ClusterRole(metadata=ObjectMeta(name=f"{widget.metadata.name}-{name}")) for name in widget.spec.names]


class TestConstruction:
    async def test_all_faults_come_in_one_error(self, bench: Bench) -> None:
        class Nothing:
            metadata = ObjectMeta()

        def build_nothing(widget: Widget) -> list[Nothing]:
            return []

        owned: OwnedResources[Widget] = [
            For(ConfigMap, build),
            For(ConfigMap, build, update=update, apply=True),
            For(Nothing, build_nothing),
            For(ClusterRole, build_role),
            For(Secret, lambda widget: None, recreate=True, finalizer="nodomain"),  # noqa: ARG005 - a builder
        ]
        with pytest.raises(InvalidOwnedResourcesError) as raised:
            ResourceOwner(Widget, bench.client, owned, name="not a label")
        faults = raised.value.faults
        assert [fault.split(":")[0] for fault in faults] == [
            "ConfigMap",
            "ConfigMap",
            "Nothing",
            "ClusterRole",
            "Secret",
            "Secret",
            "name",
        ]
        assert "declared twice" in faults[0]
        assert "both `update` and apply=True" in faults[1]
        assert "give it a finalizer" in faults[3]
        assert isinstance(raised.value, ValueError)

    async def test_an_order_that_cannot_be_kept_is_refused(self, bench: Bench) -> None:
        def build_none(widget: Widget) -> list[Secret] | None:
            return None if widget.spec.text else []

        owned: OwnedResources[Widget] = [
            For(ConfigMap, build, after=(Service,), force=True),
            For(Service, build_services, after=(Deployment,)),
            For(Deployment, build_deployments, after=(ConfigMap, StatefulSet)),
            For(Secret, build_none),
        ]
        with pytest.raises(InvalidOwnedResourcesError) as raised:
            ResourceOwner(Widget, bench.client, owned)
        assert raised.value.faults == (
            "ConfigMap: has force=True without apply=True, where there is nothing to force",
            "Deployment: comes after StatefulSet, which is not declared here",
            "after: goes round in a circle: ConfigMap after Service after Deployment after ConfigMap",
        )
        with pytest.raises(InvalidOwnedResourcesError, match="Secret after Secret"):
            ResourceOwner(Widget, bench.client, [For(Secret, build_none, after=(Secret,))])

    async def test_a_cluster_scoped_owner_may_have_cluster_scoped_children(self, bench: Bench) -> None:
        def build_for_fleet(fleet: Fleet) -> list[ClusterRole]:
            return [ClusterRole(metadata=ObjectMeta(name=fleet.metadata.name))]

        assert ResourceOwner(Fleet, bench.client, [For(ClusterRole, build_for_fleet)]).kinds == (ClusterRole,)

    async def test_the_client_and_the_names_are_in_reach(self, bench: Bench) -> None:
        owner = bench.owner(For(ConfigMap, build))
        assert (owner.client, owner.kind, owner.name, owner.kinds) == (bench.client, Widget, SET, (ConfigMap,))


def untyped(function: object) -> Any:
    """A function as a program without type checks may pass it."""
    return function


async def build_async(widget: Widget) -> list[ConfigMap]:
    return build(widget)


async def update_async(widget: Widget, existing: ConfigMap) -> ConfigMap:
    return update(widget, existing)


async def answer_async(*args: object) -> bool:
    return not args


class TestFunctionsOfTheWrongKind:
    async def test_async_functions_and_no_functions_are_refused_at_construction(self, bench: Bench) -> None:
        owned: OwnedResources[Widget] = [
            For(
                ConfigMap,
                untyped(build_async),
                update=untyped(update_async),
                ready=untyped(answer_async),
                when=untyped(5),
            ),
            For(Secret, untyped(None), after=untyped(ConfigMap)),
        ]
        with pytest.raises(InvalidOwnedResourcesError) as raised:
            ResourceOwner(Widget, bench.client, owned)
        pure = "functions of a For look at what they are given and do no I/O: write it with a plain def"
        assert raised.value.faults == (
            f"ConfigMap: build: build_async is async; {pure}",
            f"ConfigMap: update: update_async is async; {pure}",
            f"ConfigMap: ready: answer_async is async; {pure}",
            "ConfigMap: when is 5, which is no function",
            "Secret: after is the class ConfigMap; give a tuple: after=(ConfigMap,)",
            "Secret: build is None, which is no function",
        )

    @pytest.mark.parametrize(
        ("owned", "fault"),
        [
            (For(ConfigMap, build), "owned: is one For; give a list of them"),
            (None, "owned: is of type NoneType; give a list of For"),
            ([ConfigMap], "owned[0]: <class 'lightkube.resources.core_v1.ConfigMap'> is of type "),
        ],
    )
    async def test_what_is_no_list_of_fors_is_refused(self, bench: Bench, owned: object, fault: str) -> None:
        with pytest.raises(InvalidOwnedResourcesError) as raised:
            ResourceOwner(Widget, bench.client, untyped(owned))
        (text,) = raised.value.faults
        assert text.startswith(fault)

    async def test_a_build_that_returns_no_list_is_named(self, bench: Bench) -> None:
        def build_one(widget: Widget) -> ConfigMap:
            return build(widget)[0]

        def build_widget(widget: Widget) -> Widget:
            return widget

        with pytest.raises(ObjectError) as raised:
            await bench.one_pass(bench.owner(For(ConfigMap, untyped(build_one)), For(Secret, untyped(build_widget))))
        assert bench.tap.writes == []
        text = str(raised.value)
        assert "ConfigMap: build: " in text
        assert "build_one returned a ConfigMap; return a list of the children, or None" in text
        assert "build_widget returned a Widget; return a list of the children, or None" in text

    async def test_a_coroutine_that_a_plain_function_returns_is_named_and_closed(self, bench: Bench) -> None:
        made: list[Any] = []

        def sneaky(function: Any) -> Any:  # what was not seen at construction
            def call(*args: object) -> object:
                made.append(function(*args))
                return made[-1]

            return call

        await bench.one_pass(bench.owner(For(ConfigMap, build)))
        for entry, name in (
            (For(ConfigMap, sneaky(build_async)), "build"),
            (For(ConfigMap, build, when=sneaky(answer_async)), "when"),
            (For(ConfigMap, build, update=sneaky(update_async)), "update"),
            (For(ConfigMap, build, ready=sneaky(answer_async)), "ready"),
        ):
            with pytest.raises(ObjectError, match=rf"ConfigMap.*: {name}: .*call is async; functions of a For"):
                await bench.one_pass(bench.owner(entry))
            assert bench.tap.writes == []
        assert len(made) == 4
        assert [coroutine.cr_frame for coroutine in made] == [None] * 4  # closed, so nobody warns of them

    async def test_an_update_that_forgets_to_return_is_named(self, bench: Bench) -> None:
        def forgetful(widget: Widget, existing: ConfigMap) -> None:
            update(widget, existing)

        owner = bench.owner(For(ConfigMap, build, update=untyped(forgetful)))
        await bench.one_pass(owner)
        with pytest.raises(ObjectError, match="forgetful returned None; return the ConfigMap"):
            await bench.one_pass(owner)


class TestCreating:
    async def test_missing_children_are_created_in_order_with_labels_and_owner_reference(self, bench: Bench) -> None:
        owner = bench.owner(For(ConfigMap, build))
        assert await bench.one_pass(owner) == Result()
        assert bench.tap.writes == ["POST default/configmaps"] * 2
        widget = await bench.get()
        one = await bench.config("one")
        assert one is not None
        view = view_of(one)
        assert view.labels == {OWNER_UID_LABEL: widget.metadata.uid, OWNER_SET_LABEL: SET}
        assert view.ownerReferences == [
            OwnerReference(
                apiVersion="demo.example.com/v1",
                kind="Widget",
                name="w",
                uid=widget.metadata.uid or "",
                controller=True,
                blockOwnerDeletion=True,
            )
        ]

    async def test_what_build_returned_is_not_changed(self, bench: Bench) -> None:
        shared = config("shared")

        def build_shared(widget: Widget) -> list[ConfigMap]:
            assert widget.metadata.name
            return [shared]

        await bench.one_pass(bench.owner(For(ConfigMap, build_shared)))
        assert shared == config("shared")

    async def test_a_second_pass_writes_nothing(self, bench: Bench) -> None:
        owner = bench.owner(For(ConfigMap, build))
        await bench.one_pass(owner)
        await bench.one_pass(owner)
        assert bench.tap.writes == []

    async def test_without_update_a_child_is_never_changed(self, bench: Bench) -> None:
        owner = bench.owner(For(ConfigMap, build))
        await bench.one_pass(owner)
        await bench.change(text="y")
        await bench.one_pass(owner)
        assert bench.tap.writes == []

    async def test_children_of_a_cluster_scoped_owner_have_references_in_every_namespace(self, bench: Bench) -> None:
        def build_for_fleet(fleet: Fleet) -> list[ConfigMap]:
            assert fleet.metadata.name
            return [config("one", namespace="default"), config("one", namespace="elsewhere")]

        fleet = await bench.others.create(Fleet(metadata=ObjectMeta(name="f"), spec=Spec()))
        await ResourceOwner(Fleet, bench.client, [For(ConfigMap, build_for_fleet)]).reconcile(fleet)
        for namespace in ("default", "elsewhere"):
            child = await bench.others.get(ConfigMap, "one", namespace=namespace)
            assert [reference.uid for reference in view_of(child).ownerReferences or ()] == [fleet.metadata.uid]

    async def test_a_failing_namespace_that_terminates_is_quiet(self, bench: Bench) -> None:
        holder = config("holder", namespace="elsewhere")
        metadata_of(holder).finalizers = [OTHER]
        await bench.others.create(holder)
        await bench.others.delete(Namespace, "elsewhere")
        owner = bench.owner(For(ConfigMap, build_elsewhere, finalizer=FINALIZER))
        assert await bench.one_pass(owner) == Result(requeue_after=timedelta(seconds=30))

    async def test_q13_a_child_that_somebody_was_faster_to_create_is_looked_at_again(self, bench: Bench) -> None:
        owner = bench.owner(For(ConfigMap, build))
        rival = ResourceOwner(Widget, bench.others, [For(ConfigMap, build)])

        async def be_faster() -> None:
            await rival.reconcile(await bench.get())

        bench.tap.before["POST default/configmaps"] = be_faster
        result = await bench.one_pass(owner)
        assert result.requeue_after is not None
        assert result.requeue_after > timedelta(0)
        assert len(await bench.others.list(ConfigMap, namespace="default", labels={OWNER_SET_LABEL: SET})) == 2


class TestFaultsOfBuild:
    @pytest.mark.parametrize(
        ("children", "fault"),
        [
            ([config("")], "ConfigMap number 1 has no name"),
            ([ConfigMap()], "ConfigMap number 1 has no name"),
            ([config("one"), config("one")], "ConfigMap default/one is there twice"),
            ([config("one"), config("one", namespace="default")], "ConfigMap default/one is there twice"),
            ([config("one", namespace="elsewhere")], "ConfigMap elsewhere/one is in another namespace"),
            ([Secret(metadata=ObjectMeta(name="s"))], "ConfigMap number 1 is a Secret"),
        ],
    )
    async def test_it_is_an_error_before_any_write(
        self, bench: Bench, children: Sequence[KubeObject], fault: str
    ) -> None:
        def build_wrong(widget: Widget) -> list[ConfigMap]:
            built: list[ConfigMap] = [config("fine")]
            assert widget.metadata.name
            built.extend(children)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - a program that nobody checked
            return built

        def build_services(widget: Widget) -> list[Service]:
            return [Service(metadata=ObjectMeta(name=widget.metadata.name))]

        owner = ResourceOwner(Widget, bench.client, [For(Service, build_services), For(ConfigMap, build_wrong)])
        with pytest.raises(ObjectError) as raised:
            await bench.one_pass(owner)
        assert fault.replace("number 1", "number 2") in str(raised.value)
        assert bench.tap.writes == []

    async def test_a_cluster_scoped_child_names_no_namespace(self, bench: Bench) -> None:
        def build_wrong(widget: Widget) -> list[ClusterRole]:
            return [ClusterRole(metadata=ObjectMeta(name="r", namespace=widget.metadata.namespace))]

        owner = ResourceOwner(Widget, bench.client, [For(ClusterRole, build_wrong, finalizer=FINALIZER)])
        with pytest.raises(ObjectError, match="its kind is cluster-scoped"):
            await bench.one_pass(owner)

    async def test_a_namespaced_child_of_a_cluster_scoped_owner_names_one(self, bench: Bench) -> None:
        def build_for_fleet(fleet: Fleet) -> list[ConfigMap]:
            return [config(fleet.metadata.name or "")]

        fleet = await bench.others.create(Fleet(metadata=ObjectMeta(name="f"), spec=Spec()))
        with pytest.raises(ObjectError, match="names no namespace"):
            await ResourceOwner(Fleet, bench.client, [For(ConfigMap, build_for_fleet)]).reconcile(fleet)

    async def test_an_owner_that_was_never_stored_has_no_children(self, bench: Bench) -> None:
        widget = Widget(metadata=ObjectMeta(name="w", namespace="default"), spec=Spec())
        with pytest.raises(ObjectError, match="uid"):
            await bench.owner(For(ConfigMap, build)).reconcile(widget)


class TestUpdating:
    async def test_the_difference_is_patched_and_never_put(self, bench: Bench) -> None:
        owner = bench.owner(For(ConfigMap, build, update=update))
        await bench.one_pass(owner)
        await bench.others.patch(
            ConfigMap, "one", MergePatch({"metadata": {"annotations": {"theirs": "1"}}}), namespace="default"
        )
        await bench.change(text="y")
        await bench.one_pass(owner)
        assert bench.tap.writes == ["PATCH configmaps/one", "PATCH configmaps/two"]
        one = await bench.config("one")
        assert one is not None
        assert (data_of(one), view_of(one).annotations) == ({"text": "y"}, {"theirs": "1"})
        await bench.one_pass(owner)
        assert bench.tap.writes == []

    async def test_update_may_return_a_new_object_in_which_only_what_it_says_counts(self, bench: Bench) -> None:
        def make_anew(widget: Widget, existing: Service) -> Service:
            assert existing.spec is not None
            return build_services(widget)[0]

        def build_services(widget: Widget) -> list[Service]:
            return [
                Service(
                    metadata=ObjectMeta(name="web"),
                    spec=ServiceSpec(selector={"app": widget.spec.text}, ports=[ServicePort(port=80)]),
                )
            ]

        owner = ResourceOwner(Widget, bench.client, [For(Service, build_services, update=make_anew)])
        await bench.one_pass(owner)
        await bench.one_pass(owner)
        assert bench.tap.writes == []  # nothing of what the server filled in is taken away
        before = await bench.others.get(Service, "web", namespace="default")
        await bench.change(text="y")
        await bench.one_pass(owner)
        assert bench.tap.writes == ["PATCH services/web"]
        after = await bench.others.get(Service, "web", namespace="default")
        assert before.spec is not None
        assert after.spec is not None
        assert (selector_of(after.spec), after.spec.clusterIP) == ({"app": "y"}, before.spec.clusterIP)

    async def test_labels_and_reference_that_were_lost_come_back_with_the_update(self, bench: Bench) -> None:
        owner = bench.owner(For(ConfigMap, build, update=update))
        await bench.one_pass(owner)
        await bench.others.patch(
            ConfigMap, "one", MergePatch({"metadata": {"ownerReferences": None}}), namespace="default"
        )
        await bench.others.patch(
            ConfigMap, "two", MergePatch({"metadata": {"labels": {OWNER_UID_LABEL: None}}}), namespace="default"
        )
        await bench.one_pass(owner)
        assert bench.tap.writes == ["PATCH configmaps/one", "PATCH configmaps/two"]
        for name in ("one", "two"):
            child = await bench.config(name)
            assert child is not None
            assert OWNER_UID_LABEL in (view_of(child).labels or {})
            assert len(view_of(child).ownerReferences or ()) == 1

    async def test_a_child_that_changes_under_our_hands_is_looked_at_again(self, bench: Bench) -> None:
        owner = bench.owner(For(ConfigMap, build, update=update))
        await bench.one_pass(owner)
        await bench.change(text="y")

        async def meddle() -> None:
            await bench.others.patch(ConfigMap, "one", MergePatch({"data": {"more": "1"}}), namespace="default")

        bench.tap.before["PATCH configmaps/one"] = meddle
        result = await bench.one_pass(owner)
        assert result.requeue_after is not None
        await bench.one_pass(owner)
        assert data_of(await bench.config("one")) == {"text": "y"}

    async def test_update_must_return_the_same_child(self, bench: Bench) -> None:
        def rename(widget: Widget, existing: ConfigMap) -> ConfigMap:
            metadata_of(existing).name = widget.spec.text
            return existing

        owner = bench.owner(For(ConfigMap, build, update=rename))
        await bench.one_pass(owner)
        with pytest.raises(ObjectError, match="update of ConfigMap default/one returned default/x"):
            await bench.one_pass(owner)

    async def test_a_change_of_an_immutable_field_is_terminal_and_names_it(self, bench: Bench) -> None:
        def build_workload(widget: Widget) -> list[Deployment]:
            return [deployment("web", labels={"app": widget.spec.text})]

        def relabel(widget: Widget, existing: Deployment) -> Deployment:
            wanted = build_workload(widget)[0]
            assert existing.spec is not None
            assert wanted.spec is not None
            existing.spec.selector = wanted.spec.selector
            existing.spec.template.metadata = wanted.spec.template.metadata
            return existing

        owner = ResourceOwner(Widget, bench.client, [For(Deployment, build_workload, update=relabel)])
        await bench.one_pass(owner)
        before = await bench.others.get(Deployment, "web", namespace="default")
        await bench.change(text="y")
        with pytest.raises(TerminalError, match=r"Deployment default/web of Widget default/w: spec\.selector"):
            await bench.one_pass(owner)

        owner = ResourceOwner(Widget, bench.client, [For(Deployment, build_workload, update=relabel, recreate=True)])
        result = await bench.one_pass(owner)
        assert result.requeue_after is not None
        await bench.one_pass(owner)
        after = await bench.others.get(Deployment, "web", namespace="default")
        assert view_of(after).uid != view_of(before).uid


def pod_template(labels: dict[str, str]) -> PodTemplateSpec:
    return PodTemplateSpec(
        metadata=ObjectMeta(labels=labels),
        spec=PodSpec(
            containers=[
                Container(
                    name="web",
                    image="nginx",
                    resources=ResourceRequirements(
                        limits={"cpu": "1000m", "memory": "1024Mi"}, requests={"cpu": "0.50"}
                    ),
                    livenessProbe=Probe(tcpSocket=TCPSocketAction(port=80)),
                    env=[],
                )
            ],
            volumes=[Volume(name="tmp", emptyDir=EmptyDirVolumeSource(sizeLimit="1000M"))],
        ),
    )


def without_volumes(widget: Widget, existing: Deployment) -> PodTemplateSpec:
    """A template made from scratch; text "tls" has volumes, others leave them out."""
    template = pod_template({"app": view_of(existing).name or ""})
    assert template.spec is not None
    if widget.spec.text != "tls":
        template.spec.volumes = None
    return template


class TestRemovingAField:
    """What the guide says of a field that an earlier build had and that is to go."""

    @staticmethod
    def build_with_volumes(widget: Widget) -> list[Deployment]:
        return [deployment("web", {"app": "web"})] if widget.spec.text else []

    async def volumes(self, bench: Bench) -> object:
        web = await bench.others.get(Deployment, "web", namespace="default")
        assert web.spec is not None
        assert web.spec.template.spec is not None
        return web.spec.template.spec.volumes or []

    @pytest.mark.parametrize("way", ["left out", "in place", "empty list"])
    async def test_an_update_removes_in_place_and_by_an_empty_list_and_not_by_leaving_out(
        self, bench: Bench, way: str
    ) -> None:
        def update_deployment(widget: Widget, existing: Deployment) -> Deployment:
            assert existing.spec is not None
            template = existing.spec.template if way == "in place" else without_volumes(widget, existing)
            assert template.spec is not None
            if widget.spec.text != "tls":
                template.spec.volumes = [] if way == "empty list" else None
            existing.spec.template = template
            return existing

        owner = bench.owner(For(Deployment, self.build_with_volumes, update=update_deployment))
        await bench.change(text="tls")
        await bench.one_pass(owner)
        assert await self.volumes(bench) != []
        await bench.change(text="plain")
        await bench.one_pass(owner)
        assert (await self.volumes(bench) != []) == (way == "left out")
        await bench.one_pass(owner)
        assert bench.tap.writes == []

    async def test_an_empty_map_removes_what_is_the_authors_alone_and_not_labels(self, bench: Bench) -> None:
        def build_all(widget: Widget) -> list[Deployment]:
            (web,) = self.build_with_volumes(widget)
            assert web.spec is not None
            web.spec.template = pods(disk={"disk": "ssd"})
            return [web]

        def pods(disk: dict[str, str]) -> PodTemplateSpec:
            template = pod_template({"app": "web", **disk})
            assert template.spec is not None
            template.spec.nodeSelector = disk
            return template

        def update_deployment(widget: Widget, existing: Deployment) -> Deployment:
            assert existing.spec is not None
            existing.spec.template = pods(disk={} if widget.spec.text == "plain" else {"disk": "ssd"})
            return existing

        owner = bench.owner(For(Deployment, build_all, update=update_deployment))
        await bench.one_pass(owner)
        await bench.change(text="plain")
        await bench.one_pass(owner)
        web = await bench.others.get(Deployment, "web", namespace="default")
        template = msgspec.to_builtins(web)["spec"]["template"]
        assert not template["spec"].get("nodeSelector")
        assert template["metadata"]["labels"] == {"app": "web", "disk": "ssd"}
        await bench.one_pass(owner)
        assert bench.tap.writes == []

    async def test_a_label_that_an_update_takes_away_in_place_goes(self, bench: Bench) -> None:
        def build_config(widget: Widget) -> list[ConfigMap]:
            return [ConfigMap(metadata=ObjectMeta(name="one", labels={"tier": "front"}))]

        def update_config(widget: Widget, existing: ConfigMap) -> ConfigMap:
            if widget.spec.text == "plain":
                cast("dict[str, str]", view_of(existing).labels).pop("tier", None)
            return existing

        owner = bench.owner(For(ConfigMap, build_config, update=update_config))
        await bench.one_pass(owner)
        await bench.change(text="plain")
        await bench.one_pass(owner)
        config = await bench.others.get(ConfigMap, "one", namespace="default")
        assert set(view_of(config).labels or {}) == {OWNER_UID_LABEL, OWNER_SET_LABEL}
        await bench.one_pass(owner)
        assert bench.tap.writes == []

    async def test_an_apply_removes_by_leaving_out(self, bench: Bench) -> None:
        def build_applied(widget: Widget) -> list[Deployment]:
            (web,) = self.build_with_volumes(widget)
            assert web.spec is not None
            web.spec.template = without_volumes(widget, web)
            return [web]

        owner = bench.owner(For(Deployment, build_applied, apply=True))
        await bench.change(text="tls")
        await bench.one_pass(owner)
        assert await self.volumes(bench) != []
        await bench.change(text="plain")
        await bench.one_pass(owner)
        assert await self.volumes(bench) == []


def deployment(name: str, labels: dict[str, str]) -> Deployment:
    return Deployment(
        metadata=ObjectMeta(name=name, labels=labels, annotations={}),
        spec=DeploymentSpec(selector=LabelSelector(matchLabels=labels), template=pod_template(labels)),
    )


def build_deployments(widget: Widget) -> list[Deployment]:
    return [deployment("web", {"app": widget.spec.text})]


def build_stateful_sets(widget: Widget) -> list[StatefulSet]:
    labels = {"app": widget.spec.text}
    return [
        StatefulSet(
            metadata=ObjectMeta(name="web"),
            spec=StatefulSetSpec(
                selector=LabelSelector(matchLabels=labels), serviceName="web", template=pod_template(labels)
            ),
        )
    ]


def build_services(widget: Widget) -> list[Service]:
    return [
        Service(
            metadata=ObjectMeta(name="web"),
            spec=ServiceSpec(selector={"app": widget.spec.text}, ports=[ServicePort(port=80)]),
        )
    ]


def build_secrets(widget: Widget) -> list[Secret]:
    return [Secret(metadata=ObjectMeta(name="web"), data={"text": "eA=="}, type=None if widget.spec.text else "x")]


def build_bindings(widget: Widget) -> list[ClusterRoleBinding]:
    return [
        ClusterRoleBinding(
            metadata=ObjectMeta(name=widget.metadata.name),
            roleRef=RoleRef(apiGroup="rbac.authorization.k8s.io", kind="ClusterRole", name="view"),
            subjects=[Subject(kind="ServiceAccount", name="default", namespace="default")],
        )
    ]


def restate_deployment(widget: Widget, existing: Deployment) -> Deployment:
    wanted = build_deployments(widget)[0]
    assert existing.spec is not None
    assert wanted.spec is not None
    assert existing.spec.template.spec is not None
    assert wanted.spec.template.spec is not None
    existing.spec.template.spec.containers[0].resources = wanted.spec.template.spec.containers[0].resources
    existing.spec.template.spec.containers[0].env = []
    existing.spec.template.spec.volumes = wanted.spec.template.spec.volumes
    return existing


class TestServerDefaults:
    async def test_o01_o06_what_the_server_fills_in_and_respells_is_no_difference(self, bench: Bench) -> None:
        owned: OwnedResources[Widget] = [
            For(ConfigMap, build, update=lambda widget, existing: build(widget)[existing.metadata.name == "two"]),  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess] - it was read
            For(Deployment, build_deployments, update=lambda widget, existing: build_deployments(widget)[0]),  # noqa: ARG005 - update's parameters
            For(StatefulSet, build_stateful_sets, update=lambda widget, existing: build_stateful_sets(widget)[0]),  # noqa: ARG005 - update's parameters
            For(Service, build_services, update=lambda widget, existing: build_services(widget)[0]),  # noqa: ARG005 - update's parameters
            For(Secret, build_secrets, update=lambda widget, existing: build_secrets(widget)[0]),  # noqa: ARG005 - update's parameters
            For(
                ClusterRoleBinding,
                build_bindings,
                update=lambda widget, existing: build_bindings(widget)[0],  # noqa: ARG005 - update's parameters
                finalizer=FINALIZER,
            ),
        ]
        owner = ResourceOwner(Widget, bench.client, owned)
        await bench.one_pass(owner)
        await bench.one_pass(owner)
        assert bench.tap.writes == []

    async def test_o01_o06_nor_is_it_when_existing_fields_are_set_again(self, bench: Bench) -> None:
        owner = ResourceOwner(Widget, bench.client, [For(Deployment, build_deployments, update=restate_deployment)])
        await bench.one_pass(owner)
        await bench.one_pass(owner)
        assert bench.tap.writes == []

    async def test_o01_taking_away_what_the_server_fills_in_is_tried_once_and_not_again(self, bench: Bench) -> None:
        def strip(widget: Widget, existing: Deployment) -> Deployment:
            assert widget.spec.replicas
            copied = copy.deepcopy(existing)
            assert copied.spec is not None
            copied.spec.strategy = None
            return copied

        owner = ResourceOwner(Widget, bench.client, [For(Deployment, build_deployments, update=strip)])
        await bench.one_pass(owner)
        await bench.one_pass(owner)
        assert bench.tap.writes == ["PATCH deployments/web"]
        await bench.one_pass(owner)
        assert bench.tap.writes == []

    async def test_o01_o06_nor_is_it_under_server_side_apply(self, bench: Bench) -> None:
        owned: OwnedResources[Widget] = [
            For(ConfigMap, build, apply=True),
            For(Deployment, build_deployments, apply=True),
            For(StatefulSet, build_stateful_sets, apply=True),
            For(Service, build_services, apply=True),
            For(Secret, build_secrets, apply=True),
            For(ClusterRoleBinding, build_bindings, apply=True, finalizer=FINALIZER),
        ]
        owner = ResourceOwner(Widget, bench.client, owned)
        await bench.one_pass(owner)
        assert len([write for write in bench.tap.writes if write.startswith("PATCH")]) == 8  # 7 children, 1 finalizer
        await bench.one_pass(owner)
        assert bench.tap.writes == []


class TestApplying:
    async def test_drift_is_reverted_and_what_others_set_besides_stays(self, bench: Bench) -> None:
        owner = bench.owner(For(ConfigMap, build, apply=True))
        await bench.one_pass(owner)
        await bench.others.patch(
            ConfigMap, "one", MergePatch({"data": {"text": "drift", "theirs": "1"}}), namespace="default"
        )
        await bench.one_pass(owner)
        assert bench.tap.writes == ["PATCH configmaps/one"] * 2  # whose it is now, the first one tells
        assert data_of(await bench.config("one")) == {"text": "x", "theirs": "1"}
        await bench.one_pass(owner)
        assert bench.tap.writes == []

    async def test_a_field_that_is_no_longer_built_goes(self, bench: Bench) -> None:
        def build_some(widget: Widget) -> list[ConfigMap]:
            return [ConfigMap(metadata=ObjectMeta(name="one"), data=dict.fromkeys(widget.spec.names, "1"))]

        owner = bench.owner(For(ConfigMap, build_some, apply=True))
        await bench.one_pass(owner)
        await bench.change(names=["one"])
        await bench.one_pass(owner)
        assert data_of(await bench.config("one")) == {"one": "1"}
        await bench.one_pass(owner)
        assert bench.tap.writes == []

    async def test_it_happens_under_the_clients_field_manager(self, bench: Bench) -> None:
        await bench.one_pass(bench.owner(For(ConfigMap, build, apply=True)))
        one = await bench.config("one")
        assert one is not None
        assert [(entry.manager, entry.operation) for entry in metadata_of(one).managedFields or []] == [
            ("widget-operator", "Apply")
        ]

    async def test_o02_nor_is_an_object_that_took_the_childs_place_meanwhile(self, bench: Bench) -> None:
        owner = bench.owner(For(ConfigMap, build, apply=True))
        await bench.one_pass(owner)
        await bench.change(text="y")

        async def replace() -> None:
            await bench.others.delete(ConfigMap, "one", namespace="default")
            await bench.others.create(config("one", "theirs", "default"))

        bench.tap.before["PATCH configmaps/one"] = replace
        result = await bench.one_pass(owner)
        assert result.requeue_after is not None
        assert data_of(await bench.config("one")) == {"text": "theirs"}
        with pytest.raises(ChildConflictError):
            await bench.one_pass(owner)

    async def test_o02_a_foreign_object_is_not_applied_to(self, bench: Bench) -> None:
        await bench.others.create(config("one", "theirs", "default"))
        owner = bench.owner(For(ConfigMap, build, apply=True))
        with pytest.raises(ChildConflictError):
            await bench.one_pass(owner)
        assert data_of(await bench.config("one")) == {"text": "theirs"}


class TestCollecting:
    async def test_children_that_are_no_longer_desired_are_deleted(self, bench: Bench) -> None:
        owner = bench.owner(For(ConfigMap, build))
        await bench.one_pass(owner)
        await bench.change(names=["two", "three"])
        await bench.one_pass(owner)
        assert bench.tap.writes == ["POST default/configmaps", "DELETE configmaps/one"]
        assert await bench.config("one") is None
        await bench.one_pass(owner)
        assert bench.tap.writes == []

    async def test_none_means_no_children(self, bench: Bench) -> None:
        await bench.one_pass(bench.owner(For(ConfigMap, build)))
        await bench.one_pass(bench.owner(For(ConfigMap, lambda widget: None)))  # noqa: ARG005 - a builder
        assert bench.tap.writes == ["DELETE configmaps/one", "DELETE configmaps/two"]

    async def test_a_child_that_was_replaced_by_somebody_meanwhile_is_not_deleted(self, bench: Bench) -> None:
        owner = bench.owner(For(ConfigMap, build))
        await bench.one_pass(owner)
        await bench.change(names=["two"])

        async def replace() -> None:
            await bench.others.delete(ConfigMap, "one", namespace="default")
            await bench.others.create(config("one", "theirs", "default"))

        bench.tap.before["DELETE configmaps/one"] = replace
        assert await bench.one_pass(owner) == Result()
        assert data_of(await bench.config("one")) == {"text": "theirs"}

    async def test_two_owners_of_one_object_do_not_touch_each_others_children(self, bench: Bench) -> None:
        first = bench.owner(For(ConfigMap, build), name="first")
        second = bench.owner(For(ConfigMap, lambda widget: [config("extra", widget.spec.text)]), name="second")
        await bench.one_pass(first)
        await bench.one_pass(second)
        await bench.one_pass(first)
        await bench.one_pass(second)
        assert bench.tap.writes == []
        await bench.change(names=[])
        await bench.one_pass(first)
        assert bench.tap.writes == ["DELETE configmaps/one", "DELETE configmaps/two"]
        assert await bench.config("extra") is not None

    async def test_a_child_of_the_same_name_of_another_owner_set_is_a_conflict(self, bench: Bench) -> None:
        await bench.one_pass(bench.owner(For(ConfigMap, build), name="first"))
        with pytest.raises(ExceptionGroup, match="2 names are taken") as raised:
            await bench.one_pass(bench.owner(For(ConfigMap, build), name="second"))
        assert "Widget w (owner set first)" in str(raised.value.exceptions[0])
        assert bench.tap.writes == ["PATCH w/status"]

    async def test_objects_that_only_copied_our_labels_are_not_ours(self, bench: Bench) -> None:
        widget = await bench.get()
        copied = config("slice", namespace="default")
        metadata_of(copied).labels = {OWNER_UID_LABEL: widget.metadata.uid, OWNER_SET_LABEL: SET}
        metadata_of(copied).ownerReferences = [
            OwnerReference(apiVersion="v1", kind="Service", name="s", uid="1", controller=True)
        ]
        async with ApiServer(garbage_collector=False) as server:
            await server.install(Widget)
            client = server.client()
            fresh = await client.create(
                Widget(metadata=ObjectMeta(name="w", namespace="default"), spec=Spec(names=["one"]))
            )
            metadata_of(copied).labels = {OWNER_UID_LABEL: fresh.metadata.uid, OWNER_SET_LABEL: SET}
            await client.create(copied)
            await ResourceOwner(Widget, client, [For(ConfigMap, build)]).reconcile(fresh)
            assert await client.find(ConfigMap, "slice", namespace="default") is not None


class TestWaiting:
    async def test_a_desired_child_on_its_way_out_is_waited_for(self, bench: Bench) -> None:
        owner = bench.owner(For(ConfigMap, build))
        await bench.one_pass(owner)
        one = await bench.config("one")
        assert one is not None
        await add_finalizers(bench.others, one, OTHER)
        await bench.others.delete(ConfigMap, "one", namespace="default")
        assert await bench.one_pass(owner) == Result(requeue_after=timedelta(seconds=5))
        assert bench.tap.writes == []
        await remove_finalizers(bench.others, await bench.others.get(ConfigMap, "one", namespace="default"), OTHER)
        assert await bench.one_pass(owner) == Result()
        assert bench.tap.writes == ["POST default/configmaps"]

    async def test_an_undesired_child_on_its_way_out_is_left_to_go(self, bench: Bench) -> None:
        owner = bench.owner(For(ConfigMap, build))
        await bench.one_pass(owner)
        one = await bench.config("one")
        assert one is not None
        await add_finalizers(bench.others, one, OTHER)
        await bench.change(names=["two"])
        await bench.one_pass(owner)
        assert await bench.one_pass(owner) == Result()
        assert bench.tap.writes == []


class TestConflicts:
    async def test_o02_a_foreign_object_is_neither_taken_nor_touched(self, bench: Bench) -> None:
        await bench.others.create(config("one", "theirs", "default"))
        owner = bench.owner(For(ConfigMap, build, update=update))
        with pytest.raises(ChildConflictError) as raised:
            await bench.one_pass(owner)
        error = raised.value
        assert (error.kind, error.namespace, error.name, error.owner) == ("ConfigMap", "default", "one", "")
        assert bench.tap.writes == ["POST default/configmaps", "PATCH w/status"]  # the other child, and the condition
        one = await bench.config("one")
        assert one is not None
        assert (data_of(one), view_of(one).labels) == ({"text": "theirs"}, None)
        assert bench.events.seen == [("Warning", "ChildConflict")]
        await bench.change(names=[])
        await bench.one_pass(owner)
        assert await bench.config("one") is not None

    async def test_o02_an_object_of_another_owner_is_named_with_its_owner(self, bench: Bench) -> None:
        other = await bench.others.create(
            Widget(metadata=ObjectMeta(name="v", namespace="default"), spec=Spec(names=["one"]))
        )
        await ResourceOwner(Widget, bench.others, [For(ConfigMap, build)]).reconcile(other)
        with pytest.raises(ChildConflictError, match="belongs to Widget v"):
            await bench.one_pass(bench.owner(For(ConfigMap, build)))

    async def test_the_condition_is_set_once_and_follows_when_the_conflict_is_over(self, bench: Bench) -> None:
        await bench.others.create(config("one", "theirs", "default"))
        owner = bench.owner(For(ConfigMap, build, ready=is_ready))
        for _ in range(2):
            with pytest.raises(ChildConflictError):
                await bench.one_pass(owner)
        assert bench.tap.writes == []  # nothing new to say
        (condition,) = (await bench.get()).status.conditions
        assert (condition.type, condition.status, condition.reason) == ("ChildrenReady", "False", "ChildConflict")
        assert "ConfigMap default/one exists" in condition.message
        await bench.others.delete(ConfigMap, "one", namespace="default")
        await bench.one_pass(owner)
        (condition,) = (await bench.get()).status.conditions
        assert (condition.status, condition.reason, condition.message) == ("False", "NotReady", "")
        for name in ("one", "two"):
            await bench.others.patch(ConfigMap, name, MergePatch({"data": {"ready": "yes"}}), namespace="default")
        await bench.one_pass(owner)
        (condition,) = (await bench.get()).status.conditions
        assert (condition.status, condition.reason) == ("True", "AllReady")
        await bench.one_pass(owner)
        assert bench.tap.writes == []

    async def test_without_a_conflict_no_condition_is_ever_written(self, bench: Bench) -> None:
        await bench.one_pass(bench.owner(For(ConfigMap, build)))
        assert (await bench.get()).status.conditions == []

    async def test_inside_a_state_machine_the_machines_write_carries_it(self, bench: Bench) -> None:
        await bench.others.create(config("one", "theirs", "default"))
        owner = bench.owner(For(ConfigMap, build))
        machine = StateMachine(
            Widget, bench.client, "a", {"a": StateHandler(enter=owner.reconcile)}, event_recorder=bench.events
        )
        widget = await bench.get()
        bench.tap.writes.clear()
        with pytest.raises(ChildConflictError):
            await machine.reconcile(widget)
        assert bench.tap.writes == ["POST default/configmaps", "PATCH w/status"]
        status = (await bench.get()).status
        assert (status.state, status.pending_entry) == ("a", True)
        assert [(c.type, c.reason) for c in status.conditions] == [("ChildrenReady", "ChildConflict")]
        assert bench.events.seen == [("Warning", "ChildConflict"), ("Warning", "EnterFailed")]

    async def test_inside_a_state_machine_the_end_of_a_conflict_is_part_of_the_machines_write(
        self, bench: Bench
    ) -> None:
        await bench.others.create(config("one", "theirs", "default"))
        owner = bench.owner(For(ConfigMap, build))
        states = {"a": StateHandler[Widget](reconcile=owner.reconcile)}
        machine = StateMachine(Widget, bench.client, "a", states, event_recorder=bench.events)
        await machine.reconcile(await bench.get())
        with pytest.raises(ChildConflictError):
            await machine.reconcile(await bench.get())
        await bench.change(names=["two"])
        widget = await bench.get()
        bench.tap.writes.clear()
        await machine.reconcile(widget)
        assert bench.tap.writes == ["PATCH w/status"]
        status = (await bench.get()).status
        assert status.observed_generation == 2
        assert [(c.type, c.status, c.reason) for c in status.conditions] == [("ChildrenReady", "True", "AllReady")]

    async def test_an_owner_without_conditions_still_gets_the_error(self, bench: Bench) -> None:
        await bench.others.create(config("one", "theirs", "default"))
        plain = await bench.others.create(Plain(metadata=ObjectMeta(name="p", namespace="default"), spec=Spec()))
        owner = ResourceOwner(Plain, bench.client, [For(ConfigMap, lambda plain: [config("one", plain.spec.text)])])
        with pytest.raises(ChildConflictError):
            await owner.reconcile(plain)


class TestReleasing:
    def elsewhere(self, bench: Bench) -> ResourceOwner[Widget]:
        return ResourceOwner(
            Widget,
            bench.client,
            [For(ConfigMap, build_elsewhere, finalizer=FINALIZER), For(ClusterRole, build_role, finalizer=FINALIZER)],
        )

    async def test_the_finalizer_is_there_before_the_first_child(self, bench: Bench) -> None:
        await add_finalizers(bench.others, await bench.get(), OTHER)
        widget = await bench.get()
        bench.tap.writes.clear()
        await self.elsewhere(bench).reconcile(widget)
        assert bench.tap.writes == [
            "PATCH widgets/w",
            "POST elsewhere/configmaps",
            "POST elsewhere/configmaps",
            "POST v1/clusterroles",
            "POST v1/clusterroles",
        ]
        assert widget.metadata.finalizers == [OTHER, FINALIZER]
        assert widget.metadata.resourceVersion == (await bench.get()).metadata.resourceVersion
        one = await bench.config("one", "elsewhere")
        assert one is not None
        assert view_of(one).ownerReferences is None

    async def test_no_child_no_finalizer(self, bench: Bench) -> None:
        await bench.change(names=[])
        await bench.one_pass(self.elsewhere(bench))
        assert bench.tap.writes == []

    async def test_they_are_found_again_and_collected_everywhere(self, bench: Bench) -> None:
        owner = self.elsewhere(bench)
        await bench.one_pass(owner)
        await bench.one_pass(owner)
        assert bench.tap.writes == []
        await bench.change(names=["two"])
        await bench.one_pass(owner)
        assert bench.tap.writes == ["DELETE configmaps/one", "DELETE clusterroles/w-one"]

    async def test_a_deleted_owner_waits_for_its_children_and_is_then_let_go(self, bench: Bench) -> None:
        owner = self.elsewhere(bench)
        await bench.one_pass(owner)
        await add_finalizers(bench.others, await bench.others.get(ConfigMap, "one", namespace="elsewhere"), OTHER)
        await add_finalizers(bench.others, await bench.get(), OTHER)
        await bench.others.delete(Widget, "w", namespace="default")

        wait = Result(requeue_after=timedelta(seconds=5))
        assert await bench.one_pass(owner) == wait
        assert bench.tap.writes == [
            "DELETE configmaps/one",
            "DELETE configmaps/two",
            "DELETE clusterroles/w-one",
            "DELETE clusterroles/w-two",
        ]
        assert await bench.one_pass(owner) == wait
        assert bench.tap.writes == []  # on its way out: waited for, not deleted again
        assert (await bench.get()).metadata.finalizers == [FINALIZER, OTHER]

        await remove_finalizers(bench.others, await bench.others.get(ConfigMap, "one", namespace="elsewhere"), OTHER)
        assert await bench.one_pass(owner) == Result()
        assert bench.tap.writes == ["PATCH widgets/w"]
        assert (await bench.get()).metadata.finalizers == [OTHER]
        assert await bench.one_pass(owner) == Result()
        assert bench.tap.writes == []

    async def test_o04_a_finalizer_that_somebody_adds_meanwhile_stands(self, bench: Bench) -> None:
        owner = self.elsewhere(bench)
        await bench.one_pass(owner)
        await add_finalizers(bench.others, await bench.get(), OTHER)
        await bench.others.delete(Widget, "w", namespace="default")
        await bench.one_pass(owner)

        async def drop_another() -> None:
            await bench.others.patch(
                Widget,
                "w",
                JsonPatch([{"op": "add", "path": "/metadata/annotations", "value": {"seen": "1"}}]),
                namespace="default",
            )

        bench.tap.before["PATCH widgets/w"] = drop_another
        assert await bench.one_pass(owner) == Result()
        widget = await bench.get()
        assert widget.metadata.finalizers == [OTHER]
        assert view_of(widget).annotations == {"seen": "1"}

    async def test_children_in_the_owners_namespace_are_the_garbage_collectors(self, bench: Bench) -> None:
        owner = bench.owner(For(ConfigMap, build))
        await bench.one_pass(owner)
        await add_finalizers(bench.others, await bench.get(), OTHER)
        await bench.others.delete(Widget, "w", namespace="default")
        assert await bench.one_pass(owner) == Result()
        assert bench.tap.writes == []
        await remove_finalizers(bench.others, await bench.get(), OTHER)
        assert await bench.config("one") is None

    async def test_an_owner_that_is_gone_has_nothing_to_do(self, bench: Bench) -> None:
        widget = await bench.get()
        await bench.others.delete(Widget, "w", namespace="default")
        assert await self.elsewhere(bench).reconcile(widget) == Result()


class TestOrdering:
    async def test_kinds_come_after_what_they_come_after_and_otherwise_as_declared(self, bench: Bench) -> None:
        def build_secret(widget: Widget) -> list[Secret]:
            return [Secret(metadata=ObjectMeta(name=name)) for name in widget.spec.names]

        owned: OwnedResources[Widget] = [
            For(Service, build_services, after=(ConfigMap, Secret)),
            For(Secret, build_secret, after=(ConfigMap,)),
            For(StatefulSet, build_stateful_sets),
            For(ConfigMap, build),
        ]
        owner = ResourceOwner(Widget, bench.client, owned)
        await bench.change(names=["one"])
        await bench.one_pass(owner)
        kinds = [write.rpartition("/")[2] for write in bench.tap.writes]
        assert kinds == ["statefulsets", "configmaps", "secrets", "services"]

    async def test_an_unready_kind_holds_back_changes_but_not_what_has_nothing_to_change(self, bench: Bench) -> None:
        owned: OwnedResources[Widget] = [
            For(Secret, build_secrets, update=lambda widget, existing: existing, after=(ConfigMap,)),  # noqa: ARG005 - update's parameters
            For(Service, build_services, update=lambda widget, existing: build_services(widget)[0], after=(Secret,)),  # noqa: ARG005 - update's parameters
            For(ConfigMap, build, ready=is_ready),
        ]
        owner = ResourceOwner(Widget, bench.client, owned)
        await bench.one_pass(owner)
        for name in ("one", "two"):
            await bench.others.patch(ConfigMap, name, MergePatch({"data": {"ready": "yes"}}), namespace="default")
        await bench.one_pass(owner)
        await bench.others.patch(ConfigMap, "one", MergePatch({"data": {"ready": "no"}}), namespace="default")
        assert await bench.one_pass(owner) == Result()  # nothing is held back, so nothing is waited for
        # A Service comes after the Secret, which is as it should be: what that comes after does not matter to it.
        await bench.change(text="y")
        assert await bench.one_pass(owner) == Result()
        assert bench.tap.writes == ["PATCH services/web"]


class TestReadiness:
    async def test_without_a_predicate_a_kind_is_ready_even_before_its_children_exist(self, bench: Bench) -> None:
        assert await bench.owner(For(ConfigMap, build)).is_ready(await bench.get(), ConfigMap)

    async def test_a_desired_child_that_is_missing_or_not_ready_makes_its_kind_not_ready(self, bench: Bench) -> None:
        owner = bench.owner(For(ConfigMap, build, ready=is_ready))
        widget = await bench.get()
        assert not await owner.is_ready(widget, ConfigMap)
        await bench.one_pass(owner)
        assert not await owner.is_ready(widget, ConfigMap)
        for name in ("one", "two"):
            assert not await owner.are_all_ready(widget)
            await bench.others.patch(ConfigMap, name, MergePatch({"data": {"ready": "yes"}}), namespace="default")
        assert await owner.is_ready(widget, ConfigMap)
        assert await owner.are_all_ready(widget)

    async def test_a_child_on_its_way_out_is_not_ready(self, bench: Bench) -> None:
        owner = bench.owner(For(ConfigMap, build, ready=lambda existing: bool(data_of(existing))))
        await bench.one_pass(owner)
        assert await owner.are_all_ready(await bench.get())
        await add_finalizers(bench.others, await bench.others.get(ConfigMap, "one", namespace="default"), OTHER)
        await bench.others.delete(ConfigMap, "one", namespace="default")
        assert not await owner.are_all_ready(await bench.get())

    async def test_a_foreign_object_of_the_name_is_not_ready(self, bench: Bench) -> None:
        await bench.change(names=["one"])
        await bench.others.create(
            ConfigMap(metadata=ObjectMeta(name="one", namespace="default"), data={"ready": "yes"})
        )
        assert not await bench.owner(For(ConfigMap, build, ready=is_ready)).are_all_ready(await bench.get())

    async def test_no_desired_children_are_ready_children(self, bench: Bench) -> None:
        await bench.change(names=[])
        assert await bench.owner(For(ConfigMap, build, ready=is_ready)).are_all_ready(await bench.get())

    async def test_an_undeclared_kind_is_an_error_that_names_it(self, bench: Bench) -> None:
        with pytest.raises(UndeclaredKindError, match="Secret is not an owned kind here; declared are: ConfigMap"):
            await bench.owner(For(ConfigMap, build)).is_ready(await bench.get(), Secret)


async def test_results_compose_the_sooner_wins(bench: Bench) -> None:
    holder = config("holder", namespace="elsewhere")
    metadata_of(holder).finalizers = [OTHER]
    await bench.others.create(holder)
    owner = bench.owner(For(ConfigMap, lambda widget: [*build(widget), *build_elsewhere(widget)], finalizer=FINALIZER))
    await bench.one_pass(owner)
    await add_finalizers(bench.others, await bench.others.get(ConfigMap, "two", namespace="default"), OTHER)
    await bench.others.delete(ConfigMap, "two", namespace="default")
    await bench.others.delete(Namespace, "elsewhere")
    # Thirty seconds for the namespace, five for the child on its way out.
    assert await bench.one_pass(owner) == Result(requeue_after=timedelta(seconds=5))


class Behind(Tap):
    """A transport under a cache that is behind: it has not seen any ConfigMap yet."""

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        response = await super().request(request)
        if request.method == "GET" and request.path.endswith("/configmaps"):
            empty: JsonObject = {
                "apiVersion": "v1",
                "kind": "ConfigMapList",
                "metadata": {"resourceVersion": "1"},
                "items": [],
            }
            return HttpResponse(status=200, headers=response.headers, body=msgspec.json.encode(empty))
        if request.method == "GET" and "/configmaps/" in request.path:
            name = request.path.rpartition("/")[2]
            details = {"name": name, "kind": "configmaps"}
            gone = {"kind": "Status", "apiVersion": "v1", "reason": "NotFound", "code": 404, "details": details}
            return HttpResponse(status=404, headers=response.headers, body=msgspec.json.encode(gone))
        return response


@pytest.mark.parametrize("apply", [False, True])
async def test_q13_with_a_cache_that_is_behind_no_child_is_made_twice(bench: Bench, apply: bool) -> None:  # noqa: FBT001 - a parameter
    owner = bench.owner(For(ConfigMap, build, apply=apply))
    await bench.one_pass(owner)
    await bench.others.patch(ConfigMap, "one", MergePatch({"data": {"theirs": "1"}}), namespace="default")
    before = await bench.others.list(ConfigMap, namespace="default")
    behind = ApiClient(Behind(bench.tap), field_manager="widget-operator")
    vars(behind)["uncached"] = bench.others  # what a client with caches offers
    owner = ResourceOwner(Widget, behind, [For(ConfigMap, build, apply=apply)])
    result = await bench.one_pass(owner)
    assert result.requeue_after is not None
    assert await bench.others.list(ConfigMap, namespace="default") == before


async def test_q13_a_cache_that_shows_no_children_does_not_let_go_of_a_deleted_owner(bench: Bench) -> None:
    def owner(client: Client) -> ResourceOwner[Widget]:
        return ResourceOwner(Widget, client, [For(ConfigMap, build, finalizer=FINALIZER)])

    await bench.one_pass(owner(bench.client))
    await add_finalizers(bench.others, await bench.others.get(ConfigMap, "one", namespace="default"), OTHER)
    await bench.others.delete(Widget, "w", namespace="default")
    behind = ApiClient(Behind(bench.tap))
    vars(behind)["uncached"] = bench.others  # what a client with caches offers
    assert await bench.one_pass(owner(behind)) == Result(requeue_after=timedelta(seconds=5))
    assert await bench.one_pass(owner(behind)) == Result(requeue_after=timedelta(seconds=5))
    assert (await bench.get()).metadata.finalizers == [FINALIZER]


async def test_q13_nor_is_a_foreign_object_taken_that_the_cache_does_not_show(bench: Bench) -> None:
    await bench.change(names=["one"])
    await bench.others.create(config("one", "theirs", "default"))
    behind = ApiClient(Behind(bench.tap), field_manager="widget-operator")
    vars(behind)["uncached"] = bench.others  # what a client with caches offers
    with pytest.raises(ChildConflictError):
        await bench.one_pass(ResourceOwner(Widget, behind, [For(ConfigMap, build, apply=True)]))
    assert data_of(await bench.config("one")) == {"text": "theirs"}
