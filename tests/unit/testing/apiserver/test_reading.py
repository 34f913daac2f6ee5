"""Gets and lists: selectors, pages of one snapshot, versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from opsdk.testing.apiserver import ApiServer

Send = Callable[..., tuple[int, Any]]
MAPS = "/api/v1/namespaces/default/configmaps"
ALL_MAPS = "/api/v1/configmaps"
MERGE = "application/merge-patch+json"
PODS = "/api/v1/namespaces/default/pods"


def make(send: Send, *names: str, namespace: str = "default", labels: dict[str, str] | None = None) -> None:
    for name in names:
        body = {"metadata": {"name": name, "labels": labels or {}}}
        assert send("POST", f"/api/v1/namespaces/{namespace}/configmaps", body)[0] == 201


def names(answer: tuple[int, Any]) -> list[str]:
    assert answer[0] == 200, answer
    return [item["metadata"]["name"] for item in answer[1]["items"]]


def test_a_list_has_its_own_version_and_items_without_kind(send: Send, server: ApiServer) -> None:
    make(send, "b", "a")
    _, found = send("GET", MAPS)
    assert (found["kind"], found["apiVersion"]) == ("ConfigMapList", "v1")
    assert found["metadata"] == {"resourceVersion": server.resource_version}
    assert [item["metadata"]["name"] for item in found["items"]] == ["a", "b"]
    assert all("kind" not in item and "apiVersion" not in item for item in found["items"])


def test_an_empty_list_is_an_empty_list(send: Send) -> None:
    assert send("GET", MAPS)[1]["items"] == []


def test_a_list_over_all_namespaces_is_in_the_order_of_keys(send: Send) -> None:
    make(send, "z", namespace="default")
    make(send, "a", namespace="kube-system")
    make(send, "m", namespace="default")
    assert names(send("GET", ALL_MAPS)) == ["m", "z", "a"]
    assert names(send("GET", MAPS)) == ["m", "z"]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("tier=web", ["a"]),
        ("tier==web", ["a"]),
        ("tier!=web", ["b", "c"]),
        ("tier", ["a", "b"]),
        ("!tier", ["c"]),
        ("tier in (web,api)", ["a", "b"]),
        ("tier notin (web)", ["b", "c"]),
        ("tier in (web, api),!canary", ["a"]),
        ("rank>1", ["b"]),
        ("rank<2", ["a"]),
        ("tier=", []),
        ("", ["a", "b", "c"]),
    ],
)
def test_every_operator_of_label_selectors(send: Send, selector: str, expected: list[str]) -> None:
    make(send, "a", labels={"tier": "web", "rank": "1"})
    make(send, "b", labels={"tier": "api", "rank": "2", "canary": "yes"})
    make(send, "c")
    assert names(send("GET", MAPS, labelSelector=selector)) == expected


@pytest.mark.parametrize("selector", ["=x", "a in x", "a=b=c", "a in (x", "a,", "a>b", "a b", "%"])
def test_a_label_selector_that_does_not_parse_is_a_bad_request(send: Send, selector: str) -> None:
    code, status = send("GET", MAPS, labelSelector=selector)
    assert (code, status["reason"]) == (400, "BadRequest")


def test_objects_are_selected_by_name_and_namespace(send: Send) -> None:
    make(send, "a", "b")
    make(send, "a", namespace="kube-system")
    assert names(send("GET", MAPS, fieldSelector="metadata.name=a")) == ["a"]
    assert names(send("GET", MAPS, fieldSelector="metadata.name!=a")) == ["b"]
    assert names(send("GET", ALL_MAPS, fieldSelector="metadata.name=a")) == ["a", "a"]
    assert len(names(send("GET", ALL_MAPS, fieldSelector="metadata.name=a,metadata.namespace=kube-system"))) == 1
    assert names(send("GET", MAPS, fieldSelector="metadata.name=missing")) == []


def test_pods_are_selected_by_node_and_phase(send: Send) -> None:
    for name, node in (("p", "n1"), ("q", "n2")):
        spec = {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}
        send("POST", PODS, {"metadata": {"name": name}, "spec": spec})
    send("PATCH", f"{PODS}/p/status", {"status": {"phase": "Running"}}, content_type=MERGE)
    assert names(send("GET", PODS, fieldSelector="spec.nodeName=n2")) == ["q"]
    assert names(send("GET", PODS, fieldSelector="status.phase=Running")) == ["p"]
    assert names(send("GET", PODS, fieldSelector="status.phase!=Running")) == ["q"]


def test_a_field_that_cannot_be_selected_by_is_a_bad_request(send: Send) -> None:
    code, status = send("GET", MAPS, fieldSelector="data.x=1")
    assert (code, status["reason"]) == (400, "BadRequest")
    assert status["message"].startswith('"data.x" is not a known field selector')


def test_pages_are_of_one_snapshot(send: Send) -> None:
    make(send, "a", "b", "c", "d")
    _, first = send("GET", MAPS, limit=2)
    assert [item["metadata"]["name"] for item in first["items"]] == ["a", "b"]
    assert first["metadata"]["remainingItemCount"] == 2
    send("DELETE", f"{MAPS}/c")
    make(send, "bb", "e")
    send("PATCH", f"{MAPS}/d", {"data": {"x": "1"}}, content_type=MERGE)
    _, second = send("GET", MAPS, limit=2, continue_=first["metadata"]["continue"])
    assert [item["metadata"]["name"] for item in second["items"]] == ["c", "d"]
    assert "data" not in second["items"][1]
    assert second["metadata"] == {"resourceVersion": first["metadata"]["resourceVersion"]}


def test_the_last_page_has_no_token_even_when_it_is_full(send: Send) -> None:
    make(send, "a", "b")
    _, page = send("GET", MAPS, limit=2)
    assert "continue" not in page["metadata"]


def test_w07_a_token_whose_snapshot_is_forgotten_is_gone_and_offers_an_inconsistent_rest(
    send: Send, server: ApiServer
) -> None:
    make(send, "a", "b", "c")
    _, first = send("GET", MAPS, limit=1)
    make(send, "d")
    server.compact()
    code, status = send("GET", MAPS, limit=1, continue_=first["metadata"]["continue"])
    assert (code, status["reason"]) == (410, "Expired")
    _, rest = send("GET", MAPS, continue_=status["metadata"]["continue"])
    assert [item["metadata"]["name"] for item in rest["items"]] == ["b", "c", "d"]


def test_a_token_that_is_none_is_a_bad_request(send: Send) -> None:
    assert send("GET", MAPS, limit=1, continue_="rubbish")[0] == 400


def test_remaining_items_are_not_counted_with_a_selector(send: Send) -> None:
    make(send, "a", "b", "c", labels={"x": "y"})
    _, page = send("GET", MAPS, limit=1, labelSelector="x=y")
    assert "remainingItemCount" not in page["metadata"]
    assert page["metadata"]["continue"]


def test_an_exact_version_lists_the_past(send: Send, server: ApiServer) -> None:
    make(send, "a")
    then = server.resource_version
    make(send, "b")
    send("DELETE", f"{MAPS}/a")
    exact = send("GET", MAPS, resourceVersion=then, resourceVersionMatch="Exact")
    assert (names(exact), exact[1]["metadata"]["resourceVersion"]) == (["a"], then)
    assert names(send("GET", MAPS, resourceVersion=then, resourceVersionMatch="NotOlderThan")) == ["b"]
    assert names(send("GET", MAPS, resourceVersion="0")) == ["b"]
    server.compact()
    assert send("GET", MAPS, resourceVersion=then, resourceVersionMatch="Exact")[0] == 410


def test_w09_a_version_from_the_future_times_out(send: Send, server: ApiServer) -> None:
    future = int(server.resource_version) + 100
    for path in (MAPS, f"{MAPS}/a"):
        code, status = send("GET", path, resourceVersion=future)
        assert (code, status["reason"]) == (504, "Timeout")
        assert status["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
        assert status["details"]["retryAfterSeconds"] == 1


@pytest.mark.parametrize(
    "query",
    [
        {"resourceVersionMatch": "Exact"},
        {"resourceVersionMatch": "Nearly", "resourceVersion": "1"},
        {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
        {"sendInitialEvents": "true"},
    ],
)
def test_list_options_that_do_not_go_together_are_invalid(send: Send, query: dict[str, str]) -> None:
    code, status = send("GET", MAPS, **query)
    assert (code, status["details"]["kind"]) == (422, "ListOptions")


def test_metadata_only(send: Send) -> None:
    make(send, "a")
    accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    _, found = send("GET", MAPS, accept=accept)
    assert found["kind"] == "PartialObjectMetadataList"
    assert set(found["items"][0]) == {"kind", "apiVersion", "metadata"}


def test_a_table_for_kubectl(send: Send) -> None:
    make(send, "a")
    _, found = send("GET", MAPS, accept="application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
    assert (found["kind"], found["rows"][0]["cells"][0]) == ("Table", "a")


def test_a_missing_object_is_not_found(send: Send) -> None:
    code, status = send("GET", f"{MAPS}/a")
    assert code == 404
    assert status == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'configmaps "a" not found',
        "reason": "NotFound",
        "details": {"name": "a", "kind": "configmaps"},
        "code": 404,
    }
