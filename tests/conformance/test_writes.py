"""Create, replace, patch: versions, generations, status, names, dry-run."""

from __future__ import annotations

import base64

import pytest

from conformance.differences import VERSION_ON_CREATE, differs
from conformance.harness import (
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    Api,
    Body,
    config_map,
    gadget,
    new_name,
    plain,
    widget,
)

pytestmark = pytest.mark.anyio

_MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def deployment(name: str) -> Body:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "web", "image": "registry.invalid/web:1"}]},
            },
        },
    }


# --- resourceVersion is one rising counter over all kinds ---


async def test_versions_rise_over_all_kinds(api: Api) -> None:
    first = await api.created("configmaps", config_map("a"))
    second = await api.created("widgets", widget("a"))
    third = await api.patch("configmaps", "a", {"data": {"b": "2"}})
    fourth = await api.created("gadgets", gadget(new_name()))
    versions = [int(each.version) for each in (first, second, third, fourth)]
    assert versions == sorted(set(versions))


async def test_a_list_is_at_least_as_new_as_its_items(api: Api) -> None:
    created = await api.created("configmaps", config_map("a"))
    assert int((await api.get("configmaps")).version) >= int(created.version)


# --- a write that changes nothing keeps it and sends no event ---


@pytest.mark.parametrize("how", ["replace", "merge", "json", "strategic", "status"])
async def test_a_write_that_changes_nothing_keeps_the_version_and_sends_no_event(api: Api, how: str) -> None:
    resource = "widgets" if how == "status" else "configmaps"
    created = await api.created(resource, widget("a") if how == "status" else config_map("a"))
    async with api.watch(resource, resourceVersion=created.version) as watch:
        match how:
            case "replace":
                answer = await api.replace("configmaps", created.body)
            case "merge":
                answer = await api.patch("configmaps", "a", {"data": {"a": "1"}})
            case "json":
                operation = {"op": "replace", "path": "/data/a", "value": "1"}
                answer = await api.patch("configmaps", "a", [operation], content_type=JSON_PATCH)
            case "strategic":
                answer = await api.patch("configmaps", "a", {"data": {"a": "1"}}, content_type=STRATEGIC_PATCH)
            case _:
                answer = await api.patch("widgets", "a", {"spec": {"size": 5}}, "status")
        assert answer.status == 200
        assert answer.version == created.version
        await api.created(resource, widget("last") if how == "status" else config_map("last"))
        event = await watch.next()
        assert event["object"]["metadata"]["name"] == "last"


async def test_a_replace_without_a_version_that_changes_nothing_keeps_the_version(api: Api) -> None:
    created = await api.created("configmaps", config_map("a"))
    answer = await api.replace("configmaps", config_map("a"))
    assert (answer.status, answer.version) == (200, created.version)


# --- generation rises on spec changes only ---


@pytest.mark.parametrize("resource", ["widgets", "deployments"])
async def test_generation_rises_on_spec_changes_only(api: Api, resource: str) -> None:
    body = widget("a") if resource == "widgets" else deployment("a")
    created = await api.created(resource, body)
    assert created.body["metadata"]["generation"] == 1
    labelled = await api.patch(resource, "a", {"metadata": {"labels": {"x": "y"}}})
    assert labelled.body["metadata"]["generation"] == 1
    status = await api.patch(resource, "a", {"status": {"replicas": 1}}, "status")
    assert status.status == 200, status.text
    assert status.body["metadata"]["generation"] == 1
    changed = await api.patch(resource, "a", {"spec": {"replicas": 7}})
    assert changed.body["metadata"]["generation"] == 2


async def test_without_a_status_subresource_status_counts_as_a_change(api: Api) -> None:
    await api.created("plains", plain("a"))
    changed = await api.patch("plains", "a", {"status": {}})
    assert changed.body["metadata"]["generation"] == 2


async def test_config_maps_have_no_generation(api: Api) -> None:
    created = await api.created("configmaps", config_map("a"))
    assert "generation" not in created.body["metadata"]


