"""The operator on the in-memory API server, with SQLite and with a PostgreSQL server of our own; in real time."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from lightkube.resources.core_v1 import Event

from opsdk import Manager, ManagerOptions
from opsdk.models import crd_yaml
from opsdk.persistence import RetryDelays
from opsdk.testing import ApiServer
from opsdk.types import MergePatch
from postgres_server import PostgresServer, postgres_server
from roles import GROUP, Recovery, Role, Scope, key_of, register
from roles_database import Database, ObjectKey
from roles_world import World, eventually

pytestmark = pytest.mark.anyio

MANIFESTS = Path(__file__).parent / "manifests"
QUICK = RetryDelays(
    failure=timedelta(seconds=1), conflict=timedelta(seconds=0.2), conflict_failure=timedelta(seconds=0.5)
)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        database = Database.in_file(tmp_path / "roles.db")
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        database = Database(server.url(driver="psycopg", database=server.new_database()))
    database.create_tables()
    yield database
    database.close()


@asynccontextmanager
async def world(database: Database, *, retries: RetryDelays = QUICK, recovery: bool = False) -> AsyncGenerator[World]:
    async with ApiServer() as server:
        await server.install(Role, Scope)
        options = ManagerOptions(leader_election=False, serve_metrics=False, serve_probes=False)
        manager = Manager(options, client=server.client())
        operator = register(manager, database, retries=retries)
        if recovery:
            manager.add(Recovery(database, operator, timedelta(seconds=0.2)))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.start)
            yield World(server.client(), manager, "default")
            manager.stop()


async def test_a_role_takes_effect_when_its_scope_exists_and_only_as_long(database: Database) -> None:
    async with world(database) as cluster:
        await cluster.create_role("ops")
        assert await cluster.reach("ops", "ScopeNotFound") == "Scope default/web does not exist"
        assert "ops" in database.roles()  # stored all the same
        assert database.active_roles() == {}

        await cluster.create_scope("web")
        await cluster.reach("ops", "Synced")
        assert database.active_roles() == {"ops": "web"}

        await cluster.client.delete(Scope, "web", namespace="default")
        await cluster.reach("ops", "ScopeNotFound")
        assert database.active_roles() == {}

        await cluster.client.delete(Role, "ops", namespace="default")
        await eventually(lambda: database.roles() == {})
        await cluster.gone("ops")
        reasons = {event.reason for event in await cluster.client.list(Event, namespace="default")}
        assert {"Created", "ScopeNotFound", "Deleted"} <= reasons


async def test_a_role_takes_effect_when_its_scope_grants_what_it_asks_for(database: Database) -> None:
    async with world(database) as cluster:
        await cluster.create_scope("web", "read")
        await cluster.create_role("ops", "read", "write")
        assert await cluster.reach("ops", "NotGranted") == "Scope web does not grant write"
        patch = MergePatch({"spec": {"permissions": ["read", "write"]}})
        await cluster.client.patch(Scope, "web", patch, namespace="default")
        await cluster.reach("ops", "Synced")


async def test_a_row_that_was_left_behind_makes_way(database: Database) -> None:
    database.store_role(ObjectKey(namespace="default", name="ops", uid="before"), "ops", "web", [])
    async with world(database) as cluster:
        await cluster.create_scope("web")
        role = await cluster.create_role("ops")
        await cluster.reach("ops", "Synced")
        assert database.roles() == {"ops": key_of(role)}
        assert cluster.count("conflicts_total", result="resolved") == 1


async def test_a_scope_that_was_left_behind_makes_way(database: Database) -> None:
    database.store_scope("before", "default", "web", ["everything"])
    async with world(database) as cluster:
        await cluster.create_scope("web")
        await cluster.create_role("ops", "everything")
        await eventually(lambda: database.delete_scope("before") == [])
        await cluster.reach("ops", "NotGranted")


async def test_a_name_that_another_role_wants_is_not_taken_from_it(database: Database) -> None:
    async with world(database) as cluster:
        await cluster.create_scope("web")
        first = await cluster.create_role("first", called="ops")
        await cluster.reach("first", "Synced")
        second = await cluster.create_role("second", called="ops")
        assert await cluster.reach("second", "PersistFailed") == "on_conflict: ops is the name of default/first"
        assert database.roles() == {"ops": key_of(first)}

        await cluster.call("first", "admins")
        await cluster.reach("second", "Synced")
        assert database.roles() == {"admins": key_of(first), "ops": key_of(second)}


async def test_two_roles_change_names(database: Database) -> None:
    async with world(database) as cluster:
        await cluster.create_scope("web")
        one, two = await cluster.create_role("one", called="red"), await cluster.create_role("two", called="blue")
        await cluster.reach("one", "Synced")
        await cluster.reach("two", "Synced")
        await cluster.call("one", "blue")
        await cluster.call("two", "red")
        await eventually(lambda: database.roles() == {"blue": key_of(one), "red": key_of(two)})
        await cluster.reach("one", "Synced")
        await cluster.reach("two", "Synced")


@asynccontextmanager
async def postgres_away(postgres: PostgresServer) -> AsyncGenerator[None]:
    await anyio.to_thread.run_sync(postgres.crash)
    try:
        yield
    finally:
        await anyio.to_thread.run_sync(postgres.start)


async def test_when_the_database_is_back_everything_is_stored_without_waiting_for_retries(
    postgres: PostgresServer,
) -> None:
    with contextlib.closing(Database(postgres.url(driver="psycopg", database=postgres.new_database()))) as database:
        database.create_tables()
        async with world(database, retries=RetryDelays(), recovery=True) as cluster:
            await cluster.create_scope("web")
            async with postgres_away(postgres):
                for number in range(5):
                    await cluster.create_role(f"role-{number}")
                for number in range(5):
                    message = await cluster.reach(f"role-{number}", "PersistFailed")
                    assert "\n" not in message
                await anyio.sleep(1)
                assert cluster.count("upserts_total", result="failed") == 5  # no hot loop
            for number in range(5):
                await cluster.reach(f"role-{number}", "Synced")
            assert len(database.active_roles()) == 5


def test_the_manifest_is_what_the_models_say() -> None:
    assert (MANIFESTS / "crd.yaml").read_text(encoding="utf-8") == crd_yaml(Role, Scope)


def test_the_finalizers_are_in_the_manifests_group() -> None:
    assert GROUP in (MANIFESTS / "rbac.yaml").read_text(encoding="utf-8")
