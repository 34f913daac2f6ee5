"""The webapp operator leads the life that `make demo` shows, on a real control plane."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta

import anyio
import anyio.to_thread
import pytest
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import Event, Namespace

from life import SECOND_IMAGE, Life
from opsdk import Manager, ManagerOptions
from opsdk.client import ApiClient, ClientConfig
from opsdk.models import crd_manifest
from opsdk.types import MergePatch
from real_cluster import RealCluster, real_cluster
from standins import Kubelet
from webapp import Phase, WebApp, register

pytestmark = [pytest.mark.anyio, pytest.mark.controlplane]

PATIENCE = timedelta(seconds=120)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RealCluster]:
    """A cluster of its own, since its API server is killed."""
    with real_cluster([crd_manifest(WebApp)]) as found:
        yield found


def connect(cluster: RealCluster, *, context: str | None = None) -> ApiClient:
    return ApiClient.from_config(ClientConfig.from_files([cluster.kubeconfig], context=context))


@asynccontextmanager
async def operator(cluster: RealCluster, namespace: str) -> AsyncGenerator[Manager]:
    """The operator, run by a manager that leads, as in production but on loopback.

    Its Lease outlasts an API server that is killed and started again, however long a busy machine takes over that.
    """
    options = ManagerOptions(
        lease_duration=timedelta(seconds=90),
        renew_deadline=timedelta(seconds=80),
        leader_election_id=f"webapps-{namespace}",
        leader_election_namespace=namespace,
        metrics_bind_address="127.0.0.1:0",
        probe_bind_address="127.0.0.1:0",
        namespaces=(namespace,),
    )
    async with connect(cluster) as client:
        manager = Manager(options, client=client)
        register(manager)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.start)
            yield manager
            manager.stop()


@asynccontextmanager
async def life_in_a_namespace(cluster: RealCluster) -> AsyncGenerator[tuple[Life, Kubelet]]:
    namespace = f"e2e-{uuid.uuid4().hex[:8]}"
    async with connect(cluster) as client:
        await client.create(Namespace(metadata=ObjectMeta(name=namespace)))
        kubelet = Kubelet(client, namespace)
        async with operator(cluster, namespace), anyio.create_task_group() as tasks:
            tasks.start_soon(kubelet.run)
            yield Life(client, kubelet, namespace=namespace, patience=PATIENCE), kubelet
            tasks.cancel_scope.cancel()
        lease = await client.get(Lease, f"webapps-{namespace}", namespace=namespace)
        assert lease.spec is not None
        assert not lease.spec.holderIdentity, "the Lease was given back"
        await client.delete(Namespace, namespace)


async def test_a_webapp_is_created_runs_is_updated_breaks_heals_and_is_deleted(cluster: RealCluster) -> None:
    async with life_in_a_namespace(cluster) as (life, _):
        await life.whole()
        events = await life.client.list(Event, namespace=life.namespace)
        reasons = {event.reason for event in events if event.involvedObject.kind == "WebApp"}
        assert {"Initialising", "Running", "Updating", "Degraded", "Deleting"} <= reasons


async def test_a_rollout_is_finished_although_the_api_server_is_killed_in_the_middle(cluster: RealCluster) -> None:
    control_plane = cluster.control_plane
    if control_plane is None:
        pytest.fail("KUBECONFIG names a cluster whose kube-apiserver is not ours to kill; unset it for this test")
    async with life_in_a_namespace(cluster) as (life, kubelet):
        await life.be_created()
        await life.serve()
        patch = MergePatch({"spec": {"image": SECOND_IMAGE}})
        await life.client.patch(WebApp, life.name, patch, namespace=life.namespace)
        await life.reach(Phase.UPDATING)

        control_plane.api_server.kill()
        kubelet.pull(SECOND_IMAGE)
        await anyio.sleep(3)  # long enough for watches to fail and be tried again
        control_plane.api_server.start()
        await anyio.to_thread.run_sync(control_plane.wait_ready)

        webapp = await life.reach(Phase.RUNNING, ready="True", progressing="False")
        assert webapp.status.image == SECOND_IMAGE
        assert [str(entry.to) for entry in webapp.status.state_history] == [
            "initialising",
            "running",
            "updating",
            "running",
        ]
        await life.be_deleted()


async def test_a_second_replica_takes_over_when_the_first_stops(cluster: RealCluster) -> None:
    namespace = f"e2e-{uuid.uuid4().hex[:8]}"
    async with connect(cluster) as client, anyio.create_task_group() as tasks:
        await client.create(Namespace(metadata=ObjectMeta(name=namespace)))
        kubelet = Kubelet(client, namespace)
        tasks.start_soon(kubelet.run)
        life = Life(client, kubelet, namespace=namespace, patience=PATIENCE)
        async with operator(cluster, namespace) as first:
            await life.be_created()
            async with operator(cluster, namespace):
                first.stop()
                await life.serve()
                await life.be_updated()
                await life.be_deleted()
        tasks.cancel_scope.cancel()
