"""Random schedules against a model of one time a key, and real threads against the same invariants.

The invariants (scenario Q01):
    * no two leases of one key overlap;
    * a lease of a key begins only when the key is due: at the earliest time that was asked for since its last lease
      began, and never without a reason;
    * with enough workers it begins exactly then, or when the lease before it ends;
    * in the end every key that was asked for has been leased since.
"""

from __future__ import annotations

import math
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
from opsdk.testing.virtual_time import BackendOptions, virtual_asyncio_options, virtual_trio_options
from opsdk.workqueue import Priority, WorkQueue

KEYS = "abc"
OP = st.tuples(
    st.sampled_from(KEYS),
    st.sampled_from([None, 0, 1, 2, 5, 11]),  # the delay; None: add
    st.sampled_from(list(Priority)),
    st.integers(0, 4),  # seconds until the next operation
)
# How long each lease lasts, and what it asks for before it ends.
WORK = st.tuples(st.integers(0, 4), st.sampled_from([None, 0, 3]))


class Model:
    """What the queue should do: one due time a key."""

    def __init__(self, *, prompt: bool) -> None:
        self.prompt = prompt
        self.due: dict[str, float] = {}
        self.held: set[str] = set()
        self.free_since: dict[str, float] = {}

    def asked(self, key: str, at: float) -> None:
        self.due[key] = min(self.due.get(key, math.inf), at)

    def began(self, key: str) -> None:
        now = anyio.current_time()
        assert key not in self.held, f"two workers on {key}"
        self.held.add(key)
        due = self.due.pop(key, None)
        assert due is not None, f"{key} was leased at {now} without a reason"
        assert due <= now + 1e-6, f"{key} was leased at {now}, before it was due at {due}"
        if self.prompt:
            expected = max(due, self.free_since.get(key, 0.0))
            assert now == pytest.approx(expected, abs=1e-6), f"{key} was leased at {now}, late"

    def ended(self, key: str) -> None:
        self.held.discard(key)
        self.free_since[key] = anyio.current_time()


async def play(
    ops: list[tuple[str, int | None, Priority, int]], work: list[tuple[int, int | None]], workers: int
) -> None:
    queue = WorkQueue[str]("q")
    model = Model(prompt=workers > len(KEYS))
    works = iter(work)

    def ask(key: str, delay: int | None, priority: Priority) -> None:
        model.asked(key, anyio.current_time() + (delay or 0))
        if delay is None:
            queue.add(key, priority=priority)
        else:
            queue.add_after(key, timedelta(seconds=delay), priority=priority)

    async def worker() -> None:
        with suppress(QueueClosedError):
            while True:
                async with queue.lease() as key:
                    model.began(key)
                    seconds, again = next(works, (0, None))
                    await anyio.sleep(seconds)
                    if again is not None:
                        ask(key, again, Priority.LOW)
                    model.ended(key)

    async with anyio.create_task_group() as tasks:
        for _ in range(workers):
            tasks.start_soon(worker)
        for key, delay, priority, pause in ops:
            ask(key, delay, priority)
            if pause:
                await anyio.sleep(pause)
        await anyio.sleep(1000)
        assert model.due == {}, f"never leased: {model.due}"
        assert len(queue) == 0
        queue.close()


@pytest.mark.parametrize("options", [virtual_asyncio_options, virtual_trio_options])
@settings(max_examples=150, deadline=None)
@given(ops=st.lists(OP, max_size=25), work=st.lists(WORK, max_size=25), workers=st.sampled_from([1, 2, 5]))
def test_q01_random_schedules_agree_with_the_model(
    options: object,
    ops: list[tuple[str, int | None, Priority, int]],
    work: list[tuple[int, int | None]],
    workers: int,
) -> None:
    backend: BackendOptions = (
        virtual_asyncio_options() if options is virtual_asyncio_options else virtual_trio_options()
    )
    anyio.run(play, ops, work, workers, backend=backend[0], backend_options=backend[1])


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_q01_threads_lose_nothing_while_two_workers_work(backend: str) -> None:
    queue = WorkQueue[int]("q")
    lock = threading.Lock()
    triggers: Counter[int] = Counter()
    seen: Counter[int] = Counter()  # how many triggers of a key had happened when its latest lease began
    leases: Counter[int] = Counter()
    held: set[int] = set()

    def trigger(seed: int) -> None:
        source = random.Random(seed)
        for _ in range(2_000):
            key = source.randrange(1_000)
            with lock:
                triggers[key] += 1
            queue.add(key, priority=source.choice(list(Priority)))

    async def worker() -> None:
        with suppress(QueueClosedError):
            while True:
                async with queue.lease() as key:
                    assert key not in held
                    held.add(key)
                    with lock:
                        seen[key] = triggers[key]
                    leases[key] += 1
                    await anyio.lowlevel.checkpoint()
                    held.discard(key)

    async def main() -> None:
        async with anyio.create_task_group() as workers:
            workers.start_soon(worker)
            workers.start_soon(worker)
            async with anyio.create_task_group() as threads:
                for seed in range(8):
                    threads.start_soon(anyio.to_thread.run_sync, trigger, seed)
            queue.close()  # what is ready is still leased

    anyio.run(main, backend=backend)
    assert seen == triggers
    assert all(leases[key] <= triggers[key] for key in triggers)
