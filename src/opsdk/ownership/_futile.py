"""Changes that were sent and changed nothing.

An `update` that takes away what the server fills in is undone by the server at once. Such a change is sent once in a
process's life, not on every pass.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, final

import msgspec

from opsdk.models import view_of
from opsdk.protocols import KubeObject
from opsdk.types import JsonObject

__all__ = ["Futile"]

_LIMIT: Final = 16_384


@final
class Futile:
    """A bounded memory of them, by child."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, int] = OrderedDict()

    def has(self, child: KubeObject, before: JsonObject, after: JsonObject) -> bool:
        """Whether this very change of the child was futile."""
        return self._seen.get(view_of(child).uid or "") == _digest(before, after)

    def add(self, child: KubeObject, before: JsonObject, after: JsonObject) -> None:
        """Note that it was."""
        uid = view_of(child).uid or ""
        self._seen[uid] = _digest(before, after)
        self._seen.move_to_end(uid)
        if len(self._seen) > _LIMIT:
            self._seen.popitem(last=False)


def _digest(before: JsonObject, after: JsonObject) -> int:
    """A fingerprint of what is changed into what, whatever happened to status meanwhile."""
    return hash(tuple(_without_status(document) for document in (before, after)))


def _without_status(document: JsonObject) -> bytes:
    kept = {name: value for name, value in document.items() if name not in {"metadata", "status"}}
    return msgspec.json.encode(kept, order="sorted")
