"""What ownership promises, the same on the in-memory API server and on a real one with its garbage collector."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Protocol

import msgspec
import pytest
from lightkube.core.resource import ApiInfo, NamespacedResource, ResourceDef
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment, StatefulSet
from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import ConfigMap, PersistentVolumeClaim, Secret, Service
from lightkube.resources.rbac_authorization_v1 import ClusterRole, RoleBinding

from conformance.harness import eventually, new_name
from conformance.ownership.children import CHILDREN, OWN_GROUP, Anything, Body, ChildKind, Gadget, Widget, build
from conformance.ownership.conftest import Scene
from opsdk.client import ApiClient, HttpRequest, HttpResponse, HttpStream, Transport
from opsdk.client.finalizers import add_finalizers, remove_finalizers
from opsdk.errors import ChildConflictError, ConflictError, FieldConflictError, NotFoundError, TerminalError
from opsdk.models import CustomResource, find_condition, metadata_of, view_of
from opsdk.ownership import OWNER_SET_LABEL, OWNER_UID_LABEL, For, OwnedResources, ResourceOwner
from opsdk.protocols import KubeObject
from opsdk.types import JsonObject, MergePatch, Result

pytestmark = pytest.mark.anyio

FINALIZER = "conformance.example.com/children"
OTHER = "conformance.example.com/other"


class HasData(Protocol):
    """`ConfigMap`, typed: lightkube declares its maps as bare `dict`."""

    @property
    def data(self) -> Mapping[str, str] | None: ...


def data_of(child: HasData | None) -> Mapping[str, str]:
    assert child is not None
    return child.data or {}


def config(name: str, namespace: str | None = None, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace), data=data)


def configs(*built: ConfigMap) -> Callable[[Widget], list[ConfigMap]]:
    """A `build` that always says the same."""

    def build_configs(owner: Widget) -> list[ConfigMap]:
        assert owner.metadata.uid
        return list(built)

    return build_configs


def rewrite(widget: Widget, existing: ConfigMap) -> ConfigMap:
    existing.data = {"size": str(widget.spec.size)}
    return existing


def labels_of(child: KubeObject) -> Mapping[str, str]:
    return view_of(child).labels or {}


async def again(scene: Scene, widget: Widget) -> Widget:
    """The widget as it is now."""
    return await scene.others.get(Widget, widget.metadata.name or "", namespace=scene.namespace)


async def resize(scene: Scene, widget: Widget, size: int) -> Widget:
    patch = MergePatch({"spec": {"size": size}})
    return await scene.others.patch(Widget, widget.metadata.name or "", patch, namespace=scene.namespace)


class TestTheGarbageCollector:
    async def test_children_beside_a_namespaced_owner_go_with_it(self, scene: Scene) -> None:
        widget = await scene.widget()
        await ResourceOwner(Widget, scene.client, [For(ConfigMap, configs(config("c")))]).reconcile(widget)
        await scene.others.delete(Widget, widget.metadata.name or "", namespace=scene.namespace)
        await scene.gone(ConfigMap, "c", scene.namespace)

    async def test_children_of_a_cluster_scoped_owner_go_with_it_wherever_they_are(self, scene: Scene) -> None:
        gadget = await scene.gadget()
        role = new_name("role")

        def build_role(owner: Gadget) -> list[ClusterRole]:
            assert owner.metadata.uid
            return [ClusterRole(metadata=ObjectMeta(name=role))]

        def build_configs(owner: Gadget) -> list[ConfigMap]:
            assert owner.metadata.uid
            return [config("c", scene.namespace), config("c", scene.elsewhere)]

        owned: OwnedResources[Gadget] = [For(ConfigMap, build_configs), For(ClusterRole, build_role)]
        owner = ResourceOwner(Gadget, scene.client, owned)
        await owner.reconcile(gadget)
        scene.tap.requests.clear()
        await owner.reconcile(gadget)
        assert scene.tap.writes == []
        await scene.others.delete(Gadget, gadget.metadata.name or "")
        for kind, name, namespace in (
            (ConfigMap, "c", scene.namespace),
            (ConfigMap, "c", scene.elsewhere),
            (ClusterRole, role, None),
        ):
            await scene.gone(kind, name, namespace)

    async def test_a_deleted_child_comes_back(self, scene: Scene) -> None:
        widget = await scene.widget()
        owner = ResourceOwner(Widget, scene.client, [For(ConfigMap, configs(config("c", a="1")))])
        await owner.reconcile(widget)
        await scene.others.delete(ConfigMap, "c", namespace=scene.namespace)
        await owner.reconcile(widget)
        assert data_of(await scene.others.get(ConfigMap, "c", namespace=scene.namespace)) == {"a": "1"}


class TestFinalizers:
    async def test_children_elsewhere_and_cluster_scoped_ones_go_before_the_owner(self, scene: Scene) -> None:
        widget = await scene.widget()
        role = new_name("role")

        def build_role(owner: Widget) -> list[ClusterRole]:
            assert owner.metadata.uid
            return [ClusterRole(metadata=ObjectMeta(name=role))]

        owned: OwnedResources[Widget] = [
            For(ConfigMap, configs(config("c", scene.elsewhere)), finalizer=FINALIZER),
            For(ClusterRole, build_role, finalizer=OTHER),
        ]
        owner = ResourceOwner(Widget, scene.client, owned)
        await owner.reconcile(widget)
        assert (await again(scene, widget)).metadata.finalizers == [FINALIZER, OTHER]
        child = await scene.others.get(ConfigMap, "c", namespace=scene.elsewhere)
        assert view_of(child).ownerReferences is None
        await scene.others.delete(Widget, widget.metadata.name or "", namespace=scene.namespace)
        assert await owner.reconcile(await again(scene, widget)) == Result(requeue_after=timedelta(seconds=5))
        await scene.gone(ConfigMap, "c", scene.elsewhere)
        await scene.gone(ClusterRole, role, None)
        assert await owner.reconcile(await again(scene, widget)) == Result()
        await scene.gone(Widget, widget.metadata.name or "", scene.namespace)

    async def test_o04_a_finalizer_that_somebody_adds_while_ours_goes_stands(self, scene: Scene) -> None:
        widget = await scene.widget()
        owned = [For(ConfigMap, configs(config("c", scene.elsewhere)), finalizer=FINALIZER)]
        owner = ResourceOwner(Widget, scene.client, owned)
        await owner.reconcile(widget)
        name = widget.metadata.name or ""
        await add_finalizers(scene.others, await again(scene, widget), OTHER)
        await scene.others.delete(Widget, name, namespace=scene.namespace)
        await owner.reconcile(await again(scene, widget))
        await scene.gone(ConfigMap, "c", scene.elsewhere)
        held = await again(scene, widget)

        async def meddle() -> None:
            patch = MergePatch({"metadata": {"annotations": {"seen": "1"}}})
            await scene.others.patch(Widget, name, patch, namespace=scene.namespace)

        scene.tap.before[f"PATCH widgets/{name}"] = meddle
        await owner.reconcile(held)
        after = await again(scene, widget)
        assert (after.metadata.finalizers, view_of(after).annotations) == ([OTHER], {"seen": "1"})
        await remove_finalizers(scene.others, after, OTHER)


class TestConflicts:
    @pytest.mark.parametrize("apply", [False, True], ids=["update", "apply"])
    async def test_o02_what_belongs_to_nobody_is_neither_taken_nor_touched(
        self,
        scene: Scene,
        apply: bool,  # noqa: FBT001 - a parameter
    ) -> None:
        widget = await scene.widget()
        theirs = await scene.others.create(config("c", scene.namespace, theirs="1"))
        entry = (
            For(ConfigMap, configs(config("c", ours="1")), apply=True)
            if apply
            else For(ConfigMap, configs(config("c", ours="1")), update=rewrite)
        )
        owner = ResourceOwner(Widget, scene.client, [entry])
        plan = await owner.plan(widget)
        assert [(change.action, change.reason) for change in plan.changes] == [
            ("conflict", "belongs to nobody, not to us")
        ]
        with pytest.raises(ChildConflictError, match=f"ConfigMap {scene.namespace}/c exists"):
            await owner.reconcile(widget)
        assert await scene.others.get(ConfigMap, "c", namespace=scene.namespace) == theirs
        condition = find_condition((await again(scene, widget)).status.conditions, "ChildrenReady")
        assert condition is not None
        assert (condition.status, condition.reason) == ("False", "ChildConflict")

    async def test_o02_what_belongs_to_another_owner_is_named_with_it(self, scene: Scene) -> None:
        first, second = await scene.widget(), await scene.widget()
        owner = ResourceOwner(Widget, scene.client, [For(ConfigMap, configs(config("c")), update=rewrite, adopt=True)])
        await owner.reconcile(first)
        before = await scene.others.get(ConfigMap, "c", namespace=scene.namespace)
        with pytest.raises(ChildConflictError, match=f"belongs to Widget {first.metadata.name}"):
            await owner.reconcile(second)
        assert await scene.others.get(ConfigMap, "c", namespace=scene.namespace) == before


class TestAdopting:
    @pytest.mark.parametrize("how", ["kept", "update", "apply"])
    async def test_what_belongs_to_nobody_is_taken_over_when_asked_for(self, scene: Scene, how: str) -> None:
        widget = await scene.widget(size=7)
        await scene.others.create(config("c", scene.namespace, theirs="1"))
        wanted = configs(config("c", size="7"))
        match how:
            case "kept":
                entry = For(ConfigMap, wanted, adopt=True)
            case "update":
                entry = For(ConfigMap, wanted, update=rewrite, adopt=True)
            case _:
                entry = For(ConfigMap, wanted, apply=True, adopt=True)
        owner = ResourceOwner(Widget, scene.client, [entry])
        assert [change.action for change in (await owner.plan(widget)).changes] == ["adopt"]
        assert await owner.reconcile(widget) == Result()
        child = await scene.others.get(ConfigMap, "c", namespace=scene.namespace)
        assert labels_of(child) == {OWNER_UID_LABEL: widget.metadata.uid, OWNER_SET_LABEL: owner.name}
        assert [entry.uid for entry in view_of(child).ownerReferences or ()] == [widget.metadata.uid]
        expected = {"kept": {"theirs": "1"}, "update": {"size": "7"}, "apply": {"theirs": "1", "size": "7"}}
        assert data_of(child) == expected[how]
        scene.tap.requests.clear()
        await owner.reconcile(await again(scene, widget))
        assert scene.tap.writes == []

    async def test_it_is_not_taken_from_whoever_is_faster(self, scene: Scene) -> None:
        first, second = await scene.widget(), await scene.widget()
        await scene.others.create(config("c", scene.namespace))
        owned = [For(ConfigMap, configs(config("c", a="1")), apply=True, adopt=True)]
        owner = ResourceOwner(Widget, scene.client, owned)

        async def be_faster() -> None:
            await ResourceOwner(Widget, scene.others, owned).reconcile(second)

        scene.tap.before["PATCH configmaps/c"] = be_faster
        with pytest.raises(ChildConflictError):
            await owner.reconcile(first)
        child = await scene.others.get(ConfigMap, "c", namespace=scene.namespace)
        assert labels_of(child)[OWNER_UID_LABEL] == second.metadata.uid


class TestApplying:
    async def test_drift_is_reverted_and_what_others_have_set_besides_stays(self, scene: Scene) -> None:
        widget = await scene.widget()
        owner = ResourceOwner(Widget, scene.client, [For(ConfigMap, configs(config("c", a="1")), apply=True)])
        await owner.reconcile(widget)
        drift = MergePatch({"data": {"a": "drift", "theirs": "1"}})
        await scene.others.patch(ConfigMap, "c", drift, namespace=scene.namespace)
        assert (await owner.plan(widget)).changes[0].difference == ('data.a: "drift" -> "1"',)
        await owner.reconcile(widget)
        assert data_of(await scene.others.get(ConfigMap, "c", namespace=scene.namespace)) == {"a": "1", "theirs": "1"}
        scene.tap.requests.clear()
        await owner.reconcile(widget)
        assert scene.tap.writes == []

    async def test_what_another_manager_applies_too_is_a_conflict_with_its_name(self, scene: Scene) -> None:
        widget = await scene.widget()
        wanted = configs(config("c", a="1"))
        owner = ResourceOwner(Widget, scene.client, [For(ConfigMap, wanted, apply=True)])
        await owner.reconcile(widget)
        theirs = config("c", scene.namespace, a="2")
        await scene.others.apply(theirs, field_manager="helm", force=True)
        with pytest.raises(FieldConflictError, match=r"helm applies \.data\.a") as raised:
            await owner.reconcile(await again(scene, widget))
        assert raised.value.managers == {"helm": (".data.a",)}
        with pytest.raises(FieldConflictError):
            await owner.reconcile(await again(scene, widget))
        condition = find_condition((await again(scene, widget)).status.conditions, "ChildrenReady")
        assert condition is not None
        assert (condition.status, condition.reason) == ("False", "FieldConflict")
        assert data_of(await scene.others.get(ConfigMap, "c", namespace=scene.namespace)) == {"a": "2"}

        forced = ResourceOwner(Widget, scene.client, [For(ConfigMap, wanted, apply=True, force=True)])
        await forced.reconcile(await again(scene, widget))
        assert data_of(await scene.others.get(ConfigMap, "c", namespace=scene.namespace)) == {"a": "1"}
        with pytest.raises(ConflictError, match="the-operator"):
            await scene.others.apply(theirs, field_manager="helm")

    async def test_what_an_earlier_update_owned_is_handed_over(self, scene: Scene) -> None:
        widget = await scene.widget()
        await ResourceOwner(
            Widget, scene.client, [For(ConfigMap, configs(config("c", a="1", b="1")), update=rewrite)]
        ).reconcile(widget)
        theirs = MergePatch({"data": {"theirs": "1"}})
        await scene.others.patch(ConfigMap, "c", theirs, namespace=scene.namespace)
        owner = ResourceOwner(Widget, scene.client, [For(ConfigMap, configs(config("c", a="1")), apply=True)])
        await owner.reconcile(widget)
        child = await scene.others.get(ConfigMap, "c", namespace=scene.namespace)
        assert data_of(child) == {"a": "1", "theirs": "1"}  # `b` was ours, and nobody wants it
        managers = [(entry.manager, entry.operation) for entry in metadata_of(child).managedFields or []]
        assert sorted(managers, key=str) == [("people", "Update"), ("the-operator", "Apply")]
        scene.tap.requests.clear()
        await owner.reconcile(widget)
        assert scene.tap.writes == []

    async def test_the_plan_names_the_fields_that_are_given_up(self, scene: Scene) -> None:
        widget = await scene.widget()
        first = ResourceOwner(Widget, scene.client, [For(ConfigMap, configs(config("c", a="1", b="1")), apply=True)])
        await first.reconcile(widget)
        second = ResourceOwner(Widget, scene.client, [For(ConfigMap, configs(config("c", a="1")), apply=True)])
        (change,) = (await second.plan(widget)).changes
        assert (change.action, change.difference) == ("change", ("data.b: ours -> (given up)",))
        await second.reconcile(widget)
        assert data_of(await scene.others.get(ConfigMap, "c", namespace=scene.namespace)) == {"a": "1"}


class OlderSpec(msgspec.Struct, rename="camel", omit_defaults=True):
    """All that an older operator knows of a Widget's spec."""

    size: int = 1


