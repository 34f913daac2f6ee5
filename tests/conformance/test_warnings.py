"""Unknown and duplicate fields, and the warnings that come beside good answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from conformance.differences import BUILTIN_WARNINGS, DUPLICATE_KEYS, UNKNOWN_FIELDS, differs
from conformance.harness import (
    APPLY,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    Answer,
    Api,
    Body,
    config_map,
    eventually,
    new_name,
    widget,
)

pytestmark = pytest.mark.anyio


def deployment(name: str, **spec: Any) -> Body:
    container = {"name": "c", "image": "registry.invalid/c:1"}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template, **spec},
    }


def warnings(answer: Answer) -> str:
    return answer.headers.get("warning", "")


def unknown(*paths: str) -> str:
    """What a Warning header says of unknown fields."""
    return ", ".join(f'299 - "unknown field \\"{path}\\""' for path in paths)


# --- fieldValidation ---


@pytest.mark.parametrize("validation", ["Warn", ""])
async def test_unknown_fields_are_warned_of_by_default(api: Api, validation: str) -> None:
    query = {"fieldValidation": validation} if validation else {}
    answer = await api.create("widgets", widget("a", {"nope": 1, "nested": {"no": 1}}), **query)
    assert (answer.status, warnings(answer)) == (201, unknown("spec.nested.no", "spec.nope"))
    answer = await api.create("deployments", {**deployment("a", nope=1), "top": 1}, **query)
    assert (answer.status, warnings(answer)) == (201, unknown("spec.nope", "top"))


@pytest.mark.parametrize("resource", ["widgets", "deployments"])
@pytest.mark.parametrize(
    ("content_type", "patch"),
    [
        (MERGE_PATCH, {"spec": {"nope": 1}}),
        (JSON_PATCH, [{"op": "add", "path": "/spec/nope", "value": 1}]),
        (STRATEGIC_PATCH, {"spec": {"nope": 1}}),
    ],
)
async def test_unknown_fields_in_a_patch(api: Api, resource: str, content_type: str, patch: Any) -> None:
    make = {"widgets": widget, "deployments": deployment}[resource]
    await api.created(resource, make("a"))
    answer = await api.patch(resource, "a", patch, content_type=content_type, fieldValidation="Strict")
    if (resource, content_type) == ("widgets", STRATEGIC_PATCH):
        assert answer.status == 415
        return
    assert answer.status >= 400
    assert 'unknown field "spec.nope"' in answer.message
    answer = await api.patch(resource, "a", patch, content_type=content_type)
    assert (answer.status, warnings(answer)) == (200, unknown("spec.nope"))
    answer = await api.patch(resource, "a", patch, content_type=content_type, fieldValidation="Ignore")
    assert (answer.status, warnings(answer)) == (200, "")


async def test_unknown_fields_of_a_replacement(api: Api) -> None:
    await api.created("deployments", deployment("a"))
    answer = await api.replace("deployments", deployment("a", nope=1))
    assert (answer.status, warnings(answer)) == (200, unknown("spec.nope"))
    answer = await api.replace("deployments", deployment("a", nope=1), fieldValidation="Strict")
    assert (answer.status, answer.reason) == (400, "BadRequest")


async def test_a_refusal_has_its_warnings_too(api: Api) -> None:
    answer = await api.create("widgets", widget("a", {"nope": 1, "size": 0}))
    assert (answer.status, warnings(answer)) == (422, unknown("spec.nope"))


async def test_an_unknown_validation_is_refused(api: Api) -> None:
    answer = await api.create("widgets", widget("a"), fieldValidation="Bogus")
    assert (answer.status, answer.reason) == (422, "Invalid")
    ((field, reason, _),) = answer.causes
    assert (field, reason) == ("fieldValidation", "FieldValueNotSupported")


@differs(UNKNOWN_FIELDS)
async def test_unknown_fields_of_built_in_kinds_are_dropped(api: Api) -> None:
    answer = await api.create("deployments", deployment("a", nope=1))
    assert answer.status == 201
    kept = "nope" in answer.body["spec"]
    assert kept is UNKNOWN_FIELDS.on(api.server, kube_apiserver=False, in_memory=True)


@differs(DUPLICATE_KEYS)
async def test_a_key_that_occurs_twice_is_refused_when_validation_is_strict(api: Api) -> None:
    text = json.dumps(config_map("a", {"x": "1"})).replace('"x": "1"', '"x": "1", "x": "2"')
    answer = await api.send("POST", api.path("configmaps"), text.encode(), query={"fieldValidation": "Strict"})
    assert answer.status == DUPLICATE_KEYS.on(api.server, kube_apiserver=400, in_memory=201)


@pytest.mark.parametrize("resource", ["widgets", "deployments"])
async def test_an_apply_of_fields_that_nobody_declares_is_refused(api: Api, resource: str) -> None:
    make = {"widgets": widget, "deployments": deployment}[resource]
    body = make("a")
    body["spec"]["nope"] = 1
    for validation in ("", "Ignore", "Warn", "Strict"):
        answer = await api.apply(resource, body, **({"fieldValidation": validation} if validation else {}))
        assert (answer.status, answer.reason) == (500, "")
        kind = f"{body['apiVersion']}, Kind={body['kind']}"
        what = f"failed to create typed patch object (/a; {kind})"
        assert answer.message == f"{what}: .spec.nope: field not declared in schema"
    body["top"] = 1
    answer = await api.apply(resource, body)
    fields = [".spec.nope", ".top"]
    lines = "\n".join(["errors:", *(f"  {field}: field not declared in schema" for field in fields)])
    what = f"failed to create typed patch object (/a; {body['apiVersion']}, Kind={body['kind']})"
    one = f"{what}: {fields[1]}: field not declared in schema"
    # the real server was seen, once, to name the last one alone
    assert answer.message.endswith(lines) or (api.server == "real" and answer.message == one)


# --- other warnings ---


async def test_a_finalizer_without_a_domain_is_warned_of(api: Api) -> None:
    answer = await api.create("widgets", widget("a", finalizers=["bare", "example.com/whole"]))
    advice = "prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"
    assert (answer.status, warnings(answer)) == (201, f'299 - "metadata.finalizers: \\"bare\\": {advice}"')
    await api.patch("widgets", "a", {"metadata": {"finalizers": None}})


async def test_deprecated_built_in_kinds_are_warned_of(api: Api) -> None:
    answer = await api.call("GET", f"/api/v1/namespaces/{api.namespace}/endpoints")
    text = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
    assert (answer.status, warnings(answer)) == (200, f'299 - "{text}"')
    assert warnings(await api.get("configmaps")) == ""


async def test_deprecated_versions_of_custom_resources_are_warned_of(api: Api) -> None:
    plural = new_name("old").replace("-", "")
    schema = {"schema": {"openAPIV3Schema": {"type": "object"}}}
    said = {"deprecated": True, "deprecationWarning": 'use v1, not "v1beta1"'}
    versions = [
        {"name": "v1", "served": True, "storage": True, **schema},
        {"name": "v1beta1", "served": True, "storage": False, **said, **schema},
        {"name": "v1alpha1", "served": True, "storage": False, "deprecated": True, **schema},
    ]
    group, kind = "old.example.com", plural.title()
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"plural": plural, "kind": kind},
            "versions": versions,
        },
    }
    await api.created("customresourcedefinitions", crd)

    async def is_served() -> bool:
        return (await api.call("GET", f"/apis/{group}/v1alpha1/{plural}")).status == 200

    await eventually(is_served)
    found = [warnings(await api.call("GET", f"/apis/{group}/{each['name']}/{plural}")) for each in versions]
    assert found == [
        "",
        '299 - "use v1, not \\"v1beta1\\""',
        f'299 - "{group}/v1alpha1 {kind} is deprecated; use {group}/v1 {kind}"',
    ]
    await api.delete("customresourcedefinitions", f"{plural}.{group}")


@differs(BUILTIN_WARNINGS)
async def test_values_of_built_in_kinds_are_warned_of(api: Api) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "a"},
        "spec": {"ports": [{"port": 80}], "clusterIP": "None", "externalIPs": ["192.0.2.1"]},
    }
    answer = await api.created("services", service)
    text = '299 - "spec.externalIPs is ignored for headless services"'
    assert warnings(answer) == BUILTIN_WARNINGS.on(api.server, kube_apiserver=text, in_memory="")


# --- bodies in YAML ---


async def test_bodies_may_be_in_yaml(api: Api) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  x: 'one'\n"
    answer = await api.send("POST", api.path("configmaps"), text.encode(), content_type="application/yaml")
    assert (answer.status, answer.body["data"]) == (201, {"x": "one"})
    text = text.replace("one", "two")
    answer = await api.send("PUT", api.path("configmaps", "a"), text.encode(), content_type="application/yaml")
    assert (answer.status, answer.body["data"]) == (200, {"x": "two"})
    query = {"fieldManager": "applier", "force": "true"}
    text = text.replace("two", "three")
    answer = await api.send("PATCH", api.path("configmaps", "a"), text.encode(), content_type=APPLY, query=query)
    assert (answer.status, answer.body["data"]) == (200, {"x": "three"})
