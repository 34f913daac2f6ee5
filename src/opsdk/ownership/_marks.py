"""What was last found out about children, so that it need not be found out on every pass."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, final

import msgspec

from opsdk.models import view_of
from opsdk.protocols import KubeObject
from opsdk.types import JsonObject

__all__ = ["Marks"]

_LIMIT: Final = 16_384


@final
class Marks:
    """A bounded memory: of each child one set of documents, for which something was found to hold."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, int] = OrderedDict()

    def has(self, child: KubeObject, *documents: JsonObject) -> bool:
        """Whether these are the documents that were marked last for the child."""
        return self._seen.get(view_of(child).uid or "") == _digest(documents)

    def knows(self, child: KubeObject) -> bool:
        """Whether any documents are marked for the child: mostly there are none, and `has` need not be asked."""
        return view_of(child).uid in self._seen

    def add(self, child: KubeObject, *documents: JsonObject) -> None:
        """Mark them, in place of others."""
        uid = view_of(child).uid or ""
        self._seen[uid] = _digest(documents)
        self._seen.move_to_end(uid)
        if len(self._seen) > _LIMIT:
            self._seen.popitem(last=False)


def _digest(documents: tuple[JsonObject, ...]) -> int:
    """A fingerprint of what is written; versions and status change without that."""
    return hash(tuple(_fingerprint(document) for document in documents))


def _fingerprint(document: JsonObject) -> bytes:
    kept = {name: value for name, value in document.items() if name not in {"metadata", "status"}}
    metadata = document.get("metadata")
    if isinstance(metadata, dict):
        kept["metadata"] = {name: metadata.get(name) for name in ("annotations", "labels", "ownerReferences")}
    return msgspec.json.encode(kept, order="sorted")
