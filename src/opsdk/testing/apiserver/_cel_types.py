"""The types that CEL expressions see: those of a structural schema.

Objects with properties become messages, so that the CEL library finds a misspelled field when it compiles a rule.
What a message cannot hold (lists of lists, maps of lists or maps) is `dyn` below a property: faults there are found
only when the rule is evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, final

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from opsdk.testing.apiserver._fields import Tree, entries, is_integer, is_object, members

__all__ = ["LARGEST_REQUEST", "PACKAGE", "CelType", "as_resource", "declare", "escape", "messages_of"]

PACKAGE: Final = "opsdk.cel.schema"
LARGEST_REQUEST: Final = 3 * 1024 * 1024
"""How many bytes a request can have, for the limits of what no schema limits."""
_RESERVED: Final = frozenset(
    {
        "as",
        "break",
        "const",
        "continue",
        "else",
        "false",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
        "namespace",
        "null",
        "package",
        "return",
        "true",
        "var",
        "void",
        "while",
    }
)
_ESCAPES: Final = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_STRING_FORMATS: Final = {"byte": "bytes", "duration": "duration", "date": "timestamp", "date-time": "timestamp"}
_FORMAT_SIZES: Final = {"duration": (3, 32), "date": (12, 12), "date-time": (21, 32)}
_SCALARS: Final = {
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "double": FieldDescriptorProto.TYPE_DOUBLE,
    "int": FieldDescriptorProto.TYPE_INT64,
    "string": FieldDescriptorProto.TYPE_STRING,
}
_DYN: Final = (FieldDescriptorProto.TYPE_MESSAGE, ".google.protobuf.Value")
_WELL_KNOWN: Final = {
    "dyn": _DYN,
    "duration": (FieldDescriptorProto.TYPE_MESSAGE, ".google.protobuf.Duration"),
    "timestamp": (FieldDescriptorProto.TYPE_MESSAGE, ".google.protobuf.Timestamp"),
}
_NAME: Final[Tree] = {"type": "string"}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CelType:
    """A schema as CEL sees it.

    Args:
        kind: `object`, `list`, `map`, `dyn` or the name of a scalar.
        schema: The schema.
        element: The type of items or values.
        fields: Of an object, by the names in expressions.
        properties: Of an object, by their own names, also those that no expression can spell.
        most: How long a value can get: characters, items or entries.
        least_bytes: The shortest JSON of a value.
    """

    kind: str
    schema: Tree
    element: CelType | None = None
    fields: Mapping[str, CelType] = field(default_factory=dict[str, "CelType"])
    properties: Mapping[str, CelType] = field(default_factory=dict[str, "CelType"])
    most: int = 0
    least_bytes: int = 1


def escape(name: str) -> str | None:
    """A property's name as expressions spell it; None where they cannot."""
    if re.fullmatch(r"[a-zA-Z_./-][a-zA-Z0-9_./-]*", name) is None:
        return None
    if name in _RESERVED:
        return f"__{name}__"
    return re.sub(r"__|[-./]", lambda found: _ESCAPES[found[0]], name)


def as_resource(schema: Tree) -> Tree:
    """The schema with what expressions can always see of a whole object: apiVersion, kind, its names."""
    properties = members(schema, "properties")
    named = members(members(properties, "metadata"), "properties")
    names: Tree = {key: {**_NAME, **members(named, key)} for key in ("name", "generateName")}
    for key, longest in (("name", 253), ("generateName", 252)):
        names[key].setdefault("maxLength", longest)
    metadata: Tree = {"type": "object", "properties": names}
    return {**schema, "properties": {**properties, "apiVersion": _NAME, "kind": _NAME, "metadata": metadata}}


def declare(schema: Tree, *, resource: bool = False) -> CelType | None:
    """The type of a schema; None where expressions cannot see it, as it says nothing of its type.

    Args:
        resource: Whether it is a whole object.
    """
    if schema.get("x-kubernetes-int-or-string"):
        return CelType(kind="dyn", schema=schema, most=LARGEST_REQUEST - 2)
    if resource:
        schema = as_resource(schema)
    match schema.get("type"):
        case "array":
            return _list(schema)
        case "object":
            return _map(schema) if is_object(schema.get("additionalProperties")) else _object(schema)
        case "string":
            return _string(schema)
        case "boolean":
            return CelType(kind="bool", schema=schema, least_bytes=4)
        case "number":
            return CelType(kind="double", schema=schema)
        case "integer":
            return CelType(kind="int", schema=schema)
        case _:
            return None


def _below(schema: Tree) -> CelType | None:
    return declare(schema, resource=bool(schema.get("x-kubernetes-embedded-resource")))


def _limit(schema: Tree, key: str, otherwise: int) -> int:
    found = schema.get(key)
    return max(found, 0) if is_integer(found) else otherwise


