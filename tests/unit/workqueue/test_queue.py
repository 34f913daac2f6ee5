"""What the queue promises, one promise a test."""

from __future__ import annotations

import threading
import weakref
from contextlib import suppress
from datetime import timedelta
from functools import partial

import anyio
import anyio.to_thread
import pytest

from opsdk.errors import QueueClosedError
from opsdk.workqueue import ExponentialBackoff, Priority, WorkQueue

pytestmark = pytest.mark.anyio


def of(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


async def next_key(queue: WorkQueue[str], *, within: float = 0.0) -> str | None:
    """The next key, leased and let go of at once; None if there is none within so many seconds."""
    with anyio.move_on_after(within + 1e-4):
        async with queue.lease() as key:
            return key
    return None


async def test_many_adds_are_one_lease() -> None:
    queue = WorkQueue[str]("q")
    for _ in range(5):
        queue.add("a")
    assert len(queue) == 1
    assert await next_key(queue) == "a"
    assert await next_key(queue) is None


async def test_keys_come_in_the_order_of_their_first_add() -> None:
    queue = WorkQueue[str]("q")
    for key in "abca":
        queue.add(key)
    assert [await next_key(queue) for _ in range(3)] == ["a", "b", "c"]


async def test_an_add_during_a_lease_is_exactly_one_more_lease_after_it() -> None:
    queue = WorkQueue[str]("q")
    queue.add("a")
    async with queue.lease() as key:
        assert key == "a"
        for _ in range(3):
            queue.add("a")
        assert await next_key(queue, within=60) is None  # not while it is held
    assert await next_key(queue) == "a"
    assert await next_key(queue) is None


async def test_a_waiting_worker_is_woken_by_an_add() -> None:
    queue = WorkQueue[str]("q")
    got: list[str] = []

    async def worker() -> None:
        async with queue.lease() as key:
            got.append(key)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker)
        tasks.start_soon(worker)
        await anyio.wait_all_tasks_blocked()
        queue.add("a")
        queue.add("b")
    assert sorted(got) == ["a", "b"]


async def test_adds_from_threads_and_before_the_loop_are_kept() -> None:
    queue = WorkQueue[str]("q")
    thread = threading.Thread(target=queue.add, args=("a",))
    thread.start()
    await anyio.to_thread.run_sync(thread.join)
    assert await next_key(queue) == "a"

    async with anyio.create_task_group() as tasks:

        async def worker() -> None:
            async with queue.lease() as key:
                assert key == "b"

        tasks.start_soon(worker)
        await anyio.wait_all_tasks_blocked()
        await anyio.to_thread.run_sync(queue.add, "b")


async def test_a_delay_from_a_thread_is_kept() -> None:
    queue = WorkQueue[str]("q")
    await next_key(queue)
    begun: list[float] = []
    async with anyio.create_task_group() as tasks:

        async def worker() -> None:
            async with queue.lease() as key:
                assert key == "a"

        tasks.start_soon(worker)
        await anyio.wait_all_tasks_blocked()
        begun.append(anyio.current_time())
        await anyio.to_thread.run_sync(queue.add_after, "a", of(90))
    assert anyio.current_time() - begun[0] == pytest.approx(90, abs=0.01)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_what_was_added_before_any_loop_is_leased_in_the_first_one(backend: str) -> None:
    queue = WorkQueue[str]("q")
    queue.add("now")
    queue.add_after("soon", of(0.001))
    assert len(queue) == 1

    async def main() -> list[str | None]:
        return [await next_key(queue, within=5), await next_key(queue, within=5)]

    assert anyio.run(main, backend=backend) == ["now", "soon"]
    queue.add("again")
    assert anyio.run(partial(next_key, queue, within=5), backend=backend) == "again"


async def test_delays_are_kept_and_the_earliest_wins() -> None:
    queue = WorkQueue[str]("q")
    queue.add_after("a", of(60))
    queue.add_after("a", of(10))
    queue.add_after("a", of(30))
    began = anyio.current_time()
    assert await next_key(queue, within=3600) == "a"
    assert anyio.current_time() - began == pytest.approx(10, abs=0.01)
    assert await next_key(queue, within=3600) is None


async def test_an_earlier_delay_reaches_a_worker_that_waits_for_a_later_one() -> None:
    queue = WorkQueue[str]("q")
    queue.add_after("late", of(3600))
    got: list[tuple[str, int]] = []
    began = anyio.current_time()

    async def worker() -> None:
        async with queue.lease() as key:
            got.append((key, round(anyio.current_time() - began)))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker)
        tasks.start_soon(worker)
        await anyio.wait_all_tasks_blocked()
        queue.add_after("early", of(5))
    assert got == [("early", 5), ("late", 3600)]


