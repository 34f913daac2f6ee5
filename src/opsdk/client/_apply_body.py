"""The body of a server-side apply: JSON that a parser of YAML reads as the same JSON."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from opsdk.types import JsonObject

__all__ = ["apply_body"]

# The server reads an apply as YAML, which refuses some characters unless they are escaped, and takes others for line
# ends, which it folds into blanks. Those beyond the first plane may stand as they are, and must: YAML knows no pairs.
_ESCAPED: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def apply_body(document: JsonObject) -> bytes:
    """The document for `application/apply-patch+yaml`."""
    raw = msgspec.json.encode(document)
    if raw.isascii() and b"\x7f" not in raw:
        return raw
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", raw.decode()).encode()
