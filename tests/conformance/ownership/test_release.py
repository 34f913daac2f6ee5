"""O05: an operator that is uninstalled leaves nothing behind that hangs."""

from __future__ import annotations

import pytest
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Namespace

from conformance.ownership.children import Gadget, Widget
from conformance.ownership.conftest import Scene
from opsdk.client.finalizers import add_finalizers
from opsdk.errors import ConfigurationError
from opsdk.models import view_of
from opsdk.ownership import OWNER_SET_LABEL, OWNER_UID_LABEL, For, ResourceOwner, release
from opsdk.types import MergePatch, Request

pytestmark = pytest.mark.anyio

FINALIZER = "ownership.example.com/children"
SECOND = "ownership.example.com/rows"
OTHER = "other.example.com/theirs"


def owner(scene: Scene) -> ResourceOwner[Widget]:
    """Children beside the owner, and elsewhere. The set is the test's own, for others run on the same server."""

    def build(widget: Widget) -> list[ConfigMap]:
        assert widget.metadata.uid
        return [
            ConfigMap(metadata=ObjectMeta(name="beside", labels={"kept": "1"})),
            ConfigMap(metadata=ObjectMeta(name="elsewhere", namespace=scene.elsewhere)),
        ]

    return ResourceOwner(Widget, scene.client, [For(ConfigMap, build, finalizer=FINALIZER)], name=scene.namespace)


async def test_o05_a_namespace_hangs_on_an_operator_that_is_gone_until_it_is_released(scene: Scene) -> None:
    widget = await scene.widget()
    await owner(scene).reconcile(widget)
    name = widget.metadata.name or ""
    await scene.others.delete(Namespace, scene.namespace)
    held = await scene.others.get(Widget, name, namespace=scene.namespace)
    assert held.metadata.finalizers == [FINALIZER]

    report = await release(scene.others, finalizers=[FINALIZER], kinds=[Widget], namespace=scene.namespace)
    assert [(entry.kind, entry.request, entry.finalizers) for entry in report.objects] == [
        ("Widget", Request(name, scene.namespace), (FINALIZER,))
    ]
    await scene.gone(Widget, name, scene.namespace)
    await scene.gone(Namespace, scene.namespace, None)


async def test_o05_labels_and_references_of_children_go_and_everything_else_stays(scene: Scene) -> None:
    widget = await scene.widget()
    await owner(scene).reconcile(widget)
    current = await scene.others.get(Widget, widget.metadata.name or "", namespace=scene.namespace)
    await add_finalizers(scene.others, current, OTHER)
    theirs = ConfigMap(metadata=ObjectMeta(name="theirs", namespace=scene.namespace, labels={OWNER_SET_LABEL: "x"}))
    await scene.others.create(theirs)

    async def run(*, dry_run: bool) -> list[str]:
        report = await release(
            scene.client, finalizers=[FINALIZER], owner_sets=[scene.namespace], kinds=["configmaps", Widget],
            orphan=True, dry_run=dry_run,
        )  # fmt: skip
        # Other tests' objects carry the same finalizer.
        return [
            str(entry) for entry in report.objects if scene.namespace in str(entry) or scene.elsewhere in str(entry)
        ]

    labels = f"label {OWNER_UID_LABEL}, label {OWNER_SET_LABEL}"
    expected = [
        f"ConfigMap {scene.namespace}/beside: {labels}, owner Widget {widget.metadata.name}",
        f"ConfigMap {scene.elsewhere}/elsewhere: {labels}",
        f"Widget {scene.namespace}/{widget.metadata.name}: finalizer {FINALIZER}",
    ]
    scene.tap.requests.clear()
    assert sorted(await run(dry_run=True)) == sorted(expected)
    assert scene.tap.writes == []
    assert sorted(await run(dry_run=False)) == sorted(expected)
    assert await run(dry_run=False) == []

    beside = await scene.others.get(ConfigMap, "beside", namespace=scene.namespace)
    assert (view_of(beside).labels, view_of(beside).ownerReferences or None) == ({"kept": "1"}, None)
    untouched = await scene.others.get(ConfigMap, "theirs", namespace=scene.namespace)
    assert view_of(untouched).labels == {OWNER_SET_LABEL: "x"}
    current = await scene.others.get(Widget, widget.metadata.name or "", namespace=scene.namespace)
    assert current.metadata.finalizers == [OTHER]
    await release(scene.others, finalizers=[OTHER], kinds=[Widget])


async def test_o05_a_whole_domain_is_found_wherever_it_is(scene: Scene) -> None:
    gadget = await scene.gadget()
    await add_finalizers(scene.others, gadget, FINALIZER, SECOND, OTHER)
    config = await scene.others.create(
        ConfigMap(metadata=ObjectMeta(name="c", namespace=scene.elsewhere, finalizers=[SECOND]))
    )
    report = await release(scene.others, finalizers=["ownership.example.com/*"])
    found = {(entry.kind, entry.request): entry.finalizers for entry in report.objects}
    assert found["Gadget", Request(gadget.metadata.name or "")] == (FINALIZER, SECOND)
    assert found["ConfigMap", Request("c", scene.elsewhere)] == (SECOND,)
    assert view_of(config).finalizers == [SECOND]
    current = await scene.others.get(Gadget, gadget.metadata.name or "")
    assert current.metadata.finalizers == [OTHER]
    await release(scene.others, finalizers=[OTHER], kinds=["gadgets.ownership.example.com"])


async def test_what_somebody_writes_meanwhile_stands(scene: Scene) -> None:
    gadget = await scene.gadget()
    name = gadget.metadata.name or ""
    await add_finalizers(scene.others, gadget, SECOND)

    async def meddle() -> None:
        await scene.others.patch(Gadget, name, MergePatch({"metadata": {"finalizers": [SECOND, OTHER]}}))

    scene.tap.before[f"PATCH gadgets/{name}"] = meddle
    await release(scene.client, finalizers=[SECOND], kinds=[Gadget])
    assert (await scene.others.get(Gadget, name)).metadata.finalizers == [OTHER]
    await release(scene.others, finalizers=[OTHER], kinds=[Gadget])


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({}, "neither finalizers nor owner sets"),
        ({"finalizers": ["plain"]}, "'plain' is no finalizer"),
        ({"owner_sets": ["not a label"]}, "is no label value"),
        ({"finalizers": [FINALIZER], "kinds": ["nothings.example.com"]}, "no kind nothings.example.com"),
    ],
)
async def test_what_cannot_be_meant_is_refused(scene: Scene, arguments: dict[str, list[str]], fault: str) -> None:
    with pytest.raises(ConfigurationError, match=fault):
        await release(
            scene.others,
            finalizers=arguments.get("finalizers", ()),
            owner_sets=arguments.get("owner_sets", ()),
            kinds=arguments.get("kinds"),
        )
