"""One life, lived by objects of all four families of classes, over every transport and on both servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from lightkube.core.resource import ApiInfo, NamespacedResourceG, ResourceDef
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap

from conformance.client.conftest import Site
from conformance.client.widgets import FAMILIES, Family
from opsdk.errors import AlreadyExistsError, ConflictError, InvalidError, NotFoundError
from opsdk.models import metadata_of, resource_of, view_of
from opsdk.protocols import Added, Deleted, Modified
from opsdk.types import Json, MergePatch, Preconditions

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("family", FAMILIES, ids=str)
async def test_an_object_of_any_family_goes_through_every_verb(site: Site, family: Family[Any]) -> None:
    client, kind, namespace = site.client, family.kind, site.namespace
    assert await client.find(kind, "w", namespace=namespace) is None
    start = await client.list(kind, namespace=namespace)

    created = await client.create(family.make("w", namespace, 2))
    assert type(created) is kind
    assert family.size(created) == 2
    with pytest.raises(AlreadyExistsError):
        await client.create(family.make("w", namespace, 2))
    wrong = family.make("v", namespace, 1)
    family.grow(wrong, -1)
    with pytest.raises(InvalidError):
        await client.create(wrong)

    read = await client.get(kind, "w", namespace=namespace)
    family.grow(read, 3)
    replaced = await client.replace(read)
    assert family.size(replaced) == 3
    with pytest.raises(ConflictError):
        await client.replace(created)

    base = client.snapshot(replaced)
    assert await client.patch_from(base, replaced) is None
    family.grow(replaced, 4)
    patched = await client.patch_from(base, replaced)
    assert patched is not None
    assert family.size(patched) == 4
    patched = await client.patch(kind, "w", MergePatch({"spec": {"size": 5}}), namespace=namespace)
    assert family.size(patched) == 5

    base = client.snapshot(patched)
    family.report(patched, 1)
    assert family.ready(await client.status.patch_from(base, patched)) == 1
    patched = await client.get(kind, "w", namespace=namespace)
    family.report(patched, 2)
    assert family.ready(await client.status.replace(patched)) == 2
    body = MergePatch({"status": {"ready": 3}})
    assert family.ready(await client.status.patch(kind, "w", body, namespace=namespace)) == 3

    applied = await client.apply(family.make("w", namespace, 6), force=True)
    assert family.size(applied) == 6
    family.report(applied, 4)
    assert family.ready(await client.status.apply(applied, force=True)) == 4
    assert family.size(await client.apply(family.make("x", namespace, 7))) == 7

    found = await client.list(kind, namespace=namespace)
    assert [(type(one), metadata_of(one).name, family.size(one)) for one in found] == [(kind, "w", 6), (kind, "x", 7)]
    assert [family.size(one) async for one in client.stream(kind, namespace=namespace, page_size=1)] == [6, 7]

    uid = view_of(applied).uid
    await client.delete(kind, "w", namespace=namespace, preconditions=Preconditions(uid=uid))
    await client.delete_collection(kind, namespace=namespace)
    with pytest.raises(NotFoundError):
        await client.get(kind, "w", namespace=namespace)

    async with client.watch(kind, namespace=namespace, resource_version=start.resource_version) as events:
        seen: list[tuple[str, int]] = []
        while len([one for one in seen if one[0] == "Deleted"]) < 2:
            event = await anext(events)
            assert isinstance(event, Added | Modified | Deleted)
            assert type(event.object) is kind
            seen.append((type(event).__name__, family.size(event.object)))
    assert seen[0] == ("Added", 2)
    assert [size for what, size in seen if what == "Added"] == [2, 7]
    assert [size for what, size in seen if what == "Deleted"] == [6, 7]


# Built-in kinds, through a program's own narrower classes


class NarrowContainer(msgspec.Struct, omit_defaults=True):
    name: str
    image: str | None = None


class NarrowPod(msgspec.Struct, omit_defaults=True):
    containers: list[NarrowContainer]


class NarrowTemplate(msgspec.Struct, omit_defaults=True):
    spec: NarrowPod | None = None


class NarrowSpec(msgspec.Struct, omit_defaults=True):
    template: NarrowTemplate
    replicas: int | None = None


class NarrowDeployment(NamespacedResourceG, msgspec.Struct, omit_defaults=True):
    """A Deployment of somebody who only cares about images."""

    _api_info = ApiInfo(
        resource=ResourceDef("apps", "v1", "Deployment"), plural="deployments", verbs=["get", "put", "patch", "list"]
    )

    apiVersion: str | None = None  # noqa: N815 - Kubernetes' own name
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: NarrowSpec | None = None


class NarrowConfigMap(NamespacedResourceG, msgspec.Struct, omit_defaults=True):
    """A ConfigMap of somebody who does not look into it."""

    _api_info = ApiInfo(
        resource=ResourceDef("", "v1", "ConfigMap"), plural="configmaps", verbs=["get", "put", "patch", "list"]
    )

    apiVersion: str | None = None  # noqa: N815 - Kubernetes' own name
    kind: str | None = None
    metadata: ObjectMeta | None = None
    immutable: bool | None = None


def deployment(namespace: str) -> Json:
    """With much that `NarrowDeployment` does not know, in list items too."""
    probe: Json = {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 7}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": namespace, "annotations": {"a": "1"}},
        "spec": {
            "replicas": 0,
            "paused": True,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {
                    "containers": [
                        {"name": "web", "image": "one", "env": [{"name": "A", "value": "1"}], "readinessProbe": probe},
                        {"name": "log", "image": "two", "resources": {"limits": {"cpu": "1"}}},
                    ],
                    "tolerations": [{"key": "k", "operator": "Exists"}],
                },
            },
        },
    }


async def document(site: Site, kind: type[Deployment | ConfigMap], name: str) -> dict[str, Any]:
    """As the server has it, without what every write changes."""
    path = resource_of(kind).path(namespace=site.namespace, name=name)
    found: dict[str, Any] = msgspec.json.decode(await site.client.raw.request("GET", path))
    for changing in ("resourceVersion", "generation", "managedFields"):
        found["metadata"].pop(changing, None)
    found.pop("status", None)  # the controllers' own
    found["metadata"].get("annotations", {}).pop("deployment.kubernetes.io/revision", None)
    return found


@pytest.mark.parametrize("way", ["replace", "patch_from"])
@pytest.mark.parametrize("read", ["get", "list"])
async def test_o03_a_deployment_written_through_a_narrow_struct_keeps_everything_else(
    site: Site, way: str, read: str
) -> None:
    path = resource_of(Deployment).path(namespace=site.namespace)
    await site.client.raw.request("POST", path, body=msgspec.json.encode(deployment(site.namespace)))
    before = await document(site, Deployment, "d")
    for _ in range(50):  # the deployment controller writes too, a few times
        try:
            if read == "get":
                obj = await site.client.get(NarrowDeployment, "d", namespace=site.namespace)
            else:
                (obj,) = await site.client.list(NarrowDeployment, namespace=site.namespace)
            base = site.client.snapshot(obj)
            containers(obj)[1].image = "three"
            if way == "replace":
                await site.client.replace(obj)
            else:
                assert await site.client.patch_from(base, obj) is not None
            break
        except ConflictError:
            continue
    after = await document(site, Deployment, "d")
    before["spec"]["template"]["spec"]["containers"][1]["image"] = "three"
    assert after == before


def containers(obj: NarrowDeployment) -> Sequence[NarrowContainer]:
    assert obj.spec is not None
    assert obj.spec.template.spec is not None
    return obj.spec.template.spec.containers


@pytest.mark.parametrize("way", ["replace", "patch_from"])
async def test_o03_a_config_map_written_through_a_struct_without_data_keeps_its_data(site: Site, way: str) -> None:
    data: Mapping[str, str] = {"a": "1", "b": "é\u2028"}
    name = ObjectMeta(name="c", namespace=site.namespace)
    await site.client.create(ConfigMap(metadata=name, data=dict(data), binaryData={"z": "AAE="}))
    before = await document(site, ConfigMap, "c")
    obj = await site.client.get(NarrowConfigMap, "c", namespace=site.namespace)
    base = site.client.snapshot(obj)
    obj.immutable = True
    metadata_of(obj).annotations = {"x": "y"}
    if way == "replace":
        await site.client.replace(obj)
    else:
        assert await site.client.patch_from(base, obj) is not None
    after = await document(site, ConfigMap, "c")
    before["metadata"]["annotations"] = {"x": "y"}
    assert after == {**before, "immutable": True}
