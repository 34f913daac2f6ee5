"""How long failed keys wait."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsdk.workqueue import ExponentialBackoff, LongestOf, TokenBucket, default_rate_limiter


def seconds(delay: timedelta) -> float:
    return delay.total_seconds()


def test_backoff_doubles_from_the_base_to_the_maximum() -> None:
    backoff = ExponentialBackoff[str](jitter=0)
    delays = [seconds(backoff.next_delay("a", now=0)) for _ in range(25)]
    assert delays[:4] == [0.005, 0.01, 0.02, 0.04]
    assert delays[17] == pytest.approx(655.36)
    assert delays[18:] == [1000.0] * 7


def test_a_thousand_failures_do_not_overflow() -> None:
    backoff = ExponentialBackoff[str]()
    for _ in range(5000):
        backoff.next_delay("a", now=0)
    assert 900 <= seconds(backoff.next_delay("a", now=0)) <= 1000


@given(failures=st.integers(0, 40), seed=st.integers())
def test_jitter_takes_off_at_most_its_fraction(failures: int, seed: int) -> None:
    exact = ExponentialBackoff[str](jitter=0)
    jittered = ExponentialBackoff[str](jitter=0.1, source=random.Random(seed))
    for _ in range(failures):
        exact.next_delay("a", now=0)
        jittered.next_delay("a", now=0)
    full, less = seconds(exact.next_delay("a", now=0)), seconds(jittered.next_delay("a", now=0))
    assert 0.9 * full - 1e-6 <= less <= full


def test_keys_back_off_apart_and_forgetting_starts_afresh() -> None:
    backoff = ExponentialBackoff[str](jitter=0)
    for _ in range(3):
        backoff.next_delay("a", now=0)
    assert seconds(backoff.next_delay("b", now=0)) == 0.005
    assert (backoff.failures("a"), backoff.failures("b"), backoff.failures("c")) == (3, 1, 0)
    backoff.forget("a")
    backoff.forget("never seen")
    assert seconds(backoff.next_delay("a", now=0)) == 0.005


def test_the_bucket_lets_a_burst_pass_and_then_its_rate() -> None:
    bucket = TokenBucket(rate=10, burst=100)
    assert [seconds(bucket.next_delay("k", now=0)) for _ in range(100)] == [0.0] * 100
    assert [seconds(bucket.next_delay("k", now=0)) for _ in range(3)] == pytest.approx([0.1, 0.2, 0.3])
    assert seconds(bucket.next_delay("k", now=0.4)) == 0.0
    assert seconds(bucket.next_delay("k", now=1000)) == 0.0


@given(st.lists(st.floats(0, 100), min_size=1, max_size=300))
def test_never_more_than_burst_plus_rate_times_time(gaps: list[float]) -> None:
    bucket = TokenBucket(rate=10, burst=5)
    now = 0.0
    allowed: list[float] = []
    for gap in gaps:
        now += gap / 50
        allowed.append(now + seconds(bucket.next_delay("k", now=now)))
    for first in range(len(allowed)):
        for last in range(first, min(first + 40, len(allowed))):
            assert last - first + 1 <= 5 + 10 * (allowed[last] - allowed[first]) + 1 + 1e-3


def test_the_strictest_of_several_wins() -> None:
    both = LongestOf[str](ExponentialBackoff[str](jitter=0), TokenBucket(rate=1, burst=1))
    assert seconds(both.next_delay("a", now=0)) == 0.005
    assert seconds(both.next_delay("b", now=0)) == 1.0
    assert both.failures("a") == 1
    both.forget("a")
    assert both.failures("a") == 0


def test_the_default_starts_at_five_milliseconds() -> None:
    assert 0.0045 <= seconds(default_rate_limiter().next_delay("a", now=0)) <= 0.005


@pytest.mark.parametrize(("base", "maximum"), [(0, 1), (-1, 1), (2, 1)])
def test_senseless_backoffs_are_refused(base: int, maximum: int) -> None:
    with pytest.raises(ValueError, match="base"):
        ExponentialBackoff[str](base=timedelta(seconds=base), maximum=timedelta(seconds=maximum))


def test_other_senseless_options_are_refused() -> None:
    with pytest.raises(ValueError, match="jitter"):
        ExponentialBackoff[str](jitter=1.5)
    with pytest.raises(ValueError, match="burst"):
        TokenBucket(burst=0)
    with pytest.raises(ValueError, match="at least one"):
        LongestOf[str]()
