"""Objects of which only the metadata is wanted, as a kind of its own for each kind.

Where a controller needs to know that a Secret is there and which labels it has, and not what is in it, the class
`metadata_only(Secret)` stands for Secrets everywhere a class does: `client.list(metadata_only(Secret))`, an informer,
`.watches(metadata_only(Secret), map=…)`. The server then sends metadata and nothing else.
"""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar, cast

import msgspec
from lightkube.core.resource import ApiInfo, ResourceDef
from lightkube.models.meta_v1 import ObjectMeta

from opsdk.models.resources import ResourceInfo, resource_of
from opsdk.protocols import KubeObject

__all__ = ["PartialObjectMetadata", "is_metadata_only", "metadata_only"]


class PartialObjectMetadata(msgspec.Struct, kw_only=True):
    """An object's metadata. Its kind is the object's own, as `metadata_only` says.

    It can be patched (`patch`, `patch_from`) and deleted; what is not metadata stays as it is. `create` and `replace`
    refuse it, as they would leave nothing of the rest, and so does `apply` under the client's own field manager, which
    may own some of the rest. Under another one it owns metadata and nothing else; where there is no such object, it
    makes one that has nothing else.
    """

    _api_info: ClassVar[ApiInfo]

    apiVersion: str | None = None  # noqa: N815 - the API's spelling
    kind: str | None = None
    metadata: ObjectMeta | None = None


def metadata_only(kind: type[KubeObject], /) -> type[PartialObjectMetadata]:
    """The class that stands for a kind's metadata; the same one each time.

    Args:
        kind: Any class that says which kind it stands for.

    Raises:
        ResourceDefinitionError: It does not say.
    """
    if is_metadata_only(kind):
        return cast("type[PartialObjectMetadata]", kind)
    return _metadata_only(resource_of(kind))


def is_metadata_only(kind: type[object], /) -> bool:
    """Whether a class came from `metadata_only`."""
    return issubclass(kind, PartialObjectMetadata)


@lru_cache(maxsize=4096)
def _metadata_only(info: ResourceInfo) -> type[PartialObjectMetadata]:
    verbs = ["get", "list", "watch", "patch", "delete", *(["global_list", "global_watch"] if info.namespaced else [])]
    api_info = ApiInfo(resource=ResourceDef(info.group, info.version, info.kind), plural=info.plural, verbs=verbs)
    made = msgspec.defstruct(
        f"{info.kind}Metadata", [], bases=(PartialObjectMetadata,), namespace={"_api_info": api_info}, kw_only=True
    )
    return cast("type[PartialObjectMetadata]", made)
