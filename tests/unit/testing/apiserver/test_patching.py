"""The four kinds of patch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Send = Callable[..., tuple[int, Any]]
MAPS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


@pytest.fixture
def deployed(send: Send) -> dict[str, Any]:
    body: dict[str, Any] = {
        "metadata": {"name": "a", "finalizers": ["example.com/one"]},
        "spec": {
            "selector": {"matchLabels": {"app": "a"}},
            "template": {
                "metadata": {"labels": {"app": "a"}},
                "spec": {
                    "containers": [
                        {
                            "name": "web",
                            "image": "nginx:1",
                            "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}],
                            "ports": [{"containerPort": 80}],
                            "args": ["a", "b"],
                        },
                        {"name": "side", "image": "envoy:1"},
                    ],
                    "tolerations": [{"key": "k", "operator": "Exists"}],
                    "volumes": [{"name": "tmp", "emptyDir": {}}],
                },
            },
        },
    }
    code, created = send("POST", DEPLOYMENTS, body)
    assert code == 201, created
    result: dict[str, Any] = created
    return result


def pod_spec(answer: tuple[int, Any]) -> Any:
    assert answer[0] == 200, answer
    return answer[1]["spec"]["template"]["spec"]


def strategic(send: Send, spec: object) -> tuple[int, Any]:
    return send("PATCH", f"{DEPLOYMENTS}/a", {"spec": {"template": {"spec": spec}}}, content_type=STRATEGIC)


def test_merge_sets_removes_and_replaces_lists(send: Send, deployed: dict[str, Any]) -> None:
    patch = {"spec": {"replicas": 2, "template": {"spec": {"tolerations": None, "volumes": [{"name": "other"}]}}}}
    spec = pod_spec(send("PATCH", f"{DEPLOYMENTS}/a", patch, content_type=MERGE))
    assert "tolerations" not in spec
    assert spec["volumes"] == [{"name": "other", "emptyDir": {}}]
    assert len(spec["containers"]) == 2


def test_json_patch_operations(send: Send) -> None:
    send("POST", MAPS, {"metadata": {"name": "a", "annotations": {"x/y": "1"}}, "data": {"a": "1", "b": "2"}})
    operations = [
        {"op": "test", "path": "/data/a", "value": "1"},
        {"op": "replace", "path": "/data/a", "value": "3"},
        {"op": "remove", "path": "/data/b"},
        {"op": "add", "path": "/metadata/annotations/c~1d", "value": "4"},
        {"op": "copy", "from": "/data/a", "path": "/data/e"},
        {"op": "move", "from": "/metadata/annotations/x~1y", "path": "/metadata/annotations/z"},
    ]
    code, patched = send("PATCH", f"{MAPS}/a", operations, content_type=JSON)
    assert (code, patched["data"]) == (200, {"a": "3", "e": "3"})
    assert patched["metadata"]["annotations"] == {"z": "1", "c/d": "4"}


def test_json_patch_on_list_items(send: Send, deployed: dict[str, Any]) -> None:
    base = "/spec/template/spec/containers"
    operations = [
        {"op": "test", "path": f"{base}/0/name", "value": "web"},
        {"op": "add", "path": f"{base}/-", "value": {"name": "third", "image": "i"}},
        {"op": "remove", "path": f"{base}/1"},
        {"op": "add", "path": f"{base}/0/args/0", "value": "first"},
    ]
    spec = pod_spec(send("PATCH", f"{DEPLOYMENTS}/a", operations, content_type=JSON))
    assert [container["name"] for container in spec["containers"]] == ["web", "third"]
    assert spec["containers"][0]["args"] == ["first", "a", "b"]


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/data/a", "value": "2"},
        {"op": "test", "path": "/data/missing", "value": "1"},
        {"op": "remove", "path": "/data/missing"},
        {"op": "replace", "path": "/data/missing", "value": "1"},
        {"op": "add", "path": "/nothing/here", "value": "1"},
        {"op": "jump", "path": "/data/a"},
    ],
)
def test_a_json_patch_that_does_not_fit_is_invalid_and_changes_nothing(send: Send, operation: dict[str, str]) -> None:
    _, created = send("POST", MAPS, {"metadata": {"name": "a"}, "data": {"a": "1"}})
    operations = [{"op": "add", "path": "/data/new", "value": "1"}, operation]
    code, status = send("PATCH", f"{MAPS}/a", operations, content_type=JSON)
    assert (code, status["reason"]) == (422, "Invalid")
    assert send("GET", f"{MAPS}/a")[1] == created


def test_a_json_patch_test_of_a_missing_value_against_null_holds(send: Send) -> None:
    send("POST", MAPS, {"metadata": {"name": "a"}, "data": {"a": "1"}})
    operations = [{"op": "test", "path": "/data/missing", "value": None}]
    assert send("PATCH", f"{MAPS}/a", operations, content_type=JSON)[0] == 200


def test_a_json_patch_that_is_no_list_is_a_bad_request(send: Send) -> None:
    send("POST", MAPS, {"metadata": {"name": "a"}})
    assert send("PATCH", f"{MAPS}/a", {"op": "add"}, content_type=JSON)[0] == 400
    assert send("PATCH", f"{MAPS}/a", b"[]", content_type=MERGE)[0] == 400


def test_strategic_merges_lists_by_key(send: Send, deployed: dict[str, Any]) -> None:
    spec = pod_spec(
        strategic(
            send,
            {
                "containers": [
                    {"name": "web", "image": "nginx:2", "env": [{"name": "Y", "value": "3"}], "args": ["c"]}
                ],
                "volumes": [{"name": "new", "emptyDir": dict[str, str]()}],
            },
        )
    )
    web, side = spec["containers"]
    assert (web["image"], web["args"], side["name"]) == ("nginx:2", ["c"], "side")
    assert web["env"] == [{"name": "X", "value": "1"}, {"name": "Y", "value": "3"}]
    assert {volume["name"] for volume in spec["volumes"]} == {"tmp", "new"}


def test_strategic_replaces_lists_without_a_key(send: Send, deployed: dict[str, Any]) -> None:
    spec = pod_spec(strategic(send, {"tolerations": [{"key": "other", "operator": "Exists"}]}))
    assert [toleration["key"] for toleration in spec["tolerations"]] == ["other"]


def test_strategic_deletes_items_and_primitives(send: Send, deployed: dict[str, Any]) -> None:
    spec = pod_spec(strategic(send, {"containers": [{"name": "side", "$patch": "delete"}]}))
    assert [container["name"] for container in spec["containers"]] == ["web"]
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/one"]}}
    _, after = send("PATCH", f"{DEPLOYMENTS}/a", patch, content_type=STRATEGIC)
    assert "finalizers" not in after["metadata"]


def test_strategic_adds_finalizers_to_the_others(send: Send, deployed: dict[str, Any]) -> None:
    patch = {"metadata": {"finalizers": ["example.com/two"]}}
    _, after = send("PATCH", f"{DEPLOYMENTS}/a", patch, content_type=STRATEGIC)
    assert after["metadata"]["finalizers"] == ["example.com/one", "example.com/two"]


def test_strategic_replaces_and_removes_maps(send: Send, deployed: dict[str, Any]) -> None:
    spec = pod_spec(strategic(send, {"containers": [{"$patch": "replace"}, {"name": "only", "image": "i"}]}))
    assert [container["name"] for container in spec["containers"]] == ["only"]
    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    _, after = send("PATCH", f"{DEPLOYMENTS}/a", patch, content_type=STRATEGIC)
    assert after["spec"]["strategy"] == {"type": "Recreate"}


def test_strategic_follows_the_order_asked_for(send: Send, deployed: dict[str, Any]) -> None:
    order = [{"name": "side"}, {"name": "web"}]
    spec = pod_spec(strategic(send, {"$setElementOrder/containers": order, "containers": [{"name": "web"}]}))
    assert [container["name"] for container in spec["containers"]] == ["side", "web"]


def test_strategic_needs_the_key_of_an_item(send: Send, deployed: dict[str, Any]) -> None:
    code, status = strategic(send, {"containers": [{"image": "i"}]})
    assert (code, status["message"]) == (500, "map: map[image:i] does not contain declared merge key: name")


def test_service_ports_merge_by_port(send: Send) -> None:
    services = "/api/v1/namespaces/default/services"
    ports = [{"name": "a", "port": 80}, {"name": "b", "port": 81}]
    send("POST", services, {"metadata": {"name": "s"}, "spec": {"ports": ports}})
    patch = {"spec": {"ports": [{"port": 81, "targetPort": 8081}]}}
    _, after = send("PATCH", f"{services}/s", patch, content_type=STRATEGIC)
    assert [port["targetPort"] for port in after["spec"]["ports"]] == [80, 8081]


def test_an_unknown_kind_of_patch_is_refused(send: Send) -> None:
    send("POST", MAPS, {"metadata": {"name": "a"}})
    code, status = send("PATCH", f"{MAPS}/a", {}, content_type="application/json")
    assert (code, status["reason"]) == (415, "UnsupportedMediaType")


def test_a_patch_of_nothing_is_not_found(send: Send) -> None:
    for content_type, body in ((MERGE, b"{}"), (JSON, b"[]"), (STRATEGIC, b"{}")):
        assert send("PATCH", f"{MAPS}/a", body, content_type=content_type)[0] == 404