async def test_a_generation_that_a_client_sets_is_ignored(api: Api) -> None:
    created = await api.created("widgets", widget("a", generation=40))
    assert created.body["metadata"]["generation"] == 1
    patched = await api.patch("widgets", "a", {"metadata": {"generation": 50}})
    assert patched.body["metadata"]["generation"] == 1


# --- the status endpoint ignores everything but status, the main endpoint ignores status ---


@pytest.mark.parametrize("resource", ["widgets", "deployments"])
async def test_status_is_ignored_on_create_and_on_the_main_endpoint(api: Api, resource: str) -> None:
    body = widget("a") if resource == "widgets" else deployment("a")
    created = await api.created(resource, {**body, "status": {"replicas": 9}})
    assert created.body.get("status", {}).get("replicas") is None
    # from here on a Deployment's controller writes, too: a true status, which of one replica never says 9
    patched = await api.patch(resource, "a", {"status": {"replicas": 9}})
    assert patched.status == 200
    assert patched.body.get("status", {}).get("replicas") != 9
    sent = {**patched.body, "status": {"replicas": 9}}
    if resource == "deployments":
        del sent["metadata"]["resourceVersion"]
    replaced = await api.replace(resource, sent)
    assert replaced.status == 200
    assert replaced.body.get("status", {}).get("replicas") != 9
    assert (await api.get(resource, "a")).body.get("status", {}).get("replicas") != 9


async def test_the_status_endpoint_ignores_everything_but_status(api: Api) -> None:
    created = await api.created("widgets", widget("a", labels={"l": "1"}))
    body = created.body
    body["spec"]["size"] = 50
    body["metadata"]["labels"] = {"l": "2"}
    body["metadata"]["annotations"] = {"n": "3"}
    body["metadata"]["finalizers"] = ["example.com/f"]
    body["status"] = {"phase": "Done"}
    answer = await api.replace("widgets", body, "status")
    assert answer.status == 200
    assert answer.body["spec"]["size"] == 1
    assert answer.body["metadata"]["labels"] == {"l": "1"}
    assert "annotations" not in answer.body["metadata"]
    assert "finalizers" not in answer.body["metadata"]
    assert answer.body["status"] == {"phase": "Done"}
    assert (await api.get("widgets", "a")).body["status"] == {"phase": "Done"}


async def test_the_status_endpoint_answers_with_the_whole_object(api: Api) -> None:
    await api.created("widgets", widget("a"))
    answer = await api.get("widgets", "a", "status")
    assert answer.body["kind"] == "Widget"
    assert answer.body["spec"]["size"] == 1


async def test_a_kind_without_status_subresource_has_no_such_path(api: Api) -> None:
    await api.created("plains", plain("a"))
    for answer in (await api.get("plains", "a", "status"), await api.patch("plains", "a", {"status": {}}, "status")):
        assert answer.status == 404
        assert answer.message == 'plains.conformance.example.com "a" not found'  # as if the object were gone


async def test_without_a_status_subresource_status_is_written_with_the_rest(api: Api) -> None:
    created = await api.created("plains", {**plain("a"), "status": {}})
    assert created.body["status"] == {}


# --- a stale resourceVersion is a 409 with reason Conflict, an existing name a 409 with reason AlreadyExists ---


@pytest.mark.parametrize("how", ["replace", "merge", "json", "status"])
async def test_a_stale_version_is_a_conflict(api: Api, how: str) -> None:
    created = await api.created("widgets", widget("a"))
    await api.patch("widgets", "a", {"spec": {"size": 2}})
    match how:
        case "replace":
            body = created.body
            body["spec"]["size"] = 3
            answer = await api.replace("widgets", body)
        case "merge":
            patch = {"metadata": {"resourceVersion": created.version}, "spec": {"size": 3}}
            answer = await api.patch("widgets", "a", patch)
        case "json":
            operations: list[Body] = [
                {"op": "replace", "path": "/metadata/resourceVersion", "value": created.version},
                {"op": "replace", "path": "/spec/size", "value": 3},
            ]
            answer = await api.patch("widgets", "a", operations, content_type=JSON_PATCH)
        case _:
            answer = await api.replace("widgets", {**created.body, "status": {"phase": "x"}}, "status")
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert answer.message == f'Operation cannot be fulfilled on widgets.conformance.example.com "a": {_MODIFIED}'
    assert answer.body["details"] == {"name": "a", "group": "conformance.example.com", "kind": "widgets"}


