"""What a field manager owns of an object, by `metadata.managedFields`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final, Protocol, final

import msgspec
from lightkube.models.meta_v1 import ObjectMeta

from opsdk.errors import ConflictError
from opsdk.patches import is_array, is_object, same
from opsdk.types import Json, JsonObject

__all__ = ["Contest", "applied_fields", "contests", "handed_over", "unwanted"]


class _Entry(Protocol):
    """`ManagedFieldsEntry`, typed: lightkube declares its fields as a bare `dict`."""

    @property
    def manager(self) -> str | None: ...
    @property
    def operation(self) -> str | None: ...
    @property
    def subresource(self) -> str | None: ...
    @property
    def apiVersion(self) -> str | None: ...  # noqa: N802 - Kubernetes' spelling
    @property
    def fieldsV1(self) -> JsonObject | None: ...  # noqa: N802 - Kubernetes' spelling


def applied_fields(metadata: ObjectMeta, manager: str) -> JsonObject | None:
    """The fields that `manager` owns by server-side apply; None when it never applied, or nobody kept track."""
    for entry in _entries(metadata):
        if entry.manager == manager and entry.operation == "Apply" and not entry.subresource:
            return entry.fieldsV1
    return None


def _entries(metadata: ObjectMeta) -> Sequence[_Entry]:
    return metadata.managedFields or ()


def handed_over(metadata: ObjectMeta, manager: str) -> list[JsonObject] | None:
    """The entries after `manager` has been given by server-side apply what it owns by updates; None: it owns none so.

    What an update owned is owned for good, unless it is handed over: an apply that no longer names a field takes it
    away only if nobody else owns it, and `manager` by updates is somebody else.
    """
    entries = _entries(metadata)
    former = [entry for entry in entries if _updated_by(entry, manager)]
    if not former:
        return None
    fields: JsonObject = applied_fields(metadata, manager) or {}
    for entry in former:
        fields = _united(fields, entry.fieldsV1 or {})
    # The version in which the fields are written down: all of them are ours, and we speak one.
    ours: JsonObject = {
        "manager": manager,
        "operation": "Apply",
        "apiVersion": former[-1].apiVersion,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    others = [
        entry
        for entry in entries
        if not _updated_by(entry, manager)
        and not (entry.manager == manager and entry.operation == "Apply" and not entry.subresource)
    ]
    rest: list[JsonObject] = msgspec.json.decode(msgspec.json.encode(others))
    return [{name: value for name, value in entry.items() if value is not None} for entry in (ours, *rest)]


def _updated_by(entry: _Entry, manager: str) -> bool:
    return entry.manager == manager and entry.operation == "Update" and not entry.subresource


def _united(one: JsonObject, other: JsonObject) -> JsonObject:
    result = dict(one)
    for key, inner in other.items():
        mine = result.get(key)
        result[key] = _united(mine, inner) if is_object(mine) and is_object(inner) else inner
    return result


@final
class Contest(msgspec.Struct, frozen=True):
    """One field that another manager owns, with another value.

    Args:
        field: Its path, as the server writes it.
        manager: The name of the other one.
        applied: Whether it owns the field by server-side apply, and so means to keep it; else somebody just wrote it.
    """

    field: str
    manager: str
    applied: bool


_CONFLICT: Final = re.compile(r'conflict with "(?P<manager>[^"]*)"(?: with subresource "[^"]*")?(?P<how> using .*)?')


def contests(error: ConflictError) -> list[Contest]:
    """The fields over which an apply was refused; empty when it was refused for another reason."""
    found: list[Contest] = []
    for cause in error.causes:
        match = _CONFLICT.match(cause.message) if cause.reason == "FieldManagerConflict" else None
        if match is not None:
            # Only of those who update does the server say by which version they did it.
            found.append(Contest(cause.field, match["manager"], applied=match["how"] is None))
    return found


def unwanted(fields: JsonObject, desired: Json) -> Iterator[str]:
    """The owned fields that reach further than `desired`: what we once applied, and do not want any more."""
    for key, inner in fields.items():
        if key == ".":
            continue
        found, value = _step(key, desired)
        name = _shown(key)
        if not found:
            yield name
        elif is_object(inner):
            for below in unwanted(inner, value):
                yield f"{name}{below}" if below.startswith("[") else f"{name}.{below}"


def _shown(key: str) -> str:
    kind, _, rest = key.partition(":")
    if kind == "f":
        return rest
    if kind == "k":
        keys: Json = json.loads(rest)
        if is_object(keys):
            return f"[{','.join(str(value) for value in keys.values())}]"
    return f"[{rest}]"


def _step(key: str, desired: Json) -> tuple[bool, Json]:
    """Whether a path element of the FieldsV1 format leads anywhere in `desired`, and where."""
    kind, _, rest = key.partition(":")
    if kind == "f":
        return (rest in desired, desired.get(rest)) if is_object(desired) else (False, None)
    if not is_array(desired):
        return False, None
    if kind == "i":
        index = int(rest)
        return (True, desired[index]) if index < len(desired) else (False, None)
    wanted: Json = json.loads(rest)
    if kind == "v":
        return any(same(item, wanted) for item in desired), None
    if not is_object(wanted):
        return False, None
    # A key that the desired item leaves out has been filled in by the server: `protocol: TCP`.
    matches = [item for item in desired if is_object(item) and _matches(item, wanted)]
    return (True, max(matches, key=lambda item: sum(name in item for name in wanted))) if matches else (False, None)


def _matches(item: JsonObject, keys: JsonObject) -> bool:
    return all(name not in item or same(item[name], value) for name, value in keys.items())
