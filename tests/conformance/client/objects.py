"""Objects that the tests write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap

from conformance.client.conftest import Site
from conformance.client.widgets import StoredPart, StoredSpec, StoredWidget
from opsdk.types import Json

__all__ = ["a_widget", "config_map", "data_of", "fields_of"]


def a_widget(site: Site, name: str = "w", *, size: int = 1) -> StoredWidget:
    return StoredWidget(
        metadata=ObjectMeta(name=name, namespace=site.namespace),
        spec=StoredSpec(
            size=size, hidden="x", parts=[StoredPart(name="a", hidden="a"), StoredPart(name="b", hidden="b")]
        ),
    )


def config_map(site: Site, name: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=site.namespace, labels={"app": "x"}), data=dict(data))


class HasData(Protocol):
    @property
    def data(self) -> Mapping[str, str] | None: ...


def data_of(obj: HasData) -> Mapping[str, str] | None:
    """Lightkube says a bare dict."""
    return obj.data


class HasFields(Protocol):
    @property
    def fieldsV1(self) -> Mapping[str, Json] | None: ...  # noqa: N802 - Kubernetes' own name


def fields_of(entry: HasFields) -> Mapping[str, Json] | None:
    """Lightkube says a bare dict."""
    return entry.fieldsV1
