"""CRDs and what they make of their objects: defaulting, pruning, validation, immutability, scale."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest

from conformance.differences import PATTERNS, differs
from conformance.harness import CRDS, GROUP, Api, Body, eventually, gadget, new_name, widget

pytestmark = pytest.mark.anyio


def crd(plural: str, schema: Body, **version: Any) -> Body:
    kind = plural.title()
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}
            ],
        },
    }


def with_spec(properties: Body) -> Body:
    return {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}


def new_plural() -> str:
    return new_name("k").replace("-", "")


# --- defaulting ---


async def test_defaults_are_filled_in(api: Api) -> None:
    created = await api.created("widgets", widget("a", {"nested": {}, "parts": [{"name": "x"}]}))
    assert created.body["spec"] == {
        "size": 1,
        "replicas": 1,
        "color": "red",
        "nested": {"depth": 3},
        "parts": [{"name": "x", "count": 1}],
    }


async def test_defaults_of_an_object_that_is_not_there_are_not_filled_in(api: Api) -> None:
    created = await api.created("widgets", widget("a"))
    assert "nested" not in created.body["spec"]


async def test_a_null_that_the_schema_does_not_allow_is_dropped_or_defaulted(api: Api) -> None:
    created = await api.created("widgets", widget("a", {"code": None, "color": None, "note": None}))
    assert "code" not in created.body["spec"]
    assert created.body["spec"]["color"] == "red"
    assert created.body["spec"]["note"] is None


async def test_a_removed_field_gets_its_default_again(api: Api) -> None:
    await api.created("widgets", widget("a", {"replicas": 5}))
    answer = await api.patch("widgets", "a", {"spec": {"replicas": None}})
    assert answer.body["spec"]["replicas"] == 1


# --- pruning ---


async def test_unknown_fields_are_pruned(api: Api) -> None:
    body = widget("a", {"nope": 1, "nested": {"no": 1}, "parts": [{"name": "x", "no": 1}], "labels": {"any": "1"}})
    body["top"] = 1
    created = await api.created("widgets", body)
    assert "top" not in created.body
    assert "nope" not in created.body["spec"]
    assert created.body["spec"]["nested"] == {"depth": 3}
    assert created.body["spec"]["parts"] == [{"name": "x", "count": 1}]
    assert created.body["spec"]["labels"] == {"any": "1"}


async def test_unknown_fields_are_kept_where_the_schema_says_so(api: Api) -> None:
    free = {"a": {"b": [1, {"c": None}]}}
    created = await api.created("widgets", widget("a", {"free": free}))
    assert created.body["spec"]["free"] == free
    open_one = await api.created("gadgets", {**gadget(new_name()), "top": {"level": 1}})
    assert open_one.body["top"] == {"level": 1}
    assert open_one.body["spec"] == {"any": {"thing": [1]}}


async def test_status_is_pruned_and_validated_too(api: Api) -> None:
    await api.created("widgets", widget("a"))
    answer = await api.patch("widgets", "a", {"status": {"phase": "x", "nope": 1}}, "status")
    assert answer.body["status"] == {"phase": "x"}
    answer = await api.patch("widgets", "a", {"status": {"phase": 1}}, "status")
    assert (answer.status, answer.reason) == (422, "Invalid")
    text = 'phase in body must be of type string: "integer"'
    assert answer.causes == [("status.phase", "FieldValueTypeInvalid", f'Invalid value: "integer": {text}')]


# --- validation ---


@pytest.mark.parametrize(
    ("spec", "cause"),
    [
        ({"size": "3"}, ("spec.size", "TypeInvalid", '"string": spec.size in body must be of type integer: "string"')),
        ({"size": 0}, ("spec.size", "Invalid", "0: spec.size in body should be greater than or equal to 1")),
        ({"size": 101}, ("spec.size", "Invalid", "101: spec.size in body should be less than or equal to 100")),
        ({"code": "ABC"}, ("spec.code", "Invalid", "\"ABC\": spec.code in body should match '^[a-z]+$'")),
        (
            {"port": 1.5},
            ("spec.port", "TypeInvalid", '"number": spec.port in body must be of type integer,string: "number"'),
        ),
        ({"labels": {"x": 1}}, ("spec.labels.x", "TypeInvalid", None)),
        ({"due": "soon"}, ("spec.due", "TypeInvalid", '"soon": spec.due in body must be of type date-time: "soon"')),
        ({"parts": [{"name": "x", "count": "y"}]}, ("spec.parts[0].count", "TypeInvalid", None)),
    ],
)
async def test_values_are_validated(api: Api, spec: Body, cause: tuple[str, str, str | None]) -> None:
    answer = await api.create("widgets", widget("a", spec))
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.body["details"]["kind"] == "Widget"
    assert answer.body["details"]["group"] == GROUP
    field, reason, text = cause
    found = answer.causes
    assert [(each[0], each[1]) for each in found] == [(field, f"FieldValue{reason}")]
    if text is not None:
        assert found[0][2] == f"Invalid value: {text}"
        assert answer.message == f'Widget.{GROUP} "a" is invalid: {field}: Invalid value: {text}'


async def test_a_missing_field_is_required(api: Api) -> None:
    body = widget("a")
    del body["spec"]["size"]
    answer = await api.create("widgets", body)
    assert answer.causes == [("spec.size", "FieldValueRequired", "Required value")]
    assert answer.message == f'Widget.{GROUP} "a" is invalid: spec.size: Required value'


async def test_a_value_outside_an_enum_is_not_supported(api: Api) -> None:
    answer = await api.create("widgets", widget("a", {"color": "blue"}))
    assert answer.causes == [
        ("spec.color", "FieldValueNotSupported", 'Unsupported value: "blue": supported values: "red", "green"')
    ]


async def test_a_string_that_is_too_long(api: Api) -> None:
    answer = await api.create("widgets", widget("a", {"code": "abcdef"}))
    assert answer.causes == [("spec.code", "FieldValueTooLong", "Too long: may not be more than 5 bytes")]


async def test_duplicates_in_sets_and_maps(api: Api) -> None:
    spec = {"tags": ["x", "y", "x"], "parts": [{"name": "p"}, {"name": "q"}, {"name": "p"}]}
    answer = await api.create("widgets", widget("a", spec))
    assert answer.causes == [
        ("spec.parts[2]", "FieldValueDuplicate", 'Duplicate value: {"name":"p"}'),
        ("spec.tags[2]", "FieldValueDuplicate", 'Duplicate value: "x"'),
    ]


async def test_all_faults_are_reported_at_once(api: Api) -> None:
    answer = await api.create("widgets", widget("a", {"size": 0, "color": "blue", "code": 3}))
    assert [field for field, _, _ in answer.causes] == ["spec.code", "spec.color", "spec.size"]
    assert answer.message.startswith(f'Widget.{GROUP} "a" is invalid: [')


async def test_patches_are_validated(api: Api) -> None:
    await api.created("widgets", widget("a"))
    answer = await api.patch("widgets", "a", {"spec": {"size": 0}})
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert (await api.get("widgets", "a")).body["spec"]["size"] == 1


async def test_the_wrong_kind_or_version_is_refused(api: Api) -> None:
    answer = await api.create("widgets", {**widget("a"), "kind": "Gadget"})
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.causes == [("kind", "FieldValueInvalid", 'Invalid value: "Gadget": must be Widget')]
    answer = await api.create("widgets", {**widget("a"), "apiVersion": f"{GROUP}/v2"})
    assert (answer.status, answer.reason) == (400, "BadRequest")


async def test_what_was_invalid_already_may_stay_as_long_as_it_does_not_change(api: Api) -> None:
    """Ratcheting: a schema that becomes stricter does not block updates of other fields."""
    plural = new_plural()
    loose = crd(plural, with_spec({"a": {"type": "string"}, "b": {"type": "string"}}))
    path = f"/apis/{GROUP}/v1/namespaces/{api.namespace}/{plural}"
    await api.created("customresourcedefinitions", loose)
    body: Body = {
        "apiVersion": f"{GROUP}/v1",
        "kind": plural.title(),
        "metadata": {"name": "x"},
        "spec": {"a": "no", "b": "1"},
    }

    async def created() -> bool:
        return (await api.call("POST", path, body)).status == 201

    await eventually(created)
    place = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/a/pattern"
    strict: list[Body] = [{"op": "add", "path": place, "value": "^yes$"}]
    changed = await api.patch(
        "customresourcedefinitions", f"{plural}.{GROUP}", strict, content_type="application/json-patch+json"
    )
    assert changed.status == 200, changed.text

    async def is_strict() -> bool:
        fresh = {**body, "metadata": {"name": "y"}}
        return (await api.call("POST", path, fresh, query={"dryRun": "All"})).status == 422

    await eventually(is_strict)
    merge = "application/merge-patch+json"
    answer = await api.call("PATCH", f"{path}/x", {"spec": {"b": "2"}}, content_type=merge)
    assert answer.status == 200, answer.text
    answer = await api.call("PATCH", f"{path}/x", {"spec": {"a": "nope"}}, content_type=merge)
    assert answer.status == 422
    await api.delete("customresourcedefinitions", f"{plural}.{GROUP}")


# --- CRDs themselves ---


@pytest.mark.parametrize(
    ("properties", "field", "reason"),
    [
        ({"a": {}}, "properties[a].type", "FieldValueRequired"),
        ({"a": {"type": "array"}}, "properties[a].items", "FieldValueRequired"),
        ({"a": {"type": "text"}}, "properties[a].type", "FieldValueNotSupported"),
        ({"a": {"type": "integer", "default": "x"}}, "properties[a].default", "FieldValueTypeInvalid"),
        (
            {"a": {"type": "string", "anyOf": [{"type": "string"}]}},
            "properties[a].anyOf[0].type",
            "FieldValueForbidden",
        ),
        (
            {
                "a": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["k"],
                    "items": {"type": "object", "properties": {"k": {"type": "string"}}},
                }
            },
            "properties[a].items.properties[k].default",
            "FieldValueRequired",
        ),
    ],
)
async def test_a_schema_that_is_not_structural_is_refused(api: Api, properties: Body, field: str, reason: str) -> None:
    answer = await api.create("customresourcedefinitions", crd(new_plural(), with_spec(properties)))
    assert (answer.status, answer.reason) == (422, "Invalid")
    where = f"spec.validation.openAPIV3Schema.properties[spec].{field}"
    assert [(each[0], each[1]) for each in answer.causes] == [(where, reason)]


async def test_a_crd_is_named_after_its_plural_and_group(api: Api) -> None:
    body = crd(new_plural(), with_spec({}))
    body["metadata"]["name"] = f"other.{GROUP}"
    answer = await api.create("customresourcedefinitions", body)
    assert answer.causes == [
        (
            "metadata.name",
            "FieldValueInvalid",
            f'Invalid value: "other.{GROUP}": must be spec.names.plural+"."+spec.group',
        )
    ]


async def test_a_crd_is_established_and_then_served(api: Api) -> None:
    plural = new_plural()
    name = f"{plural}.{GROUP}"
    created = await api.created("customresourcedefinitions", crd(plural, with_spec({})))
    assert created.body["spec"]["names"]["singular"] == plural
    assert created.body["spec"]["names"]["listKind"] == f"{plural.title()}List"
    assert created.body["spec"]["conversion"] == {"strategy": "None"}

    async def is_established() -> bool:
        conditions: list[Body] = (await api.get("customresourcedefinitions", name)).body["status"]["conditions"] or []
        return {each["type"]: each["status"] for each in conditions} == {"NamesAccepted": "True", "Established": "True"}

    await eventually(is_established)
    found = (await api.get("customresourcedefinitions", name)).body["status"]
    assert found["storedVersions"] == ["v1"]
    assert found["acceptedNames"]["kind"] == plural.title()

    async def is_served(wanted: int) -> bool:
        return (await api.call("GET", f"/apis/{GROUP}/v1/namespaces/{api.namespace}/{plural}")).status == wanted

    await eventually(partial(is_served, 200))
    deleted = await api.delete("customresourcedefinitions", name)
    assert deleted.status == 200
    await eventually(partial(is_served, 404))


async def test_a_crds_group_and_plural_cannot_change(api: Api) -> None:
    plural = new_plural()
    created = await api.created("customresourcedefinitions", crd(plural, with_spec({})))
    body = created.body
    body["spec"]["names"]["plural"] = f"{plural}x"

    async def refused() -> bool:
        current = await api.get("customresourcedefinitions", f"{plural}.{GROUP}")
        body["metadata"]["resourceVersion"] = current.version
        answer = await api.replace("customresourcedefinitions", body)
        assert answer.status in {409, 422}
        return answer.status == 422 and "spec.names.plural" in [field for field, _, _ in answer.causes]

    await eventually(refused)
    await api.delete("customresourcedefinitions", f"{plural}.{GROUP}")


@differs(PATTERNS)
async def test_patterns_that_only_go_knows_are_enforced(api: Api) -> None:
    plural = new_plural()
    schema = with_spec({"text": {"type": "string", "pattern": r"^\p{Greek}+$"}})
    await api.created("customresourcedefinitions", crd(plural, schema))
    body = {"apiVersion": f"{GROUP}/v1", "kind": plural.title(), "metadata": {"name": "a"}, "spec": {"text": "latin"}}
    path = f"/apis/{GROUP}/v1/namespaces/{api.namespace}/{plural}"
    statuses: list[int] = []

    async def is_served() -> bool:
        statuses.append((await api.call("POST", path, body)).status)
        return statuses[-1] != 404

    await eventually(is_served)
    await api.delete("customresourcedefinitions", f"{plural}.{GROUP}")
    assert statuses[-1] == PATTERNS.on(api.server, kube_apiserver=422, in_memory=201)


# --- scale and status subresources ---


async def test_scale_shows_and_sets_replicas(api: Api) -> None:
    created = await api.created("widgets", widget("a", {"replicas": 2}))
    await api.patch("widgets", "a", {"status": {"replicas": 1}}, "status")
    answer = await api.get("widgets", "a", "scale")
    assert answer.body["kind"] == "Scale"
    assert answer.body["apiVersion"] == "autoscaling/v1"
    assert answer.body["spec"] == {"replicas": 2}
    assert answer.body["status"] == {"replicas": 1}
    assert answer.body["metadata"]["name"] == "a"
    assert answer.uid == created.uid
    patched = await api.patch("widgets", "a", {"spec": {"replicas": 5}}, "scale")
    assert patched.status == 200
    assert patched.body["spec"] == {"replicas": 5}
    found = await api.get("widgets", "a")
    assert found.body["spec"]["replicas"] == 5
    assert found.body["metadata"]["generation"] == 2
    replaced = await api.replace("widgets", {**patched.body, "spec": {"replicas": 6}}, "scale")
    assert replaced.body["spec"] == {"replicas": 6}


async def test_a_stale_scale_is_a_conflict(api: Api) -> None:
    await api.created("widgets", widget("a"))
    scale = (await api.get("widgets", "a", "scale")).body
    await api.patch("widgets", "a", {"spec": {"size": 2}})
    answer = await api.replace("widgets", {**scale, "spec": {"replicas": 6}}, "scale")
    assert (answer.status, answer.reason) == (409, "Conflict")


async def test_negative_replicas_are_refused(api: Api) -> None:
    await api.created("widgets", widget("a"))
    answer = await api.patch("widgets", "a", {"spec": {"replicas": -1}}, "scale")
    assert (answer.status, answer.reason) == (422, "Invalid")


async def test_a_kind_without_scale_has_no_such_path(api: Api) -> None:
    await api.created("plains", {"apiVersion": f"{GROUP}/v1", "kind": "Plain", "metadata": {"name": "a"}})
    assert (await api.get("plains", "a", "scale")).status == 404


async def test_deployments_scale(api: Api) -> None:
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "a"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "a"}},
            "template": {
                "metadata": {"labels": {"app": "a"}},
                "spec": {"containers": [{"name": "c", "image": "registry.invalid/c:1"}]},
            },
        },
    }
    await api.created("deployments", body)
    answer = await api.patch("deployments", "a", {"spec": {"replicas": 4}}, "scale")
    assert answer.body["spec"] == {"replicas": 4}
    assert answer.body["status"]["selector"] == "app=a"
    assert (await api.get("deployments", "a")).body["spec"]["replicas"] == 4


async def test_the_suite_s_own_crds_are_as_they_were_sent(api: Api) -> None:
    """A read gives back what was written, with defaults."""
    sent = copy.deepcopy(CRDS[0]["spec"])
    found = (await api.get("customresourcedefinitions", f"widgets.{GROUP}")).body["spec"]
    assert found["versions"] == sent["versions"]
    assert found["names"] == {**sent["names"], "singular": "widget", "listKind": "WidgetList"}


# --- schemas that are no schemas ---

_UNMARSHAL = "json: cannot unmarshal {} into Go struct field JSONSchemaProps.spec.versions.schema.openAPIV3Schema.{}"


_NO_SCHEMAS: list[tuple[Body, str]] = [
    ({"properties": {"spec": 5}}, _UNMARSHAL.format("number", "properties of type v1.JSONSchemaProps")),
    ({"properties": 5}, _UNMARSHAL.format("number", "properties of type map[string]v1.JSONSchemaProps")),
    (with_spec({"a": {"pattern": 5}}), _UNMARSHAL.format("number", "properties.properties.pattern of type string")),
    ({"required": [[]]}, _UNMARSHAL.format("array", "required of type string")),
    (with_spec({"a": {"additionalProperties": [5]}}), "boolean or JSON schema expected"),
]


@pytest.mark.parametrize(("schema", "fault"), _NO_SCHEMAS)
async def test_a_schema_with_values_of_other_types_is_refused(api: Api, schema: Body, fault: str) -> None:
    answer = await api.create("customresourcedefinitions", crd(new_plural(), {"type": "object", **schema}))
    assert (answer.status, answer.reason) == (400, "BadRequest")
    kind = "CustomResourceDefinition"
    assert answer.message == f'{kind} in version "v1" cannot be handled as a {kind}: {fault}'


async def test_nulls_in_lists_of_a_crd_are_empty_values(api: Api) -> None:
    body = crd(new_plural(), with_spec({"a": {"type": "array", "items": 5}}))
    body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] = [None]
    body["spec"]["names"]["shortNames"] = [None]
    answer = await api.create("customresourcedefinitions", body)
    assert (answer.status, answer.reason) == (422, "Invalid")
    schema = "spec.validation.openAPIV3Schema"
    assert {field for field, _, _ in answer.causes} >= {
        f"{schema}.properties[spec].properties[a].items",
        f"{schema}.x-kubernetes-validations[0].rule",
        "spec.names.shortNames[0]",
    }
