"""JSON values as the server handles them: decoded afresh for each write, so that they may be changed in place."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from opsdk.types import Json

__all__ = ["Document", "Value", "as_list", "as_object", "as_text", "clone", "decode", "dig", "encode", "frozen"]

Value: TypeAlias = "bool | int | float | str | list[Value] | dict[str, Value] | None"
"""Any JSON value, mutable."""

Document: TypeAlias = "dict[str, Value]"
"""A JSON object, mutable."""

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()


def decode(raw: bytes) -> Value:
    """Parse JSON.

    Raises:
        ValueError: It is not JSON.
    """
    value: Value = _decoder.decode(raw)
    return value


def encode(value: Value | Json) -> bytes:
    """Write compact JSON."""
    return _encoder.encode(value)


def clone(value: Json) -> Value:
    """A mutable copy of a read-only value (also: a deep copy)."""
    return decode(encode(value))


def frozen(value: Value) -> Json:
    """The same value, seen as read-only."""
    return value


def as_object(value: Value) -> Document:
    """The value if it is an object, else an empty one (which is not connected to anything)."""
    return value if isinstance(value, dict) else {}


def as_list(value: Value) -> list[Value]:
    """The value if it is a list, else an empty one (which is not connected to anything)."""
    return value if isinstance(value, list) else []


def as_text(value: Value) -> str:
    """The value if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def dig(value: Value, *path: str) -> Value:
    """The value below `path`, None where the path ends early."""
    for part in path:
        if not isinstance(value, dict):
            return None
        value = value.get(part)
    return value
