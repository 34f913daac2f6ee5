"""Widgets, and a reconciler of theirs as users of opsdk write one. With `BENCH_MODELS=structs`, without pydantic."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap

from opsdk import Client, For, Request, ResourceOwner, Result
from opsdk.models import set_condition

if TYPE_CHECKING or os.environ.get("BENCH_MODELS") != "structs":
    from opsdk_widget_models import Widget, WidgetSpec
else:
    from opsdk_widget_structs import Widget, WidgetSpec

__all__ = ["Converging", "Widget", "WidgetSpec"]


def data_of(widget: Widget) -> dict[str, str]:
    return {"size": str(widget.spec.size), "note": widget.spec.note}


def build(widget: Widget) -> list[ConfigMap]:
    metadata = ObjectMeta(name=widget.metadata.name, labels={"app": "bench-child"})
    return [ConfigMap(metadata=metadata, data=data_of(widget))]


def update(widget: Widget, existing: ConfigMap) -> ConfigMap:
    existing.data = data_of(widget)
    return existing


class Converging:
    """Gives each Widget a ConfigMap and a status."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.children = ResourceOwner(Widget, client, [For(ConfigMap, build, update=update)])
        self.reconciles = 0

    async def reconcile(self, request: Request) -> Result:
        self.reconciles += 1
        widget = await self.client.find(Widget, request.name, namespace=request.namespace)
        if widget is None:
            return Result()
        before = self.client.snapshot(widget)
        result = await self.children.reconcile(widget)
        generation = widget.metadata.generation
        set_condition(
            widget.status.conditions, type="Ready", status="True", reason="Reconciled", observed_generation=generation
        )
        widget.status.observed_generation = generation
        await self.client.status.patch_from(before, widget)
        return result