async def test_an_existing_name_already_exists(api: Api) -> None:
    await api.created("configmaps", config_map("a"))
    answer = await api.create("configmaps", config_map("a"))
    assert (answer.status, answer.reason) == (409, "AlreadyExists")
    assert answer.message == 'configmaps "a" already exists'
    assert answer.body["details"] == {"name": "a", "kind": "configmaps"}


async def test_a_replace_with_another_uid_is_a_conflict(api: Api) -> None:
    created = await api.created("configmaps", config_map("a"))
    body = created.body
    body["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000"
    answer = await api.replace("configmaps", body)
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert "Precondition failed: UID in precondition: 00000000-0000-0000-0000-000000000000" in answer.message


async def test_a_custom_resource_is_not_replaced_without_a_version(api: Api) -> None:
    await api.created("widgets", widget("a"))
    answer = await api.replace("widgets", widget("a", {"size": 2}))
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.causes == [
        ("metadata.resourceVersion", "FieldValueInvalid", "Invalid value: 0: must be specified for an update")
    ]


async def test_what_is_not_there_is_not_found(api: Api) -> None:
    for answer in (
        await api.get("widgets", "none"),
        await api.patch("widgets", "none", {"spec": {}}),
        await api.delete("widgets", "none"),
        await api.get("widgets", "none", "status"),
    ):
        assert (answer.status, answer.reason) == (404, "NotFound")
        assert answer.message == 'widgets.conformance.example.com "none" not found'
        assert answer.body["details"] == {"name": "none", "group": "conformance.example.com", "kind": "widgets"}


async def test_a_replace_of_what_is_not_there_is_not_found(api: Api) -> None:
    answer = await api.replace("configmaps", config_map("none"))
    assert (answer.status, answer.reason) == (404, "NotFound")


# --- resourceVersion on create is a 400 ---


@differs(VERSION_ON_CREATE)
async def test_a_version_on_create_is_refused(api: Api) -> None:
    for resource, body in (("configmaps", config_map("a")), ("widgets", widget("a"))):
        body["metadata"]["resourceVersion"] = "1"
        answer = await api.create(resource, body)
        refusal = VERSION_ON_CREATE.on(api.server, kube_apiserver=(500, ""), in_memory=(400, "BadRequest"))
        assert (answer.status, answer.reason) == refusal
        assert answer.message == "resourceVersion should not be set on objects to be created"


# --- a missing name is a 422; generateName ---


@pytest.mark.parametrize("resource", ["configmaps", "widgets"])
async def test_a_missing_name_is_invalid(api: Api, resource: str) -> None:
    answer = await api.create(resource, config_map() if resource == "configmaps" else widget())
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.causes == [
        ("metadata.name", "FieldValueRequired", "Required value: name or generateName is required")
    ]
    kind = "ConfigMap" if resource == "configmaps" else "Widget.conformance.example.com"
    required = "Required value: name or generateName is required"
    assert answer.message == f'{kind} "" is invalid: metadata.name: {required}'


@pytest.mark.parametrize("resource", ["configmaps", "widgets"])
async def test_a_bad_name_is_invalid(api: Api, resource: str) -> None:
    answer = await api.create(resource, config_map("Not_Good") if resource == "configmaps" else widget("Not_Good"))
    assert (answer.status, answer.reason) == (422, "Invalid")
    ((field, reason, message),) = answer.causes
    assert (field, reason) == ("metadata.name", "FieldValueInvalid")
    assert message.startswith('Invalid value: "Not_Good": a lowercase RFC 1123 subdomain must consist of')


async def test_generate_name_makes_up_a_name(api: Api) -> None:
    first = await api.created("configmaps", config_map(generateName="made-"))
    second = await api.created("configmaps", config_map(generateName="made-"))
    names = [each.body["metadata"]["name"] for each in (first, second)]
    assert names[0] != names[1]
    for name in names:
        assert name.startswith("made-")
        assert len(name) == len("made-") + 5
    assert first.body["metadata"]["generateName"] == "made-"


async def test_a_name_wins_over_generate_name(api: Api) -> None:
    created = await api.created("configmaps", config_map("mine", generateName="made-"))
    assert created.body["metadata"]["name"] == "mine"


async def test_the_names_of_path_and_body_have_to_agree(api: Api) -> None:
    await api.created("configmaps", config_map("a"))
    answer = await api.call("PUT", api.path("configmaps", "a"), config_map("b"))
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message == "the name of the object (b) does not match the name on the URL (a)"


async def test_the_namespaces_of_path_and_body_have_to_agree(api: Api) -> None:
    answer = await api.create("configmaps", config_map("a", namespace="other"))
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message == "the namespace of the provided object does not match the namespace sent on the request"


async def test_a_body_of_another_kind_is_a_bad_request(api: Api) -> None:
    answer = await api.create("configmaps", {**config_map("a"), "kind": "Secret"})
    assert (answer.status, answer.reason) == (400, "BadRequest")


async def test_system_fields_are_the_servers(api: Api) -> None:
    created = await api.created(
        "configmaps", config_map("a", uid="mine", creationTimestamp="2001-01-01T00:00:00Z", selfLink="/x")
    )
    assert created.uid != "mine"
    assert created.body["metadata"]["creationTimestamp"] != "2001-01-01T00:00:00Z"
    assert created.body["metadata"]["namespace"] == api.namespace
    patched = await api.patch("configmaps", "a", {"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z"}})
    assert patched.body["metadata"]["creationTimestamp"] == created.body["metadata"]["creationTimestamp"]


