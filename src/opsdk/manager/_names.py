"""The API server's rules for the names that a manager is given, checked before it is asked."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["lease_fault", "namespace_fault"]

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")


def lease_fault(name: str) -> str | None:
    """What is wrong with the name of a Lease, if anything."""
    if _SUBDOMAIN.fullmatch(name) and len(name) <= 253:
        return None
    return "must be a DNS name: lower-case letters, digits, '-' and '.', 253 at most, such as 'widgets.example.com'"


def namespace_fault(name: str) -> str | None:
    """What is wrong with the name of a namespace, if anything."""
    if _LABEL.fullmatch(name) and len(name) <= 63:
        return None
    return "must be the name of a namespace: lower-case letters, digits and '-', 63 at most"
