"""Makes a run repeat: jitter and, on trio, the order of tasks come from a seed."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Final, cast

import anyio
import sniffio

from opsdk._backend import current_loop
from opsdk.testing.sweeps.errors import SweepUsageError

__all__ = ["limited", "repeatable", "require_virtual_time"]

_PROBE_SECONDS: Final = 0.4
_SOURCE: Final = "_r"
_IN_ORDER: Final = "_ALLOW_DETERMINISTIC_SCHEDULING"


@contextmanager
def repeatable(seed: int) -> Generator[None]:
    """Seed the process's own random numbers, and trio's order of tasks, for the body; put back what was there."""
    state = random.getstate()
    random.seed(seed)
    try:
        if sniffio.current_async_library() == "trio":
            with _trio_in_order(seed):
                yield
        else:
            yield
    finally:
        random.setstate(state)


@contextmanager
def _trio_in_order(seed: int) -> Generator[None]:
    # trio shuffles tasks that are ready at the same time, so that nobody relies on their order. Its own pytest plugin
    # switches that off for Hypothesis in the same way.
    scheduler = import_module("trio._core._run")
    source = cast("random.Random", getattr(scheduler, _SOURCE))
    state, before = source.getstate(), cast("bool", getattr(scheduler, _IN_ORDER))
    source.seed(seed)
    setattr(scheduler, _IN_ORDER, True)
    try:
        yield
    finally:
        source.setstate(state)
        setattr(scheduler, _IN_ORDER, before)


async def require_virtual_time() -> None:
    """Refuse to run in real time.

    Raises:
        SweepUsageError: The loop's clock is a real one.
    """
    before = time.perf_counter()
    await anyio.sleep(_PROBE_SECONDS)
    if time.perf_counter() - before >= _PROBE_SECONDS:
        msg = (
            "a sweep waits for hours and needs virtual time: return one of "
            "opsdk.testing.virtual_time.virtual_backends() from your anyio_backend fixture, or ask for the fixture "
            "virtual_anyio_backend there"
        )
        raise SweepUsageError(msg)


@contextmanager
def limited(seconds: float, overdue: Callable[[], None]) -> Generator[None]:
    """Call `overdue` on the loop when the body takes longer in real time.

    Virtual time stands still while something always has something to do, so no deadline on it would ever pass.
    """
    loop = current_loop()
    timer = threading.Timer(seconds, lambda: loop.call_soon(overdue))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
