"""What codecs say of documents and objects that do not fit."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any, Final, cast

import msgspec

from opsdk.errors import DecodeError, ObjectError
from opsdk.models.resources import ResourceInfo

__all__ = ["document_fault", "message_and_place", "of_msgspec", "unwritable"]


class _Head(msgspec.Struct):
    metadata: Any = None


_head_decoder: Final = msgspec.json.Decoder(_Head)
_AT: Final = re.compile(r"^(?P<message>.*?)(?: - at `\$\.?(?P<path>.*)`)?$", re.DOTALL)


def document_fault(resource: ResourceInfo, raw: bytes, message: str, field: str = "") -> DecodeError:
    """The error for a document, with as much of its name as can be read."""
    metadata: object = None
    with suppress(msgspec.DecodeError):
        metadata = _head_decoder.decode(raw).metadata
    name: object = None
    namespace: object = None
    if isinstance(metadata, dict):
        names = cast("dict[str, object]", metadata)
        name, namespace = names.get("name"), names.get("namespace")
    return DecodeError(
        message,
        kind=resource.kind,
        field=field,
        namespace=namespace if isinstance(namespace, str) else None,
        name=name if isinstance(name, str) else "",
    )


def message_and_place(text: str) -> tuple[str, str]:
    """What msgspec says, and where in the document; the place may be empty."""
    found = _AT.match(text)
    return (text, "") if found is None else (found["message"], found["path"] or "")


def of_msgspec(resource: ResourceInfo, raw: bytes, error: msgspec.DecodeError) -> DecodeError:
    """The error for a document that msgspec refused."""
    if not isinstance(error, msgspec.ValidationError):
        return document_fault(resource, raw, f"not a JSON document: {error}")
    return document_fault(resource, raw, *message_and_place(str(error)))


def unwritable(resource: ResourceInfo, name: str | None, text: str) -> ObjectError:
    """The error for an object that is no JSON."""
    return ObjectError(f"{resource.kind}{f' {name}' if name else ''} cannot be written: {text}")
