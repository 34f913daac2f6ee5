"""What a document of a built-in kind may hold: the fields of lightkube's model and their types.

A server decodes built-in kinds into Go structs: a value of a wrong type is refused, an unknown field is dropped, or
refused where the client asks for strict validation. *On purpose*, unknown fields are not dropped here: they stand for
the fields of a server that is newer than the client's models, which clients have to preserve.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, final

import lightkube.resources
import msgspec.inspect
from lightkube.core.resource import GlobalResource, NamespacedResource, Resource, api_info

from opsdk.testing.apiserver._base64 import base64_fault
from opsdk.testing.apiserver._fields import child, is_array, is_integer, is_number, is_object
from opsdk.testing.apiserver._kinds import KindInfo

__all__ = ["fill_nulls", "model_of", "resource_classes", "type_fault", "unknown_fields"]

# lightkube says of a map only that it is one; these hold strings wherever they occur.
_STRING_MAPS: Final = frozenset(
    {"annotations", "binaryData", "data", "labels", "matchLabels", "nodeSelector", "selector", "stringData"}
)
# And these hold bytes, in base64; lightkube knows no other type for them.
_BYTE_MAPS: Final = frozenset({("ConfigMap", "binaryData"), ("Secret", "data")})
# Of schemas in schemas lightkube says even less: which maps hold them, and where one may stand beside something else.
_SCHEMA: Final = "JSONSchemaProps"
_SCHEMA_MAPS: Final = frozenset({"definitions", "patternProperties", "properties"})
_SCHEMA_OR: Final = {"additionalProperties": "boolean", "items": "array"}
_GO_TYPES: Final = {
    "boolean": "bool",
    "bytes": "[]uint8",
    "integer": "int32",
    "number": "float64",
    "string": "string",
}


_ZEROES: Final[Mapping[str, object]] = {"boolean": False, "integer": 0, "number": 0, "string": ""}


@cache
def resource_classes() -> tuple[type[Resource], ...]:
    """Lightkube's classes of whole objects."""
    found: list[type[Resource]] = []
    for module_info in pkgutil.iter_modules(lightkube.resources.__path__):
        module = importlib.import_module(f"lightkube.resources.{module_info.name}")
        for value in vars(module).values():
            candidate: object = value
            if (
                isinstance(candidate, type)
                and issubclass(candidate, NamespacedResource | GlobalResource)
                and "_api_info" in vars(candidate)
            ):
                found.append(candidate)
    return tuple(found)


def model_of(cls: type[Resource]) -> type[Any]:
    """The model that a resource class extends."""
    return next(each for each in cls.__mro__ if each.__module__.startswith("lightkube.models."))


@cache
def _models() -> Mapping[tuple[str, str, str], type[Any]]:
    models: dict[tuple[str, str, str], type[Any]] = {}
    for cls in resource_classes():
        definition = api_info(cls).resource
        models[definition.group, definition.version, definition.kind] = model_of(cls)
    return models


def unknown_fields(info: KindInfo, document: Mapping[str, Any]) -> list[str]:
    """The paths of fields that the kind does not have, sorted; none for kinds that have no model."""
    shape = _shape_of_kind(info)
    return [] if shape is None else sorted(_unknown(shape, dict(document), ""))


def type_fault(info: KindInfo, document: Mapping[str, Any]) -> str | None:
    """How Go says that a value is of another type than its field, or no base64; None where all fit."""
    shape = _shape_of_kind(info)
    return None if shape is None else next(_faults(shape, dict(document), shape.name, ""), None)


def fill_nulls(info: KindInfo, document: dict[str, Any]) -> None:
    """Make of a null in a list what Go makes of it, the empty value of the items' type; drop schemas that are none."""
    shape = _shape_of_kind(info)
    if shape is not None:
        _fill(shape, document)


@final
@dataclass(frozen=True, slots=True)
class _Shape:
    """What a value looks like: a struct (by name; `or_else`: or this), a list, a map, a scalar, or anything."""

    name: str = ""
    struct: type[Any] | None = None
    item: _Shape | None = None
    value: _Shape | None = None
    scalar: str = ""
    or_else: str = ""


def _shape_of_kind(info: KindInfo) -> _Shape | None:
    model = _models().get((info.group, info.version, info.kind))
    return None if model is None else _Shape(name=model.__name__, struct=model)


_known: dict[type[Any], Mapping[str, _Shape]] = {}


def _fields(struct: type[Any]) -> Mapping[str, _Shape]:
    """The fields of a struct; empty for a model that is no struct and leaves its content open."""
    known = _known.get(struct)
    if known is not None:
        return known
    described = msgspec.inspect.type_info(struct)
    fields: dict[str, _Shape] = {}
    for each in described.fields if isinstance(described, msgspec.inspect.StructType) else ():
        shape = _shape(each.type)
        schema = _Shape(name=_SCHEMA, struct=struct, or_else=_SCHEMA_OR.get(each.encode_name, ""))
        if struct.__name__ == _SCHEMA and each.encode_name in _SCHEMA_OR:
            shape = schema
        elif struct.__name__ == _SCHEMA and each.encode_name in _SCHEMA_MAPS:
            shape = _Shape(value=schema)
        elif (struct.__name__, each.encode_name) in _BYTE_MAPS:
            shape = _Shape(value=_Shape(scalar="bytes"))
        elif shape.value is not None and each.encode_name in _STRING_MAPS:
            shape = _Shape(value=_Shape(scalar="string"))
        fields[each.encode_name] = shape
    _known[struct] = fields
    return fields


