"""What a state machine tells whoever measures it."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias, final

__all__ = ["MachineObserver", "NoObserver", "PassResult"]

PassResult: TypeAlias = Literal["success", "requeue", "requeue_after", "error"]
"""How a pass ended: nothing asked for, again at once, again later, or an error."""


class MachineObserver(Protocol):
    """Is told what a machine does. Must not block and must not raise."""

    def transition(self, from_: str, to: str, dwell_seconds: float | None, /) -> None:
        """A transition was recorded in status.

        Args:
            from_: The state left; empty for the first one.
            to: The state entered.
            dwell_seconds: How long the object was in `from_`; None for the first one, or when it is not known.
        """
        ...

    def pass_finished(self, result: PassResult, seconds: float, /) -> None:
        """A pass ended on its own (cancelled ones do not count), after so many seconds."""
        ...

    def panic(self) -> None:
        """A hook or predicate raised something that nobody meant to raise: neither an opsdk error nor an OSError."""
        ...


@final
class NoObserver:
    """Listens to nothing."""

    def transition(self, from_: str, to: str, dwell_seconds: float | None, /) -> None:
        """Ignore it."""

    def pass_finished(self, result: PassResult, seconds: float, /) -> None:
        """Ignore it."""

    def panic(self) -> None:
        """Ignore it."""
