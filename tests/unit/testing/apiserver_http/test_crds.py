"""CRDs that are refused, in the words of a kube-apiserver 1.37 (read from one, not made up)."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from opsdk.testing.apiserver._schema import default_crd, validate_crd

Found = list[tuple[str, str, str]]
SCHEMA = "spec.validation.openAPIV3Schema"
SPEC = f"{SCHEMA}.properties[spec]"
LIST_MAP = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}


def crd(**properties: Any) -> dict[str, Any]:
    return with_schema({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}})


def with_schema(schema: dict[str, Any], *, status: bool = True) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    **({"subresources": {"status": {}}} if status else {}),
                }
            ],
        },
    }


def faults(document: dict[str, Any], old: dict[str, Any] | None = None) -> Found:
    return sorted((each.field, each.reason, each.message) for each in validate_crd(document, old))


def required(field: str, text: str = "") -> Found:
    return [(field, "FieldValueRequired", f"Required value: {text}" if text else "Required value")]


def forbidden(field: str, text: str) -> Found:
    return [(field, "FieldValueForbidden", f"Forbidden: {text}")]


def invalid(field: str, text: str) -> Found:
    return [(field, "FieldValueInvalid", f"Invalid value: {text}")]


def test_a_good_crd_has_no_faults() -> None:
    assert faults(crd(a={"type": "string", "default": "x", "enum": ["x"]})) == []


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({}, required(f"{SPEC}.properties[a].type", "must not be empty for specified object fields")),
        ({"type": "array"}, required(f"{SPEC}.properties[a].items", "must be specified")),
        (
            {"type": "array", "items": {}},
            required(f"{SPEC}.properties[a].items.type", "must not be empty for specified array items"),
        ),
        ({"type": "object", "$ref": "#/x"}, forbidden(f"{SPEC}.properties[a].$ref", "$ref is not supported")),
        (
            {"type": "object", "patternProperties": {"x": {"type": "string"}}},
            forbidden(f"{SPEC}.properties[a].patternProperties", "patternProperties is not supported"),
        ),
        (
            {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
            forbidden(
                f"{SPEC}.properties[a].uniqueItems",
                "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            ),
        ),
        (
            {"type": "object", "properties": {"x": {"type": "string"}}, "additionalProperties": {"type": "string"}},
            forbidden(
                f"{SPEC}.properties[a].additionalProperties", "additionalProperties and properties are mutual exclusive"
            ),
        ),
        (
            {"type": "string", "oneOf": [{"description": "x"}]},
            forbidden(f"{SPEC}.properties[a].oneOf[0].description", "must be empty to be structural"),
        ),
        (
            {"type": "string", "anyOf": [{"default": "x"}]},
            forbidden(f"{SPEC}.properties[a].anyOf[0].default", "must be undefined to be structural"),
        ),
        ({"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}, []),
        (
            {"x-kubernetes-int-or-string": True, "x-kubernetes-preserve-unknown-fields": True},
            invalid(
                f"{SPEC}.properties[a].x-kubernetes-preserve-unknown-fields",
                "true: must be false if x-kubernetes-int-or-string is true",
            ),
        ),
        (
            {"type": "object", "x-kubernetes-preserve-unknown-fields": False},
            invalid(f"{SPEC}.properties[a].x-kubernetes-preserve-unknown-fields", "false: must be true or undefined"),
        ),
        (
            {"type": "integer", "minimum": 5, "default": 1},
            invalid(f"{SPEC}.properties[a].default", "1:  in body should be greater than or equal to 5"),
        ),
        (
            {"type": "object", "properties": {"x": {"type": "integer"}}, "default": {"y": 1}},
            invalid(f"{SPEC}.properties[a].default", '{"y":1}: must not have unknown fields'),
        ),
        (
            {"type": "object", "required": ["x"], "properties": {"x": {"type": "integer"}}, "default": {}},
            required(f"{SPEC}.properties[a].default.x"),
        ),
        (
            {**LIST_MAP, "items": {"type": "object", "properties": {"k": {"type": "string"}}}},
            required(
                f"{SPEC}.properties[a].items.properties[k].default",
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            ),
        ),
        (
            {**LIST_MAP, "items": {"type": "object", "properties": {"z": {"type": "string"}}}},
            invalid(
                f"{SPEC}.properties[a].x-kubernetes-list-map-keys",
                '["k"]: entries must all be names of item properties',
            ),
        ),
        (
            {**LIST_MAP, "items": {"type": "string"}},
            invalid(
                f"{SPEC}.properties[a].items.type",
                '"string": must be object if parent array\'s x-kubernetes-list-type is map',
            ),
        ),
        (
            {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string", "nullable": True}},
            forbidden(f"{SPEC}.properties[a].items.nullable", "cannot be nullable when x-kubernetes-list-type is set"),
        ),
        (
            {"type": "string", "x-kubernetes-list-type": "set"},
            invalid(f"{SPEC}.properties[a].type", '"string": must be array if x-kubernetes-list-type is specified'),
        ),
        (
            {"type": "string", "pattern": "(?=a)"},
            invalid(
                f"{SPEC}.properties[a].pattern",
                '"(?=a)": must be a valid regular expression, but isn\'t: error parsing regexp: invalid or unsupported '
                "Perl syntax: `(?=`",
            ),
        ),
        ({"type": "string", "pattern": r"\p{Greek}"}, []),
        (
            {"type": "string", "x-kubernetes-validations": [{"rule": " "}]},
            required(f"{SPEC}.properties[a].x-kubernetes-validations[0].rule", "rule is not specified"),
        ),
    ],
)
def test_a_schema_has_to_be_structural(schema: dict[str, Any], expected: Found) -> None:
    assert faults(crd(a=schema)) == expected


@pytest.mark.parametrize(
    ("schema", "status", "expected"),
    [
        ({"properties": {}}, True, required(f"{SCHEMA}.type", "must not be empty at the root")),
        (
            {"type": "object", "additionalProperties": {"type": "string"}},
            False,
            forbidden(f"{SCHEMA}.additionalProperties", "must not be used at the root"),
        ),
        (
            {"type": "object", "nullable": True},
            False,
            forbidden(f"{SCHEMA}.nullable", "nullable cannot be true at the root"),
        ),
        (
            {
                "type": "object",
                "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}},
            },
            True,
            forbidden(
                f"{SCHEMA}.properties[metadata]",
                "must not specify anything other than name and generateName, but metadata is implicitly specified",
            ),
        ),
        (
            {"type": "object", "properties": {"kind": {"type": "integer"}}},
            True,
            invalid(f"{SCHEMA}.properties[kind].type", '"integer": must be string'),
        ),
    ],
)
def test_rules_of_the_root(schema: dict[str, Any], status: bool, expected: Found) -> None:  # noqa: FBT001
    assert faults(with_schema(schema, status=status)) == expected


def test_names() -> None:
    document = crd()
    document["metadata"]["name"] = "other.example.com"
    assert faults(document) == invalid("metadata.name", '"other.example.com": must be spec.names.plural+"."+spec.group')
    document = crd()
    document["spec"]["names"]["shortNames"] = ["T"]
    ((field, _, message),) = faults(document)
    assert field == "spec.names.shortNames[0]"
    assert message.startswith('Invalid value: "T": a DNS-1035 label must consist of lower case alphanumeric characters')
    document = crd()
    document["spec"]["names"]["listKind"] = "Thing"
    assert faults(document) == invalid("spec.names.listKind", '"Thing": kind and listKind may not be the same')
    document = crd()
    document["spec"]["group"] = "nodots"
    document["metadata"]["name"] = "things.nodots"
    assert faults(document) == invalid("spec.group", '"nodots": should be a domain with at least one dot')
    document = crd()
    document["spec"]["scope"] = "World"
    assert faults(document) == [
        (
            "spec.scope",
            "FieldValueNotSupported",
            'Unsupported value: "World": supported values: "Cluster", "Namespaced"',
        )
    ]


def test_faults_of_one_version_of_several_are_named_with_it() -> None:
    document = crd(a={"type": "string"})
    other = copy.deepcopy(document["spec"]["versions"][0])
    other |= {"name": "v2", "storage": False}
    other["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["a"] = {}
    document["spec"]["versions"].append(other)
    where = "spec.versions[1].schema.openAPIV3Schema.properties[spec].properties[a].type"
    assert faults(document) == required(where, "must not be empty for specified object fields")


def test_there_is_exactly_one_storage_version() -> None:
    document = crd()
    document["spec"]["versions"][0]["storage"] = False
    assert [(field, message.rpartition(": ")[2]) for field, _, message in faults(document)] == [
        ("spec.versions", "must have exactly one version marked as storage version"),
        ("status.storedVersions", "must have at least one stored version"),
    ]


def test_columns_and_subresources() -> None:
    document = crd()
    document["spec"]["versions"][0]["additionalPrinterColumns"] = [{"name": "", "type": "text", "jsonPath": "a"}]
    assert faults(document) == [
        *invalid("spec.additionalPrinterColumns[0].JSONPath", '"a": must be a simple json path starting with .'),
        *required("spec.additionalPrinterColumns[0].name"),
        *invalid("spec.additionalPrinterColumns[0].type", '"text": must be one of boolean,date,integer,number,string'),
    ]
    document = crd()
    document["spec"]["versions"][0]["subresources"] = {"scale": {"specReplicasPath": ".status.x"}}
    assert faults(document) == [
        *invalid("spec.subresources.scale.specReplicasPath", '".status.x": should be a json path under .spec'),
        *required("spec.subresources.scale.statusReplicasPath"),
    ]


def test_names_cannot_change() -> None:
    old = crd()
    old["status"] = {"conditions": [{"type": "Established", "status": "True"}]}
    new = copy.deepcopy(old)
    new["spec"]["scope"] = "Cluster"
    new["spec"]["names"] |= {"kind": "Other", "plural": "others"}
    assert faults(new, old) == [
        *invalid("spec.names.kind", '"Other": field is immutable'),
        *invalid("spec.names.plural", '"others": field is immutable'),
        *invalid("spec.scope", '"Cluster": field is immutable'),
    ]
    assert faults(old, old) == []


def test_protected_groups_need_an_approval() -> None:
    document = crd()
    document["spec"]["group"] = "x.k8s.io"
    document["metadata"]["name"] = "things.x.k8s.io"
    ((field, reason, _),) = faults(document)
    assert (field, reason) == ("metadata.annotations[api-approved.kubernetes.io]", "FieldValueRequired")
    document["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, a test"}
    assert faults(document) == []


def test_defaults_of_a_crd() -> None:
    document = crd()
    default_crd(document)
    assert document["spec"]["names"] == {
        "plural": "things",
        "kind": "Thing",
        "singular": "thing",
        "listKind": "ThingList",
    }
    assert document["spec"]["conversion"] == {"strategy": "None"}
