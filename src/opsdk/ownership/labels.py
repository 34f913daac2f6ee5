"""The labels by which children are found. They never change: renaming one would orphan every child there is."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from opsdk.models import ResourceInfo

__all__ = ["OWNER_SET_LABEL", "OWNER_UID_LABEL", "default_owner_set", "owner_set_fault"]

OWNER_UID_LABEL: Final = "opsdk.dev/owner-uid"
"""On every child: the uid of its owner."""

OWNER_SET_LABEL: Final = "opsdk.dev/owner-set"
"""On every child: the name of the `ResourceOwner` that made it."""

_LIMIT: Final = 63
_VALUE: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def default_owner_set(owner: ResourceInfo) -> str:
    """The name of the only `ResourceOwner` of a kind: the kind and its group."""
    name = f"{owner.kind}.{owner.group}".rstrip(".").lower()
    if len(name) <= _LIMIT:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: _LIMIT - 9].rstrip('.-_')}-{digest}"


def owner_set_fault(name: str) -> str:
    """What makes `name` impossible as a label's value; empty when nothing does."""
    if _VALUE.fullmatch(name):
        return ""
    return (
        f"{name!r} is no label value: 1 to {_LIMIT} letters, digits, '-', '_' and '.', a letter or digit at both ends"
    )