async def test_labels_and_annotations_are_checked(api: Api) -> None:
    answer = await api.create("configmaps", config_map("a", labels={"bad key": "x", "k": "bad value!"}))
    assert answer.status == 422
    assert [(field, reason) for field, reason, _ in answer.causes] == [
        ("metadata.labels", "FieldValueInvalid"),
        ("metadata.labels", "FieldValueInvalid"),
    ]
    answer = await api.create("configmaps", config_map("a", annotations={"bad key": "x"}))
    assert [(field, reason) for field, reason, _ in answer.causes] == [("metadata.annotations", "FieldValueInvalid")]


# --- patches ---


async def test_a_merge_patch_sets_removes_and_replaces_lists(api: Api) -> None:
    await api.created("widgets", widget("a", {"labels": {"a": "1", "b": "2"}, "tags": ["x", "y"]}))
    answer = await api.patch("widgets", "a", {"spec": {"labels": {"a": None, "c": "3"}, "tags": ["z"]}})
    assert answer.body["spec"]["labels"] == {"b": "2", "c": "3"}
    assert answer.body["spec"]["tags"] == ["z"]


async def test_a_json_patch_is_all_or_nothing(api: Api) -> None:
    created = await api.created("configmaps", config_map("a"))
    operations: list[Body] = [
        {"op": "add", "path": "/data/b", "value": "2"},
        {"op": "test", "path": "/data/a", "value": "other"},
    ]
    answer = await api.patch("configmaps", "a", operations, content_type=JSON_PATCH)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert (await api.get("configmaps", "a")).body == created.body


async def test_a_json_patch_adds_moves_copies_and_removes(api: Api) -> None:
    await api.created("configmaps", config_map("a", {"a": "1", "b": "2"}))
    operations = [
        {"op": "test", "path": "/data/a", "value": "1"},
        {"op": "copy", "from": "/data/a", "path": "/data/c"},
        {"op": "move", "from": "/data/b", "path": "/data/d"},
        {"op": "remove", "path": "/data/a"},
    ]
    answer = await api.patch("configmaps", "a", operations, content_type=JSON_PATCH)
    assert answer.body["data"] == {"c": "1", "d": "2"}


