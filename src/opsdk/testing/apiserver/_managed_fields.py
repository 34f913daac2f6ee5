"""Who owns which field: `metadata.managedFields`, and server-side apply, which is built on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, final

from opsdk.testing.apiserver._field_sets import (
    Path,
    compare,
    element_of,
    from_fields,
    leaves,
    remove,
    show,
    to_fields,
)
from opsdk.testing.apiserver._json import Document, Value, as_list, as_object, as_text, clone
from opsdk.testing.apiserver._status import apply_conflict
from opsdk.testing.apiserver._structure import Structure

__all__ = ["Manager", "Operation", "apply", "track", "without_managed_fields"]

Operation: TypeAlias = Literal["Apply", "Update"]
"""What a manager did to own its fields."""

# What belongs to the server or to every manager alike.
_UNOWNED: frozenset[Path] = frozenset(
    {
        ("f:apiVersion",),
        ("f:kind",),
        ("f:metadata",),
        *(
            ("f:metadata", f"f:{name}")
            for name in (
                "name",
                "namespace",
                "creationTimestamp",
                "selfLink",
                "uid",
                "clusterName",
                "generation",
                "managedFields",
                "resourceVersion",
                "deletionTimestamp",
                "deletionGracePeriodSeconds",
            )
        ),
    }
)


@final
@dataclass(frozen=True, slots=True)
class Manager:
    """Who writes, by what operation, through which version and subresource."""

    name: str
    operation: Operation
    api_version: str
    subresource: str = ""


_Identity: TypeAlias = "tuple[str, str, str, str]"


@final
@dataclass(slots=True)
class _Entry:
    manager: str
    operation: str
    api_version: str
    subresource: str
    time: str
    paths: set[Path]

    @property
    def identity(self) -> _Identity:
        version = "" if self.operation == "Apply" else self.api_version
        return self.manager, self.operation, version, self.subresource

    def described(self) -> str:
        text = f'"{self.manager}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        if self.operation == "Update":
            text += f" using {self.api_version}"
        return text

    def document(self) -> Document:
        document: Document = {"manager": self.manager, "operation": self.operation, "apiVersion": self.api_version}
        if self.time:
            document["time"] = self.time
        document["fieldsType"] = "FieldsV1"
        document["fieldsV1"] = to_fields(self.paths)
        if self.subresource:
            document["subresource"] = self.subresource
        return document


def _identity(manager: Manager) -> _Identity:
    version = "" if manager.operation == "Apply" else manager.api_version
    return manager.name, manager.operation, version, manager.subresource


def _read(document: Document) -> dict[_Identity, _Entry]:
    entries: dict[_Identity, _Entry] = {}
    for value in as_list(as_object(document.get("metadata")).get("managedFields")):
        raw = as_object(value)
        entry = _Entry(
            manager=as_text(raw.get("manager")),
            operation=as_text(raw.get("operation")),
            api_version=as_text(raw.get("apiVersion")),
            subresource=as_text(raw.get("subresource")),
            time=as_text(raw.get("time")),
            paths=from_fields(raw.get("fieldsV1")),
        )
        entries[entry.identity] = entry
    return entries


def _write(document: Document, entries: dict[_Identity, _Entry]) -> None:
    ordered = sorted(
        (entry for entry in entries.values() if entry.paths),
        key=lambda entry: (entry.operation, entry.time, entry.manager, entry.api_version, entry.subresource),
    )
    metadata = as_object(document["metadata"])
    if ordered:
        metadata["managedFields"] = [entry.document() for entry in ordered]
    else:
        metadata.pop("managedFields", None)


def without_managed_fields(document: Document) -> Document:
    """The document as changes are compared: without managedFields and resourceVersion, sharing all else."""
    metadata = {
        key: value
        for key, value in as_object(document.get("metadata")).items()
        if key not in {"managedFields", "resourceVersion"}
    }
    return {**document, "metadata": metadata}


def track(before: Document | None, after: Document, structure: Structure, manager: Manager, *, time: str) -> None:
    """Record in `after` who owns what, after a create, replace or patch by `manager`.

    A client that sends an empty list of managedFields resets them; one that sends another list has it taken at its
    word, before what the write itself changes.
    """
    sent = as_object(after["metadata"]).get("managedFields")
    reset = before is not None and isinstance(sent, list) and not [entry for entry in sent if entry]
    entries = {} if before is None or (reset and sent is not None) else _read(after if sent else before)
    difference = compare(
        None if before is None else without_managed_fields(before), without_managed_fields(after), structure
    )
    added = difference.added - _UNOWNED
    modified = difference.modified - _UNOWNED
    removed = difference.removed
    if added or modified or removed:
        identity = _identity(manager)
        gone = added | modified | removed
        for entry in entries.values():
            if entry.identity != identity:
                entry.paths -= gone
        own = entries.get(identity)
        if own is None:
            own = _Entry(manager.name, manager.operation, manager.api_version, manager.subresource, time, set())
        paths = (own.paths - removed) | modified | added
        if paths != own.paths:
            entries[identity] = _Entry(
                manager.name, manager.operation, manager.api_version, manager.subresource, time, paths
            )
    _write(after, entries)


def apply(
    live: Document | None,
    config: Document,
    structure: Structure,
    manager: Manager,
    *,
    time: str,
    force: bool,
    ignored: frozenset[str] = frozenset(),
) -> Document:
    """Server-side apply: what the object becomes, with ownership recorded.

    Args:
        live: The object as it is; None when there is none yet.
        config: What the manager wants to own, as it sent it.
        force: Take fields over from others instead of refusing.
        ignored: Top-level fields that this endpoint does not write.

    Raises:
        StatusError: 409, others own fields and want other values; they and the fields are named.
    """
    base: Document = {} if live is None else without_managed_fields(live)
    entries = {} if live is None else _read(live)
    identity = _identity(manager)
    wanted: Document = {name: value for name, value in config.items() if name not in ignored}
    merged = as_object(_merge(base, wanted, structure))
    new_paths = leaves(wanted, structure) - _UNOWNED
    last = entries.get(identity)
    entries[identity] = _Entry(manager.name, "Apply", manager.api_version, manager.subresource, time, new_paths)
    if last is not None and last.paths:
        _prune(merged, last.paths, entries, structure)
    difference = compare(base, merged, structure)
    changed = (difference.modified | difference.added) - _UNOWNED
    conflicts = [
        (entry.described(), show(path))
        for entry in sorted(entries.values(), key=lambda entry: entry.identity)
        if entry.identity != identity
        for path in sorted(entry.paths & changed)
    ]
    if conflicts and not force:
        raise apply_conflict(conflicts)
    for entry in entries.values():
        if entry.identity != identity:
            entry.paths -= changed | difference.removed
    own = entries[identity]
    if last is not None and last.paths == own.paths and last.api_version == own.api_version:
        own.time = last.time
    _write(merged, entries)
    return merged


def _prune(merged: Document, last: set[Path], entries: dict[_Identity, _Entry], structure: Structure) -> None:
    # What this manager applied before and no longer does goes, unless somebody (also itself, now) owns it or
    # something below it. Fields above what it owned count as its own too.
    owned: set[Path] = set()
    for entry in entries.values():
        for path in entry.paths:
            for length in range(1, len(path) + 1):
                owned.add(path[:length])
    candidates: set[Path] = set(last)
    for path in last:
        for length in range(1, len(path)):
            if path[length - 1].startswith("f:"):
                candidates.add(path[:length])
    remove(merged, candidates - owned - _UNOWNED, structure)


def _merge(live: Value, config: Value, structure: Structure) -> Value:
    """The live value with the configuration laid over it; shares nothing with the configuration."""
    if isinstance(config, dict) and isinstance(live, dict) and not structure.atomic:
        merged = dict(live)
        for name, value in config.items():
            merged[name] = _merge(live.get(name), value, structure.field(name))
        return merged
    if isinstance(config, list) and isinstance(live, list) and (structure.keys or structure.is_set):
        return _merge_list(live, config, structure)
    return clone(config) if isinstance(config, dict | list) else config


def _merge_list(live: list[Value], config: list[Value], structure: Structure) -> list[Value]:
    # Items keep the order that the configuration gives them; live items that it does not name keep their place.
    was = {element_of(item, structure, index): item for index, item in enumerate(live)}
    now = {element_of(item, structure, index): item for index, item in enumerate(config)}
    left = list(was)
    merged: list[Value] = []
    for element, item in now.items():
        while left and left[0] not in now:
            merged.append(was[left.pop(0)])
        if element in left:
            left.remove(element)
        merged.append(_merge(was.get(element), item, structure.item))
    merged.extend(was[element] for element in left if element not in now)
    return merged
