"""What a controller needs of whoever runs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from opsdk.cache import Informers
from opsdk.controller.metrics import ControllerMetrics
from opsdk.protocols import Runnable

__all__ = ["ControllerHost"]


class ControllerHost(Protocol):
    """Runs controllers and the informers under them; a `Manager` is one."""

    @property
    def informers(self) -> Informers:
        """Where kinds are watched."""
        ...

    @property
    def metrics(self) -> ControllerMetrics:
        """Where to report to."""
        ...

    @property
    def namespaces(self) -> Sequence[str]:
        """The namespaces to watch; empty: all."""
        ...

    def add(self, runnable: Runnable, /) -> None:
        """Run this one, where and when it should."""
        ...
