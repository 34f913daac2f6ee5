"""CEL functions of quantities and of semantic versions."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final, TypeAlias

from opsdk.testing.apiserver._cel_function import Function, FunctionError, Opaque, member, plain
from opsdk.testing.apiserver._quantity import quantity_value

__all__ = ["MEASURES"]

_INT64: Final = (-(2**63), 2**63 - 1)
_NUMBER: Final = r"(?:0|[1-9]\d*)"
_IDENTIFIERS: Final = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_SEMVER: Final = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})(?:-({_IDENTIFIERS}))?(?:\+({_IDENTIFIERS}))?", re.ASCII
)


# Quantities: the number in full is the spelling


def _quantity(text: str) -> Opaque:
    value = quantity_value(text)
    if value is None:
        raise FunctionError(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    return _spelled(value)


def _spelled(value: Decimal) -> Opaque:
    return Opaque("quantity", f"{value.normalize():f}" if value else "0")


def _is_quantity(text: str) -> bool:
    return quantity_value(text) is not None


def _value(quantity: Opaque) -> Decimal:
    return Decimal(quantity.text)


def _is_integer(quantity: Opaque) -> bool:
    value = _value(quantity)
    return value == value.to_integral_value() and _INT64[0] <= value <= _INT64[1]


def _as_integer(quantity: Opaque) -> int:
    if not _is_integer(quantity):
        raise FunctionError("cannot convert value to integer")
    return int(_value(quantity))


def _compare(one: Decimal, other: Decimal) -> int:
    return (one > other) - (one < other)


# Semantic versions

Version: TypeAlias = tuple[int, int, int, tuple[tuple[int, int, str], ...]]


def _semver(text: str, normalize: bool = False) -> Opaque:  # noqa: FBT001, FBT002 - CEL calls it by position
    spelled = _normalized(text) if normalize else text
    if not _is_version(spelled):
        raise FunctionError("No Major.Minor.Patch elements found")
    return Opaque("semver", spelled.partition("+")[0])


def _is_semver(text: str, normalize: bool = False) -> bool:  # noqa: FBT001, FBT002 - CEL calls it by position
    try:
        return _is_version(_normalized(text) if normalize else text)
    except FunctionError:
        return False


def _is_version(text: str) -> bool:
    found = _SEMVER.fullmatch(text)
    if found is None or any(int(found[at]) >= 2**64 for at in (1, 2, 3)):
        return False
    return not any(part.isdigit() and part != "0" and part[0] == "0" for part in (found[4] or "").split("."))


def _normalized(text: str) -> str:
    parts = text.removeprefix("v").split(".", 2)
    for at, part in enumerate(parts):
        if len(part) > 1:
            bare = part.lstrip("0")
            parts[at] = bare if bare[:1].isdigit() else f"0{bare}"
    if len(parts) < 3 and re.search(r"[+-]", parts[-1]):
        raise FunctionError("short version cannot contain PreRelease/Build meta data")
    return ".".join(parts + ["0"] * (3 - len(parts)))


def _version(semver: Opaque) -> Version:
    core, dash, rest = semver.text.partition("-")
    major, minor, patch = map(int, core.split("."))
    # a pre-release comes before the release; in it, numbers come before texts
    before = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in rest.split("."))
    return major, minor, patch, before if dash else ((2, 0, ""),)


def _compare_versions(one: Opaque, other: Opaque) -> int:
    return (_version(one) > _version(other)) - (_version(one) < _version(other))


MEASURES: Final[tuple[Function, ...]] = (
    plain("quantity", "quantity", _quantity, "string"),
    plain("isQuantity", "bool", _is_quantity, "string"),
    plain("sign", "int", lambda one: _compare(_value(one), Decimal()), "quantity"),
    member("isGreaterThan", "bool", lambda one, other: _value(one) > _value(other), "quantity", "quantity"),
    member("isLessThan", "bool", lambda one, other: _value(one) < _value(other), "quantity", "quantity"),
    member("compareTo", "int", lambda one, other: _compare(_value(one), _value(other)), "quantity", "quantity"),
    member("asApproximateFloat", "double", lambda one: float(_value(one)), "quantity"),
    member("asInteger", "int", _as_integer, "quantity"),
    member("isInteger", "bool", _is_integer, "quantity"),
    member("add", "quantity", lambda one, other: _spelled(_value(one) + _value(other)), "quantity", "quantity"),
    member("add", "quantity", lambda one, other: _spelled(_value(one) + other), "quantity", "int"),
    member("sub", "quantity", lambda one, other: _spelled(_value(one) - _value(other)), "quantity", "quantity"),
    member("sub", "quantity", lambda one, other: _spelled(_value(one) - other), "quantity", "int"),
    plain("semver", "semver", _semver, "string"),
    plain("semver", "semver", _semver, "string", "bool"),
    plain("isSemver", "bool", _is_semver, "string"),
    plain("isSemver", "bool", _is_semver, "string", "bool"),
    member("isGreaterThan", "bool", lambda one, other: _version(one) > _version(other), "semver", "semver"),
    member("isLessThan", "bool", lambda one, other: _version(one) < _version(other), "semver", "semver"),
    member("compareTo", "int", _compare_versions, "semver", "semver"),
    member("major", "int", lambda one: _version(one)[0], "semver"),
    member("minor", "int", lambda one: _version(one)[1], "semver"),
    member("patch", "int", lambda one: _version(one)[2], "semver"),
)
