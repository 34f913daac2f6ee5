"""Which object a request is about, read from its path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final
from urllib.parse import quote, unquote

__all__ = ["Target", "parse_path"]

_NAMESPACE_SUBRESOURCES = frozenset({"finalize", "status"})


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The resource, object and subresource in a path of the Kubernetes API."""

    group: str
    version: str
    plural: str
    namespace: str | None
    name: str | None
    subresource: str | None

    @property
    def resource(self) -> tuple[str, str, str]:
        """Group, version and plural: one kind as one version of the API shows it."""
        return self.group, self.version, self.plural

    @property
    def api_version(self) -> str:
        """`group/version`, or the version alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def collection_path(self) -> str:
        """The path that lists all objects of the resource, in all namespaces."""
        return f"{self._root}/{self.plural}"

    @property
    def object_path(self) -> str:
        """The path of the object itself, without the subresource."""
        place = f"namespaces/{quote(self.namespace, safe='')}/" if self.namespace is not None else ""
        return f"{self._root}/{place}{self.plural}/{quote(self.name or '', safe='')}"

    @property
    def _root(self) -> str:
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"


def parse_path(path: str) -> Target | None:
    """Read `path`; None when it is not about a resource (discovery, health, OpenAPI)."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    match parts:
        case ["api", version, *rest] if rest:
            group = ""
        case ["apis", group, version, *rest] if rest:
            pass
        case _:
            return None
    namespace: str | None = None
    if rest[0] == "namespaces" and len(rest) >= 3 and not (not group and rest[2] in _NAMESPACE_SUBRESOURCES):
        namespace, rest = rest[1], rest[2:]
    return Target(
        group=group,
        version=version,
        plural=rest[0],
        namespace=namespace,
        name=rest[1] if len(rest) > 1 else None,
        subresource="/".join(rest[2:]) or None,
    )
