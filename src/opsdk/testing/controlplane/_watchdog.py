"""Sees to it that no program outlives the process that started it, not even when that is killed."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import final

__all__ = ["Watchdog"]

_REAPER = Path(__file__).with_name("_reaper.py")


@final
class Watchdog:
    """A process of its own that learns of our end by the end of a pipe (see `_reaper`).

    Linux's parent-death signal would do without one, but it follows the thread that started a program, and is sent
    when that thread ends.

    Args:
        folder: Where the programs work; removed with them.
    """

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-I", "-S", str(_REAPER), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # what ends us by a signal to the group must not end it first
        )

    def watch(self, pid: int) -> None:
        """Have a program ended with us."""
        self._say(str(pid))

    def dismiss(self) -> None:
        """All is ended in order."""
        self._say("done")
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        self._process.wait()

    def _say(self, word: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it was killed: the programs are ended as without it
            self._process.stdin.write(f"{word}\n")
            self._process.stdin.flush()
