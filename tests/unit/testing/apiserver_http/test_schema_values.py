"""Values against schemas: findings and words as a kube-apiserver 1.37 gave them (read from one, not made up)."""

from __future__ import annotations

from typing import Any

import pytest

from opsdk.testing.apiserver._fields import FieldError
from opsdk.testing.apiserver._schema import StructuralSchema

Found = list[tuple[str, str, str]]


def schema_of(**properties: Any) -> StructuralSchema:
    return StructuralSchema({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}})


def check(schema: StructuralSchema, spec: Any, old: Any = None) -> Found:
    before = None if old is None else {"spec": old}
    return sorted((each.field, each.reason, each.message) for each in schema.validate({"spec": spec}, before))


def body(path: str, reason: str, value: str, text: str) -> Found:
    return [(path, f"FieldValue{reason}", f"Invalid value: {value}: {path} in body {text}")]


def general(text: str) -> tuple[str, str, str]:
    return "<nil>", "FieldValueInvalid", f'Invalid value: "": {text}'


def accepted(schema: StructuralSchema, *specs: Any) -> None:
    for spec in specs:
        assert check(schema, spec) == []


@pytest.mark.parametrize(
    ("wanted", "value", "actual"),
    [
        ("integer", "x", "string"),
        ("integer", True, "boolean"),
        ("integer", [1], "array"),
        ("integer", 10**20, "number"),
        ("string", 1, "integer"),
        ("string", 1.5, "number"),
        ("boolean", "true", "string"),
        ("number", "1", "string"),
        ("object", [], "array"),
        ("array", {}, "object"),
    ],
)
def test_a_value_of_another_type_is_named_with_both_types(wanted: str, value: Any, actual: str) -> None:
    schema = schema_of(a={"type": wanted, **({"items": {"type": "string"}} if wanted == "array" else {})})
    found = check(schema, {"a": value})
    assert (
        "spec.a",
        "FieldValueTypeInvalid",
        f'Invalid value: "{actual}": spec.a in body must be of type {wanted}: "{actual}"',
    ) in found


def test_whole_floats_are_integers_and_integers_are_numbers() -> None:
    accepted(schema_of(i={"type": "integer"}, n={"type": "number"}), {"i": 1.0}, {"n": 1}, {"n": 1.5})


def test_a_fraction_is_no_integer_in_two_ways() -> None:
    assert check(schema_of(a={"type": "integer"}), {"a": 1.5}) == [
        general("Checked value must be of type integer (default format) in spec.a"),
        *body("spec.a", "TypeInvalid", '"number"', 'must be of type integer: "number"'),
    ]


def test_null_in_a_list_is_of_type_null_unless_nullable() -> None:
    found = check(schema_of(a={"type": "array", "items": {"type": "string"}}), {"a": [None]})
    assert found == body("spec.a[0]", "TypeInvalid", '"null"', 'must be of type string: "null"')
    accepted(schema_of(a={"type": "array", "items": {"type": "string", "nullable": True}}), {"a": [None]})


def test_bounds_are_named_as_integers_or_floats() -> None:
    schema = schema_of(
        i={"type": "integer", "minimum": 1, "maximum": 10},
        n={"type": "number", "minimum": 0.5, "maximum": 1000000},
        x={"type": "integer", "minimum": 1, "exclusiveMinimum": True, "maximum": 10, "exclusiveMaximum": True},
    )
    assert check(schema, {"i": 0}) == body("spec.i", "Invalid", "0", "should be greater than or equal to 1")
    assert check(schema, {"i": 11}) == body("spec.i", "Invalid", "11", "should be less than or equal to 10")
    assert check(schema, {"x": 1}) == body("spec.x", "Invalid", "1", "should be greater than 1")
    assert check(schema, {"x": 10}) == body("spec.x", "Invalid", "10", "should be less than 10")
    assert check(schema, {"n": 0.25}) == body("spec.n", "Invalid", "0.25", "should be greater than or equal to 0.5")
    assert check(schema, {"n": 2000000.5}) == body(
        "spec.n", "Invalid", "2.0000005e+06", "should be less than or equal to 1e+06"
    )
    accepted(schema, {"n": 0})  # an integer is compared with the bound cut to one