class Older(NamespacedResource, msgspec.Struct, rename="camel", omit_defaults=True):
    """A Widget, as that operator writes and reads it."""

    metadata: ObjectMeta | None = None
    spec: OlderSpec = msgspec.field(default_factory=OlderSpec)

    _api_info = ApiInfo(
        resource=ResourceDef(OWN_GROUP, "v1", "Widget"),
        plural="widgets",
        verbs=["delete", "get", "global_list", "list", "patch", "post", "put", "watch"],
    )


@pytest.mark.parametrize("apply", [False, True], ids=["update", "apply"])
async def test_o03_fields_that_the_model_lacks_survive_every_write(
    scene: Scene,
    apply: bool,  # noqa: FBT001 - a parameter
) -> None:
    widget = await scene.widget(size=3)

    def built(owner: Widget) -> list[Older]:
        return [Older(metadata=ObjectMeta(name="c"), spec=OlderSpec(size=owner.spec.size))]

    def update(owner: Widget, existing: Older) -> Older:
        existing.spec.size = owner.spec.size
        return existing

    entry = For(Older, built, apply=True) if apply else For(Older, built, update=update)
    owner = ResourceOwner(Widget, scene.client, [entry])
    await owner.reconcile(widget)
    newer = MergePatch({"spec": {"note": "kept", "labels": {"a": "1"}}})
    await scene.others.patch(Widget, "c", newer, namespace=scene.namespace)
    await owner.reconcile(await resize(scene, widget, 4))
    child = await scene.others.get(Widget, "c", namespace=scene.namespace)
    assert (child.spec.size, child.spec.note, child.spec.labels) == (4, "kept", {"a": "1"})


