"""The webapp operator, tested without a cluster: by hand with the simulator, and whole with a manager."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import anyio
import pytest
import yaml
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Service

from life import Life, WrittenStatus
from opsdk import Client, Manager, ManagerOptions
from opsdk.cli import main
from opsdk.models import find_condition
from opsdk.testing import ApiServer, Simulator, matching
from opsdk.types import MergePatch
from webapp import (
    CONFIG_HASH,
    FINALIZER,
    Phase,
    WebApp,
    WebAppReconciler,
    WebAppSpec,
    annotations_of,
    build_config_map,
    build_deployment,
    image_of,
    register,
    update_deployment,
)

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
MANIFESTS = Path(__file__).parent / "manifests"


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def webapp(**spec: object) -> WebApp:
    return WebApp(
        metadata=ObjectMeta(name="shop"),
        spec=WebAppSpec.model_validate({"image": "shop:1", "replicas": 2, "config": {"motd": "hi"}, **spec}),
    )


def in_phase(phase: Phase) -> Callable[[WebApp], bool]:
    return lambda webapp: webapp.status.state == phase


def with_image(image: str) -> Callable[[Deployment], bool]:
    return lambda deployment: image_of(deployment) == image


def ready(webapp: WebApp) -> str:
    condition = find_condition(webapp.status.conditions, "Ready")
    return "" if condition is None else condition.status


async def stored(client: Client) -> WebApp:
    return await client.get(WebApp, "shop", namespace="default")


async def born(sim: Simulator) -> WrittenStatus:
    """A webapp that has just been created, with its children."""
    await sim.create(webapp())
    sim.expect_patch(WebApp, matching(lambda webapp: FINALIZER in (webapp.metadata.finalizers or [])))
    sim.expect_create(ConfigMap, "shop")
    sim.expect_create(Service, "shop")
    sim.expect_create(Deployment, "shop", matching(with_image("shop:1")))
    sim.expect_status_update(WebApp, matching(in_phase(Phase.INITIALISING)))
    sim.expect_event("Initialising")
    return WrittenStatus(sim.fake_client)


async def running(sim: Simulator) -> WrittenStatus:
    """A webapp that serves."""
    workload = await born(sim)
    await workload.become_available("default", "shop")
    await sim.settle()
    sim.expect_status_update(WebApp, matching(in_phase(Phase.RUNNING)))
    sim.expect_event("Running")
    return workload


async def test_a_new_webapp_gets_its_children_and_runs_once_they_serve() -> None:
    async with Simulator(WebAppReconciler) as sim:
        await running(sim)
        found = await stored(sim.fake_client)
        assert (found.status.image, found.status.ready_replicas, ready(found)) == ("shop:1", 2, "True")
        assert found.status.observed_generation == 1


async def test_a_webapp_that_rests_writes_nothing() -> None:
    async with Simulator(WebAppReconciler) as sim:
        await running(sim)
        for _ in range(3):
            await sim.reconcile()
        sim.assert_complete()


async def test_a_new_image_is_rolled_out() -> None:
    async with Simulator(WebAppReconciler) as sim:
        workload = await running(sim)
        changed = await stored(sim.fake_client)
        changed.spec.image = "shop:2"
        await sim.fake_client.replace(changed)
        await sim.settle(within=MINUTE)  # not as far as the rollout's timeout
        sim.expect_status_update(WebApp, matching(in_phase(Phase.UPDATING)))
        sim.expect_patch(Deployment, matching(with_image("shop:2")))
        assert (await stored(sim.fake_client)).status.image == "shop:1"

        await workload.become_available("default", "shop")
        await sim.settle()
        sim.expect_status_update(WebApp, matching(in_phase(Phase.RUNNING)))
        assert (await stored(sim.fake_client)).status.image == "shop:2"


async def test_a_spec_that_changes_during_the_rollout_is_not_taken_for_rolled_out() -> None:
    async with Simulator(WebAppReconciler) as sim:
        workload = await born(sim)
        changed = await stored(sim.fake_client)
        changed.spec.image = "shop:2"
        await sim.fake_client.replace(changed)
        await workload.become_available("default", "shop")  # the old image serves now
        await sim.settle(within=MINUTE)
        sim.expect_patch(Deployment, matching(with_image("shop:2")))
        assert (await stored(sim.fake_client)).status.state == Phase.INITIALISING
        sim.clear()


async def test_a_webapp_whose_pods_break_is_degraded_until_they_come_back() -> None:
    async with Simulator(WebAppReconciler) as sim:
        workload = await running(sim)
        await workload.break_down("default", "shop")
        await sim.settle()
        sim.expect_status_update(WebApp, matching(in_phase(Phase.DEGRADED)))
        sim.expect_event("Degraded")
        found = await stored(sim.fake_client)
        assert (ready(found), found.status.ready_replicas) == ("False", 0)

        await workload.become_available("default", "shop")
        await sim.settle()
        sim.expect_status_update(WebApp, matching(in_phase(Phase.RUNNING)))
        assert (await stored(sim.fake_client)).status.state_history[-1].reason == "Recovered"


async def test_a_rollout_that_takes_too_long_is_degraded() -> None:
    async with Simulator(WebAppReconciler) as sim:
        await born(sim)
        await sim.settle()  # jumps over the ten minutes
        sim.expect_status_update(WebApp, matching(in_phase(Phase.DEGRADED)))
        last = (await stored(sim.fake_client)).status.state_history[-1]
        assert last.reason == "RolloutTimedOut"
        assert last.timestamp >= (await stored(sim.fake_client)).status.state_history[0].timestamp + timedelta(
            minutes=10
        )


async def test_the_configuration_goes_when_it_is_no_longer_wanted() -> None:
    async with Simulator(WebAppReconciler) as sim:
        await running(sim)
        changed = await stored(sim.fake_client)
        changed.spec.config = {}
        await sim.fake_client.replace(changed)
        await sim.settle(within=MINUTE)
        sim.expect_status_update(WebApp, matching(in_phase(Phase.UPDATING)))
        sim.expect_patch(Deployment)  # it no longer mounts what goes afterwards
        sim.expect_delete(ConfigMap, "shop")
        sim.clear()


async def test_a_deleted_webapp_stops_its_pods_first_and_leaves_nothing_behind() -> None:
    async with Simulator(WebAppReconciler) as sim:
        await running(sim)
        await sim.fake_client.delete(WebApp, "shop", namespace="default")
        await sim.settle()
        sim.expect_delete(Deployment, "shop")
        sim.expect_status_update(WebApp, matching(in_phase(Phase.DELETING)))
        sim.clear()
        assert await sim.fake_client.find(WebApp, "shop", namespace="default") is None
        assert await sim.fake_client.find(Service, "shop", namespace="default") is None


async def test_a_single_state_can_be_looked_at_without_the_way_there() -> None:
    async with Simulator(WebAppReconciler) as sim:
        await born(sim)
        await sim.simulate_state(Phase.RUNNING)
        sim.expect_status_update(WebApp, matching(in_phase(Phase.DEGRADED)))  # for nothing is available yet


def test_an_update_keeps_what_others_have_put_into_the_pods() -> None:
    app = webapp()
    (deployment,) = build_deployment(app)
    template = deployment.spec.template
    assert template.metadata is not None
    template.metadata.annotations = {"sidecar.example.com/injected": "true"}
    updated = update_deployment(webapp(image="shop:2", config={"motd": "new"}), deployment)
    assert image_of(updated) == "shop:2"
    annotations = annotations_of(updated.spec.template.metadata)
    assert annotations["sidecar.example.com/injected"] == "true"
    assert annotations[CONFIG_HASH]


def test_no_configuration_is_no_config_map() -> None:
    assert build_config_map(webapp(config={})) == []


def test_the_crd_manifest_is_what_the_model_says() -> None:
    """If it fails: see README.md."""
    assert main(["crd", "webapp", "--check", str(MANIFESTS / "crd.yaml")]) == 0


async def test_the_role_allows_every_write_of_a_whole_life() -> None:
    documents = yaml.safe_load_all((MANIFESTS / "rbac.yaml").read_text(encoding="utf-8"))
    (role,) = [document for document in documents if document["kind"] == "ClusterRole"]
    allowed = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    async with Simulator(WebAppReconciler) as sim:
        workload = await running(sim)
        patch = MergePatch({"spec": {"image": "shop:2", "port": 81, "config": None}})
        await sim.fake_client.patch(WebApp, "shop", patch, namespace="default")
        await sim.settle(within=MINUTE)
        await workload.become_available("default", "shop")
        await sim.settle(within=MINUTE)
        await sim.fake_client.delete(WebApp, "shop", namespace="default")
        await sim.settle()
        verbs = {"replace": "update", "apply": "patch", "delete_collection": "deletecollection"}
        written = {
            (
                action.group,
                f"{action.plural}/{action.subresource}" if action.subresource else action.plural,
                verbs.get(action.verb, action.verb),
            )
            for action in sim.actions
        }
        assert ("apps", "deployments", "delete") in written
        assert written <= allowed
        sim.clear()


async def test_the_whole_life_with_a_manager() -> None:
    async with ApiServer() as server:
        await server.install(WebApp)
        manager = Manager(
            ManagerOptions(leader_election=False, serve_metrics=False, serve_probes=False), client=server.client()
        )
        register(manager)
        told: list[str] = []
        life = Life(server.client(), WrittenStatus(server.client()), tell=told.append)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.start)
            await life.whole()
            manager.stop()
        assert told[-1] == "the user deletes the webapp"
