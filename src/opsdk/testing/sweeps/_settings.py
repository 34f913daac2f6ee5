"""What is the same in all runs of a sweep, and what one of them comes to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, TypeAlias, final

from opsdk.client.transport import Transport
from opsdk.protocols import KubeObject, Reconciler, Runnable
from opsdk.testing._ignored import Ignored
from opsdk.testing.sweeps._calls import ApiCall, WatchEventSeen
from opsdk.testing.sweeps._faults import Fault, Plan
from opsdk.testing.sweeps._state import EndState
from opsdk.testing.sweeps.world import World
from opsdk.types import Json

__all__ = ["Invariant", "Operator", "Outcome", "Outside", "Scenario", "Settings", "Trouble"]

Operator: TypeAlias = Reconciler | Runnable
"""What a sweep breaks: a reconciler, a `Manager`, or anything with `run()`."""

Scenario: TypeAlias = Callable[[World], Awaitable[None]]
"""The user's side."""

Invariant: TypeAlias = Callable[[World], Awaitable[None]]
"""Raises when something does not hold."""


class Outside(Protocol):
    """What an operator keeps outside of the cluster: a database, an account at a cloud."""

    async def reset(self) -> None:
        """Make it empty; called before every run."""
        ...

    async def state(self) -> Json:
        """What is there, as JSON; compared at the end of every run. Uids of objects may be in it."""
        ...


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is the same in all runs of a sweep."""

    make: Callable[[Transport], Operator]
    scenario: Scenario
    install: tuple[type[KubeObject], ...]
    namespace: str
    always: Invariant | None
    outside: Outside | None
    ignored: Ignored
    quiet: timedelta
    rest: timedelta
    patience: timedelta
    real_seconds: float
    seed: int
    for_httpx2: bool
    logs: bool


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """What a run found: in a line, and in detail."""

    reason: str
    details: tuple[str, ...] = ()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one run came to."""

    plan: Plan
    trouble: Trouble | None
    hit: dict[Fault, str]
    writes: tuple[ApiCall, ...]
    reads: tuple[ApiCall, ...]
    events: tuple[WatchEventSeen, ...]
    requests: int
    longest_burst: int
    state: EndState | None
    kinds: frozenset[str]
    virtual_seconds: float
