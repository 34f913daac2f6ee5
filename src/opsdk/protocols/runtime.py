"""What reconcilers, runnables, queues and recorders look like to each other."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from opsdk.protocols.objects import KubeObject
from opsdk.types import Request, Result

__all__ = ["EventRecorder", "EventType", "KeySink", "Reconciler", "Runnable"]

EventType: TypeAlias = Literal["Normal", "Warning"]
"""The two types of Kubernetes events."""

K_contra = TypeVar("K_contra", contravariant=True)


@runtime_checkable
class Reconciler(Protocol):
    """Brings the world in line with one object."""

    async def reconcile(self, request: Request, /) -> Result:
        """Look at the object that `request` names and do what it asks for. Must be idempotent.

        Raises:
            TerminalError: It failed and must not be retried.
            RetryError: It failed; the delay is stated.
            Exception: It failed; it is retried with backoff.
        """
        ...


class Runnable(Protocol):
    """Something that runs until it is cancelled."""

    async def run(self) -> None:
        """Run until cancelled."""
        ...


class KeySink(Protocol[K_contra]):
    """Where keys that need work go."""

    def add(self, key: K_contra, /) -> None:
        """Mark `key` as needing work. Never blocks; safe from any thread."""
        ...

    def add_after(self, key: K_contra, delay: timedelta, /) -> None:
        """Mark `key` as needing work after `delay`; an earlier time that already stands wins."""
        ...


class EventRecorder(Protocol):
    """Records Kubernetes events about objects."""

    async def record(self, obj: KubeObject, /, type: EventType, reason: str, message: str) -> None:  # noqa: A002 - the API's word
        """Record an event about `obj`. Never raises for what the API server answers: a lost event is logged."""
        ...
