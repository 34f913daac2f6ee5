"""Which object a call is about: names and namespaces, never guessed."""

from __future__ import annotations

from lightkube.models.meta_v1 import ObjectMeta

from opsdk.errors import ObjectError
from opsdk.models import ResourceInfo

__all__ = ["name_of_object", "namespace_of_call", "namespace_of_object", "namespace_of_selection"]


def namespace_of_call(info: ResourceInfo, namespace: str | None, *, name: str = "") -> str | None:
    """The namespace for a call about one object or one namespace.

    Raises:
        ObjectError: The kind is namespaced and none was given, or it is not and one was.
    """
    if info.scope == "Cluster":
        if namespace is not None:
            what = _what(info, name)
            raise ObjectError(f"{what}: the kind is cluster-scoped; leave out namespace={namespace!r}")
        return None
    if not namespace:
        raise ObjectError(
            f"{_what(info, name)}: the kind is namespaced and no namespace was given; pass namespace=…, or set "
            f"metadata.namespace of the object"
        )
    return namespace


def _what(info: ResourceInfo, name: str) -> str:
    return f"{info.kind} {name}" if name else info.kind


def namespace_of_selection(info: ResourceInfo, namespace: str | None) -> str | None:
    """The namespace for a call about many objects; None: all of them.

    Raises:
        ObjectError: A namespace was given for a cluster-scoped kind, or an empty one.
    """
    return None if namespace is None else namespace_of_call(info, namespace)


def namespace_of_object(info: ResourceInfo, metadata: ObjectMeta, namespace: str | None) -> str | None:
    """The namespace for a call with an object: its own, else the call's.

    Raises:
        ObjectError: Neither says one and the kind is namespaced, or they differ.
    """
    own = metadata.namespace
    if own and namespace is not None and own != namespace:
        raise ObjectError(
            f"{info.kind} {metadata.name}: metadata.namespace is {own!r} and the call says namespace={namespace!r}"
        )
    return namespace_of_call(info, own or namespace, name=metadata.name or metadata.generateName or "")


def name_of_object(info: ResourceInfo, metadata: ObjectMeta) -> str:
    """The name of an object that has to have one.

    Raises:
        ObjectError: It has none.
    """
    if not metadata.name:
        raise ObjectError(f"{info.kind}: the object has no metadata.name")
    return metadata.name
