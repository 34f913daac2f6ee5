r"""Formats and patterns of OpenAPI schemas, as the API server checks them.

Not promised: the exotic corners of Go's parsers (e-mail addresses with comments, sloppy IPv4). Patterns are RE2's;
what Python's `re` reads differently is translated, and what it cannot express (`\p{Greek}`) is not enforced.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from datetime import date, datetime
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

__all__ = ["compile_pattern", "format_accepts", "pattern_fault"]

_UUID = r"[0-9a-f]{{8}}-?[0-9a-f]{{4}}-?{version}[0-9a-f]{{3}}-?{variant}[0-9a-f]{{3}}-?[0-9a-f]{{12}}"
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DATETIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}([.,][0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})"
_BASE64 = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"
_GO_DURATION = r"[-+]?(0|([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+"
_SCALA_DURATION = (
    r"\s*[0-9]+\s*(ns|nanos?|nanoseconds?|us|µs|micros?|microseconds?|ms|millis?|milliseconds?|s|secs?|seconds?"
    r"|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|wks?|weeks?)"
)
_HOSTNAME = (
    r"[a-zA-Z0-9](-?[a-zA-Z0-9]{0,62})?"
    r"|([a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?\.)+[a-zA-Z]{2,63}"
)
_MAC = (
    r"[0-9a-fA-F]{2}([:-])([0-9a-fA-F]{2}\1){4}([0-9a-fA-F]{2}\1){0,2}[0-9a-fA-F]{2}"
    r"|[0-9a-fA-F]{4}(\.[0-9a-fA-F]{4}){2,3}"
)
_RGB_PART = r"\s*([0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])\s*"


def _matches(pattern: str, flags: int = 0) -> Callable[[str], bool]:
    compiled = re.compile(pattern, flags | re.ASCII)
    return lambda text: compiled.fullmatch(text) is not None


def _uuid(version: str, variant: str) -> Callable[[str], bool]:
    return _matches(_UUID.format(version=version, variant=variant), re.IGNORECASE)


def _parses(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def accepts(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return accepts


def _is_cidr(text: str) -> bool:
    return "/" in text and _parses(lambda value: ipaddress.ip_network(value, strict=False))(text)


def _is_date(text: str) -> bool:
    return re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text) is not None and _parses(date.fromisoformat)(text)


def _is_datetime(text: str) -> bool:
    if re.fullmatch(_DATETIME, text) is None:
        return False
    return _parses(datetime.fromisoformat)(f"{text[:10]}T{text[11:19]}")


def _is_ipv4(text: str) -> bool:
    """Leading zeros are accepted, as decimal."""
    parts = text.split(".")
    return len(parts) == 4 and all(re.fullmatch(r"[0-9]{1,3}", part) and int(part) <= 255 for part in parts)


def _is_hostname(text: str) -> bool:
    return (
        re.fullmatch(_HOSTNAME, text) is not None
        and len(text) <= 255
        and all(len(part) <= 63 for part in text.split("."))
    )


def _is_email(text: str) -> bool:
    address = text.rpartition("<")[2].removesuffix(">") if "<" in text else text
    return re.fullmatch(r"[^@\s<>\"(),:;\[\]\\]+@[^@\s<>\"(),:;\\]+", address) is not None


def _is_uri(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return " " not in parts.netloc and (bool(parts.scheme) or text.startswith("/"))


def _is_isbn10(text: str) -> bool:
    digits = re.sub(r"[\s-]", "", text)
    if re.fullmatch(r"[0-9]{9}[0-9X]", digits) is None:
        return False
    return sum((10 - i) * (10 if c == "X" else int(c)) for i, c in enumerate(digits)) % 11 == 0


def _is_isbn13(text: str) -> bool:
    digits = re.sub(r"[\s-]", "", text)
    if re.fullmatch(r"[0-9]{13}", digits) is None:
        return False
    return sum((1, 3)[i % 2] * int(c) for i, c in enumerate(digits)) % 10 == 0


def _is_credit_card(text: str) -> bool:
    digits = re.sub(r"[^0-9]+", "", text)
    if re.fullmatch(r"[0-9]{12,19}", digits) is None:
        return False
    doubled = [int(c) * (2 if i % 2 else 1) for i, c in enumerate(reversed(digits))]
    return sum(each - 9 if each > 9 else each for each in doubled) % 10 == 0


def _anything(_text: str) -> bool:
    return True


_FORMATS: Final[dict[str, Callable[[str], bool]]] = {
    "bsonobjectid": _matches(r"[0-9a-fA-F]{24}"),
    "byte": _matches(_BASE64),
    "cidr": _is_cidr,
    "creditcard": _is_credit_card,
    "date": _is_date,
    "datetime": _is_datetime,
    "duration": _matches(f"({_GO_DURATION})|({_SCALA_DURATION})"),
    "email": _is_email,
    "hexcolor": _matches(r"#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "hostname": _is_hostname,
    "ipv4": _is_ipv4,
    "ipv6": _parses(ipaddress.IPv6Address),
    "isbn": lambda text: _is_isbn10(text) or _is_isbn13(text),
    "isbn10": _is_isbn10,
    "isbn13": _is_isbn13,
    "k8slongname": lambda text: len(text) <= 253 and re.fullmatch(rf"{_LABEL}(\.{_LABEL})*", text) is not None,
    "k8sshortname": lambda text: len(text) <= 63 and re.fullmatch(_LABEL, text) is not None,
    "mac": _matches(_MAC),
    "password": _anything,
    "rgbcolor": _matches(rf"rgb\({_RGB_PART},{_RGB_PART},{_RGB_PART}\)"),
    "ssn": _matches(r"[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}"),
    "uri": _is_uri,
    "uuid": _uuid("[0-9a-f]", "[0-9a-f]"),
    "uuid3": _uuid("3", "[0-9a-f]"),
    "uuid4": _uuid("4", "[89ab]"),
    "uuid5": _uuid("5", "[89ab]"),
}


def format_accepts(name: str, text: str) -> bool:
    """Whether `text` fits the string format; formats that the server does not know accept everything."""
    accepts = _FORMATS.get(name.replace("-", ""))
    return accepts is None or accepts(text)


_POSIX_CLASSES: Final = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7F",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1F\x7F",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}


def _translate(pattern: str) -> str:
    r"""RE2 to `re`: `$` and `\z` mean the very end, POSIX classes are spelled out."""
    out: list[str] = []
    at, inside = 0, False
    while at < len(pattern):
        here = pattern[at]
        if here == "\\" and at + 1 < len(pattern):
            escaped = pattern[at + 1]
            out.append(r"\Z" if escaped == "z" and not inside else here + escaped)
            at += 2
            continue
        if inside and (posix := re.match(r"\[:(\^?)([a-z]+):\]", pattern[at:])) and posix[2] in _POSIX_CLASSES:
            out.append(_POSIX_CLASSES[posix[2]])
            at += posix.end()
            continue
        if here == "[" and not inside:
            inside = True
            negated = pattern[at + 1 : at + 2] == "^"
            out.append("[^" if negated else "[")
            at += 2 if negated else 1
            if pattern[at : at + 1] == "]":  # a bracket in first place is a literal
                out.append(r"\]")
                at += 1
            continue
        if here == "[":
            out.append(r"\[")
        elif here == "]" and inside:
            inside = False
            out.append(here)
        elif here == "$" and not inside and not re.match(r"\(\?[a-zA-Z]*m", pattern):
            out.append(r"\Z")
        else:
            out.append(here)
        at += 1
    return "".join(out)


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> re.Pattern[str] | None:
    """The pattern for `search`, or None where Python cannot express it."""
    try:
        return re.compile(_translate(pattern), re.ASCII)
    except re.error:
        return None


def pattern_fault(pattern: str) -> str | None:
    """What RE2 would refuse in a pattern, in its words; None where it compiles."""
    unescaped = re.sub(r"\\[^1-9]", "", pattern)
    if look := re.search(r"\(\?([=!]|<[=!])", unescaped):
        if look[1][0] == "<":
            return f"error parsing regexp: invalid named capture: `{unescaped[look.start() :]}`"
        return f"error parsing regexp: invalid or unsupported Perl syntax: `(?{look[1]}`"
    if back := re.search(r"\\[1-9]", unescaped):
        return f"error parsing regexp: invalid escape sequence: `{back[0]}`"
    try:
        re.compile(_translate(pattern))
    except re.error as error:
        if re.search(r"\\[pP]|\\Q|\\C|\(\?[a-zA-Z]*U", pattern):  # RE2 knows these, `re` does not
            return None
        texts = {
            "unterminated character set": f"missing closing ]: `{pattern[error.pos or 0 :]}`",
            "missing ), unterminated subpattern": f"missing closing ): `{pattern}`",
            "unbalanced parenthesis": f"unexpected ): `{pattern}`",
            "nothing to repeat": f"missing argument to repetition operator: `{pattern[error.pos or 0 :][:1]}`",
        }
        return f"error parsing regexp: {texts.get(error.msg, f'{error.msg}: `{pattern}`')}"
    return None
