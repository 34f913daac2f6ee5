"""What a field's annotation can say about its CRD schema, beyond its type.

::

    parts: Annotated[list[Part], ListMap("name"), Field(max_length=50)] = []
    size: Annotated[int, Cel("self >= oldSelf", message="size only grows")]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, final

import msgspec

from opsdk.types import Json

if TYPE_CHECKING:  # structs have markers too, and never need pydantic
    from pydantic import GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema

__all__ = [
    "IMMUTABLE",
    "Cel",
    "EmbeddedResource",
    "Immutable",
    "IntOrString",
    "ListAtomic",
    "ListMap",
    "ListSet",
    "MapAtomic",
    "Nullable",
    "PreserveUnknown",
    "PrintColumn",
    "Scale",
]

IntOrString: TypeAlias = int | str
"""A port number or name, a count or percentage: `x-kubernetes-int-or-string` in the CRD."""

CelReason: TypeAlias = Literal["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate"]


IMMUTABLE: Final = "x-opsdk-immutable"
"""What `Immutable` leaves for the walk that makes the schema: it also concerns the object that the field is in."""


class _Marker:
    """Adds to the schema of the field that it annotates."""

    __slots__ = ()

    def _extra(self) -> Mapping[str, Json]:
        return {}

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        out = handler(schema)
        for key, value in self._extra().items():
            if key == "x-kubernetes-validations" and isinstance(value, list):
                out[key] = [*out.get(key, []), *value]
            else:
                out[key] = value
        return out


@final
@dataclass(frozen=True, slots=True, init=False)
class ListMap(_Marker):
    """A list of objects that are told apart by `keys`; server-side apply merges it item by item.

    Args:
        keys: Wire names of the fields that make up the key. Each must be required or have a default.
    """

    keys: tuple[str, ...]

    def __init__(self, key: str, /, *keys: str) -> None:
        object.__setattr__(self, "keys", (key, *keys))

    def _extra(self) -> Mapping[str, Json]:
        return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(self.keys)}


@final
class ListSet(_Marker, msgspec.Struct, frozen=True):
    """A list of scalars without repetition; server-side apply merges it value by value.

    Better on a `list` than as a `set`: the order of a Python set is another one in each process, and so would be what
    is written.
    """

    def _extra(self) -> Mapping[str, Json]:
        return {"x-kubernetes-list-type": "set"}


@final
class ListAtomic(_Marker, msgspec.Struct, frozen=True):
    """A list that has one owner and is replaced whole."""

    def _extra(self) -> Mapping[str, Json]:
        return {"x-kubernetes-list-type": "atomic"}


@final
class MapAtomic(_Marker, msgspec.Struct, frozen=True):
    """An object that has one owner and is replaced whole."""

    def _extra(self) -> Mapping[str, Json]:
        return {"x-kubernetes-map-type": "atomic"}


@final
class PreserveUnknown(_Marker, msgspec.Struct, frozen=True):
    """The server keeps what the schema does not name. Also the way out for types that have no structural schema."""

    def _extra(self) -> Mapping[str, Json]:
        return {"x-kubernetes-preserve-unknown-fields": True}


@final
class EmbeddedResource(_Marker, msgspec.Struct, frozen=True):
    """The field is a whole Kubernetes object, with apiVersion, kind and metadata."""

    def _extra(self) -> Mapping[str, Json]:
        return {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "x-kubernetes-preserve-unknown-fields": True,
        }


@final
class Nullable(_Marker, msgspec.Struct, frozen=True):
    """The server keeps a null that somebody sends, instead of dropping it."""

    def _extra(self) -> Mapping[str, Json]:
        return {"nullable": True}


@final
class Immutable(_Marker, msgspec.Struct, frozen=True, kw_only=True):
    """The field cannot be changed once the object is there.

    A field that is optional and has no default cannot be added or removed either. The rule compares with what was
    there before, so that it needs a place that can be found again: not within the items of a list without keys.

    Args:
        once_set: It may be missing first and set later, and can then no longer be changed or removed.
    """

    once_set: bool = False

    def _extra(self) -> Mapping[str, Json]:
        return {IMMUTABLE: "once-set" if self.once_set else "always"}


@final
@dataclass(frozen=True, slots=True)
class Cel(_Marker):
    """A rule in CEL that the API server checks (`x-kubernetes-validations`).

    A rule on something inside a list or map without a limit is refused by the server for its possible cost; limit it
    with `Field(max_length=…)`.

    Args:
        rule: The expression; `self` is the value, `oldSelf` the one before an update.
        message: What the server says when it does not hold.
        reason: The machine-readable reason.
        field_path: The field to blame, relative to this one (`.replicas`).
        message_expression: An expression that makes the message.
        optional_old_self: Check also on create; `oldSelf` is then an optional.
    """

    rule: str
    message: str | None = field(default=None, kw_only=True)
    reason: CelReason | None = field(default=None, kw_only=True)
    field_path: str | None = field(default=None, kw_only=True)
    message_expression: str | None = field(default=None, kw_only=True)
    optional_old_self: bool = field(default=False, kw_only=True)

    def document(self) -> dict[str, Json]:
        """The rule as it stands in a CRD."""
        found: dict[str, Json] = {"rule": self.rule}
        if self.message is not None:
            found["message"] = self.message
        if self.message_expression is not None:
            found["messageExpression"] = self.message_expression
        if self.reason is not None:
            found["reason"] = self.reason
        if self.field_path is not None:
            found["fieldPath"] = self.field_path
        if self.optional_old_self:
            found["optionalOldSelf"] = True
        return found

    def _extra(self) -> Mapping[str, Json]:
        return {"x-kubernetes-validations": [self.document()]}


@final
class PrintColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column of `kubectl get`.

    Args:
        name: The heading.
        json_path: Where the value is, from the object's root (`.spec.replicas`).
        type: Its type.
        description: What it means.
        priority: 0 is always shown, more only with `-o wide`.
        format: An OpenAPI format, for example `int32`.
    """

    name: str
    json_path: str
    type: Literal["string", "integer", "number", "boolean", "date"] = "string"
    description: str = ""
    priority: int = 0
    format: str = ""

    def document(self) -> dict[str, Json]:
        """The column as it stands in a CRD."""
        found: dict[str, Json] = {"name": self.name, "type": self.type, "jsonPath": self.json_path}
        if self.description:
            found["description"] = self.description
        if self.priority:
            found["priority"] = self.priority
        if self.format:
            found["format"] = self.format
        return found


@final
class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """The scale subresource: which fields `kubectl scale` and autoscalers use.

    Args:
        spec_replicas: Path of the wanted count.
        status_replicas: Path of the count that is there.
        label_selector: Path of the selector of the pods, as text, in status; autoscalers need it.
    """

    spec_replicas: str = ".spec.replicas"
    status_replicas: str = ".status.replicas"
    label_selector: str | None = None

    def document(self) -> dict[str, Json]:
        """The subresource as it stands in a CRD."""
        found: dict[str, Json] = {
            "specReplicasPath": self.spec_replicas,
            "statusReplicasPath": self.status_replicas,
        }
        if self.label_selector is not None:
            found["labelSelectorPath"] = self.label_selector
        return found
