"""A queue of keys with at most one worker per key.

Guarantees:
    * Many adds before a lease are one lease. An add during a lease is exactly one more lease, after it.
    * No two leases of one key overlap.
    * A key has at most one time at which it is due, and the earliest wins: `add` is "now", so it takes the place of a
      pending `add_after`, and what the worker asks for at the end of its lease stands afterwards.
    * HIGH goes before LOW; adding a waiting key again can raise its priority and never lowers it. Of ten leases in a
      row at least one is a LOW key, if any waits. Within a priority, first in, first out.
    * A lease that is cancelled, or whose body raises, loses no key: an add during it still is one more lease.
    * Adds never block, are safe from any thread and before a loop runs, and are ignored once the queue is closed.

Not promised: order across priorities; the order of keys that become due at the same time; that a delay is exact.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Final, Generic, TypeVar, final

import anyio
import anyio.lowlevel
import msgspec

from opsdk._backend import LoopHandle, Signal, current_loop
from opsdk.errors import QueueClosedError
from opsdk.workqueue._ready import Ready, Taken
from opsdk.workqueue._timers import Timers
from opsdk.workqueue.metrics import NoMetrics, WorkQueueMetrics
from opsdk.workqueue.priority import Priority
from opsdk.workqueue.ratelimit import RateLimiter, default_rate_limiter

__all__ = ["WorkQueue"]

K = TypeVar("K", bound=Hashable)


_LEASES_IN_A_ROW: Final = 8
_SECONDS_IN_A_ROW: Final = 0.001
"""How many leases, and for how long, workers may take without a turn of the loop between them. Most reconciles wait
for something, and give others their turn by that; after one that does not, going back costs as much as the lease."""


def _not_yet() -> float:
    """The time before there is a loop."""
    return 0.0


@final
class _Held(msgspec.Struct):
    """A lease, as the queue knows it."""

    started: float
    priority: Priority
    again: Priority | None = None
    """The key was added meanwhile, with this priority."""


@final
class WorkQueue(Generic[K]):
    """Hands each key to at most one worker at a time.

    Implements `opsdk.protocols.KeySink`. Leases are taken on one loop at a time; everything else works from any
    thread. Delays that were given before the first lease count from it.

    Args:
        name: Metric label and error text; unique per process.
        rate_limiter: For `add_rate_limited`. Default: `default_rate_limiter()`.
        metrics: Is told what happens.
    """

    def __init__(
        self, name: str, *, rate_limiter: RateLimiter[K] | None = None, metrics: WorkQueueMetrics | None = None
    ) -> None:
        self._name = name
        self._limiter: RateLimiter[K] = default_rate_limiter() if rate_limiter is None else rate_limiter
        self._metrics: WorkQueueMetrics = NoMetrics() if metrics is None else metrics
        self._lock = threading.Lock()
        self._ready = Ready[K]()
        self._timers = Timers[K]()
        self._leases: dict[K, _Held] = {}
        self._closed = False
        self._loop: LoopHandle | None = None
        self._now: Callable[[], float] = _not_yet
        self._kicked = False
        # Of the loop alone: who waits, and who of them watches the time.
        self._waiters: deque[Signal] = deque()
        self._woken = 0  # and have not come to themselves yet
        self._timekeeper: anyio.CancelScope | None = None
        # Since the loop last turned: how many leases began, and when the first did.
        self._in_a_row = 0
        self._row_began = -math.inf

    @property
    def name(self) -> str:
        """Metric label and error text."""
        return self._name

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def __len__(self) -> int:
        """How many keys wait for a worker; those with a delay and those being worked on do not count."""
        with self._lock:
            return self._ready.count

    def __bool__(self) -> bool:
        return True  # an empty queue is a queue

    def add(self, key: K, /, *, priority: Priority = Priority.HIGH) -> None:
        """Mark `key` as needing work now. Never blocks; ignored once closed."""
        with self._lock:
            if self._closed:
                return
            pushed = self._mark(key, priority, self._now())
        if pushed:
            self._notify()

    def add_after(self, key: K, delay: timedelta, /, *, priority: Priority | None = None) -> None:
        """Mark `key` as needing work after `delay`; an earlier time that already stands wins.

        Args:
            key: The key.
            delay: Zero or less: now.
            priority: Default: that of the lease under which the key is, else HIGH.
        """
        with self._lock:
            if self._closed:
                return
            noticed = self._schedule(key, delay, priority)
        if noticed:
            self._notify()

    def add_rate_limited(self, key: K, /, *, priority: Priority | None = None) -> timedelta:
        """Mark `key`, which failed, as needing work when its rate limiter allows; returns how long that is."""
        with self._lock:
            delay = self._limiter.next_delay(key, now=self._now())
            if self._closed:
                return delay
            self._metrics.retried()
            noticed = self._schedule(key, delay, priority)
        if noticed:
            self._notify()
        return delay

    def forget(self, key: K, /) -> None:
        """Let the backoff of `key` start afresh: it succeeded, or will not be tried again."""
        self._limiter.forget(key)

    def failures(self, key: K, /) -> int:
        """How often `key` was added with a rate limit since it was forgotten."""
        return self._limiter.failures(key)

    def in_progress(self) -> tuple[float, float]:
        """Seconds of work that has begun and not ended: of all leases together, and of the longest one."""
        with self._lock:
            now = self._now()
            spans = [now - lease.started for lease in self._leases.values()]
        return sum(spans), max(spans, default=0.0)

    def close(self, *, discard: bool = False) -> None:
        """Accept nothing more and forget what has a delay; workers get what is ready, then `QueueClosedError`.

        Args:
            discard: Forget what is ready, too, so that no new lease begins.
        """
        with self._lock:
            self._closed = True
            self._timers.clear()
            if discard:
                self._ready.clear()
                for lease in self._leases.values():
                    lease.again = None
                self._metrics.depth(0)
        self._notify()

    def lease(self) -> AbstractAsyncContextManager[K]:
        """Wait for the next key and hold it for the `async with` body.

        Raises:
            QueueClosedError: The queue is closed and nothing is ready.
        """
        return _Lease(self._next, self._release)

    async def _next(self) -> K:
        loop = self._loop
        if loop is None or not loop.is_current():
            loop = self._bind()
        now = self._now()
        if self._in_a_row >= _LEASES_IN_A_ROW or now - self._row_began > _SECONDS_IN_A_ROW:
            # Others get their turn before anything is taken, so that being cancelled here loses nothing. Who has to
            # wait gives it to them by that.
            if not self._has_nothing(now):
                await anyio.lowlevel.checkpoint()
            now = self._turned()
        while (taken := self._take(now)) is None:
            await self._wait(loop)
            now = self._turned()
        self._in_a_row += 1
        if self._timekeeper is None and not self._woken and self._timers.due:
            self._wake_one()  # somebody else has to watch the time now
        return taken.key

    def _turned(self) -> float:
        self._in_a_row = 0
        self._row_began = now = self._now()
        return now

    def _has_nothing(self, now: float) -> bool:
        with self._lock:
            return self._ready.count == 0 and self._timers.next_at() > now

    def _take(self, now: float) -> Taken[K] | None:
        with self._lock:
            if self._timers.due:
                for key, priority in self._timers.pop_due(now):
                    if self._mark(key, priority, now):
                        self._wake_one()
            taken = self._ready.take()
            if taken is not None:
                self._leases[taken.key] = _Held(now, taken.priority)
                self._metrics.depth(self._ready.count)
                self._metrics.leased(max(now - taken.since, 0.0))
            elif self._closed:
                raise QueueClosedError(self._name)
        return taken

    async def _wait(self, loop: LoopHandle) -> None:
        signal = loop.signal()
        self._waiters.append(signal)
        try:
            deadline = math.inf
            if self._timekeeper is None and self._timers.due:
                with self._lock:
                    deadline = self._timers.next_at()
            if deadline == math.inf:
                await signal.wait()
            else:
                with anyio.CancelScope(deadline=deadline) as scope:
                    self._timekeeper = scope
                    try:
                        await signal.wait()
                    finally:
                        self._timekeeper = None
        except BaseException:
            self._came_to_itself(signal)
            self._wake_one()  # pass on the wake-up or the watch that this one may have had
            raise
        self._came_to_itself(signal)

    def _came_to_itself(self, signal: Signal) -> None:
        if signal.is_set():
            self._woken -= 1
        else:
            self._waiters.remove(signal)

    def _release(self, key: K) -> None:
        with self._lock:
            now = self._now()
            lease = self._leases.pop(key)
            self._metrics.released(max(now - lease.started, 0.0))
            pushed = lease.again is not None and self._mark(key, lease.again, now)
        if pushed:
            self._notify()

    # With the lock held.

    def _mark(self, key: K, priority: Priority, now: float) -> bool:
        """Make `key` ready, or remember it for the end of its lease. Whether a worker has something new to do."""
        self._timers.drop(key)
        lease = self._leases.get(key)
        if lease is not None:
            lease.again = priority if lease.again is None else max(lease.again, priority)
            return False
        if not self._ready.push(key, priority, now):
            return False
        self._metrics.added()
        self._metrics.depth(self._ready.count)
        return True

    def _schedule(self, key: K, delay: timedelta, priority: Priority | None) -> bool:
        """Mark `key` now or later. Whether a waiter has to know."""
        lease = self._leases.get(key)
        if priority is None:
            priority = Priority.HIGH if lease is None else lease.priority
        now = self._now()
        if delay <= timedelta(0):
            return self._mark(key, priority, now)
        if key in self._ready or (lease is not None and lease.again is not None):
            return False  # now is earlier
        before = self._timers.next_at()
        self._timers.set(key, now + delay.total_seconds(), priority)
        return self._timers.next_at() < before

    # Waking up. Without the lock, but for `_wake_one`, which does not mind.

    def _bind(self) -> LoopHandle:
        with self._lock:
            before = self._now()
            self._loop = current_loop()
            self._now = self._loop.time
            passed = self._now() - before
            self._timers.shift(passed)
            self._ready.shift(passed)
            self._kicked = False
            self._waiters.clear()
            self._woken = 0
            self._timekeeper = None
            self._turned()
            return self._loop

    def _notify(self) -> None:
        """Let waiters see what changed, from any thread."""
        loop = self._loop
        if loop is None:
            return
        if loop.is_current():
            self._kick()
        elif not self._kicked:
            self._kicked = True
            if not loop.call_soon(self._kick_from_afar):
                self._kicked = False  # that loop has ended, and the next one must hear of what comes

    def _kick_from_afar(self) -> None:
        self._kicked = False
        self._kick()

    def _kick(self) -> None:
        if not self._waiters:
            return
        work, next_at = math.inf if self._closed else self._ready.count, math.inf
        if self._timers.due:
            with self._lock:
                next_at = self._timers.next_at()
        while self._waiters and self._woken < work:
            self._wake_one()
        if self._timekeeper is None:
            if next_at < math.inf and not self._woken:
                self._wake_one()  # the one that watched the time has a key now; the one that is woken goes on watching
        elif next_at < self._timekeeper.deadline:
            self._timekeeper.deadline = next_at

    def _wake_one(self) -> None:
        if self._waiters:
            self._woken += 1
            self._waiters.popleft().set()


@final
class _Lease(Generic[K]):
    """One turn of a worker. By hand: what `asynccontextmanager` makes of a generator costs more than the rest of it."""

    __slots__ = ("_key", "_next", "_release")

    def __init__(self, next_key: Callable[[], Awaitable[K]], release: Callable[[K], None]) -> None:
        self._next = next_key
        self._release = release

    async def __aenter__(self) -> K:
        self._key = key = await self._next()
        return key

    async def __aexit__(self, *_: object) -> None:
        self._release(self._key)
