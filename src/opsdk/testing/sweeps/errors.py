"""What a sweep raises."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from opsdk.testing.sweeps.result import SweepResult

__all__ = ["ScenarioError", "SweepError", "SweepUsageError"]


@final
class SweepError(AssertionError):
    """An operator did not survive some faults.

    Attributes:
        result: All that was found, as data.
    """

    def __init__(self, text: str, result: SweepResult) -> None:
        self.result = result
        super().__init__(text)


@final
class ScenarioError(AssertionError):
    """A step of the scenario waited for something that did not come."""


@final
class SweepUsageError(RuntimeError):
    """The sweep cannot be run like this; the text says what to change."""
