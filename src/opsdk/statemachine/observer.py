"""What a state machine tells whoever measures it."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias, final

__all__ = ["MachineObserver", "Observers", "PassResult"]

PassResult: TypeAlias = Literal["success", "requeue", "requeue_after", "error"]
"""How a pass ended: nothing asked for, again at once, again later, or an error."""


class MachineObserver(Protocol):
    """Is told what a machine does. Must not block and must not raise."""

    def transition(self, from_: str, to: str, dwell_seconds: float | None, reason: str, /) -> None:
        """A transition was recorded in status.

        Args:
            from_: The state left; empty for the first one.
            to: The state entered.
            dwell_seconds: How long the object was in `from_`; None for the first one, or when it is not known.
            reason: The transition's reason; may be empty.
        """
        ...

    def pass_finished(self, result: PassResult, seconds: float, /) -> None:
        """A pass ended on its own (cancelled ones do not count), after so many seconds."""
        ...

    def panic(self) -> None:
        """A hook or predicate raised something that nobody meant to raise: neither an opsdk error nor an OSError."""
        ...


@final
class Observers:
    """Tells several observers, in the order in which they came; an observer that comes twice is told once."""

    def __init__(self) -> None:
        self._observers: list[MachineObserver] = []

    def add(self, observer: MachineObserver, /) -> None:
        """Tell this one too, from now on."""
        if not any(present is observer for present in self._observers):
            self._observers.append(observer)

    def transition(self, from_: str, to: str, dwell_seconds: float | None, reason: str, /) -> None:
        """See `MachineObserver`."""
        for observer in self._observers:
            observer.transition(from_, to, dwell_seconds, reason)

    def pass_finished(self, result: PassResult, seconds: float, /) -> None:
        """See `MachineObserver`."""
        for observer in self._observers:
            observer.pass_finished(result, seconds)

    def panic(self) -> None:
        """See `MachineObserver`."""
        for observer in self._observers:
            observer.panic()
