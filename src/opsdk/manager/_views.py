"""Who divides the work: the members that all have agreed on, and who of them an object belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, Self, final
from uuid import uuid4

import msgspec

__all__ = ["View", "winner"]

_PRIME: Final = 2**61 - 1


class _Document(msgspec.Struct, forbid_unknown_fields=False):
    id: str
    epoch: int
    members: dict[str, str]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The members at one time, as one of them has published them.

    Views of one group follow each other: each is written on the condition that the one before still stands.

    Args:
        id: Unique for ever, also among views that were lost.
        epoch: Its number, for people and metrics; not unique when somebody has deleted the Lease with the view.
        members: Each member, and the id of the view in which it was new; empty: not known, so it may hold something
            from before.
    """

    id: str
    epoch: int
    members: Mapping[str, str]
    _lines: tuple[tuple[str, int, int], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_lines", tuple((member, *_line(member)) for member in sorted(self.members)))

    @classmethod
    def first(cls, members: Iterable[str], *, after: int = 0) -> Self:
        """A view that nothing is known to precede: every member may hold something."""
        epoch = after + 1
        return cls(id=_new_id(epoch), epoch=epoch, members=dict.fromkeys(members, ""))

    def next(self, members: Iterable[str]) -> View:
        """The view after this one. Who was no member before is new: it can hold nothing."""
        epoch = self.epoch + 1
        new = _new_id(epoch)
        return View(id=new, epoch=epoch, members={member: self.members.get(member, new) for member in members})

    @classmethod
    def decode(cls, text: str | None) -> Self | None:
        """The view that `encode` wrote; None when it is none."""
        if text is None:
            return None
        try:
            found = msgspec.json.decode(text, type=_Document)
        except msgspec.MsgspecError:
            return None
        return cls(id=found.id, epoch=found.epoch, members=found.members) if found.id else None

    def encode(self) -> str:
        """As the text of an annotation."""
        return msgspec.json.encode({"id": self.id, "epoch": self.epoch, "members": dict(self.members)}).decode()

    def owner(self, uid: str, /) -> str | None:
        """The member that an object belongs to; None when there are no members."""
        return _best(self._lines, uid)


def winner(members: Iterable[str], uid: str) -> str | None:
    """Rendezvous hashing: the member with the highest score for the uid.

    When a member comes, it takes an equal share from each of the others; when one goes, its share alone is divided.
    All members have to agree on this function for ever: another one would need another group.
    """
    return _best(tuple((member, *_line(member)) for member in sorted(members)), uid)


def _best(lines: tuple[tuple[str, int, int], ...], uid: str) -> str | None:
    """The scores are random linear functions of the uid's hash, one for each member: a tenth of a hash for each."""
    value = int.from_bytes(blake2b(uid.encode(), digest_size=8).digest(), "big") % _PRIME
    best, highest = None, -1
    for member, factor, offset in lines:
        score = (value * factor + offset) % _PRIME
        if score > highest:  # of equals the first by name
            best, highest = member, score
    return best


def _line(member: str) -> tuple[int, int]:
    digest = blake2b(member.encode(), digest_size=16).digest()
    return int.from_bytes(digest[:8], "big") % (_PRIME - 1) + 1, int.from_bytes(digest[8:], "big") % _PRIME


def _new_id(epoch: int) -> str:
    return f"{epoch}-{uuid4().hex[:12]}"
