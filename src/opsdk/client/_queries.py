"""Query parameters, as the API server reads them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta

from opsdk.types import LabelSelector

__all__ = ["label_selector", "selection", "whole_seconds"]


def label_selector(labels: LabelSelector) -> str:
    """The selector in Kubernetes' own syntax."""
    return labels if isinstance(labels, str) else ",".join(f"{name}={value}" for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")


def selection(labels: LabelSelector | None, fields: Mapping[str, str] | None) -> list[tuple[str, str]]:
    """The parameters that say which objects are meant."""
    query: list[tuple[str, str]] = []
    if labels:
        query.append(("labelSelector", label_selector(labels)))
    if fields:
        query.append(("fieldSelector", ",".join(f"{name}={_escaped(value)}" for name, value in fields.items())))
    return query


def whole_seconds(duration: timedelta) -> str:
    """A duration in seconds, rounded up."""
    return str(math.ceil(duration.total_seconds()))