async def test_a_json_patch_of_a_path_that_is_not_there_is_invalid(api: Api) -> None:
    await api.created("configmaps", config_map("a"))
    operation = {"op": "remove", "path": "/data/none"}
    answer = await api.patch("configmaps", "a", [operation], content_type=JSON_PATCH)
    assert (answer.status, answer.reason) == (422, "Invalid")


async def test_a_strategic_patch_merges_lists_by_key(api: Api) -> None:
    await api.created("deployments", deployment("a"))
    containers = [
        {"name": "side", "image": "registry.invalid/side:1"},
        {"name": "web", "image": "registry.invalid/web:2"},
    ]
    patch = {"spec": {"template": {"spec": {"containers": containers}}}}
    answer = await api.patch("deployments", "a", patch, content_type=STRATEGIC_PATCH)
    found = {each["name"]: each["image"] for each in answer.body["spec"]["template"]["spec"]["containers"]}
    assert found == {"web": "registry.invalid/web:2", "side": "registry.invalid/side:1"}
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "side", "$patch": "delete"}]}}}}
    answer = await api.patch("deployments", "a", patch, content_type=STRATEGIC_PATCH)
    assert [each["name"] for each in answer.body["spec"]["template"]["spec"]["containers"]] == ["web"]


async def test_a_strategic_patch_of_a_custom_resource_is_unsupported(api: Api) -> None:
    await api.created("widgets", widget("a"))
    answer = await api.patch("widgets", "a", {"spec": {"size": 2}}, content_type=STRATEGIC_PATCH)
    assert (answer.status, answer.reason) == (415, "UnsupportedMediaType")


async def test_a_patch_cannot_rename_or_move(api: Api) -> None:
    await api.created("configmaps", config_map("a"))
    answer = await api.patch("configmaps", "a", {"metadata": {"name": "b"}})
    assert answer.status == 400
    assert answer.message == "the name of the object (b) does not match the name on the URL (a)"
    answer = await api.patch("configmaps", "a", {"metadata": {"namespace": "b"}})
    assert answer.status == 400
    assert answer.message == "the namespace of the provided object does not match the namespace sent on the request"


async def test_garbage_is_a_bad_request(api: Api) -> None:
    await api.created("configmaps", config_map("a"))
    answer = await api.patch("configmaps", "a", [{"no": "patch"}], content_type=MERGE_PATCH)
    assert (answer.status, answer.reason) == (400, "BadRequest")


async def test_built_in_objects_get_their_defaults(api: Api) -> None:
    created = await api.created("deployments", deployment("a"))
    spec = created.body["spec"]
    assert spec["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
    }
    assert spec["revisionHistoryLimit"] == 10
    assert spec["progressDeadlineSeconds"] == 600
    pod = spec["template"]["spec"]
    assert (pod["restartPolicy"], pod["dnsPolicy"], pod["schedulerName"]) == (
        "Always",
        "ClusterFirst",
        "default-scheduler",
    )
    (container,) = pod["containers"]
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert container["terminationMessagePath"] == "/dev/termination-log"


