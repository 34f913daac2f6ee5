"""The verbs, over every transport and on both servers."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest
from lightkube.models.core_v1 import (
    Container,
    ContainerPort,
    HTTPGetAction,
    PodSpec,
    PodTemplateSpec,
    Probe,
    ResourceRequirements,
    ServicePort,
    ServiceSpec,
)
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, PodTemplate, Service

from conformance.client.conftest import Site
from conformance.client.objects import a_widget, config_map, data_of
from conformance.client.widgets import Part, StoredWidget, Widget, WidgetSpec, WidgetStatus
from opsdk.client import refresh_metadata
from opsdk.errors import (
    AlreadyExistsError,
    ApiStatusError,
    ConflictError,
    NotFoundError,
    UnsupportedMediaTypeError,
)
from opsdk.models import metadata_of, view_of
from opsdk.types import Json, JsonPatch, MergePatch, Preconditions, StrategicMergePatch

pytestmark = pytest.mark.anyio


async def test_an_object_lives_from_create_to_delete(site: Site) -> None:
    client = site.client
    assert await client.find(Widget, "w", namespace=site.namespace) is None
    created = await client.create(
        Widget(metadata=ObjectMeta(name="w", namespace=site.namespace), spec=WidgetSpec(size=2))
    )
    assert created.metadata.generation == 1
    with pytest.raises(AlreadyExistsError) as exists:
        await client.create(Widget(metadata=ObjectMeta(name="w", namespace=site.namespace), spec=WidgetSpec()))
    assert exists.value.name == "w"
    found = await client.get(Widget, "w", namespace=site.namespace)
    assert found.spec.size == 2
    await client.delete(Widget, "w", namespace=site.namespace, preconditions=Preconditions(uid=found.metadata.uid))
    with pytest.raises(NotFoundError) as gone:
        await client.get(Widget, "w", namespace=site.namespace)
    assert (gone.value.reason, gone.value.name) == ("NotFound", "w")


async def test_m03_o03_a_program_of_today_keeps_what_tomorrow_a_widget(site: Site) -> None:
    client = site.client
    await client.create(a_widget(site))

    old = await client.get(Widget, "w", namespace=site.namespace)
    base = client.snapshot(old)
    old.spec.parts[1].size = 5
    old.metadata.labels = {"l": "1"}
    patched = await client.patch_from(base, old)
    assert patched is not None
    patched.spec.parts.insert(0, Part(name="c"))
    patched.spec.size = 3
    await client.replace(patched)

    now = await client.get(StoredWidget, "w", namespace=site.namespace)
    assert (now.spec.size, now.spec.hidden, view_of(now).labels) == (3, "x", {"l": "1"})
    assert [(part.name, part.size, part.hidden) for part in now.spec.parts] == [
        ("c", 1, None),
        ("a", 1, "a"),
        ("b", 5, "b"),
    ]


async def test_a_write_on_top_of_somebody_elses_is_a_conflict(site: Site) -> None:
    client = site.client
    await client.create(a_widget(site))
    mine = await client.get(Widget, "w", namespace=site.namespace)
    base = client.snapshot(mine)
    await client.patch(Widget, "w", MergePatch({"spec": {"size": 7}}), namespace=site.namespace)
    mine.spec.size = 8
    mine.status.ready = 1
    for write in (
        client.patch_from(base, mine),
        client.status.patch_from(base, mine),
        client.replace(mine),
        client.status.replace(mine),
    ):
        with pytest.raises(ConflictError):
            await write
    assert (await client.get(Widget, "w", namespace=site.namespace)).spec.size == 7


async def test_an_object_that_was_made_again_under_its_name_is_a_conflict(site: Site) -> None:
    client = site.client
    mine = await client.create(a_widget(site))
    base = client.snapshot(mine)
    await client.delete(StoredWidget, "w", namespace=site.namespace)
    await client.create(a_widget(site))
    mine.spec.size = 8
    with pytest.raises(ConflictError):
        await client.patch_from(base, mine)
    with pytest.raises(ConflictError):
        await client.delete(
            StoredWidget, "w", namespace=site.namespace, preconditions=Preconditions(uid=mine.metadata.uid)
        )


async def test_status_and_the_rest_are_written_apart(site: Site) -> None:
    client = site.client
    obj = await client.create(Widget(metadata=ObjectMeta(name="w", namespace=site.namespace), spec=WidgetSpec()))
    base = client.snapshot(obj)
    obj.status.ready = 4
    obj.spec.size = 9
    stored = await client.status.patch_from(base, obj)
    assert stored is not None
    assert (stored.status.ready, stored.spec.size, stored.metadata.generation) == (4, 1, 1)
    refresh_metadata(obj, stored)
    stored = await client.patch_from(base, obj)
    assert stored is not None
    assert (stored.status.ready, stored.spec.size, stored.metadata.generation) == (4, 9, 2)
    stored.status.ready = 5
    stored = await client.status.replace(stored)
    assert stored.status.ready == 5
    stored = await client.status.patch(Widget, "w", MergePatch({"status": {"ready": 6}}), namespace=site.namespace)
    assert stored.status.ready == 6
    again = client.snapshot(stored)
    assert await client.patch_from(again, stored) is None
    assert await client.status.patch_from(again, stored) is None


async def test_o04_two_programs_change_finalizers_and_both_changes_stand(site: Site) -> None:
    client = site.client
    obj = a_widget(site)
    obj.metadata.finalizers = ["a/ours"]
    mine = await client.create(obj)
    base = client.snapshot(mine)
    await client.patch(
        StoredWidget,
        "w",
        JsonPatch([{"op": "add", "path": "/metadata/finalizers/-", "value": "b/theirs"}]),
        namespace=site.namespace,
    )
    mine.metadata.finalizers = []
    with pytest.raises(ConflictError):
        await client.patch_from(base, mine)
    mine = await client.get(StoredWidget, "w", namespace=site.namespace)
    base = client.snapshot(mine)
    mine.metadata.finalizers = [one for one in mine.metadata.finalizers or () if one != "a/ours"]
    stored = await client.patch_from(base, mine)
    assert stored is not None
    assert stored.metadata.finalizers == ["b/theirs"]


def a_template(site: Site, *, cpu: str = "1000m") -> PodTemplate:
    """A kind with everything that a pod has, which no controller touches."""
    container = Container(
        name="c",
        image="i",
        ports=[ContainerPort(containerPort=80)],
        resources=ResourceRequirements(requests={"cpu": cpu, "memory": "1024Mi"}),
        readinessProbe=Probe(httpGet=HTTPGetAction(port="http")),
    )
    return PodTemplate(
        metadata=ObjectMeta(name="t", namespace=site.namespace),
        template=PodTemplateSpec(metadata=ObjectMeta(labels={"a": "b"}), spec=PodSpec(containers=[container])),
    )


def container_of(obj: PodTemplate) -> Container:
    assert obj.template is not None
    assert obj.template.spec is not None
    (container,) = obj.template.spec.containers
    return container


async def test_o01_defaults_of_the_server_are_no_difference(site: Site) -> None:
    created = await site.client.create(a_template(site))
    version = metadata_of(created).resourceVersion
    base = site.client.snapshot(created)
    assert container_of(created).terminationMessagePath == "/dev/termination-log", "the server has defaults"
    assert await site.client.patch_from(base, created) is None
    assert metadata_of(await site.client.replace(created)).resourceVersion == version
    container_of(created).image = "j"
    written = await site.client.patch_from(base, created)
    assert written is not None
    assert container_of(written).image == "j"
    service = await site.client.create(
        Service(metadata=ObjectMeta(name="s", namespace=site.namespace), spec=ServiceSpec(ports=[ServicePort(port=80)]))
    )
    again = await site.client.replace(service)
    assert metadata_of(again).resourceVersion == metadata_of(service).resourceVersion


async def test_apply_owns_what_it_sets_and_takes_nothing_by_force_unless_told(site: Site) -> None:
    client = site.client
    obj = config_map(site, "c", k="1")
    stored = await client.apply(obj, field_manager="one")
    assert [entry.manager for entry in metadata_of(stored).managedFields or ()] == ["one"]
    with pytest.raises(ConflictError, match="one"):
        await client.apply(config_map(site, "c", k="2"), field_manager="two")
    stored = await client.apply(config_map(site, "c", k="2"), field_manager="two", force=True)
    assert data_of(stored) == {"k": "2"}
    again = await client.apply(stored, field_manager="two", force=True)
    assert data_of(again) == {"k": "2"}, "what was read can be applied: managedFields are left out"


async def test_a_custom_resource_and_its_status_can_be_applied(site: Site) -> None:
    client = site.client
    wanted = Widget(metadata=ObjectMeta(name="w", namespace=site.namespace), spec=WidgetSpec(size=4))
    await client.apply(wanted)
    wanted.status = WidgetStatus(ready=2)
    stored = await client.status.apply(wanted)
    assert (stored.spec.size, stored.status.ready) == (4, 2)


async def test_o06_another_spelling_of_a_quantity_is_no_change(site: Site) -> None:
    created = await site.client.create(a_template(site))
    resources = container_of(created).resources
    assert resources is not None
    spelt: Mapping[str, Json] = msgspec.to_builtins(resources, str_keys=True)["requests"]
    assert spelt == {"cpu": "1", "memory": "1Gi"}, "the server has its own spelling"
    version = metadata_of(created).resourceVersion
    base = site.client.snapshot(created)
    resources.requests = {"cpu": "1000m", "memory": "1024Mi"}
    written = await site.client.patch_from(base, created)
    assert written is None or metadata_of(written).resourceVersion == version
    assert metadata_of(await site.client.replace(created)).resourceVersion == version


async def test_patches_of_every_kind(site: Site) -> None:
    client = site.client
    await client.create(config_map(site, "c", a="1", b="2"))
    await client.create(a_widget(site))
    stored = await client.patch(ConfigMap, "c", MergePatch({"data": {"a": None}}), namespace=site.namespace)
    assert data_of(stored) == {"b": "2"}
    stored = await client.patch(
        ConfigMap, "c", JsonPatch([{"op": "test", "path": "/data/b", "value": "2"}]), namespace=site.namespace
    )
    stored = await client.patch(ConfigMap, "c", StrategicMergePatch({"data": {"c": "3"}}), namespace=site.namespace)
    assert data_of(stored) == {"b": "2", "c": "3"}
    with pytest.raises(UnsupportedMediaTypeError):
        await client.patch(Widget, "w", StrategicMergePatch({"spec": {"size": 2}}), namespace=site.namespace)


async def test_a_resource_version_on_create_is_refused_not_hidden(site: Site) -> None:
    client = site.client
    stored = await client.create(config_map(site, "c"))
    metadata_of(stored).name = "d"
    # Kube-apiserver says 400 for some kinds and 500 for others.
    with pytest.raises(ApiStatusError, match="resourceVersion should not be set"):
        await client.create(stored)
