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
from collections.abc import AsyncGenerator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeVar, final

import anyio
import anyio.lowlevel

from opsdk._backend import LoopHandle, current_loop
from opsdk.errors import QueueClosedError
from opsdk.workqueue._ready import Ready, Taken
from opsdk.workqueue._timers import Timers
from opsdk.workqueue.metrics import NoMetrics, WorkQueueMetrics
from opsdk.workqueue.priority import Priority
from opsdk.workqueue.ratelimit import RateLimiter, default_rate_limiter

__all__ = ["WorkQueue"]

K = TypeVar("K", bound=Hashable)


@final
@dataclass(slots=True, kw_only=True)
class _Lease:
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
        self._leases: dict[K, _Lease] = {}
        self._closed = False
        self._loop: LoopHandle | None = None
        self._kicked = False
        # Of the loop alone: who waits, and who of them watches the time.
        self._waiters: deque[anyio.Event] = deque()
        self._timekeeper: anyio.CancelScope | None = None

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
            return len(self._ready)

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

    @asynccontextmanager
    async def lease(self) -> AsyncGenerator[K]:
        """Wait for the next key and hold it for the `async with` body.

        Raises:
            QueueClosedError: The queue is closed and nothing is ready.
        """
        taken = await self._next()
        try:
            yield taken.key
        finally:
            self._release(taken.key)

    async def _next(self) -> Taken[K]:
        self._bind()
        # Others get their turn before anything is taken, so that being cancelled here loses nothing. Who has to wait
        # gives it to them by that.
        with self._lock:
            waits = not len(self._ready) and self._timers.next_at() > self._now()
        if not waits:
            await anyio.lowlevel.checkpoint()
        else:
            await anyio.lowlevel.checkpoint_if_cancelled()
        while True:
            with self._lock:
                now = self._now()
                for key, priority in self._timers.pop_due(now):
                    if self._mark(key, priority, now):
                        self._wake_one()
                taken = self._ready.take()
                if taken is not None:
                    self._leases[taken.key] = _Lease(started=now, priority=taken.priority)
                    self._metrics.depth(len(self._ready))
                    self._metrics.leased(max(now - taken.since, 0.0))
                elif self._closed:
                    raise QueueClosedError(self._name)
            if taken is not None:
                if self._timekeeper is None and len(self._timers):
                    self._wake_one()  # somebody else has to watch the time now
                return taken
            await self._wait()

    async def _wait(self) -> None:
        event = anyio.Event()
        self._waiters.append(event)
        try:
            if self._timekeeper is not None:
                await event.wait()
                return
            with self._lock:
                deadline = self._timers.next_at()
            with anyio.CancelScope(deadline=deadline) as scope:
                self._timekeeper = scope
                try:
                    await event.wait()
                finally:
                    self._timekeeper = None
        except BaseException:
            if not event.is_set():
                self._waiters.remove(event)
            self._wake_one()  # pass on the wake-up or the watch that this one may have had
            raise
        if not event.is_set():
            self._waiters.remove(event)

    def _release(self, key: K) -> None:
        with self._lock:
            now = self._now()
            lease = self._leases.pop(key)
            self._metrics.released(max(now - lease.started, 0.0))
            pushed = lease.again is not None and self._mark(key, lease.again, now)
        if pushed:
            self._notify()

    # With the lock held.

    def _now(self) -> float:
        return 0.0 if self._loop is None else self._loop.time()

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
        self._metrics.depth(len(self._ready))
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

    def _bind(self) -> None:
        with self._lock:
            if self._loop is not None and self._loop.is_current():
                return
            before = self._now()
            self._loop = current_loop()
            passed = self._now() - before
            self._timers.shift(passed)
            self._ready.shift(passed)
            self._kicked = False
            self._waiters.clear()
            self._timekeeper = None

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
        with self._lock:
            work = math.inf if self._closed else len(self._ready)
            next_at = self._timers.next_at()
        for _ in range(min(len(self._waiters), int(min(work, len(self._waiters))))):
            self._wake_one()
        if self._timekeeper is None:
            if next_at < math.inf:
                self._wake_one()  # the one that watched the time has a key now; the one that is woken goes on watching
        elif next_at < self._timekeeper.deadline:
            self._timekeeper.deadline = next_at

    def _wake_one(self) -> None:
        if self._waiters:
            self._waiters.popleft().set()
