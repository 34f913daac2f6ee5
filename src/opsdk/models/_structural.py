"""From pydantic's JSON schema to what Kubernetes calls a structural schema.

Structural means: each value has one type, no references, no alternatives of shape, and what a rule says is not what
the shape says. Everything that pydantic can say and Kubernetes cannot is either rewritten here or refused, with the
field's name and a way out.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast, final

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import PydanticSerializationError, core_schema, to_jsonable_python

from opsdk.errors import CrdSchemaError
from opsdk.models._struct_schema import Schema

__all__ = ["structural_schema"]

_KEPT = {
    "description", "enum", "format", "maxItems", "maxLength", "maxProperties", "maximum", "minItems", "minLength",
    "minProperties", "minimum", "multipleOf", "nullable", "pattern",
}  # fmt: skip
_FORMATS = {
    "byte", "cidr", "date", "date-time", "double", "email", "float", "hostname", "int32", "int64", "ipv4", "ipv6",
    "mac", "password", "uri", "uuid", "uuid3", "uuid4", "uuid5",
}  # fmt: skip
"""Formats that the API server knows and that mean there what they mean to pydantic; others are left out."""
_NOT_IN_RE2 = re.compile(r"\(\?(?:=|!|<=|<!|P=|>)|\\Z|\\[1-9]")
_TYPES: Mapping[type, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}
_OPEN = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING = "x-kubernetes-int-or-string"
_RULES = "x-kubernetes-validations"
_INVALID = "x-opsdk-invalid"
_MISSING: Any = object()
_EMPTY: Mapping[type, object] = {list: [], dict: {}}


@final
class _Generator(GenerateJsonSchema):
    """Pydantic's generator, with what default factories make, and with faults left for the walk, which knows where."""

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> JsonSchemaValue:
        return {_INVALID: error_info}

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        out = super().default_schema(schema)
        factory = schema.get("default_factory")
        if factory is not None and not schema.get("default_factory_takes_data") and "default" not in out:
            value: object = cast("Any", factory)()
            try:
                default: Any = to_jsonable_python(value, by_alias=True, exclude_none=True)
            except PydanticSerializationError:
                return out
            return {**out, "default": default}
        return out


@final
@dataclass(frozen=True, slots=True)
class _At:
    """Where in the model the walk is: the model's class and field for people, the wire path for the document."""

    model: str
    path: str
    reported: bool = False

    def down(self, step: str) -> _At:
        return _At(self.model, f"{self.path}{step}", self.reported)

    def into(self, model: str) -> _At:
        return _At(model, self.path, self.reported)

    def in_status(self) -> _At:
        return _At(self.model, self.path, reported=True)

    def error(self, text: str) -> CrdSchemaError:
        return CrdSchemaError(f"{self.model}: {self.path.lstrip('.') or 'the model'}: {text}")


def structural_schema(model: type[BaseModel], *, status: str | None = None) -> Schema:
    """The structural schema of a model.

    Args:
        model: The model.
        status: The wire name of the root field that holds status: nothing in it gets a default, because the server
            would write it into every object.

    Raises:
        CrdSchemaError: Something in the model has none; the text names the field and the way out.
    """
    schema = model.model_json_schema(by_alias=True, schema_generator=_Generator, mode="validation")
    definitions: dict[str, Schema] = schema.pop("$defs", {})
    return _Walk(definitions, status).schema(schema, _At(model.__qualname__, ""), ())


