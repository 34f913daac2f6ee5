"""Unions of models in a schema: which fields go with which value of the field that tells the variants apart."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, cast, final

from opsdk.testing.campaigns._schema import object_at, objects_at, texts_at
from opsdk.types import Json, JsonObject

__all__ = ["Union", "Variant", "union_in"]

_RULES: Final = "x-kubernetes-validations"
_OTHER: Final = r'self\.(\w+) != ("(?:[^"\\]|\\.)*"|-?[0-9]+|true|false)'
_RULE: Final = re.compile(rf"({_OTHER}(?: && {_OTHER})*) \|\| (!?)has\(self\.(\w+)\)")
"""What a CRD of our models says of a variant: `self.type != "disk" || has(self.path)`."""
_ESCAPES: Final = {"__dot__": ".", "__dash__": "-", "__slash__": "/", "__underscores__": "__"}
"""What stands in CEL for what a name there must not have; a keyword has two underscores on each side."""


@final
@dataclass(slots=True, kw_only=True)
class Variant:
    """One model of a union: what its object has to have, and what it must not have."""

    required: set[str] = field(default_factory=set[str])
    forbidden: set[str] = field(default_factory=set[str])


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Union:
    """A union of models, told apart by a field.

    Args:
        key: The field.
        variants: What each of its values means, by the value as JSON.
        rest: The schema of the object without the field, and without the rules that are understood.
    """

    key: str
    variants: Mapping[str, Variant]
    rest: JsonObject

    def schema_for(self, tag: Json) -> JsonObject:
        """The schema of the other fields, for one value of the field."""
        variant = self.variants.get(json.dumps(tag), Variant())
        properties = object_at(self.rest, "properties")
        required = [name for name in properties if name in {*texts_at(self.rest, "required"), *variant.required}]
        found: dict[str, Json] = {
            **self.rest,
            "properties": {name: one for name, one in properties.items() if name not in variant.forbidden},
            "required": [name for name in required if name not in variant.forbidden],
        }
        branches = [
            _without(branch, self.key) for branch in objects_at(self.rest, "anyOf") if self._is_for(branch, tag)
        ]
        return {**found, "anyOf": branches} if "anyOf" in found else found

    def _is_for(self, branch: JsonObject, tag: Json) -> bool:
        """Whether a branch of `anyOf` is about this value, or about all."""
        tags = object_at(object_at(branch, "properties"), self.key).get("enum")
        return not isinstance(tags, list | tuple) or tag in tags


def union_in(schema: JsonObject) -> Union | None:
    """The first union that the rules of an object tell of; None when there is none."""
    known = object_at(schema, "properties")
    key, variants, rules = "", dict[str, Variant](), list[Json]()
    for rule in objects_at(schema, _RULES):
        match = _RULE.fullmatch(str(rule.get("rule")))
        others = cast("list[tuple[str, str]]", re.findall(_OTHER, match[1])) if match is not None else []
        fields = {_field(name) for name, _ in others}
        member = _field(match[7]) if match is not None else ""
        if match is None or len(fields) != 1 or not {*fields, member} <= set(known) or key not in {"", *fields}:
            rules.append(rule)
            continue
        key = fields.pop()
        for _, tag in others:
            variant = variants.setdefault(json.dumps(json.loads(tag)), Variant())
            (variant.forbidden if match[6] else variant.required).add(member)
    if not variants:
        return None
    return Union(key=key, variants=variants, rest={**_without(schema, key), _RULES: rules})


def _without(schema: JsonObject, key: str) -> JsonObject:
    """The schema of an object, without one of its fields."""
    properties = {name: one for name, one in object_at(schema, "properties").items() if name != key}
    required: list[Json] = [name for name in texts_at(schema, "required") if name != key]
    return {**schema, "properties": properties, "required": required}


def _field(name: str) -> str:
    """A field's name, from how CEL spells it."""
    keyword = re.fullmatch(r"__([a-z]+)__", name)
    if keyword is not None and name not in _ESCAPES:
        return keyword[1]
    return re.sub("|".join(_ESCAPES), lambda found: _ESCAPES[found[0]], name)
