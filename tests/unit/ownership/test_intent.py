"""What an update function means by what it returns."""

from __future__ import annotations

import copy
from collections.abc import Callable

import msgspec
import pytest
from lightkube.generic_resource import create_namespaced_resource  # pyright: ignore[reportUnknownVariableType] - untyped verbs
from lightkube.models.apps_v1 import DeploymentSpec
from lightkube.models.core_v1 import Container, ContainerPort, PodSpec, PodTemplateSpec, ServicePort, ServiceSpec
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Service

from opsdk.models import codec_of, metadata_of
from opsdk.ownership._intent import Parts
from opsdk.protocols import KubeObject
from opsdk.types import JsonObject


def document(obj: KubeObject) -> JsonObject:
    decoded: JsonObject = msgspec.json.decode(codec_of(type(obj)).encode(obj))
    return decoded


def stored_service() -> Service:
    """A Service as the server has it."""
    return Service(
        metadata=ObjectMeta(name="web", labels={"theirs": "1"}, annotations={"controller": "2"}),
        spec=ServiceSpec(
            clusterIP="10.0.0.1",
            sessionAffinity="None",
            selector={"app": "web"},
            ports=[
                ServicePort(name="http", port=80, protocol="TCP", nodePort=30000, targetPort=80),
                ServicePort(name="old", port=81, protocol="TCP", nodePort=30001, targetPort=81),
            ],
        ),
    )


def made_anew() -> Service:
    return Service(
        metadata=ObjectMeta(name="web", labels={"ours": "1"}),
        spec=ServiceSpec(selector={"tier": "front"}, ports=[ServicePort(name="http", port=8080)]),
    )


def intended(existing: Service, update: Callable[[Service], Service]) -> JsonObject:
    before, parts = document(existing), Parts(existing)
    changed = update(existing)
    return parts.intended(before, document(changed), changed)


LAID_SPEC: JsonObject = {
    "clusterIP": "10.0.0.1",
    "sessionAffinity": "None",
    "selector": {"tier": "front"},
    "ports": [{"name": "http", "port": 8080, "protocol": "TCP", "nodePort": 30000, "targetPort": 80}],
}


def test_a_field_that_is_emptied_in_place_is_to_go() -> None:
    def update(existing: Service) -> Service:
        assert existing.spec is not None
        existing.spec.sessionAffinity = None
        return existing

    expected = document(stored_service())
    spec = expected["spec"]
    assert isinstance(spec, dict)
    assert intended(stored_service(), update) == {
        **expected,
        "spec": {name: value for name, value in spec.items() if name != "sessionAffinity"},
    }


def test_a_part_made_from_scratch_says_nothing_about_what_it_leaves_out() -> None:
    def update(existing: Service) -> Service:
        existing.spec = made_anew().spec
        return existing

    result = intended(stored_service(), update)
    assert result["spec"] == LAID_SPEC
    assert result["metadata"] == document(stored_service())["metadata"]


def test_so_does_an_object_made_from_scratch() -> None:
    result = intended(stored_service(), lambda existing: made_anew() if existing.spec else existing)
    assert result["spec"] == LAID_SPEC
    assert result["metadata"] == {
        "name": "web",
        "labels": {"theirs": "1", "ours": "1"},
        "annotations": {"controller": "2"},
    }


def test_an_item_of_a_list_may_be_kept_in_a_list_made_from_scratch() -> None:
    def update(existing: Service) -> Service:
        assert existing.spec is not None
        assert existing.spec.ports is not None
        (http, _) = existing.spec.ports
        http.nodePort = None
        existing.spec.ports = [http, ServicePort(name="new", port=82)]
        return existing

    spec = intended(stored_service(), update)["spec"]
    assert isinstance(spec, dict)
    assert spec["ports"] == [
        {"name": "http", "port": 80, "protocol": "TCP", "targetPort": 80},
        {"name": "new", "port": 82},
    ]


def test_an_object_that_is_not_changed_means_what_it_was() -> None:
    assert intended(stored_service(), lambda existing: existing) == document(stored_service())


def test_the_servers_spelling_stays_where_the_meaning_is_the_same() -> None:
    def update(existing: Service) -> Service:
        assert existing.spec is not None
        assert existing.spec.ports is not None
        existing.spec.ports[0].targetPort = "80"
        existing.spec.externalIPs = []
        return existing

    assert intended(stored_service(), update) == document(stored_service())


def test_data_is_meant_as_it_stands() -> None:
    existing = ConfigMap(metadata=ObjectMeta(name="c"), data={"old": "1", "same": "1"})
    before, parts = document(existing), Parts(existing)
    existing.data = {"same": "1", "new": "1"}
    assert parts.intended(before, document(existing), existing)["data"] == {"same": "1", "new": "1"}


def test_a_generic_resource_follows_the_same_rules() -> None:
    Gadget = create_namespaced_resource("demo.example.com", "v1", "Gadget", "gadgets")  # noqa: N806 - a class
    existing = Gadget(metadata=ObjectMeta(name="g"), spec={"size": 1, "filled": {"in": True}, "data": {"a": "1"}})
    before, parts = document(existing), Parts(existing)
    existing["spec"] = {"size": 2, "data": {"b": "1"}}
    result = parts.intended(before, document(existing), existing)
    assert result["spec"] == {"size": 2, "filled": {"in": True}, "data": {"b": "1"}}


@pytest.mark.parametrize("ports", [[], [8080], [8080, 9090]])
def test_lists_are_as_long_as_they_were_made(ports: list[int]) -> None:
    existing = Deployment(
        metadata=ObjectMeta(name="d"),
        spec=DeploymentSpec(
            selector=LabelSelector(matchLabels={"app": "d"}),
            template=PodTemplateSpec(
                spec=PodSpec(containers=[Container(name="c", ports=[ContainerPort(containerPort=1, protocol="TCP")])])
            ),
        ),
    )
    before, parts = document(existing), Parts(existing)
    changed = copy.copy(existing)
    assert changed.spec is not None
    assert changed.spec.template.spec is not None
    changed.spec.template.spec.containers[0].ports = [ContainerPort(containerPort=port) for port in ports]
    result = parts.intended(before, document(changed), changed)
    assert metadata_of(changed).name == "d"
    assert result["spec"] == document(changed)["spec"]


@pytest.mark.parametrize("keeps_metadata", [True, False])
def test_members_that_are_the_same_may_be_left_out(keeps_metadata: bool) -> None:  # noqa: FBT001 - pytest passes it
    def update(existing: Service) -> Service:
        changed = made_anew()
        if keeps_metadata:
            changed.metadata = existing.metadata
        return changed

    existing = stored_service()
    before, parts = document(existing), Parts(existing)
    changed = update(existing)
    after = document(changed)
    whole = parts.intended(before, after, changed)
    differ = {name for name in {*before, *after} if before.get(name) != after.get(name)} | {"apiVersion", "kind"}
    assert ("metadata" in differ) is not keeps_metadata
    part = parts.intended(
        {name: value for name, value in before.items() if name in differ},
        {name: value for name, value in after.items() if name in differ},
        changed,
    )
    assert part == {name: value for name, value in whole.items() if name in differ}