def _shape(kind: msgspec.inspect.Type) -> _Shape:
    match kind:
        case msgspec.inspect.UnionType(types=types):
            rest = [each for each in types if not isinstance(each, msgspec.inspect.NoneType)]
            return _shape(rest[0]) if len(rest) == 1 else _Shape()
        case msgspec.inspect.StructType(cls=cls):
            return _Shape(name=cls.__name__, struct=cls)
        case msgspec.inspect.ListType(item_type=item):
            return _Shape(item=_shape(item))
        case msgspec.inspect.DictType(value_type=value):
            return _Shape(value=_shape(value))
        case msgspec.inspect.BoolType():
            return _Shape(scalar="boolean")
        case msgspec.inspect.IntType():
            return _Shape(scalar="integer")
        case msgspec.inspect.FloatType():
            return _Shape(scalar="number")
        case msgspec.inspect.StrType():
            return _Shape(scalar="string")
        case _:
            return _Shape()


def _unknown(shape: _Shape, value: object, path: str) -> Iterator[str]:
    if is_array(value) and shape.item is not None:
        for index, each in enumerate(value):
            yield from _unknown(shape.item, each, f"{path}[{index}]")
    elif is_object(value) and shape.value is not None:
        for key, each in value.items():
            yield from _unknown(shape.value, each, child(path, key))
    elif is_object(value) and shape.struct is not None:
        fields = _fields(shape.struct)
        if not fields:  # a type that the models leave open
            return
        for key, each in value.items():
            below = fields.get(key)
            if below is None:
                yield child(path, key)
            else:
                yield from _unknown(below, each, child(path, key))


def _faults(shape: _Shape, value: object, holder: str, path: str) -> Iterator[str]:
    """Faults in order; `holder` is the struct whose field this is, `path` has no list indexes, as in Go."""
    if value is None:
        return
    if shape.item is not None:
        if not is_array(value):
            yield _fault(value, holder, path, "array")
            return
        for each in value:
            yield from _faults(shape.item, each, holder, path)
    elif shape.value is not None:
        if not is_object(value):
            wanted = _go_type(shape.value) if shape.value.struct else _GO_TYPES.get(shape.value.scalar, "string")
            yield _fault(value, holder, path, f"map[string]{wanted}")
            return
        for each in value.values():
            yield from _faults(shape.value, each, holder, path)
    elif shape.struct is not None:
        fields = _fields(shape.struct)
        if not is_object(value):
            if shape.or_else == "boolean" and not isinstance(value, bool):
                yield "boolean or JSON schema expected"
            elif fields and not shape.or_else:
                yield _fault(value, holder, path, _go_type(shape))
            return
        for key, each in value.items():
            if key in fields:
                yield from _faults(fields[key], each, shape.name, child(path, key))
    elif shape.scalar and not _is_scalar(shape.scalar, value):
        yield _fault(value, holder, path, _GO_TYPES[shape.scalar])
    elif shape.scalar == "bytes" and isinstance(value, str):
        position = base64_fault(value)
        if position is not None:
            yield f"illegal base64 data at input byte {position}"


def _fill(shape: _Shape, value: object) -> None:
    if is_array(value) and shape.item is not None:
        if None in value and (shape.item.struct is not None or shape.item.scalar in _ZEROES):
            value[:] = [_zero(shape.item) if each is None else each for each in value]
        for each in value:
            _fill(shape.item, each)
    elif is_object(value) and shape.value is not None:
        for each in value.values():
            _fill(shape.value, each)
    elif is_object(value) and shape.struct is not None:
        fields = _fields(shape.struct)
        for key, each in list(value.items()):
            below = fields.get(key, _Shape())
            if below.or_else == "array" and not is_object(each) and not is_array(each):
                del value[key]  # what is neither a schema nor a list of them counts as left out
            elif each is not None:
                _fill(below, each)


def _zero(shape: _Shape) -> object:
    return {} if shape.struct is not None else _ZEROES[shape.scalar]


def _go_type(shape: _Shape) -> str:
    """Such as `v1.PodSpec`: Go's packages are named after the version."""
    module = "" if shape.struct is None else shape.struct.__module__
    return f"{module.rpartition('_')[2]}.{shape.name}"


def _is_scalar(wanted: str, value: object) -> bool:
    match wanted:
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return is_integer(value)
        case "number":
            return is_number(value)
        case _:
            return isinstance(value, str)


def _fault(value: object, holder: str, path: str, wanted: str) -> str:
    if is_object(value):
        found = "object"
    elif is_array(value):
        found = "array"
    elif isinstance(value, bool):
        found = "bool"
    elif is_number(value):
        found = "number"
    else:
        found = "string"
    return f"json: cannot unmarshal {found} into Go struct field {holder}.{path} of type {wanted}"
