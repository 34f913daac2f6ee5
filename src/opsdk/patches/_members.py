"""Documents by their members, each of them decoded only when it is looked into.

Of two versions of an object most members are written alike; to decode those is most of what a difference would cost.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec

from opsdk.types import Json

__all__ = ["Members", "decoded", "differing", "members_of"]

Members: TypeAlias = dict[str, msgspec.Raw]
"""The members of a JSON object, undecoded."""

_MEMBERS: Final = msgspec.json.Decoder(Members)
_JSON: Final = msgspec.json.Decoder()


def members_of(raw: bytes) -> Members:
    """The members of a JSON object.

    Raises:
        msgspec.ValidationError: It is some other JSON value.
        msgspec.DecodeError: It is no JSON.
    """
    return _MEMBERS.decode(raw)


def differing(one: Members, other: Members) -> list[str]:
    """The names of the members that are not written alike in both. All others are the same."""
    return [name for name in {**one, **other} if one.get(name) != other.get(name)]


def decoded(members: Members, names: Iterable[str]) -> dict[str, Json]:
    """Those of the members that are there, decoded."""
    return {name: _JSON.decode(members[name]) for name in names if name in members}
