"""The server's documents that were read lately, by the version they are of."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, final

import msgspec

__all__ = ["Documents"]


class _Meta(msgspec.Struct):
    uid: str | None = None
    resource_version: str | None = msgspec.field(name="resourceVersion", default=None)


class _Document(msgspec.Struct):
    metadata: _Meta


_HEADS: Final = msgspec.json.Decoder(_Document)


def head_of(raw: bytes) -> tuple[str | None, str | None]:
    """The uid and resourceVersion of a document; None for what it does not say."""
    try:
        metadata = _HEADS.decode(raw).metadata
    except msgspec.MsgspecError:
        return None, None
    return metadata.uid, metadata.resource_version


@final
class Documents:
    """Remembers documents by uid and resourceVersion; the least recently used go first.

    Args:
        max_bytes: How much to keep. Default: 16 MiB.
    """

    def __init__(self, max_bytes: int = 16 * 1024 * 1024) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._kept: OrderedDict[tuple[str, str], bytes] = OrderedDict()

    def get(self, uid: str | None, resource_version: str | None) -> bytes | None:
        """The document of that version, if it is still here."""
        if not uid or not resource_version:
            return None
        raw = self._kept.get((uid, resource_version))
        if raw is not None:
            self._kept.move_to_end((uid, resource_version))
        return raw

    def put(self, uid: str | None, resource_version: str | None, raw: bytes) -> None:
        """Remember a document; one without uid or resourceVersion, or that is too large, is not kept."""
        if not uid or not resource_version or len(raw) > self._max_bytes:
            return
        key = (uid, resource_version)
        self._bytes += len(raw) - len(self._kept.pop(key, b""))
        self._kept[key] = raw
        while self._bytes > self._max_bytes:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= len(oldest)