def changed(child: ChildKind) -> Body:
    """The same child, with a field changed that cannot be changed in place."""
    kind, body = child.kind, child.lean
    spec = body.get("spec", {})
    if kind is Deployment:
        labels = {"app": "other"}
        template = {**spec["template"], "metadata": {"labels": labels}}
        return {"spec": {**spec, "selector": {"matchLabels": labels}, "template": template}}
    if kind is StatefulSet:
        return {"spec": {**spec, "serviceName": "other"}}
    if kind is Job:
        template = spec["template"]
        containers = [{"name": "web", "image": "other"}]
        return {"spec": {**spec, "template": {**template, "spec": {**template["spec"], "containers": containers}}}}
    if kind is RoleBinding:
        return {**body, "roleRef": {**body["roleRef"], "name": "other"}}
    if kind is PersistentVolumeClaim:
        return {"spec": {**spec, "accessModes": ["ReadOnlyMany"]}}
    if kind is Secret:
        return {**body, "type": "example.com/other"}
    return {"spec": {**spec, "clusterIP": "None"}}


async def _asks_for_nothing(owner: ResourceOwner[Widget], widget: Widget) -> bool:
    return (await owner.reconcile(widget)).requeue_after is None


@pytest.mark.parametrize("apply", [False, True], ids=["update", "apply"])
@pytest.mark.parametrize(
    "kind",
    [Deployment, StatefulSet, Job, RoleBinding, PersistentVolumeClaim, Secret, Service],
    ids=lambda k: k.__name__,
)
async def test_a_field_that_cannot_be_changed_in_place_is_named_and_the_child_made_anew_by_choice(
    scene: Scene,
    kind: type[KubeObject],
    apply: bool,  # noqa: FBT001 - a parameter
) -> None:
    widget = await scene.widget()
    child = next(each for each in CHILDREN if each.kind is kind)

    def owner(body: Body, *, recreate: bool) -> ResourceOwner[Widget]:
        def built(widget: Widget) -> list[KubeObject]:
            return [build(child, body, "c", widget.metadata.namespace)]

        def update(widget: Widget, existing: KubeObject) -> KubeObject:
            assert existing.metadata is not None
            return built(widget)[0]

        entry = (
            For(kind, built, apply=True, recreate=recreate)
            if apply
            else For(kind, built, update=update, recreate=recreate)
        )
        return ResourceOwner(Widget, scene.client, [entry])

    await owner(child.lean, recreate=False).reconcile(widget)
    before = await scene.others.get(kind, "c", namespace=scene.namespace)
    with pytest.raises(
        TerminalError, match=f"{kind.__name__} {scene.namespace}/c of Widget .*cannot be changed in place"
    ):
        # the kind's own controller may write between our read and our write: such a pass only asks to be tried again
        await eventually(partial(_asks_for_nothing, owner(changed(child), recreate=False), widget))
    anew = owner(changed(child), recreate=True)
    result = await anew.reconcile(widget)
    assert result.requeue_after is not None

    async def is_new() -> bool:
        await anew.reconcile(widget)
        current = await scene.others.find(kind, "c", namespace=scene.namespace)
        return current is not None and view_of(current).uid != view_of(before).uid

    await eventually(is_new)
    assert not (await anew.plan(widget)).writes


