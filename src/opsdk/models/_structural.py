"""From pydantic's JSON schema to what Kubernetes calls a structural schema.

Structural means: each value has one type, no references, no alternatives of shape, and what a rule says is not what
the shape says. Everything that pydantic can say and Kubernetes cannot is either rewritten here or refused, with the
field's name and a way out.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, time
from typing import Any, Final, cast, final
from uuid import UUID

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import (
    PydanticSerializationError,
    SchemaError,
    SchemaSerializer,
    SchemaValidator,
    ValidationError,
    core_schema,
    to_jsonable_python,
)

from opsdk.errors import CrdSchemaError
from opsdk.models._schema_defaults import OWN_DEFAULT, shorten
from opsdk.models._schema_rules import RULES, cel_literal, cel_name, keys_rule, uses_old_self, with_rules
from opsdk.models._schema_text import DECIMAL_PATTERN, format_keywords, pattern_fault
from opsdk.models._schema_unions import Variant, alternatives, int_or_string, limits_of_enum, merge_variants
from opsdk.models._struct_schema import Schema
from opsdk.models.markers import IMMUTABLE

__all__ = ["structural_schema"]

_KEPT: Final = {
    "allOf", "anyOf", "description", "enum", "maxItems", "maxLength", "maxProperties", "maximum", "minItems",
    "minLength", "minProperties", "minimum", "multipleOf", "nullable", "pattern",
}  # fmt: skip
_EXCLUSIVE: Final = {"exclusiveMaximum": "maximum", "exclusiveMinimum": "minimum"}
"""A number for pydantic; for Kubernetes, what it says about the other."""
_TYPES: Final[Mapping[type, str]] = {str: "string", bool: "boolean", int: "integer", float: "number"}
_SCALARS: Final = {"string", "integer", "number", "boolean"}
_OPEN: Final = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_INVALID: Final = "x-opsdk-invalid"
_BAD_DEFAULT: Final = "x-opsdk-bad-default"
_RECURSIVE: Final = "A {0} again, as deep as you like: the server keeps what is in it, unchecked."


@final
class _Generator(GenerateJsonSchema):
    """Pydantic's generator, with what default factories make, and with faults left for the walk, which knows where."""

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> JsonSchemaValue:
        return {_INVALID: error_info}

    def datetime_schema(self, schema: core_schema.DatetimeSchema) -> JsonSchemaValue:
        if schema.get("tz_constraint") == "naive":
            return {_INVALID: "a time without a zone, which the server refuses; use Time, which has one"}
        return super().datetime_schema(schema)

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        out = {**self.generate_inner(schema["schema"])}  # pydantic's own does not ask the field how it is written
        value: object = None
        factory = schema.get("default_factory")
        if "default" in schema:
            value = schema["default"]
            out["default"] = None
        elif factory is not None and not schema.get("default_factory_takes_data"):
            again: object = cast("Any", factory)()
            value = cast("Any", factory)()
            if value != again or isinstance(value, date | time | UUID):
                return out  # another one each time: the CRD would give the same to all
        if value is not None:
            if (fault := _default_fault(schema)) is not None:
                return {**out, _BAD_DEFAULT: fault}
            with suppress(PydanticSerializationError):
                out["default"] = _encoded(schema["schema"], value)
        return out


def _encoded(schema: core_schema.CoreSchema, value: object) -> object:
    """A value as a field of that schema is written."""
    try:
        serializer = SchemaSerializer(schema)
    except SchemaError:  # it refers to definitions elsewhere: models know themselves how they are written
        return cast("object", to_jsonable_python(value, by_alias=True, exclude_none=True))
    return cast("object", serializer.to_python(value, mode="json", by_alias=True, exclude_none=True, warnings="none"))


def _default_fault(schema: core_schema.WithDefaultSchema) -> str | None:
    """Why the default of a field does not fit the field, if it does not: pydantic itself does not look."""
    if "default" not in schema:
        return None
    try:
        validator = SchemaValidator(schema["schema"])
    except SchemaError:  # it refers to definitions elsewhere
        return None
    try:
        validator.validate_python(schema["default"])
    except ValidationError as error:
        return str(error.errors()[0]["msg"])
    return None


