"""What a field manager owns of an object, by `metadata.managedFields`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Protocol

from lightkube.models.meta_v1 import ObjectMeta

from opsdk.patches import is_array, is_object, same
from opsdk.types import Json, JsonObject

__all__ = ["applied_fields", "owns_unwanted"]


class _Entry(Protocol):
    """`ManagedFieldsEntry`, typed: lightkube declares its fields as a bare `dict`."""

    @property
    def manager(self) -> str | None: ...
    @property
    def operation(self) -> str | None: ...
    @property
    def subresource(self) -> str | None: ...
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


def owns_unwanted(fields: JsonObject, desired: Json) -> bool:
    """Whether the owned fields reach further than `desired`: something that we once applied is not wanted any more."""
    for key, inner in fields.items():
        if key == ".":
            continue
        found, value = _step(key, desired)
        if not found or (is_object(inner) and owns_unwanted(inner, value)):
            return True
    return False


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
