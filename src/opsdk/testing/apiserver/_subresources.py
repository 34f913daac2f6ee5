"""Which subresources there are, what they allow, and of what kind their documents are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["BEYOND_OBJECTS", "EXTRA", "allows", "response_kind", "verbs_of"]

_ON_THE_OBJECT: Final = ("get", "patch", "update")
_VERBS: Final[Mapping[str, tuple[str, ...]]] = {
    "attach": ("create", "get"),
    "binding": ("create",),
    "eviction": ("create",),
    "exec": ("create", "get"),
    "finalize": ("update",),
    "log": ("get",),
    "portforward": ("create", "get"),
    "proxy": ("create", "delete", "get", "patch", "update"),
    "token": ("create",),
}
_RESPONSE_KINDS: Final[Mapping[str, tuple[str, str, str]]] = {
    "attach": ("", "v1", "PodAttachOptions"),
    "binding": ("", "v1", "Binding"),
    "eviction": ("policy", "v1", "Eviction"),
    "exec": ("", "v1", "PodExecOptions"),
    "portforward": ("", "v1", "PodPortForwardOptions"),
    "scale": ("autoscaling", "v1", "Scale"),
    "token": ("authentication.k8s.io", "v1", "TokenRequest"),
}
_VERB_OF_METHOD: Final = {"DELETE": "delete", "GET": "get", "PATCH": "patch", "POST": "create", "PUT": "update"}

EXTRA: Final[Mapping[str, frozenset[str]]] = {
    "nodes": frozenset({"proxy"}),
    "pods": frozenset({"attach", "exec", "portforward", "proxy"}),
    "services": frozenset({"proxy"}),
}
"""Subresources by resource that are no objects, so that no class stands for them."""

BEYOND_OBJECTS: Final = frozenset({"attach", "binding", "exec", "log", "portforward", "proxy", "token"})
"""Subresources that neither read nor write the object: they reach for a node, or for an identity."""


def verbs_of(subresource: str) -> tuple[str, ...]:
    """What can be done with a subresource, sorted."""
    return _VERBS.get(subresource, _ON_THE_OBJECT)


def allows(subresource: str, method: str) -> bool:
    """Whether a subresource takes an HTTP method."""
    return _VERB_OF_METHOD.get(method) in verbs_of(subresource)


def response_kind(kind: str, subresource: str) -> tuple[str, str, str] | None:
    """Group, version and kind of a subresource's documents; None where they are of the resource's own kind."""
    if subresource == "proxy":
        return "", "v1", f"{kind}ProxyOptions"
    return _RESPONSE_KINDS.get(subresource)
