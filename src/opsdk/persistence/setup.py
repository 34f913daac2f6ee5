"""Registers a persistence reconciler with a manager."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final, Protocol

from typing_extensions import TypeVar

from opsdk.cache import Informers
from opsdk.controller import ControllerBuilder
from opsdk.models import resource_of
from opsdk.persistence._calls import ConflictRecognizer
from opsdk.persistence._changes import worth_a_pass
from opsdk.persistence._hooks import Hook
from opsdk.persistence.delays import RetryDelays
from opsdk.persistence.observer import PersistenceMetrics
from opsdk.persistence.reconciler import PersistenceReconciler
from opsdk.protocols import Client, EventRecorder, KubeObject

__all__ = ["PersistenceHost", "setup_reconciler"]

T = TypeVar("T", bound=KubeObject)

DEFAULT_CONCURRENCY: Final = 4
"""Hooks wait for a database. With one worker, a slow one would keep all other objects waiting."""


class PersistenceHost(Protocol):
    """What `setup_reconciler` needs of a manager; a `Manager` is one."""

    @property
    def client(self) -> Client:
        """Where objects are read, from caches, and written."""
        ...

    @property
    def api_client(self) -> Client:
        """Where objects are read while the caches are not complete yet."""
        ...

    @property
    def informers(self) -> Informers:
        """The caches under `client`."""
        ...

    @property
    def recorder(self) -> EventRecorder:
        """Where events go."""
        ...

    @property
    def metrics(self) -> PersistenceMetrics:
        """Where to report to."""
        ...

    def controller(self, kind: type[T], /) -> ControllerBuilder[T]:
        """A builder of a controller of `kind`."""
        ...


def setup_reconciler(
    manager: PersistenceHost,
    kind: type[T],
    /,
    *,
    on_upsert: Hook[T],
    on_delete: Hook[str],
    on_conflict: Hook[T] | None = None,
    finalizer: str,
    is_conflict: ConflictRecognizer | None = None,
    retries: RetryDelays | None = None,
    max_concurrent: int = DEFAULT_CONCURRENCY,
    timeout: timedelta | None = None,
    threads: int = 8,
    redact: Callable[[str], str] | None = None,
) -> PersistenceReconciler[T]:
    """Keep the objects of `kind` in step with a database.

    A pass over an object adds the finalizer, calls `on_upsert`, writes status once if it differs, and records a Normal
    `Created` or `Updated` event. Of a deleted object, `on_delete` is called with its uid, then the finalizer goes, then
    a Normal `Deleted` event is recorded. Passes are caused by changes of spec, labels, annotations and deletion, by
    `enqueue` and `resync`, and by retries; never by writes to status.

    Hooks may be coroutine functions, or plain functions, which run in worker threads. They must be idempotent. Those of
    one object never overlap, also when it is deleted and created anew; those of different objects do, `max_concurrent`
    at a time. What they raise:

    - `NotReadyError`, also as a cause or in a group: the row is stored. Ready=False with its reason; no failure, and no
      retry unless it names a time.
    - a violated unique constraint, with `on_conflict` given: that hook makes way, and 15 seconds later the object is
      tried again; no failure. If that hook fails, five minutes later.
    - anything else: Ready=False, `PersistFailed` or `DeleteFailed`; tried again two minutes later, or when a
      `RetryError` says, or not, for a `TerminalError`.

    What of status is written depends on what the class can do: `StatusConditioner` (a Ready condition),
    `ObservedGenerationSetter`, and `StatusPatchGenerator` (the patch itself). With `ObservedGenerationGetter`,
    `Created` and `Updated` are told apart across restarts.

    Args:
        manager: A `Manager` that has not been started.
        kind: The class of the objects.
        on_upsert: Stores an object; what it changes in status is written.
        on_delete: Removes what was stored for a uid; nothing to remove is no error.
        on_conflict: Makes way for an object whose row violates a unique constraint.
        finalizer: The finalizer that holds an object until `on_delete` has succeeded.
        is_conflict: What counts as a violated unique constraint. Default: `is_unique_violation`, which knows SQLite,
            asyncpg, psycopg, MySQL's drivers and SQLAlchemy.
        retries: When an object is tried again. Default: as above.
        max_concurrent: How many objects may be worked on at once. Default 4, so that a slow hook does not keep all
            other objects waiting; 1 for hooks that must not run at the same time.
        timeout: A hook that takes longer is cancelled and has failed, like one that raises TimeoutError. The thread of
            a plain function cannot be cancelled; it is left behind. Default: none.
        threads: How many hooks that are plain functions may run at once. Default 8.
        redact: Is given each error text before it goes into status, events or logs, and returns what may be seen of it.

    Returns:
        The reconciler, for `enqueue` and `resync`.

    Raises:
        ValueError: `finalizer` is empty or no qualified name, `max_concurrent` is below 1, or `timeout` not positive.
    """
    reconciler = PersistenceReconciler(
        kind,
        manager.client,
        uncached=manager.api_client,
        on_upsert=on_upsert,
        on_delete=on_delete,
        on_conflict=on_conflict,
        finalizer=finalizer,
        is_conflict=is_conflict,
        recorder=manager.recorder,
        reports_malformed=manager.informers.malformed is None,
        retries=retries,
        timeout=timeout,
        threads=threads,
        redact=redact,
        observer=manager.metrics.persistence(resource_of(kind).kind),
    )
    builder = manager.controller(kind).predicates(worth_a_pass(finalizer))
    reconciler.attach(builder.options(max_concurrent=max_concurrent).complete(reconciler))
    return reconciler
