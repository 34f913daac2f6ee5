"""What can go wrong at a call, and where."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, cast, final, get_args

from opsdk.testing.sweeps.errors import SweepUsageError

__all__ = ["EVENT_FAULTS", "FAULT_KINDS", "NO_FAULT", "READ_FAULTS", "WRITE_FAULTS", "Fault", "FaultKind", "Plan"]

FaultKind: TypeAlias = Literal[
    "crash-before",
    "crash-after",
    "conflict",
    "timeout",
    "unavailable",
    "throttled",
    "error",
    "stale",
    "leader-lost",
    "read-error",
    "event-doubled",
    "event-missed",
    "watch-broken",
    "gone-http",
    "gone-event",
]
"""The kinds of faults; `docs/sweeps.md` says what each one does."""

FAULT_KINDS: Final[tuple[FaultKind, ...]] = get_args(FaultKind)
READ_FAULTS: Final = frozenset[FaultKind]({"read-error"})
EVENT_FAULTS: Final = frozenset[FaultKind]({"event-doubled", "event-missed", "watch-broken", "gone-http", "gone-event"})
WRITE_FAULTS: Final = frozenset(FAULT_KINDS) - READ_FAULTS - EVENT_FAULTS
NO_FAULT: Final = "no fault"

_WORDS: Final[dict[FaultKind, str]] = {
    "crash-before": "crash before",
    "crash-after": "crash after",
    "conflict": "somebody else's edit just before",
    "timeout": "the answer is lost after",
    "unavailable": "503 instead of",
    "throttled": "429 instead of",
    "error": "500 instead of",
    "stale": "caches do not see, for a while,",
    "leader-lost": "leadership is lost at, and late comes,",
    "read-error": "500 instead of",
    "event-doubled": "delivered twice:",
    "event-missed": "missed until a relist:",
    "watch-broken": "the watch breaks before",
    "gone-http": "the watch breaks and is refused with 410 before",
    "gone-event": "the watch breaks and ends with a 410 event before",
}
_FAULT: Final = re.compile(r"([a-z-]+):([1-9][0-9]*)")


@final
@dataclass(frozen=True, slots=True)
class Fault:
    """One fault at one call.

    Args:
        kind: What goes wrong.
        at: The number of the write, read or watch event, counted from 1 over the whole run.
    """

    kind: FaultKind
    at: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.at}"

    def describe(self, call: str) -> str:
        """The fault in words: `crash after write 3: PATCH webapps/default/a status`."""
        what = "read" if self.kind in READ_FAULTS else "event" if self.kind in EVENT_FAULTS else "write"
        words = _WORDS[self.kind]
        return f"{words.rstrip(':')} {what} {self.at}: {call}"


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """The faults of one run, in the order in which they are looked for; none: a clean run."""

    faults: tuple[Fault, ...] = ()

    def __str__(self) -> str:
        return "+".join(str(fault) for fault in self.faults) or "none"

    @classmethod
    def parse(cls, text: str) -> Plan:
        """Read `crash-after:3`, `crash-after:3+timeout:5` or `none`.

        Raises:
            SweepUsageError: It names no fault.
        """
        if text == "none":
            return cls()
        faults: list[Fault] = []
        for part in text.split("+"):
            match = _FAULT.fullmatch(part.strip())
            if match is None or match[1] not in FAULT_KINDS:
                raise SweepUsageError(
                    f"{part.strip()!r} is no fault; it has to look like 'crash-after:3', with one of the kinds "
                    f"{', '.join(FAULT_KINDS)}"
                )
            faults.append(Fault(cast("FaultKind", match[1]), int(match[2])))
        return cls(tuple(faults))

    def without(self, fault: Fault) -> Plan:
        """The same without one fault."""
        return Plan(tuple(each for each in self.faults if each is not fault))

    @classmethod
    def of(cls, faults: Iterable[Fault]) -> Plan:
        """A plan of several faults."""
        return cls(tuple(faults))
