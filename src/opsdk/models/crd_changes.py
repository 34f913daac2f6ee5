"""What a change of a CRD would cost the objects that are stored already.

Lost is what the server drops without a word: fields that the schema no longer names, versions that it no longer reads.
Counted in is what it keeps but would no longer take: a value that a narrower type, enum or limit shuts out, which a
typed reader cannot decode either. Wider schemas, new optional fields, other defaults and descriptions cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, cast

from opsdk.types import Json, JsonObject

__all__ = ["crd_losses"]

_OPEN: Final = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_LIST_TYPE: Final = "x-kubernetes-list-type"
_LIST_KEYS: Final = "x-kubernetes-list-map-keys"
_META: Final = frozenset({"apiVersion", "kind", "metadata"})
_LOWER: Final = ("minimum", "minLength", "minItems", "minProperties")
_UPPER: Final = ("maximum", "maxLength", "maxItems", "maxProperties")
_EXACT: Final = ("pattern", "format", "multipleOf", "not", "allOf", "anyOf", "oneOf")
_EITHER: Final = [{"type": "integer"}, {"type": "string"}]
"""What stands at an int-or-string, without meaning more than that."""
_FREE_FORMATS: Final = frozenset({"int64", "double"})
"""Formats that shut nothing out."""


def crd_losses(before: JsonObject, after: JsonObject) -> list[str]:
    """What objects of a CRD may lose when it is changed, one readable line each; empty: nothing.

    CEL rules are not compared: what they shut out is not known without asking the server. Nor is a version that a
    conversion webhook translates compared with another one.

    Args:
        before: The CRD as it is stored, with its status: what versions objects may be stored in is in there.
        after: The CRD as it would be.
    """
    return list(dict.fromkeys(_losses(_object(before.get("spec")), _object(before.get("status")), after)))


def _losses(spec: JsonObject, status: JsonObject, crd: JsonObject) -> Iterator[str]:
    new = _object(crd.get("spec"))
    for key in ("group", "scope"):
        if spec.get(key) != new.get(key):
            yield f"spec.{key}: {spec.get(key)} -> {new.get(key)}: the server never changes it; delete the CRD first"
    names, new_names = _object(spec.get("names")), _object(new.get("names"))
    for key in ("kind", "plural"):
        if names.get(key) != new_names.get(key):
            yield (
                f"spec.names.{key}: {names.get(key)} -> {new_names.get(key)}: objects are stored under the old name; "
                "delete the CRD first"
            )
    versions, new_versions = _versions(spec), _versions(new)
    stored = [str(name) for name in _list(status.get("storedVersions"))]
    for name, version in versions.items():
        if name in new_versions:
            continue
        if name in stored:
            yield (
                f"version {name}: removed, and objects may be stored in it (status.storedVersions); keep it with "
                "served=False until every object has been written again"
            )
        elif version.get("served"):
            yield f"version {name}: removed while it is served; first keep it with served=False"
    for name, version in versions.items():
        if name in new_versions:
            yield from _schema_losses(f"version {name}", version, new_versions[name])
    storage = next((name for name, version in new_versions.items() if version.get("storage")), None)
    conversion = _object(new.get("conversion") or spec.get("conversion"))
    if storage is None or conversion.get("strategy") == "Webhook":
        return
    # Without a webhook what is stored in one version is read as it is in another, and cut to that one's schema.
    for name in stored or [name for name, version in versions.items() if version.get("storage")]:
        if name in versions and name != storage:
            yield from _schema_losses(f"stored as {name}, read as {storage}", versions[name], new_versions[storage])


def _versions(spec: JsonObject) -> dict[str, JsonObject]:
    return {str(version.get("name")): version for version in map(_object, _list(spec.get("versions")))}


def _schema_losses(where: str, before: JsonObject, after: JsonObject) -> Iterator[str]:
    old = _object(_object(before.get("schema")).get("openAPIV3Schema"))
    new = _object(_object(after.get("schema")).get("openAPIV3Schema"))
    if _object(before.get("subresources")).get("status") is not None and "status" not in _object(
        after.get("subresources")
    ):
        yield f"{where}: the status subresource is removed: writers of status would overwrite spec"
    for line in _compare("", old, new):
        yield f"{where}: {line}"


def _compare(path: str, old: JsonObject, new: JsonObject) -> Iterator[str]:
    at = path or "the object"
    old_types, new_types = _types(old), _types(new)
    if not _fits(old_types, new_types):
        yield f"{at}: {_type_text(old_types)} -> {_type_text(new_types)}: values of the old type are no longer valid"
        return
    if old.get("nullable") and not new.get("nullable"):
        yield f"{at}: no longer nullable: nulls are dropped"
    yield from _limits(at, old, new)
    yield from _lists(at, old, new)
    yield from _members(path, old, new)
    old_items, new_items = old.get("items"), new.get("items")
    if isinstance(old_items, Mapping) and isinstance(new_items, Mapping):
        yield from _compare(f"{path}[]", old_items, new_items)


def _members(path: str, old: JsonObject, new: JsonObject) -> Iterator[str]:
    at = path or "the object"
    properties, new_properties = _object(old.get("properties")), _object(new.get("properties"))
    additional, new_additional = old.get("additionalProperties"), new.get("additionalProperties")
    keeps = bool(new.get(_OPEN))
    implied = _META if not path or new.get(_EMBEDDED) else frozenset[str]()
    for name, below in properties.items():
        if not path and name in _META:
            continue
        inner = new_properties.get(name, new_additional)
        if isinstance(inner, Mapping):
            yield from _compare(f"{path}.{name}".lstrip("."), _object(below), inner)
        elif not keeps and inner is not True and name not in implied:
            yield f"{f'{path}.{name}'.lstrip('.')}: removed: values that objects have are dropped"
    if old.get(_OPEN) and not keeps and new_additional is None and "object" in (_types(new) or {"object"}):
        yield f"{at}: no longer keeps fields that the schema does not name: they are dropped"
    if additional is not None and additional is not False and not keeps:
        if isinstance(new_additional, Mapping):
            yield from _compare(f"{path}.*".lstrip("."), _object(additional), new_additional)
        elif new_additional is not True:
            yield f"{at}: no longer a map: keys that the schema does not name are dropped"
    required = set(map(str, _list(old.get("required"))))
    for name in map(str, _list(new.get("required"))):
        if name not in required and "default" not in _object(new_properties.get(name)):
            yield f"{path}.{name}".lstrip(".") + ": required now: objects without it are no longer valid"


def _limits(at: str, old: JsonObject, new: JsonObject) -> Iterator[str]:
    enum, new_enum = old.get("enum"), new.get("enum")
    if new_enum is not None:
        if enum is None:
            yield f"{at}: only {_texts(_list(new_enum))} from now on: other values are no longer valid"
        elif gone := [value for value in _list(enum) if value not in _list(new_enum)]:
            yield f"{at}: no longer {_texts(gone)}: objects that say so are no longer valid"
    for keys, tighter in ((_LOWER, 1), (_UPPER, -1)):
        for key in keys:
            limit, new_limit = old.get(key), new.get(key)
            if not isinstance(new_limit, int | float):
                continue
            exclusive = f"exclusive{key.capitalize()}"
            if (
                not isinstance(limit, int | float)
                or (new_limit - limit) * tighter > 0
                or (new_limit == limit and new.get(exclusive) and not old.get(exclusive))
            ) and not (key in _LOWER[1:] and new_limit == 0):
                yield f"{at}: {key} {_text(limit)} -> {_text(new_limit)}: values beyond it are no longer valid"
    for key in _EXACT:
        limit, new_limit = old.get(key), new.get(key)
        if new_limit is None or new_limit == limit or (key == "format" and new_limit in _FREE_FORMATS):
            continue
        if key == "anyOf" and new_limit == _EITHER:
            continue
        yield f"{at}: {key} {_text(limit)} -> {_text(new_limit)}: values that do not fit are no longer valid"


def _lists(at: str, old: JsonObject, new: JsonObject) -> Iterator[str]:
    kind, new_kind = old.get(_LIST_TYPE, "atomic"), new.get(_LIST_TYPE, "atomic")
    if new_kind != "atomic" and (kind, old.get(_LIST_KEYS)) != (new_kind, new.get(_LIST_KEYS)):
        keys = ", ".join(map(str, _list(new.get(_LIST_KEYS))))
        told = f"by {keys}" if keys else "by value"
        yield f"{at}: items are told apart {told} now: lists with repetitions are no longer valid"


def _types(schema: JsonObject) -> frozenset[str]:
    """The types that a schema takes; empty: all."""
    if schema.get(_INT_OR_STRING):
        return frozenset({"integer", "string"})
    named = schema.get("type")
    return frozenset({named} if isinstance(named, str) else ())


def _fits(old: frozenset[str], new: frozenset[str]) -> bool:
    if not new:
        return True
    if not old:
        return False
    return all(each in new or (each == "integer" and "number" in new) for each in old)


def _type_text(types: frozenset[str]) -> str:
    return " or ".join(sorted(types)) or "anything"


def _text(value: Json) -> str:
    return "(none)" if value is None else str(value)


def _texts(values: Sequence[Json]) -> str:
    return ", ".join(map(str, values))


def _object(value: Json) -> JsonObject:
    return value if isinstance(value, Mapping) else {}


def _list(value: Json) -> Sequence[Json]:
    return cast("Sequence[Json]", value) if isinstance(value, list | tuple) else ()
