"""Base64 as Go reads it: line breaks anywhere, padding always, and what is wrong by its place."""

from __future__ import annotations

import binascii
from contextlib import suppress
from typing import Final

__all__ = ["base64_fault"]

_ALPHABET: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
_BREAKS: Final = b"\r\n"
_PADDING: Final = ord("=")


def base64_fault(text: str) -> int | None:
    """The byte at which Go finds that `text` is no base64; None where it is."""
    data = text.encode("utf-8", errors="surrogatepass")
    with suppress(binascii.Error):  # nearly always: no line breaks, and all is well
        binascii.a2b_base64(data, strict_mode=True)
        return None
    at = filled = 0  # of the four characters of a group
    while at < len(data):
        char = data[at]
        at += 1
        if char in _ALPHABET:
            filled = (filled + 1) % 4
        elif char == _PADDING and filled >= 2:
            return _fault_after_padding(data, at, missing=3 - filled)
        elif char not in _BREAKS:
            return at - 1
    return at - filled if filled else None


def _fault_after_padding(data: bytes, at: int, *, missing: int) -> int | None:
    """Where the end is wrong after the first `=`, which stands before `at`."""
    at = _past_breaks(data, at)
    if missing:
        if at == len(data):
            return at
        if data[at] != _PADDING:
            return at - 1
        at = _past_breaks(data, at + 1)
    return at if at < len(data) else None


def _past_breaks(data: bytes, at: int) -> int:
    while at < len(data) and data[at] in _BREAKS:
        at += 1
    return at
