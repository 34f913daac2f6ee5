"""Sets of fields, as `managedFields` records them.

A path is a tuple of elements in the spelling of FieldsV1: `f:name` for a field, `k:{…}` for a list item by its keys,
`v:…` for a member of a set, `i:…` for an index.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias, final

import msgspec

from opsdk.testing.apiserver._json import Document, Value, as_object
from opsdk.testing.apiserver._structure import Structure

__all__ = ["Comparison", "Path", "compare", "element_of", "from_fields", "leaves", "remove", "show", "to_fields"]

Path: TypeAlias = "tuple[str, ...]"
"""Where a field is."""

_sorted_json = msgspec.json.Encoder(order="sorted")


@final
@dataclass(slots=True)
class Comparison:
    """How one document differs from another, by the fields that are owned separately."""

    added: set[Path] = field(default_factory=set[Path])
    removed: set[Path] = field(default_factory=set[Path])
    modified: set[Path] = field(default_factory=set[Path])


def to_fields(paths: Iterable[Path]) -> Document:
    """The FieldsV1 document of a set."""
    root: Document = {}
    for path in sorted(paths):
        node = root
        for element in path:
            child = node.get(element)
            if not isinstance(child, dict):
                child = node[element] = {}
            node = child
        node["."] = {}
    _tidy(root)
    return root


def _tidy(node: Document) -> None:
    # A node that has nothing but "." is written as an empty object.
    for element, child in node.items():
        if element != "." and isinstance(child, dict):
            if len(child) == 1 and "." in child:
                child.clear()
            else:
                _tidy(child)


def from_fields(fields: Value) -> set[Path]:
    """The set that a FieldsV1 document stands for."""
    found: set[Path] = set()

    def walk(node: Document, path: Path) -> None:
        for element, child in node.items():
            if element == ".":
                found.add(path)
            elif isinstance(child, dict) and child:
                walk(child, (*path, element))
            else:
                found.add((*path, element))

    walk(as_object(fields), ())
    return found


def element_of(item: Value, structure: Structure, index: int) -> str:
    """How a list's item is addressed."""
    if structure.is_set:
        return f"v:{_sorted_json.encode(item).decode()}"
    if structure.keys and isinstance(item, dict):
        keys: Document = {}
        for key in structure.keys:
            value = item.get(key)
            if value is None:
                value = structure.key_default(key)
            if value is not None:
                keys[key] = value
        return f"k:{_sorted_json.encode(keys).decode()}"
    return f"i:{index}"


def leaves(value: Value, structure: Structure) -> set[Path]:
    """All fields that a document sets."""
    found: set[Path] = set()
    _collect(value, structure, (), found)
    return found


def _collect(value: Value, structure: Structure, path: Path, found: set[Path]) -> None:
    if isinstance(value, dict) and value and not structure.atomic:
        for name, child in value.items():
            below = (*path, f"f:{name}")
            if child is None or child == {} or structure.is_map_key(name):
                found.add(below)
            _collect(child, structure.field(name), below, found)
    elif isinstance(value, list) and value and (structure.keys or structure.is_set):
        for index, child in enumerate(value):
            below = (*path, element_of(child, structure, index))
            found.add(below)
            if structure.keys:
                _collect(child, structure.item, below, found)
    elif path:
        found.add(path)


def compare(old: Value, new: Value, structure: Structure) -> Comparison:
    """What differs between two documents."""
    found = Comparison()
    _compare(old, new, structure, (), found, exists=(True, True))
    found.added.discard(())
    found.removed.discard(())
    return found


def _compare(
    old: Value, new: Value, structure: Structure, path: Path, found: Comparison, *, exists: tuple[bool, bool]
) -> None:
    # `exists`: whether what this is a field of is there, before and after.
    if old == new and type(old) is type(new):
        return
    if structure.always_there:
        if old is None and exists[0]:
            old = _empty(new)
        elif new is None and exists[1]:
            new = _empty(old)
        if old == new:
            return
    inner = new if new is not None else old
    there = (old is not None, new is not None)
    if isinstance(inner, dict) and not structure.atomic and (old or new):
        before, after = as_object(old), as_object(new)
        for name in {**before, **after}:
            _compare(
                before.get(name), after.get(name), structure.field(name), (*path, f"f:{name}"), found, exists=there
            )
        if old is not None and not isinstance(old, dict):
            found.modified.add(path)
    elif isinstance(inner, list) and (structure.keys or structure.is_set) and (old or new):
        was, now = _by_element(old, structure), _by_element(new, structure)
        for element in {**was, **now}:
            _compare(was.get(element), now.get(element), structure.item, (*path, element), found, exists=there)
    elif old is not None and new is not None:
        found.modified.add(path)
    if old is None:
        found.added.add(path)
    elif new is None:
        found.removed.add(path)


def _empty(like: Value) -> Value:
    return {} if isinstance(like, dict) else [] if isinstance(like, list) else None


def _by_element(value: Value, structure: Structure) -> dict[str, Value]:
    if not isinstance(value, list):
        return {}
    return {element_of(item, structure, index): item for index, item in enumerate(value)}


def remove(value: Value, paths: set[Path], structure: Structure, path: Path = ()) -> None:
    """Take fields and list items out of a document, in place, each with all that is below it."""
    if isinstance(value, dict):
        for name in list(value):
            below = (*path, f"f:{name}")
            if below in paths:
                del value[name]
            else:
                remove(value[name], paths, structure.field(name), below)
    elif isinstance(value, list) and (structure.keys or structure.is_set):
        kept: list[Value] = []
        for index, item in enumerate(value):
            below = (*path, element_of(item, structure, index))
            if below not in paths:
                remove(item, paths, structure.item, below)
                kept.append(item)
        value[:] = kept


def show(path: Path) -> str:
    """A path as conflicts name it: `.spec.template.spec.containers[name="web"].image`."""
    parts: list[str] = []
    for element in path:
        kind, _, rest = element.partition(":")
        if kind == "f":
            parts.append(f".{rest}")
        elif kind == "k":
            keys = as_object(msgspec.json.decode(rest.encode()))
            shown = ",".join(f"{key}={_sorted_json.encode(value).decode()}" for key, value in keys.items())
            parts.append(f"[{shown}]")
        elif kind == "v":
            parts.append(f"[={rest}]")
        else:
            parts.append(f"[{rest}]")
    return "".join(parts)
