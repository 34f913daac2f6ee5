"""Quantities in the one spelling that the server keeps: `1000m` is `1`, `1024Mi` is `1Gi`, `0.5` is `500m`."""

from __future__ import annotations

import re
from decimal import ROUND_UP, Decimal
from typing import Final

__all__ = ["canonical_quantity", "quantity_value"]

# All parts may be missing, but not all of them at once: kube-apiserver takes `.` and `m` for nought.
_FORM: Final = re.compile(r"^(?=.)([+-]?)(\d*\.?\d*)(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E|[eE][+-]?\d+)?$")
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_KILO: Final = 1024
_FINEST: Final = Decimal("1e-9")


def quantity_value(text: str) -> Decimal | None:
    """The number that a quantity is; None for what is none."""
    found = _FORM.match(text)
    if found is None:
        return None
    number, suffix = _number(found[1], found[2]), found[3] or ""
    if suffix in _BINARY and suffix:
        number *= _KILO ** _BINARY.index(suffix)
    elif suffix[:1] in {"e", "E"} and len(suffix) > 1:
        number = number.scaleb(int(suffix[1:]))
    else:
        number = number.scaleb(_DECIMAL[suffix])
    # nothing finer than a billionth; what is finer is rounded away from zero
    return number.quantize(_FINEST, rounding=ROUND_UP) if number % _FINEST else number


def _number(sign: str, digits: str) -> Decimal:
    return Decimal(sign + (digits if digits.strip(".") else "0"))


def canonical_quantity(text: str) -> str:
    """The spelling that the server keeps; what is no quantity comes back as it is."""
    found = _FORM.match(text.strip())
    if found is None:
        return text
    sign, number, suffix = found.group(1), _number("", found.group(2)), found.group(3) or ""
    negative = sign == "-"
    if suffix in _BINARY and suffix:
        value = number * _KILO ** _BINARY.index(suffix)
        shown = _binary(value)
    elif suffix[:1] in {"e", "E"} and len(suffix) > 1:
        shown = _exponent(number.scaleb(int(suffix[1:])))
    else:
        shown = _decimal(number.scaleb(_DECIMAL[suffix]))
    return f"-{shown}" if negative and shown != "0" else shown


def _whole(value: Decimal, step: int) -> Decimal:
    """The value in units of 10**step, rounded up, as quantities are."""
    units = value.scaleb(-step)
    whole = units.to_integral_value(rounding="ROUND_CEILING")
    return Decimal(int(whole))


def _binary(value: Decimal) -> str:
    if value != value.to_integral_value() or value < _KILO:
        return _decimal(value)
    amount, power = int(value), 0
    while amount and amount % _KILO == 0 and power < len(_BINARY) - 1:
        amount //= _KILO
        power += 1
    return f"{amount}{_BINARY[power]}"


def _decimal(value: Decimal) -> str:
    if value == 0:
        return "0"
    amount = int(_whole(value, -9))
    power = -9
    while amount % 1000 == 0 and power < 18:
        amount //= 1000
        power += 3
    suffix = next(name for name, exponent in _DECIMAL.items() if exponent == power)
    return f"{amount}{suffix}"


def _exponent(value: Decimal) -> str:
    if value == 0:
        return "0"
    amount = int(_whole(value, -9))
    power = -9
    while amount % 1000 == 0 and power < 18:
        amount //= 1000
        power += 3
    return f"{amount}e{power}" if power else f"{amount}"
