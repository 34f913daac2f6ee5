"""Dry runs, field managers, preconditions, and what errors say, over every transport and on both servers."""

from __future__ import annotations

import pytest
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap

from conformance.client.conftest import Site
from conformance.client.objects import a_widget, config_map, data_of
from conformance.client.widgets import StoredWidget, Widget, WidgetSpec
from opsdk.errors import (
    ConflictError,
    InvalidError,
    MethodNotAllowedError,
    NotFoundError,
)
from opsdk.models import metadata_of, resource_of
from opsdk.types import MergePatch, Preconditions

pytestmark = pytest.mark.anyio


async def everything(site: Site) -> list[bytes]:
    """All ConfigMaps and Widgets of the namespace, as they are stored."""
    pages = [
        await site.client.raw.list_page(resource_of(kind), namespace=site.namespace) for kind in (ConfigMap, Widget)
    ]
    # The controllers of a real cluster put a certificate into every new namespace, when they come to it.
    return [item for page in pages for item in page.items if b'"kube-root-ca.crt"' not in item]


@pytest.mark.parametrize("how", ["of the client", "of the call"])
async def test_a_dry_run_changes_nothing_whatever_is_called(site: Site, how: str) -> None:
    kept = await site.client.create(config_map(site, "c", k="1"))
    widget = await site.client.create(a_widget(site))
    before = await everything(site)
    client = await site.another(dry_run=how == "of the client")
    dry = None if how == "of the client" else True
    base = client.snapshot(kept)
    kept.data = {"k": "2"}
    widget.status.ready = 1
    status = client.snapshot(await client.get(StoredWidget, "w", namespace=site.namespace))

    created = await client.create(config_map(site, "d"), dry_run=dry)
    assert metadata_of(created).uid, "the server did everything but store it"
    tried = await client.patch_from(base, kept, dry_run=dry)
    assert tried is not None
    assert data_of(tried) == {"k": "2"}
    await client.replace(kept, dry_run=dry)
    await client.patch(ConfigMap, "c", MergePatch({"data": None}), namespace=site.namespace, dry_run=dry)
    await client.apply(config_map(site, "e"), dry_run=dry)
    assert await client.status.patch_from(status, widget, dry_run=dry) is not None
    await client.status.replace(widget, dry_run=dry)
    await client.status.patch(Widget, "w", MergePatch({"status": {"ready": 2}}), namespace=site.namespace, dry_run=dry)
    await client.status.apply(widget, dry_run=dry)
    await client.delete(ConfigMap, "c", namespace=site.namespace, dry_run=dry)
    await client.delete_collection(ConfigMap, namespace=site.namespace, dry_run=dry)
    assert await everything(site) == before


async def test_a_call_can_really_write_with_a_client_for_dry_runs(site: Site) -> None:
    client = await site.another(dry_run=True)
    await client.create(config_map(site, "c"), dry_run=False)
    assert await client.find(ConfigMap, "c", namespace=site.namespace) is not None
    await client.delete(ConfigMap, "c", namespace=site.namespace, dry_run=False)
    assert await client.find(ConfigMap, "c", namespace=site.namespace) is None


async def test_every_write_is_recorded_under_the_field_manager(site: Site) -> None:
    client = await site.another(field_manager="mine")
    obj = await client.create(a_widget(site))
    obj.spec.size = 2
    obj = await client.replace(obj, field_manager="replacer")
    base = client.snapshot(obj)
    obj.spec.cpu = "1"
    assert await client.patch_from(base, obj, field_manager="patcher") is not None
    await client.patch(StoredWidget, "w", MergePatch({"spec": {"hidden": "z"}}), namespace=site.namespace)
    await client.status.patch(
        StoredWidget, "w", MergePatch({"status": {"ready": 1}}), namespace=site.namespace, field_manager="reporter"
    )
    wanted = Widget(metadata=ObjectMeta(name="w", namespace=site.namespace), spec=WidgetSpec(size=2))
    stored_now = await client.apply(wanted, field_manager="applier")
    recorded = {
        (entry.manager, entry.operation, entry.subresource or "")
        for entry in metadata_of(stored_now).managedFields or ()
    }
    assert recorded == {
        ("mine", "Update", ""),
        ("replacer", "Update", ""),
        ("patcher", "Update", ""),
        ("reporter", "Update", "status"),
        ("applier", "Apply", ""),
    }


async def test_preconditions_of_a_delete_are_kept(site: Site) -> None:
    obj = metadata_of(await site.client.create(config_map(site, "c")))
    for wrong in (Preconditions(uid="another"), Preconditions(resource_version="1")):
        with pytest.raises(ConflictError):
            await site.client.delete(ConfigMap, "c", namespace=site.namespace, preconditions=wrong)
    right = Preconditions(uid=obj.uid, resource_version=obj.resourceVersion)
    await site.client.delete(ConfigMap, "c", namespace=site.namespace, preconditions=right)
    assert await site.client.find(ConfigMap, "c", namespace=site.namespace) is None


async def test_an_error_says_what_the_server_said(site: Site) -> None:
    obj = a_widget(site)
    obj.spec.size = -1
    with pytest.raises(InvalidError) as invalid:
        await site.client.create(obj)
    assert (invalid.value.code, invalid.value.reason) == (422, "Invalid")
    assert (invalid.value.kind, invalid.value.name) == ("Widget", "w")
    assert [cause.field for cause in invalid.value.causes] == ["spec.size"]
    assert "should be greater than or equal to 0" in invalid.value.causes[0].message
    with pytest.raises(NotFoundError) as missing:
        await site.client.get(ConfigMap, "none", namespace=site.namespace)
    assert (missing.value.reason, missing.value.name) == ("NotFound", "none")
    with pytest.raises(MethodNotAllowedError):
        await site.client.raw.request("PUT", "/api/v1/namespaces")