async def test_q10_an_add_runs_at_once_and_takes_the_place_of_the_timer() -> None:
    queue = WorkQueue[str]("q")
    queue.add_after("a", of(60))
    queue.add("a")
    assert await next_key(queue) == "a"
    assert await next_key(queue, within=3600) is None


async def test_q10_what_a_lease_asks_for_stands_after_it() -> None:
    queue = WorkQueue[str]("q")
    queue.add_after("a", of(60))
    queue.add("a")
    began = anyio.current_time()
    async with queue.lease() as key:
        queue.add_after(key, of(20))
    assert await next_key(queue, within=3600) == "a"
    assert anyio.current_time() - began == pytest.approx(20, abs=0.01)


async def test_a_delay_that_ends_during_a_lease_is_one_more_lease() -> None:
    queue = WorkQueue[str]("q")
    queue.add("a")
    async with queue.lease() as key:
        queue.add_after(key, of(5))
        assert await next_key(queue, within=10) is None
    assert await next_key(queue) == "a"


async def test_rate_limited_adds_back_off_until_forgotten() -> None:
    queue = WorkQueue[str]("q", rate_limiter=ExponentialBackoff(jitter=0))
    waits: list[float] = []
    for _ in range(5):
        began = anyio.current_time()
        asked = queue.add_rate_limited("a")
        assert await next_key(queue, within=3600) == "a"
        waits.append(anyio.current_time() - began)
        assert waits[-1] == pytest.approx(asked.total_seconds(), abs=2e-3)
    assert waits[-1] == pytest.approx(0.08, abs=2e-3)
    assert queue.failures("a") == 5
    queue.forget("a")
    assert queue.add_rate_limited("a") == of(0.005)


async def test_q08_a_fresh_key_goes_before_all_that_wait_since_the_start() -> None:
    queue = WorkQueue[str]("q")
    for number in range(50_000):
        queue.add(f"old-{number}", priority=Priority.LOW)
    for number in range(100):
        assert await next_key(queue) == f"old-{number}"
        queue.add("fresh")
        assert await next_key(queue) == "fresh"


async def test_a_key_that_waits_can_be_raised_and_not_lowered() -> None:
    queue = WorkQueue[str]("q")
    for key in ("a", "b"):
        queue.add(key, priority=Priority.LOW)
    queue.add("c")
    queue.add("b")
    queue.add("b", priority=Priority.LOW)
    assert [await next_key(queue) for _ in range(3)] == ["c", "b", "a"]


async def test_low_keys_are_not_starved() -> None:
    queue = WorkQueue[str]("q")
    queue.add("old", priority=Priority.LOW)
    for count in range(1, 100):
        queue.add(f"fresh-{count}")
        queue.add(f"more-{count}")
        if await next_key(queue) == "old":
            assert count == 10
            return
    pytest.fail("the LOW key was never leased")


async def test_a_key_that_always_comes_back_at_once_leaves_room_for_others() -> None:
    queue = WorkQueue[str]("q")
    queue.add("busy")
    queue.add("calm")
    queue.add("old", priority=Priority.LOW)
    seen: list[str] = []
    for _ in range(20):
        async with queue.lease() as key:
            seen.append(key)
            if key == "busy":
                queue.add_after(key, of(0))
    assert {"calm", "old"} < set(seen)


async def test_a_retry_keeps_the_priority_of_its_lease() -> None:
    queue = WorkQueue[str]("q")
    queue.add("old", priority=Priority.LOW)
    async with queue.lease() as key:
        queue.add_after(key, of(1))
    await anyio.sleep(2)
    queue.add("fresh")
    assert [await next_key(queue), await next_key(queue)] == ["fresh", "old"]


async def test_a_closed_queue_takes_nothing_gives_what_is_ready_and_then_says_so() -> None:
    queue = WorkQueue[str]("widgets")
    queue.add("a")
    queue.add_after("later", of(5))
    queue.close()
    queue.add("b")
    queue.add_after("b", of(0))
    queue.add_rate_limited("b")
    assert await next_key(queue) == "a"
    with pytest.raises(QueueClosedError, match="widgets"):
        await next_key(queue, within=60)


async def test_closing_wakes_all_who_wait() -> None:
    queue = WorkQueue[str]("q")
    refused = 0

    async def worker() -> None:
        nonlocal refused
        try:
            async with queue.lease():
                pytest.fail("nothing was added")
        except QueueClosedError:
            refused += 1

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(worker)
        await anyio.wait_all_tasks_blocked()
        await anyio.to_thread.run_sync(queue.close)
    assert refused == 3


