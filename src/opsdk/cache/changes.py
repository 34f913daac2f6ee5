"""What an informer tells its handlers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Generic, Protocol, TypeAlias, final

import msgspec
from lightkube.models.meta_v1 import ObjectMeta
from typing_extensions import TypeVar

from opsdk.cache.header import Header
from opsdk.models import Codec
from opsdk.protocols import KubeObject

__all__ = ["Cached", "Change", "Handler", "ObjectAdded", "ObjectDeleted", "ObjectModified"]

T_co = TypeVar("T_co", bound=KubeObject, covariant=True)
T_contra = TypeVar("T_contra", bound=KubeObject, contravariant=True)


class _Annotations(msgspec.Struct):
    annotations: dict[str, str] | None = None


class _Document(msgspec.Struct):
    metadata: _Annotations


_DOCUMENTS: Final = msgspec.json.Decoder(_Document)


@final
class Cached(msgspec.Struct, Generic[T_co], eq=False, gc=False):
    """One version of an object as a cache has it: bytes, and the header of them. The cache's own: not to be changed.

    Not tracked by the garbage collector: it refers to bytes, a header, and what decodes all objects of its kind.

    Attributes:
        header: What is known without decoding.
        raw: The object as JSON, without managedFields.
        codec: Decodes it.
        listed_in: Which list showed it last. The store's own: in a set of the keys that were seen, it would cost as
            much as a small page for each list.
    """

    header: Header
    raw: bytes
    codec: Codec[T_co]
    listed_in: int = 0

    def decode(self) -> T_co:
        """The object: a new one with each call, so changing it changes nothing here.

        Raises:
            DecodeError: It does not fit its model.
        """
        return self.codec.decode(self.raw)

    def annotations(self) -> Mapping[str, str]:
        """The annotations, read from the bytes without decoding the rest."""
        try:
            return _DOCUMENTS.decode(self.raw).metadata.annotations or {}
        except msgspec.MsgspecError:
            return {}

    def metadata(self) -> ObjectMeta:
        """As much of the metadata as the header has, for an object that does not decode."""
        header = self.header
        return ObjectMeta(
            name=header.name,
            namespace=header.namespace,
            uid=header.uid or None,
            resourceVersion=header.resource_version or None,
            generation=header.generation or None,
            labels=dict(header.labels),
        )

    def __repr__(self) -> str:
        return f"<Cached {self.header.request} {self.header.resource_version}>"


@final
class ObjectAdded(msgspec.Struct, Generic[T_co], frozen=True, kw_only=True):
    """An object is there that was not there before.

    Args:
        new: The object.
        initial: Nothing happened to it: it was there already when the cache, or the handler, came.
    """

    new: Cached[T_co]
    initial: bool = False


@final
class ObjectModified(msgspec.Struct, Generic[T_co], frozen=True, kw_only=True):
    """An object changed: perhaps several times since `old`."""

    old: Cached[T_co]
    new: Cached[T_co]


@final
class ObjectDeleted(msgspec.Struct, Generic[T_co], frozen=True, kw_only=True):
    """An object is gone; `old` is the last that is known of it."""

    old: Cached[T_co]


Change: TypeAlias = ObjectAdded[T_co] | ObjectModified[T_co] | ObjectDeleted[T_co]
"""What happened to one object, as a sum: `match` on it."""


class Handler(Protocol[T_contra]):
    """Is told what happens to the objects of a kind.

    Called on the loop, in the order of the events of each object, after the store has changed. Must not block; what it
    raises is logged and stops nothing.
    """

    def __call__(self, change: Change[T_contra], /) -> None:
        """Something happened to one object."""
        ...