async def test_what_is_empty_and_no_pointer_does_not_come_back_from_built_in_kinds(api: Api) -> None:
    body = deployment("a")
    body["spec"] |= {"replicas": 0, "minReadySeconds": 0, "paused": False}
    pod = body["spec"]["template"]["spec"]
    pod |= {"hostNetwork": False, "volumes": [], "nodeSelector": {}, "automountServiceAccountToken": False}
    pod["containers"][0] |= {"env": [{"name": "EMPTY", "value": ""}], "args": [], "stdin": False}
    created = (await api.created("deployments", body)).body["spec"]
    assert created["replicas"] == 0
    assert {"minReadySeconds", "paused"}.isdisjoint(created)
    pod = created["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert {"hostNetwork", "volumes", "nodeSelector"}.isdisjoint(pod)
    (container,) = pod["containers"]
    assert container["env"] == [{"name": "EMPTY"}]
    assert {"args", "stdin"}.isdisjoint(container)


async def test_a_services_cluster_ip_is_given_and_kept(api: Api) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "a"},
        "spec": {"selector": {"app": "a"}, "ports": [{"port": 80}]},
    }
    created = await api.created("services", service)
    spec = created.body["spec"]
    assert spec["clusterIP"]
    assert spec["clusterIPs"] == [spec["clusterIP"]]
    assert spec["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    assert (spec["type"], spec["sessionAffinity"]) == ("ClusterIP", "None")
    changed = await api.patch("services", "a", {"spec": {"clusterIP": "10.96.0.77", "clusterIPs": ["10.96.0.77"]}})
    assert (changed.status, changed.reason) == (422, "Invalid")


async def test_string_data_of_a_secret_becomes_data(api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "stringData": {"k": "v"}}
    created = await api.created("secrets", body)
    assert created.body["data"] == {"k": "dg=="}
    assert created.body["type"] == "Opaque"
    assert "stringData" not in created.body


async def test_a_deployments_selector_is_immutable(api: Api) -> None:
    await api.created("deployments", deployment("a"))
    patch = {
        "spec": {
            "selector": {"matchLabels": {"app": "b"}},
            "template": {"metadata": {"labels": {"app": "b"}}},
        }
    }
    answer = await api.patch("deployments", "a", patch)
    assert answer.status == 422
    assert [(field, reason) for field, reason, _ in answer.causes] == [("spec.selector", "FieldValueInvalid")]
    assert answer.causes[0][2].endswith("field is immutable")


async def test_an_immutable_config_map_cannot_change(api: Api) -> None:
    await api.created("configmaps", {**config_map("a"), "immutable": True})
    answer = await api.patch("configmaps", "a", {"data": {"a": "2"}})
    assert answer.status == 422
    assert answer.causes == [("data", "FieldValueForbidden", "Forbidden: field is immutable when `immutable` is set")]


# --- dry-run changes nothing ---


async def test_dry_run_changes_nothing(api: Api) -> None:
    created = await api.create("widgets", widget("a"), dryRun="All")
    assert created.status == 201
    assert created.body["spec"]["color"] == "red"
    assert created.uid
    assert (await api.get("widgets", "a")).status == 404

    real = await api.created("widgets", widget("a"))
    patched = await api.patch("widgets", "a", {"spec": {"size": 9}}, dryRun="All")
    assert patched.body["spec"]["size"] == 9
    replaced = await api.replace("widgets", {**real.body, "spec": {"size": 8}}, dryRun="All")
    assert replaced.body["spec"]["size"] == 8
    applied = await api.apply("widgets", widget("a", {"size": 7}), dryRun="All", force="true")
    assert applied.body["spec"]["size"] == 7
    status = await api.patch("widgets", "a", {"status": {"phase": "x"}}, "status", dryRun="All")
    assert status.body["status"] == {"phase": "x"}
    deleted = await api.delete("widgets", "a", dryRun="All")
    assert deleted.status == 200
    assert (await api.get("widgets", "a")).body == real.body


async def test_dry_run_still_validates(api: Api) -> None:
    assert (await api.create("widgets", widget("a", {"size": 0}), dryRun="All")).status == 422
    await api.created("widgets", widget("a"))
    assert (await api.create("widgets", widget("a"), dryRun="All")).status == 409


async def test_an_unknown_dry_run_is_refused(api: Api) -> None:
    answer = await api.create("widgets", widget("a"), dryRun="Some")
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.causes == [
        ("dryRun", "FieldValueNotSupported", 'Unsupported value: ["Some"]: supported values: "All"')
    ]


# --- field validation ---


async def test_unknown_fields_are_refused_when_validation_is_strict(api: Api) -> None:
    answer = await api.create("widgets", widget("a", {"nope": 1, "nested": {"no": 1}}), fieldValidation="Strict")
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert 'strict decoding error: unknown field "spec.nested.no", unknown field "spec.nope"' in answer.message
    assert (await api.create("widgets", widget("a"), fieldValidation="Strict")).status == 201


async def test_unknown_fields_of_built_in_kinds_are_refused_when_validation_is_strict(api: Api) -> None:
    answer = await api.create("configmaps", {**config_map("a"), "nope": 1}, fieldValidation="Strict")
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert 'strict decoding error: unknown field "nope"' in answer.message


async def test_a_value_of_another_type_is_refused_for_built_in_kinds(api: Api) -> None:
    answer = await api.create("configmaps", {**config_map("a"), "data": {"a": 1}})
    assert (answer.status, answer.reason) == (400, "BadRequest")
    fault = "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"
    assert answer.message == f'ConfigMap in version "v1" cannot be handled as a ConfigMap: {fault}'
    body = deployment("a")
    body["spec"]["replicas"] = "three"
    answer = await api.create("deployments", body)
    fault = "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"
    assert answer.message == f'Deployment in version "v1" cannot be handled as a Deployment: {fault}'
    body = deployment("a")
    body["spec"]["template"]["spec"]["containers"][0]["image"] = {"x": 1}
    answer = await api.create("deployments", body)
    field = "Container.spec.template.spec.containers.image"
    fault = f"json: cannot unmarshal object into Go struct field {field} of type string"
    assert answer.message == f'Deployment in version "v1" cannot be handled as a Deployment: {fault}'


def secret(name: str, data: Body) -> Body:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}


