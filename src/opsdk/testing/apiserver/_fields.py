"""Field errors as a kube-apiserver words them, and JSON values as Go prints them.

A 422 answer is a list of these: which field, a reason of a fixed set, and a sentence. Programs match on all three, so
the texts are part of the API and are the server's own, to the letter.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias, final

from typing_extensions import TypeIs

from opsdk.testing.apiserver._json import encode
from opsdk.types import JsonObject

__all__ = [
    "NO_FIELD",
    "FieldError",
    "Tree",
    "child",
    "duplicate",
    "entries",
    "forbidden",
    "go_json",
    "go_number",
    "go_quote",
    "invalid",
    "is_array",
    "is_integer",
    "is_number",
    "is_object",
    "members",
    "not_supported",
    "omitted",
    "required",
    "too_long",
    "too_many",
    "tree",
    "type_invalid",
]

Tree: TypeAlias = dict[str, Any]
"""A decoded JSON object whose shape is checked where it is read; inside this package only."""

NO_FIELD = "<nil>"
"""What the server writes where an error belongs to no field."""


@final
@dataclass(frozen=True, slots=True)
class FieldError:
    """One cause of a 422.

    Args:
        field: Path of the field, `spec.ports[0].name`.
        reason: One of the API's cause types, `FieldValueInvalid` and so on.
        message: The sentence without the field, `Invalid value: 0: must be positive`.
    """

    field: str
    reason: str
    message: str


def is_object(value: object) -> TypeIs[Tree]:
    """Whether a decoded JSON value is an object."""
    return isinstance(value, dict)


def tree(document: JsonObject) -> Tree:
    """A mutable copy of a read-only document."""
    copied: Tree = json.loads(encode(document))
    return copied


def entries(schema: Tree, key: str) -> list[Any]:
    """A list inside an object, empty where there is none."""
    found = schema.get(key)
    return found if is_array(found) else []


def members(schema: Tree, key: str) -> Tree:
    """An object inside an object, empty where there is none."""
    found = schema.get(key)
    return found if is_object(found) else {}


def is_array(value: object) -> TypeIs[list[Any]]:
    """Whether a decoded JSON value is an array."""
    return isinstance(value, list)


def is_integer(value: object) -> TypeIs[int]:
    """Whether a decoded JSON value is an integer; Python's booleans are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeIs[int | float]:
    """Whether a decoded JSON value is a number of any kind."""
    return isinstance(value, float) or is_integer(value)


def go_number(value: float) -> str:
    """A number as Go's `%v` prints it: floats with an exponent from 1e+06 on and below 1e-04."""
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    if not isinstance(exponent, int) or not value:
        return "0"
    power = exponent + len(digits) - 1
    prefix = "-" if sign else ""
    figures = "".join(map(str, digits))
    if -5 < power < 6:
        return f"{Decimal(repr(value)).normalize():f}"
    fraction = f".{figures[1:]}" if len(figures) > 1 else ""
    return f"{prefix}{figures[0]}{fraction}e{'-' if power < 0 else '+'}{abs(power):02d}"


def go_quote(text: str) -> str:
    """A string as Go's `%q` prints it."""
    return json.dumps(text, ensure_ascii=False)


def go_json(value: object) -> str:
    """A value as Go's JSON encoder writes it: compact, keys sorted, `<`, `>` and `&` escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if is_number(value):
        return go_number(value)
    if isinstance(value, str):
        return go_quote(value)
    return go_json(value)


def _with_value(title: str, value: object, detail: str) -> str:
    return f"{title}: {_shown(value)}: {detail}" if detail else f"{title}: {_shown(value)}"


def child(path: str, name: str) -> str:
    """The path of a property below `path`; the empty path is the root."""
    return f"{path}.{name}" if path else name


def invalid(path: str, value: object, detail: str) -> FieldError:
    """The value is not acceptable."""
    return FieldError(path or NO_FIELD, "FieldValueInvalid", _with_value("Invalid value", value, detail))


def type_invalid(path: str, value: object, detail: str) -> FieldError:
    """The value is of another type than the schema asks for."""
    return FieldError(path or NO_FIELD, "FieldValueTypeInvalid", _with_value("Invalid value", value, detail))


def required(path: str, detail: str = "") -> FieldError:
    """A value is missing."""
    return FieldError(
        path or NO_FIELD, "FieldValueRequired", f"Required value: {detail}" if detail else "Required value"
    )


def omitted(path: str, detail: str) -> FieldError:
    """The value is not acceptable, and too large or too secret to be repeated."""
    return FieldError(path or NO_FIELD, "FieldValueInvalid", f"Invalid value: {detail}")


def forbidden(path: str, detail: str) -> FieldError:
    """A value that must not be there."""
    return FieldError(path or NO_FIELD, "FieldValueForbidden", f"Forbidden: {detail}")


def duplicate(path: str, value: object) -> FieldError:
    """A value that has to be unique and is not."""
    return FieldError(path or NO_FIELD, "FieldValueDuplicate", _with_value("Duplicate value", value, ""))


def not_supported(path: str, value: object, supported: Sequence[str]) -> FieldError:
    """A value outside an enumeration."""
    detail = "supported values: " + ", ".join(go_quote(each) for each in supported) if supported else ""
    return FieldError(path or NO_FIELD, "FieldValueNotSupported", _with_value("Unsupported value", value, detail))


def too_long(path: str, maximum: int) -> FieldError:
    """A string longer than allowed."""
    unit = "byte" if maximum == 1 else "bytes"
    return FieldError(path or NO_FIELD, "FieldValueTooLong", f"Too long: may not be more than {maximum} {unit}")


def too_many(path: str, actual: int, maximum: int) -> FieldError:
    """A list or map with more entries than allowed."""
    unit = "item" if maximum == 1 else "items"
    return FieldError(
        path or NO_FIELD, "FieldValueTooMany", _with_value("Too many", actual, f"must have at most {maximum} {unit}")
    )
