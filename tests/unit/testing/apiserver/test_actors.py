"""Actors that play the rest of a cluster."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

import anyio
import pytest
from lightkube.models.apps_v1 import DeploymentSpec, DeploymentStatus
from lightkube.models.core_v1 import Container, PodSpec, PodTemplateSpec
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.resources.apps_v1 import Deployment

from opsdk.client import ApiClient
from opsdk.testing.apiserver import ApiServer
from opsdk.testing.apiserver.actors import DeploymentActor
from opsdk.types import JsonObject, MergePatch, StrategicMergePatch

pytestmark = pytest.mark.anyio


def deployment(image: str = "nginx:1", replicas: int = 2) -> Deployment:
    return Deployment(
        metadata=ObjectMeta(name="web", namespace="default"),
        spec=DeploymentSpec(
            replicas=replicas,
            selector=LabelSelector(matchLabels={"app": "web"}),
            template=PodTemplateSpec(
                metadata=ObjectMeta(labels={"app": "web"}),
                spec=PodSpec(containers=[Container(name="web", image=image)]),
            ),
        ),
    )


async def status_of(client: ApiClient) -> DeploymentStatus:
    found = await client.get(Deployment, "web", namespace="default")
    assert found.status is not None
    return found.status


async def available(client: ApiClient) -> tuple[str, str] | None:
    for condition in (await status_of(client)).conditions or []:
        if condition.type == "Available":
            return str(condition.status), condition.reason or ""
    return None


async def progressing(client: ApiClient) -> str:
    for condition in (await status_of(client)).conditions or []:
        if condition.type == "Progressing":
            return condition.reason or ""
    return ""


@asynccontextmanager
async def running(actor: DeploymentActor) -> AsyncGenerator[None]:
    async with anyio.create_task_group() as group:
        group.start_soon(actor.run)
        await anyio.wait_all_tasks_blocked()
        yield
        group.cancel_scope.cancel()


async def test_a_deployment_becomes_available() -> None:
    async with ApiServer() as server:
        client = server.client()
        async with running(DeploymentActor(client)):
            await client.create(deployment())
            await anyio.sleep(0.1)
            status = await status_of(client)
            counts = (status.replicas, status.readyReplicas, status.updatedReplicas, status.availableReplicas)
            assert counts == (2, 2, 2, 2)
            assert status.observedGeneration == 1
            assert await available(client) == ("True", "MinimumReplicasAvailable")
            assert await progressing(client) == "NewReplicaSetAvailable"


async def test_one_that_is_there_already_becomes_available_too() -> None:
    async with ApiServer() as server:
        client = server.client()
        await client.create(deployment())
        async with running(DeploymentActor(client)):
            assert await available(client) == ("True", "MinimumReplicasAvailable")


async def test_it_takes_its_time_after_each_change() -> None:
    async with ApiServer() as server:
        client = server.client()
        async with running(DeploymentActor(client, delay=timedelta(seconds=10))):
            await client.create(deployment())
            await anyio.sleep(9)
            assert await available(client) is None
            await anyio.sleep(2)
            assert await available(client) == ("True", "MinimumReplicasAvailable")
            await client.patch(Deployment, "web", MergePatch({"spec": {"replicas": 5}}), namespace="default")
            await anyio.sleep(9)
            assert (await status_of(client)).observedGeneration == 1
            await anyio.sleep(2)
            status = await status_of(client)
            assert (status.observedGeneration, status.availableReplicas) == (2, 5)


async def test_an_image_that_fails_heals() -> None:
    async with ApiServer() as server:
        client = server.client()
        actor = DeploymentActor(client, failing_images={"broken:1"})
        async with running(actor):
            await client.create(deployment("broken:1"))
            await anyio.sleep(0.1)
            assert await available(client) == ("False", "MinimumReplicasUnavailable")
            assert await progressing(client) == "ReplicaSetUpdated"
            await anyio.sleep(601)
            assert await progressing(client) == "ProgressDeadlineExceeded"
            actor.heal()
            await anyio.sleep(0.1)
            assert await available(client) == ("True", "MinimumReplicasAvailable")
            status = await status_of(client)
            assert (status.unavailableReplicas, status.readyReplicas) == (None, 2)
            actor.fail("broken:1")
            await anyio.sleep(0.1)
            assert await available(client) == ("False", "MinimumReplicasUnavailable")


async def test_a_healthy_image_comes_up_in_time_although_the_one_before_has_not_reached_its_deadline() -> None:
    async with ApiServer() as server:
        client = server.client()
        actor = DeploymentActor(client, delay=timedelta(seconds=10), failing_images={"broken:1"})
        async with running(actor):
            await client.create(deployment("broken:1"))
            await anyio.sleep(11)
            assert await available(client) == ("False", "MinimumReplicasUnavailable")
            image: JsonObject = {"template": {"spec": {"containers": [{"name": "web", "image": "nginx:1"}]}}}
            await client.patch(Deployment, "web", StrategicMergePatch({"spec": image}), namespace="default")
            await anyio.sleep(11)
            assert await available(client) == ("True", "MinimumReplicasAvailable")


async def test_nothing_wanted_is_available() -> None:
    async with ApiServer() as server:
        client = server.client()
        async with running(DeploymentActor(client, failing_images={"nginx:1"})):
            await client.create(deployment(replicas=0))
            await anyio.sleep(0.1)
            assert await available(client) == ("True", "MinimumReplicasAvailable")


async def test_an_actor_at_rest_writes_nothing() -> None:
    async with ApiServer() as server:
        client = server.client()
        async with running(DeploymentActor(client)):
            await client.create(deployment())
            await anyio.sleep(1)
            before = server.resource_version
            await anyio.sleep(3600)
            assert server.resource_version == before


async def test_it_goes_on_after_its_watch_has_ended() -> None:
    async with ApiServer() as server:
        client = server.client()
        async with running(DeploymentActor(client)):
            server.end_watches()
            await anyio.sleep(5)
            await client.create(deployment())
            await anyio.sleep(5)
            assert await available(client) == ("True", "MinimumReplicasAvailable")


async def test_one_look_without_running() -> None:
    async with ApiServer() as server:
        client = server.client()
        await client.create(deployment())
        await DeploymentActor(client).settle()
        assert await available(client) == ("True", "MinimumReplicasAvailable")
