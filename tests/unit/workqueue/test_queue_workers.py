"""Several workers, delays and cancellations: random histories.

The invariant: while a worker is idle, no key that is due and that nobody holds waits.
"""

from __future__ import annotations

import random
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise
from typing import final

import anyio
import anyio.lowlevel
import pytest

from opsdk.errors import QueueClosedError
from opsdk.workqueue import WorkQueue

pytestmark = pytest.mark.anyio

MOMENT = 0.02


@final
class Crew:
    """So many workers on one queue, and what each key is due for."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.queue = WorkQueue[str]("q")
        self.size = self.random.choice([1, 2, 3])
        self.due: dict[str, float] = {}
        self.held: set[str] = set()

    async def worker(self) -> None:
        while True:
            patience = self.random.choice([0.0, 1.0, 2.5, 1e6, 1e6, 1e6])
            with anyio.move_on_after(patience):
                async with self.queue.lease() as key:
                    self.due.pop(key)
                    self.held.add(key)
                    try:
                        await anyio.sleep(self.random.choice([0, 0, 1, 7, 50]))
                    finally:
                        self.held.remove(key)
            await anyio.sleep(MOMENT / 10)

    def add(self) -> None:
        key, delay = self.random.choice("abcdef"), self.random.choice([0.0, 0.0, 0.5, 2.0, 9.0])
        at = anyio.current_time() + delay
        self.due[key] = min(self.due.get(key, at), at)
        if delay:
            self.queue.add_after(key, timedelta(seconds=delay))
        else:
            self.queue.add(key)

    def late(self) -> list[str]:
        if len(self.held) == self.size:
            return []
        return [key for key, at in self.due.items() if at < anyio.current_time() - MOMENT and key not in self.held]

    async def check(self) -> None:
        late = self.late()
        for _ in range(3):  # a worker may be between two leases just now
            if not late:
                return
            await anyio.sleep(MOMENT)
            late = [key for key in self.late() if key in late]
        assert not late, f"{late} wait although only {sorted(self.held)} are held"


@pytest.mark.parametrize("seed", range(40))
async def test_no_key_that_is_due_waits_while_a_worker_is_idle(seed: int) -> None:
    crew = Crew(seed)
    async with anyio.create_task_group() as tasks:
        for _ in range(crew.size):
            tasks.start_soon(crew.worker)
        for _ in range(40):
            await anyio.sleep(crew.random.choice([0, 0.5, 1, 3]))
            crew.add()
            await anyio.sleep(MOMENT)
            await crew.check()
        for _ in range(300):
            await anyio.sleep(0.5)
            await crew.check()
        tasks.cancel_scope.cancel()


async def test_workers_that_never_wait_give_others_their_turn_after_a_few_keys() -> None:
    queue = WorkQueue[int]("q")
    for key in range(100):
        queue.add(key)
    done = 0
    seen: list[int] = []

    async def work() -> None:
        nonlocal done
        with suppress(QueueClosedError):
            while True:
                async with queue.lease():
                    done += 1

    async def others() -> None:
        while done < 100:
            seen.append(done)
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        tasks.start_soon(others)
        await anyio.sleep(1)
        queue.close()
    assert done == 100
    # Trio runs what is ready in any order, so the workers' turns before and after the others' may stand together.
    assert max(later - earlier for earlier, later in pairwise(seen)) <= 2 * 8


async def test_a_key_that_is_added_again_by_its_own_worker_for_ever_stops_nobody_else() -> None:
    queue = WorkQueue[str]("q")
    queue.add("a")
    turns = 0

    async def work() -> None:
        with suppress(QueueClosedError):
            while True:
                async with queue.lease() as key:
                    queue.add(key)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        for _ in range(50):
            await anyio.lowlevel.checkpoint()
            turns += 1
        queue.close(discard=True)
    assert turns == 50
