"""What a command tells instead of a traceback."""

from __future__ import annotations

from typing import final

__all__ = ["CommandError"]


@final
class CommandError(Exception):
    """The command could not be carried out.

    Attributes:
        code: The exit code.
    """

    def __init__(self, message: str, *, code: int = 2) -> None:
        self.code = code
        super().__init__(message)
