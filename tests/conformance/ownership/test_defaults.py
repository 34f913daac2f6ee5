"""O01, O06: whatever the server fills in or respells, a second reconcile of an unchanged owner writes nothing."""

from __future__ import annotations

import anyio
import pytest

from conformance.harness import new_name
from conformance.ownership.children import CHILDREN, Body, ChildKind, Widget, build
from conformance.ownership.conftest import Scene
from opsdk.models import resource_of
from opsdk.ownership import For, ResourceOwner
from opsdk.protocols import KubeObject
from opsdk.types import Result

pytestmark = pytest.mark.anyio

FINALIZER = "conformance.example.com/children"
BODIES = [
    pytest.param(child, body, id=f"{child.kind.__name__}-{name}")
    for child in CHILDREN
    for name, body in (("lean", child.lean), ("rich", child.rich))
    if body is not None
]


def owner_of(scene: Scene, child: ChildKind, body: Body, name: str, *, apply: bool) -> ResourceOwner[Widget]:
    """An owner of one child, which is built anew on every pass."""

    def built(widget: Widget) -> list[KubeObject]:
        return [build(child, body, name, widget.metadata.namespace)]

    def update(widget: Widget, existing: KubeObject) -> KubeObject:
        assert existing.metadata is not None
        return built(widget)[0]

    finalizer = None if resource_of(child.kind).namespaced else FINALIZER
    declared = (
        For(child.kind, built, apply=True, finalizer=finalizer)
        if apply
        else For(child.kind, built, update=update, finalizer=finalizer)
    )
    return ResourceOwner(Widget, scene.client, [declared])


@pytest.mark.parametrize("apply", [False, True], ids=["update", "apply"])
@pytest.mark.parametrize(("child", "body"), BODIES)
async def test_o01_a_second_reconcile_writes_nothing(
    scene: Scene,
    server: str,
    child: ChildKind,
    body: Body,
    apply: bool,  # noqa: FBT001 - a parameter
) -> None:
    widget = await scene.widget()
    name = new_name("child")
    owner = owner_of(scene, child, body, name, apply=apply)
    assert await owner.reconcile(widget) == Result()
    assert any(name in write or write.startswith("POST") for write in scene.tap.writes)
    for pause_seconds in (0.0, 1.0 if server == "real" else 60.0):  # before and after controllers have had a look
        await anyio.sleep(pause_seconds)
        widget = await scene.others.get(Widget, widget.metadata.name or "", namespace=scene.namespace)
        scene.tap.requests.clear()
        plan = await owner.plan(widget)
        assert await owner.reconcile(widget) == Result()
        assert scene.tap.writes == [], str(plan)
        assert not plan.writes
    if not resource_of(child.kind).namespaced:
        await scene.others.delete(child.kind, name)
