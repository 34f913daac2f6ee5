"""One operator as a process: started, listened to, measured from outside, stopped."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final, Self

__all__ = ["PeerFailedError", "PeerProcess"]

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_STOP_SECONDS: Final = 20.0
_ENDED: Final = "end of output"


def _as_installed(environment: Mapping[str, str]) -> dict[str, str]:
    """Modules are compiled once, as they are in an image; also those of a checkout, where nothing is to be left."""
    kept = {name: value for name, value in environment.items() if name != "PYTHONDONTWRITEBYTECODE"}
    cache = Path(tempfile.gettempdir(), "opsdk-bench-pycache")
    return {**kept, "PYTHONPYCACHEPREFIX": str(cache), "PYTHONWARNINGS": "ignore"}


class PeerFailedError(Exception):
    """An operator ended, or did not do what it should in time."""


class PeerProcess:
    """An operator at work; `with` starts and stops it.

    Args:
        name: For errors.
        command: What to run.
        environment: Beside this process's own.
        log: Where its standard error goes.
    """

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.name = name
        self._log = log
        self._events: queue.SimpleQueue[tuple[str, int, float]] = queue.SimpleQueue()
        self._stderr = log.open("w", encoding="utf-8")
        self.started_at = time.time()
        self._process = subprocess.Popen(  # noqa: S603 - our own programs
            command,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            env={**_as_installed(os.environ), **environment},
        )
        assert self._process.stdout is not None
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._stderr.close()

    def wait_for(self, event: str, *, seconds: float) -> tuple[int, float]:
        """Wait until it tells of an event; gives its count, and when it came.

        Raises:
            PeerFailedError: It did not.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                name, count, at = self._events.get(timeout=max(deadline - time.monotonic(), 0.01))
            except queue.Empty:
                raise PeerFailedError(f"{self.name}: no {event!r} in {seconds:g} s; see {self._log}") from None
            if name == event:
                return count, at
            if name == _ENDED:
                raise PeerFailedError(f"{self.name} ended before {event!r}; see {self._log}")

    def cpu_seconds(self) -> float:
        """What it has used so far, in user and kernel mode."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def peak_megabytes(self) -> float:
        """The most memory that it had resident at once."""
        return self._memory("VmHWM")

    def resident_megabytes(self) -> float:
        """The memory that it has resident."""
        return self._memory("VmRSS")

    def _memory(self, what: str) -> float:
        text = Path(f"/proc/{self._process.pid}/status").read_text(encoding="utf-8")
        (line,) = [line for line in text.splitlines() if line.startswith(f"{what}:")]
        return int(line.split()[1]) / 1024

    def _listen(self, output: IO[str]) -> None:
        for line in output:
            if line.startswith("{"):
                event = json.loads(line)
                self._events.put((event["event"], event["count"], time.time()))
        self._events.put((_ENDED, 0, time.time()))
