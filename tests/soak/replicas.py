"""The operator's replicas, as processes, and what they take."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

__all__ = ["Figures", "Replica"]

_TESTS: Final = Path(__file__).parent.parent
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a process takes at one moment."""

    seconds: float
    rss_mib: float
    descriptors: int
    threads: int


@final
class Replica:
    """One process; started again when it has ended.

    Args:
        name: The replica's name.
        backend: asyncio or trio.
        mode: leader or sharded.
        kubeconfig: Where the API server is.
        log: Where it writes.

    Attributes:
        starts: How often it was started.
        paused: Whether it was stopped with SIGSTOP, and not continued yet.
        unexpected: Exit statuses of ends that nobody asked for.
    """

    def __init__(self, name: str, backend: str, *, mode: str, kubeconfig: Path, log: Path) -> None:
        self.name = name
        self.starts = 0
        self.paused = False
        self.unexpected: Final[list[int]] = []
        self._command = [sys.executable, "-m", "soak.replica", str(kubeconfig), name, backend, mode]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._told_to_end = False
        self.start()

    def start(self) -> None:
        """Start it, if it does not run."""
        if self._process is not None:
            status = self._process.poll()
            if status is None:
                return
            if not self._told_to_end:
                self.unexpected.append(status)
        self.starts += 1
        self._told_to_end = False
        path = os.pathsep.join([str(_TESTS), str(_TESTS / "support"), os.environ.get("PYTHONPATH", "")])
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,
            )

    def pause(self) -> None:
        """SIGSTOP."""
        self._signal(signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)
        self.paused = False

    def terminate(self) -> None:
        """SIGTERM."""
        self._told_to_end = True
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self._told_to_end = True
        self._signal(signal.SIGKILL)

    def end(self, grace_seconds: float) -> int:
        """SIGTERM, then SIGKILL after the grace. Returns the exit status."""
        if self._process is None:
            return 0
        self.resume()
        self.terminate()
        try:
            return self._process.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.wait()

    def figures(self, since: float) -> Figures | None:
        """What it takes now; None while it does not run."""
        if self._process is None or self._process.poll() is not None:
            return None
        folder = Path("/proc") / str(self._process.pid)
        try:
            return Figures(
                seconds=time.monotonic() - since,
                rss_mib=int((folder / "statm").read_text().split()[1]) * _PAGE_BYTES / 2**20,
                descriptors=sum(1 for _ in (folder / "fd").iterdir()),
                threads=sum(1 for _ in (folder / "task").iterdir()),
            )
        except OSError:  # it ended
            return None

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
