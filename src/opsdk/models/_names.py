"""The API server's rules for the names in a CRD, checked when the class is made."""

from __future__ import annotations

import re

__all__ = ["CONDITION_TYPE", "REASON", "group_fault", "kind_fault", "label_fault", "plural_of"]

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_KIND = re.compile(r"[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?")
REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
CONDITION_TYPE = re.compile(
    r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])"
)


def group_fault(group: str) -> str | None:
    """What is wrong with an API group of a custom resource, if anything."""
    if not _SUBDOMAIN.fullmatch(group) or len(group) > 253:
        return "must be a DNS name: lower-case letters, digits, '-' and '.'"
    if "." not in group:
        return "must have a dot in it, like `demo.example.com`: other groups are Kubernetes' own"
    return None


def label_fault(text: str) -> str | None:
    """What is wrong with a version, plural, short name or category, if anything."""
    if not _LABEL.fullmatch(text) or len(text) > 63:
        return "must be a DNS label: a lower-case letter, then lower-case letters, digits and '-', 63 at most"
    return None


def kind_fault(kind: str) -> str | None:
    """What is wrong with a kind, if anything."""
    if not _KIND.fullmatch(kind) or len(kind) > 63:
        return "must be a letter, then letters, digits and '-', 63 at most, like `Widget`"
    return None


def plural_of(kind: str) -> str:
    """The lower-case English plural."""
    word = kind.lower()
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return f"{word}es"
    if word.endswith("y") and word[-2:-1] not in set("aeiou"):
        return f"{word[:-1]}ies"
    return f"{word}s"
