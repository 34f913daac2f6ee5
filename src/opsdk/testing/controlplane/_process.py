"""One program of a control plane: started, killed, restarted, always ended by its own id."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import final

from opsdk.errors import OpsdkError
from opsdk.testing.controlplane._watchdog import Watchdog

__all__ = ["Process", "ProcessFailedError"]


class ProcessFailedError(OpsdkError):
    """A program ended when it should run, or did not become ready; the text has the end of its log."""


@final
class Process:
    """A program that can be started again with the same arguments.

    Args:
        name: Used for the log's file name and in errors.
        command: The program and its arguments.
        folder: Where its log goes, and its working directory.
        watchdog: Learns the id of each start; None: nobody does.
        grace_seconds: How long it may take to end after SIGTERM before SIGKILL.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        folder: Path,
        watchdog: Watchdog | None = None,
        grace_seconds: float = 10,
    ) -> None:
        self.name: str = name
        self.log: Path = folder / f"{name}.log"
        self._command = [str(part) for part in command]
        self._folder = folder
        self._watchdog = watchdog
        self._grace_seconds = grace_seconds
        self._running: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The id of the running program; None when it does not run."""
        return self._running.pid if self._running is not None and self._running.poll() is None else None

    def start(self) -> None:
        """Start it; nothing happens when it runs already."""
        if self.pid is not None:
            return
        environment = {**os.environ, "HOME": str(self._folder)}
        with self.log.open("ab") as log:
            self._running = subprocess.Popen(  # noqa: S603 - our own arguments, no shell
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env=environment,
                start_new_session=True,  # a Ctrl-C in the terminal is for the tests, which then end this in order
            )
        if self._watchdog is not None:
            self._watchdog.watch(self._running.pid)

    def require_alive(self) -> None:
        """Fail when it has ended.

        Raises:
            ProcessFailedError: It has ended; the text has the last lines of its log.
        """
        if self.pid is None:
            code = None if self._running is None else self._running.returncode
            msg = f"{self.name} ended early (exit status {code}):\n{self.log_tail()}"
            raise ProcessFailedError(msg)

    def log_tail(self, lines: int = 20) -> str:
        """The last lines of its log."""
        if not self.log.exists():
            return "(no log)"
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def pause(self) -> None:
        """SIGSTOP: it holds its connections and says nothing."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT, after `pause`."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, as `kill -9` does, and wait until it is gone."""
        self._signal(signal.SIGKILL)
        if self._running is not None:
            self._running.wait()

    def terminate(self) -> None:
        """SIGTERM, without waiting."""
        self._signal(signal.SIGTERM)

    def stop(self) -> None:
        """SIGTERM, then SIGKILL after the grace; returns when it is gone."""
        if self._running is None:
            return
        self.terminate()
        try:
            self._running.wait(self._grace_seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def _signal(self, number: signal.Signals) -> None:
        if self._running is not None and self._running.poll() is None:
            self._running.send_signal(number)
