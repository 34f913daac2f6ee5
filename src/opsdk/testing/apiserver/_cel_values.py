"""JSON values as CEL has them, by the schema: texts that are times, whole numbers that are doubles, escaped names."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime, timedelta
from typing import Final

from google.protobuf.message import Message

from opsdk.testing.apiserver._cel_types import CelType, escape
from opsdk.testing.apiserver._fields import entries, go_json, is_array, is_integer, is_number, is_object

__all__ = ["CelValueError", "TimeMaker", "aligned", "duration_nanoseconds", "to_cel"]

_DATE_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:[.,](\d+))?(?:([Zz])|([+-])(\d\d):?(\d\d))?", re.ASCII
)
_UNITS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86400 * 10**9,
    "w": 7 * 86400 * 10**9,
}
_LONG_UNITS: Final = {
    "nano": "ns",
    "nanosecond": "ns",
    "micro": "us",
    "microsecond": "us",
    "milli": "ms",
    "millisecond": "ms",
    "sec": "s",
    "second": "s",
    "min": "m",
    "minute": "m",
    "hr": "h",
    "hour": "h",
    "day": "d",
    "wk": "w",
    "week": "w",
}
_PART: Final = re.compile(r"(\d+\.?\d*|\.\d+)\s*([a-zµμ]+)")
_NANO: Final = 10**9


class CelValueError(Exception):
    """A value is not what its schema says, and CEL cannot see it."""


class TimeMaker:
    """Makes the messages that CEL takes for times.

    Args:
        timestamp: The class of `google.protobuf.Timestamp`.
        duration: The class of `google.protobuf.Duration`.
    """

    def __init__(self, timestamp: type[Message], duration: type[Message]) -> None:
        self._timestamp = timestamp
        self._duration = duration

    def timestamp(self, nanoseconds: int) -> Message:
        """A moment, counted from 1970."""
        seconds, nanos = divmod(nanoseconds, _NANO)
        made = self._timestamp
        return made(seconds=seconds, nanos=nanos)

    def duration(self, nanoseconds: int) -> Message:
        """A span of time."""
        sign = -1 if nanoseconds < 0 else 1
        seconds, nanos = divmod(abs(nanoseconds), _NANO)
        made = self._duration
        return made(seconds=sign * seconds, nanos=sign * nanos)

    def given_back(self, value: object) -> object:
        """What a function of ours returns, as CEL takes it."""
        if isinstance(value, datetime):
            since = value - datetime(1970, 1, 1, tzinfo=UTC)
            return self.timestamp(since // timedelta(microseconds=1) * 1000)
        if isinstance(value, timedelta):
            return self.duration(value // timedelta(microseconds=1) * 1000)
        if is_array(value):
            return [self.given_back(each) for each in value]
        if is_object(value):
            return {key: self.given_back(each) for key, each in value.items()}
        return value


def duration_nanoseconds(text: str) -> int:
    """The length of a duration as formats of OpenAPI spell it (`1h30m`, `2 days`).

    Raises:
        CelValueError: It is none.
    """
    stripped = text.strip()
    sign = -1 if stripped.startswith("-") else 1
    rest = stripped.lstrip("+-")
    if rest == "0":
        return 0
    total, at = 0.0, 0
    for part in _PART.finditer(rest):
        unit = part[2]
        unit = unit if unit in _UNITS else _LONG_UNITS.get(unit.removesuffix("s"), "")
        if part.start() != at or not unit:
            break
        total += float(part[1]) * _UNITS[unit]
        at = part.end()
    if at != len(rest) or not rest:
        raise CelValueError(f"Invalid duration {text}")
    return sign * round(total)


def _moment(text: str) -> int:
    found = _DATE_TIME.fullmatch(text)
    if found is None:
        raise CelValueError(f"Invalid date-time formatted string {text}")
    try:
        moment = datetime.fromisoformat(f"{found[1]}T{found[2]}+00:00")
    except ValueError as error:
        raise CelValueError(f"Invalid date-time formatted string {text}: {error}") from error
    if found[5]:
        offset = timedelta(hours=int(found[6]), minutes=int(found[7]))
        moment -= offset if found[5] == "+" else -offset
    nanos = int((found[3] or "")[:9].ljust(9, "0"))
    return int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()) * _NANO + nanos


def to_cel(value: object, of: CelType, times: TimeMaker) -> object:
    """A value as CEL has it.

    Raises:
        CelValueError: It does not fit its schema.
    """
    if value is None:
        if of.schema.get("nullable"):
            return None
        raise CelValueError("invalid data, got null for schema with nullable=false")
    match of.kind:
        case "object" if is_object(value):
            return _object(value, of, times)
        case "map" if is_object(value) and of.element is not None:
            element = of.element
            return {key: to_cel(each, element, times) for key, each in value.items()}
        case "list" if is_array(value) and of.element is not None:
            element = of.element
            return [to_cel(each, element, times) for each in value]
        case "string" | "bytes" | "duration" | "timestamp" if isinstance(value, str):
            return _text(value, of, times)
        case "dyn" if isinstance(value, str) or is_integer(value):
            return value
        case "double" if is_number(value):
            return float(value)
        case "int" if is_integer(value) or (isinstance(value, float) and value.is_integer()):
            return int(value)
        case "bool" if isinstance(value, bool):
            return value
        case _:
            kind = of.schema.get("type") or "XIntOrString value to be either a string or integer"
            raise CelValueError(f"invalid data, expected {kind}")


def _object(value: dict[str, object], of: CelType, times: TimeMaker) -> dict[str, object]:
    made: dict[str, object] = {}
    for key, each in value.items():
        escaped = escape(key)
        below = of.fields.get(escaped) if escaped is not None else None
        if below is None or escaped is None:
            made[key] = _opaque(each)
        elif each is not None:  # a null in an object is as good as nothing
            made[escaped] = to_cel(each, below, times)
    return made


def _opaque(value: object) -> object:
    """What expressions cannot see: it counts only in comparisons of whole objects."""
    return go_json(value)


def _text(value: str, of: CelType, times: TimeMaker) -> object:
    match of.kind:
        case "bytes":
            return base64.b64decode(value)
        case "duration":
            return times.duration(duration_nanoseconds(value))
        case "timestamp":
            return times.timestamp(_moment(f"{value}T00:00:00Z" if of.schema.get("format") == "date" else value))
        case _:
            return value


def aligned(old: object, new: object, of: CelType) -> object:
    """The old value with the items of sets and of lists with keys in the order of the new ones.

    The order of such lists does not count when they are compared, but CEL's own lists have one.
    """
    if of.kind == "object" and is_object(old) and is_object(new):
        made = dict(old)
        for key, below in of.properties.items():
            if key in old and key in new:
                made[key] = aligned(old[key], new[key], below)
        return made
    if of.element is None:
        return old
    element = of.element
    if of.kind == "map" and is_object(old) and is_object(new):
        return {key: aligned(each, new[key], element) if key in new else each for key, each in old.items()}
    if is_array(old) and is_array(new):
        return _aligned_list(old, new, of, element)
    return old


def _aligned_list(old: list[object], new: list[object], of: CelType, element: CelType) -> list[object]:
    keys: list[str] = entries(of.schema, "x-kubernetes-list-map-keys")
    match of.schema.get("x-kubernetes-list-type"):
        case "set":
            place = {go_json(each): at for at, each in enumerate(new)}
            return sorted(old, key=lambda each: place.get(go_json(each), len(new)))
        case "map":

            def key_of(item: object) -> str:
                return go_json([item.get(key) for key in keys] if is_object(item) else item)

            place = {key_of(each): at for at, each in enumerate(new)}
            ordered = sorted(old, key=lambda each: place.get(key_of(each), len(new)))
            return [
                aligned(each, new[place[key_of(each)]], element) if key_of(each) in place else each for each in ordered
            ]
        case _:
            return [aligned(was, now, element) for was, now in zip(old, new, strict=False)] + old[len(new) :]
