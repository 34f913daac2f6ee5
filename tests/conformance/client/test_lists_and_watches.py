"""Lists, streams and watches, over every transport and on both servers."""

from __future__ import annotations

import copy
from datetime import timedelta

import anyio
import pytest
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap

from conformance.client.conftest import IN_MEMORY, Site
from conformance.client.objects import config_map, data_of, fields_of
from conformance.client.widgets import WidgetSpec, WidgetStatus
from conformance.harness import PATIENCE_SECONDS
from opsdk.client import _lists
from opsdk.errors import (
    GoneError,
    NotFoundError,
)
from opsdk.models import CustomResource, metadata_of, metadata_only, view_of
from opsdk.protocols import Added, Deleted, Modified
from opsdk.types import MergePatch

pytestmark = pytest.mark.anyio


async def fill(site: Site, count: int) -> None:
    for number in range(count):
        await site.client.create(config_map(site, f"c{number:04}"))


async def test_w08_a_list_in_pages_is_whole_and_has_its_own_version(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_lists, "PAGE_SIZE", 7)
    await fill(site, 30)
    found = await site.client.list(ConfigMap, labels={"app": "x"}, namespace=site.namespace)
    assert [metadata_of(one).name for one in found] == [f"c{number:04}" for number in range(30)]
    last = metadata_of(await site.client.create(config_map(site, "d")))
    assert int(found.resource_version) < int(last.resourceVersion or "0")
    assert all(int(metadata_of(one).resourceVersion or "0") <= int(found.resource_version) for one in found)
    assert await site.client.list(ConfigMap, labels="app in (y)", namespace=site.namespace) == []
    by_name = {"metadata.name": "c0007"}
    assert len(await site.client.list(ConfigMap, fields=by_name, namespace=site.namespace)) == 1
    names = [
        metadata_of(one).name
        async for one in site.client.stream(ConfigMap, namespace=site.namespace, labels={"app": "x"}, page_size=4)
        if isinstance(one, ConfigMap)
    ]
    assert sorted(filter(None, names)) == [*(f"c{number:04}" for number in range(30)), "d"]


@IN_MEMORY
async def test_w07_a_list_is_whole_even_when_its_history_is_forgotten_on_the_way(site: Site) -> None:
    assert site.memory is not None
    await fill(site, 61)
    names: list[str | None] = []
    async for one in site.client.stream(ConfigMap, namespace=site.namespace, labels={"app": "x"}, page_size=20):
        assert isinstance(one, ConfigMap)
        names.append(metadata_of(one).name)
        if len(names) == 30:
            await site.client.create(config_map(site, "c0000-late"))
            site.memory.compact()
    assert sorted(filter(None, names)) == sorted([*(f"c{number:04}" for number in range(61)), "c0000-late"])


async def test_what_the_objects_of_a_list_share_cannot_be_changed_through_one_of_them(site: Site) -> None:
    await fill(site, 2)
    first, second = await site.client.list(ConfigMap, namespace=site.namespace, labels={"app": "x"})
    one, other = (metadata_of(obj).managedFields or [] for obj in (first, second))
    assert one[0].manager == "opsdk"
    assert fields_of(one[0]) is fields_of(other[0])
    alone = await site.client.get(ConfigMap, "c0000", namespace=site.namespace)
    assert metadata_of(alone).managedFields == one, "they read like those of an object that was read alone"
    fields = fields_of(one[0])
    assert isinstance(fields, dict)
    with pytest.raises(TypeError, match="shared with other objects"):
        fields["f:data"] = {}
    with pytest.raises(TypeError, match="shared with other objects"):
        fields.update({"f:data": {}})
    copied = fields_of(copy.deepcopy(one[0]))
    assert isinstance(copied, dict)
    copied["f:data"] = {}
    (entry,) = metadata_of(alone).managedFields or []
    assert fields_of(entry) == fields_of(other[0])
    first.data = {"k": "2"}
    assert data_of(await site.client.replace(first)) == {"k": "2"}


async def test_delete_collection_deletes_what_matches_in_one_namespace(site: Site) -> None:
    client = site.client
    await client.create(config_map(site, "a"))
    await client.create(config_map(site, "b"))
    other = config_map(site, "c")
    metadata_of(other).labels = {"app": "y"}
    await client.create(other)
    await client.delete_collection(ConfigMap, namespace=site.namespace, labels={"app": "x"})
    assert [metadata_of(one).name for one in await client.list(ConfigMap, namespace=site.namespace, labels="app")] == [
        "c"
    ]


