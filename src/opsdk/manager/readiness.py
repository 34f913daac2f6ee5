"""Whether the caches are complete and fresh, told by the loop and read by the probes' thread."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import final

import msgspec

from opsdk.cache import Informers
from opsdk.errors import ForbiddenError
from opsdk.manager.probes import Verdict

__all__ = ["Readiness"]


@final
class _CacheSeen(msgspec.Struct, frozen=True):
    """What one cache was like when the loop looked."""

    what: str
    synced: bool
    age_seconds: float
    trouble: str
    forbidden: bool


@final
class _Look(msgspec.Struct, frozen=True):
    """What the loop saw when it turned last. Immutable, so that the other thread needs no lock."""

    at: float
    caches: tuple[_CacheSeen, ...]


@final
class Readiness:
    """Knows whether this process can do its work.

    Args:
        informers: The caches.
        staleness: A cache that has heard nothing from the server for this long is stale.

    Attributes:
        stopping: Whether the manager is on its way out: then it is not ready.
        leadership: What is wrong with leadership; None: nothing. Standing by is all right.
    """

    def __init__(self, informers: Informers, *, staleness: timedelta) -> None:
        self._informers = informers
        self._staleness_seconds = staleness.total_seconds()
        self._look: _Look | None = None
        self.stopping = False
        self.leadership: str | None = None

    def look(self) -> None:
        """See what the caches are like now. On the loop only."""
        self._look = _Look(
            time.monotonic(),
            tuple(
                _CacheSeen(
                    informer.describe(),
                    informer.synced,
                    informer.freshness.total_seconds(),
                    informer.trouble,
                    isinstance(informer.last_error, ForbiddenError),
                )
                for informer in self._informers.all()
            ),
        )

    def verdicts(self) -> Sequence[Verdict]:
        """What the loop saw last, and how old that is. From any thread."""
        look = self._look
        return [
            Verdict("manager", "it is stopping" if self.stopping else "it has not started" if look is None else None),
            Verdict("caches", None if look is None else self._fault(look)),
            Verdict("leadership", self.leadership),
        ]

    def _fault(self, look: _Look) -> str | None:
        since = time.monotonic() - look.at
        faults: list[str] = []
        for cache in look.caches:
            why = f": {cache.trouble}" if cache.trouble else ""
            if not cache.synced:
                faults.append(f"{cache.what} has not synced{why}")
            elif cache.forbidden:  # nothing that passes by itself, so there is nothing to wait for
                faults.append(f"{cache.what} {cache.trouble}")
            elif (age := cache.age_seconds + since) > self._staleness_seconds:
                faults.append(f"{cache.what} has heard nothing for {age:.0f} s{why}")
        return "; ".join(faults) or None
