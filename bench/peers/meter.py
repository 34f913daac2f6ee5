"""What a process has cost so far."""

from __future__ import annotations

import json
import time
from pathlib import Path

__all__ = ["Meter"]


class Meter:
    """Measures from here to `report`."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = time.process_time()

    def report(self, count: int) -> None:
        """Print what it cost to get so many objects: seconds, and the process's own peak since its start."""
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        # `getrusage` would count the parent's memory, from before the exec.
        status = Path("/proc/self/status").read_text(encoding="ascii")
        (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
        print(json.dumps({"count": count, "wall": wall, "cpu": cpu, "peak": int(line.split()[1]) / 1024}))
