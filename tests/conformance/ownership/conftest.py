"""An operator's client that notes what it sends, on whichever server the test runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import final

import pytest
from lightkube.models.meta_v1 import ObjectMeta

from conformance.harness import Api, eventually, furnished, is_served, new_name
from conformance.ownership.children import OWN_CRDS, Anything, Gadget, Widget, WidgetSpec
from opsdk.client import ApiClient, HttpRequest, HttpResponse, HttpStream, Transport
from opsdk.models import resource_of
from opsdk.protocols import KubeObject

__all__ = ["Scene", "Tap", "scene"]


@final
class Tap:
    """A transport that notes requests, and can let something happen before one."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.requests: list[str] = []
        self.before: dict[str, Callable[[], Awaitable[None]]] = {}

    @property
    def writes(self) -> list[str]:
        """What was not a read."""
        return [request for request in self.requests if not request.startswith("GET ")]

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        what = f"{request.method} {'/'.join(request.path.split('/')[-2:])}"
        self.requests.append(what)
        if (before := self.before.pop(what, None)) is not None:
            await before()
        return await self.inner.request(request)

    @asynccontextmanager
    async def stream(self, request: HttpRequest, /) -> AsyncGenerator[HttpStream]:
        async with self.inner.stream(request) as stream:
            yield stream

    async def aclose(self) -> None:
        """The transport below belongs to the fixture."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A server and two namespaces; `client` is the operator's, `others` everybody else's."""

    client: ApiClient
    others: ApiClient
    tap: Tap
    namespace: str
    elsewhere: str

    async def widget(self, size: int = 1) -> Widget:
        """A namespaced owner."""
        return await self.others.create(
            Widget(metadata=ObjectMeta(name=new_name("w"), namespace=self.namespace), spec=WidgetSpec(size=size))
        )

    async def gadget(self) -> Gadget:
        """A cluster-scoped owner."""
        return await self.others.create(Gadget(metadata=ObjectMeta(name=new_name("g")), spec=Anything()))

    async def gone(self, kind: type[KubeObject], name: str, namespace: str | None) -> None:
        """Wait until an object is gone."""
        await eventually(partial(self._is_gone, kind, name, namespace))

    async def _is_gone(self, kind: type[KubeObject], name: str, namespace: str | None) -> bool:
        return await self.others.find(kind, name, namespace=namespace) is None


@pytest.fixture
async def scene(api: Api) -> AsyncGenerator[Scene]:
    for crd in OWN_CRDS:
        await api.create("customresourcedefinitions", dict(crd))
    for kind in (Widget, Gadget):
        info = resource_of(kind)
        await eventually(partial(is_served, api, info.path(namespace=api.namespace if info.namespaced else None)))
    elsewhere = new_name("elsewhere")
    await api.created("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": elsewhere}})
    if api.server == "real":
        await furnished(api.transport, elsewhere)
    tap = Tap(api.transport)
    yield Scene(
        client=ApiClient(tap, field_manager="the-operator"),
        others=ApiClient(api.transport, field_manager="people"),
        tap=tap,
        namespace=api.namespace,
        elsewhere=elsewhere,
    )
    await api.delete("namespaces", elsewhere)