@final
class _Walk:
    def __init__(self, definitions: dict[str, Schema], status: str | None) -> None:
        self._definitions = definitions
        self._status = status

    def schema(self, given: Schema, at: _At, within: tuple[str, ...]) -> Schema:
        s = dict(given)
        if "$ref" in s:
            return self._reference(s, at, within)
        if len(s.get("allOf", ())) == 1:
            inner = s.pop("allOf")[0]
            return self.schema({**inner, **s}, at, within)
        if _INVALID in s:
            if s.get(_OPEN) is True:
                return self._open(s, at)
            raise at.error(
                f"its type has no JSON schema ({s[_INVALID]}); say one with WithJsonSchema(...), or annotate the field "
                "with PreserveUnknown()"
            )
        if s.get(_INT_OR_STRING):
            return self._int_or_string(s, s.get("pattern"), at)
        for key in ("anyOf", "oneOf"):
            if key in s:
                return self._union(s.pop(key), s, at, within)
        if s.get(_OPEN) is True and not self._is_closed(s):
            return self._open(s, at)
        if "const" in s:
            s["enum"] = [s.pop("const")]
        kind = s.get("type")
        if kind is None and "enum" in s:
            kind = self._type_of_enum(s["enum"], at)
        if kind is None:
            return {**self._common(s, at), _OPEN: True}
        if kind == "null":
            raise at.error("None is the only value; leave the field out")
        if not isinstance(kind, str):
            raise at.error(f"several types at once ({kind}); use one, IntOrString, or PreserveUnknown() on Any")
        out = {**self._common(s, at), "type": kind}
        if kind == "integer":
            out.setdefault("format", "int64")
        elif kind == "array":
            self._array(out, s, at, within)
        elif kind == "object":
            self._object(out, s, at, within)
        return out

    @staticmethod
    def _is_closed(s: Schema) -> bool:
        return bool(s.get("properties")) or isinstance(s.get("additionalProperties"), dict)

    def _open(self, s: Schema, at: _At) -> Schema:
        """What the author asked to be kept as it comes."""
        out = self._common(s, at)
        out[_OPEN] = True
        if isinstance(s.get("type"), str) and s["type"] == "object":
            out["type"] = "object"
        return out

    def _reference(self, s: Schema, at: _At, within: tuple[str, ...]) -> Schema:
        name = str(s.pop("$ref")).rsplit("/", 1)[1]
        if name in within:
            if s.get(_OPEN) is True:
                return {**self._open(s, at), "type": "object"}
            raise at.error(
                f"{name} contains itself, and a CRD schema cannot; annotate the field with PreserveUnknown(), "
                "and the server keeps what is in it unchecked"
            )
        target = self._definitions[name]
        rules = [*target.get(_RULES, ()), *s.get(_RULES, ())]
        merged = {**target, **s}
        if rules:
            merged[_RULES] = rules
        try:
            return self.schema(merged, at.into(str(target.get("title", name))), (*within, name))
        except CrdSchemaError:
            if s.get(_OPEN) is True:
                return {**self._open(s, at), "type": "object"}
            raise

    # unions

    def _union(self, alternatives: list[Schema], s: Schema, at: _At, within: tuple[str, ...]) -> Schema:
        given = [a for a in alternatives if a.get("type") != "null"]
        if len(given) != len(alternatives) and "default" not in s:
            raise at.error(
                "required, yet it may be None, and None is not sent; give it the default None, or another type"
            )
        if s.get("default") is None:
            s.pop("default", None)
        if len(given) == 1:
            return self.schema({**given[0], **s}, at, within)
        if s.get(_OPEN) is True:
            return self._open(s, at)
        given = [self._resolved(a) for a in given]
        types = {str(a.get("type", "object" if "$ref" in a else "any")) for a in given}
        if "discriminator" in s:
            return self._discriminated(given, s, at, within)
        if types == {"integer", "string"}:
            return self._int_or_string(s, next((a["pattern"] for a in given if "pattern" in a), None), at)
        if types == {"number", "string"}:  # Decimal: sent as text
            text = next(a for a in given if a.get("type") == "string")
            pattern = str(text.get("pattern", ""))
            kept = {k: v for k, v in text.items() if k != "pattern" or not _NOT_IN_RE2.search(pattern)}
            return self.schema({**kept, **s}, at, within)
        if types == {"integer", "number"}:
            return self.schema({"type": "number", **s}, at, within)
        if all("const" in a or "enum" in a for a in given):
            values = [value for a in given for value in a.get("enum", [a.get("const")])]
            return self.schema({"enum": list(dict.fromkeys(values)), **s}, at, within)
        raise at.error(
            f"a union of {', '.join(sorted(types))} has no structural schema; give the models a discriminator "
            "(Field(discriminator=...)), or annotate the field with PreserveUnknown()"
        )

    def _resolved(self, s: Schema) -> Schema:
        """An enum or another scalar in place of a reference to it."""
        target = self._definitions[str(s["$ref"]).rsplit("/", 1)[1]] if "$ref" in s else s
        return s if "properties" in target else target

    def _int_or_string(self, s: Schema, pattern: str | None, at: _At) -> Schema:
        out = self._common({k: v for k, v in s.items() if k != "pattern"}, at)
        out[_INT_OR_STRING] = True
        if pattern is not None:
            out |= {"anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": pattern}
        return out

    def _discriminated(self, given: list[Schema], s: Schema, at: _At, within: tuple[str, ...]) -> Schema:
        """One object with everything optional but the discriminator; rules say which variant wants what."""
        key = str(s.pop("discriminator")["propertyName"])
        properties: dict[str, Schema] = {}
        values: list[object] = []
        variants: list[tuple[list[object], set[str], list[str]]] = []
        for alternative in given:
            variant = self.schema(alternative, at, within)
            own: dict[str, Schema] = variant.get("properties", {})
            tags: list[object] = own[key].get("enum", [])
            if not tags:
                raise at.error(f"the discriminator {key!r} must be a Literal in each variant")
            values += tags
            variants.append((tags, set(own), [name for name in variant.get("required", ()) if name != key]))
            for name, schema in own.items():
                plain = {k: v for k, v in schema.items() if k != "default"}
                if name == key:
                    continue
                if properties.setdefault(name, plain) != plain:
                    raise at.error(f"{name!r} differs between the variants; rename it in one of them")
        member = cel_name(key)
        rules: list[Schema] = []
        for tags, own_names, required in variants:
            other = " && ".join(f"self.{member} != {_cel_literal(tag)}" for tag in tags)
            text = ", ".join(str(tag) for tag in tags)
            rules += [
                {
                    "rule": f"{other} || has(self.{cel_name(name)})",
                    "message": f"{name} is required with {key} {text}",
                }
                for name in required
            ]
            rules += [
                {
                    "rule": f"{other} || !has(self.{cel_name(name)})",
                    "message": f"{name} makes no sense with {key} {text}",
                }
                for name in sorted(set(properties) - own_names)
            ]
        out = self._common(s, at)
        out["type"] = "object"
        tag_schema: Schema = {"type": self._type_of_enum(values, at), "enum": list(dict.fromkeys(values))}
        out["properties"] = {key: tag_schema, **properties}
        out["required"] = [key]
        if rules:
            out[_RULES] = [*out.get(_RULES, ()), *rules]
        return out

    # shapes

    def _array(self, out: Schema, s: Schema, at: _At, within: tuple[str, ...]) -> None:
        if "prefixItems" in s:
            items = [self.schema(item, at.down(f"[{index}]"), within) for index, item in enumerate(s["prefixItems"])]
            if any(item != items[0] for item in items):
                raise at.error("a tuple of different types has no structural schema; use a model with named fields")
            out["items"] = items[0]
        else:
            out["items"] = self.schema(s.get("items", {}), at.down("[]"), within)
        out["items"].pop("default", None)
        if s.get("uniqueItems"):
            out.setdefault("x-kubernetes-list-type", "set")
        kind = out.get("x-kubernetes-list-type")
        if kind == "set" and out["items"].get("type") in {"object", "array"}:
            raise at.error("a set of objects or lists is not possible; use a list with ListMap(...) or ListAtomic()")
        if kind == "map":
            item: Schema = out["items"]
            for key in out["x-kubernetes-list-map-keys"]:
                member = item.get("properties", {}).get(key)
                if member is None:
                    raise at.error(f"the list-map key {key!r} is no field of its items (use the name on the wire)")
                if key not in item.get("required", ()) and "default" not in member:
                    raise at.error(f"the list-map key {key!r} must be required, or have a default that is not None")

    def _object(self, out: Schema, s: Schema, at: _At, within: tuple[str, ...]) -> None:
        properties: dict[str, Schema] | None = s.get("properties")
        additional: object = s.get("additionalProperties")
        patterns: dict[str, Schema] = s.get("patternProperties", {})
        if properties:
            out["properties"] = {}
            for name, schema in properties.items():
                inner = at.down(f".{name}")
                if at.path == "" and name == self._status:
                    inner = inner.in_status()
                out["properties"][name] = self.schema(schema, inner, within)
            required = [name for name in s.get("required", ()) if "default" not in out["properties"][name]]
            if required:
                out["required"] = required
            if isinstance(additional, dict):
                raise at.error("named fields together with typed extra fields; put the extra ones into a dict field")
            self._shorten_default(out)
        elif isinstance(additional, dict) and additional:
            out["additionalProperties"] = self.schema(cast("Schema", additional), at.down(".*"), within)
            out["additionalProperties"].pop("default", None)
        elif len(patterns) == 1:
            ((pattern, schema),) = patterns.items()
            self._pattern_keys(out, pattern, schema, at, within)
        elif patterns:
            raise at.error("keys of several patterns have no structural schema; use one pattern")
        elif properties is None:
            out[_OPEN] = True

    def _pattern_keys(self, out: Schema, pattern: str, schema: Schema, at: _At, within: tuple[str, ...]) -> None:
        self._check_pattern(pattern, at)
        out["additionalProperties"] = self.schema(schema, at.down(".*"), within)
        if "maxProperties" not in out:
            raise at.error(
                "a pattern for keys becomes a CEL rule, and the server refuses rules without a limit; "
                "add Field(max_length=...) to the dict"
            )
        rule = {
            "rule": f"self.all(key, key.matches({_cel_literal(pattern)}))",
            "message": f"keys must match {pattern}",
        }
        out[_RULES] = [*out.get(_RULES, ()), rule]

    @staticmethod
    def _shorten_default(out: Schema) -> None:
        """What the children default to need not be said twice; `{}` is enough for the server to fill them in."""
        default: object = out.get("default")
        if isinstance(default, dict):
            members = cast("dict[str, object]", default)
            properties: dict[str, Schema] = out["properties"]
            out["default"] = {
                name: value
                for name, value in members.items()
                if value is not None
                and value != properties.get(name, {}).get("default", _EMPTY.get(type(value), _MISSING))
            }

    # keywords

    def _common(self, s: Schema, at: _At) -> Schema:
        out: Schema = {}
        for key, value in s.items():
            if key == "default":
                if value is not None and not at.reported and (value not in ([], {}) or "properties" in s):
                    out[key] = value
            elif key == "exclusiveMinimum":
                out["minimum"], out["exclusiveMinimum"] = value, True
            elif key == "exclusiveMaximum":
                out["maximum"], out["exclusiveMaximum"] = value, True
            elif key == "description":
                out[key] = inspect.cleandoc(value)
            elif key == "format":
                if value in _FORMATS:
                    out[key] = value
            elif key == "pattern":
                self._check_pattern(value, at)
                out[key] = value
            elif key in _KEPT or key.startswith("x-kubernetes-"):
                out[key] = value
        if out.get("nullable") and "enum" in out:
            # The server never finds null in an enum, whatever the enum says; a rule is not asked about null.
            values = [value for value in out.pop("enum") if value is not None]
            rule = f"self in [{', '.join(_cel_literal(value) for value in values)}]"
            message = f"must be one of {', '.join(str(value) for value in values)}"
            out[_RULES] = [*out.get(_RULES, ()), {"rule": rule, "message": message}]
        return out

    @staticmethod
    def _check_pattern(pattern: str, at: _At) -> None:
        if _NOT_IN_RE2.search(pattern):
            raise at.error(f"the pattern {pattern!r} uses what Go's regular expressions lack; say it in CEL: Cel(...)")

    @staticmethod
    def _type_of_enum(values: list[object], at: _At) -> str:
        types = {type(value) for value in values if value is not None}
        if len(types) != 1 or next(iter(types)) not in _TYPES:
            raise at.error(f"an enum of different types {values} has no structural schema; use values of one type")
        return _TYPES[types.pop()]


_CEL_KEYWORDS = {
    "as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop",
    "namespace", "null", "package", "return", "true", "var", "void", "while",
}  # fmt: skip


def cel_name(name: str) -> str:
    """A field's name as CEL wants it."""
    if name in _CEL_KEYWORDS:
        return f"__{name}__"
    return (
        name.replace("__", "__underscores__").replace(".", "__dot__").replace("-", "__dash__").replace("/", "__slash__")
    )


def _cel_literal(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)  # texts, numbers and booleans are spelled alike
