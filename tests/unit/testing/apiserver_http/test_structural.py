"""Defaulting, pruning, embedded objects, CEL rules."""

from __future__ import annotations

import copy
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from opsdk.testing.apiserver._schema import StructuralSchema


def schema_of(**properties: Any) -> StructuralSchema:
    return StructuralSchema({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}})


def defaulted(schema: StructuralSchema, spec: Any) -> Any:
    document = {"spec": copy.deepcopy(spec)}
    schema.default(document)
    return document["spec"]


def pruned(schema: StructuralSchema, spec: Any) -> Any:
    document = {"spec": copy.deepcopy(spec)}
    schema.prune(document)
    return document["spec"]


def test_defaults_fill_what_is_missing_on_every_level_that_is_there() -> None:
    schema = schema_of(
        a={"type": "integer", "default": 3},
        d={
            "type": "object",
            "default": {"x": 1},
            "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 9}},
        },
        n={"type": "object", "properties": {"z": {"type": "integer", "default": 7}}},
        m={"type": "object", "additionalProperties": {"type": "object", "properties": {"q": {"default": 1}}}},
        items={"type": "array", "items": {"type": "object", "properties": {"k": {"default": "v"}}}},
    )
    assert defaulted(schema, {}) == {"a": 3, "d": {"x": 1, "y": 9}}
    assert defaulted(schema, {"n": {}, "m": {"k": {}}, "items": [{}]}) == {
        "a": 3,
        "d": {"x": 1, "y": 9},
        "n": {"z": 7},
        "m": {"k": {"q": 1}},
        "items": [{"k": "v"}],
    }


def test_nulls_are_dropped_defaulted_or_kept() -> None:
    schema = schema_of(
        plain={"type": "integer"},
        given={"type": "integer", "default": 3},
        may={"type": "integer", "nullable": True},
        both={"type": "integer", "nullable": True, "default": 3},
        m={"type": "object", "additionalProperties": {"type": "integer"}},
        items={"type": "array", "items": {"type": "integer"}},
    )
    spec = {
        "plain": None,
        "given": None,
        "may": None,
        "both": None,
        "m": {"x": None, "y": 1},
        "items": [None],
        "un": None,
    }
    assert defaulted(schema, spec) == {
        "given": 3,
        "may": None,
        "both": None,
        "m": {"y": 1},
        "items": [None],
        "un": None,
    }


def test_defaults_are_copies() -> None:
    schema = schema_of(d={"type": "object", "default": {"x": [1]}})
    first = defaulted(schema, {})
    first["d"]["x"].append(2)
    assert defaulted(schema, {}) == {"d": {"x": [1]}}


def test_unknown_fields_go_and_are_named() -> None:
    schema = schema_of(
        a={"type": "integer"},
        items={"type": "array", "items": {"type": "object", "properties": {"k": {"type": "string"}}}},
        open={"type": "object", "additionalProperties": True},
    )
    document = {
        "apiVersion": "v1",
        "kind": "X",
        "metadata": {"anything": 1},
        "top": 1,
        "spec": {"a": 1, "b": 2, "items": [{"k": "v", "l": 1}], "open": {"x": 1, "y": {"z": 1}}},
    }
    removed = schema.prune(document)
    assert document == {
        "apiVersion": "v1",
        "kind": "X",
        "metadata": {"anything": 1},
        "spec": {"a": 1, "items": [{"k": "v"}], "open": {"x": 1, "y": {}}},
    }
    assert removed == ["spec.b", "spec.items[0].l", "spec.open.y.z", "top"]


def test_preserving_goes_on_until_properties_say_otherwise() -> None:
    schema = schema_of(
        free={
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {"known": {"type": "object", "properties": {"x": {"type": "integer"}}}},
        },
        many={
            "type": "array",
            "x-kubernetes-preserve-unknown-fields": True,
            "items": {
                "type": "object",
                "properties": {"a": {"type": "object", "properties": {"b": {"type": "integer"}}}},
            },
        },
    )
    spec = {"free": {"any": {"thing": [1]}, "known": {"x": 1, "y": 2}}, "many": [{"a": {"b": 1, "c": 2}, "z": 1}]}
    assert pruned(schema, spec) == {
        "free": {"any": {"thing": [1]}, "known": {"x": 1}},
        "many": [{"a": {"b": 1}, "z": 1}],
    }


def test_embedded_objects_keep_their_metadata_and_need_their_kind() -> None:
    schema = schema_of(
        e={"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"spec": {"type": "object"}}}
    )
    embedded = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "odd": 1}, "spec": {"no": 1}, "more": 1}
    assert pruned(schema, {"e": embedded}) == {
        "e": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "odd": 1}, "spec": {}}
    }
    found = schema.validate({"spec": {"e": {"kind": ""}}})
    assert [(each.field, each.message) for each in found] == [
        ("spec.e.apiVersion", "Required value"),
        ("spec.e.kind", 'Invalid value: "": must not be empty'),
    ]


_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), inner, max_size=3)
    ),
    max_leaves=10,
)
Schema = dict[str, Any]


