"""Each thing that pydantic can say, and what Kubernetes gets to hear."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Annotated, Any, Literal, cast
from uuid import UUID, uuid4

import pytest
from lightkube.models.apiextensions_v1 import CustomResourceValidation
from lightkube.models.core_v1 import EmptyDirVolumeSource, PodTemplateSpec, ResourceRequirements, ServicePort
from lightkube.models.meta_v1 import LabelSelector
from pydantic import (
    AnyUrl,
    Field,
    IPvAnyAddress,
    NaiveDatetime,
    RootModel,
    SecretStr,
    StringConstraints,
    WithJsonSchema,
    create_model,
)

from opsdk.errors import CrdSchemaError
from opsdk.models import (
    Cel,
    Conditions,
    Duration,
    EmbeddedResource,
    Immutable,
    IntOrString,
    K8s,
    ListAtomic,
    ListMap,
    ListSet,
    MapAtomic,
    MicroTime,
    Model,
    Nullable,
    PreserveUnknown,
    Quantity,
    Time,
)
from opsdk.models._schema_text import DECIMAL_PATTERN
from opsdk.models._struct_schema import QUANTITY_PATTERN
from opsdk.models._structural import structural_schema

OCTET = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
IPV4_PATTERN = rf"^{OCTET}(\.{OCTET}){{3}}$"
PRESERVE = "x-kubernetes-preserve-unknown-fields"


class Color(StrEnum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Part(Model):
    """A part."""

    name: str
    weight_limit: int = 1


class Limits(Model):
    cpu_count: int = 2
    burst: bool = False
    note: str | None = None


class Tree(Model):
    name: str
    children: list[Tree] = []  # noqa: RUF012 - pydantic copies it


class Linked(Model):
    next: Linked | None = None


class Deep(RootModel["list[Deep]"]):
    pass


class OpenTree(Model):
    name: str
    children: Annotated[list[OpenTree], PreserveUnknown()] = []  # noqa: RUF012 - pydantic copies it


class Bucket(Model):
    type: Literal["s3"]
    bucket: str
    region: str = "eu"


class Disk(Model):
    type: Literal["disk", "nfs"]
    path: str
    region: str = "us"


class Large(Model, rules=[Cel('self.bucket != "x"', message="not x")]):
    type: Literal["large"]
    bucket: Annotated[str, Field(max_length=5)]
    region: str = "eu"


class Keyless(Model):
    tags: list[str]


class Needs(Model):
    tags: list[str]
    more: list[str] = ["x"]  # noqa: RUF012 - pydantic copies it
    kept: list[str] = []  # noqa: RUF012 - pydantic copies it


class Clash(Model):
    type: Literal["clash"]
    path: int


class Tag(Model):
    type: str


class TagA(Tag):
    pass


def field(annotation: Any, default: Any = ...) -> dict[str, Any]:
    """The schema of a field of that type."""
    fields: dict[str, Any] = {"value": (annotation, default)}
    model = create_model("Holder", __base__=Model, **fields)
    return cast("dict[str, Any]", structural_schema(model)["properties"]["value"])


INTEGER = {"type": "integer", "format": "int64"}
PART = {
    "description": "A part.",
    "type": "object",
    "properties": {"name": {"type": "string"}, "weightLimit": {**INTEGER, "default": 1}},
    "required": ["name"],
}


@pytest.mark.parametrize(
    ("annotation", "default", "schema"),
    [
        (str, ..., {"type": "string"}),
        (int, ..., INTEGER),
        (float, ..., {"type": "number"}),
        (bool, ..., {"type": "boolean"}),
        (int, 3, {**INTEGER, "default": 3}),
        (bool, False, {"type": "boolean", "default": False}),
        (str, "", {"type": "string", "default": ""}),
        # optional is not nullable
        (str | None, None, {"type": "string"}),
        (Annotated[str | None, Nullable()], None, {"type": "string", "nullable": True}),
        # limits
        (Annotated[int, Field(ge=0, lt=10)], ..., {**INTEGER, "minimum": 0, "maximum": 10, "exclusiveMaximum": True}),
        (Annotated[float, Field(gt=0.5)], ..., {"type": "number", "minimum": 0.5, "exclusiveMinimum": True}),
        (Annotated[int, Field(multiple_of=5)], ..., {**INTEGER, "multipleOf": 5}),
        (
            Annotated[str, Field(min_length=1, max_length=9, pattern="^[a-z]+$")],
            ...,
            {"type": "string", "minLength": 1, "maxLength": 9, "pattern": "^[a-z]+$"},
        ),
        (
            Annotated[int | None, Field(ge=1)],
            None,
            {**INTEGER, "minimum": 1},
        ),
        # enums
        (Color, Color.RED, {"type": "string", "enum": ["red", "blue"], "default": "red"}),
        (Level, ..., {"type": "integer", "format": "int64", "enum": [1, 2]}),
        (Literal["a", "b"], "a", {"type": "string", "enum": ["a", "b"], "default": "a"}),
        (Literal["only"], ..., {"type": "string", "enum": ["only"]}),
        (Literal[1, 2] | None, None, {"type": "integer", "format": "int64", "enum": [1, 2]}),
        (Literal["a"] | Color, ..., {"type": "string", "enum": ["a", "red", "blue"]}),
        # numbers and texts
        (IntOrString, 80, {"x-kubernetes-int-or-string": True, "default": 80}),
        (IntOrString | None, None, {"x-kubernetes-int-or-string": True}),
        (int | float, ..., {"type": "number"}),
        (Decimal, Decimal("1.5"), {"type": "string", "default": "1.5", "pattern": DECIMAL_PATTERN}),
        (
            Annotated[int, Field(ge=1)] | Annotated[str, Field(max_length=5)],
            ...,
            {"x-kubernetes-int-or-string": True, "minimum": 1, "maxLength": 5},
        ),
        (
            int | Literal["auto", "a.b"],
            "auto",
            {
                "x-kubernetes-int-or-string": True,
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "pattern": r"^(auto|a\.b)$",
                "default": "auto",
            },
        ),
        (Literal[0, "auto"], ..., {"x-kubernetes-int-or-string": True, "enum": [0, "auto"]}),
        (
            Literal[0, 1] | str,
            ...,
            {
                "x-kubernetes-int-or-string": True,
                "allOf": [
                    {"anyOf": [{"type": "integer"}, {"type": "string"}]},
                    {"anyOf": [{"minimum": 0, "maximum": 0}, {"minimum": 1, "maximum": 1}]},
                ],
            },
        ),
        (
            Annotated[str, Field(pattern="^a")] | Annotated[str, Field(max_length=2)],
            ...,
            {"type": "string", "anyOf": [{"pattern": "^a"}, {"maxLength": 2}]},
        ),
        (Color | str, ..., {"type": "string"}),
        (
            Quantity,
            "1Gi",
            {
                "x-kubernetes-int-or-string": True,
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "pattern": QUANTITY_PATTERN,
                "default": "1Gi",
            },
        ),
        # formats
        (
            IPvAnyAddress,
            ...,
            {"type": "string", "anyOf": [{"format": "ipv4", "pattern": IPV4_PATTERN}, {"format": "ipv6"}]},
        ),
        (AnyUrl, ..., {"type": "string", "format": "uri", "minLength": 1, "pattern": "^[A-Za-z][A-Za-z0-9+.-]*:"}),
        (
            Annotated[str, Field(pattern="^h", json_schema_extra={"format": "uri"})],
            ...,
            {
                "type": "string",
                "format": "uri",
                "pattern": "^h",
                "allOf": [{"pattern": "^[A-Za-z][A-Za-z0-9+.-]*:"}],
            },
        ),
        (datetime, ..., {"type": "string", "format": "date-time"}),
        (Time | None, None, {"type": "string", "format": "date-time"}),
        (MicroTime, ..., {"type": "string", "format": "date-time"}),
        (date, ..., {"type": "string", "format": "date"}),
        (UUID, ..., {"type": "string", "format": "uuid"}),
        (bytes, ..., {"type": "string"}),
        # lists
        (list[str], [], {"type": "array", "items": {"type": "string"}}),
        (list[str], ["a"], {"type": "array", "items": {"type": "string"}, "default": ["a"]}),
        (set[str], ..., {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}),
        (
            Annotated[list[str], ListSet(), Field(max_length=3)],
            ...,
            {"type": "array", "items": {"type": "string"}, "maxItems": 3, "x-kubernetes-list-type": "set"},
        ),
        (
            Annotated[list[str], ListAtomic()],
            ...,
            {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"},
        ),
        (
            Annotated[list[Part], ListMap("name", "weightLimit")],
            ...,
            {
                "type": "array",
                "items": PART,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name", "weightLimit"],
            },
        ),
        (tuple[int, int], ..., {"type": "array", "items": INTEGER, "minItems": 2, "maxItems": 2}),
        (tuple[int, ...], ..., {"type": "array", "items": INTEGER}),
        # maps
        (dict[str, int], {}, {"type": "object", "additionalProperties": INTEGER}),
        (dict[str, list[Part]], ..., {"type": "object", "additionalProperties": {"type": "array", "items": PART}}),
        (dict[str, Any], ..., {"type": "object", PRESERVE: True}),
        (Any, None, {PRESERVE: True}),
        (
            Annotated[dict[Annotated[str, StringConstraints(pattern="^[a-z]+$")], int], Field(max_length=10)],
            ...,
            {
                "type": "object",
                "additionalProperties": INTEGER,
                "maxProperties": 10,
                "x-kubernetes-validations": [
                    {"rule": 'self.all(key, key.matches("^[a-z]+$"))', "message": "keys must match ^[a-z]+$"}
                ],
            },
        ),
        (
            dict[Color, int],
            ...,
            {
                "type": "object",
                "additionalProperties": INTEGER,
                "maxProperties": 2,
                "x-kubernetes-validations": [
                    {"rule": 'self.all(key, key in ["red", "blue"])', "message": "keys must be among red, blue"}
                ],
            },
        ),
        (
            dict[Annotated[str, StringConstraints(min_length=1, max_length=5)], int],
            ...,
            {
                "type": "object",
                "additionalProperties": INTEGER,
                "x-kubernetes-validations": [
                    {"rule": "self.all(key, key.size() >= 1)", "message": "keys have at least 1 characters"},
                    {"rule": "self.all(key, key.size() <= 5)", "message": "keys have at most 5 characters"},
                ],
            },
        ),
        (list[int | None], ..., {"type": "array", "items": {**INTEGER, "nullable": True}}),
        # nested models
        (Part, ..., PART),
        (Part | None, None, PART),
        (Annotated[Part, MapAtomic()], ..., {**PART, "x-kubernetes-map-type": "atomic"}),
        (
            Limits,
            Limits(),
            {
                "type": "object",
                "properties": {
                    "cpuCount": {**INTEGER, "default": 2},
                    "burst": {"type": "boolean", "default": False},
                    "note": {"type": "string"},
                },
                "default": {},
            },
        ),
        # what is kept as it comes
        (Annotated[Any, PreserveUnknown()], None, {PRESERVE: True}),
        (Annotated[Part | Limits | None, PreserveUnknown()], None, {PRESERVE: True}),
        (Annotated[Part, PreserveUnknown()], ..., {**PART, PRESERVE: True}),
        (Annotated[Callable[[], int] | None, PreserveUnknown()], None, {PRESERVE: True}),
        (
            Annotated[dict[str, Any], EmbeddedResource()],
            ...,
            {"type": "object", "x-kubernetes-embedded-resource": True, PRESERVE: True},
        ),
        # rules
        (
            Annotated[int, Cel("self >= oldSelf", message="grows only", reason="FieldValueInvalid", field_path=".a")],
            ...,
            {
                **INTEGER,
                "x-kubernetes-validations": [
                    {
                        "rule": "self >= oldSelf",
                        "message": "grows only",
                        "reason": "FieldValueInvalid",
                        "fieldPath": ".a",
                    }
                ],
            },
        ),
        (
            Annotated[int, Cel("self > 1"), Cel("self < 9", optional_old_self=True, message_expression="'x'")],
            ...,
            {
                **INTEGER,
                "x-kubernetes-validations": [
                    {"rule": "self > 1"},
                    {"rule": "self < 9", "messageExpression": "'x'", "optionalOldSelf": True},
                ],
            },
        ),
        (
            Annotated[Color | None, Nullable()],
            None,
            {"type": "string", "nullable": True, "pattern": "^(red|blue)$"},
        ),
        # lightkube's structs
        (
            K8s[ServicePort],
            ...,
            {
                "type": "object",
                "properties": {
                    "port": INTEGER,
                    "appProtocol": {"type": "string"},
                    "name": {"type": "string"},
                    "nodePort": INTEGER,
                    "protocol": {"type": "string"},
                    "targetPort": {"x-kubernetes-int-or-string": True},
                },
                "required": ["port"],
            },
        ),
    ],
)
def test_a_type_becomes_structural(annotation: Any, default: Any, schema: dict[str, Any]) -> None:
    assert field(annotation, default) == schema


def test_a_default_of_a_nested_model_says_only_what_its_children_do_not() -> None:
    assert field(Limits, Limits(cpu_count=3))["default"] == {"cpuCount": 3}
    assert field(Part, Part(name="p"))["default"] == {"name": "p"}
    assert field(Limits, Field(default_factory=lambda: Limits(burst=True)))["default"] == {"burst": True}


def test_what_has_a_default_is_not_required() -> None:
    class Holder(Model):
        needed: int
        given: int = 1
        optional: int | None = None

    assert structural_schema(Holder)["required"] == ["needed"]


def test_docstrings_become_descriptions() -> None:
    class Holder(Model):
        """A holder.

        Of things.
        """

        size: int
        """How big."""

    schema = structural_schema(Holder)
    assert schema["description"] == "A holder.\n\nOf things."
    assert schema["properties"]["size"]["description"] == "How big."


def test_a_recursive_model_is_kept_open_where_it_recurs_and_says_so() -> None:
    schema = field(Tree)
    assert schema["required"] == ["name"]
    assert schema["properties"]["children"]["items"] == {
        "description": "A Tree again, as deep as you like: the server keeps what is in it, unchecked.",
        "type": "object",
        PRESERVE: True,
    }
    assert field(Linked)["properties"]["next"] == schema["properties"]["children"]["items"] | {
        "description": "A Linked again, as deep as you like: the server keeps what is in it, unchecked."
    }


def test_a_recursive_field_that_is_marked_open_says_nothing_more() -> None:
    assert field(OpenTree)["properties"]["children"] == {PRESERVE: True}


def test_a_recursive_type_that_is_no_model_is_refused_with_the_way_out() -> None:
    with pytest.raises(CrdSchemaError, match=r"Deep contains itself and is no model.*PreserveUnknown"):
        field(Deep)


def test_variants_of_a_discriminated_union_become_one_object_with_rules() -> None:
    schema = field(Annotated[Bucket | Disk, Field(discriminator="type")])
    assert schema["properties"] == {
        "type": {"type": "string", "enum": ["s3", "disk", "nfs"]},
        "bucket": {"type": "string"},
        "region": {"type": "string"},
        "path": {"type": "string"},
    }
    assert schema["required"] == ["type"]
    assert [rule["rule"] for rule in schema["x-kubernetes-validations"]] == [
        'self.type != "s3" || has(self.bucket)',
        'self.type != "s3" || !has(self.path)',
        'self.type != "disk" && self.type != "nfs" || has(self.path)',
        'self.type != "disk" && self.type != "nfs" || !has(self.bucket)',
    ]


@pytest.mark.parametrize(
    ("annotation", "way_out"),
    [
        (Part | Limits, "discriminator"),
        (bool | str, "PreserveUnknown"),
        (Annotated[Disk | Clash, Field(discriminator="type")], "'path' differs"),
        (tuple[int, str], "named fields"),
        (Literal["a", True], "one type"),
        (int | None, "give it the default None"),
        (None, "leave the field out"),
        (Callable[[], int], "PreserveUnknown"),
        (Annotated[str, WithJsonSchema({"type": "string", "pattern": "^(?=a)b$"})], "Cel"),
        (dict[Annotated[str, StringConstraints(pattern="^[a-z]+$")], int], "max_length"),
        (Annotated[list[Part], ListMap("title")], "'title' is no field"),
        (Annotated[list[Limits], ListMap("note")], "'note' must be required"),
        (Annotated[list[Part], ListSet()], "ListMap"),
        (SecretStr, "Secret"),
        (NaiveDatetime, "use Time"),
        (dict[str, int | None], "leave the key out"),
        (list[Annotated[int, Cel("self >= oldSelf")]], "ListMap"),
        (list[Annotated[int, Immutable()]], "ListMap"),
        (Annotated[list[Keyless], ListMap("tags")], "text, number or boolean"),
        (Annotated[list[str | None], ListSet()], "cannot be null"),
    ],
)
def test_what_has_no_structural_schema_is_refused_with_field_and_way_out(annotation: Any, way_out: str) -> None:
    with pytest.raises(CrdSchemaError, match=way_out) as caught:
        field(annotation)
    assert str(caught.value).startswith(("Holder: value", "Part: value", "Limits: value", "Keyless: value"))


@pytest.mark.parametrize(
    ("annotation", "default", "told"),
    [
        (int | None, 3, "its default is 3: None is not sent"),
        (Annotated[str, Field(min_length=1)], "", "its default does not fit it"),
        (int, "many", "its default does not fit it"),
        (Color, "green", "its default does not fit it"),
    ],
)
def test_a_default_that_could_not_stand_is_refused(annotation: Any, default: Any, told: str) -> None:
    with pytest.raises(CrdSchemaError, match=told):
        field(annotation, default)


def test_a_default_is_written_as_its_field_is() -> None:
    assert field(Duration, timedelta(minutes=90))["default"] == "1h30m"
    assert field(timedelta, timedelta(minutes=90))["default"] == "PT1H30M"
    assert field(Time, datetime(2026, 1, 1, microsecond=5, tzinfo=UTC))["default"] == "2026-01-01T00:00:00Z"
    assert field(K8s[ServicePort], ServicePort(port=80))["default"] == {"port": 80}
    assert field(list[Limits], [Limits(), Limits(cpu_count=3)])["default"] == [{}, {"cpuCount": 3}]


def test_a_factory_that_makes_another_value_each_time_gives_no_default() -> None:
    assert "default" not in field(str, Field(default_factory=lambda: uuid4().hex))
    assert "default" not in field(UUID, Field(default_factory=uuid4))
    assert "default" not in field(Time, Field(default_factory=lambda: datetime(2026, 1, 1, tzinfo=UTC)))
    assert field(str, Field(default_factory=lambda: "x"))["default"] == "x"


def test_an_empty_list_in_a_default_is_said_where_it_means_something() -> None:
    assert field(Needs, Needs(tags=[], more=[]))["default"] == {"tags": [], "more": []}
    assert field(Needs, Needs(tags=["a"], kept=[]))["default"] == {"tags": ["a"]}


def test_immutable_fields_are_rules_of_their_own_and_of_what_they_are_in() -> None:
    class Holder(Model):
        always: Annotated[str, Immutable()]
        defaulted: Annotated[int, Immutable()] = 1
        optional: Annotated[str | None, Immutable()] = None
        once: Annotated[str | None, Immutable(once_set=True)] = None

    schema = structural_schema(Holder)
    unchanged = [{"rule": "self == oldSelf", "message": "cannot be changed"}]
    assert all(each["x-kubernetes-validations"] == unchanged for each in schema["properties"].values())
    assert schema["x-kubernetes-validations"] == [
        {"rule": "has(self.optional) == has(oldSelf.optional)", "message": "optional cannot be added or removed"},
        {"rule": "!has(oldSelf.once) || has(self.once)", "message": "once cannot be removed"},
    ]


def test_an_optional_immutable_field_in_a_list_without_keys_is_refused() -> None:
    class Item(Model):
        zone: Annotated[str | None, Immutable()] = None

    with pytest.raises(CrdSchemaError, match="in a list without keys"):
        field(list[Item])


def test_rules_of_a_model_stand_with_those_of_the_field_and_are_inherited() -> None:
    class Base(Model, rules=[Cel("self.a > 0")]):
        a: int = 1

    class Derived(Base, rules=[Cel("self.b > 0"), Cel("self.a > 0")]):
        b: int = 1

    rules = field(Annotated[Derived, Cel("self.a < 9")])["x-kubernetes-validations"]
    assert [rule["rule"] for rule in rules] == ["self.a > 0", "self.b > 0", "self.a < 9"]


def test_a_text_about_old_self_is_no_transition_rule() -> None:
    assert field(list[Annotated[str, Cel("self != 'oldSelf'")]])["items"]["type"] == "string"


def test_limits_that_differ_between_variants_are_the_variants_own() -> None:
    schema = field(Annotated[Bucket | Large, Field(discriminator="type")])
    assert schema["properties"]["region"] == {"type": "string"}
    assert schema["properties"]["bucket"] == {"type": "string"}
    assert schema["anyOf"] == [
        {"properties": {"type": {"enum": ["s3"]}}},
        {"properties": {"type": {"enum": ["large"]}, "bucket": {"maxLength": 5}}},
    ]
    assert {"rule": 'self.type != "large" || (self.bucket != "x")', "message": "not x"} in schema[
        "x-kubernetes-validations"
    ]


def test_keywords_stand_in_one_order_whatever_the_annotations_order() -> None:
    one = field(Annotated[int, Field(ge=1, description="How many."), Cel("self != 3")], 5)
    other = field(Annotated[int, Cel("self != 3"), Field(description="How many.", ge=1)], 5)
    assert (
        list(one) == list(other) == ["description", "type", "format", "default", "minimum", "x-kubernetes-validations"]
    )


def test_nothing_in_status_gets_a_default_from_the_server() -> None:
    class Root(Model):
        spec: Limits
        status: Limits = Limits()

    schema = structural_schema(Root, status="status")
    assert schema["properties"]["spec"]["properties"]["cpuCount"]["default"] == 2
    assert schema["properties"]["status"]["properties"]["cpuCount"] == INTEGER
    assert "default" not in schema["properties"]["status"]


def test_conditions_are_a_list_by_type_with_the_limits_of_the_api() -> None:
    schema = field(Conditions)
    assert schema["x-kubernetes-list-type"] == "map"
    assert schema["x-kubernetes-list-map-keys"] == ["type"]
    item = schema["items"]
    assert item["required"] == ["lastTransitionTime", "message", "reason", "status", "type"]
    assert item["properties"]["status"] == {"type": "string", "enum": ["True", "False", "Unknown"]}
    assert item["properties"]["message"] == {"type": "string", "maxLength": 32768}


def test_quantities_of_structs_are_numbers_or_texts() -> None:
    quantity = {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": QUANTITY_PATTERN,
        "x-kubernetes-int-or-string": True,
    }
    assert field(K8s[EmptyDirVolumeSource])["properties"]["sizeLimit"] == quantity
    limits = field(K8s[ResourceRequirements])["properties"]["limits"]
    assert limits == {"type": "object", "additionalProperties": quantity}


def test_maps_of_structs_are_maps_of_text_where_kubernetes_has_them() -> None:
    labels = {"type": "object", "additionalProperties": {"type": "string"}}
    assert field(K8s[LabelSelector])["properties"]["matchLabels"] == labels
    template = field(K8s[PodTemplateSpec])["properties"]
    assert template["metadata"]["properties"]["labels"] == labels
    assert set(template["metadata"]["properties"]) == {"annotations", "finalizers", "labels", "name", "namespace"}
    assert template["spec"]["required"] == ["containers"]


def test_a_recursive_struct_is_kept_open_where_it_recurs() -> None:
    schema = field(K8s[CustomResourceValidation])["properties"]["openAPIV3Schema"]
    assert schema["properties"]["not"] == {"type": "object", PRESERVE: True}
    assert schema["properties"]["$ref"] == {"type": "string"}
