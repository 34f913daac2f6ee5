"""Adding and removing one finalizer, so that everybody else's stand.

Both work on the object in hand and update it in place, so that what is written next is written on top.
"""

from __future__ import annotations

from typing import Final, Protocol, TypeVar

from opsdk.client._metadata import refresh_metadata
from opsdk.client._status import conflict
from opsdk.client.reach import uncached
from opsdk.errors import ConflictError, NotFoundError
from opsdk.models import metadata_of, name_of, view_of
from opsdk.protocols import KubeObject, Reader, Writer

__all__ = ["add_finalizers", "has_finalizer", "remove_finalizers"]

T = TypeVar("T", bound=KubeObject)

_TRIES: Final = 3


class ReaderWriter(Reader, Writer, Protocol):
    """Reads and writes."""


def has_finalizer(obj: KubeObject, finalizer: str) -> bool:
    """Whether the object carries the finalizer."""
    return finalizer in (view_of(obj).finalizers or ())


async def add_finalizers(client: ReaderWriter, obj: KubeObject, *finalizers: str) -> bool:
    """Add those of the finalizers that `obj` lacks, in one patch.

    Guarantees: finalizers that others add or remove at the same time stand. The object in hand has the finalizers
    afterwards. Its resourceVersion moves on only if nobody else has written it since it was read, so a status write
    that follows still meets the conflict that it has to meet.

    Returns:
        Whether anything was written.

    Raises:
        ConflictError: It kept changing, is being deleted by now, or is another incarnation.
        NotFoundError: It is gone.
    """
    if not finalizers:
        return False
    return await _edit(
        client, obj, lambda present: [*present, *(name for name in finalizers if name not in present)], adds=True
    )


async def remove_finalizers(client: ReaderWriter, obj: KubeObject, *finalizers: str) -> bool:
    """Remove those of the finalizers that `obj` has, in one patch; otherwise like `add_finalizers`.

    An object that is gone has none: that is not an error.
    """
    drop = set(finalizers)
    try:
        return await _edit(client, obj, lambda present: [name for name in present if name not in drop], adds=False)
    except NotFoundError:
        return False


class _Edit(Protocol):
    def __call__(self, present: list[str], /) -> list[str]: ...


async def _edit(client: ReaderWriter, obj: KubeObject, edit: _Edit, *, adds: bool) -> bool:
    target = obj
    for attempt in range(_TRIES):
        original = metadata_of(target).finalizers
        present = list(view_of(target).finalizers or ())
        wanted = edit(present)
        if wanted == present:
            stored: KubeObject | None = None
        else:
            base = client.snapshot(target)
            metadata_of(target).finalizers = wanted
            try:
                stored = await client.patch_from(base, target)
            except ConflictError:
                metadata_of(target).finalizers = original
                if attempt == _TRIES - 1:
                    raise
                target = await _again(client, obj, adds=adds)
                continue
            except BaseException:
                metadata_of(target).finalizers = original
                raise
        if target is obj:
            if stored is not None:
                refresh_metadata(obj, stored)
        else:
            metadata_of(obj).finalizers = list(view_of(stored or target).finalizers or ())
        return stored is not None
    msg = "unreachable: the last try returns or raises"
    raise AssertionError(msg)


async def _again(client: ReaderWriter, obj: T, *, adds: bool) -> T:
    """The object as it is now, if it is still the same incarnation."""
    view = view_of(obj)
    current = await uncached(client).get(type(obj), name_of(obj), namespace=view.namespace)
    if view_of(current).uid != view.uid:
        raise conflict(type(obj).__name__, name_of(obj), "it was deleted and created again since it was read")
    if adds and view_of(current).deletionTimestamp is not None:
        raise conflict(type(obj).__name__, name_of(obj), "it is being deleted since it was read")
    return current
