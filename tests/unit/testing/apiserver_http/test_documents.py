"""Discovery and OpenAPI documents, where the conformance tests do not look already."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from opsdk.testing.apiserver._builtin_fields import type_fault, unknown_fields
from opsdk.testing.apiserver._discovery import (
    AGGREGATED_TYPE,
    discovery_content_type,
    discovery_response,
    text_response,
)
from opsdk.testing.apiserver._fields import is_array, is_object
from opsdk.testing.apiserver._kinds import KindInfo, KindRegistry, find_builtin
from opsdk.testing.apiserver._openapi import openapi_response

REGISTRY = KindRegistry.with_builtins()
THING = KindInfo(
    group="example.com",
    version="v1",
    kind="Thing",
    plural="things",
    singular="thing",
    namespaced=True,
    storage="things.example.com",
    storage_version="v1",
    builtin=False,
    schema={
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"x": {"x-kubernetes-int-or-string": True}}}},
    },
)


def document(registry: KindRegistry, path: str) -> dict[str, Any]:
    found = openapi_response(registry, path)
    assert found is not None
    parsed: dict[str, Any] = json.loads(found[1])
    return parsed


@pytest.mark.parametrize(
    ("accept", "aggregated"),
    [
        (AGGREGATED_TYPE, True),
        (f"{AGGREGATED_TYPE},application/json", True),
        ("application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json", False),
        ("application/json", False),
        (f"application/json,{AGGREGATED_TYPE}", False),
        ("application/cbor;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList, application/json", False),
        ("*/*", False),
        ("", False),
    ],
)
def test_discovery_comes_in_the_form_that_the_client_likes_best(accept: str, aggregated: bool) -> None:  # noqa: FBT001
    found = discovery_response(REGISTRY, "/apis", accept)
    assert found is not None
    assert found["kind"] == ("APIGroupDiscoveryList" if aggregated else "APIGroupList")
    assert discovery_content_type(found) == (AGGREGATED_TYPE if aggregated else "application/json")


@pytest.mark.parametrize("path", ["/apis/none.example.com", "/apis/apps/v9", "/api/v9", "/other", "/apis/apps/v1/x"])
def test_there_is_nothing_at_other_paths(path: str) -> None:
    assert discovery_response(REGISTRY, path) is None


def test_kinds_come_and_go() -> None:
    registry = KindRegistry.with_builtins()
    registry.add(THING)
    assert discovery_response(registry, "/apis/example.com/v1") is not None
    assert openapi_response(registry, "/openapi/v3/apis/example.com/v1") is not None
    registry.remove(THING)
    assert discovery_response(registry, "/apis/example.com/v1") is None
    assert openapi_response(registry, "/openapi/v3/apis/example.com/v1") is None


def test_health() -> None:
    assert text_response("/readyz") == "ok"
    assert text_response("/readyz/ping") == "ok"
    assert text_response("/api") is None


def test_the_digest_of_a_document_changes_with_its_schemas() -> None:
    """kubectl keeps documents by their digest."""
    registry = KindRegistry.with_builtins()
    registry.add(THING)
    before = document(registry, "/openapi/v3")["paths"]
    registry.add(replace(THING, schema={"type": "object"}))
    after = document(registry, "/openapi/v3")["paths"]
    assert before["apis/example.com/v1"] != after["apis/example.com/v1"]
    assert before["apis/apps/v1"] == after["apis/apps/v1"]


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_all_references_lead_somewhere(version: str) -> None:
    registry = KindRegistry.with_builtins()
    registry.add(THING)
    paths = ["/openapi/v2"]
    if version == "v3":
        paths = [f"/openapi/v3/{path}" for path in document(registry, "/openapi/v3")["paths"]]
    for path in paths:
        found = document(registry, path)
        schemas = found["definitions"] if version == "v2" else found["components"]["schemas"]
        prefix = "#/definitions/" if version == "v2" else "#/components/schemas/"
        for reference in _references(schemas):
            assert reference.startswith(prefix)
            assert reference.removeprefix(prefix) in schemas


def _references(value: object) -> list[str]:
    if is_object(value):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [found for each in value.values() for found in _references(each)]
    if is_array(value):
        return [found for each in value for found in _references(each)]
    return []


def test_every_kind_is_described() -> None:
    found = document(REGISTRY, "/openapi/v2")["definitions"]
    described = {
        (each["group"], each["version"], each["kind"])
        for schema in found.values()
        for each in schema.get("x-kubernetes-group-version-kind", [])
    }
    assert {(info.group, info.version, info.kind) for info in REGISTRY.kinds()} <= described


def test_fields_have_their_texts_and_types() -> None:
    schemas = document(REGISTRY, "/openapi/v3/api/v1")["components"]["schemas"]
    port = schemas["io.k8s.api.core.v1.ServicePort"]
    assert port["required"] == ["port"]
    assert port["properties"]["port"]["description"] == "The port that will be exposed by this service."
    assert port["properties"]["targetPort"]["format"] == "int-or-string"
    metadata = schemas["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]["properties"]
    assert metadata["creationTimestamp"]["format"] == "date-time"
    assert metadata["finalizers"]["x-kubernetes-patch-strategy"] == "merge"
    assert metadata["ownerReferences"]["x-kubernetes-patch-merge-key"] == "uid"


def test_swagger_leaves_out_what_it_cannot_say() -> None:
    registry = KindRegistry([THING])
    found = document(registry, "/openapi/v2")["definitions"]["com.example.v1.Thing"]
    assert found["properties"]["spec"]["properties"]["x"] == {"x-kubernetes-int-or-string": True}
    assert openapi_response(registry, "/openapi/v2", "application/json") != openapi_response(
        registry, "/openapi/v2", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    )


# --- what documents of built-in kinds may hold ---


def test_unknown_fields_are_found_on_every_level() -> None:
    body = {
        "nope": 1,
        "metadata": {"name": "x", "labels": {"any": "thing"}},
        "spec": {"zzz": 1, "template": {"spec": {"containers": [{"name": "x", "foo": 1}]}}},
    }
    assert unknown_fields(find_builtin("Deployment"), body) == [
        "nope",
        "spec.template.spec.containers[0].foo",
        "spec.zzz",
    ]
    assert unknown_fields(THING, body) == []


@pytest.mark.parametrize(
    ("kind", "body", "fault"),
    [
        ("ConfigMap", {"data": {"a": 1}}, "number into Go struct field ConfigMap.data of type string"),
        (
            "Deployment",
            {"spec": {"replicas": "3"}},
            "string into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        ("Deployment", {"spec": {"paused": 1}}, "number into Go struct field DeploymentSpec.spec.paused of type bool"),
        (
            "Secret",
            {"metadata": {"labels": {"a": True}}},
            "bool into Go struct field ObjectMeta.metadata.labels of type string",
        ),
    ],
)
def test_values_of_another_type_are_named_as_go_names_them(kind: str, body: dict[str, Any], fault: str) -> None:
    assert type_fault(find_builtin(kind), body) == f"json: cannot unmarshal {fault}"


def test_good_documents_have_no_type_faults() -> None:
    service = {
        "spec": {"ports": [{"port": 80, "targetPort": "http"}, {"port": 81, "targetPort": 8080}], "selector": None}
    }
    assert type_fault(find_builtin("Service"), service) is None
