"""Failures of a simulated run. All are `AssertionError`s: pytest shows them as failures, not as errors."""

from __future__ import annotations

from typing import final

__all__ = ["ExpectationError", "NotSettledError", "SimulatorUsageError", "UnexpectedActionsError"]


@final
class ExpectationError(AssertionError):
    """The next recorded write (or event) is not what an `expect_…` call asked for."""


@final
class UnexpectedActionsError(AssertionError):
    """The reconciler wrote things that no `expect_…` call took."""


@final
class NotSettledError(AssertionError):
    """`settle` reached its limit and something was still due."""


@final
class SimulatorUsageError(RuntimeError):
    """The simulator was used in the wrong order: outside `async with`, or without a primary object."""
