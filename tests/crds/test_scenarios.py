"""M01 to M03: models and CRDs through the typed client, on both servers."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest
from lightkube.models.meta_v1 import ObjectMeta

from crds.harness import Body, Server, kind_of, new_kind_name
from opsdk.client import install_crds
from opsdk.client.finalizers import add_finalizers, remove_finalizers
from opsdk.models import CustomResource, IntOrString, MachineStatus, Model, Time, resource_of
from opsdk.types import MergePatch

pytestmark = pytest.mark.anyio


class Color(StrEnum):
    RED = "red"
    BLUE = "blue"


class Part(Model):
    name: str
    weight_limit: int | None = None


class Everything(Model):
    optional: str | None = None
    nested: Part
    maybe_nested: Part | None = None
    parts: list[Part] = []  # noqa: RUF012 - pydantic copies it
    color: Color = Color.RED
    port: IntOrString = 80
    labels: dict[str, str] = {}  # noqa: RUF012 - pydantic copies it
    by_name: dict[str, Part] = {}  # noqa: RUF012 - pydantic copies it
    children: list[Everything] = []  # noqa: RUF012 - pydantic copies it
    anything: Any = None
    since: Time | None = None


async def test_m01_a_model_with_everything_is_accepted_as_structural_and_comes_back(server: Server) -> None:
    kind = kind_of(Everything, MachineStatus)
    await server.install(kind)
    leaf = Everything(nested=Part(name="leaf"), port="http")
    spec = Everything(
        nested=Part(name="n", weight_limit=3),
        parts=[Part(name="a"), Part(name="b", weight_limit=0)],
        color=Color.BLUE,
        labels={"a/b.c": "d"},
        by_name={"x": Part(name="y")},
        children=[leaf, Everything(nested=Part(name="branch"), children=[leaf])],
        anything=[1, {"two": [3]}],
    )
    created = await server.client.create(kind(metadata=ObjectMeta(name="tried"), spec=spec))
    assert created.spec == spec
    assert (await server.client.get(kind, "tried")).spec == spec
    (listed,) = await server.client.list(kind)
    assert listed.spec == spec
    await server.forget(kind)


class Before(Model):
    size: int = 1


class After(Before):
    mode: str = "fast"
    note: str | None = None
    tags: list[str] = []  # noqa: RUF012 - pydantic copies it
    nested: Before = Before(size=7)


async def test_m02_stored_objects_get_a_new_fields_default_without_a_write(server: Server) -> None:
    name = new_kind_name()
    old, new = kind_of(Before, MachineStatus, kind=name), kind_of(After, MachineStatus, kind=name)
    await install_crds(server.client, old)
    versions: dict[str, str] = {}
    for index in range(3):
        created = await server.client.create(old(metadata=ObjectMeta(name=f"o{index}"), spec=Before(size=index)))
        versions[f"o{index}"] = str(created.metadata.resourceVersion)

    async def reconcile(kind: type[CustomResource[Any, Any]], wanted: type[Before]) -> None:
        for found in await server.client.list(kind):
            base = server.client.snapshot(found)
            assert found.spec == wanted(size=int(str(found.metadata.name)[1:]))
            assert await server.client.patch_from(base, found) is None
            assert await server.client.status.patch_from(base, found) is None

    await reconcile(new, After)  # the operator is updated first
    (installed,) = await install_crds(server.client, new)
    assert installed.losses == ()
    await reconcile(new, After)
    after = {str(found.metadata.name): str(found.metadata.resourceVersion) for found in await server.client.list(new)}
    assert after == versions
    await server.forget(new)


class Known(Model):
    size: int = 1
    parts: list[Part] = []  # noqa: RUF012 - pydantic copies it
    nested: Before = Before()


class WiderPart(Part):
    color: str = ""


class WiderBefore(Before):
    color: str = ""


class Wider(Model):
    size: int = 1
    parts: list[WiderPart] = []  # noqa: RUF012 - pydantic copies it
    nested: WiderBefore = WiderBefore()
    color: str = ""


class WiderStatus(MachineStatus):
    color: str = ""
    nested: WiderBefore | None = None


async def test_m03_fields_that_the_model_does_not_know_survive_every_write(server: Server) -> None:
    name = new_kind_name()
    wider, known = kind_of(Wider, WiderStatus, kind=name), kind_of(Known, MachineStatus, kind=name)
    client = server.client
    await server.install(wider)
    spec = {
        "size": 1,
        "color": "s",
        "parts": [{"name": "a", "color": "a"}, {"name": "b", "color": "b"}],
        "nested": {"size": 1, "color": "n"},
    }
    status = {"state": "new", "color": "t", "nested": {"size": 1, "color": "u"}}
    await server.apply(wider, {"spec": spec})
    await server.apply(wider, {"status": status}, subresource="status")

    def colors(document: Body) -> list[object]:
        spec, status = document["spec"], document["status"]
        parts = [part.get("color") for part in spec["parts"]]
        return [spec["color"], *parts, spec["nested"]["color"], status["color"], status["nested"]["color"]]

    async def check() -> None:
        assert colors(await server.get(wider)) == ["s", "a", "b", "n", "t", "u"]

    obj = await client.get(known, "tried")
    base = client.snapshot(obj)
    obj.spec.parts[1].weight_limit = 5
    obj.spec.nested.size = 2
    patched = await client.patch_from(base, obj)
    assert patched is not None
    await check()
    patched.spec.size = 3
    replaced = await client.replace(patched)
    await check()
    base = client.snapshot(replaced)
    replaced.status.state = "running"
    assert await client.status.patch_from(base, replaced) is not None
    await check()
    obj = await client.get(known, "tried")
    obj.status.observed_generation = 3
    await client.status.replace(obj)
    await check()
    await add_finalizers(client, obj, "crds.example.com/hold")
    await check()
    await remove_finalizers(client, obj, "crds.example.com/hold")
    await check()
    await client.patch(known, "tried", MergePatch({"spec": {"size": 4}}))
    await check()
    stored = await server.get(wider)
    assert stored["spec"]["size"] == 4
    assert stored["spec"]["parts"][1]["weightLimit"] == 5
    assert stored["status"]["state"] == "running"
    assert resource_of(known).kind == name
    await server.forget(wider)