async def test_closing_may_discard_what_is_ready() -> None:
    queue = WorkQueue[str]("q")
    queue.add("a")
    queue.add("b")
    async with queue.lease() as key:
        queue.add(key)
        queue.close(discard=True)
    with pytest.raises(QueueClosedError):
        await next_key(queue)


async def test_a_cancelled_wait_loses_no_key_and_no_timer() -> None:
    queue = WorkQueue[str]("q")
    got: list[str] = []

    async def worker() -> None:
        with suppress(QueueClosedError):
            while True:
                async with queue.lease() as key:
                    got.append(key)

    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as doomed:
                doomed.start_soon(worker)  # it watches the time for both
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(worker)
                tasks.start_soon(worker)
                await anyio.wait_all_tasks_blocked()
                queue.add_after("timed", of(10))
                queue.add("now")  # goes to the doomed one, which is cancelled before it can take it
                scope.cancel()
        await anyio.sleep(20)
        queue.close()
    assert sorted(got) == ["now", "timed"]


async def test_a_body_that_raises_lets_go_of_its_key_and_keeps_what_was_added() -> None:
    queue = WorkQueue[str]("q")
    queue.add("a")

    async def fail() -> None:
        async with queue.lease() as key:
            queue.add(key)
            raise LookupError

    with pytest.raises(LookupError):
        await fail()
    assert queue.in_progress() == (0.0, 0.0)
    assert await next_key(queue) == "a"


async def test_work_in_progress_is_known() -> None:
    queue = WorkQueue[str]("q")
    queue.add("a")
    queue.add("b")
    async with queue.lease():
        await anyio.sleep(3)
        async with queue.lease():
            await anyio.sleep(2)
            in_all, longest = queue.in_progress()
            assert (round(in_all), round(longest)) == (7, 5)
    assert queue.in_progress() == (0.0, 0.0)


class Key:
    """One that can be referred to weakly."""


class Told:
    def __init__(self) -> None:
        self.said: list[tuple[str, float]] = []

    def depth(self, ready: int, /) -> None:
        self.said.append(("depth", ready))

    def added(self) -> None:
        self.said.append(("added", 0))

    def leased(self, waited_seconds: float, /) -> None:
        self.said.append(("leased", waited_seconds))

    def released(self, worked_seconds: float, /) -> None:
        self.said.append(("released", worked_seconds))

    def retried(self) -> None:
        self.said.append(("retried", 0))


async def test_metrics_are_told_what_happens() -> None:
    told = Told()
    queue = WorkQueue[str]("q", metrics=told)
    await next_key(queue)
    queue.add("a")
    queue.add("a")
    await anyio.sleep(2)
    async with queue.lease() as key:
        await anyio.sleep(3)
        queue.add_rate_limited(key)
    assert told.said == [
        ("added", 0),
        ("depth", 1),
        ("depth", 0),
        ("leased", pytest.approx(2)),
        ("retried", 0),
        ("released", pytest.approx(3)),
    ]


async def test_q11_ten_thousand_keys_that_came_and_went_leave_nothing_behind() -> None:
    queue = WorkQueue[Key]("q")
    alive: list[weakref.ref[Key]] = []
    for _ in range(10_000):
        key = Key()
        queue.add_after(key, timedelta(hours=10))
        queue.add(key)
        async with queue.lease() as leased:
            assert leased is key
        queue.forget(key)
        alive.append(weakref.ref(key))
    assert sum(ref() is not None for ref in alive) < 200


def test_a_queue_is_true_even_when_it_is_empty() -> None:
    assert WorkQueue[str]("q")


async def test_a_delay_is_kept_although_the_worker_that_watched_the_time_is_busy() -> None:
    queue = WorkQueue[str]("q")
    leased: list[tuple[str, float]] = []

    async def work() -> None:
        while True:
            async with queue.lease() as key:
                leased.append((key, anyio.current_time() - began))
                await anyio.sleep(600 if key == "slow" else 0)

    async with anyio.create_task_group() as tasks:
        began = anyio.current_time()
        tasks.start_soon(work)
        tasks.start_soon(work)
        await anyio.sleep(1)
        queue.add("slow")  # taken by the one that came first, and watches the time
        await anyio.sleep(1)
        queue.add_after("soon", of(3))
        await anyio.sleep(100)
        tasks.cancel_scope.cancel()
    assert [(key, round(at)) for key, at in leased] == [("slow", 1), ("soon", 5)]
