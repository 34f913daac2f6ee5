"""Delete: finalizers, preconditions, what is answered, garbage collection, namespaces."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from conformance.harness import JSON_PATCH, Answer, Api, Body, config_map, eventually, gadget, new_name, widget

pytestmark = pytest.mark.anyio

FINALIZER = "example.com/hold"


def owner_reference(owner: Answer, **more: Any) -> Body:
    body = owner.body
    return {
        "apiVersion": body["apiVersion"],
        "kind": body["kind"],
        "name": body["metadata"]["name"],
        "uid": body["metadata"]["uid"],
        **more,
    }


async def is_gone(api: Api, resource: str, name: str) -> bool:
    return (await api.get(resource, name)).status == 404


# --- shape of the DELETE answer ---


@pytest.mark.parametrize("resource", ["configmaps", "widgets"])
async def test_a_delete_that_is_done_is_answered_with_a_status(api: Api, resource: str) -> None:
    created = await api.created(resource, config_map("a") if resource == "configmaps" else widget("a"))
    answer = await api.delete(resource, "a")
    group = {} if resource == "configmaps" else {"group": "conformance.example.com"}
    assert answer.status == 200
    assert answer.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": "a", **group, "kind": resource, "uid": created.uid},
    }
    assert (await api.get(resource, "a")).status == 404


async def test_a_delete_that_waits_is_answered_with_the_object(api: Api) -> None:
    await api.created("widgets", widget("a", finalizers=[FINALIZER]))
    answer = await api.delete("widgets", "a")
    assert answer.status == 200
    assert answer.body["kind"] == "Widget"
    assert answer.body["metadata"]["deletionTimestamp"]
    assert answer.body["metadata"]["deletionGracePeriodSeconds"] == 0


async def test_a_collection_is_deleted_by_selector(api: Api) -> None:
    await api.created("configmaps", config_map("a", labels={"x": "1"}))
    await api.created("configmaps", config_map("b", labels={"x": "2"}))
    answer = await api.delete("configmaps", labelSelector="x=1")
    assert answer.status == 200
    assert answer.body["kind"] == "ConfigMapList"
    assert answer.names == ["a"]
    assert (await api.get("configmaps", "a")).status == 404
    assert (await api.get("configmaps", "b")).status == 200


# --- delete with finalizers sets deletionTimestamp, and removing the last one deletes ---


@pytest.mark.parametrize("resource", ["configmaps", "widgets"])
async def test_finalizers_hold_an_object_until_the_last_is_removed(api: Api, resource: str) -> None:
    finalizers = [FINALIZER, "example.com/other"]
    make = config_map if resource == "configmaps" else widget
    created = await api.created(resource, make("a", finalizers=finalizers))
    async with api.watch(resource, resourceVersion=created.version) as watch:
        deleted = await api.delete(resource, "a")
        timestamp = deleted.body["metadata"]["deletionTimestamp"]
        again = await api.delete(resource, "a")
        assert again.body["metadata"]["deletionTimestamp"] == timestamp
        kept = await api.patch(resource, "a", {"metadata": {"finalizers": ["example.com/other"]}})
        assert kept.body["metadata"]["deletionTimestamp"] == timestamp
        last = await api.patch(resource, "a", {"metadata": {"finalizers": None}})
        assert last.status == 200
        assert "finalizers" not in last.body["metadata"]
        assert await is_gone(api, resource, "a")
        events = [await watch.next_of("a") for _ in range(3)]
    assert [kind for kind, _ in events] == ["MODIFIED", "MODIFIED", "DELETED"]
    assert events[0][1]["metadata"]["resourceVersion"] == deleted.version
    assert int(events[2][1]["metadata"]["resourceVersion"]) > int(kept.version)


async def test_a_delete_raises_the_generation_of_what_counts_them(api: Api) -> None:
    await api.created("widgets", widget("a", finalizers=[FINALIZER]))
    deleted = await api.delete("widgets", "a")
    assert deleted.body["metadata"]["generation"] == 2


async def test_an_object_on_its_way_out_can_still_change(api: Api) -> None:
    await api.created("widgets", widget("a", finalizers=[FINALIZER]))
    await api.delete("widgets", "a")
    assert (await api.patch("widgets", "a", {"spec": {"size": 2}})).body["spec"]["size"] == 2
    assert (await api.patch("widgets", "a", {"status": {"phase": "x"}}, "status")).status == 200


async def test_the_name_is_taken_while_an_object_is_on_its_way_out(api: Api) -> None:
    await api.created("widgets", widget("a", finalizers=[FINALIZER]))
    await api.delete("widgets", "a")
    answer = await api.create("widgets", widget("a"))
    assert (answer.status, answer.reason) == (409, "AlreadyExists")
    assert answer.message == ('object is being deleted: widgets.conformance.example.com "a" already exists')


# --- deletionTimestamp cannot be set or cleared by a client ---


@pytest.mark.parametrize("resource", ["configmaps", "widgets"])
async def test_a_client_cannot_set_or_clear_a_deletion_timestamp(api: Api, resource: str) -> None:
    make = config_map if resource == "configmaps" else widget
    timestamp = "2026-01-01T00:00:00Z"
    created = await api.created(resource, make("a", finalizers=[FINALIZER], deletionTimestamp=timestamp))
    assert "deletionTimestamp" not in created.body["metadata"]
    answer = await api.patch(resource, "a", {"metadata": {"deletionTimestamp": timestamp}})
    assert "deletionTimestamp" not in answer.body["metadata"]
    deleted = await api.delete(resource, "a")
    cleared = await api.patch(resource, "a", {"metadata": {"deletionTimestamp": None}})
    assert cleared.body["metadata"]["deletionTimestamp"] == deleted.body["metadata"]["deletionTimestamp"]


# --- no new finalizers while deleting ---


async def test_no_new_finalizers_while_deleting(api: Api) -> None:
    await api.created("widgets", widget("a", finalizers=[FINALIZER]))
    await api.delete("widgets", "a")
    answer = await api.patch("widgets", "a", {"metadata": {"finalizers": [FINALIZER, "example.com/new"]}})
    assert (answer.status, answer.reason) == (422, "Invalid")
    text = "no new finalizers can be added if the object is being deleted, found new finalizers"
    assert set(answer.causes) == {
        ("metadata.finalizers", "FieldValueForbidden", f'Forbidden: {text} []string{{"example.com/new"}}')
    }


async def test_a_finalizer_is_removed_with_a_test_while_somebody_else_adds_one(api: Api) -> None:
    await api.created("widgets", widget("a", finalizers=[FINALIZER, "example.com/other"]))
    operations: list[Body] = [
        {"op": "test", "path": "/metadata/finalizers/0", "value": FINALIZER},
        {"op": "remove", "path": "/metadata/finalizers/0"},
    ]
    answer = await api.patch("widgets", "a", operations, content_type=JSON_PATCH)
    assert answer.body["metadata"]["finalizers"] == ["example.com/other"]
    answer = await api.patch("widgets", "a", operations, content_type=JSON_PATCH)
    assert answer.status == 422


async def test_a_finalizer_without_a_domain_is_refused_for_built_in_kinds(api: Api) -> None:
    answer = await api.create("configmaps", config_map("a", finalizers=["hold"]))
    assert answer.status == 422
    ((field, reason, _),) = answer.causes
    assert (field, reason) == ("metadata.finalizers[0]", "FieldValueInvalid")


# --- delete preconditions on uid and resourceVersion ---


@pytest.mark.parametrize(
    "options",
    [
        {"preconditions": {"resourceVersion": 1}},
        {"preconditions": {"uid": 1}},
        {"preconditions": "x"},
        {"gracePeriodSeconds": "0"},
        {"propagationPolicy": 1},
        {"orphanDependents": "yes"},
        {"dryRun": "All"},
    ],
)
async def test_delete_options_of_a_wrong_type_are_refused_and_nothing_is_deleted(api: Api, options: Body) -> None:
    await api.created("configmaps", config_map("a"))
    answer = await api.delete("configmaps", "a", options)
    assert (answer.status, answer.body["reason"]) == (400, "BadRequest")
    assert answer.body["message"].startswith("json: cannot unmarshal ")
    assert (await api.get("configmaps", "a")).status == 200


async def test_a_delete_checks_its_preconditions(api: Api) -> None:
    created = await api.created("configmaps", config_map("a"))
    wrong = "00000000-0000-0000-0000-000000000000"
    answer = await api.delete("configmaps", "a", {"preconditions": {"uid": wrong}})
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert f"the UID in the precondition ({wrong}) does not match the UID in record ({created.uid})" in answer.message
    answer = await api.delete("configmaps", "a", {"preconditions": {"resourceVersion": "1"}})
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert (
        f"the ResourceVersion in the precondition (1) does not match the ResourceVersion in record ({created.version})"
        in answer.message
    )
    fits = {"uid": created.uid, "resourceVersion": created.version}
    answer = await api.delete("configmaps", "a", {"preconditions": fits})
    assert answer.status == 200


async def test_an_unknown_propagation_policy_is_refused(api: Api) -> None:
    await api.created("configmaps", config_map("a"))
    answer = await api.delete("configmaps", "a", {"propagationPolicy": "Sideways"})
    assert (answer.status, answer.reason) == (422, "Invalid")


async def test_options_can_be_in_the_query(api: Api) -> None:
    await api.created("configmaps", config_map("a"))
    answer = await api.delete("configmaps", "a", propagationPolicy="Foreground")
    assert answer.status == 200


# --- owner garbage collection in background, foreground and orphan mode, by uid ---


async def test_dependents_are_collected_in_the_background(api: Api) -> None:
    owner = await api.created("configmaps", config_map("owner"))
    await api.created("configmaps", config_map("child", ownerReferences=[owner_reference(owner)]))
    child = await api.get("configmaps", "child")
    await api.created("secrets", _secret("grandchild", ownerReferences=[owner_reference(child)]))
    answer = await api.delete("configmaps", "owner", {"propagationPolicy": "Background"})
    assert answer.body["kind"] == "Status"
    await eventually(partial(is_gone, api, "configmaps", "child"))
    await eventually(partial(is_gone, api, "secrets", "grandchild"))


async def test_background_is_the_default(api: Api) -> None:
    owner = await api.created("configmaps", config_map("owner"))
    await api.created("configmaps", config_map("child", ownerReferences=[owner_reference(owner)]))
    await api.delete("configmaps", "owner")
    await eventually(partial(is_gone, api, "configmaps", "child"))


async def test_in_the_foreground_the_owner_waits_for_its_dependents(api: Api) -> None:
    owner = await api.created("configmaps", config_map("owner"))
    reference = owner_reference(owner, blockOwnerDeletion=True)
    await api.created("configmaps", config_map("child", ownerReferences=[reference], finalizers=[FINALIZER]))
    answer = await api.delete("configmaps", "owner", {"propagationPolicy": "Foreground"})
    assert answer.body["kind"] == "ConfigMap"
    assert answer.body["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert answer.body["metadata"]["deletionTimestamp"]

    async def child_is_deleted() -> bool:
        return "deletionTimestamp" in (await api.get("configmaps", "child")).body["metadata"]

    await eventually(child_is_deleted)
    assert (await api.get("configmaps", "owner")).status == 200
    await api.patch("configmaps", "child", {"metadata": {"finalizers": None}})
    await eventually(partial(is_gone, api, "configmaps", "child"))
    await eventually(partial(is_gone, api, "configmaps", "owner"))


async def test_in_the_foreground_dependents_that_do_not_block_are_not_waited_for(api: Api) -> None:
    owner = await api.created("configmaps", config_map("owner"))
    reference = owner_reference(owner)
    await api.created("configmaps", config_map("child", ownerReferences=[reference], finalizers=[FINALIZER]))
    await api.delete("configmaps", "owner", {"propagationPolicy": "Foreground"})
    await eventually(partial(is_gone, api, "configmaps", "owner"))

    async def child_is_deleted() -> bool:
        return "deletionTimestamp" in (await api.get("configmaps", "child")).body["metadata"]

    await eventually(child_is_deleted)
    await api.patch("configmaps", "child", {"metadata": {"finalizers": None}})


async def test_orphans_stay_and_lose_the_reference(api: Api) -> None:
    owner = await api.created("configmaps", config_map("owner"))
    await api.created("configmaps", config_map("child", ownerReferences=[owner_reference(owner)]))
    answer = await api.delete("configmaps", "owner", {"propagationPolicy": "Orphan"})
    assert answer.body["metadata"]["finalizers"] == ["orphan"]
    await eventually(partial(is_gone, api, "configmaps", "owner"))
    child = await api.get("configmaps", "child")
    assert child.status == 200
    assert "ownerReferences" not in child.body["metadata"]


async def test_owners_are_told_apart_by_uid(api: Api) -> None:
    """A reference to an earlier object of the same name is a reference to nothing."""
    owner = await api.created("configmaps", config_map("owner"))
    stale = {**owner_reference(owner), "uid": "00000000-0000-0000-0000-000000000001"}
    await api.created("configmaps", config_map("child", ownerReferences=[stale]))
    await eventually(partial(is_gone, api, "configmaps", "child"))
    assert (await api.get("configmaps", "owner")).status == 200


async def test_a_dependent_with_another_owner_stays(api: Api) -> None:
    one = await api.created("configmaps", config_map("one"))
    two = await api.created("configmaps", config_map("two"))
    references = [owner_reference(one), owner_reference(two)]
    await api.created("configmaps", config_map("child", ownerReferences=references))
    await api.delete("configmaps", "one")

    async def lost_one() -> bool:
        left = (await api.get("configmaps", "child")).body["metadata"]["ownerReferences"]
        return [each["name"] for each in left] == ["two"]

    await eventually(lost_one)
    await api.delete("configmaps", "two")
    await eventually(partial(is_gone, api, "configmaps", "child"))


async def test_custom_resources_own_like_any_other(api: Api) -> None:
    owner = await api.created("widgets", widget("owner"))
    await api.created("configmaps", config_map("child", ownerReferences=[owner_reference(owner, controller=True)]))
    await api.delete("widgets", "owner")
    await eventually(partial(is_gone, api, "configmaps", "child"))


async def test_a_cluster_scoped_owner_owns_in_any_namespace(api: Api) -> None:
    owner = await api.created("gadgets", gadget(new_name("owner")))
    await api.created("configmaps", config_map("child", ownerReferences=[owner_reference(owner)]))
    await api.delete("gadgets", owner.body["metadata"]["name"])
    await eventually(partial(is_gone, api, "configmaps", "child"))


async def test_there_is_one_controller_at_most(api: Api) -> None:
    one = await api.created("configmaps", config_map("one"))
    two = await api.created("configmaps", config_map("two"))
    references = [owner_reference(each, controller=True) for each in (one, two)]
    answer = await api.create("configmaps", config_map("child", ownerReferences=references))
    assert (answer.status, answer.reason) == (422, "Invalid")
    ((field, reason, message),) = answer.causes
    assert (field, reason) == ("metadata.ownerReferences", "FieldValueInvalid")
    assert "Only one reference can have Controller set to true" in message


async def test_an_owner_reference_needs_all_its_fields(api: Api) -> None:
    answer = await api.create("configmaps", config_map("child", ownerReferences=[{}]))
    assert answer.status == 422
    assert sorted({field for field, _, _ in answer.causes}) == [
        "metadata.ownerReferences[0].apiVersion",
        "metadata.ownerReferences[0].kind",
        "metadata.ownerReferences[0].name",
        "metadata.ownerReferences[0].uid",
    ]


# --- a namespace that terminates refuses creates and drains ---


async def test_a_namespace_that_terminates_refuses_creates_and_drains(api: Api) -> None:
    await api.created("configmaps", config_map("a"))
    await api.created("widgets", widget("b", finalizers=[FINALIZER]))
    deleted = await api.delete("namespaces", api.namespace)
    assert deleted.status == 200
    assert deleted.body["kind"] == "Namespace"
    assert deleted.body["status"]["phase"] == "Terminating"
    assert deleted.body["metadata"]["deletionTimestamp"]
    answer = await api.create("configmaps", config_map("late"))
    assert (answer.status, answer.reason) == (403, "Forbidden")
    assert answer.message == (
        f'configmaps "late" is forbidden: unable to create new content in namespace {api.namespace} because it is '
        "being terminated"
    )
    ((_, reason, message),) = answer.causes
    assert (reason, message) == ("NamespaceTerminating", f"namespace {api.namespace} is being terminated")
    await eventually(partial(is_gone, api, "configmaps", "a"))

    async def widget_is_deleted() -> bool:
        return "deletionTimestamp" in (await api.get("widgets", "b")).body["metadata"]

    await eventually(widget_is_deleted)
    assert (await api.get("namespaces", api.namespace)).status == 200
    await api.patch("widgets", "b", {"metadata": {"finalizers": None}})
    await eventually(partial(is_gone, api, "namespaces", api.namespace))


async def test_a_create_in_a_namespace_that_is_not_there_is_not_found(api: Api) -> None:
    for resource, body in (("configmaps", config_map("a")), ("widgets", widget("a"))):
        answer = await api.call("POST", api.path(resource, namespace="no-such-namespace"), body)
        assert (answer.status, answer.reason) == (404, "NotFound")
        assert answer.message == 'namespaces "no-such-namespace" not found'
        assert answer.body["details"] == {"name": "no-such-namespace", "kind": "namespaces"}


async def test_a_namespace_has_its_finalizer_and_phase(api: Api) -> None:
    namespace = await api.get("namespaces", api.namespace)
    assert namespace.body["spec"] == {"finalizers": ["kubernetes"]}
    assert namespace.body["status"]["phase"] == "Active"
    assert namespace.body["metadata"]["labels"] == {"kubernetes.io/metadata.name": api.namespace}


def _secret(name: str, **metadata: Any) -> Body:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, **metadata}}
