"""What a reconciler remembers between passes. None of it is needed for correctness: it only keeps things quiet."""

from __future__ import annotations

from typing import final

import msgspec

from opsdk.types import Request

__all__ = ["Memo", "Memory"]


@final
class Memo(msgspec.Struct, kw_only=True):
    """What is remembered of one incarnation of an object.

    Args:
        uid: Which incarnation.
        announced: The generation whose `Created` or `Updated` event went out.
        owes_created: This process added the finalizer, and no `Created` event has followed yet.
        message_written_at: When Ready's message was last written, on the loop's clock.
        ready: Status and reason of Ready, for a kind that has no conditions.
        malformed: The resourceVersion that was reported as malformed.
    """

    uid: str
    announced: int | None = None
    owes_created: bool = False
    message_written_at: float | None = None
    ready: tuple[str, str] | None = None
    malformed: str = ""


@final
class Memory:
    """Memos by request; another uid starts a new one."""

    def __init__(self) -> None:
        self._memos: dict[Request, Memo] = {}

    def of(self, request: Request, uid: str) -> Memo:
        """The memo of this incarnation."""
        memo = self._memos.get(request)
        if memo is None or memo.uid != uid:
            memo = self._memos[request] = Memo(uid=uid)
        return memo

    def forget(self, request: Request) -> None:
        """The object is gone."""
        self._memos.pop(request, None)

    def __len__(self) -> int:
        return len(self._memos)
