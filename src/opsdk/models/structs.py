"""Lightkube's structs inside pydantic models.

`K8s[ResourceRequirements]` is a field that holds lightkube's struct as it is: same class, same spelling, and a real
schema in the CRD.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar, final

import msgspec
from lightkube.models.meta_v1 import Condition

from opsdk.models._struct_schema import struct_schema
from opsdk.models._struct_wire import struct_from_wire, struct_to_wire
from opsdk.models.markers import ListMap

if TYPE_CHECKING:  # `Conditions` is for structs as well, which never need pydantic
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema

__all__ = ["Conditions", "K8s", "K8sStruct"]

_STRUCT = "opsdk.struct"
S = TypeVar("S")


@final
class K8sStruct:
    """The annotation that lets a msgspec struct, lightkube's or your own, be a field of a pydantic model.

    Unknown fields inside the struct are not kept by decoding; writes of opsdk keep them nevertheless, because they
    send differences.
    """

    def __get_pydantic_core_schema__(self, source: type[Any], handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema  # loaded by whoever calls this

        if not (isinstance(source, type) and issubclass(source, msgspec.Struct)):  # pyright: ignore[reportUnnecessaryIsInstance] - an annotation can hold anything
            raise TypeError(f"K8s[...] is for msgspec structs; {source!r} is none: use it without K8s")

        def validate(value: object) -> msgspec.Struct:
            if isinstance(value, source):
                return value
            try:
                return msgspec.convert(value, source)
            except msgspec.ValidationError:
                return struct_from_wire(value, source)

        return core_schema.no_info_plain_validator_function(
            validate,
            serialization=core_schema.plain_serializer_function_ser_schema(struct_to_wire),
            metadata={_STRUCT: source},
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        metadata: dict[str, Any] = schema.get("metadata") or {}
        return struct_schema(metadata[_STRUCT])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, K8sStruct)

    def __hash__(self) -> int:
        return hash(K8sStruct)


K8s: TypeAlias = Annotated[S, K8sStruct()]
"""A struct as a field: `resources: K8s[ResourceRequirements] | None = None`."""

Conditions: TypeAlias = Annotated[list[Annotated[Condition, K8sStruct()]], ListMap("type")]
"""Status conditions: lightkube's `Condition`, one for each type."""