@final
@dataclass(frozen=True, slots=True)
class _At:
    """Where in the model the walk is: the model's class and field for people, the wire path for the document."""

    model: str
    path: str
    reported: bool = False
    """Within status: nothing gets a default."""
    correlated: bool = True
    """What was here before an update can be told: not within the items of a list without keys."""

    def down(self, step: str) -> _At:
        return replace(self, path=f"{self.path}{step}")

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
    return _in_order(_Walk(definitions, status).schema(schema, _At(model.__qualname__, ""), ()))


_ORDER: Final = {
    key: place
    for place, key in enumerate(
        (
            "description", "type", "format", _INT_OR_STRING, "x-kubernetes-embedded-resource", _OPEN, "nullable",
            "enum", "default", "properties", "required", "additionalProperties", "items", "x-kubernetes-list-type",
            "x-kubernetes-list-map-keys", "x-kubernetes-map-type",
        )
    )
}  # fmt: skip
_LAST: Final = {RULES: 1000}


def _in_order(schema: Schema) -> Schema:
    """The schema with its keywords in one order, whatever order the annotations had, and without our own notes."""
    out: Schema = {}
    for key in sorted(schema, key=lambda key: (_ORDER.get(key, 100) + _LAST.get(key, 0), key)):
        value: Any = schema[key]
        if key == OWN_DEFAULT:
            continue
        if key == "properties":
            value = {name: _in_order(below) for name, below in value.items()}
        elif key in {"items", "additionalProperties"} and isinstance(value, dict):
            value = _in_order(cast("Schema", value))
        out[key] = value
    return out


