"""Structural schemas: what the API server does with a custom resource besides storing it.

The order is the server's: nulls that mean nothing are dropped and defaults filled in (`default`), fields that the
schema does not know are dropped (`prune`), then everything is checked (`validate`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, final

from opsdk.testing.apiserver._fields import (
    FieldError,
    Tree,
    child,
    duplicate,
    entries,
    go_json,
    invalid,
    is_array,
    is_object,
    members,
    required,
    tree,
)
from opsdk.testing.apiserver._json import clone
from opsdk.testing.apiserver._names import dns1035_faults
from opsdk.testing.apiserver._rules import has_rules, rules_of
from opsdk.testing.apiserver._schema_values import Correlation, validate_value
from opsdk.types import JsonObject

__all__ = ["StructuralSchema"]

_META_FIELDS = frozenset({"apiVersion", "kind", "metadata"})
_BLOCKING = frozenset(
    {
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)


@final
class StructuralSchema:
    """The schema of one version of a custom resource.

    Args:
        schema: The version's `openAPIV3Schema`; a schema that `validate_crd` accepts.
        rules: Whether its CEL rules are enforced; that needs the extra `cel`.
    """

    def __init__(self, schema: JsonObject, *, rules: bool = True) -> None:
        self._schema = tree(schema)
        self._rules = rules and has_rules(self._schema)
        # what no part of the schema asks for need not be looked for in every object
        self._embeds = _has(self._schema, "x-kubernetes-embedded-resource")
        self._keyed = _has(self._schema, "x-kubernetes-list-type")

    def default(self, obj: dict[str, Any]) -> None:
        """Drop nulls that the schema does not allow and fill in defaults, in place."""
        _drop_nulls(obj, self._schema)
        _fill_defaults(obj, self._schema)

    def prune(self, obj: dict[str, Any]) -> list[str]:
        """Remove what the schema does not know, in place; apiVersion, kind and metadata stay.

        Returns:
            The paths of what was removed, sorted.
        """
        removed: list[str] = []
        _prune(obj, {**self._schema, "x-kubernetes-embedded-resource": True}, "", removed)
        return sorted(removed)

    def validate(
        self, obj: dict[str, Any], old: dict[str, Any] | None = None, *, status_only: bool = False
    ) -> list[FieldError]:
        """Everything that is wrong with an object.

        Args:
            obj: The object as it would be stored.
            old: What is stored now; what did not change is not held against the update.
            status_only: Check the status alone, as a write to the status subresource does.
        """
        if status_only:
            errors = self._validate_status(obj, old)
        else:
            correlation = Correlation(old, self._schema) if old is not None else None
            errors = validate_value(self._schema, obj, correlation=correlation)
        if self._embeds:
            errors += _validate_embedded("", obj, self._schema)
        if self._keyed and (old is None or not list(_list_faults("", old, self._schema))):
            errors += _list_faults("", obj, self._schema)
        if self._rules:
            if any(error.reason in _BLOCKING for error in errors):
                text = "some validation rules were not checked because the object was invalid; correct the existing "
                errors.append(invalid("", None, f"{text}errors to complete validation"))
            else:
                correlation = Correlation(old, self._schema) if old is not None else None
                errors += rules_of(self._schema).validate(obj, old, correlation)
        return errors

    def _validate_status(self, obj: Tree, old: Tree | None) -> list[FieldError]:
        properties: Tree = members(self._schema, "properties")
        schema = properties.get("status")
        if "status" not in obj or not is_object(schema):
            return []
        before = old.get("status") if old is not None else None
        correlation = Correlation(before, schema) if before is not None else None
        return validate_value(schema, obj["status"], base="status", correlation=correlation)


def _has(schema: Tree, key: str) -> bool:
    """Whether a keyword stands in a schema or below."""
    properties: Tree = members(schema, "properties")
    below = [*properties.values(), _items(schema), schema.get("additionalProperties")]
    return bool(schema.get(key)) or any(_has(each, key) for each in below if is_object(each))


def _property(schema: Tree, key: str) -> Tree | None:
    """The schema of a property, declared or additional."""
    properties: Tree = members(schema, "properties")
    found = properties.get(key, schema.get("additionalProperties"))
    return found if is_object(found) else None


def _items(schema: Tree | None) -> Tree | None:
    items = schema.get("items") if schema is not None else None
    return items if is_object(items) else None


def _meaningless(value: object, schema: Tree | None) -> bool:
    return value is None and schema is not None and not schema.get("nullable")


def _drop_nulls(value: object, schema: Tree | None) -> None:
    if is_object(value):
        for key in list(value):
            below = _property(schema, key) if schema is not None else None
            if _meaningless(value[key], below) and below is not None and below.get("default") is None:
                del value[key]
            else:
                _drop_nulls(value[key], below)
    elif is_array(value):
        for each in value:
            _drop_nulls(each, _items(schema))


def _fill_defaults(value: object, schema: Tree | None) -> None:
    if schema is None:
        return
    if is_object(value):
        properties: Tree = members(schema, "properties")
        for key, below in properties.items():
            default = below.get("default")
            if default is not None and (key not in value or _meaningless(value[key], below)):
                value[key] = clone(default)
        for key in value:
            below = _property(schema, key)
            if key not in properties and below is not None and _meaningless(value[key], below):
                value[key] = clone(below.get("default"))
            _fill_defaults(value[key], below)
    elif is_array(value):
        items = _items(schema)
        for index, each in enumerate(value):
            if items is not None and _meaningless(each, items):
                value[index] = clone(items.get("default"))
            _fill_defaults(value[index], items)


def _prune(value: object, schema: Tree | None, path: str, removed: list[str]) -> None:
    keep = schema is not None and bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    if is_object(value):
        embedded = schema is not None and bool(schema.get("x-kubernetes-embedded-resource"))
        for key in list(value):
            if embedded and key in _META_FIELDS:
                continue
            here = child(path, key)
            properties: Tree = members(schema, "properties") if schema is not None else {}
            additional = schema.get("additionalProperties") if schema is not None else None
            if key in properties or additional is not None:
                _prune(value[key], _property(schema, key) if schema is not None else None, here, removed)
            elif not keep:
                removed.append(here)
                del value[key]
    elif is_array(value):
        items = _items(schema)
        if keep:
            if items is None:
                return
            items = {**items, "x-kubernetes-preserve-unknown-fields": True}
        for index, each in enumerate(value):
            _prune(each, items, f"{path}[{index}]", removed)


def _validate_embedded(path: str, value: object, schema: Tree | None) -> list[FieldError]:
    """apiVersion, kind and metadata of objects inside the object."""
    errors: list[FieldError] = []
    if schema is None:
        return errors
    if is_object(value):
        if schema.get("x-kubernetes-embedded-resource"):
            errors += _embedded_faults(path, value)
        for key, each in value.items():
            declared = key in members(schema, "properties")
            errors += _validate_embedded(
                child(path, key) if declared else f"{path}[{key}]", each, _property(schema, key)
            )
    elif is_array(value):
        for index, each in enumerate(value):
            errors += _validate_embedded(f"{path}[{index}]", each, _items(schema))
    return errors


def _embedded_faults(path: str, value: Tree) -> Iterator[FieldError]:
    for key in ("apiVersion", "kind"):
        where = child(path, key)
        if key not in value:
            yield required(where)
        elif not isinstance(value[key], str):
            yield invalid(where, value[key], "must be a string")
        elif not value[key]:
            yield invalid(where, "", "must not be empty")
        elif key == "apiVersion" and value[key].count("/") > 1:
            yield invalid(where, value[key], f"unexpected GroupVersion string: {value[key]}")
        elif key == "kind" and (faults := dns1035_faults(value[key].lower())):
            text = "may have mixed case, but should otherwise match: " + ",".join(faults)
            yield invalid(where, value[key], text)
    metadata = value.get("metadata")
    if metadata is not None and not is_object(metadata):
        yield invalid(child(path, "metadata"), metadata, "must be an object")


def _list_faults(path: str, value: object, schema: Tree | None) -> Iterator[FieldError]:
    """Duplicates in `set` and `map` lists."""
    if schema is None:
        return
    if is_object(value):
        for key, each in value.items():
            declared = key in members(schema, "properties")
            yield from _list_faults(child(path, key) if declared else f"{path}[{key}]", each, _property(schema, key))
    elif is_array(value):
        match schema.get("x-kubernetes-list-type"):
            case "set":
                yield from (duplicate(f"{path}[{at}]", value[at]) for at in _repeated(value))
            case "map":
                yield from _map_faults(path, value, entries(schema, "x-kubernetes-list-map-keys"))
            case _:
                pass
        for index, each in enumerate(value):
            yield from _list_faults(f"{path}[{index}]", each, _items(schema))


def _map_faults(path: str, value: list[Any], keys: list[str]) -> Iterator[FieldError]:
    for index, each in enumerate(value):
        if each is not None and not is_object(each):
            yield invalid(f"{path}[{index}]", each, "must be an object for an array of list-type map")
            return
    parts = [{key: each[key] for key in keys if key in each} if each is not None else {} for each in value]
    yield from (duplicate(f"{path}[{at}]", parts[at]) for at in _repeated(parts))


def _repeated(values: list[Any]) -> list[int]:
    """Where a value appears for the second time."""
    seen: dict[str, int] = {}
    found: list[int] = []
    for index, value in enumerate(values):
        key = go_json(value)
        seen[key] = seen.get(key, 0) + 1
        if seen[key] == 2:
            found.append(index)
    return found
