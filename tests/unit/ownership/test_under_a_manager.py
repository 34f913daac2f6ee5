"""What a resource owner asks of the API server when a whole manager runs it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest
from lightkube.models.core_v1 import ServicePort, ServiceSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Service

from opsdk import For, Manager, ManagerOptions, Request, ResourceOwner, Result
from opsdk.client import ApiClient
from opsdk.client.transport import HttpRequest, HttpResponse, HttpStream, Transport
from opsdk.testing import ApiServer

pytestmark = pytest.mark.anyio


class Counting:
    """A transport that keeps what it was asked for."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.seen: list[str] = []

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        self.seen.append(f"{request.method} {request.path}")
        return await self.inner.request(request)

    @asynccontextmanager
    async def stream(self, request: HttpRequest, /) -> AsyncGenerator[HttpStream]:
        self.seen.append(f"WATCH {request.path}")
        async with self.inner.stream(request) as stream:
            yield stream

    async def aclose(self) -> None:
        await self.inner.aclose()


def build(owner: ConfigMap) -> list[Service]:
    spec = ServiceSpec(selector={"app": "web"}, ports=[ServicePort(port=80)])
    return [Service(metadata=ObjectMeta(name="web"), spec=spec)]


def update(owner: ConfigMap, existing: Service) -> Service:
    assert existing.spec is not None
    existing.spec.selector = {"app": "web"}
    return existing


class Operator:
    def __init__(self, manager: Manager) -> None:
        self.client = manager.client
        self.owner = ResourceOwner(ConfigMap, manager.client, [For(Service, build, update=update)])
        self.passes = 0

    async def reconcile(self, request: Request) -> Result:
        owner = await self.client.find(ConfigMap, request.name, namespace=request.namespace)
        if owner is None:
            return Result()
        result = await self.owner.reconcile(owner)
        self.passes += 1
        return result


async def test_a_reconcile_with_nothing_to_do_reads_only_from_the_cache() -> None:
    async with ApiServer() as server:
        transport = Counting(server.transport())
        options = ManagerOptions(leader_election=False, serve_metrics=False, serve_probes=False)
        manager = Manager(options, client=ApiClient(transport))
        operator = Operator(manager)
        controller = manager.controller(ConfigMap).owns(Service).complete(operator)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.start)
            await server.client().create(ConfigMap(metadata=ObjectMeta(name="cm", namespace="default")))
            await anyio.sleep(10)
            assert "POST /api/v1/namespaces/default/services" in transport.seen

            transport.seen.clear()
            before = operator.passes
            for _ in range(3):
                controller.add(Request("cm", "default"))
                await anyio.sleep(1)
            assert operator.passes == before + 3
            assert transport.seen == []
            manager.stop()
