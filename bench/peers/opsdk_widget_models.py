"""Widgets as pydantic models: what users of opsdk write first."""

from __future__ import annotations

from pydantic import Field

from opsdk import CustomResource, Model
from opsdk.models import Conditions

__all__ = ["Widget", "WidgetSpec", "WidgetStatus"]


class WidgetSpec(Model):
    size: int
    note: str = ""


class WidgetStatus(Model):
    observed_generation: int | None = None
    conditions: Conditions = Field(default_factory=list)


class Widget(CustomResource[WidgetSpec, WidgetStatus], group="bench.opsdk.dev", version="v1"):
    """What the benchmarks are about."""
