"""Server-side apply with managedFields, conflicts, force."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.differences import UNTYPED_APPLY, differs
from conformance.harness import APPLY, Answer, Api, Body, config_map, widget

pytestmark = pytest.mark.anyio


def managers(answer: Answer) -> dict[str, Body]:
    """Fields by manager (and subresource, where there is one)."""
    found: dict[str, Body] = {}
    for entry in answer.body["metadata"].get("managedFields", []):
        name = entry["manager"] + (f"/{entry['subresource']}" if entry.get("subresource") else "")
        found[f"{name}:{entry['operation']}"] = entry["fieldsV1"]
    return found


def applied(name: str, spec: Body, **more: Any) -> Body:
    return {
        "apiVersion": "conformance.example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name, **more},
        "spec": spec,
    }


async def test_apply_creates_and_owns_what_it_says(api: Api) -> None:
    answer = await api.apply("widgets", applied("a", {"size": 3, "tags": ["x"]}, labels={"l": "1"}))
    assert answer.status == 201
    assert answer.body["spec"]["color"] == "red"
    assert managers(answer) == {
        "applier:Apply": {
            "f:metadata": {"f:labels": {"f:l": {}}},
            "f:spec": {"f:size": {}, "f:tags": {'v:"x"': {}}},
        }
    }
    (entry,) = answer.body["metadata"]["managedFields"]
    assert (entry["apiVersion"], entry["fieldsType"]) == ("conformance.example.com/v1", "FieldsV1")
    assert entry["time"]


async def test_the_same_apply_again_changes_nothing(api: Api) -> None:
    body = applied("a", {"size": 3})
    first = await api.apply("widgets", body)
    second = await api.apply("widgets", body)
    assert second.status == 200
    assert second.body == first.body


async def test_another_apply_removes_what_it_no_longer_says(api: Api) -> None:
    await api.apply("widgets", applied("a", {"size": 3, "code": "abc", "labels": {"a": "1", "b": "2"}}))
    answer = await api.apply("widgets", applied("a", {"size": 3, "labels": {"a": "1"}}))
    assert "code" not in answer.body["spec"]
    assert answer.body["spec"]["labels"] == {"a": "1"}


async def test_a_default_comes_back_when_its_field_is_given_up(api: Api) -> None:
    await api.apply("widgets", applied("a", {"size": 3, "color": "green"}))
    answer = await api.apply("widgets", applied("a", {"size": 3}))
    assert answer.body["spec"]["color"] == "red"


async def test_updates_are_tracked_by_manager_and_subresource(api: Api) -> None:
    await api.call("POST", api.path("widgets"), widget("a"), query={"fieldManager": "maker"})
    patch = {"spec": {"code": "abc"}}
    await api.patch("widgets", "a", patch, fieldManager="patcher")
    answer = await api.patch("widgets", "a", {"status": {"phase": "x"}}, "status", fieldManager="patcher")
    found = managers(answer)
    assert found["maker:Update"] == {
        "f:spec": {".": {}, "f:color": {}, "f:replicas": {}, "f:size": {}},
    }
    assert found["patcher:Update"] == {"f:spec": {"f:code": {}}}
    assert found["patcher/status:Update"] == {"f:status": {".": {}, "f:phase": {}}}


async def test_another_manager_value_is_a_conflict(api: Api) -> None:
    await api.apply("widgets", applied("a", {"size": 3}), manager="one")
    answer = await api.apply("widgets", applied("a", {"size": 4}), manager="two")
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert answer.message == 'Apply failed with 1 conflict: conflict with "one": .spec.size'
    assert answer.causes == [(".spec.size", "FieldManagerConflict", 'conflict with "one"')]
    assert "name" not in answer.body["details"]


async def test_several_conflicts_are_listed_by_manager(api: Api) -> None:
    await api.apply("widgets", applied("a", {"size": 3}), manager="one")
    await api.patch("widgets", "a", {"spec": {"code": "abc", "color": "green"}}, fieldManager="editor")
    answer = await api.apply("widgets", applied("a", {"size": 4, "code": "x", "color": "red"}), manager="two")
    assert answer.status == 409
    assert answer.message == (
        'Apply failed with 3 conflicts: conflicts with "editor" using conformance.example.com/v1:\n'
        '- .spec.code\n- .spec.color\nconflicts with "one":\n- .spec.size'
    )
    assert answer.causes == [
        (".spec.code", "FieldManagerConflict", 'conflict with "editor" using conformance.example.com/v1'),
        (".spec.color", "FieldManagerConflict", 'conflict with "editor" using conformance.example.com/v1'),
        (".spec.size", "FieldManagerConflict", 'conflict with "one"'),
    ]


async def test_force_takes_the_field_over(api: Api) -> None:
    await api.apply("widgets", applied("a", {"size": 3}), manager="one")
    answer = await api.apply("widgets", applied("a", {"size": 4}), manager="two", force="true")
    assert answer.body["spec"]["size"] == 4
    assert managers(answer) == {"two:Apply": {"f:spec": {"f:size": {}}}}


async def test_the_same_value_is_shared(api: Api) -> None:
    await api.apply("widgets", applied("a", {"size": 3, "code": "abc"}), manager="one")
    answer = await api.apply("widgets", applied("a", {"size": 3}), manager="two")
    assert set(managers(answer)) == {"one:Apply", "two:Apply"}
    answer = await api.apply("widgets", applied("a", {"code": "abc", "size": 3}), manager="two")
    answer = await api.apply("widgets", applied("a", {"size": 3}), manager="one")
    assert answer.body["spec"]["code"] == "abc"


async def test_lists_of_maps_merge_by_key(api: Api) -> None:
    one = applied("a", {"size": 1, "parts": [{"name": "x", "count": 2}]})
    two = applied("a", {"size": 1, "parts": [{"name": "y", "count": 3}]})
    await api.apply("widgets", one, manager="one")
    answer = await api.apply("widgets", two, manager="two")
    assert answer.body["spec"]["parts"] == [{"name": "x", "count": 2}, {"name": "y", "count": 3}]
    assert managers(answer)["two:Apply"]["f:spec"]["f:parts"] == {
        'k:{"name":"y"}': {".": {}, "f:count": {}, "f:name": {}}
    }
    answer = await api.apply("widgets", applied("a", {"size": 1}), manager="one")
    assert answer.body["spec"]["parts"] == [{"name": "y", "count": 3}]


async def test_sets_merge_by_value(api: Api) -> None:
    await api.apply("widgets", applied("a", {"size": 1, "tags": ["x", "y"]}), manager="one")
    answer = await api.apply("widgets", applied("a", {"size": 1, "tags": ["z"]}), manager="two")
    assert answer.body["spec"]["tags"] == ["x", "y", "z"]
    answer = await api.apply("widgets", applied("a", {"size": 1, "tags": ["y"]}), manager="one")
    assert answer.body["spec"]["tags"] == ["y", "z"]


async def test_finalizers_of_several_managers_stand_side_by_side(api: Api) -> None:
    await api.apply("widgets", applied("a", {"size": 1}, finalizers=["example.com/one"]), manager="one")
    answer = await api.apply("widgets", applied("a", {"size": 1}, finalizers=["example.com/two"]), manager="two")
    assert answer.body["metadata"]["finalizers"] == ["example.com/one", "example.com/two"]
    answer = await api.apply("widgets", applied("a", {"size": 1}), manager="two")
    assert answer.body["metadata"]["finalizers"] == ["example.com/one"]


async def test_apply_of_status_goes_to_its_endpoint(api: Api) -> None:
    await api.apply("widgets", applied("a", {"size": 1}))
    body = {
        "apiVersion": "conformance.example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "a"},
        "status": {"phase": "Done"},
    }
    answer = await api.apply("widgets", body, "status", manager="controller")
    assert answer.status == 200
    assert answer.body["status"] == {"phase": "Done"}
    assert managers(answer)["controller/status:Apply"] == {"f:status": {"f:phase": {}}}
    ignored = await api.apply("widgets", {**applied("a", {"size": 1}), "status": {"phase": "Other"}})
    assert ignored.body["status"] == {"phase": "Done"}


async def test_apply_needs_a_field_manager(api: Api) -> None:
    body = applied("a", {"size": 1})
    answer = await api.patch("widgets", "a", body, content_type=APPLY)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.causes == [("fieldManager", "FieldValueRequired", "Required value: is required for apply patch")]


async def test_apply_refuses_managed_fields(api: Api) -> None:
    answer = await api.apply("widgets", applied("a", {"size": 1}, managedFields=[{"manager": "x"}]))
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message == "metadata.managedFields must be nil"


async def test_apply_validates(api: Api) -> None:
    answer = await api.apply("widgets", applied("a", {"size": 0}))
    assert (answer.status, answer.reason) == (422, "Invalid")


async def test_apply_with_a_stale_version_is_a_conflict(api: Api) -> None:
    first = await api.apply("widgets", applied("a", {"size": 1}))
    await api.patch("widgets", "a", {"spec": {"code": "abc"}})
    answer = await api.apply("widgets", applied("a", {"size": 2}, resourceVersion=first.version))
    assert (answer.status, answer.reason) == (409, "Conflict")


async def test_managed_fields_can_be_reset(api: Api) -> None:
    await api.apply("widgets", applied("a", {"size": 1}))
    answer = await api.patch("widgets", "a", {"metadata": {"managedFields": [{}]}})
    assert answer.status == 200
    assert "managedFields" not in answer.body["metadata"]


async def test_apply_of_a_built_in_kind(api: Api) -> None:
    body = config_map("a", {"x": "1"})
    answer = await api.apply("configmaps", body)
    assert answer.status == 201
    assert managers(answer) == {"applier:Apply": {"f:data": {"f:x": {}}}}
    await api.patch("configmaps", "a", {"data": {"y": "2"}}, fieldManager="other")
    answer = await api.apply("configmaps", config_map("a", {"z": "3"}))
    assert answer.body["data"] == {"y": "2", "z": "3"}


async def test_apply_of_a_deployment_merges_containers_by_name(api: Api) -> None:
    def deployment(*names: str) -> Body:
        containers = [{"name": name, "image": f"registry.invalid/{name}:1"} for name in names]
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "a"},
            "spec": {
                "selector": {"matchLabels": {"app": "a"}},
                "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": containers}},
            },
        }

    await api.apply("deployments", deployment("web"), manager="one")
    answer = await api.apply("deployments", deployment("side"), manager="two")
    assert answer.status == 200, answer.text
    assert [each["name"] for each in answer.body["spec"]["template"]["spec"]["containers"]] == ["web", "side"]
    answer = await api.apply("deployments", deployment("web"), manager="two")
    assert [each["name"] for each in answer.body["spec"]["template"]["spec"]["containers"]] == ["web"]


@pytest.mark.parametrize(
    ("spec", "untyped", "field"),
    [
        ({"size": "a"}, ".spec.size: expected numeric (int or float), got string", "spec.size"),
        ({"size": 1, "tags": ["a", "a"]}, '.spec.tags: duplicate entries for key [="a"]', "spec.tags[1]"),
        (
            {"size": 1, "parts": [{"name": "a"}, {"name": "a"}]},
            '.spec.parts: duplicate entries for key [name="a"]',
            "spec.parts[1]",
        ),
    ],
)
@differs(UNTYPED_APPLY)
async def test_an_apply_whose_values_cannot_be_merged_is_refused(
    api: Api, spec: Body, untyped: str, field: str
) -> None:
    answer = await api.apply("widgets", applied("a", spec))
    what = "failed to create typed patch object (/a; conformance.example.com/v1, Kind=Widget)"
    found = (answer.status, answer.reason, answer.message if answer.status == 500 else answer.causes[0][0])
    assert found == UNTYPED_APPLY.on(
        api.server, kube_apiserver=(500, "", f"{what}: {untyped}"), in_memory=(422, "Invalid", field)
    )
    assert (await api.get("widgets", "a")).status == 404


async def test_an_apply_that_gives_a_field_up_leaves_it_to_its_other_owner(api: Api) -> None:
    await api.apply("widgets", applied("a", {"size": 3, "code": "abc"}), manager="one")
    await api.patch("widgets", "a", {"spec": {"code": "xyz"}}, fieldManager="editor")
    answer = await api.apply("widgets", applied("a", {"size": 3}), manager="one")
    assert answer.body["spec"]["code"] == "xyz"
    assert managers(answer)["editor:Update"] == {"f:spec": {"f:code": {}}}


async def test_an_update_of_an_applied_field_takes_it_over(api: Api) -> None:
    await api.apply("widgets", applied("a", {"size": 3, "code": "abc"}), manager="one")
    answer = await api.patch("widgets", "a", {"spec": {"code": "xyz"}}, fieldManager="editor")
    assert managers(answer) == {
        "one:Apply": {"f:spec": {"f:size": {}}},
        "editor:Update": {"f:spec": {"f:code": {}}},
    }
    answer = await api.apply("widgets", applied("a", {"size": 3, "code": "abc"}), manager="one")
    assert (answer.status, answer.causes[0][0]) == (409, ".spec.code")


async def test_a_forced_apply_of_one_manager_leaves_the_others_their_fields(api: Api) -> None:
    await api.apply("widgets", applied("a", {"size": 3, "code": "abc"}), manager="one")
    answer = await api.apply("widgets", applied("a", {"size": 4}), manager="two", force="true")
    assert managers(answer) == {"one:Apply": {"f:spec": {"f:code": {}}}, "two:Apply": {"f:spec": {"f:size": {}}}}


async def test_a_dry_run_of_an_apply_changes_nothing_and_shows_conflicts(api: Api) -> None:
    answer = await api.apply("widgets", applied("a", {"size": 3}), manager="one", dryRun="All")
    assert (answer.status, answer.body["spec"]["size"]) == (201, 3)
    assert (await api.get("widgets", "a")).status == 404
    first = await api.apply("widgets", applied("a", {"size": 3}), manager="one")
    answer = await api.apply("widgets", applied("a", {"size": 4}), manager="two", dryRun="All")
    assert answer.status == 409
    answer = await api.apply("widgets", applied("a", {"size": 4}), manager="two", dryRun="All", force="true")
    assert (answer.status, answer.body["spec"]["size"]) == (200, 4)
    assert (await api.get("widgets", "a")).version == first.version


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"kind": "Gadget"}, "conformance.example.com/v1, Kind=Gadget"),
        ({"apiVersion": "conformance.example.com/v9"}, "conformance.example.com/v9, Kind=Widget"),
        ({"kind": ""}, "conformance.example.com/v1, Kind="),
        ({"apiVersion": "v1", "kind": "Secret"}, "/v1, Kind=Secret"),
    ],
)
async def test_the_wrong_kind_or_version_cannot_be_applied(api: Api, given: Body, named: str) -> None:
    answer = await api.apply("widgets", {**applied("a", {"size": 1}), **given})
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message == f"invalid object type: {named}"


def scale(name: str, replicas: int) -> Body:
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": name},
        "spec": {"replicas": replicas},
    }


async def test_an_applied_scale_is_owned_by_its_manager(api: Api) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "example.com/c"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": spec}
    await api.apply("deployments", body, manager="one")
    answer = await api.apply("deployments", scale("a", 1), "scale", manager="autoscaler")
    assert (answer.status, answer.causes) == (
        409,
        [(".spec.replicas", "FieldManagerConflict", 'conflict with "one"')],
    )
    answer = await api.apply("deployments", scale("a", 0), "scale", manager="autoscaler", force="true")
    assert (answer.status, answer.body["kind"]) == (200, "Scale")
    found = managers(await api.get("deployments", "a"))
    assert found["autoscaler/scale:Apply"] == {"f:spec": {"f:replicas": {}}}


async def test_a_scale_of_a_custom_resource_cannot_be_applied(api: Api) -> None:
    await api.created("widgets", widget("a"))
    answer = await api.apply("widgets", scale("a", 5), "scale", force="true")
    assert (answer.status, answer.reason) == (500, "")
    assert answer.message.endswith("request to convert CR to an invalid group/version: autoscaling/v1")
