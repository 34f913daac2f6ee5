"""Texts within the API's limits."""

from __future__ import annotations

import re
from typing import Final
from uuid import uuid4

__all__ = ["cut_bytes", "event_name"]

_ELLIPSIS: Final = "…"
_NOT_IN_A_NAME: Final = re.compile(r"[^a-z0-9.-]+")
_MAX_NAME: Final = 253
_TIDY: Final = re.compile(r"\.[.-]+|-+\.+")


def cut_bytes(text: str, limit: int) -> str:
    """`text`, cut to at most `limit` bytes of UTF-8, with an ellipsis where something was cut."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return raw.decode()
    return raw[: limit - len(_ELLIPSIS.encode())].decode("utf-8", "ignore") + _ELLIPSIS


def event_name(about: str) -> str:
    """A new name for an event about an object: its name, as far as a subdomain allows, and something unique."""
    unique = uuid4().hex[:16]
    readable = _NOT_IN_A_NAME.sub("-", about.lower())[: _MAX_NAME - len(unique) - 1]
    readable = _TIDY.sub(".", readable).strip(".-")
    return f"{readable}.{unique}" if readable else unique
