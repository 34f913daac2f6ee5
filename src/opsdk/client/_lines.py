"""Bytes in pieces of any size, cut into lines."""

from __future__ import annotations

from collections import deque
from typing import final

__all__ = ["LineBuffer"]


@final
class LineBuffer:
    r"""Cuts a stream into lines, which end at `\n` and at nothing else (U+0085 and U+2028 are text)."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque()
        self._open: list[bytes] = []

    def feed(self, chunk: bytes) -> None:
        """Take the next piece."""
        first, *rest = chunk.split(b"\n")
        if first:
            self._open.append(first)
        if rest:
            self._lines.append(b"".join(self._open))
            self._lines.extend(rest[:-1])
            self._open = [rest[-1]] if rest[-1] else []

    def pop(self) -> bytes | None:
        """The next whole line that is not blank, without its end; None: more has to come first."""
        while self._lines:
            line = self._lines.popleft()
            if line.strip():
                return line
        return None

    @property
    def cut(self) -> bool:
        """Whether a line has begun and not ended."""
        return any(piece.strip() for piece in self._open)