def _list(schema: Tree) -> CelType | None:
    items = schema.get("items")
    element = _below(items) if is_object(items) else None
    if element is None:
        return None
    most = _limit(schema, "maxItems", (LARGEST_REQUEST - 2) // (element.least_bytes + 1))
    return CelType(kind="list", schema=schema, element=element, most=most, least_bytes=2)


def _map(schema: Tree) -> CelType | None:
    element = _below(schema["additionalProperties"])
    if element is None:
        return None
    most = _limit(schema, "maxProperties", (LARGEST_REQUEST - 2) // (element.least_bytes + 6))
    return CelType(kind="map", schema=schema, element=element, most=most, least_bytes=2)


def _object(schema: Tree) -> CelType:
    wanted = set(entries(schema, "required"))
    least = 2
    fields: dict[str, CelType] = {}
    properties: dict[str, CelType] = {}
    for name, below in members(schema, "properties").items():
        found = _below(below)
        if found is None:
            continue
        properties[name] = found
        escaped = escape(name)
        if escaped is not None:
            fields[escaped] = found
        if name in wanted and below.get("default") is None:
            least += len(name) + found.least_bytes + 4
    return CelType(kind="object", schema=schema, fields=fields, properties=properties, least_bytes=least)


def _string(schema: Tree) -> CelType:
    form = schema.get("format") or ""
    kind = _STRING_FORMATS.get(form, "string")
    least, most = _FORMAT_SIZES.get(form, (2, LARGEST_REQUEST - 2))
    if form == "byte":
        most = _limit(schema, "maxLength", most)
    elif kind == "string" and is_integer(schema.get("maxLength")):
        most = _limit(schema, "maxLength", 0) * 4
    elif kind == "string" and entries(schema, "enum"):
        most = max((len(each.encode()) for each in entries(schema, "enum") if isinstance(each, str)), default=0)
    return CelType(kind=kind, schema=schema, most=most, least_bytes=least)


# Messages


def messages_of(root: CelType) -> tuple[FileDescriptorProto, dict[int, str]]:
    """The messages of all objects below a type, and their names by `id` of the type."""
    file = FileDescriptorProto(name="opsdk_cel_schema.proto", package=PACKAGE, syntax="proto3")
    file.dependency.extend(f"google/protobuf/{name}.proto" for name in ("duration", "struct", "timestamp"))
    names: dict[int, str] = {}
    _add_messages(file, root, names)
    return file, names


def _add_messages(file: FileDescriptorProto, of: CelType, names: dict[int, str]) -> None:
    if of.element is not None:
        _add_messages(file, of.element, names)
    if of.kind != "object":
        return
    for below in of.properties.values():
        _add_messages(file, below, names)
    name = names[id(of)] = f"Object{len(names)}"
    message = file.message_type.add(name=name)
    message.options.deprecated_legacy_json_field_conflicts = True  # `foo_bar` and `fooBar` may stand side by side
    for number, (key, below) in enumerate(of.fields.items(), start=1):
        number += 1000 if number >= 19000 else 0  # noqa: PLW2901 - a range that is protobuf's own
        _add_field(message, key, number, below, names)


def _add_field(message: DescriptorProto, key: str, number: int, of: CelType, names: Mapping[int, str]) -> None:
    made = message.field.add(name=key, number=number, json_name=f"f{number}")
    element = of.element
    simple = element is not None and element.kind not in {"list", "map"}
    made.label = made.LABEL_REPEATED if simple else made.LABEL_OPTIONAL
    if element is None:
        _set_type(made, of, names)
    elif not simple:
        made.type, made.type_name = _DYN
    elif of.kind == "list":
        _set_type(made, element, names)
    else:
        _add_map_field(message, made, element, names)


def _add_map_field(
    message: DescriptorProto, made: FieldDescriptorProto, element: CelType, names: Mapping[int, str]
) -> None:
    name = re.sub(r"_+(.?)|^(.)", lambda found: (found[1] or found[2] or "").upper(), made.name) + "Entry"
    if any(each.name == name for each in message.nested_type):  # two names that protobuf takes for one
        made.label = made.LABEL_OPTIONAL
        made.type, made.type_name = _DYN
        return
    entry = message.nested_type.add(name=name)
    entry.options.map_entry = True
    key = entry.field.add(name="key", number=1, json_name="key")
    key.label, key.type = key.LABEL_OPTIONAL, key.TYPE_STRING
    value = entry.field.add(name="value", number=2, json_name="value")
    value.label = value.LABEL_OPTIONAL
    _set_type(value, element, names)
    made.type, made.type_name = made.TYPE_MESSAGE, f".{PACKAGE}.{message.name}.{name}"


def _set_type(made: FieldDescriptorProto, of: CelType, names: Mapping[int, str]) -> None:
    if of.kind == "object":
        made.type, made.type_name = made.TYPE_MESSAGE, f".{PACKAGE}.{names[id(of)]}"
    elif of.kind in _SCALARS:
        made.type = _SCALARS[of.kind]
    else:
        made.type, made.type_name = _WELL_KNOWN[of.kind]
