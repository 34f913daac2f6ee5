"""Which events are one event seen again.

Guarantees: what is remembered is bounded, by the number of groups and by the texts in each; a program that puts a
number into every message still makes a handful of Event objects.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime
from hashlib import blake2b
from typing import Final, final

import msgspec

from opsdk.protocols import EventType

__all__ = ["Group", "Series", "SeriesBook", "Subject"]

_SIMILAR_TEXTS: Final = 10
_SIMILAR_WINDOW_SECONDS: Final = 600.0
_COMBINED: Final = "(combined from similar events): "


@final
class Subject(msgspec.Struct, frozen=True):
    """What an event is about."""

    api_version: str
    kind: str
    namespace: str | None
    name: str
    uid: str


@final
class Group(msgspec.Struct, frozen=True):
    """Events that differ in nothing but their text."""

    subject: Subject
    type: EventType
    reason: str


@final
class Series(msgspec.Struct, kw_only=True):
    """One Event object, and how often what it tells has happened.

    Args:
        name: The Event object's name; empty until it was created.
        count: How often it happened.
        first: When it happened first.
        written_at: When the object was written last, by the loop's clock.
        combined: Whether it stands for events whose texts differ.
    """

    name: str = ""
    count: int = 0
    first: datetime
    written_at: float = 0.0
    combined: bool = False

    def text(self, message: str) -> str:
        """What the Event object says when `message` happened last."""
        return f"{_COMBINED}{message}" if self.combined else message


@final
class _Texts(msgspec.Struct):
    window_start: float
    by_message: dict[bytes, Series] = msgspec.field(default_factory=dict[bytes, Series])
    """By a digest: there may be forty thousand messages of a kilobyte."""
    combined: Series | None = None


@final
class SeriesBook:
    """Remembers series of events.

    Args:
        capacity: How many groups are remembered; the least recently used is forgotten, and starts over.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._groups: OrderedDict[Group, _Texts] = OrderedDict()

    def __len__(self) -> int:
        return len(self._groups)

    def series(self, group: Group, message: str, *, at: float, now: datetime) -> Series:
        """The series that an event belongs to, made if need be.

        Args:
            group: What it has in common with others.
            message: Its text.
            at: The loop's time.
            now: Wall-clock time.
        """
        texts = self._groups.get(group)
        if texts is None:
            texts = self._groups[group] = _Texts(at)
            if len(self._groups) > self._capacity:
                self._groups.popitem(last=False)
        self._groups.move_to_end(group)
        digest = blake2b(message.encode("utf-8", "replace"), digest_size=16).digest()
        if (same := texts.by_message.get(digest)) is not None:
            return same
        if at - texts.window_start > _SIMILAR_WINDOW_SECONDS:
            texts.window_start, texts.combined = at, None
            texts.by_message.clear()
        if len(texts.by_message) < _SIMILAR_TEXTS:
            return texts.by_message.setdefault(digest, Series(first=now))
        if texts.combined is None:
            texts.combined = Series(first=now, combined=True)
        return texts.combined
