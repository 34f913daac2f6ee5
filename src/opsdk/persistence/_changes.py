"""Which changes of an object are worth asking the database.

Writes to status are not: this reconciler makes them itself, and a failure that it has told in status must not cause the
next attempt before its time.
"""

from __future__ import annotations

import msgspec

from opsdk.cache import Cached
from opsdk.controller.predicates import (
    Predicate,
    annotations_changed,
    changed,
    generation_changed,
    labels_changed,
)
from opsdk.protocols import KubeObject

__all__ = ["worth_a_pass"]


class _Metadata(msgspec.Struct):
    finalizers: list[str] | None = None


class _Document(msgspec.Struct):
    metadata: _Metadata


_DOCUMENTS = msgspec.json.Decoder(_Document)


def worth_a_pass(finalizer: str) -> Predicate[KubeObject]:
    """Spec, labels, annotations, deletion, coming and going; and our finalizer, when somebody else took it.

    A kind without generations (a ConfigMap) has no status to write either: of it, every change counts.
    """

    def taken(old: Cached[KubeObject], new: Cached[KubeObject]) -> bool:
        return _has(old, finalizer) and not _has(new, finalizer)

    def untold(old: Cached[KubeObject], new: Cached[KubeObject]) -> bool:
        return not new.header.generation and old.header.resource_version != new.header.resource_version

    return (
        generation_changed()
        | labels_changed()
        | annotations_changed()
        | changed(taken, "finalizer_taken")
        | changed(untold, "no_generation")
    )


def _has(cached: Cached[KubeObject], finalizer: str) -> bool:
    try:
        return finalizer in (_DOCUMENTS.decode(cached.raw).metadata.finalizers or ())
    except msgspec.MsgspecError:
        return False
