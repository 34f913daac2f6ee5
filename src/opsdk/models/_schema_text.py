"""What texts may look like: pydantic's formats in terms that the API server checks, and patterns that it can read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from opsdk.models._struct_schema import Schema

__all__ = ["DECIMAL_PATTERN", "format_keywords", "pattern_fault"]

DECIMAL_PATTERN: Final = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,17})?$"

_ISO_TIME: Final = r"([0-9]+[HM])*([0-9]+(\.[0-9]+)?S)?"
_UUID_OF: Final = r"^[0-9a-fA-F]{{8}}-[0-9a-fA-F]{{4}}-{0}[0-9a-fA-F]{{3}}-[89abAB][0-9a-fA-F]{{3}}-[0-9a-fA-F]{{12}}$"
_CIDR: Final[Schema] = {"format": "cidr"}
_OCTET: Final = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_NO_LEADING_ZEROS: Final = rf"^{_OCTET}(\.{_OCTET}){{3}}$"

_SAME: Final = {
    "byte", "cidr", "date", "date-time", "double", "email", "float", "hostname", "int32", "int64", "ipv6", "mac",
    "password", "uuid", "uuid3", "uuid4", "uuid5",
}  # fmt: skip
"""Formats that the API server knows and that mean there what they mean to pydantic."""

_TRANSLATED: Final[Mapping[str, Schema]] = {
    "base64": {"pattern": r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"},
    "base64url": {"pattern": r"^([A-Za-z0-9_-]{4})*([A-Za-z0-9_-]{2}==|[A-Za-z0-9_-]{3}=)?$"},
    # the server's own `duration` is Go's
    "duration": {
        "pattern": (
            rf"^[-+]?P(([0-9]+[YMWD])+(T{_ISO_TIME})?|T([0-9]+[HM])+([0-9]+(\.[0-9]+)?S)?|T[0-9]+(\.[0-9]+)?S)$"
        ),
    },
    # the server takes leading zeros for decimal numbers, Python refuses them
    "ipv4": {"format": "ipv4", "pattern": _NO_LEADING_ZEROS},
    "ipv4interface": _CIDR,
    "ipv4network": _CIDR,
    "ipv6interface": _CIDR,
    "ipv6network": _CIDR,
    "ipvanyaddress": {"anyOf": [{"format": "ipv4", "pattern": _NO_LEADING_ZEROS}, {"format": "ipv6"}]},
    "ipvanyinterface": _CIDR,
    "ipvanynetwork": _CIDR,
    "multi-host-uri": {"pattern": r"^[A-Za-z][A-Za-z0-9+.-]*:"},
    "time": {
        "pattern": (
            r"^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])?$"
        ),
    },
    # a URI may be a path for the server
    "uri": {"format": "uri", "pattern": r"^[A-Za-z][A-Za-z0-9+.-]*:"},
    **{f"uuid{version}": {"pattern": _UUID_OF.format(version)} for version in (1, 6, 7, 8)},
}


def format_keywords(name: str) -> Schema:
    """The keywords that say what a format of pydantic's says; none for a format that cannot be checked."""
    return {"format": name} if name in _SAME else dict(_TRANSLATED.get(name, {}))


_NOT_IN_RE2: Final = re.compile(
    r"""\(\?(?:=|!|<=|<!|P=|>|\#|\()      # looking around, backward references, atomic groups, comments, conditions
    |\(\?[a-zA-Z]*x                       # verbose
    |\\[1-9uUNZG]                         # backward references, escapes of other engines
    |[*+?}]\+                             # possessive
    |\[[^\]]*&&                           # intersections of classes
    """,
    re.VERBOSE,
)
_REPEATED: Final = re.compile(r"\{(\d+)(?:,(\d*))?\}")
_MOST_REPETITIONS: Final = 1000


def pattern_fault(pattern: str) -> str | None:
    """Why the API server's regular expressions (RE2) could not read a pattern; None if nothing stands out."""
    if _NOT_IN_RE2.search(re.sub(r"\\\\", "", pattern)):
        return "uses what Go's regular expressions lack"
    counts = [int(count) for found in _REPEATED.finditer(pattern) for count in found.groups() if count]
    if any(count > _MOST_REPETITIONS for count in counts):
        return f"repeats more than {_MOST_REPETITIONS} times, which Go's regular expressions refuse"
    return None
