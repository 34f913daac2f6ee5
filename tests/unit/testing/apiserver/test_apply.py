"""Server-side apply and managed fields."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from opsdk.clock import ManualClock
from opsdk.testing.apiserver import ApiServer

Send = Callable[..., tuple[int, Any]]
MAPS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"


def apply_map(send: Send, manager: str, *, force: bool = False, dry: bool = False, **data: str) -> tuple[int, Any]:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}
    query = {"fieldManager": manager}
    if force:
        query["force"] = "true"
    if dry:
        query["dryRun"] = "All"
    return send("PATCH", f"{MAPS}/a", body, content_type=APPLY, **query)


def apply_deployment(send: Send, manager: str, spec: object, **query: str) -> tuple[int, Any]:
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": spec}
    return send("PATCH", f"{DEPLOYMENTS}/a", body, content_type=APPLY, fieldManager=manager, **query)


def template(*containers: object) -> dict[str, Any]:
    return {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": list(containers)}}


def whole(*containers: object) -> dict[str, Any]:
    return {"selector": {"matchLabels": {"app": "a"}}, "template": template(*containers)}


def owned(obj: dict[str, Any], manager: str, operation: str = "Apply") -> Any:
    entries = [
        entry
        for entry in obj["metadata"].get("managedFields", [])
        if (entry["manager"], entry["operation"]) == (manager, operation)
    ]
    assert len(entries) <= 1
    return entries[0]["fieldsV1"] if entries else None


def test_apply_creates_and_owns_what_it_sent(send: Send) -> None:
    code, created = apply_map(send, "one", x="1")
    assert (code, created["data"]) == (201, {"x": "1"})
    assert created["metadata"]["managedFields"] == [
        {
            "manager": "one",
            "operation": "Apply",
            "apiVersion": "v1",
            "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:x": {}}},
        }
    ]


def test_applying_the_same_again_writes_nothing(send: Send, server: ApiServer, clock: ManualClock) -> None:
    _, created = apply_map(send, "one", x="1")
    before = server.resource_version
    clock.advance(timedelta(hours=1))
    code, again = apply_map(send, "one", x="1")
    assert (code, again, server.resource_version) == (200, created, before)


def test_what_is_no_longer_applied_goes(send: Send) -> None:
    apply_map(send, "one", x="1", y="2")
    _, after = apply_map(send, "one", y="2")
    assert after["data"] == {"y": "2"}


def test_what_is_no_longer_applied_stays_while_another_owns_it(send: Send) -> None:
    apply_map(send, "one", x="1", y="2")
    code, _ = apply_map(send, "two", x="1")
    assert code == 200, "the same value is shared, no conflict"
    _, after = apply_map(send, "one", y="2")
    assert after["data"] == {"x": "1", "y": "2"}
    assert owned(after, "two") == {"f:data": {"f:x": {}}}
    _, last = apply_map(send, "two")
    assert last["data"] == {"y": "2"}


def test_another_value_is_a_conflict_that_names_the_manager_and_the_field(send: Send) -> None:
    apply_map(send, "one", x="1")
    code, status = apply_map(send, "two", x="2")
    assert (code, status["reason"]) == (409, "Conflict")
    assert status["message"] == 'Apply failed with 1 conflict: conflict with "one": .data.x'
    assert status["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.x"}
    ]
    assert send("GET", f"{MAPS}/a")[1]["data"] == {"x": "1"}


def test_several_conflicts_are_listed_by_manager(send: Send) -> None:
    apply_map(send, "one", x="1")
    send("PATCH", f"{MAPS}/a", {"data": {"y": "1", "z": "1"}}, content_type=MERGE, fieldManager="editor")
    _, status = apply_map(send, "two", x="2", y="2", z="2")
    assert status["message"] == (
        'Apply failed with 3 conflicts: conflicts with "editor" using v1:\n'
        '- .data.y\n- .data.z\nconflicts with "one":\n- .data.x'
    )


def test_force_takes_over(send: Send) -> None:
    apply_map(send, "one", x="1", y="1")
    code, after = apply_map(send, "two", force=True, x="2")
    assert (code, after["data"]) == (200, {"x": "2", "y": "1"})
    assert owned(after, "one") == {"f:data": {"f:y": {}}}
    assert owned(after, "two") == {"f:data": {"f:x": {}}}


def test_an_update_takes_fields_from_the_applier_and_the_next_apply_conflicts(send: Send) -> None:
    apply_map(send, "one", x="1")
    _, edited = send("PATCH", f"{MAPS}/a", {"data": {"x": "2"}}, content_type=MERGE, agent="kubectl/v1.37")
    assert owned(edited, "one") is None
    assert owned(edited, "kubectl", "Update") == {"f:data": {"f:x": {}}}
    assert apply_map(send, "one", x="1")[0] == 409
    assert apply_map(send, "one", force=True, x="1")[1]["data"] == {"x": "1"}


def test_an_update_of_other_fields_leaves_the_applier_s_alone(send: Send) -> None:
    apply_map(send, "one", x="1")
    _, edited = send("PATCH", f"{MAPS}/a", {"data": {"y": "2"}}, content_type=MERGE, fieldManager="editor")
    assert owned(edited, "one") == {"f:data": {"f:x": {}}}
    assert apply_map(send, "one", x="3")[1]["data"] == {"x": "3", "y": "2"}


def test_a_removed_field_is_owned_by_nobody(send: Send) -> None:
    apply_map(send, "one", x="1", y="1")
    _, edited = send("PATCH", f"{MAPS}/a", {"data": {"x": None}}, content_type=MERGE, fieldManager="editor")
    assert owned(edited, "one") == {"f:data": {"f:y": {}}}
    assert owned(edited, "editor", "Update") is None


def test_list_items_are_owned_by_their_keys(send: Send) -> None:
    web = {"name": "web", "image": "nginx:1", "ports": [{"containerPort": 80}]}
    code, created = apply_deployment(send, "one", whole(web))
    assert code == 201, created
    fields = owned(created, "one")
    containers = fields["f:spec"]["f:template"]["f:spec"]["f:containers"]
    assert containers == {
        'k:{"name":"web"}': {
            ".": {},
            "f:image": {},
            "f:name": {},
            "f:ports": {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}},
        }
    }
    assert fields["f:spec"]["f:selector"] == {}


def test_two_managers_apply_containers_of_one_list(send: Send) -> None:
    apply_deployment(send, "one", whole({"name": "web", "image": "nginx:1"}))
    spec = {"template": {"spec": {"containers": [{"name": "side", "image": "envoy:1"}]}}}
    code, after = apply_deployment(send, "two", spec)
    assert code == 200, after
    names = [container["name"] for container in after["spec"]["template"]["spec"]["containers"]]
    assert names == ["web", "side"]
    _, after = apply_deployment(send, "two", {"template": {"spec": {"containers": []}}})
    assert [c["name"] for c in after["spec"]["template"]["spec"]["containers"]] == ["web"]
    code, status = apply_deployment(send, "two", {"template": template({"name": "web", "image": "nginx:9"})})
    assert code == 409
    assert status["details"]["causes"][0]["field"] == '.spec.template.spec.containers[name="web"].image'


def test_applying_less_removes_a_field_of_a_list_item_and_defaults_come_back(send: Send) -> None:
    policy = {"name": "web", "image": "nginx:1", "imagePullPolicy": "Always", "command": ["x"]}
    apply_deployment(send, "one", whole(policy))
    _, after = apply_deployment(send, "one", whole({"name": "web", "image": "nginx:1"}))
    (web,) = after["spec"]["template"]["spec"]["containers"]
    assert web["imagePullPolicy"] == "IfNotPresent"
    assert "command" not in web


def test_what_the_server_filled_in_stays_and_is_no_difference(send: Send, server: ApiServer) -> None:
    spec = whole({"name": "web", "image": "nginx:1", "ports": [{"containerPort": 80}]})
    _, created = apply_deployment(send, "one", spec)
    before = server.resource_version
    code, again = apply_deployment(send, "one", spec)
    assert (code, again, server.resource_version) == (200, created, before)


def test_finalizers_are_a_set_of_which_each_member_is_owned(send: Send) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "finalizers": ["example.com/one"]}}
    send("POST", MAPS, body)
    body["metadata"] = {"name": "a", "finalizers": ["example.com/two"]}
    _, after = send("PATCH", f"{MAPS}/a", body, content_type=APPLY, fieldManager="two")
    assert set(after["metadata"]["finalizers"]) == {"example.com/one", "example.com/two"}
    assert owned(after, "two") == {"f:metadata": {"f:finalizers": {'v:"example.com/two"': {}}}}
    body["metadata"] = {"name": "a"}
    _, after = send("PATCH", f"{MAPS}/a", body, content_type=APPLY, fieldManager="two")
    assert after["metadata"]["finalizers"] == ["example.com/one"]


def test_status_is_applied_through_its_endpoint_only(send: Send) -> None:
    apply_deployment(send, "one", whole({"name": "web", "image": "nginx:1"}))
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "a", "labels": {"x": "y"}},
        "spec": {"replicas": 5},
        "status": {"replicas": 2},
    }
    code, after = send("PATCH", f"{DEPLOYMENTS}/a/status", body, content_type=APPLY, fieldManager="two")
    assert code == 200, after
    assert (after["spec"]["replicas"], after["status"], "labels" in after["metadata"]) == (1, {"replicas": 2}, False)
    (entry,) = [each for each in after["metadata"]["managedFields"] if each["manager"] == "two"]
    assert (entry["subresource"], entry["fieldsV1"]) == ("status", {"f:status": {"f:replicas": {}}})
    code, _ = send("PATCH", f"{DEPLOYMENTS}/b/status", body | {"metadata": {}}, content_type=APPLY, fieldManager="x")
    assert code == 404


def test_a_version_in_an_apply_is_a_precondition(send: Send) -> None:
    apply_map(send, "one", x="1")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "resourceVersion": "1"}}
    code, status = send("PATCH", f"{MAPS}/a", body, content_type=APPLY, fieldManager="one")
    assert (code, status["reason"]) == (409, "Conflict")


def test_apply_needs_a_field_manager(send: Send) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap"}
    code, status = send("PATCH", f"{MAPS}/a", body, content_type=APPLY)
    assert (code, status["details"]["causes"][0]["field"]) == (422, "fieldManager")


def test_force_belongs_to_apply(send: Send) -> None:
    apply_map(send, "one", x="1")
    code, _ = send("PATCH", f"{MAPS}/a", {}, content_type=MERGE, force="true")
    assert code == 422


def test_apply_takes_yaml(send: Send) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  x: '1'\n"
    code, created = send("PATCH", f"{MAPS}/a", body, content_type=APPLY, fieldManager="one")
    assert (code, created["data"]) == (201, {"x": "1"})
    code, _ = send("PATCH", f"{MAPS}/a", b"a: b: c", content_type=APPLY, fieldManager="one")
    assert code == 400


def test_apply_refuses_managed_fields(send: Send) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"managedFields": [{"manager": "x"}]}}
    assert send("PATCH", f"{MAPS}/a", body, content_type=APPLY, fieldManager="one")[0] == 400


def test_a_dry_run_apply_changes_nothing(send: Send, server: ApiServer) -> None:
    apply_map(send, "one", x="1")
    before = server.resource_version
    assert apply_map(send, "one", dry=True, x="2")[1]["data"] == {"x": "2"}
    assert server.resource_version == before


def test_creates_and_updates_are_recorded_by_user_agent_or_field_manager(send: Send, clock: ManualClock) -> None:
    send("POST", MAPS, {"metadata": {"name": "a", "labels": {"l": "1"}}, "data": {"x": "1"}}, agent="op/1.2 (linux)")
    clock.advance(timedelta(seconds=1))
    _, after = send("PATCH", f"{MAPS}/a", {"data": {"y": "1"}}, content_type=MERGE, fieldManager="named")
    assert owned(after, "op", "Update") == {
        "f:data": {".": {}, "f:x": {}},
        "f:metadata": {"f:labels": {".": {}, "f:l": {}}},
    }
    assert owned(after, "named", "Update") == {"f:data": {"f:y": {}}}
    times = {entry["manager"]: entry["time"] for entry in after["metadata"]["managedFields"]}
    assert times == {"op": "2026-01-01T00:00:00Z", "named": "2026-01-01T00:00:01Z"}


def test_an_empty_list_of_managed_fields_resets_them(send: Send) -> None:
    _, created = apply_map(send, "one", x="1")
    created["metadata"]["managedFields"] = [{}]
    created["data"]["y"] = "1"
    _, after = send("PUT", f"{MAPS}/a", created, fieldManager="editor")
    assert [entry["manager"] for entry in after["metadata"]["managedFields"]] == ["editor"]


def test_what_the_server_decides_is_owned_by_nobody(send: Send) -> None:
    services = "/api/v1/namespaces/default/services"
    _, service = send("POST", services, {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})
    assert set(owned(service, "tests", "Update")["f:spec"]) == {
        "f:internalTrafficPolicy",
        "f:ports",
        "f:sessionAffinity",
        "f:type",
    }
    _, created = send("POST", DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": whole({"name": "c", "image": "i"})})
    assert set(owned(created, "tests", "Update")) == {"f:spec"}
