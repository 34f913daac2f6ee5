"""What the parts report to. Each meter resolves its labels once, so that reporting is an addition."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Final, Literal, TypeAlias, final

from opsdk.metrics._families import Counts, Levels, Number, Spreads
from opsdk.metrics.census import UNKNOWN_STATE

__all__ = [
    "EventMeter",
    "EventOutcome",
    "LeaderMeter",
    "MachineMeter",
    "PersistenceMeter",
    "ReconcileMeter",
    "RestClientMeter",
    "WorkQueueMeter",
]

EventOutcome: TypeAlias = Literal["created", "counted", "held", "failed"]
"""What became of an event: a new object, a count on an existing one, a count that the next write carries, or lost."""

_RECONCILE_RESULTS: Final = ("success", "error", "requeue", "requeue_after")
_UPSERT_RESULTS: Final = ("stored", "not_ready", "conflict", "failed")
_HOOKS: Final = ("upsert", "delete", "conflict")
_MAX_REASONS: Final = 32
_OTHER_REASON: Final = "other"  # no reason is spelt in lower case
_VERBS: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})


@final
class LeaderMeter:
    """Reports leadership on one Lease."""

    def __init__(self, status: Number, slow_path: Number) -> None:
        self._status = status
        self._slow_path = slow_path
        status.set(0)

    def leading(self, is_leader: bool, /) -> None:  # noqa: FBT001 - a gauge of two values
        """Say whether this process leads."""
        self._status.set(1 if is_leader else 0)

    def slow_path(self) -> None:
        """Count a renewal that had to read the Lease first."""
        self._slow_path.inc()


@final
class EventMeter:
    """Reports Kubernetes events."""

    def __init__(self, total: Counts) -> None:
        self._total = total

    def event(self, type_: str, outcome: EventOutcome, /) -> None:
        """Count one event of type Normal or Warning."""
        self._total.labels(type_, outcome).inc()


@final
class RestClientMeter:
    """Reports requests to the API server. From any thread."""

    def __init__(self, requests: Counts, seconds: Spreads) -> None:
        self._requests = requests
        self._seconds = seconds
        self._lock = threading.Lock()

    def observe(self, *, verb: str, host: str, code: str, seconds: float) -> None:
        """Count one request.

        Args:
            verb: The HTTP method.
            host: The API server's host.
            code: The status code; anything else counts as `<error>`: no answer came.
            seconds: How long it took.
        """
        verb = verb if verb in _VERBS else "OTHER"
        code = code if len(code) == 3 and code.isdigit() else "<error>"
        with self._lock:
            self._requests.labels(code, verb, host).inc()
            self._seconds.labels(verb, host).observe(seconds)


@final
class ReconcileMeter:
    """Reports one controller's reconciles; implements the controller's `ReconcileMetrics`."""

    def __init__(
        self,
        controller: str,
        *,
        total: Counts,
        errors: Counts,
        terminal_errors: Counts,
        panics: Counts,
        timeouts: Counts,
        seconds: Spreads,
        max_concurrent: Levels,
        active_workers: Levels,
        self_triggers: Counts,
    ) -> None:
        # All results stand at zero from the start, so that a rate over the first error is seen.
        self._total = {result: total.labels(controller, result) for result in _RECONCILE_RESULTS}
        self._errors = errors.labels(controller)
        self._terminal_errors = terminal_errors.labels(controller)
        self._panics = panics.labels(controller)
        self._timeouts = timeouts.labels(controller)
        self._seconds = seconds.labels(controller)
        self._max_concurrent = max_concurrent.labels(controller)
        self._active_workers = active_workers.labels(controller)
        self._self_triggers = self_triggers.labels(controller)

    def workers(self, count: int, /) -> None:
        """Say how many reconciles may run at once."""
        self._max_concurrent.set(count)

    def started(self) -> None:
        """One reconcile begins."""
        self._active_workers.inc()

    def finished(self, outcome: str, seconds: float, /) -> None:
        """One reconcile ended.

        Args:
            outcome: `success`, `requeue`, `requeue_after`; `error`, `terminal_error`, `timeout`, `panic`, which are all
                the result `error`; or `cancelled`, which is no result at all.
            seconds: How long it took.
        """
        self._active_workers.dec()
        if outcome == "cancelled":
            return
        self._seconds.observe(seconds)
        result = outcome if outcome in self._total else "error"
        self._total[result].inc()
        if result != "error":
            return
        self._errors.inc()
        match outcome:
            case "terminal_error":
                self._terminal_errors.inc()
            case "timeout":
                self._timeouts.inc()
            case "panic":
                self._panics.inc()
            case _:
                pass

    def self_triggered(self) -> None:
        """An object was found whose every reconcile causes the next one."""
        self._self_triggers.inc()


@final
class WorkQueueMeter:
    """Reports one workqueue; implements the queue's `WorkQueueMetrics`."""

    def __init__(
        self, name: str, *, depth: Levels, adds: Counts, retries: Counts, wait: Spreads, work: Spreads
    ) -> None:
        labels = (name, name)  # dashboards ask for either: controller-runtime names a queue after its controller
        # Attributes, not methods that call these: each event asks for five.
        self.depth: Callable[[float], None] = depth.labels(*labels).set
        """So many keys wait."""
        self.added: Callable[[], None] = adds.labels(*labels).inc
        """A key became ready."""
        self.leased: Callable[[float], None] = wait.labels(*labels).observe
        """A worker took a key that had waited for so long."""
        self.released: Callable[[float], None] = work.labels(*labels).observe
        """A worker let go of a key after so long."""
        self.retried: Callable[[], None] = retries.labels(*labels).inc
        """A key was added with its backoff."""