async def test_a_watch_goes_on_from_a_list(site: Site) -> None:
    client = site.client
    await client.create(config_map(site, "a"))
    found = await client.list(ConfigMap, namespace=site.namespace)
    async with client.watch(ConfigMap, namespace=site.namespace, resource_version=found.resource_version) as events:
        stored = await client.create(config_map(site, "b", k="1"))
        base = client.snapshot(stored)
        stored.data = {"k": "2"}
        await client.patch_from(base, stored)
        await client.delete(ConfigMap, "b", namespace=site.namespace)
        with anyio.fail_after(PATIENCE_SECONDS):
            added, modified, deleted = [await anext(events) for _ in range(3)]
    assert isinstance(added, Added)
    assert isinstance(modified, Modified)
    assert isinstance(deleted, Deleted)
    assert [data_of(one.object) for one in (added, modified, deleted)] == [{"k": "1"}, {"k": "2"}, {"k": "2"}]
    if site.memory is not None:
        with anyio.fail_after(PATIENCE_SECONDS):
            while site.memory.open_watches:  # noqa: ASYNC110 - the server notices by itself
                await anyio.sleep(0.01)


async def test_a_watch_from_nowhere_begins_with_what_there_is_and_ends_when_the_server_says(site: Site) -> None:
    client = site.client
    await client.create(config_map(site, "a"))
    with anyio.fail_after(PATIENCE_SECONDS):
        async with client.watch(ConfigMap, namespace=site.namespace, timeout=timedelta(seconds=1)) as events:
            seen = [event async for event in events]
    added = [metadata_of(event.object).name for event in seen if isinstance(event, Added)]
    assert added.count("a") == 1


@IN_MEMORY
async def test_a_watch_from_a_forgotten_version_is_gone(site: Site) -> None:
    assert site.memory is not None
    client = site.client
    version = site.memory.resource_version
    await client.create(config_map(site, "a"))
    await client.delete(ConfigMap, "a", namespace=site.namespace)
    site.memory.compact()
    with pytest.raises(GoneError), anyio.fail_after(PATIENCE_SECONDS):
        async with client.watch(ConfigMap, namespace=site.namespace, resource_version=version) as events:
            await anext(events)


async def test_a_kind_that_is_not_installed_is_not_an_object_that_is_not_there(site: Site) -> None:
    class Gadget(CustomResource[WidgetSpec, WidgetStatus], group="other.example.com", version="v1"):
        pass

    client = site.client
    with pytest.raises(NotFoundError):
        await client.find(Gadget, "g", namespace=site.namespace)
    with pytest.raises(NotFoundError):
        await client.list(Gadget)


async def test_metadata_alone_is_read_listed_watched_and_patched(site: Site) -> None:
    client = site.client
    partial = metadata_only(ConfigMap)
    await client.create(config_map(site, "a", hidden="1"))
    found = await client.list(partial, namespace=site.namespace, labels={"app": "x"})
    assert [(one.kind, one.apiVersion, metadata_of(one).name) for one in found] == [("ConfigMap", "v1", "a")]
    async with client.watch(partial, namespace=site.namespace, resource_version=found.resource_version) as events:
        patch = MergePatch({"metadata": {"labels": {"seen": "yes"}}})
        await client.patch(partial, "a", patch, namespace=site.namespace)
        with anyio.fail_after(PATIENCE_SECONDS):
            event = await anext(events)
            while not isinstance(event, Modified):
                event = await anext(events)
    assert view_of(event.object).labels == {"app": "x", "seen": "yes"}
    one = await client.get(partial, "a", namespace=site.namespace)
    base = client.snapshot(one)
    metadata_of(one).labels = {"app": "x", "seen": "twice"}
    assert await client.patch_from(base, one) is not None
    whole = await (await site.another()).get(ConfigMap, "a", namespace=site.namespace)
    assert (data_of(whole), view_of(whole).labels) == ({"hidden": "1"}, {"app": "x", "seen": "twice"})
    named = partial(metadata=ObjectMeta(name="a", namespace=site.namespace, annotations={"k": "v"}))
    assert view_of(await client.apply(named, field_manager="labels")).annotations == {"k": "v"}
    await client.delete(partial, "a", namespace=site.namespace)
    assert await client.find(partial, "a", namespace=site.namespace) is None
