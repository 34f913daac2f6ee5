"""The parts of an operator that a plain client leaves to its users: a queue of keys, and workers."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

__all__ = ["WORKERS", "Keys", "run", "status_of", "terminated"]

WORKERS: Final = 8


class Keys:
    """A queue in which each key is once at most, and with one worker at most."""

    def __init__(self) -> None:
        self._ready: asyncio.Queue[str] = asyncio.Queue()
        self._wanted: set[str] = set()
        self._in_work: set[str] = set()

    def add(self, key: str) -> None:
        """Have it worked on."""
        if key in self._wanted:
            return
        self._wanted.add(key)
        if key not in self._in_work:
            self._ready.put_nowait(key)

    async def work(self, reconcile: Callable[[str], Awaitable[None]], failure: type[Exception]) -> None:
        """Reconcile what comes, for ever; what fails is tried again a little later."""
        while True:
            key = await self._ready.get()
            self._wanted.discard(key)
            self._in_work.add(key)
            try:
                await reconcile(key)
            except failure:
                asyncio.get_running_loop().call_later(0.1, self.add, key)
            self._in_work.discard(key)
            if key in self._wanted:
                self._ready.put_nowait(key)


async def run(*jobs: Awaitable[None]) -> None:
    """Do all of that until one ends."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in others:
        task.cancel()
    for task in done:
        task.result()


async def terminated() -> None:
    """Wait for SIGTERM."""
    came = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, came.set)
    await came.wait()


def status_of(generation: int, since: str | None) -> dict[str, object]:
    """The status of a Widget that is as it should be.

    Args:
        generation: Of its spec.
        since: When it became so; None: now.
    """
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "Reconciled",
        "message": "",
        "observedGeneration": generation,
        "lastTransitionTime": since or datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    return {"observedGeneration": generation, "conditions": [condition]}
