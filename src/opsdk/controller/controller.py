"""Sources to queue, queue to reconcile, reconcile to outcome.

Guarantees:
    * One object is reconciled by one worker at a time; what happens to it meanwhile is one more reconcile, after it.
    * No reconcile begins before every cache that the controller uses is complete, and none after `stop`.
    * A success forgets the backoff. A failure is retried: when the `RetryError` says, else with backoff; a
      `TerminalError` is not, nor is a `DecodeError` of the object itself: only another version of it can help, and
      any will be tried, also one that predicates would keep out. An exception group is terminal only if all of it is.
    * An object that is gone is done: when a reconcile of it raises that it was not found, that counts as a success.
    * Cancellation from outside goes through, and counts as neither success nor failure.

Not promised: a reconcile for every event. Many events may be one.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import timedelta
from typing import Final, Protocol, final

import anyio

from opsdk._backend import (
    ThreadWaker,
    current_loop,
    is_stray_cancellation,
    no_stray_cancellation,
    stray_cancellation,
)
from opsdk._groups import raise_bare
from opsdk.cache import Cached
from opsdk.controller._malformed import MalformedObjects
from opsdk.controller._outcome import Retry, classify, is_about_the_missing
from opsdk.controller._share import OwnShare, WorkDivision
from opsdk.controller._sources import Source
from opsdk.controller.context import ReconcileContext, enter, leave
from opsdk.controller.metrics import ReconcileMetrics, ReconcileOutcome
from opsdk.errors import ManagerError, QueueClosedError, ReconcileTimeoutError
from opsdk.models import ResourceInfo
from opsdk.protocols import KubeObject
from opsdk.types import Request, Result
from opsdk.workqueue import Priority, WorkQueue

__all__ = ["Controller"]

_logger = logging.getLogger(__name__)

_FAILED: Final = "%s: reconcile of %s failed, retry in %.3g s: %s"


def _ids() -> Iterator[str]:
    """Ids in the form of random UUIDs. Those of one process count on from a random one: each costs an addition."""
    digits = f"{random.getrandbits(80):020x}"
    prefix = f"{digits[:8]}-{digits[8:12]}-4{digits[12:15]}-a{digits[15:18]}-"
    number = random.getrandbits(40)
    while True:
        number += 1
        yield f"{prefix}{number:012x}"


class Detector(Protocol):
    """Is told of reconciles, and says when one is the last straw."""

    def started(self, request: Request, /) -> bool:
        """A reconcile begins; whether its object has just been found to trigger itself."""
        ...

    def ended(self, request: Request, at: float, /) -> None:
        """It ended, at that time of the loop."""
        ...


class _NoResultError(TypeError):
    """What came back is no Result. Its traceback shows nothing of the reconciler, so it is not logged."""


@final
class Controller:
    """Reconciles the objects of one kind. Made by a `ControllerBuilder`; run by its host.

    Implements `opsdk.protocols.KeySink`: keys may be added from any thread, also before it runs, and are ignored once
    it has stopped.
    """

    def __init__(
        self,
        name: str,
        *,
        resource: ResourceInfo,
        reconcile: Callable[[Request], Awaitable[Result]],
        queue: WorkQueue[Request],
        look_up: Callable[[Request], Cached[KubeObject] | None],
        share: Callable[[WorkDivision], OwnShare],
        sources: Sequence[Source],
        detector: Detector,
        malformed: MalformedObjects,
        metrics: ReconcileMetrics,
        max_concurrent: int,
        timeout: timedelta | None,
    ) -> None:
        self._name = name
        self._resource = resource
        self._reconcile: Callable[[Request], Awaitable[object]] = reconcile  # whatever an untyped one may return
        self._queue = queue
        self._look_up = look_up
        self._make_share = share
        self._share: OwnShare | None = None
        self._sources = sources
        self._detector = detector
        self._malformed = malformed
        self._metrics = metrics
        self._max_concurrent = max_concurrent
        self._timeout = timeout
        self._used = False
        self._stopping = False
        self._stop_asked = ThreadWaker()
        self._ids = _ids()

    def __repr__(self) -> str:
        return f"<Controller {self._name}>"

    @property
    def name(self) -> str:
        """The metric label and the name in logs."""
        return self._name

    @property
    def queue(self) -> WorkQueue[Request]:
        """The keys that wait."""
        return self._queue

    def add(self, request: Request, /, *, priority: Priority = Priority.HIGH) -> None:
        """Reconcile an object soon. Never blocks; safe from any thread."""
        self._queue.add(request, priority=priority)

    def add_after(self, request: Request, delay: timedelta, /) -> None:
        """Reconcile an object after `delay`; an earlier time that already stands wins."""
        self._queue.add_after(request, delay)

    @property
    def share(self) -> int:
        """How many objects are this process's, where several divide them; else 0. May be read from any thread."""
        return 0 if self._share is None else self._share.objects

    def divide(self, division: WorkDivision, /) -> None:
        """Work only on objects that are this process's. Hosts call it, before `run`.

        *Guarantees*: what has become ours is reconciled, whether or not anything happens to it. What is not ours is
        dropped from the queue, with its delays and its backoff.
        """
        self._share = self._make_share(division)

    def stop(self) -> None:
        """Begin no reconcile any more; `run` returns when those that run have ended. From any thread."""
        self._stopping = True
        self._queue.close(discard=True)
        self._stop_asked.wake()

    def drain(self) -> None:
        """The same as `stop`, under the name that managers know."""
        self.stop()

    async def run(self) -> None:
        """Reconcile until cancelled or stopped.

        Raises:
            ManagerError: It ran before.
            Exception: What a source raised: a stream that is lost must not be lost silently.
        """
        if self._used:
            raise ManagerError(f"controller {self._name} ran before; make a new one")
        self._used = True
        try:
            async with anyio.create_task_group() as tasks:
                for source in self._sources:
                    tasks.start_soon(self._feed, source, name=f"opsdk {self._name}: source")
                if await self._caches_complete():
                    await self._work()
                tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise_bare(group)
        finally:
            self._queue.close(discard=True)

    async def _feed(self, source: Source) -> None:
        with no_stray_cancellation(f"controller {self._name}: a source"):
            await source.run(self._queue)

    async def _caches_complete(self) -> bool:
        """Wait until all caches are complete; False: stop came first."""

        async def wait() -> None:
            for source in self._sources:
                for informer in source.informers:
                    await informer.wait_synced()
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            while not self._stopping:
                await self._stop_asked.wait()
            tasks.cancel_scope.cancel()
        return not self._stopping

    async def _work(self) -> None:
        _logger.debug("controller %s: %d workers start", self._name, self._max_concurrent)
        self._metrics.workers(self._max_concurrent)
        async with anyio.create_task_group() as workers:
            for number in range(self._max_concurrent):
                workers.start_soon(self._worker, name=f"opsdk {self._name}: worker {number}")

    async def _worker(self) -> None:
        clock = current_loop().time
        try:
            while True:
                async with self._queue.lease() as request:
                    found = self._look_up(request)
                    token = enter(self._context(request, found))
                    try:
                        if self._share is None:
                            await self._handle(request, found, clock)
                        elif (turn := self._share.turn(request, found)) is None:
                            self._queue.forget(request)
                        else:
                            with turn.taken():
                                await self._handle(request, found, clock)
                    finally:
                        leave(token)
        except QueueClosedError:
            return

    def _context(self, request: Request, found: Cached[KubeObject] | None) -> ReconcileContext:
        def document() -> bytes | None:
            now = self._look_up(request)
            return None if now is None else now.raw

        return ReconcileContext(
            controller=self._name,
            kind=self._resource.kind,
            namespace=request.namespace or "",
            name=request.name,
            reconcile_id=next(self._ids),
            uid="" if found is None else found.header.uid,
            generation=0 if found is None else found.header.generation,
            document=document,
        )

    async def _handle(self, request: Request, before: Cached[KubeObject] | None, clock: Callable[[], float]) -> None:
        if self._detector.started(request):
            self._metrics.self_triggered()
        self._malformed.discard(request)
        self._metrics.started()
        began = clock()
        outcome: ReconcileOutcome = "cancelled"
        try:
            result = await (self._call(request) if self._timeout is None else self._call_until(request, self._timeout))
            outcome = self._succeeded(request, result)
        except Exception as error:  # noqa: BLE001 - whatever a reconciler raises, the next object is reconciled
            outcome = self._failed(request, error, before)
        finally:
            ended = clock()
            self._detector.ended(request, ended)
            self._metrics.finished(outcome, ended - began)
            if outcome == "cancelled":
                _logger.warning("%s: reconcile of %s was cancelled after %.3g s", self._name, request, ended - began)

    async def _call_until(self, request: Request, limit: timedelta) -> Result:
        with anyio.CancelScope(deadline=anyio.current_time() + limit.total_seconds()) as scope:
            return await self._call(request)
        assert scope.cancelled_caught  # noqa: S101 - the only way to get here
        raise ReconcileTimeoutError(self._name, str(request), limit)

    async def _call(self, request: Request) -> Result:
        try:
            result = await self._reconcile(request)
        except BaseException as error:
            if is_stray_cancellation(error):
                raise stray_cancellation(f"{self._name}: reconcile of {request}") from error
            raise
        if isinstance(result, Result):
            return result
        name: object = getattr(self._reconcile, "__qualname__", type(self._reconcile).__name__)
        what = "None" if result is None else f"a {type(result).__name__}"
        msg = f"{name} returned {what}; it has to return a Result, such as Result()"
        raise _NoResultError(msg)

    def _succeeded(self, request: Request, result: Result) -> ReconcileOutcome:
        after = result.requeue_after
        self._queue.forget(request)
        if after is None:
            return "success"
        self._queue.add_after(request, after)
        return "requeue_after" if after else "requeue"

    def _gave_up_malformed(self, request: Request, before: Cached[KubeObject] | None) -> None:
        """Have any other version of the object tried: one that will come, or that came while this one was."""
        now = self._look_up(request)
        if now is None:
            return
        if before is not None and before.header.resource_version == now.header.resource_version:
            self._malformed.add(request)
        else:
            self._queue.add_rate_limited(request)

    def _failed(self, request: Request, error: Exception, before: Cached[KubeObject] | None) -> ReconcileOutcome:
        if is_about_the_missing(error, self._resource, request) and self._look_up(request) is None:
            self._queue.forget(request)
            _logger.debug("%s: %s is gone, so there is nothing to do", self._name, request)
            return "success"
        failure = classify(error, self._resource, request)
        match failure.retry:
            case Retry.NEVER:
                self._queue.forget(request)
                _logger.error(
                    "%s: reconcile of %s failed, no retry until the object changes: %s", self._name, request, error
                )
                if failure.malformed:
                    self._gave_up_malformed(request, before)
            case Retry.BACKOFF:
                delay = self._queue.add_rate_limited(request)
                if failure.outcome == "panic" and not isinstance(error, _NoResultError):
                    _logger.error(
                        "%s: reconcile of %s raised an unexpected %s, retry in %.3g s",
                        self._name,
                        request,
                        type(error).__name__,
                        delay.total_seconds(),
                        exc_info=error,
                    )
                else:
                    level = logging.DEBUG if failure.quiet else logging.ERROR
                    _logger.log(level, _FAILED, self._name, request, delay.total_seconds(), error)
            case timedelta() as delay:
                self._queue.add_after(request, delay)
                _logger.error(_FAILED, self._name, request, delay.total_seconds(), error)
        return failure.outcome
