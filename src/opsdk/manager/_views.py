"""Who divides the work: the members that all have agreed on, and who of them an object belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, Self, final
from uuid import uuid4

import msgspec

__all__ = ["View", "winner"]

_DIGEST_BYTES: Final = 8


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
    _salts: tuple[tuple[str, bytes], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_salts", tuple((member, _salt(member)) for member in sorted(self.members)))

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
        return _best(self._salts, uid)


def winner(members: Iterable[str], uid: str) -> str | None:
    """Rendezvous hashing: the member with the highest hash together with the uid.

    When a member comes, it takes an equal share from each of the others; when one goes, its share alone is divided.
    """
    return _best(tuple((member, _salt(member)) for member in sorted(members)), uid)


def _best(salts: tuple[tuple[str, bytes], ...], uid: str) -> str | None:
    data = uid.encode()
    best: tuple[bytes, str] | None = None
    for member, salt in salts:
        score = (blake2b(data, digest_size=_DIGEST_BYTES, key=salt).digest(), member)
        if best is None or score > best:
            best = score
    return None if best is None else best[1]


def _salt(member: str) -> bytes:
    return blake2b(member.encode(), digest_size=32).digest()


def _new_id(epoch: int) -> str:
    return f"{epoch}-{uuid4().hex[:12]}"
