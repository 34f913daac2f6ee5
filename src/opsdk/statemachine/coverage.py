"""Which transitions of a graph have been taken, over many runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple, Self, final

import msgspec

from opsdk.protocols import StateTransitionView
from opsdk.statemachine.observer import PassResult

__all__ = ["Coverage", "Firing"]


class Firing(NamedTuple):
    """A transition that was taken: where from (empty for the first state), where to, and for which reason."""

    from_: str
    to: str
    reason: str


class _Entry(msgspec.Struct, frozen=True):
    from_: str = msgspec.field(name="from")
    to: str
    reason: str
    count: int


@final
class Coverage:
    """Counts the transitions that machines take: what a suite of tests has driven a graph through.

    It is a `MachineObserver` (`machine.observe(coverage)`), so one object can listen to the machines of many tests; and
    it can be told what the history of an object says. `StateMachine.graph(coverage=...)` draws it, and
    `Graph.uncovered` lists what is missing.

    Transitions between the same two states are told apart by their reasons.

    Args:
        fired: Counts to begin with.
    """

    def __init__(self, fired: Mapping[Firing, int] | None = None) -> None:
        self._fired: Counter[Firing] = Counter(fired or {})

    @property
    def fired(self) -> Mapping[Firing, int]:
        """How often each transition was taken. Read-only, and follows what comes later."""
        return MappingProxyType(self._fired)

    def count(self, from_: str, to: str, reason: str | None = None) -> int:
        """How often an object went from one state to another; with `reason` None, for whatever reason."""
        return sum(
            count
            for firing, count in self._fired.items()
            if firing[:2] == (from_, to) and (reason is None or firing.reason == reason)
        )

    def entered(self, state: str) -> int:
        """How often a state was entered."""
        return sum(count for firing, count in self._fired.items() if firing.to == state)

    def add_history(self, history: Iterable[StateTransitionView], /) -> None:
        """Count what an object's `status.stateHistory` tells. Count an object once, at the end of its test."""
        self._fired.update(Firing(entry.from_, entry.to, entry.reason) for entry in history)

    def merge(self, *others: Coverage) -> Self:
        """Add the counts of other runs, and return this one."""
        for other in others:
            self._fired.update(other.fired)
        return self

    def to_json(self) -> str:
        """The counts as a text, for a later run or another process."""
        entries = [_Entry(*firing, count) for firing, count in sorted(self._fired.items())]
        return msgspec.json.encode(entries).decode()

    @classmethod
    def from_json(cls, text: str | bytes, /) -> Self:
        """The counts that `to_json` wrote.

        Raises:
            ValueError: It is not such a text.
        """
        entries = msgspec.json.decode(text, type=list[_Entry])
        return cls({Firing(entry.from_, entry.to, entry.reason): entry.count for entry in entries})

    def __repr__(self) -> str:
        return f"<Coverage of {len(self._fired)} transitions, taken {self._fired.total()} times>"

    def transition(self, from_: str, to: str, dwell_seconds: float | None, reason: str, /) -> None:
        """Count one. See `MachineObserver`."""
        self._fired[Firing(from_, to, reason)] += 1

    def pass_finished(self, result: PassResult, seconds: float, /) -> None:
        """Nothing to count. See `MachineObserver`."""

    def panic(self) -> None:
        """Nothing to count. See `MachineObserver`."""
