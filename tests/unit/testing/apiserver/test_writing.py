"""Creates, updates, deletes: versions, generations, names, preconditions, finalizers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from opsdk.clock import ManualClock
from opsdk.testing.apiserver import ApiServer

Send = Callable[..., tuple[int, Any]]
MAPS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
MERGE = "application/merge-patch+json"


def config_map(name: str = "a", **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def deployment(name: str = "a") -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "web", "image": "nginx:1.27"}]},
            },
        },
    }


def test_resource_version_is_one_rising_counter_over_all_kinds(send: Send, server: ApiServer) -> None:
    _, first = send("POST", MAPS, config_map())
    _, second = send("POST", DEPLOYMENTS, deployment())
    send("DELETE", f"{MAPS}/a")
    _, third = send("POST", MAPS, config_map("b"))
    versions = [int(each["metadata"]["resourceVersion"]) for each in (first, second, third)]
    assert versions == [versions[0], versions[0] + 1, versions[0] + 3]
    assert server.resource_version == str(versions[2])


def test_a_write_that_changes_nothing_keeps_the_version_and_adds_no_history(send: Send, server: ApiServer) -> None:
    _, created = send("POST", MAPS, config_map(x="1"))
    before = server.resource_version
    code, replaced = send("PUT", f"{MAPS}/a", created)
    _, patched = send("PATCH", f"{MAPS}/a", {"data": {"x": "1"}}, content_type=MERGE)
    assert (code, replaced, patched) == (200, created, created)
    assert server.resource_version == before


def test_generation_rises_with_the_spec_only(send: Send) -> None:
    _, created = send("POST", DEPLOYMENTS, deployment())
    _, labelled = send("PATCH", f"{DEPLOYMENTS}/a", {"metadata": {"labels": {"x": "y"}}}, content_type=MERGE)
    _, scaled = send("PATCH", f"{DEPLOYMENTS}/a", {"spec": {"replicas": 3}}, content_type=MERGE)
    assert [each["metadata"]["generation"] for each in (created, labelled, scaled)] == [1, 1, 2]


def test_a_client_cannot_choose_generation(send: Send) -> None:
    send("POST", DEPLOYMENTS, deployment())
    _, patched = send("PATCH", f"{DEPLOYMENTS}/a", {"metadata": {"generation": 7}}, content_type=MERGE)
    assert patched["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("path", "body"),
    [(MAPS, config_map()), ("/api/v1/namespaces/default/secrets", {"apiVersion": "v1", "kind": "Secret"})],
)
def test_kinds_without_a_desired_state_have_no_generation(send: Send, path: str, body: dict[str, Any]) -> None:
    _, created = send("POST", path, {**body, "metadata": {"name": "a", "generation": 4}})
    assert "generation" not in created["metadata"]


def test_the_status_endpoint_writes_nothing_but_status(send: Send) -> None:
    send("POST", DEPLOYMENTS, deployment())
    sent = {"spec": {"replicas": 9}, "metadata": {"labels": {"x": "y"}}, "status": {"replicas": 4}}
    code, after = send("PATCH", f"{DEPLOYMENTS}/a/status", sent, content_type=MERGE)
    assert code == 200
    assert (after["spec"]["replicas"], after["status"]["replicas"]) == (1, 4)
    assert "labels" not in after["metadata"]
    assert after["metadata"]["generation"] == 1


def test_the_main_endpoint_does_not_write_status(send: Send) -> None:
    body = {**deployment(), "status": {"replicas": 7}}
    _, created = send("POST", DEPLOYMENTS, body)
    assert created["status"] == {}
    _, replaced = send("PUT", f"{DEPLOYMENTS}/a", {**created, "status": {"replicas": 7}})
    assert replaced == created


def test_a_stale_version_is_a_conflict(send: Send) -> None:
    _, created = send("POST", MAPS, config_map(x="1"))
    send("PATCH", f"{MAPS}/a", {"data": {"x": "2"}}, content_type=MERGE)
    code, status = send("PUT", f"{MAPS}/a", {**created, "data": {"x": "3"}})
    assert (code, status["reason"]) == (409, "Conflict")
    assert status["message"] == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; please apply your changes to '
        "the latest version and try again"
    )
    assert status["details"] == {"name": "a", "kind": "configmaps"}


def test_a_patch_with_a_stale_version_is_a_conflict(send: Send) -> None:
    _, created = send("POST", MAPS, config_map(x="1"))
    send("PATCH", f"{MAPS}/a", {"data": {"x": "2"}}, content_type=MERGE)
    stale = {"metadata": {"resourceVersion": created["metadata"]["resourceVersion"]}, "data": {"x": "3"}}
    code, status = send("PATCH", f"{MAPS}/a", stale, content_type=MERGE)
    assert (code, status["reason"]) == (409, "Conflict")


def test_an_existing_name_is_already_exists(send: Send) -> None:
    send("POST", MAPS, config_map())
    code, status = send("POST", MAPS, config_map())
    assert (code, status["reason"], status["message"]) == (409, "AlreadyExists", 'configmaps "a" already exists')


def test_a_version_on_create_is_a_bad_request(send: Send) -> None:
    body = config_map()
    body["metadata"]["resourceVersion"] = "5"
    code, status = send("POST", MAPS, body)
    assert (code, status["message"]) == (400, "resourceVersion should not be set on objects to be created")


def test_a_missing_name_is_invalid(send: Send) -> None:
    code, status = send("POST", MAPS, {"apiVersion": "v1", "kind": "ConfigMap"})
    assert (code, status["reason"]) == (422, "Invalid")
    assert status["details"]["causes"] == [
        {
            "reason": "FieldValueRequired",
            "message": "Required value: name or generateName is required",
            "field": "metadata.name",
        }
    ]
    assert status["message"] == (
        'ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required'
    )


def test_generate_name_makes_distinct_names(send: Send) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x-"}}
    names = {send("POST", MAPS, body)[1]["metadata"]["name"] for _ in range(20)}
    assert len(names) == 20
    assert all(name.startswith("x-") and len(name) == 7 for name in names)


@pytest.mark.parametrize("name", ["UPPER", "a_b", "-a", "a" * 254])
def test_a_name_that_is_no_subdomain_is_invalid(send: Send, name: str) -> None:
    code, status = send("POST", MAPS, config_map(name))
    assert (code, status["details"]["causes"][0]["field"]) == (422, "metadata.name")


def test_a_put_of_a_name_that_is_not_there_is_not_found_for_most_kinds(send: Send) -> None:
    code, status = send("PUT", f"{MAPS}/a", config_map())
    assert (code, status["reason"]) == (404, "NotFound")


def test_a_put_creates_a_lease(send: Send) -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/x"
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "x"}}
    code, created = send("PUT", path, body)
    assert (code, created["metadata"]["name"]) == (201, "x")


def test_a_put_without_a_version_is_refused_for_kinds_that_ask_for_one(send: Send) -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "x"}}
    send("POST", path, body)
    code, status = send("PUT", f"{path}/x", body)
    assert (code, status["details"]["causes"][0]["field"]) == (422, "metadata.resourceVersion")


def test_uid_and_name_and_creation_time_do_not_change(send: Send, clock: ManualClock) -> None:
    _, created = send("POST", MAPS, config_map())
    clock.advance(timedelta(hours=1))
    sent = {"metadata": {"creationTimestamp": "2030-01-01T00:00:00Z"}, "data": {"x": "1"}}
    _, patched = send("PATCH", f"{MAPS}/a", sent, content_type=MERGE)
    assert (
        patched["metadata"]["creationTimestamp"] == created["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"
    )
    code, status = send("PATCH", f"{MAPS}/a", {"metadata": {"uid": "other"}}, content_type=MERGE)
    assert (code, status["details"]["causes"][0]["field"]) == (422, "metadata.uid")
    code, status = send("PATCH", f"{MAPS}/a", {"metadata": {"name": "b"}}, content_type=MERGE)
    assert (code, status["message"]) == (400, "the name of the object (b) does not match the name on the URL (a)")
    replacement = config_map()
    replacement["metadata"]["uid"] = "other"
    code, status = send("PUT", f"{MAPS}/a", replacement)
    assert (code, status["reason"]) == (409, "Conflict")
    code, status = send("PUT", f"{MAPS}/a", config_map("b"))
    assert (code, status["message"]) == (400, "the name of the object (b) does not match the name on the URL (a)")


def test_a_namespace_that_is_not_the_path_s_is_a_bad_request(send: Send) -> None:
    body = config_map()
    body["metadata"]["namespace"] = "kube-system"
    code, status = send("POST", MAPS, body)
    assert code == 400
    assert "does not match the namespace sent on the request" in status["message"]


def test_dry_run_answers_as_if_and_changes_nothing(send: Send, server: ApiServer) -> None:
    before = server.resource_version
    code, created = send("POST", MAPS, config_map(), dryRun="All")
    assert (code, "resourceVersion" in created["metadata"]) == (201, False)
    assert created["metadata"]["uid"]
    assert server.resource_version == before
    send("POST", MAPS, config_map())
    _, patched = send("PATCH", f"{MAPS}/a", {"data": {"x": "1"}}, content_type=MERGE, dryRun="All")
    assert patched["data"] == {"x": "1"}
    assert send("DELETE", f"{MAPS}/a", dryRun="All")[0] == 200
    assert "data" not in send("GET", f"{MAPS}/a")[1] or not send("GET", f"{MAPS}/a")[1]["data"]


def test_delete_answers_with_a_status_that_names_what_went(send: Send) -> None:
    _, created = send("POST", DEPLOYMENTS, deployment())
    code, status = send("DELETE", f"{DEPLOYMENTS}/a")
    assert (code, status["kind"], status["status"]) == (200, "Status", "Success")
    assert status["details"] == {
        "name": "a",
        "group": "apps",
        "kind": "deployments",
        "uid": created["metadata"]["uid"],
    }
    assert send("DELETE", f"{DEPLOYMENTS}/a")[0] == 404


def test_delete_answers_with_the_object_while_finalizers_hold_it(send: Send, clock: ManualClock) -> None:
    body = deployment()
    body["metadata"]["finalizers"] = ["example.com/hold"]
    send("POST", DEPLOYMENTS, body)
    clock.advance(timedelta(seconds=5))
    code, lingering = send("DELETE", f"{DEPLOYMENTS}/a")
    assert (code, lingering["kind"]) == (200, "Deployment")
    metadata = lingering["metadata"]
    assert (metadata["deletionTimestamp"], metadata["deletionGracePeriodSeconds"]) == ("2026-01-01T00:00:05Z", 0)
    assert metadata["generation"] == 2
    version = metadata["resourceVersion"]
    assert send("DELETE", f"{DEPLOYMENTS}/a")[1]["metadata"]["resourceVersion"] == version


def test_removing_the_last_finalizer_of_a_deleted_object_deletes_it(send: Send) -> None:
    body = config_map()
    body["metadata"]["finalizers"] = ["example.com/one", "example.com/two"]
    send("POST", MAPS, body)
    send("DELETE", f"{MAPS}/a")
    send("PATCH", f"{MAPS}/a", {"metadata": {"finalizers": ["example.com/two"]}}, content_type=MERGE)
    assert send("GET", f"{MAPS}/a")[0] == 200
    code, last = send("PATCH", f"{MAPS}/a", {"metadata": {"finalizers": None}}, content_type=MERGE)
    assert (code, last["metadata"]["name"]) == (200, "a")
    assert send("GET", f"{MAPS}/a")[0] == 404


def test_removing_finalizers_of_an_object_that_is_not_deleted_keeps_it(send: Send) -> None:
    body = config_map()
    body["metadata"]["finalizers"] = ["example.com/one"]
    send("POST", MAPS, body)
    send("PATCH", f"{MAPS}/a", {"metadata": {"finalizers": []}}, content_type=MERGE)
    assert send("GET", f"{MAPS}/a")[0] == 200


def test_no_finalizer_can_be_added_while_deleting(send: Send) -> None:
    body = config_map()
    body["metadata"]["finalizers"] = ["example.com/one"]
    send("POST", MAPS, body)
    send("DELETE", f"{MAPS}/a")
    patch = {"metadata": {"finalizers": ["example.com/one", "example.com/two"]}}
    code, status = send("PATCH", f"{MAPS}/a", patch, content_type=MERGE)
    assert code == 422
    assert status["details"]["causes"] == [
        {
            "reason": "FieldValueForbidden",
            "message": "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers "
            '[]string{"example.com/two"}',
            "field": "metadata.finalizers",
        }
    ]


def test_a_client_can_neither_set_nor_clear_the_deletion_timestamp(send: Send) -> None:
    body = config_map()
    body["metadata"] |= {"finalizers": ["example.com/one"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    _, created = send("POST", MAPS, body)
    assert "deletionTimestamp" not in created["metadata"]
    setting = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert send("PATCH", f"{MAPS}/a", setting, content_type=MERGE)[0] == 422
    send("DELETE", f"{MAPS}/a")
    clearing = {"metadata": {"deletionTimestamp": None, "deletionGracePeriodSeconds": None}, "data": {"x": "1"}}
    _, patched = send("PATCH", f"{MAPS}/a", clearing, content_type=MERGE)
    assert patched["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize("precondition", [{"uid": "another"}, {"resourceVersion": "1"}])
def test_a_delete_whose_precondition_fails_is_a_conflict(send: Send, precondition: dict[str, str]) -> None:
    send("POST", MAPS, config_map())
    body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": precondition}
    code, status = send("DELETE", f"{MAPS}/a", body)
    assert (code, status["reason"]) == (409, "Conflict")
    assert "in the precondition" in status["message"]
    assert send("GET", f"{MAPS}/a")[0] == 200


def test_a_delete_whose_preconditions_hold_goes_through(send: Send) -> None:
    _, created = send("POST", MAPS, config_map())
    metadata = created["metadata"]
    preconditions = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    assert send("DELETE", f"{MAPS}/a", {"preconditions": preconditions})[0] == 200


def test_delete_collection_deletes_what_is_selected_and_answers_with_it(send: Send) -> None:
    for name, app in (("a", "x"), ("b", "x"), ("c", "y")):
        body = config_map(name)
        body["metadata"]["labels"] = {"app": app}
        send("POST", MAPS, body)
    code, gone = send("DELETE", MAPS, labelSelector="app=x")
    assert (code, [item["metadata"]["name"] for item in gone["items"]]) == (200, ["a", "b"])
    assert [item["metadata"]["name"] for item in send("GET", MAPS)[1]["items"]] == ["c"]


def test_a_scheduled_pod_lingers_for_its_grace_period(send: Send) -> None:
    pods = "/api/v1/namespaces/default/pods"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
    }
    send("POST", pods, pod)
    _, lingering = send("DELETE", f"{pods}/p")
    assert lingering["metadata"]["deletionGracePeriodSeconds"] == 30
    assert lingering["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:30Z"
    code, last = send("DELETE", f"{pods}/p", gracePeriodSeconds=0)
    assert (code, last["kind"]) == (200, "Pod")
    assert send("GET", f"{pods}/p")[0] == 404


def test_a_pod_without_a_node_goes_at_once(send: Send) -> None:
    pods = "/api/v1/namespaces/default/pods"
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    send("POST", pods, pod)
    _, last = send("DELETE", f"{pods}/p")
    assert (last["metadata"]["deletionGracePeriodSeconds"], last["metadata"]["generation"]) == (0, 2)
    assert send("GET", f"{pods}/p")[0] == 404


def test_metadata_keeps_known_fields_only_and_nothing_empty(send: Send) -> None:
    body = config_map()
    body["metadata"] |= {"labels": {}, "annotations": None, "finalizers": [], "unknown": 1}
    _, created = send("POST", MAPS, body)
    assert not {"labels", "annotations", "finalizers", "unknown"} & created["metadata"].keys()


def test_a_label_that_is_no_string_is_a_bad_request(send: Send) -> None:
    body = config_map()
    body["metadata"]["labels"] = {"x": 1}
    code, status = send("POST", MAPS, body)
    assert code == 400
    assert "cannot unmarshal number" in status["message"]


def test_unknown_fields_of_custom_and_built_in_objects_do_not_break_a_write(send: Send) -> None:
    _, created = send("POST", DEPLOYMENTS, deployment())
    created["spec"]["fieldOfTheFuture"] = {"a": 1}
    assert send("PUT", f"{DEPLOYMENTS}/a", created)[1]["spec"]["fieldOfTheFuture"] == {"a": 1}


def test_the_scale_subresource_reads_and_writes_replicas(send: Send) -> None:
    send("POST", DEPLOYMENTS, deployment())
    _, scale = send("GET", f"{DEPLOYMENTS}/a/scale")
    assert (scale["kind"], scale["spec"], scale["status"]) == (
        "Scale",
        {"replicas": 1},
        {"replicas": 0, "selector": "app=a"},
    )
    scale["spec"]["replicas"] = 4
    assert send("PUT", f"{DEPLOYMENTS}/a/scale", scale)[1]["spec"] == {"replicas": 4}
    _, patched = send("PATCH", f"{DEPLOYMENTS}/a/scale", {"spec": {"replicas": 5}}, content_type=MERGE)
    assert patched["spec"] == {"replicas": 5}
    _, after = send("GET", f"{DEPLOYMENTS}/a")
    assert (after["spec"]["replicas"], after["metadata"]["generation"]) == (5, 3)
    stale = send("PUT", f"{DEPLOYMENTS}/a/scale", scale)
    assert stale[0] == 409


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/apis/nothing.example.com/v1/things", 404),
        ("GET", "/api/v1/namespaces/default/things", 404),
        ("GET", f"{MAPS}/a/status", 404),
        ("PUT", MAPS, 405),
        ("PATCH", MAPS, 405),
        ("POST", f"{MAPS}/a", 405),
        ("DELETE", f"{DEPLOYMENTS}/a/status", 405),
    ],
)
def test_paths_and_methods_that_do_not_exist(send: Send, method: str, path: str, code: int) -> None:
    assert send(method, path, config_map())[0] == code


def test_a_body_that_is_not_json_is_a_bad_request(send: Send) -> None:
    assert send("POST", MAPS, b"{nope")[0] == 400
    assert send("POST", MAPS, b"[]")[0] == 400


def test_a_body_of_another_media_type_is_refused(send: Send) -> None:
    code, status = send("POST", MAPS, config_map(), content_type="text/plain")
    assert (code, status["reason"]) == (415, "UnsupportedMediaType")


def test_a_body_of_another_kind_is_a_bad_request(send: Send) -> None:
    assert send("POST", MAPS, deployment())[0] == 400
    assert send("POST", DEPLOYMENTS, {**deployment(), "apiVersion": "apps/v1beta1"})[0] == 400


def test_the_client_accepts_nothing_that_can_be_written(send: Send) -> None:
    assert send("GET", MAPS, accept="text/html")[0] == 406
    assert send("GET", MAPS, accept="application/vnd.kubernetes.protobuf,application/json")[0] == 200


def test_reviews_allow_everything(send: Send) -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    body: dict[str, Any] = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {}}
    code, review = send("POST", path, body)
    assert (code, review["status"]["allowed"]) == (201, True)


def test_core_and_new_events_are_the_same_objects(send: Send) -> None:
    core = "/api/v1/namespaces/default/events"
    new = "/apis/events.k8s.io/v1/namespaces/default/events"
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
        "message": "hello",
        "type": "Normal",
    }
    assert send("POST", core, event)[0] == 201
    _, seen = send("GET", f"{new}/e")
    assert (seen["apiVersion"], seen["note"], seen["regarding"]["name"]) == ("events.k8s.io/v1", "hello", "p")
    assert "message" not in seen
    _, found = send("GET", new, fieldSelector="regarding.name=p")
    assert len(found["items"]) == 1