class TestOrder:
    def owner(self, scene: Scene, *, finalizer: str | None = None) -> ResourceOwner[Widget]:
        """A Secret comes after a ConfigMap, which is ready when it says so; both only while the widget is small."""

        def build_config(widget: Widget) -> list[ConfigMap]:
            return [config("base", size=str(widget.spec.size))] if widget.spec.size < 10 else []

        def build_top(widget: Widget) -> list[Secret]:
            return [Secret(metadata=ObjectMeta(name="top"))] if widget.spec.size < 10 else []

        return ResourceOwner(
            Widget,
            scene.client,
            [
                For(Secret, build_top, after=(ConfigMap,)),
                For(
                    ConfigMap,
                    build_config,
                    ready=lambda existing: data_of(existing).get("ready") == "yes",
                    finalizer=finalizer,
                ),
            ],
        )

    async def ready(self, scene: Scene) -> None:
        patch = MergePatch({"data": {"ready": "yes"}})
        await scene.others.patch(ConfigMap, "base", patch, namespace=scene.namespace)

    async def test_a_kind_waits_until_what_it_comes_after_is_ready(self, scene: Scene) -> None:
        widget = await scene.widget()
        owner = self.owner(scene)
        plan = await owner.plan(widget)
        assert [(change.action, change.kind) for change in plan.changes] == [
            ("create", "ConfigMap"),
            ("wait", "Secret"),
        ]
        assert plan.changes[1].reason == "it comes after ConfigMap, not ready yet"
        assert await owner.reconcile(widget) == Result(requeue_after=timedelta(seconds=5))
        assert await scene.others.find(Secret, "top", namespace=scene.namespace) is None
        await self.ready(scene)
        assert await owner.reconcile(widget) == Result()
        assert await scene.others.find(Secret, "top", namespace=scene.namespace) is not None

    async def test_what_is_no_longer_wanted_goes_in_the_opposite_order(self, scene: Scene) -> None:
        widget = await scene.widget()
        owner = self.owner(scene)
        await owner.reconcile(widget)
        await self.ready(scene)
        await owner.reconcile(widget)
        await add_finalizers(scene.others, await scene.others.get(Secret, "top", namespace=scene.namespace), OTHER)
        widget = await resize(scene, widget, 10)
        plan = await owner.plan(widget)
        assert [(change.action, change.kind) for change in plan.changes] == [
            ("delete", "Secret"),
            ("wait", "ConfigMap"),
        ]
        for _ in range(2):
            result = await owner.reconcile(widget)
            assert result == Result(requeue_after=timedelta(seconds=5))
            base = await scene.others.get(ConfigMap, "base", namespace=scene.namespace)
            assert view_of(base).deletionTimestamp is None
        await remove_finalizers(scene.others, await scene.others.get(Secret, "top", namespace=scene.namespace), OTHER)
        assert await owner.reconcile(widget) == Result()
        await scene.gone(ConfigMap, "base", scene.namespace)

    async def test_children_of_a_deleted_owner_go_in_the_opposite_order_where_a_finalizer_holds_it(
        self, scene: Scene
    ) -> None:
        widget = await scene.widget()
        owner = self.owner(scene, finalizer=FINALIZER)
        await owner.reconcile(widget)
        await self.ready(scene)
        await owner.reconcile(widget)
        await add_finalizers(scene.others, await scene.others.get(Secret, "top", namespace=scene.namespace), OTHER)
        await scene.others.delete(Widget, widget.metadata.name or "", namespace=scene.namespace)
        plan = await owner.plan(await again(scene, widget))
        assert [(change.action, change.kind) for change in plan.changes] == [
            ("delete", "Secret"),
            ("wait", "ConfigMap"),
        ]
        await owner.reconcile(await again(scene, widget))
        base = await scene.others.get(ConfigMap, "base", namespace=scene.namespace)
        assert view_of(base).deletionTimestamp is None
        await remove_finalizers(scene.others, await scene.others.get(Secret, "top", namespace=scene.namespace), OTHER)
        await owner.reconcile(await again(scene, widget))
        await scene.gone(ConfigMap, "base", scene.namespace)
        plan = await owner.plan(await again(scene, widget))
        assert plan.finalizers_to_remove == (FINALIZER,)
        await owner.reconcile(await again(scene, widget))
        await scene.gone(Widget, widget.metadata.name or "", scene.namespace)


