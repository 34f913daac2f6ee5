"""M03, O03: whatever a program writes, what its classes do not know stays as it is, at every depth.

Each test compares whole documents: as they were, with the one change that was made.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest
from lightkube.models.meta_v1 import ObjectMeta, OwnerReference
from lightkube.resources.core_v1 import ConfigMap

from conformance.client.conftest import Site
from conformance.client.widgets import FAMILIES, Family, grown, reported, stored_widget
from opsdk.client.finalizers import add_finalizers, remove_finalizers
from opsdk.models import metadata_of, view_of
from opsdk.protocols import Added
from opsdk.types import MergePatch

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("family", FAMILIES, ids=str)]

_ROOT: Final = "/apis/client.example.com/v1/namespaces"
# What changes with every write, and what says which fields were written.
_SERVERS: Final = ("resourceVersion", "generation", "managedFields")

Document = dict[str, Any]


async def stored(site: Site) -> Document:
    """A widget with something in every field, and its document as the server has it."""
    body = stored_widget("w", site.namespace, owner_uid=(await owner(site, "theirs")).uid or "")
    path = f"{_ROOT}/{site.namespace}/widgets"
    await site.client.raw.request("POST", path, body=json.dumps(body).encode())
    await site.client.raw.request(
        "PATCH",
        f"{path}/w/status",
        body=json.dumps({"status": body["status"]}).encode(),
        content_type="application/merge-patch+json",
    )
    document = await now(site)
    assert document["spec"] == body["spec"], "the CRD knows all of it"
    assert document["status"] == body["status"]
    return document


async def owner(site: Site, name: str) -> OwnerReference:
    """A reference to a new ConfigMap; an owner that is not there would have the widget collected."""
    created = await site.client.create(ConfigMap(metadata=ObjectMeta(name=name, namespace=site.namespace)))
    return OwnerReference(apiVersion="v1", kind="ConfigMap", name=name, uid=metadata_of(created).uid or "")


async def now(site: Site) -> Document:
    raw = await site.client.raw.request("GET", f"{_ROOT}/{site.namespace}/widgets/w")
    document: Document = json.loads(raw)
    for name in _SERVERS:
        document["metadata"].pop(name)
    for reference in document["metadata"]["ownerReferences"]:
        if reference["name"] == "ours":
            del reference["apiVersion"], reference["uid"]  # made by the test's own write
    return document


Way = Callable[[Site, Family[Any]], Awaitable[None]]
Expected = Callable[[Document], Document]


async def replace(site: Site, family: Family[Any]) -> None:
    obj = await site.client.get(family.kind, "w", namespace=site.namespace)
    family.grow(obj, 5)
    await site.client.replace(obj)


async def replace_from_a_list(site: Site, family: Family[Any]) -> None:
    (obj,) = await site.client.list(family.kind, namespace=site.namespace)
    family.grow(obj, 5)
    await site.client.replace(obj)


async def replace_from_a_stream(site: Site, family: Family[Any]) -> None:
    async for obj in site.client.stream(family.kind, namespace=site.namespace):
        family.grow(obj, 5)
        await site.client.replace(obj)


async def replace_from_a_watch(site: Site, family: Family[Any]) -> None:
    async with site.client.watch(family.kind, namespace=site.namespace) as events:
        event = await anext(events)
    assert isinstance(event, Added)
    family.grow(event.object, 5)
    await site.client.replace(event.object)


async def replace_from_another_client(site: Site, family: Family[Any]) -> None:
    obj = await (await site.another()).get(family.kind, "w", namespace=site.namespace)
    family.grow(obj, 5)
    await site.client.replace(obj)


async def replace_twice(site: Site, family: Family[Any]) -> None:
    obj = await site.client.get(family.kind, "w", namespace=site.namespace)
    family.grow(obj, 4)
    obj = await site.client.replace(obj)
    family.grow(obj, 5)
    await site.client.replace(obj)


async def patch(site: Site, family: Family[Any]) -> None:
    body = MergePatch({"spec": {"size": 5}})
    obj = await site.client.patch(family.kind, "w", body, namespace=site.namespace)
    base = site.client.snapshot(obj)
    family.grow(obj, 5)
    await site.client.patch_from(base, obj)


async def patch_from(site: Site, family: Family[Any]) -> None:
    obj = await site.client.get(family.kind, "w", namespace=site.namespace)
    base = site.client.snapshot(obj)
    family.grow(obj, 5)
    assert await site.client.patch_from(base, obj) is not None


async def patch_from_another_client(site: Site, family: Family[Any]) -> None:
    other = await site.another()
    obj = await other.get(family.kind, "w", namespace=site.namespace)
    fresh = await site.another()
    base = fresh.snapshot(obj)
    assert base.document is None
    family.grow(obj, 5)
    assert await site.client.patch_from(base, obj) is not None


async def apply(site: Site, family: Family[Any]) -> None:
    wanted = family.make("w", site.namespace, 5)
    await site.client.apply(wanted, field_manager="applier", force=True)
    # What is applied has one part: the other keeps all that it has.
    other = MergePatch({"spec": {"parts": [*grown(await now(site), 5)["spec"]["parts"]]}})
    await site.client.patch(family.kind, "w", other, namespace=site.namespace)


async def status_replace(site: Site, family: Family[Any]) -> None:
    obj = await site.client.get(family.kind, "w", namespace=site.namespace)
    family.report(obj, 5)
    await site.client.status.replace(obj)


async def status_patch(site: Site, family: Family[Any]) -> None:
    body = MergePatch({"status": {"ready": 5}})
    obj = await site.client.status.patch(family.kind, "w", body, namespace=site.namespace)
    base = site.client.snapshot(obj)
    family.report(obj, 5)
    await site.client.status.patch_from(base, obj)


async def status_patch_from(site: Site, family: Family[Any]) -> None:
    obj = await site.client.get(family.kind, "w", namespace=site.namespace)
    base = site.client.snapshot(obj)
    family.report(obj, 5)
    assert await site.client.status.patch_from(base, obj) is not None


async def status_apply(site: Site, family: Family[Any]) -> None:
    obj = await site.client.get(family.kind, "w", namespace=site.namespace)
    family.report(obj, 5)
    await site.client.status.apply(obj, field_manager="applier", force=True)


async def add_a_finalizer(site: Site, family: Family[Any]) -> None:
    obj = await site.client.get(family.kind, "w", namespace=site.namespace)
    assert await add_finalizers(site.client, obj, "example.com/ours")


async def add_and_remove_a_finalizer(site: Site, family: Family[Any]) -> None:
    obj = await site.client.get(family.kind, "w", namespace=site.namespace)
    assert await add_finalizers(site.client, obj, "example.com/ours")
    assert await remove_finalizers(site.client, obj, "example.com/ours")


async def add_an_owner_reference(site: Site, family: Family[Any]) -> None:
    obj = await site.client.get(family.kind, "w", namespace=site.namespace)
    base = site.client.snapshot(obj)
    metadata = metadata_of(obj)
    metadata.ownerReferences = [*(metadata.ownerReferences or ()), await owner(site, "ours")]
    assert await site.client.patch_from(base, obj) is not None


async def label(site: Site, family: Family[Any]) -> None:
    obj = await site.client.get(family.kind, "w", namespace=site.namespace)
    base = site.client.snapshot(obj)
    metadata_of(obj).labels = {**(view_of(obj).labels or {}), "ours": "1"}
    assert await site.client.patch_from(base, obj) is not None


def _with(path: tuple[str, str], value: Any) -> Expected:
    def expect(document: Document) -> Document:
        after = copy.deepcopy(document)
        first, second = path
        place: Any = after[first][second]
        after[first][second] = [*place, value] if isinstance(place, list) else {**place, **value}
        return after

    return expect


_WAYS: Final[dict[Way, Expected]] = {
    **dict.fromkeys(
        (
            replace,
            replace_from_a_list,
            replace_from_a_stream,
            replace_from_a_watch,
            replace_from_another_client,
            replace_twice,
            patch,
            patch_from,
            patch_from_another_client,
            apply,
        ),
        lambda document: grown(document, 5),
    ),
    **dict.fromkeys(
        (status_replace, status_patch, status_patch_from, status_apply), lambda document: reported(document, 5)
    ),
    add_a_finalizer: _with(("metadata", "finalizers"), "example.com/ours"),
    add_and_remove_a_finalizer: lambda document: document,
    add_an_owner_reference: _with(("metadata", "ownerReferences"), {"kind": "ConfigMap", "name": "ours"}),
    label: _with(("metadata", "labels"), {"ours": "1"}),
}


@pytest.mark.parametrize("way", _WAYS, ids=lambda way: way.__name__)
async def test_m03_o03_what_the_program_does_not_know_survives(site: Site, family: Family[Any], way: Way) -> None:
    before = await stored(site)
    await way(site, family)
    assert await now(site) == _WAYS[way](before)
    await release(site)


async def test_what_was_not_changed_is_not_written(site: Site, family: Family[Any]) -> None:
    await stored(site)
    obj = await site.client.get(family.kind, "w", namespace=site.namespace)
    base = site.client.snapshot(obj)
    assert await site.client.patch_from(base, obj) is None
    assert await site.client.status.patch_from(base, obj) is None
    again = await site.client.replace(obj)
    assert metadata_of(again).resourceVersion == metadata_of(obj).resourceVersion
    await release(site)


async def release(site: Site) -> None:
    """Let the namespace end: nobody else would remove the finalizer."""
    path = f"{_ROOT}/{site.namespace}/widgets/w"
    body = json.dumps({"metadata": {"finalizers": None}}).encode()
    await site.client.raw.request("PATCH", path, body=body, content_type="application/merge-patch+json")
