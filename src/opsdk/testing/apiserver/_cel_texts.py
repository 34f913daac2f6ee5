"""CEL functions of texts: the library's own string functions under names that lists share, patterns, named formats."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from opsdk.testing.apiserver._cel_function import Function, FunctionError, Opaque, member, plain
from opsdk.testing.apiserver._cel_network import uri_fault
from opsdk.testing.apiserver._formats import compile_pattern, format_accepts
from opsdk.testing.apiserver._names import (
    dns1035_faults,
    dns1123_label_faults,
    dns1123_subdomain_faults,
    label_value_faults,
    qualified_name_faults,
)

__all__ = ["TEXTS", "text_functions"]


def text_functions(delegate: Callable[[str], Callable[..., object]]) -> Iterator[Function]:
    """What the library has, but under names that it cannot share with functions of ours.

    Args:
        delegate: Makes a function of an expression of the CEL library over `a`, `b`, `c` and `d`.
    """
    for name, gives, *takes in (
        ("charAt", "string", "string", "int"),
        ("format", "string", "string", "[dyn]"),
        ("indexOf", "int", "string", "string"),
        ("indexOf", "int", "string", "string", "int"),
        ("join", "string", "[string]"),
        ("join", "string", "[string]", "string"),
        ("lastIndexOf", "int", "string", "string"),
        ("lastIndexOf", "int", "string", "string", "int"),
        ("lowerAscii", "string", "string"),
        ("replace", "string", "string", "string", "string"),
        ("replace", "string", "string", "string", "string", "int"),
        ("split", "[string]", "string", "string"),
        ("split", "[string]", "string", "string", "int"),
        ("substring", "string", "string", "int"),
        ("substring", "string", "string", "int", "int"),
        ("trim", "string", "string"),
        ("upperAscii", "string", "string"),
    ):
        yield member(name, gives, delegate(f"a.{name}({', '.join('bcd'[: len(takes) - 1])})"), *takes)
    yield plain("strings.quote", "string", delegate("strings.quote(a)"), "string")


# Patterns


def _compiled(pattern: str) -> re.Pattern[str]:
    found = compile_pattern(pattern)
    if found is None:
        raise FunctionError(f"Illegal regex: error parsing regexp: `{pattern}`")
    return found


def _find(text: str, pattern: str) -> str:
    found = _compiled(pattern).search(text)
    return found[0] if found else ""


def _find_all(text: str, pattern: str, most: int = -1) -> list[str]:
    found = [each[0] for each in _compiled(pattern).finditer(text)]
    return found if most < 0 else found[:most]


# Formats


def _prefix_of(faults: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """The faults of what a name is generated from: it may end in a dash."""
    return lambda text: faults(text[:-2] + "a" if text.endswith("-") and len(text) > 1 else text)


def _is_of(form: str, fault: str) -> Callable[[str], list[str]]:
    return lambda text: [] if format_accepts(form, text) else [fault]


def _uri_faults(text: str) -> list[str]:
    fault = uri_fault(text)
    return [] if fault is None else [f'parse "{text}": {fault}']


_FORMATS: Final[dict[str, Callable[[str], list[str]]]] = {
    "byte": _is_of("byte", "invalid base64"),
    "date": _is_of("date", "invalid date"),
    "datetime": _is_of("date-time", "invalid datetime"),
    "dns1035Label": dns1035_faults,
    "dns1035LabelPrefix": _prefix_of(dns1035_faults),
    "dns1123Label": dns1123_label_faults,
    "dns1123LabelPrefix": _prefix_of(dns1123_label_faults),
    "dns1123Subdomain": dns1123_subdomain_faults,
    "dns1123SubdomainPrefix": _prefix_of(dns1123_subdomain_faults),
    "labelValue": label_value_faults,
    "qualifiedName": qualified_name_faults,
    "uri": _uri_faults,
    "uuid": _is_of("uuid", "does not match the UUID format"),
}


def _named(name: str) -> Opaque:
    """The format; an empty one for none, which makes an empty optional value."""
    return Opaque("format", name if name in _FORMATS else "")


def _constant(name: str) -> Callable[[], Opaque]:
    return lambda: Opaque("format", name)


TEXTS: Final[tuple[Function, ...]] = (
    # `string` once more: what the library declares cannot be added to
    *(
        plain("string", "string", None, kind)
        for kind in ("bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint")
    ),
    member("find", "string", _find, "string", "string"),
    member("findAll", "[string]", _find_all, "string", "string"),
    member("findAll", "[string]", _find_all, "string", "string", "int"),
    *(plain(f"format.{name}", "format", _constant(name)) for name in _FORMATS),
    plain("format.named", "?format", _named, "string"),
    member("validate", "?[string]", lambda form, text: _FORMATS[form.text](text), "format", "string"),
)
