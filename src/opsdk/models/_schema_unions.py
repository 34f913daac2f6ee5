"""Unions that have a structural schema: of scalars, and of models that a field tells apart."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, final

import msgspec

from opsdk.models._schema_rules import RULES, cel_literal, cel_name, guarded, with_rules
from opsdk.models._struct_schema import Schema

__all__ = ["Variant", "alternatives", "int_or_string", "limits_of_enum", "merge_variants"]

_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_EITHER: Final = [{"type": "integer"}, {"type": "string"}]
"""May stand at an int-or-string, without meaning more than that."""
_NOT_NESTED: Final = {"type", "default", "title", "description", "nullable", RULES}
"""Keywords that must not stand inside anyOf."""

_OF_NUMBERS: Final = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
_OF_TEXTS: Final = {"pattern", "minLength", "maxLength", "format"}
_VALIDATIONS: Final = {*_OF_NUMBERS, *_OF_TEXTS, "enum", "anyOf", "minItems", "maxItems", "minProperties"}
_SCALARS: Final = {"string", "integer", "number", "boolean"}


def alternatives(given: Sequence[Schema], kind: str) -> Schema:
    """One type with alternative limits, for a union of scalars of one type."""
    limits = [{key: value for key, value in each.items() if key not in _NOT_NESTED} for each in given]
    for each in limits:
        if each.get("format") in {"int64", "int32"}:
            del each["format"]
    out: Schema = {"type": kind}
    if all(limits):
        enums = [each["enum"] for each in limits if set(each) == {"enum"}]
        if len(enums) == len(limits):
            return {**out, "enum": list(dict.fromkeys(value for enum in enums for value in enum))}
        out["anyOf"] = limits
    return out


def int_or_string(given: Sequence[Schema]) -> Schema:
    """Whole numbers or texts, each with its own limits: keywords for the one do not touch the other.

    Raises:
        ValueError: There is more than one alternative of a type.
    """
    out: Schema = {_INT_OR_STRING: True}
    numbers = [each for each in given if each.get("type") == "integer"]
    texts = [each for each in given if each.get("type") == "string"]
    if len(numbers) > 1 or len(texts) > 1:
        raise ValueError("several alternatives of one type")
    number, text = numbers[0], texts[0]
    out |= {key: value for key, value in number.items() if key in _OF_NUMBERS}
    out |= {key: value for key, value in text.items() if key in _OF_TEXTS}
    if "enum" in number and "enum" in text:
        out["enum"] = [*number["enum"], *text["enum"]]
    elif "enum" in text:
        out |= limits_of_enum(text["enum"])
    choices = [limits_of_enum(number["enum"])["anyOf"]] if "enum" in number and "enum" not in out else []
    choices += [each["anyOf"] for each in (number, text) if "anyOf" in each]
    if choices:
        out["allOf"] = [{"anyOf": _EITHER}, *({"anyOf": choice} for choice in choices)]
    elif "pattern" in out:
        out["anyOf"] = _EITHER
    return out


def limits_of_enum(values: Sequence[object]) -> Schema:
    """What an enum of texts or of whole numbers says, in keywords that leave values of other types alone, and null."""
    if all(isinstance(value, str) for value in values):
        return {"pattern": f"^({'|'.join(_escaped(str(value)) for value in values)})$"}
    if any(isinstance(value, bool) for value in values):  # both would be no limit
        return {"not": {"enum": [each for each in (True, False) if each not in values]}} if len(values) == 1 else {}
    return {"anyOf": [{"minimum": value, "maximum": value} for value in values]}


def _escaped(text: str) -> str:
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", text)


@final
class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """One model of a discriminated union.

    Args:
        tags: The values of the discriminator that mean it.
        schema: Its schema.
    """

    tags: Sequence[object]
    schema: Schema

    def members(self, key: str) -> dict[str, Schema]:
        """Its fields but the discriminator, without defaults: the server would fill them in for every variant."""
        properties: dict[str, Schema] = self.schema.get("properties", {})
        return {
            name: {keyword: value for keyword, value in below.items() if keyword != "default"}
            for name, below in properties.items()
            if name != key
        }

    def required(self, key: str) -> list[str]:
        """Its required fields but the discriminator."""
        return [name for name in self.schema.get("required", ()) if name != key]


def merge_variants(key: str, variants: Sequence[Variant], fail: Callable[[str], Exception]) -> Schema:
    """One object in which all but the discriminator is optional; rules say which variant has which fields.

    Args:
        key: The discriminator.
        variants: The models.
        fail: Makes the error for a text.
    """
    properties: dict[str, Schema] = {}
    own_limits: list[dict[str, Schema]] = [{} for _ in variants]
    for name in dict.fromkeys(name for variant in variants for name in variant.members(key)):
        found = [variant.members(key).get(name) for variant in variants]
        properties[name], limits = _common(name, [each for each in found if each is not None], fail)
        there = iter(limits)
        for own, each in zip(own_limits, found, strict=True):
            if each is not None and (limit := next(there)):
                own[name] = limit
    member = f"self.{cel_name(key)}"
    out: Schema = {"properties": properties, "required": [key]}
    for variant in variants:
        other = " && ".join(f"{member} != {cel_literal(tag)}" for tag in variant.tags)
        text = ", ".join(str(tag) for tag in variant.tags)
        needed, known = variant.required(key), variant.members(key)
        with_rules(
            out,
            *(
                {"rule": f"{other} || has(self.{cel_name(name)})", "message": f"{name} is required with {key} {text}"}
                for name in needed
            ),
            *(
                {
                    "rule": f"{other} || !has(self.{cel_name(name)})",
                    "message": f"{name} makes no sense with {key} {text}",
                }
                for name in sorted(set(properties) - set(known))
            ),
            *(guarded(rule, other) for rule in variant.schema.get(RULES, ())),
        )
    if any(own_limits):
        out["anyOf"] = [
            {"properties": {key: {"enum": list(variant.tags)}, **own}}
            for variant, own in zip(variants, own_limits, strict=True)
        ]
    return out


def _common(name: str, found: Sequence[Schema], fail: Callable[[str], Exception]) -> tuple[Schema, list[Schema]]:
    """What the variants say alike about a field, and what each says beyond that."""
    described = {str(each.get("description", "")) for each in found}
    plain = [
        {key: value for key, value in each.items() if key != "description" or len(described) == 1} for each in found
    ]
    if all(each == plain[0] for each in plain):
        return plain[0], [{} for _ in plain]
    differing = {key for key in _keys(plain) if any(each.get(key) != plain[0].get(key) for each in plain)}
    if not differing <= _VALIDATIONS or plain[0].get("type") not in _SCALARS:
        raise fail(f"{name!r} differs between the variants; rename it in one of them")
    pairs = ({"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"})
    for pair in pairs:
        if differing & pair:
            differing |= pair
    common = {key: value for key, value in plain[0].items() if key not in differing}
    return common, [{key: value for key, value in each.items() if key in differing} for each in plain]


def _keys(schemas: Iterable[Schema]) -> list[str]:
    return list(dict.fromkeys(key for schema in schemas for key in schema))
