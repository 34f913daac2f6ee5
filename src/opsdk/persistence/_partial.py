"""An object reduced to its metadata: what is left of one that does not fit its model."""

from __future__ import annotations

from functools import lru_cache
from typing import cast

import msgspec
from lightkube.core.resource import ApiInfo, ResourceDef
from lightkube.models.meta_v1 import ObjectMeta

from opsdk.models import ResourceInfo

__all__ = ["PartialObject", "partial_kind"]


class PartialObject(msgspec.Struct, kw_only=True):
    """Any object's metadata. Its spec and status are not read, and survive each patch."""

    apiVersion: str | None = None  # noqa: N815 - the API's spelling
    kind: str | None = None
    metadata: ObjectMeta | None = None


@lru_cache(maxsize=256)
def partial_kind(info: ResourceInfo) -> type[PartialObject]:
    """A class that stands for the kind and reads nothing but metadata."""
    verbs = ["get", "list", "watch", "patch", "delete", *(["global_list", "global_watch"] if info.namespaced else [])]
    api_info = ApiInfo(resource=ResourceDef(info.group, info.version, info.kind), plural=info.plural, verbs=verbs)
    made = msgspec.defstruct(
        f"Partial{info.kind}", [], bases=(PartialObject,), namespace={"_api_info": api_info}, kw_only=True
    )
    return cast("type[PartialObject]", made)
