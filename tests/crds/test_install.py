"""Installing CRDs: created, changed, left alone; and refused where stored objects would lose something."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal, final

import pytest
from pydantic import Field, create_model

from crds.harness import CRDS, GROUP, Server, eventually, kind_of, new_kind_name
from opsdk.client import ApiClient, HttpRequest, HttpResponse, HttpStream, Transport, install_crds
from opsdk.errors import (
    ConflictError,
    CrdChangeError,
    CrdNotEstablishedError,
    InvalidError,
    LeadershipLostError,
    NotFoundError,
)
from opsdk.models import CustomResource, ListMap, Model, Nullable, PreserveUnknown, crd_manifest, resource_of
from opsdk.types import JsonObject

pytestmark = pytest.mark.anyio

Kind = type[CustomResource[Any, Any]]


class Spec(Model):
    size: int = 1


class Wider(Model):
    size: int = 2
    color: str | None = None


class Other(Model):
    color: str = "red"


def name_of_crd(kind: Kind) -> str:
    info = resource_of(kind)
    return f"{info.plural}.{info.group}"


def with_field(annotation: Any, default: Any = None) -> type[Model]:
    fields: dict[str, Any] = {"value": (annotation, default)}
    return create_model("Spec", __base__=Model, **fields)


async def test_a_new_kind_is_served_when_installing_returns(server: Server) -> None:
    kind = kind_of(Spec)
    (installed,) = await install_crds(server.client, kind)
    assert installed.created
    assert installed.changes == ()
    assert installed.name == name_of_crd(kind)
    assert (await server.apply(kind, {"spec": {}}))["spec"] == {"size": 1}
    await server.forget(kind)


async def test_installing_again_writes_nothing(server: Server) -> None:
    kind = kind_of(Spec)
    await install_crds(server.client, kind)
    before = await server.crd(name_of_crd(kind))
    (installed,) = await install_crds(server.client, kind)
    after = await server.crd(name_of_crd(kind))
    assert not installed.created
    assert installed.changes == ()
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    await server.forget(kind)


async def test_a_wider_schema_is_installed_and_its_difference_told(server: Server) -> None:
    name = new_kind_name()
    old, new = kind_of(Spec, kind=name), kind_of(Wider, kind=name)
    await install_crds(server.client, old)
    await server.apply(old, {"spec": {"size": 5}})
    (installed,) = await install_crds(server.client, new)
    assert len(installed.changes) == 2
    assert "size.default: 1 -> 2" in installed.changes[0]
    assert "color: (none) ->" in installed.changes[1]
    assert installed.losses == ()
    assert (await server.crd(installed.name))["spec"]["versions"][0]["schema"] == json.loads(
        json.dumps(crd_manifest(new)["spec"], default=str)
    )["versions"][0]["schema"]
    await server.forget(new)


async def test_a_change_that_loses_data_is_refused_with_the_difference_and_writes_nothing(server: Server) -> None:
    name = new_kind_name()
    old, new = kind_of(Spec, kind=name), kind_of(Other, kind=name)
    fine = kind_of(Spec)
    await install_crds(server.client, old)
    await server.apply(old, {"spec": {"size": 5}})
    before = await server.crd(name_of_crd(old))
    with pytest.raises(CrdChangeError) as caught:
        await install_crds(server.client, fine, new)
    text = str(caught.value)
    assert "version v1: spec.size: removed: values that objects have are dropped" in text
    assert "color: (none) ->" in text
    assert caught.value.losses == {
        name_of_crd(old): ("version v1: spec.size: removed: values that objects have are dropped",)
    }
    assert (await server.crd(name_of_crd(old)))["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    with pytest.raises(NotFoundError):
        await server.crd(name_of_crd(fine))
    await server.forget(old)


async def test_data_loss_can_be_allowed(server: Server) -> None:
    name = new_kind_name()
    old, new = kind_of(Spec, kind=name), kind_of(Other, kind=name)
    await install_crds(server.client, old)
    await server.apply(old, {"spec": {"size": 5}})
    (installed,) = await install_crds(server.client, new, allow_data_loss=True)
    assert installed.losses == ("version v1: spec.size: removed: values that objects have are dropped",)
    await server.forget(new)


async def test_without_objects_nothing_can_be_lost(server: Server) -> None:
    name = new_kind_name()
    old, new = kind_of(Spec, kind=name), kind_of(Other, kind=name)
    await install_crds(server.client, old)
    (installed,) = await install_crds(server.client, new)
    assert installed.losses == ()
    assert installed.changes
    await server.forget(new)


class Color(StrEnum):
    RED = "red"
    BLUE = "blue"


class Part(Model):
    name: str
    size: int = 1


class Smaller(Model):
    name: str


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (int, str, "spec.value: integer -> string"),
        (int | str, int, "spec.value: integer or string -> integer"),
        (float, int, "spec.value: number -> integer"),
        (Any, int, "spec.value: anything -> integer"),
        (Color, Literal["red"], "spec.value: no longer blue"),
        (str, Color, "spec.value: only red, blue from now on"),
        (int, Annotated[int, Field(ge=3)], "spec.value: minimum (none) -> 3"),
        (Annotated[int, Field(ge=1)], Annotated[int, Field(gt=1)], "spec.value: minimum 1 -> 1"),
        (Annotated[int, Field(le=9)], Annotated[int, Field(le=5)], "spec.value: maximum 9 -> 5"),
        (str, Annotated[str, Field(max_length=5)], "spec.value: maxLength (none) -> 5"),
        (str, Annotated[str, Field(pattern="^a")], "spec.value: pattern (none) -> ^a"),
        (list[Part], list[Smaller], "spec.value[].size: removed"),
        (dict[str, Part], dict[str, Smaller], "spec.value.*.size: removed"),
        (dict[str, int], Part, "spec.value: no longer a map"),
        (dict[str, Any], Part, "spec.value: no longer keeps fields that the schema does not name"),
        (Annotated[Part, PreserveUnknown()], Part, "spec.value: no longer keeps fields"),
        (list[Part], Annotated[list[Part], ListMap("name")], "spec.value: items are told apart by name now"),
        (list[str], set[str], "spec.value: items are told apart by value now"),
        (Annotated[str | None, Nullable()], str | None, "spec.value: no longer nullable"),
    ],
)
async def test_narrower_types_are_refused_by_the_name_of_the_field(
    server: Server, before: Any, after: Any, told: str
) -> None:
    name = new_kind_name()
    old = kind_of(with_field(before), kind=name)
    new = kind_of(with_field(after), kind=name)
    await install_crds(server.client, old)
    await server.apply(old, {"spec": {}})
    with pytest.raises(CrdChangeError) as caught:
        await install_crds(server.client, new)
    (losses,) = caught.value.losses.values()
    assert any(line.startswith(f"version v1: {told}") for line in losses), losses
    await server.forget(old)


async def test_a_field_that_becomes_required_is_refused_unless_it_has_a_default(server: Server) -> None:
    name = new_kind_name()
    old = kind_of(with_field(str | None), kind=name)
    await install_crds(server.client, old)
    await server.apply(old, {"spec": {}})
    with pytest.raises(CrdChangeError, match=r"spec\.value: required now"):
        await install_crds(server.client, kind_of(with_field(str, ...), kind=name))
    await install_crds(server.client, kind_of(with_field(str, "x"), kind=name))

    async def has_the_default() -> bool:  # a server that serves a kind already takes a moment to serve the new schema
        spec = (await server.get(old))["spec"]
        assert spec in ({}, {"value": "x"})
        return bool(spec)

    await eventually(has_the_default)
    await server.forget(old)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (int, int | str),
        (int, float),
        (int, Any),
        (Literal["red"], Color),
        (Annotated[int, Field(ge=3)], int),
        (Annotated[str, Field(max_length=5)], Annotated[str, Field(max_length=6)]),
        (Annotated[list[Part], ListMap("name")], list[Part]),
        (Part, Annotated[Part, PreserveUnknown()]),
        (Part, dict[str, Any]),
        (dict[str, int], dict[str, int | str]),
        (list[Smaller], list[Part]),
    ],
)
async def test_wider_types_are_no_loss(server: Server, before: Any, after: Any) -> None:
    name = new_kind_name()
    old = kind_of(with_field(before), kind=name)
    await install_crds(server.client, old)
    await server.apply(old, {"spec": {}})
    (installed,) = await install_crds(server.client, kind_of(with_field(after), kind=name))
    assert installed.changes
    await server.forget(old)


# versions


def versions(name: str, *given: tuple[str, type[Model], bool, bool]) -> list[Kind]:
    """Classes of one kind: version, spec, whether it is stored, whether it is served."""
    return [
        kind_of(spec, kind=name, version=version, storage=storage, served=served)
        for version, spec, storage, served in given
    ]


async def test_a_version_that_objects_may_be_stored_in_is_not_removed(server: Server) -> None:
    name = new_kind_name()
    await install_crds(server.client, *versions(name, ("v1beta1", Spec, True, True)))
    both = versions(name, ("v1beta1", Spec, False, True), ("v1", Spec, True, True))
    await install_crds(server.client, *both)
    await server.apply(both[1], {"spec": {}})
    with pytest.raises(CrdChangeError, match=r"version v1beta1: removed, and objects may be stored in it"):
        await install_crds(server.client, both[1])
    with pytest.raises(InvalidError, match="storedVersions"):
        await install_crds(server.client, both[1], allow_data_loss=True)
    # the way out: no longer served, still known
    await install_crds(server.client, *versions(name, ("v1beta1", Spec, False, False), ("v1", Spec, True, True)))
    await server.forget(*both)


async def test_a_new_storage_version_must_know_the_fields_of_the_old(server: Server) -> None:
    name = new_kind_name()
    old = versions(name, ("v1beta1", Spec, True, True))
    await install_crds(server.client, *old)
    await server.apply(old[0], {"spec": {"size": 3}})
    with pytest.raises(CrdChangeError, match=r"stored as v1beta1, read as v1: spec\.size: removed"):
        await install_crds(server.client, *versions(name, ("v1beta1", Spec, False, True), ("v1", Other, True, True)))
    new = versions(name, ("v1beta1", Spec, False, True), ("v1", Wider, True, True))
    await install_crds(server.client, *new)
    stored = await server.get(new[1])
    assert stored["apiVersion"] == f"{GROUP}/v1"
    assert stored["spec"] == {"size": 3}
    assert (await server.crd(name_of_crd(new[1])))["status"]["storedVersions"] == ["v1beta1", "v1"]
    await server.forget(*old)


async def test_another_scope_is_refused(server: Server) -> None:
    name = new_kind_name()
    old, new = kind_of(Spec, kind=name), kind_of(Spec, kind=name, scope="Namespaced")
    await install_crds(server.client, old)
    await server.apply(old, {"spec": {}})
    with pytest.raises(CrdChangeError, match=r"spec\.scope: Cluster -> Namespaced"):
        await install_crds(server.client, new)
    await server.forget(old)


async def test_a_status_subresource_is_not_taken_away(server: Server) -> None:
    name = new_kind_name()
    old, new = kind_of(Spec, Wider, kind=name), kind_of(Spec, kind=name)
    await install_crds(server.client, old)
    await server.apply(old, {"spec": {}})
    with pytest.raises(CrdChangeError, match="the status subresource is removed"):
        await install_crds(server.client, new)
    await server.forget(old)


# others


async def test_fields_that_another_manager_owns_are_taken_over_only_on_demand(server: Server) -> None:
    name = new_kind_name()
    old, new = kind_of(Spec, kind=name), kind_of(Wider, kind=name)
    manifest = json.dumps(crd_manifest(old)).encode()
    await server.client.raw.request("POST", CRDS, query=[("fieldManager", "somebody")], body=manifest)
    with pytest.raises(ConflictError, match="somebody"):
        await install_crds(server.client, new)
    (installed,) = await install_crds(server.client, new, force=True)
    assert installed.changes
    await server.forget(new)


@final
class _MeddledWith:
    """A transport under which somebody writes a CRD each time before a write of ours gets there, a few times."""

    def __init__(self, inner: Transport, patch: JsonObject, times: int) -> None:
        self._inner = inner
        self._patch = patch
        self._times = times

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        if request.method == "PATCH" and self._times:
            self._times -= 1
            patch = {"metadata": {"annotations": {"n": str(self._times)}}, **self._patch}
            body, headers = json.dumps(patch).encode(), {"content-type": "application/merge-patch+json"}
            meddling = HttpRequest(method="PATCH", path=request.path, headers=headers, body=body)
            assert (await self._inner.request(meddling)).status == 200
        return await self._inner.request(request)

    @asynccontextmanager
    async def stream(self, request: HttpRequest, /) -> AsyncGenerator[HttpStream]:
        async with self._inner.stream(request) as stream:
            yield stream

    async def aclose(self) -> None:
        """The transport below belongs to the fixture."""


async def test_a_crd_that_is_written_but_not_changed_meanwhile_is_installed(server: Server) -> None:
    """As its status is by the server while it is new, which another replica has just installed."""
    name = new_kind_name()
    old, new = kind_of(Spec, kind=name), kind_of(Wider, kind=name)
    await install_crds(server.client, old)
    client = ApiClient(_MeddledWith(server.client.raw.transport, {}, times=2))
    (installed,) = await install_crds(client, new)
    assert len(installed.changes) == 2
    assert (await server.crd(installed.name))["metadata"]["annotations"] == {"n": "0"}
    await server.forget(new)


async def test_a_crd_that_somebody_changes_meanwhile_is_a_conflict(server: Server) -> None:
    name = new_kind_name()
    old, new = kind_of(Spec, kind=name), kind_of(Wider, kind=name)
    await install_crds(server.client, old)
    change = {"spec": {"names": {"categories": ["all"]}}}
    client = ApiClient(_MeddledWith(server.client.raw.transport, change, times=1))
    with pytest.raises(ConflictError, match="has been modified"):
        await install_crds(client, new)
    assert "color" not in json.dumps(await server.crd(name_of_crd(old)))
    await server.forget(old)


async def test_a_dry_run_stores_nothing_and_waits_for_nothing(server: Server) -> None:
    kind = kind_of(Spec)
    (installed,) = await install_crds(server.client, kind, dry_run=True)
    assert installed.created
    with pytest.raises(NotFoundError):
        await server.crd(installed.name)


async def test_a_client_that_may_not_write_installs_nothing(server: Server) -> None:
    def closed() -> None:
        raise LeadershipLostError("default/lease", "me", "the test says so")

    kind = kind_of(Spec)
    gated: ApiClient = server.client.with_gate(closed)
    with pytest.raises(LeadershipLostError):
        await install_crds(gated, kind)
    with pytest.raises(NotFoundError):
        await server.crd(name_of_crd(kind))


async def test_a_crd_that_is_being_deleted_is_not_written(server: Server) -> None:
    kind = kind_of(Spec)
    (installed,) = await install_crds(server.client, kind)
    await server.apply(kind, {"spec": {}, "metadata": {"finalizers": ["crds.example.com/hold"]}})
    await server.forget(kind)
    with pytest.raises(CrdNotEstablishedError, match="it is being deleted"):
        await install_crds(server.client, kind)
    await server.client.raw.request(
        "PATCH",
        resource_of(kind).path(name="tried"),
        body=b'{"metadata":{"finalizers":null}}',
        content_type="application/merge-patch+json",
    )
    assert installed.created


async def test_a_kind_whose_names_are_taken_is_told_so(server: Server) -> None:
    first = kind_of(Spec)
    await install_crds(server.client, first)
    second = kind_of(Spec, kind=resource_of(first).kind, plural=f"{resource_of(first).plural}x")
    with pytest.raises(CrdNotEstablishedError, match="names are not accepted"):
        await install_crds(server.client, second, timeout=timedelta(seconds=90))
    await server.forget(first, second)


async def test_names_that_become_free_go_to_the_kind_that_waits_for_them(server: Server) -> None:
    first = kind_of(Spec)
    await install_crds(server.client, first)
    second = kind_of(Spec, kind=resource_of(first).kind, plural=f"{resource_of(first).plural}x")
    with pytest.raises(CrdNotEstablishedError, match="is already in use"):
        await install_crds(server.client, second, timeout=timedelta(seconds=90))
    await server.forget(first)

    async def gets_them() -> bool:  # a real server takes a moment to see that they are free
        try:
            await install_crds(server.client, second)
        except CrdNotEstablishedError:
            return False
        return True

    await eventually(gets_them)
    await server.forget(second)
