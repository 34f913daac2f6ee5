"""Bodies in Kubernetes' protobuf, which kubectl's `create …` commands and typed Go clients send.

Only requests are read: every such client also takes JSON, so answers are JSON. Stable versions of built-in kinds, from
a table made of the Go sources (see `_protobuf_from_go`).
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from opsdk.client.transport import HttpRequest
from opsdk.testing.apiserver._fields import is_array, is_object
from opsdk.testing.apiserver._go_json import go_types, type_name
from opsdk.testing.apiserver._json import Document, Value, as_list, as_object, as_text, decode, encode
from opsdk.testing.apiserver._status import bad_request

__all__ = ["MEDIA_TYPE", "decode_protobuf", "json_request"]

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
"""The media type of such bodies."""

_YAML: Final = "application/yaml"
_MAGIC: Final = b"k8s\x00"
_ABSENT: Final = object()


def json_request(request: HttpRequest) -> HttpRequest:
    """The same request with its body in JSON, if it is in protobuf or in YAML.

    Raises:
        StatusError: 400, the body cannot be read.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip()
    if content_type not in {MEDIA_TYPE, _YAML} or not request.body:
        return request
    try:
        document = _decode_yaml(request.body) if content_type == _YAML else decode_protobuf(request.body)
    except ValueError as error:
        raise bad_request(str(error)) from error
    return replace(request, body=encode(document), headers={**request.headers, "content-type": "application/json"})


def _decode_yaml(raw: bytes) -> Value:
    import yaml  # few requests need it

    try:
        value: Value = yaml.safe_load(raw)
    except yaml.YAMLError as error:
        msg = f"error converting YAML to JSON: {error}"
        raise ValueError(msg) from error
    return value


def decode_protobuf(raw: bytes) -> Document:
    """The document in a body.

    Raises:
        ValueError: It is not Kubernetes' protobuf, or of a kind that is not known.
    """
    if not raw.startswith(_MAGIC):
        msg = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
        raise ValueError(msg)
    try:
        return _decode_envelope(raw[len(_MAGIC) :])
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        msg = f"unable to decode protobuf: {error}"
        raise ValueError(msg) from error


def _decode_envelope(raw: bytes) -> Document:
    api_version = kind = ""
    content = b""
    for number, value in _fields(raw):
        if number == 1 and isinstance(value, bytes):
            for inner, text in _fields(value):
                if isinstance(text, bytes):
                    api_version, kind = (text.decode(), kind) if inner == 1 else (api_version, text.decode())
        elif number == 2 and isinstance(value, bytes):
            content = value
    group, _, version = api_version.rpartition("/")
    name = type_name(group, version, kind)
    if name not in go_types():
        name = f"meta.v1.{kind}"  # options, which belong to every group
    if name not in go_types():
        msg = f'no kind "{kind}" is registered for version "{api_version}" in protobuf'
        raise ValueError(msg)
    return {"apiVersion": api_version, "kind": kind, **_message(name, content)}


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7


def _fields(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers and values as they stand on the wire."""
    at = 0
    while at < len(raw):
        key, at = _varint(raw, at)
        match key & 7:
            case 0:
                value, at = _varint(raw, at)
                yield key >> 3, value
            case 1:
                yield key >> 3, raw[at : at + 8]
                at += 8
            case 2:
                length, at = _varint(raw, at)
                if at + length > len(raw):
                    msg = "unexpected EOF"
                    raise ValueError(msg)
                yield key >> 3, raw[at : at + length]
                at += length
            case 5:
                yield key >> 3, raw[at : at + 4]
                at += 4
            case wire:
                msg = f"illegal wireType {wire}"
                raise ValueError(msg)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _message(name: str, raw: bytes) -> Document:
    fields = go_types()[name]
    document: Document = {}
    for number, value in _fields(raw):
        described = as_list(fields.get(str(number)))
        if not described:
            continue
        json_name, code = as_text(described[0]), as_text(described[1])
        if code.startswith(("![]", "!{}")):
            code = code[1:]
        if code.startswith("[]"):
            listed = document.setdefault(json_name, [])
            item = _value(code.removeprefix("[]"), value)
            if isinstance(listed, list):
                listed.append(None if item is _ABSENT else _known(item))
        elif code.startswith("{}"):
            mapped = document.setdefault(json_name, {})
            if isinstance(mapped, dict) and isinstance(value, bytes):
                key, entry = _entry(code.removeprefix("{}"), value)
                mapped[key] = entry
        else:
            _set(document, json_name, code, value)
    return document


def _set(document: Document, json_name: str, code: str, value: int | bytes) -> None:
    found = _value(code.lstrip("*!"), value)
    if found is _ABSENT:
        return
    known = _known(found)
    if not json_name:
        document.update(as_object(known))
    elif known or code.startswith(("*", "!")):
        # What is no pointer is on the wire even when it is empty; JSON leaves it out.
        document[json_name] = known


def _known(value: object) -> Value:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return value if is_array(value) or is_object(value) else None


def _entry(code: str, raw: bytes) -> tuple[str, Value]:
    key, value = "", _known(_value(code, b"" if code not in {"i", "b"} else 0))
    for number, part in _fields(raw):
        if number == 1 and isinstance(part, bytes):
            key = part.decode()
        elif number == 2:
            value = _known(_value(code, part))
    return key, value


def _value(code: str, value: int | bytes) -> object:
    """A value of a type; `_ABSENT` for a time that is not set."""
    if isinstance(value, int):
        return bool(value) if code == "b" else _signed(value)
    match code.lstrip("*!"):
        case "s":
            return value.decode()
        case "y":
            return base64.b64encode(value).decode()
        case "f":
            number: float = struct.unpack("<d", value)[0]
            return number
        case "meta.v1.Time" | "meta.v1.MicroTime" as name:
            return _time(dict(_fields(value)), micro=name.endswith("MicroTime"))
        case "meta.v1.Duration":
            nanoseconds = dict(_fields(value)).get(1, 0)
            return f"{_signed(nanoseconds) / 1e9:g}s" if isinstance(nanoseconds, int) else "0s"
        case "resource.Quantity":
            text = dict(_fields(value)).get(1, b"0")
            return text.decode() if isinstance(text, bytes) else "0"
        case "intstr.IntOrString":
            return _int_or_string(dict(_fields(value)))
        case "runtime.RawExtension" | "meta.v1.FieldsV1":
            content = dict(_fields(value)).get(1)
            return decode(content) if isinstance(content, bytes) and content else _ABSENT
        case named if named.startswith("<>"):
            return [_value(named.removeprefix("<>"), each) for number, each in _fields(value) if number == 1]
        case named:
            return _message(named, value)


def _time(parts: Mapping[int, int | bytes], *, micro: bool) -> object:
    seconds, nanoseconds = parts.get(1), parts.get(2, 0)
    if not isinstance(seconds, int) or not isinstance(nanoseconds, int):
        return _ABSENT
    moment = datetime.fromtimestamp(0, UTC) + timedelta(seconds=_signed(seconds), microseconds=nanoseconds // 1000)
    return f"{moment:%Y-%m-%dT%H:%M:%S}{f'.{moment.microsecond:06d}' if micro else ''}Z"


def _int_or_string(parts: Mapping[int, int | bytes]) -> object:
    if parts.get(1):
        text = parts.get(3, b"")
        return text.decode() if isinstance(text, bytes) else ""
    number = parts.get(2, 0)
    return _signed(number) if isinstance(number, int) else 0
