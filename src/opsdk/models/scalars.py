"""Texts that mean more: Kubernetes' quantities and times, and Go's durations."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Final, TypeAlias, final

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BeforeValidator,
    GetJsonSchemaHandler,
    PlainSerializer,
    StringConstraints,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from opsdk.models._struct_schema import QUANTITY_PATTERN, quantity_schema
from opsdk.models._times import micro_time_text, time_text, to_second

__all__ = ["Duration", "MicroTime", "Quantity", "Time"]


def _as_text(value: object) -> object:
    """The server takes whole numbers as well."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


@final
class _QuantitySchema:
    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return quantity_schema()


Quantity: TypeAlias = Annotated[
    str, BeforeValidator(_as_text), StringConstraints(pattern=QUANTITY_PATTERN), _QuantitySchema()
]
"""An amount as Kubernetes writes it (`500m`, `1.5Gi`, `3`); a text in Python, as in lightkube's models.

Spellings are kept: `1000m` and `1` are different texts. Compare amounts with `lightkube.utils.quantity.parse_quantity`.
"""

_UNITS: Final = {"ns": 0.001, "us": 1, "µs": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|µs|ms|s|m|h)")
_DURATION: Final = r"^-?(0|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+)$"


def _from_text(value: object) -> object:
    if isinstance(value, timedelta):
        return value
    if not isinstance(value, str):
        raise ValueError("must be a text with a unit, like `90s`")  # noqa: TRY004 - pydantic wants a ValueError
    if re.fullmatch(_DURATION[1:-1], value) is None:
        raise ValueError("must be a duration like `1h30m`, `90s` or `1.5h`: numbers with ns, us, ms, s, m or h")
    parts = [float(count) * _UNITS[unit] for count, unit in _PART.findall(value)]
    try:
        return timedelta(microseconds=round(sum(parts)) * (-1 if value.startswith("-") else 1))
    except OverflowError as error:
        raise ValueError("is longer than a timedelta can be") from error


def _to_text(value: timedelta) -> str:
    micros = value // timedelta(microseconds=1)
    sign, micros = ("-", -micros) if micros < 0 else ("", micros)
    seconds, micros = divmod(micros, 1_000_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    text = "".join(f"{count}{unit}" for count, unit in ((hours, "h"), (minutes, "m"), (seconds, "s")) if count)
    if micros:
        text += f"{micros // 1000}ms" if micros % 1000 == 0 else f"{micros}us"
    return f"{sign}{text or '0s'}"


@final
class _DurationSchema:
    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "pattern": _DURATION}


Duration: TypeAlias = Annotated[
    timedelta,
    BeforeValidator(_from_text),
    PlainSerializer(_to_text, return_type=str, when_used="json"),
    _DurationSchema(),
]
"""A length of time as Kubernetes writes it (`1h30m`, `500ms`), to the microsecond; a `timedelta` in Python.

A plain `timedelta` is ISO 8601 on the wire (`PT1H30M`).
"""

Time: TypeAlias = Annotated[
    AwareDatetime, AfterValidator(to_second), PlainSerializer(time_text, return_type=str, when_used="json")
]
"""A moment with second precision, as Kubernetes writes it (`2026-01-01T00:00:00Z`)."""

MicroTime: TypeAlias = Annotated[AwareDatetime, PlainSerializer(micro_time_text, return_type=str, when_used="json")]
"""A moment with microseconds, always six digits."""
