"""Which key comes next, against a model; and that no way of leaving a lease loses one.

The invariants:
    * The next key is the first HIGH one; but after nine HIGH ones in a row that a LOW one had to see, the first LOW.
    * Within a priority keys come in the order in which they got it.
    * A waiting key keeps its place when it is added again, and goes to the end of the HIGH ones when it is raised.
    * So the n-th LOW key waits for at most ten times n leases, whatever else is added.
    * A lease that is cancelled or raises is over, and a key that was added during it is leased again.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from contextlib import suppress
from datetime import timedelta

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsdk.errors import QueueClosedError
from opsdk.testing.virtual_time import virtual_asyncio_options
from opsdk.workqueue import ExponentialBackoff, Priority, WorkQueue

HIGH, LOW = Priority.HIGH, Priority.LOW


class Model:
    """Two lists."""

    def __init__(self) -> None:
        self.waiting: dict[Priority, list[int]] = {HIGH: [], LOW: []}
        self.in_a_row = 0

    def add(self, key: int, priority: Priority) -> None:
        if key in self.waiting[HIGH] or (key in self.waiting[LOW] and priority is LOW):
            return
        if key in self.waiting[LOW]:
            self.waiting[LOW].remove(key)
        self.waiting[priority].append(key)

    def take(self) -> int:
        low_is_due = self.in_a_row == 9 or not self.waiting[HIGH]
        if self.waiting[LOW] and low_is_due:
            self.in_a_row = 0
            return self.waiting[LOW].pop(0)
        self.in_a_row = self.in_a_row + 1 if self.waiting[LOW] else 0
        return self.waiting[HIGH].pop(0)


STEP = st.one_of(
    st.tuples(st.integers(0, 30), st.sampled_from([HIGH, HIGH, HIGH, LOW])),
    st.none(),  # a lease, if anything waits
)


@given(steps=st.lists(STEP, max_size=120))
@settings(max_examples=150, deadline=None)
def test_q08_the_next_key_is_the_one_that_the_model_says(steps: list[tuple[int, Priority] | None]) -> None:
    async def play() -> None:
        queue, model = WorkQueue[int]("q"), Model()

        async def lease_one() -> None:
            async with queue.lease() as key:
                assert key == model.take()

        for step in steps:
            if step is not None:
                queue.add(step[0], priority=step[1])
                model.add(*step)
            elif len(queue):
                await lease_one()
            assert len(queue) == sum(map(len, model.waiting.values()))
        while len(queue):
            await lease_one()

    name, options = virtual_asyncio_options()
    anyio.run(play, backend=name, backend_options=options)


@pytest.mark.anyio
@pytest.mark.parametrize("low_keys", [1, 5, 20])
async def test_q08_a_stream_of_high_keys_without_end_holds_up_the_nth_low_one_for_ten_n_leases(low_keys: int) -> None:
    queue = WorkQueue[str]("q")
    for number in range(low_keys):
        queue.add(f"low {number}", priority=LOW)
    seen: list[str] = []
    for number in range(10 * low_keys + 5):
        queue.add(f"high {number}")
        queue.add(f"another high {number}")
        async with queue.lease() as key:
            seen.append(key)
    for number in range(low_keys):
        assert seen.index(f"low {number}") < 10 * (number + 1)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_q01_threads_lose_nothing_where_leases_are_cancelled_and_raise_and_keys_come_with_delays(backend: str) -> None:
    backoff = ExponentialBackoff[int](base=timedelta(milliseconds=1), maximum=timedelta(milliseconds=4))
    queue = WorkQueue[int]("q", rate_limiter=backoff)
    lock = threading.Lock()
    asked: Counter[int] = Counter()
    done: Counter[int] = Counter()  # how often a key had been asked for when its latest lease that went well began
    held: set[int] = set()
    most = 0

    def ask(seed: int) -> None:
        source = random.Random(seed)
        for _ in range(400):
            key = source.randrange(50)
            with lock:
                asked[key] += 1
            match source.randrange(3):
                case 0:
                    queue.add(key)
                case 1:
                    queue.add_after(key, timedelta(milliseconds=source.randrange(5)))
                case _:
                    queue.add_rate_limited(key)

    async def work(source: random.Random) -> None:
        nonlocal most
        async with queue.lease() as key:
            assert key not in held
            held.add(key)
            most = max(most, len(held))
            with lock:
                before = asked[key]
            try:
                with anyio.CancelScope() as scope:
                    fate = source.randrange(4)
                    if fate == 0:
                        scope.cancel()
                    await anyio.lowlevel.checkpoint()
                    if fate == 1:
                        raise ZeroDivisionError
                    done[key] = before
                    queue.forget(key)
                    return
            finally:
                held.discard(key)
                if done[key] != before:
                    queue.add_rate_limited(key)  # what a controller does

    async def worker(seed: int) -> None:
        source = random.Random(seed)
        with suppress(QueueClosedError):
            while True:
                with anyio.move_on_after(0.001 * source.randrange(1, 20)), suppress(ZeroDivisionError):
                    await work(source)

    async def main() -> None:
        async with anyio.create_task_group() as workers:
            for seed in range(4):
                workers.start_soon(worker, seed)
            async with anyio.create_task_group() as threads:
                for seed in range(6):
                    threads.start_soon(anyio.to_thread.run_sync, ask, seed)
            with anyio.fail_after(60):
                while done != asked:  # noqa: ASYNC110 - the workers know of no end
                    await anyio.sleep(0.01)
            queue.close(discard=True)

    anyio.run(main, backend=backend)
    assert done == asked
    assert most > 1
