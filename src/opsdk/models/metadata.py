"""Short ways to what an object's metadata says."""

from __future__ import annotations

from typing import Any, cast

from lightkube.models.meta_v1 import ObjectMeta, OwnerReference

from opsdk.errors import ObjectError
from opsdk.models.resources import resource_of
from opsdk.protocols import KubeObject, MetadataView
from opsdk.types import Request

__all__ = ["metadata_of", "name_of", "owner_reference_to", "request_of", "view_of"]


def metadata_of(obj: KubeObject) -> ObjectMeta:
    """The object's metadata itself: changes to it are changes to the object.

    A lightkube generic resource that holds its metadata as a plain dict gets it converted, in place.

    Raises:
        ObjectError: It has none.
    """
    metadata = obj.metadata
    if metadata is None:
        raise ObjectError(f"{type(obj).__name__} has no metadata: give it metadata=ObjectMeta(name=...)")
    if isinstance(obj, dict):
        document = cast("dict[str, Any]", obj)
        if not isinstance(document.get("metadata"), ObjectMeta):
            document["metadata"] = metadata
    return metadata


def view_of(obj: KubeObject) -> MetadataView:
    """The object's metadata as a typed, read-only view.

    Raises:
        ObjectError: It has none.
    """
    return metadata_of(obj)


def name_of(obj: KubeObject) -> str:
    """The object's name.

    Raises:
        ObjectError: It has none (yet: `generateName` is the server's to complete).
    """
    name = metadata_of(obj).name
    if not name:
        raise ObjectError(f"{type(obj).__name__} has no name: set metadata.name")
    return name


def request_of(obj: KubeObject) -> Request:
    """The request that names the object.

    Raises:
        ObjectError: It has no name.
    """
    metadata = metadata_of(obj)
    return Request(metadata.name or name_of(obj), metadata.namespace or None)


def owner_reference_to(obj: KubeObject, controller: bool = True, block: bool = True) -> OwnerReference:  # noqa: FBT001, FBT002 - Kubernetes' own two flags
    """A reference to `obj` for the metadata of its children.

    Args:
        obj: The owner, as the server stored it.
        controller: It is the managing controller; an object has at most one.
        block: Deleting the owner in the foreground waits for the child.

    Raises:
        ObjectError: The owner has no name or no uid: it was not read from the server.
    """
    resource = resource_of(type(obj))
    metadata = metadata_of(obj)
    if not metadata.uid:
        raise ObjectError(
            f"{resource.kind} {metadata.name or ''} has no uid, so nothing can refer to it: use the object that the "
            "server returned"
        )
    return OwnerReference(
        apiVersion=resource.api_version,
        kind=resource.kind,
        name=name_of(obj),
        uid=metadata.uid,
        controller=controller,
        blockOwnerDeletion=block,
    )
