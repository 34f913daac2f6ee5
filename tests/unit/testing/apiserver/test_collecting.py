"""Garbage collection by owner references, and namespaces that terminate."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from opsdk.client.transport import HttpRequest
from opsdk.testing.apiserver import ApiServer

Send = Callable[..., tuple[int, Any]]
MAPS = "/api/v1/namespaces/default/configmaps"
SECRETS = "/api/v1/namespaces/default/secrets"
MERGE = "application/merge-patch+json"


def reference(owner: dict[str, Any], *, block: bool = True, **changed: object) -> dict[str, Any]:
    metadata = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": False,
        "blockOwnerDeletion": block,
        **changed,
    }


def make(
    send: Send, name: str, *owners: dict[str, Any], path: str = MAPS, finalizers: tuple[str, ...] = ()
) -> dict[str, Any]:
    body = {"metadata": {"name": name, "ownerReferences": list(owners), "finalizers": list(finalizers)}}
    code, created = send("POST", path, body)
    assert code == 201, created
    result: dict[str, Any] = created
    return result


def exists(send: Send, name: str, path: str = MAPS) -> bool:
    return bool(send("GET", f"{path}/{name}")[0] == 200)


def test_dependents_go_after_their_owner(send: Send) -> None:
    owner = make(send, "owner")
    child = make(send, "child", reference(owner))
    make(send, "grandchild", reference(child), path=SECRETS)
    send("DELETE", f"{MAPS}/owner")
    assert not exists(send, "child")
    assert not exists(send, "grandchild", SECRETS)


def test_a_dependent_with_a_second_living_owner_stays_and_loses_the_reference(send: Send) -> None:
    one, two = make(send, "one"), make(send, "two")
    make(send, "child", reference(one), reference(two))
    send("DELETE", f"{MAPS}/one")
    _, child = send("GET", f"{MAPS}/child")
    assert [owner["name"] for owner in child["metadata"]["ownerReferences"]] == ["two"]
    send("DELETE", f"{MAPS}/two")
    assert not exists(send, "child")


def test_an_owner_is_who_has_the_uid(send: Send) -> None:
    old = make(send, "owner")
    send("DELETE", f"{MAPS}/owner")
    make(send, "owner")
    make(send, "child", reference(old))
    assert not exists(send, "child")


def test_an_owner_in_another_namespace_is_no_owner(send: Send) -> None:
    owner = make(send, "owner", path="/api/v1/namespaces/kube-system/configmaps")
    make(send, "child", reference(owner))
    assert not exists(send, "child")


def test_a_reference_to_an_unknown_kind_protects(send: Send) -> None:
    owner = make(send, "owner")
    make(send, "child", reference(owner, kind="Unheard", apiVersion="example.com/v1"))
    assert exists(send, "child")


def test_a_cluster_scoped_owner_owns_in_every_namespace(send: Send) -> None:
    _, owner = send("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", {"metadata": {"name": "o"}})
    make(send, "child", reference(owner))
    assert exists(send, "child")
    send("DELETE", "/apis/rbac.authorization.k8s.io/v1/clusterroles/o")
    assert not exists(send, "child")


def test_finalizers_of_dependents_are_respected(send: Send) -> None:
    owner = make(send, "owner")
    make(send, "child", reference(owner), finalizers=("example.com/hold",))
    send("DELETE", f"{MAPS}/owner")
    _, child = send("GET", f"{MAPS}/child")
    assert child["metadata"]["deletionTimestamp"]


def test_foreground_waits_for_dependents_that_block(send: Send) -> None:
    owner = make(send, "owner")
    make(send, "blocking", reference(owner), finalizers=("example.com/hold",))
    make(send, "other", reference(owner, block=False), finalizers=("example.com/hold",))
    code, lingering = send("DELETE", f"{MAPS}/owner", {"propagationPolicy": "Foreground"})
    assert (code, lingering["metadata"]["finalizers"]) == (200, ["foregroundDeletion"])
    assert exists(send, "owner")
    assert "deletionTimestamp" in send("GET", f"{MAPS}/blocking")[1]["metadata"]
    assert "deletionTimestamp" not in send("GET", f"{MAPS}/other")[1]["metadata"]
    send("PATCH", f"{MAPS}/blocking", {"metadata": {"finalizers": None}}, content_type=MERGE)
    assert not exists(send, "owner")
    assert "deletionTimestamp" in send("GET", f"{MAPS}/other")[1]["metadata"]


def test_foreground_without_dependents_is_over_at_once(send: Send) -> None:
    make(send, "owner")
    send("DELETE", f"{MAPS}/owner", propagationPolicy="Foreground")
    assert not exists(send, "owner")


def test_foreground_goes_down_the_whole_tree(send: Send) -> None:
    owner = make(send, "owner")
    child = make(send, "child", reference(owner))
    make(send, "grandchild", reference(child), finalizers=("example.com/hold",))
    send("DELETE", f"{MAPS}/owner", propagationPolicy="Foreground")
    assert exists(send, "owner")
    assert send("GET", f"{MAPS}/child")[1]["metadata"]["finalizers"] == ["foregroundDeletion"]
    send("PATCH", f"{MAPS}/grandchild", {"metadata": {"finalizers": None}}, content_type=MERGE)
    assert not exists(send, "child")
    assert not exists(send, "owner")


def test_orphans_lose_their_reference_and_stay(send: Send) -> None:
    owner = make(send, "owner")
    make(send, "child", reference(owner))
    send("DELETE", f"{MAPS}/owner", propagationPolicy="Orphan")
    assert not exists(send, "owner")
    assert "ownerReferences" not in send("GET", f"{MAPS}/child")[1]["metadata"]


def test_a_policy_that_does_not_exist_is_invalid(send: Send) -> None:
    make(send, "owner")
    assert send("DELETE", f"{MAPS}/owner", propagationPolicy="Sideways")[0] == 422


def test_removing_the_reference_saves_a_dependent(send: Send) -> None:
    owner = make(send, "owner")
    make(send, "child", reference(owner))
    send("PATCH", f"{MAPS}/child", {"metadata": {"ownerReferences": None}}, content_type=MERGE)
    send("DELETE", f"{MAPS}/owner")
    assert exists(send, "child")


def test_adopting_an_orphan_makes_it_a_dependent(send: Send) -> None:
    owner = make(send, "owner")
    make(send, "child")
    send("PATCH", f"{MAPS}/child", {"metadata": {"ownerReferences": [reference(owner)]}}, content_type=MERGE)
    send("DELETE", f"{MAPS}/owner")
    assert not exists(send, "child")


def test_owners_that_own_each_other_do_not_hang(send: Send) -> None:
    one = make(send, "one")
    two = make(send, "two", reference(one))
    send("PATCH", f"{MAPS}/one", {"metadata": {"ownerReferences": [reference(two)]}}, content_type=MERGE)
    send("DELETE", f"{MAPS}/one")
    assert not exists(send, "two")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"uid": ""}, "metadata.ownerReferences[0].uid"),
        ({"kind": ""}, "metadata.ownerReferences[0].kind"),
        ({"name": ""}, "metadata.ownerReferences[0].name"),
        ({"apiVersion": ""}, "metadata.ownerReferences[0].apiVersion"),
    ],
)
def test_an_owner_reference_must_be_complete(send: Send, change: dict[str, str], field: str) -> None:
    owner = make(send, "owner")
    body = {"metadata": {"name": "child", "ownerReferences": [{**reference(owner), **change}]}}
    code, status = send("POST", MAPS, body)
    assert (code, status["details"]["causes"][0]["field"]) == (422, field)


def test_only_one_owner_is_the_controller(send: Send) -> None:
    one, two = make(send, "one"), make(send, "two")
    owners = [reference(one, controller=True), reference(two, controller=True)]
    code, _ = send("POST", MAPS, {"metadata": {"name": "child", "ownerReferences": owners}})
    assert code == 422


def test_without_a_garbage_collector_nothing_is_collected() -> None:
    server = ApiServer(garbage_collector=False)

    def post(body: dict[str, Any]) -> dict[str, Any]:
        response = server.handle(HttpRequest(method="POST", path=MAPS, body=json.dumps(body).encode()))
        created: dict[str, Any] = json.loads(response.body)
        return created

    owner = post({"metadata": {"name": "owner"}})
    post({"metadata": {"name": "child", "ownerReferences": [reference(owner)]}})
    server.handle(HttpRequest(method="DELETE", path=f"{MAPS}/owner"))
    assert server.handle(HttpRequest(method="GET", path=f"{MAPS}/child")).status == 200


# Namespaces


def test_every_cluster_has_four_namespaces(send: Send) -> None:
    _, found = send("GET", "/api/v1/namespaces")
    names = [item["metadata"]["name"] for item in found["items"]]
    assert names == ["default", "kube-node-lease", "kube-public", "kube-system"]
    assert all(item["status"]["phase"] == "Active" for item in found["items"])


def test_a_new_namespace_is_active_and_labelled_with_its_name(send: Send) -> None:
    code, created = send("POST", "/api/v1/namespaces", {"metadata": {"name": "x"}})
    assert (code, created["spec"], created["status"]) == (201, {"finalizers": ["kubernetes"]}, {"phase": "Active"})
    assert created["metadata"]["labels"] == {"kubernetes.io/metadata.name": "x"}


def test_nothing_can_be_created_in_a_namespace_that_is_not_there(send: Send) -> None:
    code, status = send("POST", "/api/v1/namespaces/x/configmaps", {"metadata": {"name": "a"}})
    assert (code, status["message"]) == (404, 'namespaces "x" not found')


def test_an_empty_namespace_is_gone_when_its_delete_is_answered(send: Send) -> None:
    send("POST", "/api/v1/namespaces", {"metadata": {"name": "x"}})
    code, answer = send("DELETE", "/api/v1/namespaces/x")
    assert (code, answer["status"]["phase"]) == (200, "Terminating")
    assert send("GET", "/api/v1/namespaces/x")[0] == 404


def test_a_namespace_that_terminates_drains_refuses_creates_and_waits(send: Send) -> None:
    maps = "/api/v1/namespaces/x/configmaps"
    send("POST", "/api/v1/namespaces", {"metadata": {"name": "x"}})
    make(send, "free", path=maps)
    make(send, "held", path=maps, finalizers=("example.com/hold",))
    send("DELETE", "/api/v1/namespaces/x")
    assert send("GET", f"{maps}/free")[0] == 404
    assert "deletionTimestamp" in send("GET", f"{maps}/held")[1]["metadata"]
    assert send("GET", "/api/v1/namespaces/x")[1]["status"]["phase"] == "Terminating"
    code, status = send("POST", maps, {"metadata": {"name": "new"}})
    assert (code, status["reason"]) == (403, "Forbidden")
    assert status["message"] == (
        'configmaps "new" is forbidden: unable to create new content in namespace x because it is being terminated'
    )
    assert status["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    assert send("PATCH", f"{maps}/held", {"data": {"x": "1"}}, content_type=MERGE)[0] == 200
    send("PATCH", f"{maps}/held", {"metadata": {"finalizers": None}}, content_type=MERGE)
    assert send("GET", "/api/v1/namespaces/x")[0] == 404


def test_the_default_namespace_stays(send: Send) -> None:
    code, status = send("DELETE", "/api/v1/namespaces/default")
    assert (code, status["reason"]) == (403, "Forbidden")
    assert status["message"] == 'namespaces "default" is forbidden: this namespace may not be deleted'
