"""What clients read to learn which kinds there are, one group at a time or all at once (aggregated discovery).

kubectl asks for the aggregated form and falls back to the other; both say the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.metadata import version as installed_version
from typing import Final

from opsdk.testing.apiserver._json import Document, Value
from opsdk.testing.apiserver._kinds import KindInfo, KindRegistry
from opsdk.testing.apiserver._subresources import response_kind, verbs_of
from opsdk.types import JsonObject

__all__ = ["AGGREGATED_TYPE", "discovery_content_type", "discovery_response", "text_response"]

AGGREGATED_TYPE: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
"""The media type of aggregated discovery."""

_CRD_VERBS: Final = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
_HEALTH_PATHS: Final = frozenset({"/healthz", "/livez", "/readyz"})


def discovery_response(registry: KindRegistry, path: str, accept: str = "") -> JsonObject | None:
    """The document at a discovery path.

    Args:
        registry: The kinds at the moment.
        path: `/api`, `/apis`, `/apis/apps`, `/api/v1`, `/apis/apps/v1`, `/version` or `/`.
        accept: The request's Accept header; asks for aggregated discovery or not.

    Returns:
        None where there is no such path or group; for its content type see `discovery_content_type`.
    """
    match path.strip("/").split("/"):
        case [""]:
            return {"paths": _paths(registry)}
        case ["version"]:
            return _version()
        case ["api" | "apis" as root] if _wants_aggregated(accept):
            return _aggregated(registry, core=root == "api")
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            groups: list[Value] = [_group(*each) for each in registry.groups().items() if each[0]]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["apis", group]:
            versions = registry.groups().get(group)
            return None if versions is None else {"kind": "APIGroup", "apiVersion": "v1", **_group(group, versions)}
        case ["api", version]:
            return _resource_list(registry, "", version)
        case ["apis", group, version]:
            return _resource_list(registry, group, version)
        case _:
            return None


def discovery_content_type(document: JsonObject) -> str:
    """The content type of a document of `discovery_response`."""
    return AGGREGATED_TYPE if document.get("kind") == "APIGroupDiscoveryList" else "application/json"


def text_response(path: str) -> str | None:
    """The plain text at a health path, None elsewhere."""
    parts = path.rstrip("/").split("/")
    return "ok" if "/".join(parts[:2]) in _HEALTH_PATHS else None


def _wants_aggregated(accept: str) -> bool:
    """Whether aggregated discovery comes first among what the client takes and we have."""
    for media_type in accept.split(","):
        name, *parameters = (part.strip() for part in media_type.split(";"))
        if name not in {"application/json", "application/*", "*/*"}:
            continue
        wanted = dict(part.split("=", 1) for part in parameters if "=" in part)
        if "as" not in wanted:
            return False
        if (wanted.get("g"), wanted.get("v"), wanted["as"]) == ("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList"):
            return True
    return False


def _paths(registry: KindRegistry) -> list[Value]:
    found = {"/api", "/apis", "/version", "/openapi/v2", "/openapi/v3", *_HEALTH_PATHS}
    for group, versions in registry.groups().items():
        root = f"/apis/{group}" if group else "/api"
        found |= {root, *(f"{root}/{version}" for version in versions)}
    paths: list[Value] = [*sorted(found)]
    return paths


@cache
def _version() -> JsonObject:
    """The Kubernetes version that the built-in kinds are taken from."""
    major, minor, *_ = installed_version("lightkube-models").split(".")
    return {
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "gitVersion": f"v{major}.{minor}.0+opsdk",
        "gitCommit": "unknown",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "none",
        "platform": "python",
    }


def _group(name: str, versions: Iterable[str]) -> Document:
    listed: list[Value] = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _verbs(info: KindInfo, subresource: str = "") -> list[Value]:
    if subresource:
        return [*verbs_of(subresource)]
    if info.builtin:
        return [*sorted(info.verbs)]
    return [verb for verb in _CRD_VERBS if verb in info.verbs]


def _sorted_subresources(info: KindInfo) -> list[str]:
    return sorted(
        info.subresources, key=lambda name: name if info.builtin else {"status": "0", "scale": "1"}.get(name, name)
    )


def _resource_list(registry: KindRegistry, group: str, version: str) -> JsonObject | None:
    if not registry.has_version(group, version):
        return None
    resources: list[Value] = []
    kinds = [info for info in registry.kinds() if (info.group, info.version) == (group, version)]
    for info in sorted(kinds, key=lambda each: each.plural):
        main: Document = {
            "name": info.plural,
            "singularName": info.singular,
            "namespaced": info.namespaced,
            "kind": info.kind,
            "verbs": _verbs(info),
        }
        if info.short_names:
            main["shortNames"] = [*info.short_names]
        if info.categories:
            main["categories"] = [*info.categories]
        resources.append(main)
        for name in _sorted_subresources(info):
            entry: Document = {"name": f"{info.plural}/{name}", "singularName": "", "namespaced": info.namespaced}
            kind = response_kind(info.kind, name)
            if kind is not None and kind[0]:
                entry["group"], entry["version"] = kind[0], kind[1]
            entry["kind"] = info.kind if kind is None else kind[2]
            entry["verbs"] = _verbs(info, name)
            resources.append(entry)
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": resources,
    }


def _aggregated(registry: KindRegistry, *, core: bool) -> JsonObject:
    items: list[Value] = []
    for group, versions in registry.groups().items():
        if (group == "") is not core:
            continue
        metadata: Document = {"name": group} if group else {}
        listed: list[Value] = [_aggregated_version(registry, group, version) for version in versions]
        items.append({"metadata": metadata, "versions": listed})
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _aggregated_version(registry: KindRegistry, group: str, version: str) -> Document:
    kinds = [info for info in registry.kinds() if (info.group, info.version) == (group, version)]
    resources: list[Value] = [_aggregated_resource(info) for info in sorted(kinds, key=lambda each: each.plural)]
    return {"version": version, "resources": resources, "freshness": "Current"}


def _aggregated_resource(info: KindInfo) -> Document:
    own = (info.group, info.version, info.kind)
    resource: Document = {
        "resource": info.plural,
        "responseKind": _kind_document(own),
        "scope": "Namespaced" if info.namespaced else "Cluster",
        "singularResource": info.singular,
        "verbs": _verbs(info),
    }
    if info.short_names:
        resource["shortNames"] = [*info.short_names]
    if info.categories:
        resource["categories"] = [*info.categories]
    subresources: list[Value] = [
        {
            "subresource": name,
            "responseKind": _kind_document(response_kind(info.kind, name) or own),
            "verbs": _verbs(info, name),
        }
        for name in _sorted_subresources(info)
    ]
    if subresources:
        resource["subresources"] = subresources
    return resource


def _kind_document(kind: tuple[str, str, str]) -> Document:
    group, version, name = kind
    return {"group": group, "version": version, "kind": name}