async def test_q13_two_operators_at_once_make_each_child_once(scene: Scene) -> None:
    widget = await scene.widget()
    owned = [For(ConfigMap, configs(config("a"), config("b")))]
    owner = ResourceOwner(Widget, scene.client, owned)

    async def be_faster() -> None:
        await ResourceOwner(Widget, ApiClient(scene.tap.inner), owned).reconcile(widget)

    scene.tap.before[f"POST {scene.namespace}/configmaps"] = be_faster
    result = await owner.reconcile(widget)
    assert result.requeue_after is not None
    children = await scene.others.list(ConfigMap, namespace=scene.namespace, labels={OWNER_SET_LABEL: owner.name})
    assert [view_of(child).name for child in children] == ["a", "b"]
    assert await owner.reconcile(widget) == Result()


class Behind:
    """A transport under a cache that has seen no ConfigMap yet."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        response = await self.inner.request(request)
        collection, _, name = request.path.partition("/configmaps")
        if request.method != "GET" or not collection or "/configmaps" not in request.path:
            return response
        body: JsonObject = {"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {}, "items": []}
        if name:
            details = {"kind": "configmaps", "name": name[1:]}
            body = {"apiVersion": "v1", "kind": "Status", "code": 404, "reason": "NotFound", "details": details}
        return HttpResponse(status=404 if name else 200, headers=response.headers, body=msgspec.json.encode(body))

    @asynccontextmanager
    async def stream(self, request: HttpRequest, /) -> AsyncGenerator[HttpStream]:
        async with self.inner.stream(request) as stream:
            yield stream

    async def aclose(self) -> None:
        """The transport below belongs to the fixture."""


@pytest.mark.parametrize("apply", [False, True], ids=["kept", "apply"])
async def test_q13_with_a_cache_that_is_behind_no_child_is_made_twice_and_none_of_others_taken(
    scene: Scene,
    apply: bool,  # noqa: FBT001 - a parameter
) -> None:
    widget = await scene.widget()
    owned = [For(ConfigMap, configs(config("a", a="1")), apply=apply)]
    await ResourceOwner(Widget, scene.client, owned).reconcile(widget)
    theirs = await scene.others.create(config("b", scene.namespace, theirs="1"))
    before = await scene.others.get(ConfigMap, "a", namespace=scene.namespace)

    behind = ApiClient(Behind(scene.tap), field_manager="the-operator")
    vars(behind)["uncached"] = scene.client  # what a client with caches offers
    both = [For(ConfigMap, configs(config("a", a="1"), config("b", b="1")), apply=apply)]
    with pytest.raises(ChildConflictError, match=f"{scene.namespace}/b exists and has no owner"):
        await ResourceOwner(Widget, behind, both).reconcile(widget)
    assert await scene.others.get(ConfigMap, "a", namespace=scene.namespace) == before
    assert await scene.others.get(ConfigMap, "b", namespace=scene.namespace) == theirs


class Absent(CustomResource[Anything], group="absent.example.com", version="v1"):
    """A kind whose CRD nobody has installed."""


def build_absent(widget: Widget) -> list[Absent]:
    return [Absent(metadata=ObjectMeta(name=widget.metadata.name), spec=Anything())]


class TestConditionalKinds:
    async def test_children_come_and_go_with_the_condition(self, scene: Scene) -> None:
        widget = await scene.widget(size=1)
        owner = ResourceOwner(
            Widget,
            scene.client,
            [
                For(ConfigMap, configs(config("c")), when=lambda widget: widget.spec.size > 1),
                For(Secret, build_secret, after=(ConfigMap,)),
            ],
        )
        await owner.reconcile(widget)
        assert await scene.others.find(ConfigMap, "c", namespace=scene.namespace) is None
        assert await scene.others.find(Secret, "s", namespace=scene.namespace) is not None  # waits for nothing
        widget = await resize(scene, widget, 2)
        assert await owner.reconcile(widget) == Result()
        assert await scene.others.find(ConfigMap, "c", namespace=scene.namespace) is not None
        await owner.reconcile(await resize(scene, widget, 1))
        await scene.gone(ConfigMap, "c", scene.namespace)

    async def test_a_kind_that_the_server_does_not_know_is_no_obstacle_while_none_is_wanted(self, scene: Scene) -> None:
        widget = await scene.widget(size=1)
        owned = [For(Absent, build_absent, when=lambda widget: widget.spec.size > 1)]
        owner = ResourceOwner(Widget, scene.client, owned)
        assert await owner.reconcile(widget) == Result()
        with pytest.raises(NotFoundError):
            await owner.reconcile(await resize(scene, widget, 2))

    async def test_nor_does_it_hold_an_owner_that_is_deleted(self, scene: Scene) -> None:
        widget = await scene.widget()
        owner = ResourceOwner(Widget, scene.client, [For(Absent, build_absent, finalizer=FINALIZER)])
        await add_finalizers(scene.others, await again(scene, widget), FINALIZER)
        await scene.others.delete(Widget, widget.metadata.name or "", namespace=scene.namespace)
        assert await owner.reconcile(await again(scene, widget)) == Result()
        await scene.gone(Widget, widget.metadata.name or "", scene.namespace)


def build_secret(widget: Widget) -> list[Secret]:
    assert widget.metadata.uid
    return [Secret(metadata=ObjectMeta(name="s"), data={"password": "aHVudGVyMg=="})]


class TestPlans:
    async def test_a_plan_writes_nothing_and_hides_what_secrets_say(self, scene: Scene) -> None:
        widget = await scene.widget()
        owner = ResourceOwner(
            Widget,
            scene.client,
            [
                For(Secret, build_secret, apply=True),
                For(ConfigMap, configs(config("c", scene.elsewhere, a="1")), finalizer=FINALIZER),
            ],
        )
        scene.tap.requests.clear()
        plan = await owner.plan(widget, redact=lambda kind, path: kind == "ConfigMap" and path[-1] == "a")
        assert scene.tap.writes == []
        assert plan.writes
        assert plan.finalizers_to_add == (FINALIZER,)
        assert [(change.action, change.kind, str(change.request)) for change in plan.changes] == [
            ("create", "Secret", f"{scene.namespace}/s"),
            ("create", "ConfigMap", f"{scene.elsewhere}/c"),
        ]
        assert 'data: (none) -> {"password": "(hidden)"}' in str(plan)
        assert 'data: (none) -> {"a": "(hidden)"}' in str(plan)
        await owner.reconcile(widget)
        assert str(await owner.plan(widget)) == f"Widget {scene.namespace}/{widget.metadata.name}:\n  nothing to do"
        patch = MergePatch({"data": {"password": "eA=="}})
        await scene.others.patch(Secret, "s", patch, namespace=scene.namespace)
        (change,) = (await owner.plan(widget)).changes
        assert change.difference == ("data.password: (hidden) -> (hidden)",)
        for text in (repr(change), str(change)):
            assert "aHVudGVyMg" not in text
            assert "eA==" not in text
