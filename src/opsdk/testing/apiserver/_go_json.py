"""Documents of built-in kinds as Go writes them: what is empty and marked `omitempty` is not there.

A kube-apiserver decodes into structs and encodes from them, so an empty string, `false`, `0`, an empty list or map
comes back only where the field is a pointer or always written. Fields that the structs do not know are left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final

from opsdk.testing.apiserver._json import Document, Value, as_list, as_object, as_text, decode
from opsdk.testing.apiserver._kinds import KindInfo

__all__ = ["go_types", "omit_empty", "type_name"]

_SCALARS: Final = frozenset("sibfy")


@cache
def go_types() -> Mapping[str, Document]:
    """The table of `protobuf.json`: types by name, fields by number."""
    raw = decode(files("opsdk.testing.apiserver").joinpath("protobuf.json").read_bytes())
    return {name: as_object(fields) for name, fields in as_object(raw).items()}


def type_name(group: str, version: str, kind: str) -> str:
    """A kind's name in the table."""
    return f"{group.partition('.')[0] or 'core'}.{version}.{kind}"


def omit_empty(info: KindInfo, document: Document) -> None:
    """Remove what Go would not write, in place; kinds that the table lacks stay as they are."""
    _omit(type_name(info.group, info.version, info.kind), document)


@cache
def _fields(name: str) -> Mapping[str, str]:
    """JSON names and types of a type's fields, those of inlined structs among them."""
    fields: dict[str, str] = {}
    for described in go_types().get(name, {}).values():
        json_name, code = (as_text(part) for part in as_list(described))
        if json_name:
            fields[json_name] = code
        else:
            fields.update(_fields(code))
    return fields


def _omit(name: str, document: Document) -> None:
    fields = _fields(name)
    for key in [
        key for key, value in document.items() if key in fields and not value and _droppable(fields[key], value)
    ]:
        del document[key]
    for key, value in document.items():
        if key in fields:
            _below(fields[key].lstrip("*!"), value)


def _droppable(code: str, value: Value) -> bool:
    if value is None or code.startswith(("*", "!")):
        return False
    return code in _SCALARS or code.startswith(("[]", "{}"))


def _below(code: str, value: Value) -> None:
    if code.startswith("[]"):
        for each in as_list(value):
            _below(code[2:].lstrip("*"), each)
    elif code.startswith("{}"):
        for each in as_object(value).values():
            _below(code[2:].lstrip("*"), each)
    elif isinstance(value, dict):
        _omit(code, value)
