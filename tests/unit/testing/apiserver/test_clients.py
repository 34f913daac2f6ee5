"""The ways into the server: our client, lightkube's own, the store's speed."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import anyio
import pytest
from lightkube import AsyncClient, KubeConfig
from lightkube.config.models import Cluster, Context, User
from lightkube.core.exceptions import ApiError
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap
from lightkube.types import PatchType

from opsdk import clock as clocks
from opsdk.client.transport import HttpRequest
from opsdk.clock import ManualClock
from opsdk.errors import AlreadyExistsError, ConflictError, GoneError, InvalidError, NotFoundError
from opsdk.models import CustomResource, MachineStatus, Model
from opsdk.testing.apiserver import ApiServer
from opsdk.types import MergePatch, Preconditions

pytestmark = pytest.mark.anyio


class GadgetSpec(Model):
    size: int = 1


class Gadget(CustomResource[GadgetSpec, MachineStatus], group="example.com", version="v1"):
    """Something to try things on."""


class HasData(Protocol):
    @property
    def data(self) -> Mapping[str, str] | None: ...


def data_of(obj: HasData) -> Mapping[str, str]:
    return obj.data or {}


def config_map(name: str = "a", **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace="default"), data=data)


def lightkube_client(server: ApiServer) -> Any:  # its methods are typed loosely
    config = KubeConfig(
        clusters={"c": Cluster(server="http://in-memory")},
        contexts={"x": Context(cluster="c", user="u")},
        users={"u": User()},
        current_context="x",
    )
    return AsyncClient(config, namespace="default", transport=server.httpx2_transport(), trust_env=False)


async def test_our_client_writes_reads_and_meets_the_server_s_errors() -> None:
    async with ApiServer() as server, server.client() as client:
        created = await client.create(config_map(x="1"))
        with pytest.raises(AlreadyExistsError):
            await client.create(config_map(x="1"))
        patched = await client.patch(ConfigMap, "a", MergePatch({"data": {"x": "2"}}), namespace="default")
        assert data_of(patched) == {"x": "2"}
        assert created.metadata is not None
        uid = created.metadata.uid
        with pytest.raises(ConflictError):
            await client.delete(ConfigMap, "a", namespace="default", preconditions=Preconditions(uid="other"))
        await client.delete(ConfigMap, "a", namespace="default", preconditions=Preconditions(uid=uid))
        with pytest.raises(NotFoundError):
            await client.get(ConfigMap, "a", namespace="default")


async def test_the_field_manager_of_a_client_is_recorded() -> None:
    async with ApiServer() as server:
        created = await server.client(field_manager="mine").create(config_map(x="1"))
    assert created.metadata is not None
    assert created.metadata.managedFields is not None
    assert [entry.manager for entry in created.metadata.managedFields] == ["mine"]


async def test_models_are_installed_and_served() -> None:
    async with ApiServer() as server:
        await server.install(Gadget)
        client = server.client()
        gadget = await client.create(Gadget(metadata=ObjectMeta(name="g", namespace="default"), spec=GadgetSpec()))
        assert (gadget.spec.size, gadget.metadata.generation) == (1, 1)
        with pytest.raises(InvalidError):
            await client.patch(Gadget, "g", MergePatch({"spec": {"size": "large"}}), namespace="default")


async def test_installing_twice_is_no_error() -> None:
    async with ApiServer() as server:
        await server.install(Gadget)
        before = server.resource_version
        await server.install(Gadget)
        assert server.resource_version == before


async def test_a_typed_watch_sees_what_happens_and_a_forgotten_version_is_gone() -> None:
    async with ApiServer() as server:
        client = server.client()
        start = server.resource_version
        await client.create(config_map("a"))
        async with client.raw.watch(_config_maps(), namespace="default", resource_version=start) as events:
            async for event in events:
                assert event.type == "ADDED"
                break
        server.compact()
        async with client.raw.watch(_config_maps(), namespace="default", resource_version=start) as events:
            with pytest.raises(GoneError):
                await anext(events)


def _config_maps() -> Any:
    from opsdk.models import resource_of

    return resource_of(ConfigMap)


async def test_timestamps_are_of_the_clock_in_force() -> None:
    moment = datetime(2030, 5, 1, 12, tzinfo=UTC)
    async with ApiServer() as server:
        with clocks.using(ManualClock(moment)):
            created = await server.client().create(config_map())
    assert created.metadata is not None
    assert created.metadata.creationTimestamp == moment


async def test_the_server_s_own_clock_wins() -> None:
    clock = ManualClock()
    async with ApiServer(clock=clock) as server:
        clock.advance(timedelta(days=1))
        created = await server.client().create(config_map())
    assert created.metadata is not None
    assert created.metadata.creationTimestamp == datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_lightkube_s_own_client_works() -> None:
    async with ApiServer() as server:
        client = lightkube_client(server)
        await client.create(config_map(x="1"))
        patched = await client.patch(ConfigMap, "a", {"data": {"y": "2"}}, patch_type=PatchType.MERGE)
        assert patched.data == {"x": "1", "y": "2"}
        assert [each.metadata.name async for each in client.list(ConfigMap) if each.metadata] == ["a"]
        seen: list[str] = []
        async for kind, _ in client.watch(ConfigMap):
            seen.append(kind)
            if len(seen) == 1:
                await client.delete(ConfigMap, "a")
            else:
                break
        assert seen == ["ADDED", "DELETED"]
        with pytest.raises(ApiError) as caught:
            await client.get(ConfigMap, "a")
        assert caught.value.status.reason == "NotFound"
        await client.close()


async def test_many_clients_at_once_see_one_order() -> None:
    async with ApiServer() as server:
        client = server.client()
        await client.create(config_map(count="0"))
        conflicts = 0

        async def increment() -> None:
            nonlocal conflicts
            while True:
                current = await client.get(ConfigMap, "a", namespace="default")
                assert current.metadata is not None
                patch = MergePatch(
                    {
                        "metadata": {"resourceVersion": current.metadata.resourceVersion},
                        "data": {"count": str(int(data_of(current)["count"]) + 1)},
                    }
                )
                try:
                    await client.patch(ConfigMap, "a", patch, namespace="default")
                except ConflictError:
                    conflicts += 1
                else:
                    return

        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(increment)
        final = await client.get(ConfigMap, "a", namespace="default")
        assert data_of(final) == {"count": "20"}
        assert conflicts > 0


def _request(method: str, path: str, body: object = None) -> HttpRequest:
    raw = None if body is None else json.dumps(body).encode()
    return HttpRequest(method=method, path=path, body=raw, headers={"content-type": "application/merge-patch+json"})


def test_ten_thousand_objects_do_not_slow_single_requests_down() -> None:
    server = ApiServer()
    path = "/api/v1/namespaces/default/configmaps"
    for number in range(10_000):
        body = json.dumps({"metadata": {"name": f"m{number}", "labels": {"n": str(number)}}}).encode()
        assert server.handle(HttpRequest(method="POST", path=path, body=body)).status == 201
    started = time.process_time()
    for number in range(200):
        assert server.handle(_request("GET", f"{path}/m{number}")).status == 200
        assert server.handle(_request("PATCH", f"{path}/m{number}", {"data": {"x": "y"}})).status == 200
        assert server.handle(_request("DELETE", f"{path}/m{number}")).status == 200
    # About 0.4 ms each; the bound only catches work that grows with the number of objects.
    assert time.process_time() - started < 200 * 3 * 0.003
