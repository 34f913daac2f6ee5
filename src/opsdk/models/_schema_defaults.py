"""Defaults, as short as they can be said: what the server fills in by itself is left out."""

from __future__ import annotations

from typing import Final, cast

from opsdk.models._struct_schema import Schema

__all__ = ["OWN_DEFAULT", "shorten"]

OWN_DEFAULT: Final = "x-opsdk-default"
"""A note among ourselves: what a field defaults to where the schema does not say so, an empty list or map."""

_MISSING: Final = object()


def shorten(value: object, schema: Schema) -> object:
    """A default without nulls that the server would refuse, and without what the defaults below it say."""
    if isinstance(value, list):
        items: Schema = schema.get("items", {})
        return [shorten(item, items) for item in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    members = cast("dict[str, object]", value)
    properties: dict[str, Schema] = schema.get("properties", {})
    required: list[str] = schema.get("required", [])
    additional: object = schema.get("additionalProperties")
    others: Schema = cast("Schema", additional) if isinstance(additional, dict) else {}
    out: dict[str, object] = {}
    for name, member in members.items():
        below = properties.get(name, others)
        if member is None and not below.get("nullable"):
            continue
        short = shorten(member, below)
        if name not in required and name in properties and _is_given(short, below):
            continue
        out[name] = short
    return out


def _is_given(value: object, schema: Schema) -> bool:
    default: object = schema.get("default", schema.get(OWN_DEFAULT, _MISSING))
    return type(value) is type(default) and value == default
