"""State machines against both servers, over both families of models."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from lightkube.models.core_v1 import NamespaceSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apiextensions_v1 import CustomResourceDefinition
from lightkube.resources.core_v1 import Namespace

from conformance.harness import eventually, new_name
from conformance.statemachine.bench import FAMILIES, Bare, Bench, Part, Tap
from opsdk import clock
from opsdk.client import ApiClient, ClientConfig, HttpxTransport
from opsdk.client.transport import Transport
from opsdk.errors import NotFoundError
from opsdk.models import codec_of, crd_manifest
from opsdk.testing import ApiServer
from opsdk.testing.virtual_time import BackendOptions


@pytest.fixture(params=sorted(FAMILIES))
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def anyio_backend(server: str, family: str, anyio_backend: BackendOptions) -> BackendOptions:
    """On the real server each backend has one family, so that both are seen there in the time of one."""
    if server == "real":
        return ("trio" if family == "struct" else "asyncio"), {}
    return anyio_backend


@pytest.fixture
async def bench(
    server: str, family: str, anyio_backend: BackendOptions, request: pytest.FixtureRequest
) -> AsyncGenerator[Bench]:
    if server == "real":
        kubeconfig: Path = request.getfixturevalue("real_kubeconfig")
        transport = HttpxTransport(ClientConfig.from_files([kubeconfig]))
        try:
            await _install(ApiClient(transport))
            async with _bench(transport, family) as bench:
                yield bench
        finally:
            await transport.aclose()
    else:
        async with ApiServer() as memory:
            await _install(memory.client())
            async with _bench(memory.transport(), family) as bench:
                yield bench


async def _install(client: ApiClient) -> None:
    """The CRDs, unless an earlier test has brought them."""
    for kind in (Part, Bare):
        manifest = json.loads(json.dumps(crd_manifest(kind)))
        if await client.find(CustomResourceDefinition, manifest["metadata"]["name"]) is not None:
            continue
        if kind is Bare:
            del manifest["spec"]["versions"][0]["subresources"]
        await client.create(codec_of(CustomResourceDefinition).decode(json.dumps(manifest).encode()))
        await eventually(partial(_is_served, client, kind))


async def _is_served(client: ApiClient, kind: type[Part | Bare]) -> bool:
    """Reading works a moment before writing does."""
    try:
        await client.list(kind, namespace="default")
        await client.delete(kind, "nobody", namespace="default")
    except NotFoundError as error:
        return error.name == "nobody"
    return True


@asynccontextmanager
async def _bench(transport: Transport, family: str) -> AsyncGenerator[Bench]:
    tap = Tap(transport)
    aside = ApiClient(transport, field_manager="somebody-else")
    namespace = new_name("machines")
    await aside.create(Namespace(metadata=ObjectMeta(name=namespace), spec=NamespaceSpec()))
    bench = Bench(family=FAMILIES[family], namespace=namespace, tap=tap, client=ApiClient(tap), aside=aside)
    await bench.create()
    with clock.using(bench.time):
        yield bench
    await aside.delete(Namespace, namespace)
