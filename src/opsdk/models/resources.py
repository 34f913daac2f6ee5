"""Which kind a class stands for, and where its objects live on the server."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final, TypeVar, final
from urllib.parse import quote

import msgspec
from lightkube.core.resource import (
    ApiInfo,
    GlobalResource,
    GlobalSubResource,
    NamespacedResource,
    NamespacedSubResource,
)

from opsdk.errors import ObjectError, ResourceDefinitionError
from opsdk.protocols import KubeObject
from opsdk.types import Scope

__all__ = ["ResourceInfo", "resource_of"]

T = TypeVar("T", bound=KubeObject)

_PLAIN: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.~-]*")


@final
class ResourceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A kind, as the API server knows it.

    Args:
        group: The API group; empty for the core group.
        version: The version within the group.
        kind: The kind.
        plural: The resource's name in paths and RBAC rules.
        scope: Whether its objects live in namespaces.
    """

    group: str
    version: str
    kind: str
    plural: str
    scope: Scope

    @property
    def api_version(self) -> str:
        """What `apiVersion` says: `apps/v1`, or `v1` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def namespaced(self) -> bool:
        """Whether its objects live in namespaces."""
        return self.scope == "Namespaced"

    def path(self, *, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The path on the server: of one object, or without `name` of all of them in a namespace or everywhere.

        Args:
            namespace: Needed with `name` for a namespaced kind; without a name, None means all namespaces.
            name: The object; None for the collection.
            subresource: `status`, `scale` and the like, of the object.

        Raises:
            ObjectError: Something is missing, empty, superfluous, or no possible segment of a path.
        """
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace is not None:
            if self.scope == "Cluster":
                raise ObjectError(f"{self.kind} is cluster-scoped, so namespace {namespace!r} makes no sense here")
            parts += ["namespaces", self._segment("namespace", namespace)]
        elif name is not None and self.scope == "Namespaced":
            raise ObjectError(f"{self.kind} {name!r} is namespaced: say in which namespace")
        parts.append(self.plural)
        if name is not None:
            parts.append(self._segment("name", name))
        if subresource is not None:
            if name is None:
                raise ObjectError(f"{self.kind}: subresource {subresource!r} is of one object: say which, by name")
            parts.append(self._segment("subresource", subresource))
        return "/" + "/".join(parts)

    def _segment(self, what: str, text: str) -> str:
        if _PLAIN.fullmatch(text):  # nearly every name; quoting takes as long as all the rest of a path
            return text
        if text in {"", ".", ".."} or "/" in text or "%" in text:
            raise ObjectError(f"{self.kind}: {what} {text!r} cannot be part of a path")
        return quote(text, safe="")

    def __str__(self) -> str:
        return f"{self.kind}.{self.version}.{self.group}" if self.group else f"{self.kind}.{self.version}"


def resource_of(kind: type[T]) -> ResourceInfo:
    """The kind that a class stands for. Remembered for each class.

    Works for lightkube's resources, its generic resources, `CustomResource`, and any class with lightkube's
    `_api_info`.

    Raises:
        ResourceDefinitionError: The class does not say, or stands for a subresource; or it is no class.
    """
    _check_class(kind)
    return _resource_of(kind)


def _check_class(kind: object) -> None:
    if not isinstance(kind, type):
        raise ResourceDefinitionError(
            f"a kind is named by its class, such as ConfigMap of lightkube.resources.core_v1 or your CustomResource; "
            f"{kind!r:.80} is a {type(kind).__name__}"
        )


@lru_cache(maxsize=4096)
def _resource_of(kind: type[Any]) -> ResourceInfo:
    info: object = getattr(kind, "_api_info", None)
    if not isinstance(info, ApiInfo):
        raise ResourceDefinitionError(
            f"{kind.__qualname__} does not say which kind it stands for: use a class of lightkube.resources, a "
            "CustomResource with group= and version=, or give it lightkube's `_api_info`"
        )
    if info.action is not None:
        raise ResourceDefinitionError(
            f"{kind.__qualname__} stands for the subresource {info.action!r} of {info.plural}; use the class of the "
            "object itself, and the client's verbs for subresources"
        )
    return ResourceInfo(
        group=info.resource.group,
        version=info.resource.version,
        kind=info.resource.kind,
        plural=info.plural,
        scope=_scope(kind, info),
    )


def _scope(kind: type[Any], info: ApiInfo) -> Scope:
    if issubclass(kind, NamespacedResource | NamespacedSubResource):
        return "Namespaced"
    if issubclass(kind, GlobalResource | GlobalSubResource):
        return "Cluster"
    if any(verb.startswith("global_") for verb in info.verbs):
        return "Namespaced"
    if "list" in info.verbs:
        return "Cluster"
    raise ResourceDefinitionError(
        f"{kind.__qualname__} does not say whether its objects live in namespaces: inherit from lightkube's "
        "NamespacedResourceG or GlobalResource, or list the verb `global_list` in `_api_info`"
    )