def test_multiples() -> None:
    schema = schema_of(i={"type": "integer", "multipleOf": 5}, n={"type": "number", "multipleOf": 0.5})
    assert check(schema, {"i": 7}) == body("spec.i", "Invalid", "7", "should be a multiple of 5")
    assert check(schema, {"n": 0.3}) == body("spec.n", "Invalid", "0.3", "should be a multiple of 0.5")
    accepted(schema, {"i": 10}, {"n": 1.5})


def test_ranges_of_formats() -> None:
    schema = schema_of(a={"type": "integer", "format": "int32"}, f={"type": "number", "format": "float"})
    assert check(schema, {"a": 2**31}) == [general("Checked value must be of type integer with format int32 in spec.a")]
    assert check(schema, {"f": 1e300}) == [general("Checked value must be of type number with format float in spec.f")]
    accepted(schema, {"a": 2**31 - 1}, {"f": 1.5})


def test_strings() -> None:
    schema = schema_of(
        p={"type": "string", "pattern": "^a+$"},
        s={"type": "string", "minLength": 2, "maxLength": 3},
        one={"type": "string", "maxLength": 1},
    )
    assert check(schema, {"p": "b"}) == body("spec.p", "Invalid", '"b"', "should match '^a+$'")
    assert check(schema, {"s": "a"}) == body("spec.s", "Invalid", '"a"', "should be at least 2 chars long")
    too_long = "Too long: may not be more than"
    assert check(schema, {"s": "abcd"}) == [("spec.s", "FieldValueTooLong", f"{too_long} 3 bytes")]
    assert check(schema, {"one": "ab"}) == [("spec.one", "FieldValueTooLong", f"{too_long} 1 byte")]
    accepted(schema, {"s": "äöü"}, {"p": "aaa"})


def test_a_dollar_is_the_very_end() -> None:
    assert check(schema_of(p={"type": "string", "pattern": "^a+$"}), {"p": "a\n"}) != []


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("^[[:alpha:]]+$", "abc", True),
        ("^[[:alpha:]]+$", "ab1", False),
        (r"^\d+\z", "12", True),
        (r"^\d+$", "१२", False),
        ("^[]a]+$", "]a", True),
        ("^[a$]+$", "a$", True),
        ("(?m)^a$", "b\na", True),
    ],
)
def test_patterns_are_read_as_re2_reads_them(pattern: str, text: str, fits: bool) -> None:  # noqa: FBT001
    found = check(schema_of(p={"type": "string", "pattern": pattern}), {"p": text})
    assert (found == []) is fits


def test_enums() -> None:
    schema = schema_of(s={"type": "string", "enum": ["a", "b"]}, n={"type": "number", "enum": [1, 2.5]})
    assert check(schema, {"s": "c"}) == [
        ("spec.s", "FieldValueNotSupported", 'Unsupported value: "c": supported values: "a", "b"')
    ]
    assert check(schema, {"n": 2}) == [
        ("spec.n", "FieldValueNotSupported", 'Unsupported value: 2: supported values: "1", "2.5"')
    ]
    accepted(schema, {"s": "a"}, {"n": 1}, {"n": 1.0})


def test_an_int_or_string_is_either() -> None:
    schema = schema_of(p={"x-kubernetes-int-or-string": True, "maximum": 5, "pattern": "^[0-9]+%$"})
    accepted(schema, {"p": 5}, {"p": "5%"})
    assert check(schema, {"p": 6}) == body("spec.p", "Invalid", "6", "should be less than or equal to 5")
    assert check(schema, {"p": True}) == body(
        "spec.p", "TypeInvalid", '"boolean"', 'must be of type integer,string: "boolean"'
    )


