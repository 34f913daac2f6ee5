"""What a machine keeps in memory about objects: nothing that it could not do without after a restart."""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime
from typing import Final, final

import msgspec

__all__ = ["Memory", "Remembered"]

_LIMIT: Final = 65_536


@final
class Remembered(msgspec.Struct, kw_only=True):
    """What is remembered about one object in one state.

    Args:
        state: The state it is about.
        entered: When the object entered the state, to the microsecond; status knows seconds only.
        due: When `enter` asked for the object to be looked at again.
        seen: When the object was first seen in the state; for states whose history was lost.
        conflicts: How many passes in a row met a conflict.
    """

    state: str
    entered: datetime | None = None
    due: datetime | None = None
    seen: datetime | None = None
    conflicts: int = 0


@final
class Memory:
    """A bounded memory by uid: objects that are never heard of again cannot make it grow without end.

    Objects without a uid (which no server has stored) go by their name.
    """

    def __init__(self, limit: int = _LIMIT) -> None:
        self._limit = limit
        self._entries: OrderedDict[str, Remembered] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def peek(self, uid: str, state: str) -> Remembered | None:
        """What is remembered about the object in that state."""
        entry = self._entries.get(uid)
        return entry if entry is not None and entry.state == state else None

    def of(self, uid: str, state: str) -> Remembered:
        """The entry of the object in that state; one about another state is forgotten."""
        entry = self.peek(uid, state)
        if entry is None:
            entry = self._entries[uid] = Remembered(state=state)
            if len(self._entries) > self._limit:
                self._entries.popitem(last=False)
        self._entries.move_to_end(uid)
        return entry

    def forget(self, uid: str) -> None:
        """Drop what is known about the object."""
        self._entries.pop(uid, None)
