"""Parsed CEL expressions as trees of plain data that can be read and changed.

The CEL library reads and writes the messages of `cel.expr` (`syntax.proto`, `checked.proto`); no Python package carries
their classes alone, so those parts that are needed are described here. Wherever something is of one kind or another,
the key that is there says which: `call_expr`, `ident_expr`, `const_expr` and so on.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import Message

from opsdk.testing.apiserver._fields import Tree

__all__ = ["call", "children", "constant_text", "encode_parsed", "parse_checked", "parse_parsed", "walk"]

_PACKAGE: Final = "opsdk.cel.syntax"
_ENVELOPE: Final = "type.googleapis.com/cel.expr."
_SCALARS: Final = {
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "double": FieldDescriptorProto.TYPE_DOUBLE,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "string": FieldDescriptorProto.TYPE_STRING,
    "uint64": FieldDescriptorProto.TYPE_UINT64,
}
# message: field: number and type; a type in brackets is repeated, one in braces is the value of a map by number.
_MESSAGES: Final[dict[str, dict[str, tuple[int, str]]]] = {
    "Any": {"type_url": (1, "string"), "value": (2, "bytes")},
    "Constant": {
        "null_value": (1, "int64"),
        "bool_value": (2, "bool"),
        "int64_value": (3, "int64"),
        "uint64_value": (4, "uint64"),
        "double_value": (5, "double"),
        "string_value": (6, "string"),
        "bytes_value": (7, "bytes"),
    },
    "Ident": {"name": (1, "string")},
    "Select": {"operand": (1, "Expr"), "field": (2, "string"), "test_only": (3, "bool")},
    "Call": {"target": (1, "Expr"), "function": (2, "string"), "args": (3, "[Expr]")},
    "List": {"elements": (1, "[Expr]"), "optional_indices": (2, "[int64]")},
    "Entry": {
        "id": (1, "int64"),
        "field_key": (2, "string"),
        "map_key": (3, "Expr"),
        "value": (4, "Expr"),
        "optional_entry": (5, "bool"),
    },
    "Struct": {"message_name": (1, "string"), "entries": (2, "[Entry]")},
    "Comprehension": {
        "iter_var": (1, "string"),
        "iter_range": (2, "Expr"),
        "accu_var": (3, "string"),
        "accu_init": (4, "Expr"),
        "loop_condition": (5, "Expr"),
        "loop_step": (6, "Expr"),
        "result": (7, "Expr"),
        "iter_var2": (8, "string"),
    },
    "Expr": {
        "id": (2, "int64"),
        "const_expr": (3, "Constant"),
        "ident_expr": (4, "Ident"),
        "select_expr": (5, "Select"),
        "call_expr": (6, "Call"),
        "list_expr": (7, "List"),
        "struct_expr": (8, "Struct"),
        "comprehension_expr": (9, "Comprehension"),
    },
    "Reference": {"name": (1, "string"), "overload_id": (3, "[string]")},
    "ListType": {"elem_type": (1, "Type")},
    "MapType": {"key_type": (1, "Type"), "value_type": (2, "Type")},
    "AbstractType": {"name": (1, "string"), "parameter_types": (2, "[Type]")},
    "Type": {
        "dyn": (1, "bytes"),
        "null": (2, "int64"),
        "primitive": (3, "int64"),
        "wrapper": (4, "int64"),
        "well_known": (5, "int64"),
        "list_type": (6, "ListType"),
        "map_type": (7, "MapType"),
        "message_type": (9, "string"),
        "type_param": (10, "string"),
        "type": (11, "Type"),
        "abstract_type": (14, "AbstractType"),
    },
    "ParsedExpr": {"expr": (2, "Expr")},
    "CheckedExpr": {"reference_map": (2, "{Reference}"), "type_map": (3, "{Type}"), "expr": (4, "Expr")},
}


@cache
def _class_of(name: str) -> type[Message]:
    pool = _pool()
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    # proto2, so that what is set can be told from what is zero
    file = FileDescriptorProto(name="opsdk_cel_syntax.proto", package=_PACKAGE, syntax="proto2")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            repeated = kind[0] in "[{"
            bare = kind.strip("[]{}")
            added = message.field.add(name=field, number=number)
            added.label = added.LABEL_REPEATED if repeated else added.LABEL_OPTIONAL
            if bare in _SCALARS:
                added.type = _SCALARS[bare]
            else:
                added.type = added.TYPE_MESSAGE
                added.type_name = f".{_PACKAGE}.{bare}"
            if kind[0] == "{":
                _make_map(message, added, bare)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return pool


def _make_map(message: DescriptorProto, field: FieldDescriptorProto, value: str) -> None:
    name = "".join(part.capitalize() for part in field.name.split("_")) + "Entry"
    entry = message.nested_type.add(name=name)
    entry.options.map_entry = True
    key = entry.field.add(name="key", number=1)
    key.label, key.type = key.LABEL_OPTIONAL, key.TYPE_INT64
    below = entry.field.add(name="value", number=2, type_name=f".{_PACKAGE}.{value}")
    below.label, below.type = below.LABEL_OPTIONAL, below.TYPE_MESSAGE
    field.type_name = f".{_PACKAGE}.{message.name}.{name}"


def _decoded(kind: str, serialized: bytes) -> Tree:
    envelope: Any = _class_of("Any").FromString(serialized)
    found: Tree = json_format.MessageToDict(
        _class_of(kind).FromString(envelope.value), preserving_proto_field_name=True
    )
    return found


def parse_parsed(serialized: bytes) -> Tree:
    """The expression of what the library serializes without checking."""
    expr: Tree = _decoded("ParsedExpr", serialized)["expr"]
    return expr


def parse_checked(serialized: bytes) -> Tree:
    """`expr`, `reference_map` and `type_map` of what the library serializes after checking."""
    return {"reference_map": {}, "type_map": {}, **_decoded("CheckedExpr", serialized)}


def encode_parsed(expr: Tree) -> bytes:
    """What the library can deserialize."""
    parsed = json_format.ParseDict({"expr": expr}, _class_of("ParsedExpr")())
    envelope = json_format.ParseDict({"type_url": f"{_ENVELOPE}ParsedExpr"}, _class_of("Any")())
    setattr(envelope, "value", parsed.SerializeToString())  # noqa: B010 - a field that no stub knows
    return envelope.SerializeToString()


def children(expr: Tree) -> Iterator[Tree]:
    """The expressions directly below one."""
    if "select_expr" in expr:
        yield expr["select_expr"]["operand"]
    elif "call_expr" in expr:
        if "target" in expr["call_expr"]:
            yield expr["call_expr"]["target"]
        yield from expr["call_expr"].get("args", ())
    elif "list_expr" in expr:
        yield from expr["list_expr"].get("elements", ())
    elif "struct_expr" in expr:
        for entry in expr["struct_expr"].get("entries", ()):
            if "map_key" in entry:
                yield entry["map_key"]
            yield entry["value"]
    elif "comprehension_expr" in expr:
        for part in ("iter_range", "accu_init", "loop_condition", "loop_step", "result"):
            yield expr["comprehension_expr"][part]


def walk(expr: Tree) -> Iterator[Tree]:
    """An expression and all below it."""
    yield expr
    for below in children(expr):
        yield from walk(below)


def call(function: str, *args: Tree) -> Tree:
    """The call of a function that is no member."""
    return {"call_expr": {"function": function, "args": list(args)}}


def constant_text(expr: Tree) -> str | None:
    """The text that an expression is, where it is a literal."""
    found = expr.get("const_expr", {}).get("string_value")
    return found if isinstance(found, str) else None
