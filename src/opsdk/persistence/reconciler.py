"""One pass of keeping a resource in step with a database."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Final, Generic, final

from typing_extensions import TypeVar

from opsdk.client.finalizers import add_finalizers, has_finalizer, remove_finalizers
from opsdk.errors import (
    CacheNotSyncedError,
    DecodeError,
    ManagerError,
    NotFoundError,
    NotReadyError,
    RetryError,
    TerminalError,
)
from opsdk.events import Recorder
from opsdk.models import resource_of, view_of
from opsdk.persistence._calls import ConflictRecognizer, Hooks
from opsdk.persistence._hooks import Hook
from opsdk.persistence._memory import Memo, Memory
from opsdk.persistence._not_ready import find_not_ready
from opsdk.persistence._partial import partial_kind
from opsdk.persistence._status import (
    StatusWrite,
    begin_status,
    observe_generation,
    observed_generation_of,
    set_ready,
    write_status,
)
from opsdk.persistence._unique import is_unique_violation
from opsdk.persistence.delays import RetryDelays
from opsdk.persistence.observer import NoObserver, PersistenceObserver
from opsdk.protocols import Client, EventRecorder, KeySink, KubeObject
from opsdk.types import LabelSelector, Request, Result

__all__ = ["PersistenceReconciler"]

T = TypeVar("T", bound=KubeObject)

_logger = logging.getLogger(__name__)

_QUALIFIED_NAME = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_MAX_REASON: Final = 1024


@final
class PersistenceReconciler(Generic[T]):
    """Keeps objects of one kind in step with a database. `setup_reconciler` makes one and registers it.

    *Guarantees*: while an object carries the finalizer, its row may exist; the finalizer goes only after `on_delete`
    has succeeded. Hooks of one object never overlap. A status write happens only if something differs.

    *Not promised*: that hooks run once. They must be idempotent.

    Args:
        kind: The class of the objects.
        client: Where they are read and written.
        on_upsert: Stores an object. Raises `NotReadyError` for one that is stored but cannot take effect yet.
        on_delete: Removes what was stored for a uid; nothing to remove is no error.
        on_conflict: Makes way after a violated unique constraint, usually by removing a stale row of the same name.
        finalizer: The finalizer that holds an object until `on_delete` has succeeded.
        is_conflict: What counts as a violated unique constraint; default: `is_unique_violation`.
        uncached: Where `resync` lists before the cache under `client` is complete. Default: `client`.
        recorder: Where events go. Default: a recorder of its own that writes through `client`.
        reports_malformed: Whether an event is recorded about an object that does not fit its model. Not needed where
            the caches report them.
        retries: When an object is tried again.
        timeout: A hook that takes longer is cancelled and has failed. Default: none.
        threads: How many hooks that are plain functions may run at once.
        redact: Is given each error text before it goes anywhere, and returns what may be seen of it.
        observer: Is told what happens, for metrics.

    Raises:
        ValueError: `finalizer` is empty or no qualified name, or `timeout` not positive.
    """

    def __init__(
        self,
        kind: type[T],
        client: Client,
        *,
        on_upsert: Hook[T],
        on_delete: Hook[str],
        on_conflict: Hook[T] | None = None,
        finalizer: str,
        is_conflict: ConflictRecognizer | None = None,
        uncached: Client | None = None,
        recorder: EventRecorder | None = None,
        reports_malformed: bool = True,
        retries: RetryDelays | None = None,
        timeout: timedelta | None = None,
        threads: int = 8,
        redact: Callable[[str], str] | None = None,
        observer: PersistenceObserver | None = None,
    ) -> None:
        if not _QUALIFIED_NAME.fullmatch(finalizer):
            raise ValueError(
                f"finalizer {finalizer!r} must be a qualified name, such as roles.example.com/finalizer: "
                f"it keeps an object until its row is gone"
            )
        self._info = resource_of(kind)
        self._kind = kind
        self._client = client
        self._uncached = uncached if uncached is not None else client
        self._finalizer = finalizer
        self._reports_malformed = reports_malformed
        self._recorder = recorder if recorder is not None else Recorder(client, component="opsdk")
        self._redact = redact
        self._retries = retries if retries is not None else RetryDelays()
        self._observer: PersistenceObserver = observer if observer is not None else NoObserver()
        self._hooks = Hooks[T](
            on_upsert=on_upsert,
            on_delete=on_delete,
            on_conflict=on_conflict,
            is_conflict=is_conflict or is_unique_violation,
            threads=threads,
            timeout=timeout,
            observer=self._observer,
        )
        self._memory = Memory()
        self._lock = threading.Lock()
        self._sink: KeySink[Request] | None = None

    def attach(self, sink: KeySink[Request], /) -> None:
        """Say where `enqueue` puts its requests: a controller's queue."""
        with self._lock:
            self._sink = sink

    def enqueue(self, namespace: str | None, name: str, /) -> None:
        """Have an object looked at, because something that it depends on has changed.

        Safe from any thread; never waits. Before the manager starts it is kept; during a pass over the same object it
        causes one more; after the stop it is forgotten. An object that does not exist is ignored.

        Args:
            namespace: The object's namespace; None for a cluster-scoped kind.
            name: Its name.

        Raises:
            ManagerError: The reconciler was never set up.
        """
        self._queue().add(Request(name, namespace or None))

    async def resync(self, namespace: str | None = None, labels: LabelSelector | None = None) -> None:
        """List the objects and `enqueue` each. Does not wait for them to be looked at.

        What was enqueued before an error stays so.

        Args:
            namespace: None: all namespaces.
            labels: None or empty: all objects.

        Raises:
            ApiError: The list failed.
            ManagerError: The reconciler was never set up.
        """
        queue = self._queue()
        try:
            items = self._client.stream(self._kind, namespace=namespace, labels=labels or None)
        except CacheNotSyncedError:
            items = self._uncached.stream(self._kind, namespace=namespace, labels=labels or None)
        async for item in items:
            metadata = item.metadata
            if metadata is not None and metadata.name:
                queue.add(Request(metadata.name, metadata.namespace or None))

    async def reconcile(self, request: Request, /) -> Result:
        """One pass over one object."""
        try:
            obj = await self._client.find(self._kind, request.name, namespace=request.namespace)
        except DecodeError as error:
            return await self._malformed(request, error)
        if obj is None:
            self._memory.forget(request)
            return Result()
        view = view_of(obj)
        memo = self._memory.of(request, view.uid or "")
        if view.deletionTimestamp is None:
            return await self._upsert(request, obj, memo)
        if has_finalizer(obj, self._finalizer):
            return await self._delete(request, obj, memo)
        return Result()

    async def _upsert(self, request: Request, obj: T, memo: Memo) -> Result:
        try:
            if await add_finalizers(self._client, obj, self._finalizer):
                memo.owes_created = True
        except NotFoundError:
            return Result()
        observed = observed_generation_of(obj)
        write = begin_status(self._client, obj)
        try:
            await self._hooks.upsert(request, obj)
        except Exception as error:  # noqa: BLE001 - whatever a hook raises is told in status
            not_ready = find_not_ready(error)
            if not_ready is None:
                return await self._not_stored(request, obj, memo, write, error)
            if not _REASON.fullmatch(not_ready.reason) or len(not_ready.reason) > _MAX_REASON:
                wrong = ValueError(f"NotReadyError: reason {not_ready.reason[:80]!r} is not one CamelCase word")
                wrong.__cause__ = error
                self._observer.upserted("failed")
                return await self._fail(obj, memo, write, "PersistFailed", wrong)
            self._observer.upserted("not_ready")
            self._observer.not_ready(not_ready.reason)
            return await self._stored(obj, memo, write, observed, not_ready)
        self._observer.upserted("stored")
        return await self._stored(obj, memo, write, observed, None)

    async def _stored(
        self, obj: T, memo: Memo, write: StatusWrite[T], observed: int | None, not_ready: NotReadyError | None
    ) -> Result:
        """The row is there: say so in status, then in events."""
        observe_generation(obj)
        after = None if not_ready is None else not_ready.requeue_after
        message = "" if not_ready is None else self._shown(not_ready.message)
        if not_ready is None:
            change = set_ready(obj, memo, "True", "Synced", "", hold_message=self._retries.failure)
        else:
            _logger.debug("%s %s is not ready: %s: %s", self._info.kind, view_of(obj).name, not_ready.reason, message)
            hold = max(self._retries.failure, after or timedelta(0))
            change = set_ready(obj, memo, "False", not_ready.reason, message, hold_message=hold)
        await write_status(self._client, obj, write)
        change.remember(memo)
        announcement = _announcement(memo, observed, view_of(obj).generation or 0)
        if announcement is not None:
            done = "stored" if announcement == "Created" else "stored as changed"
            await self._recorder.record(obj, "Normal", announcement, f"{self._info.kind} {done}")
        if change.changed and not_ready is not None:
            await self._recorder.record(obj, "Warning", not_ready.reason, message or not_ready.reason)
        return Result(requeue_after=after)

    async def _not_stored(
        self, request: Request, obj: T, memo: Memo, write: StatusWrite[T], error: Exception
    ) -> Result:
        on_conflict = self._hooks.conflict_hook(error)
        if on_conflict is None:
            self._observer.upserted("failed")
            return await self._fail(obj, memo, write, "PersistFailed", error)
        self._observer.upserted("conflict")
        shown = self._shown(str(error))
        _logger.info("%s %s: unique constraint violated, making way: %s", self._info.kind, request, shown)
        try:
            await self._hooks.make_way(request, on_conflict, obj)
        except Exception as second:  # noqa: BLE001 - whatever a hook raises is told in status
            both = ExceptionGroup("on_upsert met a violated unique constraint, and on_conflict failed", [error, second])
            text = f"on_conflict: {str(second) or type(second).__name__}"
            retry = self._retries.conflict_failure
            return await self._fail(obj, memo, write, "PersistFailed", both, text=text, retry=retry)
        return Result(requeue_after=self._retries.conflict)

    async def _delete(self, request: Request, obj: T, memo: Memo) -> Result:
        write = begin_status(self._client, obj)
        try:
            await self._hooks.delete(request, view_of(obj).uid or "")
        except Exception as error:  # noqa: BLE001 - whatever a hook raises is told in status
            return await self._fail(obj, memo, write, "DeleteFailed", error)
        await self._let_go(request, obj)
        return Result()

    async def _let_go(self, request: Request, obj: KubeObject) -> None:
        await remove_finalizers(self._client, obj, self._finalizer)
        await self._recorder.record(obj, "Normal", "Deleted", f"{self._info.kind} removed")
        self._memory.forget(request)

    async def _fail(
        self,
        obj: T,
        memo: Memo,
        write: StatusWrite[T],
        reason: str,
        error: Exception,
        *,
        text: str = "",
        retry: timedelta | None = None,
    ) -> Result:
        """Record a failure in status and raise it, to be retried when it says, else after `retry`."""
        retry = self._retries.failure if retry is None else retry
        message = self._shown(text or str(error) or type(error).__name__)
        change = set_ready(obj, memo, "False", reason, message, hold_message=retry)
        try:
            await write_status(self._client, obj, write)
        except Exception as second:  # noqa: BLE001 - whatever a hook raises is told in status
            both = ExceptionGroup(f"{reason}, and its status could not be written", [error, second])
            raise RetryError(f"{reason}: {message}; status: {second}", requeue_after=retry) from both
        change.remember(memo)
        if change.changed:
            await self._recorder.record(obj, "Warning", reason, message)
        match error:
            case TerminalError():
                raise TerminalError(f"{reason}: {message}") from error
            case RetryError():
                raise RetryError(f"{reason}: {message}", requeue_after=error.requeue_after) from error
            case _:
                raise RetryError(f"{reason}: {message}", requeue_after=retry) from error

    async def _malformed(self, request: Request, error: DecodeError) -> Result:
        """The object does not fit its model. Its metadata does, which is enough to delete it."""
        partial = await self._client.find(partial_kind(self._info), request.name, namespace=request.namespace)
        if partial is None:
            self._memory.forget(request)
            return Result()
        view = view_of(partial)
        if view.deletionTimestamp is not None:
            if has_finalizer(partial, self._finalizer):
                try:
                    await self._hooks.delete(request, view.uid or "")
                except Exception as failure:
                    message = self._shown(str(failure) or type(failure).__name__)
                    await self._recorder.record(partial, "Warning", "DeleteFailed", message)
                    raise RetryError(f"DeleteFailed: {message}", requeue_after=self._retries.failure) from failure
                await self._let_go(request, partial)
            return Result()
        memo = self._memory.of(request, view.uid or "")
        version = view.resourceVersion or ""
        if self._reports_malformed and memo.malformed != version:
            memo.malformed = version
            await self._recorder.record(partial, "Warning", "MalformedResource", self._shown(str(error)))
        raise TerminalError(f"malformed: {error}") from error

    def _shown(self, text: str) -> str:
        return text if self._redact is None else self._redact(text)

    def _queue(self) -> KeySink[Request]:
        with self._lock:
            if self._sink is None:
                raise ManagerError(
                    f"the persistence reconciler of {self._info.kind} is not set up: use what setup_reconciler returns"
                )
            return self._sink


def _announcement(memo: Memo, observed: int | None, generation: int) -> str | None:
    """Which event a stored generation deserves, once; None: it has had it."""
    first = memo.announced is None
    owed, memo.owes_created = memo.owes_created, False
    if memo.announced == generation:
        return None
    if observed is None:  # the object cannot tell, so only who added the finalizer knows
        memo.announced = generation
        return "Created" if owed else None
    memo.announced = generation
    if observed == generation:
        return None
    return "Created" if first and observed == 0 else "Updated"
