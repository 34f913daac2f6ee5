"""What a change of a CRD would cost, where no server is needed; `tests/crds/test_install.py` has the rest."""

from __future__ import annotations

from typing import Any

import pytest

from opsdk.models import crd_losses

Schema = dict[str, Any]


def crd(schema: Schema, *, stored: tuple[str, ...] = (), **changes: Any) -> dict[str, Any]:
    """A CRD of one version with a field `value`."""
    root: Schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"value": schema}}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": root}}
    spec = {
        "group": "demo.example.com",
        "names": {"kind": "Widget", "plural": "widgets"},
        "scope": "Namespaced",
        "versions": [version],
        **changes,
    }
    return {"spec": spec, "status": {"storedVersions": list(stored)}}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"type": "integer"}, {"type": "integer", "description": "More.", "default": 3, "format": "int64"}),
        ({"type": "string", "minLength": 2}, {"type": "string", "minLength": 1}),
        (
            {"type": "array", "items": {"type": "integer"}},
            {"type": "array", "items": {"type": "number"}, "minItems": 0},
        ),
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, {"type": "integer", "minimum": 1}),
        ({"type": "string", "enum": ["a"]}, {"type": "string", "enum": ["b", "a"]}),
        ({"type": "string", "pattern": "^a"}, {"type": "string"}),
        (
            {"x-kubernetes-int-or-string": True},
            {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
        ),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, {"type": "object", "additionalProperties": True}),
    ],
)
def test_what_takes_as_much_costs_nothing(before: Schema, after: Schema) -> None:
    assert crd_losses(crd(before), crd(after)) == []


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ({"type": "string"}, {"type": "string", "format": "date"}, "format (none) -> date"),
        ({"type": "string"}, {"type": "string", "anyOf": [{"maxLength": 3}]}, "anyOf (none)"),
        ({"type": "integer"}, {"type": "integer", "multipleOf": 3}, "multipleOf (none) -> 3"),
        ({"type": "array", "items": {"type": "string"}}, {"type": "array", "items": {"type": "integer"}}, "value[]"),
        (
            {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"]},
            {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["b"]},
            "told apart by b",
        ),
        (
            {"type": "object", "properties": {"a": {"type": "string"}}},
            {"type": "object", "additionalProperties": {"type": "integer"}},
            "value.a: string -> integer",
        ),
    ],
)
def test_what_takes_less_is_told(before: Schema, after: Schema, told: str) -> None:
    (line,) = crd_losses(crd(before), crd(after))
    assert line.startswith("version v1: spec.value")
    assert told in line


def test_other_names_are_told() -> None:
    after = crd({"type": "string"}, names={"kind": "Gadget", "plural": "gadgets"}, group="other.example.com")
    lines = crd_losses(crd({"type": "string"}), after)
    assert [line.split(":")[0] for line in lines] == ["spec.group", "spec.names.kind", "spec.names.plural"]


def test_a_version_that_is_served_is_not_dropped_in_one_step() -> None:
    before = crd({"type": "string"}, stored=("v1",))
    old = {**before["spec"]["versions"][0], "name": "v1beta1", "storage": False}
    before["spec"]["versions"].append(old)
    assert crd_losses(before, crd({"type": "string"})) == [
        "version v1beta1: removed while it is served; first keep it with served=False"
    ]
    old["served"] = False
    assert crd_losses(before, crd({"type": "string"})) == []


def test_versions_that_a_webhook_converts_are_not_compared_with_each_other() -> None:
    before = crd({"type": "string"}, stored=("v1",))
    after = crd({"type": "string"})
    after["spec"]["versions"][0]["storage"] = False
    newer: Any = crd({"type": "integer"})["spec"]["versions"][0]
    after["spec"]["versions"].append({**newer, "name": "v2"})
    assert crd_losses(before, after) == [
        "stored as v1, read as v2: spec.value: string -> integer: values of the old type are no longer valid"
    ]
    after["spec"]["conversion"] = {"strategy": "Webhook"}
    assert crd_losses(before, after) == []
