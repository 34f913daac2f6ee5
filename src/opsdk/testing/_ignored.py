"""What a test leaves out when it compares states."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final, cast, final

from opsdk.testing._usage import text_list_faults

__all__ = ["Ignored", "ignore_faults"]

_OUTSIDE: Final = "outside"
"""Stands in the place of a kind, for what an operator keeps outside of the cluster."""

_PATTERN: Final = re.compile(rf"([A-Z][A-Za-z0-9]*|{_OUTSIDE})(?:[ .](.+))?|(.+)")
_PATH: Final = re.compile(r"[a-z*](?:[^\s\[\]]|\[[^\[\]]+\])*")


@final
class Ignored:
    """Which differences do not count: `status.history`, `WebApp status.history[*].reason`, `ConfigMap`.

    Each is the beginning of a line of a difference, as a failure prints it, with an optional kind before it; `*`
    stands for anything. A kind alone leaves out all objects of it. `WebApp.status.history` is the same as with a space.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        parts = [_split(pattern) for pattern in patterns]
        self._kinds = frozenset(kind for kind, path in parts if not path)
        self._paths = [
            (kind, re.compile(".*".join(re.escape(part) for part in path.split("*")) + r"(?=$|[.\[:])"))
            for kind, path in parts
            if path
        ]

    def kind(self, kind: str) -> bool:
        """Whether objects of this kind are left out."""
        return kind in self._kinds

    def line(self, kind: str, line: str) -> bool:
        """Whether this line of a difference is left out."""
        return any(wanted in {"", kind} and pattern.match(line) for wanted, pattern in self._paths)

    def unknown_kinds(self, served: Collection[str]) -> list[str]:
        """The kinds that it names and nobody serves, in order."""
        named = {*self._kinds, *(kind for kind, _ in self._paths)}
        return sorted(named - {"", _OUTSIDE, *served})


def ignore_faults(given: object) -> list[str]:
    """What is wrong with a list of what to ignore, if anything."""
    faults = text_list_faults("ignore", given)
    if faults:
        return faults
    return [
        f"ignore has {pattern!r}; give a kind ('ConfigMap'), the beginning of a field as a failure prints it "
        "('status.attempts', 'status.conditions[*].message'), or both ('WebApp status.attempts')"
        for pattern in cast("Iterable[str]", given)
        if not _makes_sense(pattern)
    ]


def _makes_sense(pattern: str) -> bool:
    kind, path = _split(pattern)
    return kind == _OUTSIDE or (bool(kind) and not path) or _PATH.fullmatch(path) is not None


def _split(pattern: str) -> tuple[str, str]:
    match = _PATTERN.fullmatch(pattern)
    return (match[1] or "", match[2] or match[3] or "") if match is not None else ("", pattern)
