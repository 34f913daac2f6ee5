"""Each thing that pydantic can say, and what Kubernetes gets to hear."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Annotated, Any, Literal, cast
from uuid import UUID

import pytest
from lightkube.models.apiextensions_v1 import CustomResourceValidation
from lightkube.models.core_v1 import EmptyDirVolumeSource, PodTemplateSpec, ResourceRequirements, ServicePort
from lightkube.models.meta_v1 import LabelSelector
from pydantic import Field, RootModel, StringConstraints, WithJsonSchema, create_model

from opsdk.errors import CrdSchemaError
from opsdk.models import (
    Cel,
    Conditions,
    EmbeddedResource,
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
    Time,
)
from opsdk.models._schema_text import DECIMAL_PATTERN
from opsdk.models._struct_schema import QUANTITY_PATTERN
from opsdk.models._structural import structural_schema

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
        # formats
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
            {
                "type": "string",
                "nullable": True,
                "x-kubernetes-validations": [
                    {"rule": 'self in ["red", "blue"]', "message": "must be one of red, blue"}
                ],
            },
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
    ],
)
def test_what_has_no_structural_schema_is_refused_with_field_and_way_out(annotation: Any, way_out: str) -> None:
    with pytest.raises(CrdSchemaError, match=way_out) as caught:
        field(annotation)
    assert str(caught.value).startswith(("Holder: value", "Part: value", "Limits: value"))


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
