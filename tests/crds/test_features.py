"""What a CRD has besides its schema's values: rules, immutable fields, defaults, columns, subresources, versions."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from lightkube.models.core_v1 import PodTemplateSpec
from lightkube.models.meta_v1 import ObjectMeta
from pydantic import Field

from crds.harness import GROUP, Body, Server, eventually, kind_of, new_kind_name
from opsdk.errors import BadRequestError, InvalidError, NotFoundError
from opsdk.models import (
    Cel,
    EmbeddedResource,
    Immutable,
    K8s,
    ListAtomic,
    ListMap,
    ListSet,
    MachineStatus,
    MapAtomic,
    Model,
    Nullable,
    PreserveUnknown,
    PrintColumn,
    Scale,
    codec_of,
    resource_of,
)

pytestmark = pytest.mark.anyio


# rules


class Ruled(Model, rules=[Cel("self.low <= self.high", message="low must not be above high", field_path=".low")]):
    low: int = 0
    high: int = 1
    grows: Annotated[int, Cel("self >= oldSelf", message="grows only")] = 0
    told: Annotated[int, Cel("self < 5", message_expression="self > 6 ? 'not seven' : 'not five'")] = 0
    reasoned: Annotated[int, Cel("self < 5", reason="FieldValueForbidden")] = 0
    first: Annotated[int, Cel("!oldSelf.hasValue() ? self == 0 : true", optional_old_self=True)] = 0


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ({}, {"low": 2}, "spec.low: Invalid value"),
        ({}, {"low": 2}, "low must not be above high"),
        ({"grows": 3}, {"grows": 2}, "spec.grows: Invalid value: 2: grows only"),
        ({}, {"told": 7}, "not seven"),
        ({}, {"reasoned": 7}, "spec.reasoned: Forbidden"),
        (None, {"first": 7}, "spec.first: Invalid value"),
    ],
)
async def test_rules_are_the_servers_with_their_messages_reasons_and_places(
    server: Server, before: Body | None, after: Body, told: str
) -> None:
    kind = kind_of(Ruled)
    await server.install(kind)
    if before is not None:
        await server.apply(kind, {"spec": before})
    with pytest.raises(InvalidError) as caught:
        await server.apply(kind, {"spec": after})
    assert told in caught.value.server_message
    await server.forget(kind)


async def test_transition_rules_ask_nothing_of_a_new_object(server: Server) -> None:
    kind = kind_of(Ruled)
    await server.install(kind)
    stored = await server.apply(kind, {"spec": {"grows": 3}})
    assert stored["spec"]["grows"] == 3
    stored = await server.apply(kind, {"spec": {"grows": 4, "first": 7}})
    assert stored["spec"]["first"] == 7
    await server.forget(kind)


async def test_rules_of_the_whole_object_may_read_its_name(server: Server) -> None:
    kind = kind_of(Ruled, rules=[Cel("self.metadata.name != 'tried'", message="that name is taken")])
    await server.install(kind)
    with pytest.raises(InvalidError, match="that name is taken"):
        await server.apply(kind, {"spec": {}})
    await server.apply(kind, {"spec": {}}, name="another")
    await server.forget(kind)


# immutable fields


class Inner(Model):
    name: str
    zone: Annotated[str, Immutable()]


class Fixed(Model):
    size: int = 1
    always: Annotated[str, Immutable()]
    defaulted: Annotated[str, Immutable()] = "x"
    optional: Annotated[str | None, Immutable()] = None
    later: Annotated[str | None, Immutable(once_set=True)] = None
    whole: Annotated[dict[str, int], Immutable()] = {}  # noqa: RUF012 - pydantic copies it
    parts: Annotated[list[Inner], ListMap("name"), Field(max_length=10)] = []  # noqa: RUF012 - pydantic copies it


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ({}, {"always": "b"}, 'spec.always: Invalid value: "b": cannot be changed'),
        ({}, {"defaulted": "y"}, "spec.defaulted"),
        ({}, {"optional": "a"}, "optional cannot be added or removed"),
        ({"optional": "a"}, {"optional": "b"}, "spec.optional"),
        ({"optional": "a"}, {}, "optional cannot be added or removed"),
        ({"later": "a"}, {}, "later cannot be removed"),
        ({"later": "a"}, {"later": "b"}, "spec.later"),
        ({"whole": {"a": 1}}, {"whole": {"a": 2}}, "spec.whole"),
        ({"whole": {"a": 1}}, {"whole": {"a": 1, "b": 1}}, "spec.whole"),
        ({"parts": [{"name": "p", "zone": "a"}]}, {"parts": [{"name": "p", "zone": "b"}]}, "spec.parts[0].zone"),
    ],
)
async def test_immutable_fields_cannot_be_changed(server: Server, before: Body, after: Body, told: str) -> None:
    kind = kind_of(Fixed)
    await server.install(kind)
    await server.apply(kind, {"spec": {"always": "a", **before}})
    with pytest.raises(InvalidError) as caught:
        await server.apply(kind, {"spec": {"always": "a", **after}})
    assert told in caught.value.server_message
    await server.forget(kind)


async def test_an_immutable_field_lets_the_others_change(server: Server) -> None:
    kind = kind_of(Fixed)
    await server.install(kind)
    given: Body = {"always": "a", "optional": "o", "whole": {"a": 1}, "parts": [{"name": "p", "zone": "z"}]}
    await server.apply(kind, {"spec": given})
    stored = await server.apply(
        kind,
        {"spec": {**given, "size": 2, "later": "now", "parts": [{"name": "q", "zone": "y"}, *given["parts"]]}},
    )
    assert stored["spec"]["size"] == 2
    assert stored["spec"]["later"] == "now"
    await server.forget(kind)


# defaults


class Limits(Model):
    cpu: int = 2
    burst: bool = False
    note: str | None = None
    tags: list[str] = []  # noqa: RUF012 - pydantic copies it


class Outer(Model):
    inner: Limits = Limits()
    maybe: Limits | None = None
    other: Limits = Limits(burst=True, tags=["a"])


class Needs(Model):
    tags: list[str]
    more: list[str] = ["x"]  # noqa: RUF012 - pydantic copies it


class Defaulted(Model):
    size: int = 3
    outer: Outer = Outer()
    loud: Outer = Outer(maybe=Limits(cpu=5))
    made: Limits = Field(default_factory=lambda: Limits(cpu=7))
    listed: list[Limits] = [Limits(), Limits(cpu=9)]  # noqa: RUF012 - pydantic copies it
    by_name: dict[str, Limits] = {"a": Limits(note="n")}  # noqa: RUF012 - pydantic copies it
    needs: Needs = Needs(tags=[], more=[])
    kept: dict[str, int] = {}  # noqa: RUF012 - pydantic copies it
    nothing: Annotated[int | None, Nullable()] = None


async def test_what_the_server_fills_in_is_what_the_model_says(server: Server) -> None:
    kind = kind_of(Defaulted)
    await server.install(kind)
    stored = await server.apply(kind, {"spec": {}})
    read = codec_of(kind).decode(server.encoded(stored))
    assert read.spec == Defaulted()
    assert stored["spec"]["outer"] == {
        "inner": {"cpu": 2, "burst": False},
        "other": {"cpu": 2, "burst": True, "tags": ["a"]},
    }
    assert stored["spec"]["loud"]["maybe"] == {"cpu": 5, "burst": False}
    assert stored["spec"]["made"] == {"cpu": 7, "burst": False}
    assert stored["spec"]["needs"] == {"tags": [], "more": []}
    again = await server.apply(kind, {"spec": {"outer": {"inner": {"note": "x"}}}})
    assert codec_of(kind).decode(server.encoded(again)).spec == Defaulted(outer=Outer(inner=Limits(note="x")))
    await server.forget(kind)


async def test_nothing_in_status_is_filled_in(server: Server) -> None:
    kind = kind_of(Limits, Limits)
    await server.install(kind)
    assert "status" not in await server.apply(kind, {"spec": {}})
    stored = await server.apply(kind, {"status": {"note": "x"}}, subresource="status")
    assert stored["status"] == {"note": "x"}
    await server.forget(kind)


# shapes of lists and maps


class Merged(Model):
    by_name: Annotated[list[Limits2], ListMap("name")] = []  # noqa: RUF012 - pydantic copies it
    tags: Annotated[list[str], ListSet()] = []  # noqa: RUF012 - pydantic copies it
    order: Annotated[list[str], ListAtomic()] = []  # noqa: RUF012 - pydantic copies it
    whole: Annotated[Limits, MapAtomic()] = Limits()


class Limits2(Model):
    name: str
    size: int = 1


Merged.model_rebuild()


async def test_applies_of_two_managers_merge_as_the_markers_say(server: Server) -> None:
    kind = kind_of(Merged)
    await server.install(kind)
    await server.apply(
        kind, {"spec": {"byName": [{"name": "a"}], "tags": ["a"], "order": ["a"], "whole": {"cpu": 1}}}, manager="one"
    )
    stored = await server.apply(
        kind,
        {"spec": {"byName": [{"name": "b"}], "tags": ["b"], "order": ["b"], "whole": {"note": "x"}}},
        manager="two",
    )
    assert stored["spec"]["byName"] == [{"name": "a", "size": 1}, {"name": "b", "size": 1}]
    assert stored["spec"]["tags"] == ["a", "b"]
    assert stored["spec"]["order"] == ["b"]
    assert stored["spec"]["whole"] == {"burst": False, "cpu": 2, "note": "x"}
    await server.forget(kind)


async def test_an_apply_keeps_every_character(server: Server) -> None:
    """A real server reads it as YAML, where some characters need an escape and others end the line."""
    kind = kind_of(Limits)
    await server.install(kind)
    text = "".join(
        map(chr, (*range(0x20), 0x7F, 0x80, 0x85, 0x9F, 0xA0, 0x2028, 0x2029, 0xFEFF, 0xFFFE, 0xFFFF, 0x1F600))
    )
    applied = await server.client.apply(kind(metadata=ObjectMeta(name="tried"), spec=Limits(note=text)))
    assert applied.spec.note == text
    await server.forget(kind)


# what is kept and what is pruned


class Kept(Model):
    closed: Limits = Limits()
    open: Annotated[Limits, PreserveUnknown()] = Limits()
    anything: Any = None
    embedded: Annotated[dict[str, Any] | None, EmbeddedResource()] = None
    null: Annotated[str | None, Nullable()] = None
    optional: str | None = None


async def test_unknown_fields_are_pruned_but_where_the_model_says_they_are_kept(server: Server) -> None:
    kind = kind_of(Kept)
    await server.install(kind)
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}}
    given = {"closed": {"x": 1}, "open": {"x": 1}, "anything": {"x": [1]}, "embedded": config, "null": None, "x": 1}
    await server.apply(kind, {"spec": {}})
    stored = await server.replace(kind, {"spec": {**given, "optional": None}})
    assert stored["spec"] == {
        "closed": {"cpu": 2, "burst": False},
        "open": {"cpu": 2, "burst": False, "x": 1},
        "anything": {"x": [1]},
        "embedded": config,
        "null": None,
    }
    await server.forget(kind)


async def test_a_struct_of_lightkube_is_checked_and_pruned_by_its_own_schema(server: Server) -> None:
    class Spec(Model):
        template: K8s[PodTemplateSpec]

    kind = kind_of(Spec)
    await server.install(kind)
    container: Body = {
        "name": "c",
        "image": "i",
        "resources": {"limits": {"cpu": "1"}},
        "ports": [{"containerPort": 80}],
    }
    pod: Body = {"containers": [container], "nodeSelector": {"a": "b"}, "volumes": [{"name": "v", "emptyDir": {}}]}
    template: Body = {"metadata": {"labels": {"a": "b"}}, "spec": pod}
    await server.apply(kind, {"spec": {"template": template}})
    stored = await server.replace(kind, {"spec": {"template": {**template, "nonsense": 1}}})
    assert stored["spec"]["template"] == template
    with pytest.raises(InvalidError, match=r"spec\.template\.spec\.containers\[0\]\.name: Required"):
        await server.try_to_create(kind, {"template": {"spec": {"containers": [{"image": "i"}]}}})
    await server.forget(kind)


# names, columns, subresources


class Counted(Model):
    replicas: int = 1
    tier: str = "web"


class CountedStatus(MachineStatus):
    replicas: int = 0
    selector: str = ""


async def test_names_columns_status_and_scale_are_served(server: Server) -> None:
    name = new_kind_name()
    short = f"s{name[1:8].lower()}"
    kind = kind_of(
        Counted,
        CountedStatus,
        kind=name,
        short_names=[short],
        categories=["all"],
        scale=Scale(label_selector=".status.selector"),
        selectable_fields=[".spec.tier"],
        print_columns=[
            PrintColumn(name="Tier", json_path=".spec.tier", description="Which."),
            PrintColumn(name="Wanted", json_path=".spec.replicas", type="integer", priority=1),
            PrintColumn(name="Ready", json_path='.status.conditions[?(@.type=="Ready")].status'),
            PrintColumn(name="Age", json_path=".metadata.creationTimestamp", type="date"),
        ],
    )
    info = resource_of(kind)
    await server.install(kind)
    await server.apply(kind, {"spec": {}, "status": {"replicas": 7}})
    assert (await server.get(kind)).get("status") is None, "the main endpoint takes no status"
    await server.apply(kind, {"status": {"replicas": 3, "selector": "a=b"}}, subresource="status")
    scale = await server.read(info.path(name="tried", subresource="scale"))
    assert scale["spec"] == {"replicas": 1}
    assert scale["status"] == {"replicas": 3, "selector": "a=b"}
    await server.merge(info.path(name="tried", subresource="scale"), {"spec": {"replicas": 5}})
    assert (await server.get(kind))["spec"]["replicas"] == 5
    table = await server.read(info.path(), accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Tier", "Wanted", "Ready", "Age"]
    assert table["columnDefinitions"][1]["description"] == "Which."
    assert table["rows"][0]["cells"][:3] == ["tried", "web", 5]
    chosen = await server.read(info.path(), query=[("fieldSelector", "spec.tier=web")])
    assert len(chosen["items"]) == 1
    with pytest.raises(BadRequestError):
        await server.read(info.path(), query=[("fieldSelector", "spec.replicas=1")])
    entries: list[Body] = []

    async def is_discovered() -> bool:  # later than it is served
        discovery = await server.read(f"/apis/{GROUP}/v1")
        entries[:] = [each for each in discovery["resources"] if each["name"] == info.plural]
        return bool(entries)

    await eventually(is_discovered)
    (entry,) = entries
    assert entry["shortNames"] == [short]
    assert entry["categories"] == ["all"]
    assert entry["singularName"] == name.lower()
    await server.forget(kind)


async def test_a_kind_without_status_has_no_such_subresource(server: Server) -> None:
    kind = kind_of(Counted)
    await server.install(kind)
    await server.apply(kind, {"spec": {}})
    with pytest.raises(NotFoundError):
        await server.apply(kind, {"status": {}}, subresource="status")
    await server.forget(kind)


# versions


async def test_versions_are_served_and_deprecated_as_their_classes_say(server: Server) -> None:
    class Newer(Counted):
        color: str = "red"

    name = new_kind_name()
    old = kind_of(Counted, kind=name, version="v1beta1", storage=False, deprecated="use v1")
    gone = kind_of(Counted, kind=name, version="v1alpha1", storage=False, served=False)
    new = kind_of(Newer, kind=name, version="v1", storage=True)
    await server.install(old, new, gone)
    stored = await server.apply(old, {"spec": {"replicas": 2}})
    assert stored["apiVersion"] == f"{GROUP}/v1beta1"
    assert stored["spec"] == {"replicas": 2, "tier": "web"}
    assert (await server.get(new))["spec"] == {"replicas": 2, "tier": "web", "color": "red"}
    with pytest.raises(NotFoundError):
        await server.get(gone)
    assert "use v1" in await server.warning(resource_of(old).path(name="tried"))
    assert await server.warning(resource_of(new).path(name="tried")) == ""
    await server.forget(new)
