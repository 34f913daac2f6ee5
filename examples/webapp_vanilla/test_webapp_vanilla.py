"""The operator by hand, tested with the same kit as the one on opsdk: simulator, whole life, campaign."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import anyio
import msgspec
import pytest
import yaml
from lightkube import AsyncClient  # noqa: TID251 - what the operator takes
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apiextensions_v1 import CustomResourceDefinition
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Event, Service

from life import Life, WrittenStatus
from opsdk import Request, Result, clock
from opsdk.testing import ApiServer, Simulator, matching
from opsdk.testing.apiserver.actors import DeploymentActor
from opsdk.testing.campaigns import campaign
from opsdk.testing.simulator import lightkube_client
from opsdk.testing.virtual_time import BackendOptions, virtual_asyncio_options
from opsdk.types import Json, JsonObject, MergePatch
from webapp_vanilla import (
    DEGRADED,
    DELETING,
    FINALIZER,
    INITIALISING,
    RUNNING,
    UPDATING,
    Operator,
    Reconciler,
    Spec,
    WebApp,
    image_of,
    run,
)

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
CRD: JsonObject = yaml.safe_load((Path(__file__).parents[1] / "webapp/manifests/crd.yaml").read_text(encoding="utf-8"))


@pytest.fixture
def anyio_backend() -> BackendOptions:
    """The operator, and the client that it is built on, are for asyncio."""
    return virtual_asyncio_options()


class Adapter:
    """All that the simulator asks of a reconciler."""

    def __init__(self, client: AsyncClient) -> None:
        self.inner = Reconciler(client, now=clock.now)

    async def reconcile(self, request: Request) -> Result:
        again = await self.inner.reconcile(request.namespace or "", request.name)
        return Result(requeue_after=None if again is None else timedelta(seconds=again))


def simulator() -> Simulator:
    return Simulator(Adapter, client_type=AsyncClient)


def in_state(state: str) -> Callable[[WebApp], bool]:
    return lambda webapp: webapp.status.state == state


def with_image(image: str) -> Callable[[Deployment], bool]:
    return lambda deployment: image_of(deployment) == image


async def stored(sim: Simulator) -> WebApp:
    return await sim.fake_client.get(WebApp, "shop", namespace="default")


async def change(sim: Simulator, **spec: Json) -> None:
    await sim.fake_client.patch(WebApp, "shop", MergePatch({"spec": spec}), namespace="default")


async def born(sim: Simulator) -> WrittenStatus:
    await sim.fake_client.create(msgspec.convert(CRD, CustomResourceDefinition))
    spec = Spec(image="shop:1", replicas=2, config={"motd": "hi"})
    await sim.create(WebApp(metadata=ObjectMeta(name="shop"), spec=spec))
    sim.expect_patch(WebApp, matching(lambda webapp: FINALIZER in ((webapp.metadata or ObjectMeta()).finalizers or [])))
    sim.expect_create(ConfigMap, "shop")
    sim.expect_create(Service, "shop")
    sim.expect_create(Deployment, "shop", matching(with_image("shop:1")))
    sim.expect_status_update(WebApp, matching(in_state(INITIALISING)))
    sim.expect_event("Initialising")
    return WrittenStatus(sim.fake_client)


async def running(sim: Simulator) -> WrittenStatus:
    workload = await born(sim)
    await workload.become_available("default", "shop")
    await sim.settle()
    sim.expect_status_update(WebApp, matching(in_state(RUNNING)))
    sim.expect_event("Running")
    return workload


async def test_a_new_webapp_gets_its_children_and_runs_once_they_serve() -> None:
    async with simulator() as sim:
        await running(sim)
        status = (await stored(sim)).status
        assert (status.image, status.ready_replicas, status.observed_generation) == ("shop:1", 2, 1)
        assert [(one.type, one.status) for one in status.conditions] == [
            ("Ready", "True"),
            ("Progressing", "False"),
            ("Degraded", "False"),
        ]


async def test_a_webapp_that_rests_writes_nothing() -> None:
    async with simulator() as sim:
        await running(sim)
        for _ in range(3):
            await sim.reconcile()
        sim.assert_complete()


async def test_a_new_image_is_rolled_out() -> None:
    async with simulator() as sim:
        workload = await running(sim)
        await change(sim, image="shop:2")
        await sim.settle(within=MINUTE)  # not as far as the rollout's timeout
        sim.expect_status_update(WebApp, matching(in_state(UPDATING)))
        sim.expect_patch(Deployment, matching(with_image("shop:2")))
        await workload.become_available("default", "shop")
        await sim.settle()
        sim.expect_status_update(WebApp, matching(in_state(RUNNING)))
        assert (await stored(sim)).status.image == "shop:2"


async def test_a_spec_that_changes_during_the_rollout_is_not_taken_for_rolled_out() -> None:
    async with simulator() as sim:
        workload = await born(sim)
        await change(sim, image="shop:2")
        await workload.become_available("default", "shop")  # the old image serves now
        await sim.settle(within=MINUTE)
        sim.expect_patch(Deployment, matching(with_image("shop:2")))
        assert (await stored(sim)).status.state == INITIALISING
        sim.clear()


async def test_a_webapp_whose_pods_break_is_degraded_until_they_come_back() -> None:
    async with simulator() as sim:
        workload = await running(sim)
        await workload.break_down("default", "shop")
        await sim.settle()
        sim.expect_status_update(WebApp, matching(in_state(DEGRADED)))
        await workload.become_available("default", "shop")
        await sim.settle()
        sim.expect_status_update(WebApp, matching(in_state(RUNNING)))
        assert (await stored(sim)).status.state_history[-1].reason == "Recovered"


async def test_a_rollout_that_takes_too_long_is_degraded() -> None:
    async with simulator() as sim:
        await born(sim)
        await sim.settle()  # jumps over the ten minutes
        sim.expect_status_update(WebApp, matching(in_state(DEGRADED)))
        assert (await stored(sim)).status.state_history[-1].reason == "RolloutTimedOut"


async def test_what_is_no_longer_wanted_goes() -> None:
    async with simulator() as sim:
        await running(sim)
        await change(sim, config=None, port=81)
        await sim.settle(within=MINUTE)  # to updating, and along
        sim.expect_status_update(WebApp, matching(in_state(UPDATING)))
        sim.expect_patch(Service)
        deployment = sim.expect_patch(Deployment)  # it no longer mounts what goes afterwards
        sim.expect_delete(ConfigMap, "shop")
        sim.clear()
        pod = deployment.spec.template.spec
        assert pod is not None
        (container,) = pod.containers
        assert (pod.volumes or [], container.volumeMounts or []) == ([], [])
        assert [port.containerPort for port in container.ports or []] == [81]


async def test_a_child_of_somebody_else_is_left_alone() -> None:
    async with simulator() as sim:
        theirs = ConfigMap(metadata=ObjectMeta(name="shop", namespace="default"), data={"motd": "theirs"})
        theirs = await sim.fake_client.create(theirs)
        with pytest.raises(Exception, match="ConfigMap default/shop is not this webapp's"):
            await born(sim)
        sim.clear()
        assert await sim.fake_client.get(ConfigMap, "shop", namespace="default") == theirs


async def test_a_deleted_webapp_stops_its_pods_first_and_leaves_nothing_behind() -> None:
    async with simulator() as sim:
        await running(sim)
        await sim.fake_client.delete(WebApp, "shop", namespace="default")
        await sim.settle()
        sim.expect_delete(Deployment, "shop")
        sim.expect_status_update(WebApp, matching(in_state(DELETING)))
        sim.clear()
        assert await sim.fake_client.find(WebApp, "shop", namespace="default") is None
        assert await sim.fake_client.find(Service, "shop", namespace="default") is None


async def test_the_whole_life_with_the_loop() -> None:
    """The same life as the operator on opsdk leads: `examples/webapp/life.py`."""
    async with ApiServer() as server:
        client = server.client()
        await client.create(msgspec.convert(CRD, CustomResourceDefinition))
        told: list[str] = []
        life = Life(client, WrittenStatus(client), tell=told.append)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, lightkube_client(server.transport(), namespace="default", field_manager="vanilla"))
            await life.whole()
            tasks.cancel_scope.cancel()
        assert told[-1] == "the user deletes the webapp"
        reasons = {event.reason or "" for event in await client.list(Event, namespace="default")}
        assert sorted(reasons) == ["Degraded", "Deleting", "Initialising", "Running", "Updating"]


def test_whatever_a_user_asks_for_ends_as_if_it_had_been_asked_for_first() -> None:
    report = campaign(
        lambda client: Operator(Reconciler(client)),
        CRD,
        client_type=AsyncClient,
        cluster=lambda client: DeploymentActor(client).run(),
        settle=timedelta(minutes=15),  # longer than a rollout may take
        examples=12,
    )
    assert report.changes > 5