@pytest.mark.parametrize(
    ("text", "byte"),
    [
        ("not base64!", 3),
        ("a", 0),
        ("YQ", 0),
        ("YWJjZA", 4),
        ("YQ=", 3),
        ("====", 0),
        ("Y=Q=", 1),
        ("YQ=x", 2),
        ("YQ==x", 4),
        ("YQ==YQ==", 4),
        ("Y Q==", 1),
        ("é", 0),
        ("YWJj\nYQ", 5),
        ("YWJj\nY\nQ", 6),
        ("YWJjYWJjYWJjYW!j", 14),
    ],
)
async def test_data_of_a_secret_that_is_no_base64_is_refused(api: Api, text: str, byte: int) -> None:
    answer = await api.create("secrets", secret("a", {"k": text}), dryRun="All")
    assert (answer.status, answer.reason) == (400, "BadRequest")
    fault = f"illegal base64 data at input byte {byte}"
    assert answer.message == f'Secret in version "v1" cannot be handled as a Secret: {fault}'


@pytest.mark.parametrize("text", ["", "YQ==", "YR==", "YWJj\nZGVm", "YWJj\r\n", "YQ\n=\n=\n", "YWI=", "+/+/"])
async def test_base64_may_have_line_breaks_and_comes_back_without(api: Api, text: str) -> None:
    answer = await api.create("secrets", secret("a", {"k": text}), dryRun="All")
    assert answer.status == 201
    assert answer.body["data"] == {"k": base64.b64encode(base64.b64decode(text)).decode()}


