"""From documents of lists and watches to objects, one at a time or a page at once."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, Generic, Literal, final

import msgspec
from lightkube.models.meta_v1 import ManagedFieldsEntry, ObjectMeta
from typing_extensions import TypeVar

from opsdk.client._documents import Documents, head_of
from opsdk.client._shared_fields import SharedFields
from opsdk.errors import DecodeError
from opsdk.models import Codec, codec_of, is_metadata_only
from opsdk.models.families import is_custom_resource
from opsdk.protocols import KubeObject, Undecodable
from opsdk.types import Json

__all__ = ["ObjectDecoder"]

T = TypeVar("T", bound=KubeObject)

EventType = Literal["ADDED", "MODIFIED", "DELETED"]


class _Entry(msgspec.Struct):
    """One of `managedFields`; `fieldsV1` is by far the largest part of it."""

    api_version: str | None = msgspec.field(name="apiVersion", default=None)
    fields_type: str | None = msgspec.field(name="fieldsType", default=None)
    fields: msgspec.Raw = msgspec.field(name="fieldsV1", default_factory=lambda: msgspec.Raw(b"null"))
    manager: str | None = None
    operation: str | None = None
    subresource: str | None = None
    time: datetime | None = None


_PARTS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENTRIES: Final = msgspec.json.Decoder(list[_Entry])
_FIELDS: Final = msgspec.json.Decoder(dict[str, Any])
_ENCODER: Final = msgspec.json.Encoder()


@final
class ObjectDecoder(Generic[T]):
    """Decodes documents of one kind and remembers them.

    Args:
        kind: The objects' class.
        documents: Where the documents are remembered.
    """

    def __init__(self, kind: type[T], documents: Documents) -> None:
        self._codec: Codec[T] = codec_of(kind)
        # What is written later is laid over what is remembered, which therefore must be whole.
        self._documents = Documents(max_bytes=0) if is_metadata_only(kind) else documents
        # Generic resources and classes with a codec of their own hold their metadata as they please.
        self._has_struct_metadata = issubclass(kind, msgspec.Struct) or is_custom_resource(kind)

    def decode(self, event: EventType, raw: bytes) -> T | Undecodable:
        """One object, or what is wrong with it."""
        try:
            obj = self._codec.decode(raw)
        except DecodeError as error:
            return Undecodable(event, _metadata(raw), error)
        if event != "DELETED" and obj.metadata is not None:
            self._documents.put(obj.metadata.uid, obj.metadata.resourceVersion, raw)
        return obj

    def decode_page(self, items: Iterable[bytes]) -> list[T]:
        """All objects of a page.

        Two things make this several times cheaper than decoding one by one. The collector rests meanwhile: nothing
        of a page is garbage, and looking for some takes longer than decoding. And what is equal among the objects'
        `managedFields`, which is half of an object otherwise, is made once and shared (see `SharedFields`).

        Raises:
            DecodeError: One of them does not fit its model.
        """
        shared: dict[bytes, SharedFields] = {}
        with _collector_at_rest():
            return [self._decode_sharing(raw, shared) for raw in items]

    def _decode_sharing(self, raw: bytes, shared: dict[bytes, SharedFields]) -> T:
        if not self._has_struct_metadata:
            obj = self._codec.decode(raw)
            self._documents.put(*head_of(raw), raw)
            return obj
        obj, entries = self._without_managed_fields(raw, shared)
        metadata = obj.metadata
        if metadata is not None:
            if entries:
                metadata.managedFields = entries
            self._documents.put(metadata.uid, metadata.resourceVersion, raw)
        return obj

    def _without_managed_fields(
        self, raw: bytes, shared: dict[bytes, SharedFields]
    ) -> tuple[T, list[ManagedFieldsEntry] | None]:
        """The object as it is without them, and them."""
        try:
            document = _PARTS.decode(raw)
            metadata = _PARTS.decode(document["metadata"])
            managed = metadata.pop("managedFields")
            entries = [_shared(entry, shared) for entry in _ENTRIES.decode(managed)]
        except (msgspec.MsgspecError, KeyError):
            return self._codec.decode(raw), None  # there are none, or the error is the codec's to explain
        document["metadata"] = msgspec.Raw(_ENCODER.encode(metadata))
        obj = self._codec.decode(_ENCODER.encode(document))
        if type(obj.metadata) is not ObjectMeta:  # a class of the user's own with other metadata
            return self._codec.decode(raw), None
        return obj, entries


def _shared(entry: _Entry, shared: dict[bytes, SharedFields]) -> ManagedFieldsEntry:
    raw = bytes(entry.fields)
    fields = shared.get(raw)
    if fields is None and raw != b"null":
        fields = shared[raw] = SharedFields(_FIELDS.decode(raw))
    return ManagedFieldsEntry(
        apiVersion=entry.api_version,
        fieldsType=entry.fields_type,
        fieldsV1=fields,
        manager=entry.manager,
        operation=entry.operation,
        subresource=entry.subresource,
        time=entry.time,
    )


@contextmanager
def _collector_at_rest() -> Generator[None]:
    """Put the garbage collector off, if it is on. Never across an `await`."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class _WithMetadata(msgspec.Struct):
    metadata: ObjectMeta


def _metadata(raw: bytes) -> ObjectMeta | None:
    """As much of an object's metadata as can be read."""
    try:
        return msgspec.json.decode(raw, type=_WithMetadata).metadata
    except msgspec.MsgspecError:
        pass
    try:
        document: Json = msgspec.json.decode(raw)
    except msgspec.MsgspecError:
        return None
    found = document.get("metadata") if isinstance(document, Mapping) else None
    if not isinstance(found, Mapping):
        return None
    texts = {name: value for name, value in found.items() if isinstance(value, str)}
    return ObjectMeta(
        name=texts.get("name"),
        namespace=texts.get("namespace"),
        uid=texts.get("uid"),
        resourceVersion=texts.get("resourceVersion"),
    )
