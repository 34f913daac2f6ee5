"""One object in several API versions.

Versions of a custom resource are the same but for their schemas: what the one does not know is cut, what it has
defaults for is filled in.
"""

from __future__ import annotations

from opsdk.testing.apiserver._json import Document, Value, clone, encode
from opsdk.testing.apiserver._kinds import KindInfo
from opsdk.testing.apiserver._store import Stored
from opsdk.testing.apiserver._structural import StructuralSchema
from opsdk.types import JsonObject

__all__ = ["from_storage", "raw_in", "to_storage"]

# core/v1 and events.k8s.io/v1 are the same objects; the fields that are named differently.
_EVENT_FIELDS = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_EVENT_FIELDS_BACK = {new: old for old, new in _EVENT_FIELDS.items()}


def from_storage(info: KindInfo, document: Document) -> Document:
    """A stored document as `info`'s version shows it; the top level is new, the rest is shared."""
    if info.api_version == info.storage_api_version:
        return document
    shown: Document = {"apiVersion": info.api_version, "kind": info.kind}
    names = _EVENT_FIELDS if info.group == "events.k8s.io" else {}
    shown.update(_renamed(document, names))
    for name in ("reportingController", "reportingInstance"):
        if names and shown.get(name) == "":
            del shown[name]
    return _by_schema(shown, info.schema)


def to_storage(info: KindInfo, document: Document) -> Document:
    """A document of `info`'s version as it is kept; the top level is new, the rest is shared."""
    if info.api_version == info.storage_api_version:
        return document
    kept: Document = {"apiVersion": info.storage_api_version, "kind": info.kind}
    names = _EVENT_FIELDS_BACK if info.group == "events.k8s.io" else {}
    kept.update(_renamed(document, names))
    return _by_schema(kept, info.storage_schema)


def _by_schema(document: Document, schema: JsonObject | None) -> Document:
    if schema is None:
        return document
    read = StructuralSchema(schema)
    copy: Document = {**document, **{name: clone(value) for name, value in document.items() if name != "metadata"}}
    read.prune(copy)
    read.default(copy)
    return copy


def _renamed(document: Document, names: dict[str, str]) -> dict[str, Value]:
    return {names.get(name, name): value for name, value in document.items() if name not in {"apiVersion", "kind"}}


def raw_in(info: KindInfo, stored: Stored) -> bytes:
    """A stored object's bytes as `info`'s version shows them."""
    if info.api_version == info.storage_api_version:
        return stored.raw
    return encode(from_storage(info, stored.document()))
