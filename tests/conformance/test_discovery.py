"""What clients learn from the server: kinds, OpenAPI, tables."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.differences import TABLES, UNSTABLE_VERSIONS, YAML_ANSWERS, differs
from conformance.harness import GROUP, Answer, Api, Body, config_map, eventually, widget

pytestmark = pytest.mark.anyio

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


async def test_groups_and_their_versions(api: Api) -> None:
    groups = (await api.call("GET", "/apis")).body
    assert groups["kind"] == "APIGroupList"
    found = {each["name"]: each for each in groups["groups"]}
    assert found[GROUP]["preferredVersion"] == {"groupVersion": f"{GROUP}/v1", "version": "v1"}
    assert {"apps", "batch", "coordination.k8s.io", "apiextensions.k8s.io"} <= set(found)
    assert (await api.call("GET", "/api")).body["versions"] == ["v1"]
    one = (await api.call("GET", f"/apis/{GROUP}")).body
    assert one["kind"] == "APIGroup"
    assert one["versions"] == [{"groupVersion": f"{GROUP}/v1", "version": "v1"}]


def _resources(answer: Answer) -> dict[str, Body]:
    return {each["name"]: each for each in answer.body["resources"]}


async def test_resources_of_a_group_version(api: Api) -> None:
    answer = await api.call("GET", f"/apis/{GROUP}/v1")
    assert answer.body["groupVersion"] == f"{GROUP}/v1"
    found = _resources(answer)
    widgets = found["widgets"]
    assert widgets["singularName"] == "widget"
    assert widgets["namespaced"] is True
    assert widgets["kind"] == "Widget"
    assert widgets["shortNames"] == ["wdg"]
    assert sorted(widgets["verbs"]) == [
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch",
    ]
    assert found["widgets/status"]["verbs"] == ["get", "patch", "update"]
    assert (found["widgets/scale"]["group"], found["widgets/scale"]["kind"]) == ("autoscaling", "Scale")
    assert found["gadgets"]["namespaced"] is False
    assert "plains/status" not in found


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        ("/api/v1", "configmaps"),
        ("/api/v1", "namespaces"),
        ("/api/v1", "services"),
        ("/apis/apps/v1", "deployments"),
        ("/apis/apps/v1", "deployments/scale"),
        ("/apis/apps/v1", "statefulsets"),
        ("/apis/batch/v1", "jobs"),
        ("/apis/coordination.k8s.io/v1", "leases"),
        ("/apis/apiextensions.k8s.io/v1", "customresourcedefinitions"),
        ("/apis/rbac.authorization.k8s.io/v1", "clusterroles"),
    ],
)
async def test_built_in_resources(api: Api, server: str, path: str, resource: str) -> None:
    """Checked against what was read from a kube-apiserver 1.37."""
    found = _resources(await api.call("GET", path))[resource]
    found.pop("storageVersionHash", None)
    assert found == _BUILTIN[resource]


_ALL = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_BUILTIN: dict[str, Body] = {
    "configmaps": {
        "name": "configmaps",
        "singularName": "configmap",
        "namespaced": True,
        "kind": "ConfigMap",
        "verbs": _ALL,
        "shortNames": ["cm"],
    },
    "namespaces": {
        "name": "namespaces",
        "singularName": "namespace",
        "namespaced": False,
        "kind": "Namespace",
        "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
        "shortNames": ["ns"],
    },
    "services": {
        "name": "services",
        "singularName": "service",
        "namespaced": True,
        "kind": "Service",
        "verbs": _ALL,
        "shortNames": ["svc"],
        "categories": ["all"],
    },
    "deployments": {
        "name": "deployments",
        "singularName": "deployment",
        "namespaced": True,
        "kind": "Deployment",
        "verbs": _ALL,
        "shortNames": ["deploy"],
        "categories": ["all"],
    },
    "deployments/scale": {
        "name": "deployments/scale",
        "singularName": "",
        "namespaced": True,
        "group": "autoscaling",
        "version": "v1",
        "kind": "Scale",
        "verbs": ["get", "patch", "update"],
    },
    "statefulsets": {
        "name": "statefulsets",
        "singularName": "statefulset",
        "namespaced": True,
        "kind": "StatefulSet",
        "verbs": _ALL,
        "shortNames": ["sts"],
        "categories": ["all"],
    },
    "jobs": {
        "name": "jobs",
        "singularName": "job",
        "namespaced": True,
        "kind": "Job",
        "verbs": _ALL,
        "categories": ["all"],
    },
    "leases": {"name": "leases", "singularName": "lease", "namespaced": True, "kind": "Lease", "verbs": _ALL},
    "customresourcedefinitions": {
        "name": "customresourcedefinitions",
        "singularName": "customresourcedefinition",
        "namespaced": False,
        "kind": "CustomResourceDefinition",
        "verbs": _ALL,
        "shortNames": ["crd", "crds"],
        "categories": ["api-extensions"],
    },
    "clusterroles": {
        "name": "clusterroles",
        "singularName": "clusterrole",
        "namespaced": False,
        "kind": "ClusterRole",
        "verbs": _ALL,
    },
}


async def test_all_is_discovered_at_once(api: Api) -> None:
    for path, group in (("/api", None), ("/apis", GROUP)):
        answer = await api.call("GET", path, accept=AGGREGATED)
        assert answer.headers["content-type"].replace(" ", "") == AGGREGATED.partition(",")[0]
        assert answer.body["kind"] == "APIGroupDiscoveryList"
        item = next(each for each in answer.body["items"] if each["metadata"].get("name") == group)
        (version,) = item["versions"]
        assert (version["version"], version["freshness"]) == ("v1", "Current")
        if group is None:
            continue
        found = {each["resource"]: each for each in version["resources"]}["widgets"]
        assert found["responseKind"] == {"group": GROUP, "version": "v1", "kind": "Widget"}
        assert (found["scope"], found["singularResource"], found["shortNames"]) == ("Namespaced", "widget", ["wdg"])
        assert {each["subresource"] for each in found["subresources"]} == {"status", "scale"}


async def test_a_group_that_is_not_there_is_not_found(api: Api) -> None:
    assert (await api.call("GET", "/apis/nobody.example.com")).status == 404
    assert (await api.call("GET", f"/apis/{GROUP}/v9")).status == 404
    assert (await api.call("GET", f"/apis/{GROUP}/v1/namespaces/{api.namespace}/nothings")).status == 404


async def test_the_version_is_told(api: Api) -> None:
    version = (await api.call("GET", "/version")).body
    assert version["major"] == "1"
    assert version["gitVersion"].startswith(f"v1.{version['minor']}.")


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
async def test_health(api: Api, path: str) -> None:

    async def is_well() -> bool:  # the real server is not, while its store is slow
        answer = await api.call("GET", path)
        return (answer.status, answer.text) == (200, "ok")

    await eventually(is_well)


async def test_openapi_describes_custom_resources(api: Api) -> None:
    document: Body = {}

    async def are_described() -> bool:
        """The real server writes it some time after a kind came or went; an address from before leads elsewhere."""
        index = (await api.call("GET", "/openapi/v3")).body["paths"]
        if (entry := index.get(f"apis/{GROUP}/v1")) is None:
            return False
        path, _, query = entry["serverRelativeURL"].partition("?")
        answer = await api.call("GET", path, query=dict([query.split("=")]))
        if answer.status != 200:
            return False
        document.update(answer.body)
        return "com.example.conformance.v1.Widget" in document["components"]["schemas"]

    await eventually(are_described)
    found = document["components"]["schemas"]["com.example.conformance.v1.Widget"]
    assert found["x-kubernetes-group-version-kind"] == [{"group": GROUP, "kind": "Widget", "version": "v1"}]
    assert found["properties"]["spec"]["properties"]["color"]["default"] == "red"
    assert set(found["properties"]) == {"apiVersion", "kind", "metadata", "spec", "status"}
    patches = [each["patch"] for each in document["paths"].values() if "patch" in each]
    for patch in patches:
        assert {"dryRun", "fieldManager", "fieldValidation"} <= {each["name"] for each in patch["parameters"]}


async def test_openapi_describes_built_in_kinds(api: Api) -> None:
    document = (await api.call("GET", "/openapi/v3/apis/apps/v1")).body
    schemas = document["components"]["schemas"]
    spec = schemas["io.k8s.api.apps.v1.DeploymentSpec"]
    assert set(spec["required"]) == {"selector", "template"}
    assert spec["properties"]["replicas"]["type"] == "integer"
    containers = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["x-kubernetes-list-map-keys"] == ["name"]
    assert containers["items"] == {"$ref": "#/components/schemas/io.k8s.api.core.v1.Container"}


# --- tables ---


async def _table(api: Api, resource: str, **query: str | int) -> Body:
    answer = await api.call("GET", api.path(resource), accept=TABLE, query=query)
    assert answer.body["kind"] == "Table"
    assert answer.body["apiVersion"] == "meta.k8s.io/v1"
    return answer.body


def _columns(table: Body) -> list[tuple[str, str, int]]:
    return [(each["name"], each["type"], each["priority"]) for each in table["columnDefinitions"]]


async def test_custom_resources_are_shown_by_their_columns(api: Api) -> None:
    await api.created("widgets", widget("a", {"size": 7, "due": "2001-01-01T00:00:00Z", "tags": ["x", "y"]}))
    await api.patch("widgets", "a", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, "status")
    await api.created("widgets", widget("b"))
    table = await _table(api, "widgets")
    assert _columns(table) == [
        ("Name", "string", 0),
        ("Size", "integer", 0),
        ("Ready", "string", 0),
        ("Due", "date", 0),
        ("Tags", "string", 1),
    ]
    one, other = (row["cells"] for row in table["rows"])
    assert one[:3] == ["a", 7, "True"]
    assert one[3].endswith("y")
    assert one[4] == '["x","y"]'
    assert other == ["b", 1, None, None, None]
    row = table["rows"][0]["object"]
    assert row["kind"] == "PartialObjectMetadata"
    assert row["metadata"]["name"] == "a"


async def test_rows_carry_as_much_of_the_object_as_is_asked_for(api: Api) -> None:
    await api.created("widgets", widget("a"))
    whole = await _table(api, "widgets", includeObject="Object")
    assert whole["rows"][0]["object"]["spec"]["size"] == 1
    nothing = await _table(api, "widgets", includeObject="None")
    assert nothing["rows"][0].get("object") is None


async def test_one_object_can_be_a_table(api: Api) -> None:
    created = await api.created("widgets", widget("a"))
    table = (await api.call("GET", api.path("widgets", "a"), accept=TABLE)).body
    assert table["metadata"]["resourceVersion"] == created.version
    assert [row["cells"][0] for row in table["rows"]] == ["a"]


async def test_pages_of_tables_go_on(api: Api) -> None:
    for name in "abc":
        await api.created("widgets", widget(name))
    table = await _table(api, "widgets", limit=2)
    assert len(table["rows"]) == 2
    assert table["metadata"]["remainingItemCount"] == 1
    table = await _table(api, "widgets", limit=2, **{"continue": table["metadata"]["continue"]})
    assert [row["cells"][0] for row in table["rows"]] == ["c"]


async def test_config_maps_are_shown_as_ever(api: Api) -> None:
    await api.created("configmaps", config_map("a", {"x": "1", "y": "2"}))
    table = await _table(api, "configmaps", fieldSelector="metadata.name=a")
    assert _columns(table) == [("Name", "string", 0), ("Data", "string", 0), ("Age", "string", 0)]
    assert table["rows"][0]["cells"][:2] == ["a", 2]


_POD_SPEC: Body = {"containers": [{"name": "c", "image": "registry.invalid/c:1"}]}


@pytest.mark.parametrize(
    ("resource", "body", "names", "cells"),
    [
        (
            "pods",
            {"apiVersion": "v1", "kind": "Pod", "spec": _POD_SPEC},
            ["Name", "Ready", "Status", "Restarts", "Age", "IP", "Node", "Nominated Node", "Readiness Gates"],
            ["a", "0/1", "Pending", "0", None, "<none>", "<none>", "<none>", "<none>"],
        ),
        (
            "services",
            {"apiVersion": "v1", "kind": "Service", "spec": {"clusterIP": "None", "ports": [{"port": 80}]}},
            ["Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "Selector"],
            ["a", "ClusterIP", "None", "<none>", "80/TCP", None, "<none>"],
        ),
        (
            "secrets",
            {"apiVersion": "v1", "kind": "Secret", "data": {"k": "dg=="}},
            ["Name", "Type", "Data", "Age"],
            ["a", "Opaque", 1, None],
        ),
        (
            "leases",
            {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"holderIdentity": "me"}},
            ["Name", "Holder", "Age"],
            ["a", "me", None],
        ),
    ],
)
async def test_built_in_kinds_are_shown_as_ever(
    api: Api, resource: str, body: Body, names: list[str], cells: list[Any]
) -> None:
    async def created() -> bool:  # pods wait for the namespace's service account
        return (await api.create(resource, {**body, "metadata": {"name": "a"}})).status != 403

    await eventually(created)
    table = await _table(api, resource, fieldSelector="metadata.name=a")
    assert [name for name, _, _ in _columns(table)] == names
    row = table["rows"][0]["cells"]
    assert [found if wanted is not None else None for found, wanted in zip(row, cells, strict=True)] == cells


async def test_crds_are_shown_with_their_names(api: Api) -> None:
    answer = await api.call("GET", api.path("customresourcedefinitions"), accept=TABLE)
    assert _columns(answer.body) == [
        ("Name", "string", 0),
        ("Scope", "string", 0),
        ("Versions", "string", 0),
        ("Created At", "date", 0),
        ("Group", "string", 1),
        ("Kind", "string", 1),
        ("ShortNames", "string", 1),
        ("Established", "boolean", 1),
    ]
    cells = next(row["cells"] for row in answer.body["rows"] if row["cells"][0] == f"widgets.{GROUP}")
    assert [*cells[1:3], *cells[4:]] == ["Namespaced", "v1(storage)", GROUP, "Widget", "wdg", True]


async def test_a_watch_of_tables(api: Api) -> None:
    version = (await api.get("widgets")).version
    answer_stream = api.watch("widgets", accept=TABLE, resourceVersion=version)
    async with answer_stream as watch:
        await api.created("widgets", widget("a"))
        await api.created("widgets", widget("b"))
        first, second = await watch.next(), await watch.next()
    assert first["type"] == "ADDED"
    assert first["object"]["kind"] == "Table"
    assert first["object"]["columnDefinitions"][0]["name"] == "Name"
    assert first["object"]["rows"][0]["cells"][0] == "a"
    assert not second["object"].get("columnDefinitions")
    assert second["object"]["rows"][0]["cells"][0] == "b"


@differs(TABLES)
async def test_every_built_in_kind_has_columns_of_its_own(api: Api) -> None:
    answer = await api.call("GET", "/apis/scheduling.k8s.io/v1/priorityclasses", accept=TABLE)
    names = [name for name, _, _ in _columns(answer.body)]
    assert names == TABLES.on(
        api.server,
        kube_apiserver=["Name", "Value", "Global-Default", "Age", "PreemptionPolicy"],
        in_memory=["Name", "Created At"],
    )


# --- versions and formats ---


@differs(UNSTABLE_VERSIONS)
async def test_unstable_versions_of_built_in_kinds_are_off(api: Api) -> None:
    answer = await api.call("GET", "/apis/coordination.k8s.io/v1beta1")
    assert answer.status == UNSTABLE_VERSIONS.on(api.server, kube_apiserver=404, in_memory=200)


@pytest.mark.parametrize("media_type", ["application/yaml", "application/vnd.kubernetes.protobuf"])
@differs(YAML_ANSWERS)
async def test_answers_come_in_the_format_that_is_wanted(api: Api, media_type: str) -> None:
    await api.created("configmaps", config_map("a"))
    answer = await api.call("GET", api.path("configmaps", "a"), accept=f"{media_type}, application/json")
    found = answer.headers["content-type"]
    assert found == YAML_ANSWERS.on(api.server, kube_apiserver=media_type, in_memory="application/json")


async def test_a_format_that_nobody_has_is_not_acceptable(api: Api) -> None:
    answer = await api.call("GET", api.path("configmaps"), accept="text/html")
    assert (answer.status, answer.body["reason"]) == (406, "NotAcceptable")
