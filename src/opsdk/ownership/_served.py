"""Which kinds a server has, and the metadata of their objects, whatever they are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final, final

import msgspec

from opsdk.client import ApiClient
from opsdk.errors import ApiConnectionError, GoneError, MethodNotAllowedError, NotFoundError, ServerError
from opsdk.models import ResourceInfo
from opsdk.types import Request

__all__ = ["Reference", "Seen", "look_again", "seen", "served"]

_METADATA: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_PAGE: Final = "500"


class _Resource(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool
    verbs: list[str] = msgspec.field(default_factory=list[str])


class _Resources(msgspec.Struct):
    resources: list[_Resource] = msgspec.field(default_factory=list[_Resource])


class _Version(msgspec.Struct, rename="camel"):
    group_version: str = ""


class _Group(msgspec.Struct, rename="camel"):
    versions: list[_Version]
    preferred_version: _Version = msgspec.field(default_factory=_Version)


class _Groups(msgspec.Struct):
    groups: list[_Group] = msgspec.field(default_factory=list[_Group])


class Reference(msgspec.Struct, rename="camel", omit_defaults=True):
    """What of an owner reference is of interest, and how it is written."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    uid: str
    resource_version: str
    namespace: str | None = None
    labels: dict[str, str] | None = None
    finalizers: list[str] | None = None
    owner_references: list[Reference] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata


class _Page(msgspec.Struct):
    items: list[_Object] | None  # the server's word for none is null
    metadata: dict[str, msgspec.Raw]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What of an object is of interest."""

    info: ResourceInfo
    request: Request
    uid: str
    version: str
    labels: dict[str, str]
    finalizers: list[str]
    references: list[Reference]


async def served(client: ApiClient) -> tuple[list[ResourceInfo], list[str]]:
    """The kinds whose objects can be listed and patched, each in the version that its group prefers.

    Returns:
        The kinds, and the API versions about which the server did not answer: those of an extension that is down.
    """
    groups = msgspec.json.decode(await client.raw.request("GET", "/apis"), type=_Groups).groups
    versions = ["v1"]
    for each in groups:
        preferred = each.preferred_version.group_version
        others = [entry.group_version for entry in each.versions if entry.group_version != preferred]
        versions += [preferred, *others] if preferred else others
    kinds: dict[tuple[str, str], ResourceInfo] = {}
    silent: list[str] = []
    for api_version in versions:
        group, _, version = api_version.rpartition("/")
        path = f"/apis/{api_version}" if group else f"/api/{api_version}"
        try:
            answer = await client.raw.request("GET", path)
        except (ApiConnectionError, NotFoundError, ServerError):
            silent.append(api_version)
            continue
        for entry in msgspec.json.decode(answer, type=_Resources).resources:
            if "/" not in entry.name and {"list", "patch"} <= set(entry.verbs):
                info = ResourceInfo(
                    group=group,
                    version=version,
                    kind=entry.kind,
                    plural=entry.name,
                    scope="Namespaced" if entry.namespaced else "Cluster",
                )
                kinds.setdefault((group, entry.name), info)
    return list(kinds.values()), silent


async def seen(
    client: ApiClient, info: ResourceInfo, *, namespace: str | None, labels: str | None
) -> AsyncIterator[Seen]:
    """The objects of one kind, by pages; some twice when the server gives up a list between two pages."""
    token = ""
    query = [("limit", _PAGE), *([("labelSelector", labels)] if labels else [])]
    path = info.path(namespace=namespace)
    while True:
        following = [("continue", token)] if token else []
        try:
            answer = await client.raw.request("GET", path, query=[*query, *following], accept=_METADATA)
        except GoneError:
            if not token:
                raise
            token = ""
            continue
        except (NotFoundError, MethodNotAllowedError):
            return  # its CRD has gone since
        page = msgspec.json.decode(answer, type=_Page)
        for item in page.items or ():
            yield _seen_of(info, item.metadata)
        raw = page.metadata.get("continue")
        token = "" if raw is None else msgspec.json.decode(raw, type=str)
        if not token:
            return


async def look_again(client: ApiClient, this: Seen) -> Seen | None:
    """The object as it is now; None when it is gone, or another one has its name."""
    path = this.info.path(namespace=this.request.namespace, name=this.request.name)
    try:
        answer = await client.raw.request("GET", path)
    except NotFoundError:
        return None
    current = _seen_of(this.info, msgspec.json.decode(answer, type=_Object).metadata)
    return current if current.uid == this.uid else None


def _seen_of(info: ResourceInfo, metadata: _Metadata) -> Seen:
    """From what the server sent."""
    return Seen(
        info=info,
        request=Request(metadata.name, metadata.namespace),
        uid=metadata.uid,
        version=metadata.resource_version,
        labels=metadata.labels or {},
        finalizers=metadata.finalizers or [],
        references=metadata.owner_references or [],
    )
