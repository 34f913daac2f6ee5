"""msgspec structs to and from the wire, with the care that Kubernetes' times and quantities need.

msgspec writes a datetime as it is: with a fraction where there is one, with whatever offset it has, and without any
when it is naive. Kubernetes wants seconds for a Time, six digits for a MicroTime, and Z. Both are `datetime` at run
time; only the annotation of the field tells them apart. So each struct class gets a plan, once: which of its fields
lead to times.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, cast, final, get_args, get_origin

import msgspec

from opsdk.models._times import micro_time_text, time_text

__all__ = ["StructField", "encode_struct", "struct_fields", "struct_from_wire", "struct_to_wire"]

S = TypeVar("S")
Wire: TypeAlias = "dict[str, Any]"

_MICRO = re.compile(r"\bMicroTime\b")
_QUANTITY = re.compile(r"\bQuantity\b")


@final
class StructField(msgspec.Struct, frozen=True, kw_only=True):
    """One field of a struct, and what its annotation says beyond its run-time type."""

    name: str
    wire: str
    type: object
    micro: bool
    quantity: bool
    required: bool


def struct_fields(cls: type[msgspec.Struct]) -> list[StructField]:
    """The fields of a struct class, in order, with resolved types."""
    annotations: dict[str, object] = {}
    for base in reversed(cls.__mro__):
        annotations.update(inspect.get_annotations(base))
    found: list[StructField] = []
    for field in msgspec.structs.fields(cls):
        text = str(annotations.get(field.name, ""))
        found.append(
            StructField(
                name=field.name,
                wire=field.encode_name,
                type=field.type,
                micro=_MICRO.search(text) is not None,
                quantity=_QUANTITY.search(text) is not None,
                required=field.required,
            )
        )
    return found


def without_none(tp: object) -> list[object]:
    """The alternatives of a type, None left out, annotations taken off."""
    while get_origin(tp) is Annotated:
        tp = get_args(tp)[0]
    origin = get_origin(tp)
    if origin is typing.Union or origin is types.UnionType:
        return [inner for arg in get_args(tp) if arg is not type(None) for inner in without_none(arg)]
    return [tp]


_Leaf: TypeAlias = Literal["time", "micro", "quantity"]
_Wanted: TypeAlias = Literal["times", "quantities"]


@final
class _Struct:
    """The fields of a struct class that lead somewhere."""

    __slots__ = ("complete", "fields")

    def __init__(self) -> None:
        self.fields: list[tuple[str, str, _Node]] = []
        self.complete = False


@final
class _Items(msgspec.Struct, frozen=True):
    node: _Node


@final
class _Values(msgspec.Struct, frozen=True):
    node: _Node


_Node: TypeAlias = "_Struct | _Items | _Values | _Leaf"

_plans: dict[tuple[type[msgspec.Struct], _Wanted], _Struct] = {}


def _plan(cls: type[msgspec.Struct], wanted: _Wanted) -> _Struct:
    """Which fields of a struct class lead to times, or to quantities. Made once for each class."""
    known = _plans.get((cls, wanted))
    if known is not None:
        return known
    plan = _Struct()
    _plans[cls, wanted] = plan  # before its fields, so that a recursive struct finds itself
    for field in struct_fields(cls):
        node = _node(field.type, field, wanted)
        if node is not None:
            plan.fields.append((field.name, field.wire, node))
    plan.complete = True
    return plan


def _node(tp: object, field: StructField, wanted: _Wanted) -> _Node | None:
    return next((node for one in without_none(tp) if (node := _node_of(one, field, wanted)) is not None), None)


def _node_of(tp: object, field: StructField, wanted: _Wanted) -> _Node | None:
    if wanted == "times" and tp is datetime:
        return "micro" if field.micro else "time"
    if wanted == "quantities" and tp is str and field.quantity:
        return "quantity"
    origin, args = get_origin(tp), get_args(tp)
    if origin is list and args:
        inner = _node(args[0], field, wanted)
        return None if inner is None else _Items(inner)
    if origin is dict and args:
        inner = _node(args[1], field, wanted)
        return None if inner is None else _Values(inner)
    if isinstance(tp, type) and issubclass(tp, msgspec.Struct):
        plan = _plan(tp, wanted)
        return None if plan.complete and not plan.fields else plan
    return None


def _is_written_right(value: object, node: _Node) -> bool:
    """Whether msgspec writes every time below `value` as Kubernetes does."""
    if type(node) is _Struct:  # as most are: each object that is written comes through here, several times
        for name, _, inner in node.fields:
            member = getattr(value, name, None)
            if member is not None and not _is_written_right(member, inner):
                return False
        return True
    if node == "time":
        return isinstance(value, datetime) and value.tzinfo is UTC and not value.microsecond
    match node:
        case _Items():
            return all(item is None or _is_written_right(item, node.node) for item in cast("list[object]", value))
        case _Values():
            items = cast("dict[str, object]", value).values()
            return all(item is None or _is_written_right(item, node.node) for item in items)
        case "micro":
            return isinstance(value, datetime) and value.tzinfo is UTC and value.microsecond != 0
        case _:
            return True


def _rewrite(document: object, node: _Node, where: str) -> object:
    match node:
        case "time" | "micro":
            if isinstance(document, datetime):
                try:
                    return time_text(document) if node == "time" else micro_time_text(document)
                except ValueError as error:
                    raise ValueError(f"{where.lstrip('.')}: {error}") from error
        case "quantity":
            pass
        case _Items():
            if isinstance(document, list):
                items = cast("list[object]", document)
                return [_rewrite(item, node.node, f"{where}[{index}]") for index, item in enumerate(items)]
        case _Values():
            if isinstance(document, dict):
                values = cast("dict[str, object]", document)
                return {key: _rewrite(item, node.node, f"{where}.{key}") for key, item in values.items()}
        case _Struct():
            if isinstance(document, dict):
                members = cast("dict[str, object]", document)
                for _, wire, inner in node.fields:
                    member = members.get(wire)
                    if member is not None:
                        members[wire] = _rewrite(member, inner, f"{where}.{wire}")
                return members
    return document


_TIMES = (datetime,)


def struct_to_wire(obj: msgspec.Struct) -> Wire:
    """The struct as JSON values, times spelled as Kubernetes spells them.

    Raises:
        ValueError: A time is naive; the text names the field.
    """
    plan = _plan(type(obj), "times")
    if _is_written_right(obj, plan):
        return cast("Wire", msgspec.to_builtins(obj))
    document: Wire = msgspec.to_builtins(obj, builtin_types=_TIMES)
    _rewrite(document, plan, "")
    return document


_encoder = msgspec.json.Encoder()


def encode_struct(obj: msgspec.Struct) -> bytes:
    """The struct as JSON. Most objects have nothing to rewrite, and those go straight through msgspec.

    Raises:
        ValueError: A time is naive; the text names the field.
    """
    if _is_written_right(obj, _plan(type(obj), "times")):
        return _encoder.encode(obj)
    return _encoder.encode(struct_to_wire(obj))


def _quantities_as_text(document: object, node: _Node) -> object:
    """Numbers where a quantity is expected, as text: the API takes both, lightkube's structs only text."""
    match node:
        case "quantity":
            if isinstance(document, int | float) and not isinstance(document, bool):
                return str(document)
        case "time" | "micro":
            pass
        case _Items():
            if isinstance(document, list):
                return [_quantities_as_text(item, node.node) for item in cast("list[object]", document)]
        case _Values():
            if isinstance(document, dict):
                values = cast("dict[str, object]", document)
                return {key: _quantities_as_text(item, node.node) for key, item in values.items()}
        case _Struct():
            if isinstance(document, dict):
                members = dict(cast("dict[str, object]", document))
                for _, wire, inner in node.fields:
                    if wire in members:
                        members[wire] = _quantities_as_text(members[wire], inner)
                return members
    return document


def struct_from_wire(document: object, cls: type[S]) -> S:
    """The struct of a JSON value.

    Raises:
        ValueError: It does not fit; the text ends in the place (`at $.spec.replicas`).
    """
    try:
        return msgspec.convert(document, cls)
    except msgspec.ValidationError:
        if not issubclass(cls, msgspec.Struct):
            raise
        return msgspec.convert(_quantities_as_text(document, _plan(cls, "quantities")), cls)