@final
class MachineMeter:
    """Reports one kind's state machine; implements the state machine's `MachineObserver`."""

    def __init__(
        self,
        kind: str,
        states: Collection[str],
        *,
        transitions: Counts,
        dwell: Spreads,
        passes: Counts,
        seconds: Spreads,
        panics: Counts,
    ) -> None:
        self._kind = kind
        self._states = frozenset(states)
        self._transitions = transitions
        self._dwell = dwell
        self._passes = passes
        for result in _RECONCILE_RESULTS:  # at zero from the start, so that a rate over the first error is seen
            passes.labels(kind, result)
        self._seconds = seconds.labels(kind)
        self._panics = panics.labels(kind)

    def _label(self, state: str) -> str:
        return state if not state or state in self._states else UNKNOWN_STATE

    def transition(self, from_: str, to: str, dwell_seconds: float | None, reason: str = "", /) -> None:
        """Count a transition, and how long the object was in the state that it left, where that is known."""
        self._transitions.labels(self._kind, self._label(from_), self._label(to)).inc()
        if from_ and dwell_seconds is not None:
            self._dwell.labels(self._kind, self._label(from_)).observe(dwell_seconds)

    def pass_finished(self, result: str, seconds: float, /) -> None:
        """Count a pass.

        Args:
            result: One of a handful of words that the machine knows.
            seconds: How long it took.
        """
        self._passes.labels(self._kind, result).inc()
        self._seconds.observe(seconds)

    def panic(self) -> None:
        """Count an unexpected exception in a hook."""
        self._panics.inc()


@final
class PersistenceMeter:
    """Reports how one kind is kept in a database; implements the persistence reconciler's `PersistenceObserver`."""

    def __init__(
        self,
        kind: str,
        *,
        upserts: Counts,
        deletes: Counts,
        conflicts: Counts,
        not_ready: Counts,
        seconds: Spreads,
    ) -> None:
        self._kind = kind
        # All at zero from the start, so that a rate over the first failure is seen.
        self._upserts = {result: upserts.labels(kind, result) for result in _UPSERT_RESULTS}
        self._deletes = {result: deletes.labels(kind, result) for result in ("deleted", "failed")}
        self._conflicts = {result: conflicts.labels(kind, result) for result in ("resolved", "failed")}
        self._not_ready = not_ready
        self._reasons: set[str] = set()
        self._seconds = {hook: seconds.labels(kind, hook) for hook in _HOOKS}

    def hook_finished(self, hook: str, seconds: float, /) -> None:
        """A hook took so long: `upsert`, `delete` or `conflict`."""
        self._seconds[hook].observe(seconds)

    def upserted(self, result: str, /) -> None:
        """Count one upsert: `stored`, `not_ready`, `conflict` or `failed`."""
        self._upserts[result].inc()

    def deleted(self, result: str, /) -> None:
        """Count one delete: `deleted` or `failed`."""
        self._deletes[result].inc()

    def made_way(self, result: str, /) -> None:
        """Count one conflict: `resolved` or `failed`."""
        self._conflicts[result].inc()

    def not_ready(self, reason: str, /) -> None:
        """Count an object that is stored and not ready. The 33rd reason of a kind, and those after it, are `other`."""
        if reason not in self._reasons:
            if len(self._reasons) >= _MAX_REASONS:
                reason = _OTHER_REASON
            else:
                self._reasons.add(reason)
        self._not_ready.labels(self._kind, reason).inc()
