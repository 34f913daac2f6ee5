"""Keeping the object in hand up to date with what was stored."""

from __future__ import annotations

from opsdk.models import metadata_of
from opsdk.protocols import KubeObject

__all__ = ["refresh_metadata"]


def refresh_metadata(obj: KubeObject, stored: KubeObject, /) -> None:
    """Copy what the server decides, and the finalizers, from `stored` into the metadata of `obj`, in place.

    After a write of ours the object that the caller still holds is of an old version; with this it can be written
    again. Labels, annotations and owner references of `obj` stay, for they may hold changes that are not written yet.

    Raises:
        ObjectError: One of the two has no metadata.
    """
    mine = metadata_of(obj)
    theirs = metadata_of(stored)
    mine.uid = theirs.uid
    mine.resourceVersion = theirs.resourceVersion
    mine.generation = theirs.generation
    mine.creationTimestamp = theirs.creationTimestamp
    mine.deletionTimestamp = theirs.deletionTimestamp
    mine.deletionGracePeriodSeconds = theirs.deletionGracePeriodSeconds
    mine.finalizers = None if theirs.finalizers is None else list(theirs.finalizers)
    mine.managedFields = None if theirs.managedFields is None else list(theirs.managedFields)
    if theirs.name:
        mine.name = theirs.name  # of an object that was created with generateName
    if theirs.namespace:
        mine.namespace = theirs.namespace
