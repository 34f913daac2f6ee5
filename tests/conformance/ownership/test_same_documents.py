"""The in-memory API server makes of a child what a real one makes of it: the same document, up to assigned names."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Final

import pytest

from conformance.harness import CRDS, Api, new_name
from conformance.ownership.children import CHILDREN, OWN_CRDS, Body, ChildKind, build
from conformance.ownership.conftest import Scene
from opsdk.models import codec_of, resource_of
from opsdk.patches import describe_difference, is_array, is_object
from opsdk.testing import ApiServer
from opsdk.types import Json, JsonObject

pytestmark = pytest.mark.anyio

BODIES = [
    pytest.param(child, body, id=f"{child.kind.__name__}-{name}")
    for child in CHILDREN
    for name, body in (("lean", child.lean), ("rich", child.rich))
    if body is not None
]
# What differs from one server, or one moment, to the next.
_DECIDED: Final = frozenset({"creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"})
_ASSIGNED: Final = frozenset({"clusterIP", "clusterIPs", "healthCheckNodePort", "nodePort", "controller-uid"})
# Known differences, by kind: a claim's finalizer and a pod's token are the work of admission and controllers.
_LACKING: Final[dict[str, tuple[str, ...]]] = {
    "PersistentVolumeClaim": ("metadata.finalizers: ",),
    "Pod": ("spec.volumes: ", "spec.containers[web].volumeMounts: "),
}


@pytest.fixture(params=[pytest.param("real", marks=pytest.mark.controlplane)])
def server(request: pytest.FixtureRequest) -> str:
    """The other one is always in memory."""
    return str(request.param)


@pytest.fixture
async def memory(scene: Scene) -> AsyncGenerator[Api]:
    async with ApiServer() as server:
        api = Api(server.transport(), scene.namespace, server="memory")
        for crd in (*CRDS, *OWN_CRDS):
            await api.create("customresourcedefinitions", dict(crd))
        await api.created(
            "namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": scene.namespace}}
        )
        yield api


@pytest.mark.parametrize(("child", "body"), BODIES)
async def test_a_new_child_is_the_same_document(
    scene: Scene, api: Api, memory: Api, child: ChildKind, body: Body
) -> None:
    info = resource_of(child.kind)
    place = scene.namespace if info.namespaced else None
    name = new_name("child")
    sent: Body = json.loads(codec_of(child.kind).encode(build(child, body, name, place)))
    answers = [await server.call("POST", info.path(namespace=place), sent) for server in (api, memory)]
    if place is None:
        await scene.others.delete(child.kind, name)
    assert [answer.status for answer in answers] == [201, 201], answers[-1].text
    real, ours = (comparable(answer.body) for answer in answers)
    lacking = _LACKING.get(info.kind, ())
    assert [line for line in describe_difference(real, ours) if not line.startswith(lacking or ("\0",))] == []


def comparable(document: Body) -> JsonObject:
    metadata = {name: value for name, value in document["metadata"].items() if name not in _DECIDED}
    return {name: _cleaned(value) for name, value in {**document, "metadata": metadata}.items()}


def _cleaned(value: Json) -> Json:
    if is_object(value):
        return {
            name: "(assigned)" if name.rpartition("/")[2] in _ASSIGNED and inner != "None" else _cleaned(inner)
            for name, inner in value.items()
            if inner is not None
        }
    return [_cleaned(inner) for inner in value] if is_array(value) else value