@final
class _Walk:
    def __init__(self, definitions: dict[str, Schema], status: str | None) -> None:
        self._definitions = definitions
        self._status = status

    def schema(self, given: Schema, at: _At, within: tuple[str, ...]) -> Schema:
        s = dict(given)
        if "$ref" in s:
            return self._reference(s, at, within)
        if len(s.get("allOf", ())) == 1 and "type" not in s and _INT_OR_STRING not in s:
            inner = s.pop("allOf")[0]
            return self.schema({**inner, **s}, at, within)
        if _BAD_DEFAULT in s:
            raise at.error(f"its default does not fit it ({s[_BAD_DEFAULT]}); the server would refuse the CRD")
        if _INVALID in s:
            if s.get(_OPEN) is True:
                return self._open(s, at)
            raise at.error(
                f"its type has no JSON schema ({s[_INVALID]}); say one with WithJsonSchema(...), or annotate the field "
                "with PreserveUnknown()"
            )
        if s.get("writeOnly"):
            raise at.error(
                "a secret is written as asterisks, and everybody who may read the object may read it; keep it in a "
                "Secret and refer to that by name"
            )
        if s.get(_INT_OR_STRING):
            return {**self._common(s, at), _INT_OR_STRING: True}
        for key in ("anyOf", "oneOf"):
            if key in s:
                return self._union(s.pop(key), s, at, within)
        if s.get(_OPEN) is True and not self._is_closed(s):
            return self._open(s, at)
        if "const" in s:
            s["enum"] = [s.pop("const")]
        kind = s.get("type")
        if kind is None and "enum" in s:
            if {type(value) for value in s["enum"] if value is not None} == {int, str}:
                return {**self._common(s, at), _INT_OR_STRING: True}
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
        target = self._definitions[name]
        title = str(target.get("title", name))
        if name in within:
            if target.get("type") != "object" and s.get(_OPEN) is not True:
                raise at.error(
                    f"{title} contains itself and is no model, so nothing says what is in it; annotate the field with "
                    "PreserveUnknown()"
                )
            if s.get(_OPEN) is not True and "description" not in s:
                s["description"] = _RECURSIVE.format(title)
            return {**self._open(s, at), "type": "object"}
        merged = {**target, **s}
        rules = [*target.get(RULES, ()), *s.get(RULES, ())]
        if rules:
            merged[RULES] = rules
        try:
            return self.schema(merged, replace(at, model=title), (*within, name))
        except CrdSchemaError:
            if s.get(_OPEN) is True:
                return {**self._open(s, at), "type": "object"}
            raise

    # unions

    def _union(self, options: list[Schema], s: Schema, at: _At, within: tuple[str, ...]) -> Schema:
        given = [option for option in options if option.get("type") != "null"]
        if len(given) != len(options) and "default" not in s:
            if at.path.endswith(".*"):
                raise at.error("None as a value in a map is not sent; leave the key out instead")
            raise at.error(
                "required, yet it may be None, and None is not sent; give it the default None, or another type"
            )
        if s.get("default") is None:
            s.pop("default", None)
        elif len(given) != len(options):
            raise at.error(
                f"it may be None, yet its default is {s['default']!r}: None is not sent, so that it would come back as "
                "the default; give it the default None, or a value that means the same"
            )
        if len(given) == 1:
            return self.schema({**given[0], **s}, at, within)
        if s.get(_OPEN) is True:
            return self._open(s, at)
        if "discriminator" in s:
            return self._discriminated(given, s, at, within)
        given = [self._flat(option) for option in given]
        types = {str(option.get("type", "object" if "$ref" in option else "any")) for option in given}
        if types == {"number", "string"}:  # a Decimal: sent as text
            return self.schema({"type": "string", "pattern": DECIMAL_PATTERN, **s}, at, within)
        if types <= _SCALARS and all("$ref" not in option for option in given):
            scalars = [self.schema(option, at, within) for option in given]
            if types == {"integer", "string"}:
                return self._int_or_string(scalars, s, at)
            if types == {"integer", "number"} or len(types) == 1:
                kind = types.pop() if len(types) == 1 else "number"
                return {**self._common({**alternatives(scalars, kind), **s}, at), "type": kind}
        raise at.error(
            f"a union of {', '.join(sorted(types))} has no structural schema; give the models a discriminator "
            "(Field(discriminator=...)), or annotate the field with PreserveUnknown()"
        )

    def _flat(self, s: Schema) -> Schema:
        """An enum or another scalar in place of a reference to it, with its type."""
        target = self._definitions[str(s["$ref"]).rsplit("/", 1)[1]] if "$ref" in s else s
        if "properties" in target:
            return s
        if "const" in target:
            target = {**{k: v for k, v in target.items() if k != "const"}, "enum": [target["const"]]}
        if "type" not in target and "enum" in target:
            values: list[object] = target["enum"]
            types = {_TYPES.get(type(value), "any") for value in values}
            return {**target, "type": types.pop()} if len(types) == 1 else target
        return target

    def _int_or_string(self, scalars: list[Schema], s: Schema, at: _At) -> Schema:
        by_type: dict[str, list[Schema]] = {}
        for scalar in scalars:
            by_type.setdefault(str(scalar["type"]), []).append(scalar)
        merged = [each[0] if len(each) == 1 else alternatives(each, kind) for kind, each in by_type.items()]
        try:
            out = int_or_string(merged)
        except ValueError as error:
            raise at.error("too many alternatives; use one whole number and one text") from error
        return {**self._common({**out, **s}, at), _INT_OR_STRING: True}

    def _discriminated(self, given: list[Schema], s: Schema, at: _At, within: tuple[str, ...]) -> Schema:
        """One object with everything optional but the discriminator; rules say which variant wants what."""
        key = str(s.pop("discriminator")["propertyName"])
        variants: list[Variant] = []
        for option in given:
            schema = self.schema(option, at, within)
            tags: list[object] = schema.get("properties", {}).get(key, {}).get("enum", [])
            if not tags:
                raise at.error(f"the discriminator {key!r} must be a Literal in each variant")
            variants.append(Variant(tags=tags, schema=schema))
        values = list(dict.fromkeys(tag for variant in variants for tag in variant.tags))
        merged = merge_variants(key, variants, at.error)
        tag: Schema = {"type": self._type_of_enum(values, at), "enum": values}
        properties: dict[str, Schema] = {key: tag, **merged["properties"]}
        out = {**self._common(s, at), "type": "object", "properties": properties, "required": merged["required"]}
        if "anyOf" in merged:
            out["anyOf"] = merged["anyOf"]
        with_rules(out, *merged.get(RULES, ()))
        self._shorten_default(out)
        return out

    # shapes

    def _array(self, out: Schema, s: Schema, at: _At, within: tuple[str, ...]) -> None:
        if s.get("uniqueItems"):
            out.setdefault("x-kubernetes-list-type", "set")
        kind = out.get("x-kubernetes-list-type")
        below = at if kind == "map" else replace(at, correlated=False)
        if "prefixItems" in s:
            items = [self.schema(item, below.down(f"[{index}]"), within) for index, item in enumerate(s["prefixItems"])]
            if any(item != items[0] for item in items):
                raise at.error("a tuple of different types has no structural schema; use a model with named fields")
            out["items"] = items[0] if items else {_OPEN: True}
        else:
            out["items"] = self.schema(_nullable(s.get("items", {})), below.down("[]"), within)
        item: Schema = out["items"]
        item.pop("default", None)
        if kind == "set" and item.get("type") in {"object", "array"}:
            raise at.error("a set of objects or lists is not possible; use a list with ListMap(...) or ListAtomic()")
        if kind in {"set", "map"} and item.get("nullable"):
            raise at.error("items of a set or of a list with keys cannot be null")
        if kind == "map":
            for key in out["x-kubernetes-list-map-keys"]:
                member = item.get("properties", {}).get(key)
                if member is None:
                    raise at.error(f"the list-map key {key!r} is no field of its items (use the name on the wire)")
                if key not in item.get("required", ()) and "default" not in member:
                    raise at.error(f"the list-map key {key!r} must be required, or have a default that is not None")
                if member.get("type") in {"object", "array"} or member.get("nullable"):
                    raise at.error(f"the list-map key {key!r} must be a text, number or boolean, and not nullable")
        self._shorten_default(out)

    def _object(self, out: Schema, s: Schema, at: _At, within: tuple[str, ...]) -> None:
        properties: dict[str, Schema] | None = s.get("properties")
        additional: object = s.get("additionalProperties")
        patterns: dict[str, Schema] = s.get("patternProperties", {})
        if properties:
            self._properties(out, s, at, within)
            if isinstance(additional, dict):
                raise at.error("named fields together with typed extra fields; put the extra ones into a dict field")
        elif len(patterns) == 1:
            ((pattern, schema),) = patterns.items()
            self._map(out, schema, at, within, keys={"pattern": pattern})
        elif patterns:
            raise at.error("keys of several patterns have no structural schema; use one pattern")
        elif isinstance(additional, dict) and (additional or "propertyNames" in s):
            self._map(out, cast("Schema", additional), at, within, keys=self._flat(s.get("propertyNames", {})))
        elif properties is None:
            out[_OPEN] = True
        self._shorten_default(out)

    def _properties(self, out: Schema, s: Schema, at: _At, within: tuple[str, ...]) -> None:
        given: dict[str, Schema] = s["properties"]
        properties: dict[str, Schema] = {}
        required = [name for name in s.get("required", ()) if "default" not in given[name]]
        for name, schema in given.items():
            inner = at.down(f".{name}")
            if at.path == "" and name == self._status:
                inner = replace(inner, reported=True)
            found = self.schema(schema, inner, within)
            if found.get("default", None) is None and schema.get("default") in ([], {}):
                found[OWN_DEFAULT] = schema["default"]
            properties[name] = found
            if IMMUTABLE in schema and name not in required and "default" not in found:
                with_rules(out, self._kept(name, str(schema[IMMUTABLE]), inner))
        out["properties"] = properties
        if required:
            out["required"] = required

    @staticmethod
    def _kept(name: str, how: str, at: _At) -> Schema:
        """The rule for the object that an optional immutable field is in: what comes or goes has no old self."""
        if not at.correlated:
            raise at.error(_uncorrelated("Immutable()"))
        member = cel_name(name)
        there, before = f"has(self.{member})", f"has(oldSelf.{member})"
        if how == "once-set":
            return {"rule": f"!{before} || {there}", "message": f"{name} cannot be removed"}
        return {"rule": f"{there} == {before}", "message": f"{name} cannot be added or removed"}

    def _map(self, out: Schema, values: Schema, at: _At, within: tuple[str, ...], *, keys: Schema) -> None:
        """A dict: what its values are, and a rule for its keys where they are not just any text."""
        below = self.schema(values, at.down(".*"), within)
        below.pop("default", None)
        out["additionalProperties"] = below
        tests: list[tuple[str, str]] = []
        if "enum" in keys:
            out.setdefault("maxProperties", len(keys["enum"]))
            among = ", ".join(cel_literal(value) for value in keys["enum"])
            names = ", ".join(map(str, keys["enum"]))
            with_rules(out, keys_rule(f"key in [{among}]", f"keys must be among {names}"))
            return
        known = {**format_keywords(str(keys.get("format", ""))), **keys}
        if "pattern" in known:
            self._check_pattern(known["pattern"], at)
            if "maxProperties" not in out:
                raise at.error(
                    "a pattern for keys becomes a CEL rule, and the server refuses rules without a limit; "
                    "add Field(max_length=...) to the dict"
                )
            tests.append((f"key.matches({cel_literal(known['pattern'])})", f"keys must match {known['pattern']}"))
        if "minLength" in known:
            tests.append((f"key.size() >= {known['minLength']}", f"keys have at least {known['minLength']} characters"))
        if "maxLength" in known:
            tests.append((f"key.size() <= {known['maxLength']}", f"keys have at most {known['maxLength']} characters"))
        with_rules(out, *(keys_rule(test, message) for test, message in tests))

    @staticmethod
    def _shorten_default(out: Schema) -> None:
        """What the children default to need not be said twice; `{}` is enough for the server to fill them in."""
        if "default" in out:
            out["default"] = shorten(out["default"], out)

    # keywords

    def _common(self, s: Schema, at: _At) -> Schema:
        out: Schema = {}
        given: dict[str, Any] = s
        for key, value in given.items():
            if key == "default":
                if value is not None and not at.reported and (value not in ([], {}) or "properties" in s):
                    out[key] = value
            elif key in _EXCLUSIVE:
                out |= {key: True} if isinstance(value, bool) else {_EXCLUSIVE[key]: value, key: True}
            elif key == "description":
                out[key] = inspect.cleandoc(value)
            elif key == "format":
                self._add_format(out, s, value)
            elif key == "pattern":
                self._check_pattern(value, at)
                out[key] = value
            elif key in _KEPT or key.startswith("x-kubernetes-"):
                out[key] = value
        if IMMUTABLE in s:
            with_rules(out, {"rule": "self == oldSelf", "message": "cannot be changed"})
        self._check_rules(out, at)
        if out.get("nullable") and "enum" in out:
            # The server never finds null in an enum, whatever the enum says; it asks other keywords only about values.
            values: list[object] = [value for value in out.pop("enum") if value is not None]
            limits = limits_of_enum(values)
            if limits.keys() & out.keys():
                limits = {"allOf": [*out.get("allOf", ()), limits]}
            out |= limits
        return out

    @staticmethod
    def _add_format(out: Schema, s: Schema, value: str) -> None:
        keywords = format_keywords(value) if s.get("type") in {"string", None} else {"format": value}
        own = s.get("pattern")
        if "pattern" in keywords and own not in {None, keywords["pattern"]}:  # there is room for one
            out["allOf"] = [{"pattern": keywords.pop("pattern")}]
        out |= keywords

    @staticmethod
    def _check_rules(out: Schema, at: _At) -> None:
        for rule in out.get(RULES, ()):
            if uses_old_self(rule) and not at.correlated:
                raise at.error(_uncorrelated(f"the rule {rule['rule']!r}"))

    @staticmethod
    def _check_pattern(pattern: str, at: _At) -> None:
        fault = pattern_fault(pattern)
        if fault is not None:
            raise at.error(f"the pattern {pattern!r} {fault}; say it in CEL: Cel(...)")

    @staticmethod
    def _type_of_enum(values: list[object], at: _At) -> str:
        types = {type(value) for value in values if value is not None}
        if len(types) != 1 or next(iter(types)) not in _TYPES:
            raise at.error(f"an enum of different types {values} has no structural schema; use values of one type")
        return _TYPES[types.pop()]


def _nullable(item: Schema) -> Schema:
    """The schema of a list's items: only there is None sent, as null."""
    options: list[Schema] = item.get("anyOf", [])
    given = [option for option in options if option.get("type") != "null"]
    return item if len(given) == len(options) else {**item, "anyOf": given, "nullable": True}


def _uncorrelated(what: str) -> str:
    return (
        f"{what} compares with what was there before, and in a list without keys nothing says which item that was; "
        "annotate the list with ListMap(...)"
    )