def test_arrays() -> None:
    schema = schema_of(a={"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2})
    assert check(schema, {"a": []}) == body("spec.a", "Invalid", "0", "should have at least 1 items")
    assert check(schema, {"a": [1, 2, 3]}) == [
        ("spec.a", "FieldValueTooMany", "Too many: 3: must have at most 2 items")
    ]
    assert check(schema, {"a": [1, "x"]}) == body(
        "spec.a[1]", "TypeInvalid", '"string"', 'must be of type integer: "string"'
    )


def test_objects() -> None:
    schema = schema_of(
        o={"type": "object", "minProperties": 1, "maxProperties": 2, "additionalProperties": {"type": "string"}},
        r={"type": "object", "required": ["x", "y"], "properties": {"x": {"type": "integer"}}},
        f={"type": "object", "additionalProperties": False},
    )
    assert check(schema, {"o": {}}) == body("spec.o", "Invalid", "0", "should have at least 1 properties")
    assert check(schema, {"o": {"a": "1", "b": "2", "c": "3"}}) == [
        ("spec.o", "FieldValueTooMany", "Too many: 3: must have at most 2 items")
    ]
    assert [field for field, _, _ in check(schema, {"o": {"a": 1}})] == ["spec.o.a"]
    assert check(schema, {"r": {}}) == [
        ("spec.r.x", "FieldValueRequired", "Required value"),
        ("spec.r.y", "FieldValueRequired", "Required value"),
    ]
    assert check(schema, {"f": {"z": 1}}) == [
        ("spec.f", "FieldValueInvalid", 'Invalid value: "z": spec.f.z in body is a forbidden property')
    ]


def test_of_alternatives_that_all_fail_the_best_is_shown() -> None:
    schema = schema_of(
        x={
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
        y={
            "type": "object",
            "properties": {"b": {"type": "string"}, "c": {"type": "integer"}},
            "anyOf": [{"required": ["a"]}, {"required": ["b"], "properties": {"c": {"minimum": 5}}}],
        },
    )
    assert check(schema, {"x": {}}) == [
        general('"spec.x" must validate one and only one schema (oneOf). Found none valid'),
        ("spec.x.a", "FieldValueRequired", "Required value"),
    ]
    assert check(schema, {"x": {"a": "1", "b": "2"}}) == [
        general('"spec.x" must validate one and only one schema (oneOf). Found 2 valid alternatives')
    ]
    assert general('"spec.y" must validate at least one schema (anyOf)') in check(schema, {"y": {"b": "x", "c": 1}})
    accepted(schema, {"x": {"a": "1"}}, {"y": {"b": "x", "c": 5}})


def test_all_of_and_not() -> None:
    schema = schema_of(
        z={"type": "string", "allOf": [{"minLength": 2}, {"pattern": "^a"}]},
        w={"type": "string", "not": {"enum": ["bad"]}},
    )
    assert check(schema, {"z": "a"}) == [
        general('"spec.z" must validate all the schemas (allOf)'),
        *body("spec.z", "Invalid", '"a"', "should be at least 2 chars long"),
    ]
    assert general('"spec.z" must validate all the schemas (allOf). None validated') in check(schema, {"z": "b"})
    assert check(schema, {"w": "bad"}) == [general('"spec.w" must not validate the schema (not)')]
    accepted(schema, {"z": "ab"}, {"w": "good"})


def test_sets_and_maps_have_no_duplicates() -> None:
    schema = schema_of(
        s={"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        m={
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k", "l"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}, "l": {"type": "integer"}}},
        },
    )
    assert check(schema, {"s": ["a", "b", "a", "a"]}) == [("spec.s[2]", "FieldValueDuplicate", 'Duplicate value: "a"')]
    assert check(schema, {"m": [{"k": "a", "l": 1}, {"k": "a", "l": 2}, {"k": "a", "l": 1}]}) == [
        ("spec.m[2]", "FieldValueDuplicate", 'Duplicate value: {"k":"a","l":1}')
    ]


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date-time", ["2020-01-01T00:00:00Z", "2020-01-01t00:00:00.5+01:00"], ["2020-01-01", "2020-13-01T00:00:00Z"]),
        ("date", ["2020-02-29"], ["2020-1-1", "2020-02-30"]),
        ("uuid", ["123e4567-e89b-12d3-a456-426614174000"], ["x"]),
        ("uuid4", ["123e4567-e89b-42d3-a456-426614174000"], ["123e4567-e89b-12d3-a456-426614174000"]),
        ("ipv4", ["1.2.3.4", "01.2.3.4"], ["::1", "1.2.3", "1.2.3.256"]),
        ("ipv6", ["::1"], ["1.2.3.4"]),
        ("cidr", ["10.0.0.1/8", "::/0"], ["10.0.0.0"]),
        ("email", ["a@b.c", "A <a@b.c>"], ["a"]),
        ("hostname", ["a", "a.example"], ["a_b", "-a", "a.b.", "A.b", ""]),
        ("uri", ["http://x", "/x", "mailto:x"], ["x", "http://a b", ""]),
        ("byte", ["YQ=="], ["YQ", "a b", ""]),
        ("duration", ["1s", "22 ns", "1h30m", "5 days", "0"], ["x"]),
        ("mac", ["00:11:22:33:44:55", "0011.2233.4455"], ["x"]),
        ("hexcolor", ["#fff", "fff"], ["#ggg"]),
        ("k8s-short-name", ["a"], ["A", "a.b"]),
        ("k8s-long-name", ["a.b"], ["A"]),
        ("isbn", ["0321751043", "978-0321751041"], ["1"]),
        ("creditcard", ["4111111111111111"], ["1"]),
        ("rgbcolor", ["rgb(1,2,3)"], ["rgb(256,1,1)"]),
        ("nobody-knows", ["anything"], []),
    ],
)
def test_formats(name: str, good: list[str], bad: list[str]) -> None:
    schema = schema_of(a={"type": "string", "format": name})
    accepted(schema, *({"a": text} for text in good))
    for text in bad:
        assert check(schema, {"a": text}) == [
            (
                "spec.a",
                "FieldValueTypeInvalid",
                f'Invalid value: "{text}": spec.a in body must be of type {name}: "{text}"',
            )
        ]


def test_what_did_not_change_is_not_held_against_an_update() -> None:
    schema = schema_of(
        a={"type": "string", "pattern": "^yes$"},
        b={"type": "string"},
        parts={
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
            "items": {
                "type": "object",
                "properties": {"k": {"type": "string"}, "n": {"type": "integer", "minimum": 5}},
            },
        },
        atoms={"type": "array", "items": {"type": "integer", "minimum": 5}},
    )
    old = {"a": "no", "b": "1", "parts": [{"k": "x", "n": 1}, {"k": "y", "n": 9}], "atoms": [1]}
    assert check(schema, {**old, "b": "2"}, old) == []
    assert check(schema, {**old, "parts": [old["parts"][1], old["parts"][0]]}, old) == []
    assert [field for field, _, _ in check(schema, {**old, "a": "nope"}, old)] == ["spec.a"]
    changed = {**old, "parts": [{"k": "x", "n": 2}, {"k": "y", "n": 9}]}
    assert [field for field, _, _ in check(schema, changed, old)] == ["spec.parts[0].n"]
    longer = {**old, "atoms": [1, 6]}
    assert [field for field, _, _ in check(schema, longer, old)] == ["spec.atoms[0]"]
    assert check(schema, {**old, "b": "2"}) != []


def test_a_status_write_looks_at_status_only() -> None:
    schema = StructuralSchema(
        {
            "type": "object",
            "properties": {
                "spec": {"type": "object", "required": ["x"]},
                "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
            },
        }
    )
    document = {"spec": {}, "status": {"phase": 1}}
    assert schema.validate(document, {"spec": {}}, status_only=True) == [
        FieldError(
            "status.phase",
            "FieldValueTypeInvalid",
            'Invalid value: "integer": phase in body must be of type string: "integer"',
        )
    ]
