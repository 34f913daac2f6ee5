"""How long a key that failed has to wait.

Limiters know no clock: they are told the time, in seconds of any clock that does not go back. All are safe to use from
several threads.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Hashable
from datetime import timedelta
from typing import Final, Generic, Protocol, TypeVar, final

__all__ = ["ExponentialBackoff", "LongestOf", "RateLimiter", "TokenBucket", "default_rate_limiter"]

K = TypeVar("K", bound=Hashable)
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)

_BASE: Final = timedelta(milliseconds=5)
_MAXIMUM: Final = timedelta(seconds=1000)
_DOUBLINGS: Final = 64
"""Enough for any pair of base and maximum; more would overflow a float."""


class RateLimiter(Protocol[K_contra]):
    """Decides how long a key waits before it is tried again."""

    def next_delay(self, key: K_contra, /, *, now: float) -> timedelta:
        """Count a failure of `key`, and say how long to wait from `now`, a time in seconds."""
        ...

    def forget(self, key: K_contra, /) -> None:
        """Let `key` start afresh. Does nothing if it has no failures."""
        ...

    def failures(self, key: K_contra, /) -> int:
        """How often `key` failed since it was forgotten."""
        ...


@final
class ExponentialBackoff(Generic[K]):
    """Doubles the wait with every failure of a key.

    Args:
        base: After the first failure. Default 5 ms.
        maximum: Never longer than this. Default 1000 s.
        jitter: Up to this fraction is taken off each wait, at random, so that keys that failed together do not come
            back together. Default 0.1.
        source: Where randomness comes from; for tests.
    """

    def __init__(
        self,
        *,
        base: timedelta = _BASE,
        maximum: timedelta = _MAXIMUM,
        jitter: float = 0.1,
        source: random.Random | None = None,
    ) -> None:
        if not timedelta(0) < base <= maximum:
            msg = f"base is {base} and maximum {maximum}; it must be 0 < base <= maximum"
            raise ValueError(msg)
        if not 0 <= jitter <= 1:
            msg = f"jitter is {jitter}; it must be between 0 and 1"
            raise ValueError(msg)
        self._base_seconds = base.total_seconds()
        self._maximum_seconds = maximum.total_seconds()
        self._jitter = jitter
        # Jitter, not a secret; drawn from the process's own numbers, so that a test that seeds those can repeat a run.
        self._random = random.Random(random.getrandbits(64)) if source is None else source  # noqa: S311
        self._failures: dict[K, int] = {}
        self._lock = threading.Lock()

    def next_delay(self, key: K, /, *, now: float) -> timedelta:
        """Count a failure of `key`, and say how long to wait."""
        with self._lock:
            failures = self._failures.get(key, 0)
            self._failures[key] = failures + 1
            share = 1.0 - self._jitter * self._random.random()
        seconds = min(self._base_seconds * 2.0 ** min(failures, _DOUBLINGS), self._maximum_seconds)
        return timedelta(seconds=seconds * share)

    def forget(self, key: K, /) -> None:
        """Let `key` start afresh."""
        if key in self._failures:  # hardly any: each success asks for this
            with self._lock:
                self._failures.pop(key, None)

    def failures(self, key: K, /) -> int:
        """How often `key` failed since it was forgotten."""
        with self._lock:
            return self._failures.get(key, 0)


@final
class TokenBucket:
    """Limits all keys together: bursts pass, a steady stream goes at `rate`.

    Args:
        rate: Keys a second. Default 10.
        burst: Keys that pass without a wait after a quiet time. Default 100.
    """

    def __init__(self, *, rate: float = 10.0, burst: int = 100) -> None:
        if rate <= 0 or burst < 1:
            msg = f"rate is {rate} and burst {burst}; it must be rate > 0 and burst >= 1"
            raise ValueError(msg)
        self._rate = rate
        self._burst = float(burst)
        self._tokens = float(burst)
        self._at: float | None = None
        self._lock = threading.Lock()

    def next_delay(self, key: Hashable, /, *, now: float) -> timedelta:
        """Take a token, in advance if there is none, and say when it will be there."""
        with self._lock:
            if self._at is not None and now > self._at:
                self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
            self._at = now
            self._tokens -= 1.0
            return timedelta(seconds=max(0.0, -self._tokens / self._rate))

    def forget(self, key: Hashable, /) -> None:
        """Nothing: the bucket knows no keys."""

    def failures(self, key: Hashable, /) -> int:
        """0: the bucket knows no keys."""
        return 0


@final
class LongestOf(Generic[K]):
    """Asks several limiters and waits as long as the strictest says."""

    def __init__(self, *limiters: RateLimiter[K]) -> None:
        if not limiters:
            raise ValueError("LongestOf needs at least one limiter")
        self._limiters = limiters

    def next_delay(self, key: K, /, *, now: float) -> timedelta:
        """Count a failure of `key` with each, and say the longest wait."""
        return max(limiter.next_delay(key, now=now) for limiter in self._limiters)

    def forget(self, key: K, /) -> None:
        """Let `key` start afresh with each."""
        for limiter in self._limiters:
            limiter.forget(key)

    def failures(self, key: K, /) -> int:
        """The largest count of any."""
        return max(limiter.failures(key) for limiter in self._limiters)


def default_rate_limiter() -> RateLimiter[Hashable]:
    """Backoff from 5 ms to 1000 s a key, and 10 a second with bursts of 100 over all keys."""
    return LongestOf[Hashable](ExponentialBackoff[Hashable](), TokenBucket())
