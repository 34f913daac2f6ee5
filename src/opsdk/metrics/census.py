"""Counts of a kind's objects, kept up to date object by object, so that a scrape never walks a store."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection
from typing import Final, final

import msgspec

__all__ = ["UNKNOWN_STATE", "Census", "CensusTotals"]

UNKNOWN_STATE: Final = "unknown"
"""The label of every state that was not declared: whatever an object says, no new label comes into being."""


@final
class CensusTotals(msgspec.Struct, frozen=True, kw_only=True):
    """A census at one moment.

    Args:
        by_state: Objects in each declared state, zeros included; `unknown` only when there are some.
        lagging: Objects whose status is about an older generation than their spec.
        deleting: Objects that are being deleted and are still there.
    """

    by_state: dict[str, int]
    lagging: int
    deleting: int


@final
class _Entry(msgspec.Struct, frozen=True):
    state: str
    lagging: bool
    deleting: bool


@final
class Census:
    """Counts the objects of one kind by state, generation lag and deletion.

    Told about each object as it changes (by an informer's handler, on the loop), read at scrape time (on a thread).
    Both only ever take a short lock.

    Args:
        kind: The metric label.
        states: The states that exist. An object in another one, or in none, counts as `unknown`.
    """

    def __init__(self, kind: str, states: Collection[str] = ()) -> None:
        self.kind: Final[str] = kind
        self._states = frozenset(states)
        self._lock = threading.Lock()
        self._objects: dict[str, _Entry] = {}
        self._counts: Counter[str] = Counter()
        self._lagging = 0
        self._deleting = 0
        self._shared: dict[tuple[str, bool, bool], _Entry] = {}

    def declare(self, states: Collection[str], /) -> None:
        """Add states that exist: kinds of one name, in different groups, share a census, as they share a label."""
        with self._lock:
            self._states |= frozenset(states)

    def put(self, key: str, *, state: str, lagging: bool, deleting: bool) -> None:
        """Record what one object looks like now.

        Args:
            key: Names the object among its kind: its uid, or namespace and name.
            state: `status.state`.
            lagging: Whether its status is about an older generation.
            deleting: Whether it has a deletionTimestamp.
        """
        known = state if state in self._states else UNKNOWN_STATE
        facts = (known, lagging, deleting)
        entry = self._shared.setdefault(facts, _Entry(*facts))  # few distinct ones: 8 bytes an object, not 60
        with self._lock:
            self._count(self._objects.get(key), -1)
            self._objects[key] = entry
            self._count(entry, 1)

    def drop(self, key: str) -> None:
        """Forget an object that is gone. Harmless when it was not known."""
        with self._lock:
            self._count(self._objects.pop(key, None), -1)

    def _count(self, entry: _Entry | None, by: int) -> None:
        if entry is not None:
            self._counts[entry.state] += by
            self._lagging += by * entry.lagging
            self._deleting += by * entry.deleting

    def totals(self) -> CensusTotals:
        """The counts now. Safe from any thread; the cost does not depend on the number of objects."""
        with self._lock:
            by_state = {state: self._counts[state] for state in sorted(self._states)}
            if unknown := self._counts[UNKNOWN_STATE]:
                by_state[UNKNOWN_STATE] = unknown
            return CensusTotals(by_state=by_state, lagging=self._lagging, deleting=self._deleting)
