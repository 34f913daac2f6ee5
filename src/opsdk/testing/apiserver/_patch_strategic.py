"""Strategic merge patch: JSON merge patch that knows which lists merge by key. Built-in kinds only."""

from __future__ import annotations

from typing import Final

from opsdk.testing.apiserver._json import Document, Value, as_list, as_object, as_text
from opsdk.testing.apiserver._status import StatusError, bad_request
from opsdk.testing.apiserver._structure import BuiltinStructure

__all__ = ["strategic_merge"]

_DIRECTIVE: Final = "$patch"
_RETAIN: Final = "$retainKeys"
_ORDER: Final = "$setElementOrder/"
_DELETE_PRIMITIVE: Final = "$deleteFromPrimitiveList/"


def strategic_merge(target: Document, patch: Document, structure: BuiltinStructure) -> Document:
    """The target with the patch laid over it; the target is changed in place.

    Raises:
        StatusError: 400, a directive is used in the wrong way.
    """
    directive = patch.get(_DIRECTIVE)
    if directive == "replace":
        return {name: _plain(value) for name, value in patch.items() if name != _DIRECTIVE}
    if directive == "delete":
        return {}
    if directive is not None and directive != "merge":
        raise bad_request(f"Unknown patch type: {as_text(directive)} found in a patch map")
    if _RETAIN in patch:
        _retain(target, patch)
    for name, value in patch.items():
        if name.startswith(_DELETE_PRIMITIVE):
            field = name.removeprefix(_DELETE_PRIMITIVE)
            gone = as_list(value)
            kept: list[Value] = [entry for entry in as_list(target.get(field)) if entry not in gone]
            target[field] = kept
        elif not name.startswith("$"):
            _merge_field(target, name, value, structure.field(name))
    for name, value in patch.items():
        if name.startswith(_ORDER):
            field = name.removeprefix(_ORDER)
            if isinstance(target.get(field), list):
                target[field] = _ordered(as_list(target[field]), as_list(value), structure.field(field).merge_key)
    return target


def _merge_field(target: Document, name: str, value: Value, structure: BuiltinStructure) -> None:
    if value is None:
        target.pop(name, None)
        return
    current = target.get(name)
    if isinstance(value, dict):
        if value.get(_DIRECTIVE) == "delete":
            target.pop(name, None)
        elif structure.strategy == "replace":
            target[name] = _plain(value)
        else:
            target[name] = strategic_merge(current if isinstance(current, dict) else {}, value, structure)
    elif isinstance(value, list) and "merge" in structure.strategy.split(","):
        target[name] = _merge_list(as_list(current), value, structure)
    else:
        target[name] = _plain(value)


def _retain(target: Document, patch: Document) -> None:
    keys = as_list(patch[_RETAIN])
    for name in patch:
        if not name.startswith("$") and name not in keys:
            raise bad_request("the fields in the patch are not in the list of the $retainKeys directive")
    for name in list(target):
        if name not in keys:
            del target[name]


def _merge_list(current: list[Value], patch: list[Value], structure: BuiltinStructure) -> list[Value]:
    key = structure.merge_key
    merged: list[Value] = list(current)
    if not key:
        merged.extend(value for value in patch if value not in merged)
        return merged
    items = [as_object(item) for item in patch]
    if any(item.get(_DIRECTIVE) == "replace" for item in items):
        return [_plain(item) for item in items if set(item) != {_DIRECTIVE}]
    for item in items:
        if key not in item:
            # The server has no code for this one and calls it its own error.
            raise StatusError(500, "", f"map: {_go_map(item)} does not contain declared merge key: {key}")
        found = next((index for index, entry in enumerate(merged) if as_object(entry).get(key) == item[key]), None)
        if item.get(_DIRECTIVE) == "delete":
            merged = [entry for entry in merged if as_object(entry).get(key) != item[key]]
        elif found is None:
            merged.append(strategic_merge({}, item, structure.item))
        else:
            merged[found] = strategic_merge(as_object(merged[found]), item, structure.item)
    return merged


def _go_map(value: Value) -> str:
    """A value as Go prints it."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{name}:{_go_map(child)}' for name, child in sorted(value.items()))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(_go_map, value))}]"
    return "<nil>" if value is None else str(value)


def _ordered(items: list[Value], order: list[Value], key: str) -> list[Value]:
    """Items in the order that the patch asks for; those it does not name stay behind the one they followed."""
    wanted = [entry.get(key) if isinstance(entry, dict) and key else entry for entry in order]

    def name_of(item: Value) -> Value:
        return item.get(key) if isinstance(item, dict) and key else item

    named = sorted((item for item in items if name_of(item) in wanted), key=lambda item: wanted.index(name_of(item)))
    result: list[Value] = []
    queue = list(named)
    for item in items:
        if name_of(item) in wanted:
            result.append(queue.pop(0))
        else:
            result.append(item)
    return result


def _plain(value: Value) -> Value:
    """The value without directives."""
    if isinstance(value, dict):
        return {name: _plain(child) for name, child in value.items() if not name.startswith("$") and child is not None}
    if isinstance(value, list):
        return [_plain(child) for child in value]
    return value