def _integer(default: int) -> Schema:
    return {"type": "integer", "default": default}


def _array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _object(properties: dict[str, Schema], keep: bool) -> Schema:  # noqa: FBT001
    extension = {"x-kubernetes-preserve-unknown-fields": True} if keep else {}
    return {"type": "object", "properties": properties, **extension}


def _schema_strategy() -> st.SearchStrategy[Schema]:
    inner: st.SearchStrategy[Schema] = st.deferred(_schema_strategy)
    return st.one_of(
        st.just({"type": "string"}),
        st.builds(_integer, st.integers(0, 3)),
        st.builds(_array, inner),
        st.builds(_object, st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3), st.booleans()),
    )


@hypothesis.given(_schema_strategy(), _values)
@hypothesis.settings(max_examples=200, deadline=None)
def test_defaulting_and_pruning_are_done_after_once(schema: Any, value: Any) -> None:
    """Invariant: both are idempotent, so a stored object that is read and written back stays as it is."""
    structural = StructuralSchema({"type": "object", "properties": {"spec": schema}})
    document = {"spec": value}
    structural.default(document)
    structural.prune(document)
    once = copy.deepcopy(document)
    structural.default(document)
    assert structural.prune(document) == []
    assert document == once


# --- CEL rules ---


def with_rules(rules: list[Any], **more: Any) -> StructuralSchema:
    schema = {"type": "integer", **more, "x-kubernetes-validations": rules}
    return StructuralSchema({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": schema}}}})


def faults(schema: StructuralSchema, new: Any, old: Any = None) -> list[tuple[str, str, str]]:
    before = None if old is None else {"spec": {"a": old}}
    return [(each.field, each.reason, each.message) for each in schema.validate({"spec": {"a": new}}, before)]


def test_a_rule_that_fails_is_a_fault_with_its_message() -> None:
    plain = with_rules([{"rule": "self > 0"}])
    assert faults(plain, -1) == [("spec.a", "FieldValueInvalid", "Invalid value: -1: failed rule: self > 0")]
    assert faults(plain, 1) == []
    said = with_rules([{"rule": "self > 0", "message": "must be positive", "reason": "FieldValueForbidden"}])
    assert faults(said, -1) == [("spec.a", "FieldValueForbidden", "Forbidden: must be positive")]
    computed = with_rules([{"rule": "self > 0", "message": "m", "messageExpression": "'got ' + string(self)"}])
    assert faults(computed, -1) == [("spec.a", "FieldValueInvalid", "Invalid value: -1: got -1")]


def test_values_of_objects_are_not_repeated_and_field_paths_are_followed() -> None:
    rule = {"rule": "self.min <= self.max", "message": "min above max", "fieldPath": ".min"}
    schema = with_rules([rule], type="object", properties={"min": {"type": "integer"}, "max": {"type": "integer"}})
    assert faults(schema, {"min": 2, "max": 1}) == [("spec.a.min", "FieldValueInvalid", "Invalid value: min above max")]


def test_immutability_is_a_rule_about_the_old_value() -> None:
    schema = with_rules([{"rule": "self == oldSelf", "message": "is immutable"}])
    assert faults(schema, 1) == []
    assert faults(schema, 1, 1) == []
    assert faults(schema, 2, 1) == [("spec.a", "FieldValueInvalid", "Invalid value: 2: is immutable")]


def test_what_did_not_change_is_not_held_to_rules_about_itself() -> None:
    schema = with_rules([{"rule": "self > 0"}])
    assert faults(schema, -1, -1) == []
    assert faults(schema, -2, -1) != []


def test_a_rule_that_cannot_be_evaluated_is_a_fault() -> None:
    broken = with_rules([{"rule": "self.x == 1"}], type="object", properties={"x": {"type": "integer"}})
    assert faults(broken, {}) == [
        ("spec.a", "FieldValueInvalid", 'Invalid value: "object": no such key: x evaluating rule: self.x == 1')
    ]


def test_rules_wait_until_the_values_are_of_their_types() -> None:
    found = faults(with_rules([{"rule": "self > 0"}]), "x")
    assert [field for field, _, _ in found] == ["spec.a", "<nil>"]
    assert found[1][2] == (
        "Invalid value: null: some validation rules were not checked because the object was invalid; correct the "
        "existing errors to complete validation"
    )


def test_rules_can_be_ignored() -> None:
    schema = StructuralSchema({"type": "object", "x-kubernetes-validations": [{"rule": "false"}]}, rules=False)
    assert schema.validate({}) == []


@pytest.mark.parametrize("place", ["items", "additionalProperties"])
def test_rules_are_found_inside_lists_and_maps(place: str) -> None:
    inner: Any = {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0"}]}
    kind = "array" if place == "items" else "object"
    schema = StructuralSchema({"type": "object", "properties": {"spec": {"type": kind, place: inner}}})
    value = [1, -1] if place == "items" else {"x": 1, "y": -1}
    (found,) = schema.validate({"spec": value})
    assert found.field == ("spec[1]" if place == "items" else "spec[y]")
