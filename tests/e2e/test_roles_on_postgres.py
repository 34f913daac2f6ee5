"""The roles operator on a real control plane, with a real PostgreSQL server that goes and comes back."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from math import floor
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from anyio.abc import Process
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Event, Namespace

from opsdk import Manager, ManagerOptions
from opsdk.client import ApiClient, ClientConfig
from opsdk.persistence import RetryDelays
from opsdk.types import MergePatch
from postgres_server import PostgresServer, postgres_server
from real_cluster import RealCluster
from roles import Role, key_of, register
from roles_database import Database
from roles_world import World, eventually

pytestmark = [pytest.mark.anyio, pytest.mark.controlplane]

HANGING = Path(__file__).parent / "roles_that_hang.py"
# long enough for several retries; `OPSDK_TEST_OUTAGE_SECONDS=60 make e2e` has the database away for a minute
OUTAGE_SECONDS = float(os.environ.get("OPSDK_TEST_OUTAGE_SECONDS", "7"))
DELAYS = RetryDelays(failure=timedelta(seconds=2), conflict=timedelta(seconds=1), conflict_failure=timedelta(seconds=2))


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[Database]:
    database = Database(postgres.url(driver="psycopg", database=postgres.new_database()))
    database.create_tables()
    yield database
    database.close()


def connect(cluster: RealCluster) -> ApiClient:
    return ApiClient.from_config(ClientConfig.from_files([cluster.kubeconfig]))


@asynccontextmanager
async def a_namespace(cluster: RealCluster) -> AsyncGenerator[tuple[ApiClient, str]]:
    namespace = f"roles-{uuid.uuid4().hex[:8]}"
    async with connect(cluster) as client:
        await client.create(Namespace(metadata=ObjectMeta(name=namespace)))
        yield client, namespace
        await client.delete(Namespace, namespace)


@asynccontextmanager
async def operator(
    cluster: RealCluster, client: ApiClient, namespace: str, database: Database
) -> AsyncGenerator[World]:
    options = ManagerOptions(leader_election=False, serve_metrics=False, serve_probes=False, namespaces=(namespace,))
    async with connect(cluster) as its_client:
        manager = Manager(options, client=its_client)
        register(manager, database, retries=DELAYS)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.start)
            yield World(client, manager, namespace)
            manager.stop()


async def reasons(world: World, name: str) -> list[str]:
    """Reasons of the events about a role, one for each event object."""
    events = await world.client.list(Event, namespace=world.namespace)
    return [event.reason or "" for event in events if event.involvedObject.name == name]


async def tells(world: World, name: str, *wanted: str) -> None:
    """Wait until the events about a role are these: each is told after what it tells of can be seen."""

    async def told() -> bool:
        return sorted(await reasons(world, name)) == sorted(wanted)

    await eventually(told)


async def patches_at_rest(world: World) -> float:
    """When none is on its way any more: they are counted after what they did can be seen."""
    before = -1.0
    while before != (count := patches(world)):
        before = count
        await anyio.sleep(0.5)
    return count


def patches(world: World) -> float:
    return sum(
        sample.value
        for family in world.manager.metrics.registry.collect()
        for sample in family.samples
        if sample.name == "rest_client_requests_total" and sample.labels["method"] == "PATCH"
    )


async def test_a_role_is_stored_waits_for_its_scope_and_goes_with_its_row(
    cluster: RealCluster, database: Database
) -> None:
    async with (
        a_namespace(cluster) as (client, namespace),
        operator(cluster, client, namespace, database) as world,
    ):
        await world.create_role("ops")
        assert await world.reach("ops", "ScopeNotFound") == f"Scope {namespace}/web does not exist"
        assert list(database.roles()) == ["ops"]
        await world.create_scope("web")
        await world.reach("ops", "Synced")
        assert database.active_roles() == {"ops": "web"}
        role = await client.get(Role, "ops", namespace=namespace)
        assert role.status.observed_generation == role.metadata.generation
        await world.delete("ops")
        await world.gone("ops")
        assert database.roles() == {}
        await tells(world, "ops", "Created", "Deleted", "ScopeNotFound")


async def test_conflicts_of_stale_rows_and_of_names_are_resolved(cluster: RealCluster, database: Database) -> None:
    async with a_namespace(cluster) as (client, namespace):
        async with operator(cluster, client, namespace, database) as world:
            await world.create_scope("web")
            first = await world.create_role("first", called="ops")
            await world.reach("first", "Synced")
            second = await world.create_role("second", called="ops")
            assert await world.reach("second", "PersistFailed") == f"on_conflict: ops is the name of {namespace}/first"
            await world.call("first", "admins")
            await world.reach("second", "Synced")
            await eventually(lambda: database.roles() == {"admins": key_of(first), "ops": key_of(second)})

        # while no operator runs, somebody takes the object away by force: its row stays
        await client.patch(Role, "first", MergePatch({"metadata": {"finalizers": None}}), namespace=namespace)
        await world.delete("first")
        await world.gone("first")
        async with operator(cluster, client, namespace, database) as world:
            assert "admins" in database.roles()
            third = await world.create_role("third", called="admins")
            await world.reach("third", "Synced")
            assert database.roles() == {"admins": key_of(third), "ops": key_of(second)}
            assert world.count("conflicts_total", result="resolved") == 1


async def test_nothing_is_lost_while_the_database_is_away_and_no_loop_is_hot(
    cluster: RealCluster, postgres: PostgresServer, database: Database
) -> None:
    async with (
        a_namespace(cluster) as (client, namespace),
        operator(cluster, client, namespace, database) as world,
    ):
        await world.create_scope("web", "read")
        for name in ("changed", "deleted", "untouched"):
            await world.create_role(name)
            await world.reach(name, "Synced")
        written = await patches_at_rest(world)

        await anyio.to_thread.run_sync(postgres.crash)
        began = anyio.current_time()
        await client.patch(Role, "changed", MergePatch({"spec": {"permissions": ["read"]}}), namespace=namespace)
        await world.delete("deleted")
        await world.create_role("new")
        await world.reach("changed", "PersistFailed")
        await world.reach("deleted", "DeleteFailed")
        await world.reach("new", "PersistFailed")
        await anyio.sleep(OUTAGE_SECONDS - (anyio.current_time() - began))
        away = anyio.current_time() - began
        upserts, deletes = world.count("upserts_total", result="failed"), world.count("deletes_total", result="failed")
        allowed = 1 + floor(away / DELAYS.failure.total_seconds())
        assert 4 <= upserts <= 2 * allowed  # two objects, tried at once and after each delay
        assert 2 <= deletes <= allowed
        assert patches(world) - written <= 4  # the status of three, and a finalizer: their texts do not change
        assert len(await client.list(Role, namespace=namespace)) == 4  # nothing goes without its row

        await anyio.to_thread.run_sync(postgres.start)
        await world.reach("changed", "Synced")
        await world.reach("new", "Synced")
        await world.gone("deleted")
        assert set(database.active_roles()) == {"changed", "new", "untouched"}
        await tells(world, "untouched", "Created")
        await tells(world, "new", "Created", "PersistFailed")


@asynccontextmanager
async def hanging_operator(cluster: RealCluster, database: Database, namespace: str) -> AsyncGenerator[Process]:
    """The operator in a process of its own, killed at the end as `kill -9` does."""
    url = database.engine.url.render_as_string(hide_password=False)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, str(HANGING), str(cluster.kubeconfig), url, namespace]
    async with await anyio.open_process(command, env=environment, stderr=None) as process:
        yield process
        process.kill()


async def said(process: Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.receive()).decode().strip()


async def test_an_operator_that_is_killed_between_database_and_status_is_made_good_by_the_next_one(
    cluster: RealCluster, database: Database
) -> None:
    async with a_namespace(cluster) as (client, namespace):
        world = World(client, Manager(ManagerOptions(leader_election=False), client=client), namespace)
        await world.create_role("ops")
        with anyio.fail_after(120):
            async with hanging_operator(cluster, database, namespace) as process:
                assert await said(process) == "stored"
        assert list(database.roles()) == ["ops"]
        assert await world.ready("ops") == ("", "", "")

        async with operator(cluster, client, namespace, database) as world:
            await world.create_scope("web")
            await world.reach("ops", "Synced")
            assert database.active_roles() == {"ops": "web"}
        assert (await reasons(world, "ops")).count("Created") == 1

        await world.delete("ops")
        with anyio.fail_after(120):
            async with hanging_operator(cluster, database, namespace) as process:
                assert await said(process) == "deleted"
        assert database.roles() == {}
        assert await client.find(Role, "ops", namespace=namespace) is not None

        async with operator(cluster, client, namespace, database) as world:
            await world.gone("ops")
        assert (await reasons(world, "ops")).count("Deleted") == 1
