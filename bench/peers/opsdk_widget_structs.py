"""Widgets as lightkube's structs: less to start and to decode, and no validation but that of types."""

from __future__ import annotations

import msgspec
from lightkube.core.resource import ApiInfo, NamespacedResource, ResourceDef
from lightkube.core.schema import DictMixin
from lightkube.models.meta_v1 import Condition, ObjectMeta

__all__ = ["Widget", "WidgetSpec", "WidgetStatus"]


class WidgetSpec(DictMixin, rename="camel"):
    size: int
    note: str = ""


class WidgetStatus(DictMixin, rename="camel"):
    observed_generation: int | None = None
    conditions: list[Condition] = []  # noqa: RUF012 - msgspec makes a new one for each


class Widget(NamespacedResource, DictMixin, kw_only=True):
    _api_info = ApiInfo(
        resource=ResourceDef("bench.opsdk.dev", "v1", "Widget"),
        plural="widgets",
        verbs=["delete", "get", "global_list", "global_watch", "list", "patch", "post", "put", "watch"],
    )
    apiVersion: str = "bench.opsdk.dev/v1"  # noqa: N815 - Kubernetes' spelling
    kind: str = "Widget"
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: WidgetSpec
    status: WidgetStatus = msgspec.field(default_factory=WidgetStatus)
