"""Ends what a control plane has started when the process that started it is gone, however that ended.

Run as a program of its own, by path, with nothing but the standard library: `_reaper.py FOLDER`. It reads process ids
from its standard input, one a line. The word `done` means that all is in order; an end without it means that whoever
wrote is gone, by SIGKILL for one: then those of the processes that still work in FOLDER are killed, and FOLDER goes.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

__all__ = ["main"]


def main(folder: str, lines: Iterable[str]) -> None:
    """Wait for the end, and clean up if it was not in order."""
    pids: list[int] = []
    for line in lines:
        word = line.strip()
        if word == "done":
            return
        pids.append(int(word))
    for pid in reversed(pids):  # etcd, which the others need, was the first
        if _works_in(pid, folder):
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


def _works_in(pid: int, folder: str) -> bool:
    """Whether it is still the process that was meant: ids are given again."""
    try:
        return Path(f"/proc/{pid}/cwd").resolve(strict=True) == Path(folder).resolve()
    except OSError:
        return False


if __name__ == "__main__":
    main(sys.argv[1], sys.stdin)
