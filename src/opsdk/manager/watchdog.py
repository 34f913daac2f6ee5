"""Sees when the event loop does not turn, and what keeps it.

A thread asks the loop once a second to answer. It measures real time, whatever clock the loop runs on, and sets no
timers on it.
"""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Final, final

from opsdk._backend import ThreadWaker

__all__ = ["Watchdog"]

_logger = logging.getLogger(__name__)

_INTERVAL_SECONDS: Final = 1.0
_MOST_FRAMES: Final = 40


@final
class Watchdog:
    """Measures how long ago the event loop turned, and logs the stack of what blocks it.

    Args:
        warn_after: How long the loop may be blocked before its stack is logged. It is logged again each time the
            duration has doubled.
        on_beat: Called on the loop at each beat; must be quick.
        interval: Time between two beats. Default 1 s.
    """

    def __init__(
        self,
        *,
        warn_after: timedelta,
        on_beat: Callable[[], None] = lambda: None,
        interval: timedelta = timedelta(seconds=_INTERVAL_SECONDS),
    ) -> None:
        self._warn_after_seconds = warn_after.total_seconds()
        self._interval_seconds = min(interval.total_seconds(), self._warn_after_seconds / 2)
        self._on_beat = on_beat
        self._asked = ThreadWaker()
        self._last_turn = math.inf  # nothing to see before the loop runs
        self._loop_thread = 0
        self._stopping = threading.Event()

    @property
    def silence_seconds(self) -> float:
        """How long ago the loop should have turned and did not; 0 before `run`. From any thread."""
        return max(time.monotonic() - self._last_turn - self._interval_seconds, 0.0)

    async def run(self) -> None:
        """Answer the thread until cancelled, and take the thread away then."""
        self._loop_thread = threading.get_ident()
        self._last_turn = time.monotonic()
        thread = threading.Thread(target=self._watch, name="opsdk-watchdog", daemon=True)
        thread.start()
        try:
            while True:
                self._last_turn = time.monotonic()
                self._on_beat()
                await self._asked.wait()
        finally:
            self._stopping.set()
            thread.join()  # it only ever waits for this event: no time at all

    def _watch(self) -> None:
        warn_at = self._warn_after_seconds
        while not self._stopping.wait(self._interval_seconds):
            silence = time.monotonic() - self._last_turn
            if silence >= warn_at:
                _logger.warning(
                    "the event loop has been blocked for %.1f s; hooks must not block it. It is at:\n%s",
                    silence,
                    self._stack(),
                )
                warn_at = 2 * silence
            elif silence < self._warn_after_seconds:
                if warn_at > self._warn_after_seconds:
                    _logger.warning("the event loop turns again")
                warn_at = self._warn_after_seconds
            self._asked.wake()

    def _stack(self) -> str:
        # The one way to see another thread's stack; underscored, and documented.
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - see above
        if frame is None:
            return "  (its thread is gone)"
        return "".join(traceback.format_stack(frame)[-_MOST_FRAMES:]).rstrip()
