"""JSON schema of a msgspec struct, good enough for a CRD.

Lightkube's structs are generated from Kubernetes' OpenAPI, so their fields are Kubernetes' own; what their types do
not say (maps are bare `dict`) is known here by name. Descriptions are left out: a pod template with them is beyond
what `kubectl apply` can annotate.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeAlias, get_args, get_origin

import msgspec
from lightkube.models.meta_v1 import Condition, ObjectMeta

from opsdk.models._struct_wire import StructField, struct_fields, without_none

__all__ = ["QUANTITY_PATTERN", "Schema", "quantity_schema", "struct_schema"]

Schema: TypeAlias = "dict[str, Any]"

QUANTITY_PATTERN = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
_TEXT_MAPS = {
    "annotations", "data", "labels", "matchLabels", "nodeSelector", "selector", "stringData", "volumeAttributes",
    "deprecatedTopology", "options", "parameters", "binaryData",
}  # fmt: skip
_QUANTITY_MAPS = {
    "allocatable", "allocatedResources", "capacity", "default", "defaultRequest", "hard", "limits", "max",
    "maxLimitRequestRatio", "min", "overhead", "podFixed", "requests", "used",
}  # fmt: skip
_TEMPLATE_METADATA = ("annotations", "finalizers", "labels", "name", "namespace")


def quantity_schema() -> Schema:
    """An amount: a whole number, or a text with a unit."""
    return {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": QUANTITY_PATTERN,
        "x-kubernetes-int-or-string": True,
    }


def _open() -> Schema:
    return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def struct_schema(cls: type[msgspec.Struct], *, _within: tuple[type[msgspec.Struct], ...] = ()) -> Schema:
    """The schema of a struct class: nested structs in place, recursion as an open object."""
    if cls in _within:
        return _open()
    fields = struct_fields(cls)
    if issubclass(cls, ObjectMeta):
        fields = [field for field in fields if field.name in _TEMPLATE_METADATA]
    properties = {field.wire: _of_type(field.type, field, (*_within, cls)) for field in fields}
    if issubclass(cls, Condition):
        _as_condition(properties)
    out: Schema = {"type": "object", "properties": properties}
    required = [field.wire for field in fields if field.required]
    if required:
        out["required"] = required
    return out


def _as_condition(properties: Schema) -> None:
    """The limits that the API conventions set for a condition, which the struct's types cannot say."""
    properties["status"]["enum"] = ["True", "False", "Unknown"]
    properties["reason"] |= {
        "minLength": 1,
        "maxLength": 1024,
        "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
    }
    properties["message"]["maxLength"] = 32768
    properties["observedGeneration"]["minimum"] = 0
    properties["type"] |= {
        "maxLength": 316,
        "pattern": (
            r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
            r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
        ),
    }


def _of_type(tp: object, field: StructField, within: tuple[type[msgspec.Struct], ...]) -> Schema:
    alternatives = without_none(tp)
    if field.quantity and str in alternatives:
        return quantity_schema()
    if set(alternatives) == {int, str}:
        return {"x-kubernetes-int-or-string": True}
    if len(alternatives) != 1:
        return {"x-kubernetes-preserve-unknown-fields": True}
    (only,) = alternatives
    origin, args = get_origin(only), get_args(only)
    if only is str:
        return {"type": "string"}
    if only is bool:
        return {"type": "boolean"}
    if only is int:
        return {"type": "integer", "format": "int64"}
    if only is float:
        return {"type": "number"}
    if only is datetime:
        return {"type": "string", "format": "date-time"}
    if origin is list:
        items = _of_type(args[0], field, within) if args else {"x-kubernetes-preserve-unknown-fields": True}
        by_type = isinstance(args[0], type) and issubclass(args[0], Condition) if args else False
        keys = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]} if by_type else {}
        return {"type": "array", "items": items, **keys}
    if origin is dict and args:
        return {"type": "object", "additionalProperties": _of_type(args[1], field, within)}
    if only is dict or origin is dict:
        if field.wire in _QUANTITY_MAPS:
            return {"type": "object", "additionalProperties": quantity_schema()}
        if field.wire in _TEXT_MAPS:
            return {"type": "object", "additionalProperties": {"type": "string"}}
        return _open()
    if isinstance(only, type) and issubclass(only, msgspec.Struct):
        return struct_schema(only, _within=within)
    return {"x-kubernetes-preserve-unknown-fields": True}
