"""The small part of an object that a cache keeps decoded."""

from __future__ import annotations

import re
from functools import cache
from sys import intern
from typing import Final, final

import msgspec

from opsdk.errors import DecodeError
from opsdk.types import Request

__all__ = ["Header", "OwnerRef", "only_metadata", "read_document"]


@final
class OwnerRef(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One owner reference."""

    uid: str = ""
    kind: str = ""
    name: str = ""
    api_version: str = ""
    controller: bool | None = None

    @property
    def group(self) -> str:
        """The API group that `api_version` names; empty for the core group."""
        group, slash, _ = self.api_version.partition("/")
        return group if slash else ""


@final
class Header(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """What is known of an object without decoding it.

    Not tracked by the garbage collector: it refers to text and other headers only.

    Args:
        name: The name.
        namespace: The namespace; None for a cluster-scoped object.
        uid: Which incarnation of the name.
        resource_version: Which version.
        generation: Of the spec; 0 when the kind has none.
        deletion_timestamp: When deletion was asked for, as the server writes it; None when it was not.
        labels: The labels.
        owners: All owner references.
    """

    name: str
    namespace: str | None = None
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    deletion_timestamp: str | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    owners: tuple[OwnerRef, ...] = msgspec.field(name="ownerReferences", default=())

    @property
    def request(self) -> Request:
        """What a reconciler would be asked to look at."""
        return Request(self.name, self.namespace)

    @property
    def deleting(self) -> bool:
        """Whether deletion was asked for."""
        return self.deletion_timestamp is not None

    @property
    def controller(self) -> OwnerRef | None:
        """The owner that is the controller, if there is one."""
        return next((owner for owner in self.owners if owner.controller), None)

    @property
    def order(self) -> int:
        """The resourceVersion as a number, which grows with every write; 0 when it is none."""
        return order_of(self.resource_version)


class _Metadata(msgspec.Struct, gc=False, rename="camel"):
    """A header and what is cut. A type of its own: what it finds of managedFields keeps the whole page in memory."""

    name: str
    namespace: str | None = None
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    deletion_timestamp: str | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    owners: tuple[OwnerRef, ...] = msgspec.field(name="ownerReferences", default=())
    managed_fields: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)

    def header(self) -> Header:
        return Header(
            name=self.name,
            namespace=self.namespace if self.namespace is None else intern(self.namespace),  # few, in many objects
            uid=self.uid,
            resource_version=self.resource_version,
            generation=self.generation,
            deletion_timestamp=self.deletion_timestamp,
            labels=self.labels,
            owners=self.owners,
        )


class _Scanned(msgspec.Struct, gc=False):
    metadata: _Metadata


class _OnlyMetadata(msgspec.Struct):
    metadata: msgspec.Raw


class _Managed(msgspec.Struct):
    manager: str | None = None
    operation: str | None = None


class _Names(msgspec.Struct):
    name: str | None = None
    namespace: str | None = None


_SCAN: Final = msgspec.json.Decoder(_Scanned)
_ONLY_METADATA: Final = msgspec.json.Decoder(_OnlyMetadata)
_DOCUMENT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_HEADER: Final = msgspec.json.Decoder(Header)
_NAMES: Final = msgspec.json.Decoder(_Names)
_ENTRIES: Final = msgspec.json.Decoder(list[msgspec.Raw])
_MANAGED: Final = msgspec.json.Decoder(_Managed)
_ENCODER: Final = msgspec.json.Encoder()
_NULL: Final = b"null"
_MANAGED_FIELDS: Final = b'"managedFields":'
_PLAIN: Final = re.compile(r"[A-Za-z0-9._/ -]*")


def order_of(resource_version: str) -> int:
    """A resourceVersion as a number; 0 when it is none."""
    return int(resource_version) if resource_version.isascii() and resource_version.isdigit() else 0


def read_document(raw: bytes, *, kind: str, keep_manager: str | None = None) -> tuple[Header, bytes]:
    """The header of a document, and the document without managedFields.

    Args:
        raw: The object as the server sent it.
        kind: For errors.
        keep_manager: Whose server-side apply entry stays among the managedFields.

    Raises:
        DecodeError: Its metadata cannot be read.
    """
    # Each object of each list and event comes through here. Servers write no spaces and no nulls where it matters.
    try:
        metadata = _SCAN.decode(raw).metadata
    except msgspec.MsgspecError:
        return _read_slowly(raw, kind, keep_manager)
    managed = bytes(metadata.managed_fields)
    if not managed:
        return metadata.header(), raw
    rest = _without(raw, managed, _kept(managed, keep_manager))
    return _read_slowly(raw, kind, keep_manager) if rest is None else (metadata.header(), rest)


def only_metadata(raw: bytes) -> bytes:
    """A document that `read_document` has read, without all but its metadata: what this process wrote is whole."""
    return b'{"metadata":%b}' % bytes(_ONLY_METADATA.decode(raw).metadata)


def _kept(managed: bytes, keep_manager: str | None) -> bytes:
    """What stays of the managedFields, as JSON; empty: nothing."""
    if keep_manager is None or b"Apply" not in managed or _marker(keep_manager) not in managed:
        return b""
    entries = _applied_by(managed, keep_manager)
    return _ENCODER.encode(entries) if entries else b""


@cache
def _marker(keep_manager: str) -> bytes:
    """What cannot be missing where the manager is named; nothing, when its name may be written in several ways."""
    return f'"{keep_manager}"'.encode() if _PLAIN.fullmatch(keep_manager) else b""


def _without(raw: bytes, managed: bytes, kept: bytes) -> bytes | None:
    """The document with `kept` in the place of its managedFields; None: where those are is not plain to see."""
    begin = raw.find(_MANAGED_FIELDS)  # not within a text: there the quotes would have backslashes
    value = begin + len(_MANAGED_FIELDS)
    end = value + len(managed)
    if begin < 1 or not raw.startswith(managed, value) or raw.find(_MANAGED_FIELDS, value) >= 0:
        return None
    if kept:
        return b"".join((raw[:value], kept, raw[end:]))
    before, after = raw[begin - 1 : begin], raw[end : end + 1]
    if after == b",":
        return raw[:begin] + raw[end + 1 :]
    if after == b"}" and before in {b",", b"{"}:
        return raw[: begin - (before == b",")] + raw[end:]
    return None


def _read_slowly(raw: bytes, kind: str, keep_manager: str | None) -> tuple[Header, bytes]:
    try:
        document = _DOCUMENT.decode(raw)
        metadata = _DOCUMENT.decode(document["metadata"])
    except KeyError:
        raise DecodeError("there is no metadata", kind=kind) from None
    except msgspec.MsgspecError as error:
        raise DecodeError(f"not a JSON object: {error}", kind=kind) from error
    header = _header(document["metadata"], metadata, kind)
    managed = metadata.pop("managedFields", None)
    if managed is None:
        return header, raw
    kept = [] if keep_manager is None else _applied_by(managed, keep_manager)
    if kept:
        metadata["managedFields"] = msgspec.Raw(_ENCODER.encode(kept))
    document["metadata"] = msgspec.Raw(_ENCODER.encode(metadata))
    return header, _ENCODER.encode(document)


def _header(raw: msgspec.Raw, metadata: dict[str, msgspec.Raw], kind: str) -> Header:
    try:
        return _HEADER.decode(raw)
    except msgspec.MsgspecError:
        pass
    # A null is as good as nothing: not for msgspec, so this is the slow way.
    without_nulls = {name: value for name, value in metadata.items() if bytes(value) != _NULL}
    try:
        return _HEADER.decode(_ENCODER.encode(without_nulls))
    except msgspec.MsgspecError as error:
        raise _metadata_error(raw, kind, error) from error


def _applied_by(managed: msgspec.Raw | bytes, manager: str) -> list[msgspec.Raw]:
    try:
        entries = _ENTRIES.decode(managed)
        heads = [_MANAGED.decode(entry) for entry in entries]
    except msgspec.MsgspecError:
        return []
    return [
        entry
        for entry, head in zip(entries, heads, strict=True)
        if head.manager == manager and head.operation == "Apply"
    ]


def _metadata_error(metadata: msgspec.Raw, kind: str, error: msgspec.MsgspecError) -> DecodeError:
    try:
        names = _NAMES.decode(metadata)
    except msgspec.MsgspecError:
        names = _Names()
    return DecodeError(str(error), kind=kind, field="metadata", namespace=names.namespace, name=names.name or "")