async def test_base64_is_asked_for_in_every_write_and_in_binary_data(api: Api) -> None:
    fault = "illegal base64 data at input byte 0"
    answer = await api.create("configmaps", {**config_map("a"), "binaryData": {"k": "!"}})
    assert answer.message == f'ConfigMap in version "v1" cannot be handled as a ConfigMap: {fault}'
    answer = await api.create("secrets", secret("a", {"k": 5}))
    assert answer.message.endswith("json: cannot unmarshal number into Go struct field Secret.data of type []uint8")

    await api.created("secrets", secret("a", {"a": "YQ=="}))
    answer = await api.replace("secrets", secret("a", {"k": "!"}))
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message.endswith(fault)
    add: list[Body] = [{"op": "add", "path": "/data/k", "value": "!"}]
    for patch, content_type in (({"data": {"k": "!"}}, MERGE_PATCH), (add, JSON_PATCH)):
        answer = await api.patch("secrets", "a", patch, content_type=content_type)
        assert (answer.status, answer.reason) == (422, "Invalid")
        assert answer.message.startswith(' "" is invalid: patch: Invalid value: "{')
        assert answer.message.endswith(f'}}": {fault}')
        assert [(field, reason) for field, reason, _ in answer.causes] == [("patch", "FieldValueInvalid")]
    answer = await api.patch("secrets", "a", {"data": {"k": "!"}}, content_type=STRATEGIC_PATCH)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.message.endswith(f'": error decoding from json: {fault}')
    answer = await api.apply("secrets", secret("a", {"k": "!"}))
    assert (answer.status, answer.reason) == (500, "")
    assert answer.message == (
        "failed to convert new object (/a; /v1, Kind=Secret) to proper version: unable to convert unstructured object "
        f"to /v1, Kind=Secret: error decoding from json: {fault}"
    )
    assert (await api.get("secrets", "a")).body["data"] == {"a": "YQ=="}


async def test_a_value_of_another_type_in_a_patch(api: Api) -> None:
    await api.created("configmaps", config_map("a"))
    answer = await api.patch("configmaps", "a", {"data": {"k": 1}})
    assert (answer.status, answer.reason) == (422, "Invalid")
    fault = "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"
    assert answer.message.endswith(f'}}": {fault}')


async def test_a_config_map_and_a_secret_hold_a_mebibyte(api: Api) -> None:
    limit, text = 1_048_576, "Too long: may not be more than 1048576 bytes"

    def encoded(size: int) -> str:
        return base64.b64encode(b"x" * size).decode()

    half = "x" * (limit // 2)
    whole = {**config_map("a"), "data": {"a": half}, "binaryData": {"b": encoded(limit // 2)}}
    assert (await api.create("configmaps", whole, dryRun="All")).status == 201
    answer = await api.create("configmaps", {**whole, "data": {"a": half, "c": "x"}}, dryRun="All")
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.message == f'ConfigMap "a" is invalid: []: {text}'
    assert answer.causes == [("[]", "FieldValueTooLong", text)]

    assert (await api.create("secrets", secret("a", {"k": encoded(limit)}), dryRun="All")).status == 201
    for body in (
        secret("a", {"k": encoded(limit), "j": "eA=="}),
        {**secret("a", {}), "stringData": {"k": "x" * limit, "j": "x"}},
    ):
        answer = await api.create("secrets", body, dryRun="All")
        assert answer.message == f'Secret "a" is invalid: data: {text}'
        assert answer.causes == [("data", "FieldValueTooLong", text)]


async def test_unknown_fields_of_custom_resources_are_dropped_otherwise(api: Api) -> None:
    created = await api.create("widgets", widget("a", {"nope": 1}), fieldValidation="Ignore")
    assert created.status == 201
    assert "nope" not in created.body["spec"]


@pytest.mark.parametrize("kind", ["Validating", "Mutating"])
async def test_webhook_configurations_get_their_defaults(api: Api, kind: str) -> None:
    plural = f"{kind.lower()}webhookconfigurations"
    webhook: Body = {
        "name": "hook.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"service": {"name": "hook", "namespace": "none"}},
        "rules": [
            {"operations": ["CREATE"], "apiGroups": ["x.example.com"], "apiVersions": ["v1"], "resources": ["y"]}
        ],
    }
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": new_name("hook")},
        "webhooks": [webhook],
    }
    path = f"/apis/admissionregistration.k8s.io/v1/{plural}"
    (stored,) = (await api.call("POST", path, body, query={"dryRun": "All"})).body["webhooks"]
    again = {} if kind == "Validating" else {"reinvocationPolicy": "Never"}
    assert stored == {
        **webhook,
        **again,
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "timeoutSeconds": 10,
        "clientConfig": {"service": {"name": "hook", "namespace": "none", "port": 443}},
        "rules": [{**webhook["rules"][0], "scope": "*"}],
    }
