"""Kubernetes' rules for names, and how it says that one is broken."""

from __future__ import annotations

import re
from typing import Final

__all__ = [
    "dns1035_faults",
    "dns1123_label_faults",
    "dns1123_subdomain_faults",
    "label_value_faults",
    "qualified_name_faults",
]

_LABEL_1035: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_LABEL_1123: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL_1123}(\.{_LABEL_1123})*"
_QUALIFIED: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE: Final = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
_LONGEST_LABEL: Final = 63


def _regex_fault(text: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{text} (e.g. {shown}regex used for validation is '{pattern}')"


def dns1035_faults(name: str) -> list[str]:
    """What keeps a name from being a DNS-1035 label."""
    faults = ["must be no more than 63 characters"] if len(name) > 63 else []
    if re.fullmatch(_LABEL_1035, name) is None:
        text = (
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
            "character, and end with an alphanumeric character"
        )
        faults.append(_regex_fault(text, _LABEL_1035, "my-name", "abc-123"))
    return faults


def dns1123_label_faults(name: str) -> list[str]:
    """What keeps a name from being a lowercase RFC 1123 label."""
    faults = ["must be no more than 63 characters"] if len(name) > _LONGEST_LABEL else []
    if re.fullmatch(_LABEL_1123, name) is None:
        text = (
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and "
            "end with an alphanumeric character"
        )
        faults.append(_regex_fault(text, _LABEL_1123, "my-name", "123-abc"))
    return faults


def label_value_faults(text: str) -> list[str]:
    """What keeps a text from being a label's value."""
    faults = ["must be no more than 63 bytes"] if len(text.encode()) > _LONGEST_LABEL else []
    if re.fullmatch(_LABEL_VALUE, text) is None:
        message = (
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
            "start and end with an alphanumeric character"
        )
        faults.append(_regex_fault(message, _LABEL_VALUE, "MyValue", "my_value", "12345"))
    return faults


def dns1123_subdomain_faults(name: str) -> list[str]:
    """What keeps a name from being a lowercase RFC 1123 subdomain."""
    faults = ["must be no more than 253 characters"] if len(name) > 253 else []
    if re.fullmatch(_SUBDOMAIN, name) is None:
        text = (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
            "start and end with an alphanumeric character"
        )
        faults.append(_regex_fault(text, _SUBDOMAIN, "example.com"))
    return faults


def qualified_name_faults(name: str) -> list[str]:
    """What keeps a name from being a qualified name, `example.com/part` or `part`."""
    prefix, slash, part = name.rpartition("/")
    faults: list[str] = []
    if slash:
        if not prefix:
            faults.append("prefix part must be non-empty")
        else:
            faults += [f"prefix part {fault}" for fault in dns1123_subdomain_faults(prefix)]
    if not part:
        faults.append("name part must be non-empty")
    elif len(part) > 63:
        faults.append("name part must be no more than 63 characters")
    if re.fullmatch(_QUALIFIED, part) is None:
        text = (
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
            "alphanumeric character"
        )
        faults.append(_regex_fault(text, _QUALIFIED, "MyName", "my.name", "123-abc"))
    return faults
