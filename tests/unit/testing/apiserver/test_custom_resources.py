"""CRDs: kinds that come and go, schemas, versions, subresources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from opsdk.testing.apiserver import ApiServer

Send = Callable[..., tuple[int, Any]]
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
NAME = "widgets.example.com"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
SPEC = {
    "type": "object",
    "properties": {
        "replicas": {"type": "integer", "minimum": 0, "default": 1},
        "size": {"type": "string", "enum": ["s", "m", "l"]},
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "count": {"type": "integer"}},
            },
        },
    },
}
STATUS = {"type": "object", "properties": {"ready": {"type": "boolean"}, "replicas": {"type": "integer"}}}


def crd(*, status: bool = True, scope: str = "Namespaced", **version: object) -> dict[str, Any]:
    subresources: dict[str, Any] = {}
    if status:
        subresources = {
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
        }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {
            "group": "example.com",
            "scope": scope,
            "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": subresources,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": SPEC, "status": STATUS}}},
                    **version,
                }
            ],
        },
    }


def widget(name: str = "w", **spec: object) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def installed(send: Send) -> None:
    code, created = send("POST", CRDS, crd())
    assert code == 201, created


@pytest.mark.usefixtures("installed")
def test_a_stored_crd_is_established_and_served(send: Send) -> None:
    _, stored = send("GET", f"{CRDS}/{NAME}")
    conditions = {each["type"]: each["status"] for each in stored["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    assert stored["status"]["storedVersions"] == ["v1"]
    assert stored["status"]["acceptedNames"]["listKind"] == "WidgetList"
    _, found = send("GET", WIDGETS)
    assert (found["kind"], found["items"]) == ("WidgetList", [])


def test_a_kind_is_not_served_before_its_crd_is_there(send: Send) -> None:
    assert send("GET", WIDGETS)[0] == 404


def test_a_crd_that_is_wrong_is_refused(send: Send) -> None:
    body = crd()
    body["metadata"]["name"] = "gadgets.example.com"
    code, status = send("POST", CRDS, body)
    assert (code, status["reason"]) == (422, "Invalid")


def test_a_crd_can_be_applied(send: Send) -> None:
    code, _ = send("PATCH", f"{CRDS}/{NAME}", crd(), content_type=APPLY, fieldManager="one")
    assert code == 201
    assert send("POST", WIDGETS, widget())[0] == 201


@pytest.mark.usefixtures("installed")
def test_objects_are_defaulted_and_pruned(send: Send) -> None:
    _, created = send("POST", WIDGETS, widget(unknown=1, size="s"))
    assert created["spec"] == {"size": "s", "replicas": 1}


@pytest.mark.usefixtures("installed")
def test_objects_are_validated(send: Send) -> None:
    code, status = send("POST", WIDGETS, widget(replicas=-1, size="xl"))
    assert (code, status["reason"], status["details"]["kind"]) == (422, "Invalid", "Widget")
    assert {cause["field"] for cause in status["details"]["causes"]} == {"spec.replicas", "spec.size"}
    send("POST", WIDGETS, widget())
    assert send("PATCH", f"{WIDGETS}/w", {"spec": {"size": "xl"}}, content_type=MERGE)[0] == 422


@pytest.mark.usefixtures("installed")
def test_unknown_fields_are_errors_when_the_client_is_strict(send: Send) -> None:
    code, status = send("POST", WIDGETS, widget(unknown=1), fieldValidation="Strict")
    assert code == 400
    assert 'unknown field "spec.unknown"' in status["message"]


@pytest.mark.usefixtures("installed")
def test_generation_counts_everything_but_metadata_and_status(send: Send) -> None:
    send("POST", WIDGETS, widget())
    _, labelled = send("PATCH", f"{WIDGETS}/w", {"metadata": {"labels": {"a": "b"}}}, content_type=MERGE)
    _, with_status = send("PATCH", f"{WIDGETS}/w/status", {"status": {"ready": True}}, content_type=MERGE)
    _, changed = send("PATCH", f"{WIDGETS}/w", {"spec": {"replicas": 2}}, content_type=MERGE)
    generations = [each["metadata"]["generation"] for each in (labelled, with_status, changed)]
    assert generations == [1, 1, 2]


@pytest.mark.usefixtures("installed")
def test_status_and_spec_have_their_own_endpoints(send: Send) -> None:
    _, created = send("POST", WIDGETS, {**widget(), "status": {"ready": True}})
    assert "status" not in created
    body = {"spec": {"replicas": 5}, "metadata": {"annotations": {"a": "b"}}, "status": {"ready": True}}
    _, after = send("PATCH", f"{WIDGETS}/w/status", body, content_type=MERGE)
    assert (after["spec"]["replicas"], after["status"], "annotations" in after["metadata"]) == (
        1,
        {"ready": True},
        False,
    )
    _, replaced = send("PUT", f"{WIDGETS}/w", {**after, "status": {"ready": False}})
    assert replaced == after


def test_without_a_status_subresource_status_is_a_field_like_others(send: Send) -> None:
    send("POST", CRDS, crd(status=False))
    _, created = send("POST", WIDGETS, {**widget(), "status": {"ready": True}})
    assert created["status"] == {"ready": True}
    _, changed = send("PATCH", f"{WIDGETS}/w", {"status": {"ready": False}}, content_type=MERGE)
    assert changed["metadata"]["generation"] == 2
    assert send("GET", f"{WIDGETS}/w/status")[0] == 404


@pytest.mark.usefixtures("installed")
def test_the_scale_of_a_custom_resource(send: Send) -> None:
    send("POST", WIDGETS, widget())
    assert send("PATCH", f"{WIDGETS}/w/scale", {"spec": {"replicas": 3}}, content_type=MERGE)[0] == 200
    assert send("GET", f"{WIDGETS}/w")[1]["spec"]["replicas"] == 3


@pytest.mark.usefixtures("installed")
def test_a_put_needs_a_version(send: Send) -> None:
    send("POST", WIDGETS, widget())
    code, status = send("PUT", f"{WIDGETS}/w", widget(replicas=2))
    assert code == 422
    assert status["message"] == (
        'widgets.example.com "w" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for '
        "an update"
    )


@pytest.mark.usefixtures("installed")
def test_strategic_merge_is_for_built_in_kinds(send: Send) -> None:
    send("POST", WIDGETS, widget())
    code, status = send("PATCH", f"{WIDGETS}/w", {}, content_type="application/strategic-merge-patch+json")
    assert (code, status["reason"]) == (415, "UnsupportedMediaType")


@pytest.mark.usefixtures("installed")
def test_items_of_a_list_have_their_kind(send: Send) -> None:
    send("POST", WIDGETS, widget())
    (item,) = send("GET", WIDGETS)[1]["items"]
    assert (item["apiVersion"], item["kind"]) == ("example.com/v1", "Widget")


@pytest.mark.usefixtures("installed")
def test_apply_merges_lists_by_the_schema_s_keys(send: Send) -> None:
    def apply(manager: str, *parts: object) -> Any:
        body = widget(parts=list(parts))
        code, after = send("PATCH", f"{WIDGETS}/w", body, content_type=APPLY, fieldManager=manager)
        assert code in {200, 201}, after
        return after

    apply("one", {"name": "a", "count": 1})
    after = apply("two", {"name": "b", "count": 2})
    assert [part["name"] for part in after["spec"]["parts"]] == ["a", "b"]
    (entry,) = [each for each in after["metadata"]["managedFields"] if each["manager"] == "two"]
    assert entry["fieldsV1"] == {"f:spec": {"f:parts": {'k:{"name":"b"}': {".": {}, "f:count": {}, "f:name": {}}}}}
    after = apply("one")
    assert [part["name"] for part in after["spec"]["parts"]] == ["b"]


def test_objects_of_one_version_are_seen_in_the_other(send: Send) -> None:
    body = crd()
    (first,) = body["spec"]["versions"]
    body["spec"]["versions"] = [first, {**first, "name": "v2", "storage": False}]
    send("POST", CRDS, body)
    send("POST", WIDGETS, widget())
    path = WIDGETS.replace("/v1/", "/v2/")
    _, seen = send("GET", f"{path}/w")
    assert seen["apiVersion"] == "example.com/v2"
    _, patched = send("PATCH", f"{path}/w", {"spec": {"replicas": 4}}, content_type=MERGE)
    assert (patched["apiVersion"], send("GET", f"{WIDGETS}/w")[1]["spec"]["replicas"]) == ("example.com/v2", 4)
    assert [item["apiVersion"] for item in send("GET", path)[1]["items"]] == ["example.com/v2"]


def test_a_version_that_is_no_longer_served_is_gone(send: Send) -> None:
    body = crd()
    (first,) = body["spec"]["versions"]
    body["spec"]["versions"] = [first, {**first, "name": "v2", "storage": False}]
    send("POST", CRDS, body)
    path = WIDGETS.replace("/v1/", "/v2/")
    assert send("GET", path)[0] == 200
    patch = [{"op": "replace", "path": "/spec/versions/1/served", "value": False}]
    assert send("PATCH", f"{CRDS}/{NAME}", patch, content_type="application/json-patch+json")[0] == 200
    assert (send("GET", path)[0], send("GET", WIDGETS)[0]) == (404, 200)


@pytest.mark.usefixtures("installed")
def test_m02_a_new_default_shows_in_stored_objects_without_a_write(send: Send, server: ApiServer) -> None:
    send("POST", WIDGETS, widget())
    before = send("GET", f"{WIDGETS}/w")[1]["metadata"]["resourceVersion"]
    path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/color"
    patch = [{"op": "add", "path": path, "value": {"type": "string", "default": "red"}}]
    assert send("PATCH", f"{CRDS}/{NAME}", patch, content_type="application/json-patch+json")[0] == 200
    _, seen = send("GET", f"{WIDGETS}/w")
    assert (seen["spec"]["color"], seen["metadata"]["resourceVersion"]) == ("red", before)
    assert send("GET", WIDGETS)[1]["items"][0]["spec"]["color"] == "red"


@pytest.mark.usefixtures("installed")
def test_deleting_a_crd_deletes_its_objects_and_waits_for_their_finalizers(send: Send) -> None:
    send("POST", WIDGETS, widget("free"))
    held = widget("held")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    send("POST", WIDGETS, held)
    send("DELETE", f"{CRDS}/{NAME}")
    assert send("GET", f"{WIDGETS}/free")[0] == 404
    assert send("GET", f"{CRDS}/{NAME}")[1]["metadata"]["deletionTimestamp"]
    send("PATCH", f"{WIDGETS}/held", {"metadata": {"finalizers": None}}, content_type=MERGE)
    assert send("GET", f"{CRDS}/{NAME}")[0] == 404
    assert send("GET", WIDGETS)[0] == 404


@pytest.mark.usefixtures("installed")
def test_a_crd_that_comes_back_serves_no_old_objects(send: Send) -> None:
    send("POST", WIDGETS, widget())
    send("DELETE", f"{CRDS}/{NAME}")
    send("POST", CRDS, crd())
    assert send("GET", WIDGETS)[1]["items"] == []


def test_a_cluster_scoped_kind_has_no_namespaces(send: Send) -> None:
    send("POST", CRDS, crd(scope="Cluster"))
    path = "/apis/example.com/v1/widgets"
    code, created = send("POST", path, widget())
    assert (code, "namespace" in created["metadata"]) == (201, False)
    assert send("GET", WIDGETS)[0] == 404


def test_selectable_fields(send: Send) -> None:
    send("POST", CRDS, crd(selectableFields=[{"jsonPath": ".spec.size"}]))
    send("POST", WIDGETS, widget("a", size="s"))
    send("POST", WIDGETS, widget("b", size="m"))
    _, found = send("GET", WIDGETS, fieldSelector="spec.size=m")
    assert [item["metadata"]["name"] for item in found["items"]] == ["b"]
    assert send("GET", WIDGETS, fieldSelector="spec.replicas=1")[0] == 400


@pytest.mark.usefixtures("installed")
def test_an_owner_of_a_custom_kind_has_its_children_collected(send: Send) -> None:
    _, owner = send("POST", WIDGETS, widget())
    reference = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": owner["metadata"]["uid"]}
    maps = "/api/v1/namespaces/default/configmaps"
    send("POST", maps, {"metadata": {"name": "child", "ownerReferences": [reference]}})
    send("DELETE", f"{WIDGETS}/w")
    assert send("GET", f"{maps}/child")[0] == 404
