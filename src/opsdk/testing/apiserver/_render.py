"""Objects and lists as bytes, in the form that the client asked for."""

from __future__ import annotations

from collections.abc import Sequence

from opsdk.testing.apiserver._calls import Rendering
from opsdk.testing.apiserver._json import Document, as_object, decode, encode
from opsdk.testing.apiserver._kinds import KindInfo
from opsdk.testing.apiserver._store import Stored
from opsdk.testing.apiserver._tables import render_table
from opsdk.testing.apiserver._versions import raw_in
from opsdk.types import JsonObject

__all__ = ["render_document", "render_list", "render_object"]


def render_object(info: KindInfo, stored: Stored, rendering: Rendering) -> bytes:
    """One stored object."""
    raw = raw_in(info, stored)
    if rendering.form == "object":
        return raw
    return render_document(info, as_object(decode(raw)), rendering)


def render_document(info: KindInfo, document: Document, rendering: Rendering) -> bytes:
    """One object that is at hand as a document."""
    match rendering.form:
        case "object":
            return encode(document)
        case "partial":
            return encode(_partial(document))
        case "table":
            metadata = as_object(document.get("metadata"))
            return encode(_table(info, [document], {"resourceVersion": metadata.get("resourceVersion")}, rendering))


def render_list(info: KindInfo, items: Sequence[Stored], metadata: Document, rendering: Rendering) -> bytes:
    """A list of stored objects."""
    match rendering.form:
        case "object":
            head = encode({"kind": info.list_kind, "apiVersion": info.api_version, "metadata": metadata})
            return b'%s,"items":[%s]}' % (head[:-1], b",".join(_items(info, items)))
        case "partial":
            partial: Document = {
                "kind": "PartialObjectMetadataList",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata,
                "items": [_partial(as_object(decode(raw_in(info, stored)))) for stored in items],
            }
            return encode(partial)
        case "table":
            documents = [as_object(decode(raw_in(info, stored))) for stored in items]
            return encode(_table(info, documents, metadata, rendering))


def _table(info: KindInfo, documents: list[Document], metadata: Document, rendering: Rendering) -> JsonObject:
    return render_table(info, documents, metadata, include_object=rendering.include_object, headers=rendering.headers)


def _items(info: KindInfo, items: Sequence[Stored]) -> list[bytes]:
    raws = [raw_in(info, stored) for stored in items]
    if not info.builtin:
        return raws
    # Items of built-in lists come without apiVersion and kind, which stand first in every document.
    prefix = len(encode({"apiVersion": info.api_version, "kind": info.kind}))
    return [b"{" + raw[prefix:] if len(raw) > prefix else b"{}" for raw in raws]


def _partial(document: Document) -> Document:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": document.get("metadata"),
    }
