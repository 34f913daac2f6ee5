"""What keeps a schema from being structural, in the server's words: types, defaults, list types, forbidden keywords."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

from opsdk.testing.apiserver._cel_paths import normalized_path
from opsdk.testing.apiserver._fields import (
    FieldError,
    Tree,
    entries,
    forbidden,
    go_json,
    invalid,
    is_array,
    is_object,
    members,
    not_supported,
    required,
)
from opsdk.testing.apiserver._formats import pattern_fault
from opsdk.testing.apiserver._json import clone
from opsdk.testing.apiserver._rules import has_rules, rules_of
from opsdk.testing.apiserver._schema_values import same, validate_value
from opsdk.testing.apiserver._structural import StructuralSchema

__all__ = ["structure_faults"]

_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_RULE_REASONS: Final = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_META_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata"})
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_INT_OR_STRING_ANY_OF: Final = [{"type": "integer"}, {"type": "string"}]
# Fields of the root schema, by their names in Go, that may stand beside a status subresource.
_ROOT_FIELDS: Final = (
    "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern "
    "MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields "
    "XValidations"
)
_NOT_AT_ROOT: Final = frozenset(
    {
        "$ref",
        "$schema",
        "additionalItems",
        "additionalProperties",
        "allOf",
        "anyOf",
        "default",
        "definitions",
        "dependencies",
        "enum",
        "id",
        "maxProperties",
        "minProperties",
        "not",
        "nullable",
        "oneOf",
        "patternProperties",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
    }
)

# Tests install the same kinds over and over, each on a server of its own.
_MOST_KNOWN: Final = 256
_KNOWN: Final[dict[tuple[str, str, bool, bool], tuple[FieldError, ...]]] = {}


def structure_faults(schema: Tree, where: str, *, status: bool, rules: bool = True) -> Sequence[FieldError]:
    """Everything that is wrong with the schema of a version; known at once for one that was looked at before.

    Args:
        schema: The version's `openAPIV3Schema`.
        where: Its path.
        status: Whether the version has a status subresource, which narrows what may stand at the root.
        rules: Whether CEL rules are compiled.
    """
    key = (go_json(schema), where, status, rules)
    found = _KNOWN.get(key)
    if found is None:
        found = tuple(_faults(schema, where, status=status, rules=rules))
        if len(_KNOWN) >= _MOST_KNOWN:
            del _KNOWN[next(iter(_KNOWN))]
        _KNOWN[key] = found
    return found


def _faults(schema: Tree, where: str, *, status: bool, rules: bool) -> Iterator[FieldError]:
    if status:
        if schema.get("type", "object") != "object":
            text = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
            yield invalid(f"{where}.type", schema["type"], text)
        elif any(schema.get(key) for key in _NOT_AT_ROOT):
            fields = f"only [{_ROOT_FIELDS}] fields"
            text = f"{fields} are allowed at the root of the schema if the status subresource is enabled"
            yield invalid(where, schema, text)
    if schema.get("nullable"):
        yield forbidden(f"{where}.nullable", "nullable cannot be true at the root")
    if not any(_unsupported(schema)):
        structural = list(_structure_faults(schema, where, "root"))
        yield from structural or _default_faults(schema, where, embedded_root=True)
    faults = list(_openapi_faults(schema, where, _Place()))
    yield from faults
    if rules and not faults and has_rules(schema):
        for fault in rules_of(schema).faults:
            yield FieldError(f"{where}{fault.field}", fault.reason, fault.message)


def _unsupported(schema: Tree) -> Iterator[bool]:
    """Whether a schema has keywords that no structural schema can be made of (reported as such)."""
    yield any(
        schema.get(key)
        for key in ("id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions")
    ) or is_array(schema.get("items"))
    for _, below in _children(schema):
        yield from _unsupported(below)


def _children(schema: Tree) -> Iterator[tuple[str, Tree]]:
    """All schemas directly inside a schema, with the path from there."""
    properties: Tree = members(schema, "properties")
    for name, below in properties.items():
        yield f".properties[{name}]", below
    for key in ("items", "additionalProperties", "not"):
        if is_object(schema.get(key)):
            yield f".{key}", schema[key]
    for key in ("allOf", "anyOf", "oneOf"):
        for index, below in enumerate(entries(schema, key)):
            yield f".{key}[{index}]", below


def _structure_faults(schema: Tree, where: str, level: str) -> Iterator[FieldError]:
    """The rules of structural schemas, outside of value validation."""
    kind: str = schema.get("type") or ""
    embedded, preserve = bool(schema.get(_EMBEDDED)), bool(schema.get(_PRESERVE))
    int_or_string = bool(schema.get(_INT_OR_STRING))
    properties: Tree = members(schema, "properties")
    additional = schema.get("additionalProperties")
    if kind == "array" and not is_object(schema.get("items")):
        yield required(f"{where}.items", "must be specified")
    if is_object(schema.get("items")):
        yield from _structure_faults(schema["items"], f"{where}.items", "item")
    for name, below in properties.items():
        yield from _structure_faults(below, f"{where}.properties[{name}]", "field")
    if additional is not None:
        if level == "root":
            yield forbidden(f"{where}.additionalProperties", "must not be used at the root")
        if is_object(additional):
            yield from _structure_faults(additional, f"{where}.additionalProperties", "field")
    if int_or_string and preserve:
        yield invalid(f"{where}.{_PRESERVE}", True, f"must be false if {_INT_OR_STRING} is true")
    if int_or_string and embedded:
        yield invalid(f"{where}.{_EMBEDDED}", True, f"must be false if {_INT_OR_STRING} is true")
    yield from _value_faults(schema, where, int_or_string=True)
    if embedded and kind != "object":
        text = f"must be object if {_EMBEDDED} is true"
        yield invalid(f"{where}.type", kind, text) if kind else required(f"{where}.type", text)
    elif not kind and not int_or_string and not preserve:
        places = {"root": "at the root", "item": "for specified array items", "field": "for specified object fields"}
        yield required(f"{where}.type", f"must not be empty {places[level]}")
    if embedded and additional is not None:
        yield forbidden(f"{where}.additionalProperties", f"must not be used if {_EMBEDDED} is set")
    if level == "root" and kind and kind != "object":
        yield invalid(f"{where}.type", kind, "must be object at the root")
    if level == "root" or embedded:
        yield from _meta_faults(properties, where, root=level == "root")
    if embedded and not preserve and not properties:
        text = f"must not be empty if {_EMBEDDED} is true without {_PRESERVE}"
        yield required(f"{where}.properties", text)


def _meta_faults(properties: Tree, where: str, *, root: bool) -> Iterator[FieldError]:
    for key, wanted in (("kind", "string"), ("apiVersion", "string"), ("metadata", "object")):
        below = properties.get(key)
        if is_object(below) and below.get("type") != wanted:
            yield invalid(f"{where}.properties[{key}].type", below.get("type") or "", f"must be {wanted}")
    metadata = properties.get("metadata")
    if root and is_object(metadata):
        rest = {key for key, value in metadata.items() if value and key not in {"type", "default"}}
        names = set(members(metadata, "properties"))
        if rest - {"properties"} or not names <= {"name", "generateName"}:
            text = "must not specify anything other than name and generateName, but metadata is implicitly specified"
            yield forbidden(f"{where}.properties[metadata]", text)


def _value_faults(schema: Tree, where: str, *, int_or_string: bool = False) -> Iterator[FieldError]:
    """The junctors of a schema and its pattern."""
    any_of: list[Tree] = entries(schema, "anyOf")
    all_of: list[Tree] = entries(schema, "allOf")
    if not (int_or_string and same(any_of, _INT_OR_STRING_ANY_OF)):
        for index, below in enumerate(any_of):
            yield from _nested_faults(below, f"{where}.anyOf[{index}]")
    for index, below in enumerate(all_of):
        skip = int_or_string and index == 0 and same(below.get("anyOf"), _INT_OR_STRING_ANY_OF)
        yield from _nested_faults(below, f"{where}.allOf[{index}]", skip_any_of=skip)
    for index, below in enumerate(entries(schema, "oneOf")):
        yield from _nested_faults(below, f"{where}.oneOf[{index}]")
    if is_object(schema.get("not")):
        yield from _nested_faults(schema["not"], f"{where}.not")
    pattern: str = schema.get("pattern") or ""
    if pattern and (fault := pattern_fault(pattern)) is not None:
        yield invalid(f"{where}.pattern", pattern, f"must be a valid regular expression, but isn't: {fault}")


def _nested_faults(schema: Tree, where: str, *, skip_any_of: bool = False) -> Iterator[FieldError]:
    """What must not stand inside allOf, anyOf, oneOf and not."""
    yield from _value_faults(schema, where, int_or_string=skip_any_of)
    if is_object(schema.get("items")):
        yield from _nested_faults(schema["items"], f"{where}.items")
    properties: Tree = members(schema, "properties")
    for name, below in properties.items():
        yield from _nested_faults(below, f"{where}.properties[{name}]")
    for key, word in (
        ("type", "empty"),
        ("additionalProperties", "undefined"),
        ("default", "undefined"),
        ("title", "empty"),
        ("description", "empty"),
        ("nullable", "false"),
        (_PRESERVE, "false"),
        (_EMBEDDED, "false"),
        (_INT_OR_STRING, "false"),
        ("x-kubernetes-list-map-keys", "empty"),
        ("x-kubernetes-list-type", "undefined"),
        ("x-kubernetes-map-type", "undefined"),
        ("x-kubernetes-validations", "empty"),
    ):
        value = schema.get(key)
        if value if word in {"empty", "false"} else value is not None:
            yield forbidden(f"{where}.{key}", f"must be {word} to be structural")
    if "metadata" in properties:
        yield forbidden(f"{where}.properties[metadata]", "must not be specified in a nested context")


def _default_faults(schema: Tree, where: str, *, embedded_root: bool = False) -> Iterator[FieldError]:
    """Defaults have to be valid themselves and must hold nothing that would be pruned."""
    default = schema.get("default")
    if default is not None and embedded_root:  # a whole object, which no default can be
        yield required(f"{where}.default.apiVersion")
        yield required(f"{where}.default.kind")
    elif default is not None:
        if is_object(default) or is_array(default):
            pruned = clone(default)
            StructuralSchema({"type": "object", "properties": {"default": schema}}).prune({"default": pruned})
            if not same(pruned, default):
                yield invalid(f"{where}.default", default, "must not have unknown fields")
        yield from validate_value(schema, default, base=f"{where}.default")
    if is_object(schema.get("items")):
        yield from _default_faults(schema["items"], f"{where}.items")
    properties: Tree = members(schema, "properties")
    for name, below in properties.items():
        if not (embedded_root and name in _META_FIELDS):
            yield from _default_faults(below, f"{where}.properties[{name}]")


@final
@dataclass(frozen=True, slots=True)
class _Place:
    """Where a schema stands, for rules that depend on it."""

    root: bool = True
    inside_meta: bool = False
    defaults_forbidden: str | None = None


def _openapi_faults(schema: Tree, where: str, place: _Place) -> Iterator[FieldError]:
    """Keywords and extensions that are refused wherever they stand."""
    yield from _keyword_faults(schema, where, place)
    properties: Tree = members(schema, "properties")
    additional = schema.get("additionalProperties")
    inner = replace(place, root=False)
    if schema.get("uniqueItems"):
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden(f"{where}.uniqueItems", text)
    if additional is not None and additional is not True and properties:
        text = "additionalProperties and properties are mutual exclusive"
        yield forbidden(f"{where}.additionalProperties", text)
    for path, below in _children(schema):
        here = inner
        if path == ".additionalProperties" and place.inside_meta:
            here = replace(inner, defaults_forbidden="inside additionalProperties applying to object metadata")
        name = path.removeprefix(".properties[").removesuffix("]")
        if path.startswith(".properties[") and (place.root or schema.get(_EMBEDDED)) and name in _META_FIELDS:
            forbids = f"in top-level {name}" if place.root else inner.defaults_forbidden
            here = replace(inner, inside_meta=True, defaults_forbidden=forbids)
        yield from _openapi_faults(below, f"{where}{path}", here)
    yield from _list_type_faults(schema, where)
    for index, rule in enumerate(entries(schema, "x-kubernetes-validations")):
        yield from _rule_faults(schema, rule, f"{where}.x-kubernetes-validations[{index}]")


def _keyword_faults(schema: Tree, where: str, place: _Place) -> Iterator[FieldError]:
    kind: str = schema.get("type") or ""
    if kind and kind not in _TYPES:
        yield not_supported(f"{where}.type", kind, _TYPES)
    if schema.get("default") is not None and place.defaults_forbidden is not None:
        yield forbidden(f"{where}.default", f"must not be set {place.defaults_forbidden}".strip())
    for key in ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"):
        if schema.get(key):
            yield forbidden(f"{where}.{key}", f"{key} is not supported")
    if kind == "null":
        yield forbidden(f"{where}.type", "type cannot be set to null, use nullable as an alternative")
    if is_array(schema.get("items")):
        yield forbidden(f"{where}.items", "items must be a schema object and not an array")
    if place.inside_meta and schema.get(_EMBEDDED):
        yield forbidden(f"{where}.{_EMBEDDED}", "must not be used inside of resource meta")
    if schema.get(_PRESERVE) is False:
        yield invalid(f"{where}.{_PRESERVE}", False, "must be true or undefined")


def _list_type_faults(schema: Tree, where: str) -> Iterator[FieldError]:
    kind: str = schema.get("type") or ""
    list_type, map_type = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-map-type")
    keys: list[str] = entries(schema, "x-kubernetes-list-map-keys")
    items: Tree = schema["items"] if is_object(schema.get("items")) else {}
    if map_type is not None:
        if kind != "object":
            text = "must be object if x-kubernetes-map-type is specified"
            yield invalid(f"{where}.type", kind, text) if kind else required(f"{where}.type", text)
        if map_type not in {"atomic", "granular"}:
            yield not_supported(f"{where}.x-kubernetes-map-type", map_type, ("atomic", "granular"))
    if list_type is not None:
        if kind != "array":
            text = "must be array if x-kubernetes-list-type is specified"
            yield invalid(f"{where}.type", kind, text) if kind else required(f"{where}.type", text)
        elif list_type == "set":
            text = "must be atomic as item of a list with x-kubernetes-list-type=set"
            if items.get("type") == "array" and items.get("x-kubernetes-list-type", "atomic") != "atomic":
                yield invalid(f"{where}.items.x-kubernetes-list-type", items["x-kubernetes-list-type"], text)
            if items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
                yield invalid(f"{where}.items.x-kubernetes-map-type", items.get("x-kubernetes-list-type"), text)
        if list_type not in {"atomic", "set", "map"}:
            yield not_supported(f"{where}.x-kubernetes-list-type", list_type, ("atomic", "set", "map"))
    if keys and list_type != "map":
        text = "must be map if x-kubernetes-list-map-keys is non-empty"
        here = f"{where}.x-kubernetes-list-type"
        yield required(here, text) if list_type is None else invalid(here, list_type, text)
    if list_type == "map":
        yield from _map_key_faults(schema, where, keys, items)
    if list_type in {"set", "map"} and items.get("nullable"):
        yield forbidden(f"{where}.items.nullable", f"cannot be nullable when x-kubernetes-list-type is {list_type}")


def _map_key_faults(schema: Tree, where: str, keys: list[str], items: Tree) -> Iterator[FieldError]:
    here = f"{where}.x-kubernetes-list-map-keys"
    if not keys:
        yield required(here, "must not be empty if x-kubernetes-list-type is map")
    if "items" not in schema:
        yield required(f"{where}.items", "must have a schema if x-kubernetes-list-type is map")
        return
    if items.get("type") != "object":
        text = "must be object if parent array's x-kubernetes-list-type is map"
        yield invalid(f"{where}.items.type", items.get("type") or "", text)
        return
    properties: Tree = members(items, "properties")
    in_keys = "this property is in x-kubernetes-list-map-keys"
    for index, key in enumerate(keys):
        below = properties.get(key)
        at = f"{where}.items.properties[{key}]"
        if not is_object(below):
            yield invalid(here, keys, "entries must all be names of item properties")
        else:
            if below.get("type") in {"array", "object"}:
                text = "must be a scalar type if parent array's x-kubernetes-list-type is map"
                yield invalid(f"{at}.type", items.get("type"), text)
            if key not in entries(items, "required") and below.get("default") is None:
                text = f"{in_keys}, so it must have a default or be a required property"
                yield required(f"{at}.default", text)
            if below.get("nullable"):
                text = f"{in_keys}, so it cannot be nullable"
                yield forbidden(f"{at}.nullable", text)
        if key in keys[:index]:
            yield invalid(here, keys, "must not contain duplicate entries")


def _rule_faults(schema: Tree, rule: Tree, where: str) -> Iterator[FieldError]:
    expression, message = (rule.get("rule") or "").strip(), rule.get("message") or ""
    if not expression:
        yield required(f"{where}.rule", "rule is not specified")
    elif message and not message.strip():
        yield invalid(f"{where}.message", message, "must be non-empty if specified")
    elif _broken_line(message.strip()):
        yield invalid(f"{where}.message", message, "must not contain line breaks")
    elif _broken_line(expression) and not message.strip():
        yield required(f"{where}.message", "message must be specified if rule contains line breaks")
    if rule.get("messageExpression") and not rule["messageExpression"].strip():
        yield required(f"{where}.messageExpression", "messageExpression must be non-empty if specified")
    reason = rule.get("reason")
    if reason is not None and reason not in _RULE_REASONS:
        yield not_supported(f"{where}.reason", reason, _RULE_REASONS)
    path: str = rule.get("fieldPath") or ""
    if path and not path.strip():
        yield invalid(f"{where}.fieldPath", path, "must be non-empty if specified")
    if _broken_line(path):
        yield invalid(f"{where}.fieldPath", path, "must not contain line breaks")
    if path and normalized_path(path, schema) is None:
        yield invalid(f"{where}.fieldPath", path, "must be a valid path")


def _broken_line(text: str) -> bool:
    return "\n" in text or "\r" in text
