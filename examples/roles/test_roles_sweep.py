"""The roles operator with something going wrong at each of its calls; its database is the world outside."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import final

import pytest
from lightkube.models.meta_v1 import ObjectMeta
from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from opsdk import Manager, ManagerOptions
from opsdk.client import ApiClient
from opsdk.models import find_condition
from opsdk.testing.sweeps import World, sweep
from opsdk.testing.virtual_time import BackendOptions, virtual_asyncio_options, virtual_trio_options
from opsdk.types import Json
from roles import Role, RoleSpec, Scope, ScopeSpec, register
from roles_database import Database, RoleRow, ScopeRow

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> BackendOptions:
    return virtual_asyncio_options() if request.param == "asyncio" else virtual_trio_options()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with contextlib.closing(Database.in_file(tmp_path / "roles.db")) as database:
        database.create_tables()
        yield database


@final
class Rows:
    """What is in the database at the end of a run has to be the same, whatever went wrong."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def reset(self) -> None:
        with Session(self.database.engine) as session, session.begin():
            session.execute(delete(RoleRow))
            session.execute(delete(ScopeRow))

    async def state(self) -> Json:
        with Session(self.database.engine) as session:
            return {
                "roles": {row.name: [row.uid, row.scope, row.active] for row in session.scalars(select(RoleRow))},
                "scopes": {row.name: [row.uid, *row.permissions] for row in session.scalars(select(ScopeRow))},
            }


async def until_ready_says(world: World, name: str, reason: str) -> None:
    def says(role: Role) -> bool:
        condition = find_condition(role.status.conditions, "Ready")
        return (
            condition is not None
            and condition.reason == reason
            and role.status.observed_generation == role.metadata.generation
        )

    await world.until(Role, name, says, what=f"is {reason}")


async def roles_come_and_go(world: World) -> None:
    await world.create(Role(metadata=ObjectMeta(name="ops"), spec=RoleSpec(scope="web", permissions=["read"])))
    await until_ready_says(world, "ops", "ScopeNotFound")
    await world.create(Scope(metadata=ObjectMeta(name="web"), spec=ScopeSpec(permissions=["read"])))
    await until_ready_says(world, "ops", "Synced")

    def ask_for_more(role: Role) -> None:
        role.spec.permissions = ["read", "write"]

    def grant_more(scope: Scope) -> None:
        scope.spec.permissions = ["read", "write"]

    await world.edit(Role, "ops", ask_for_more)
    await until_ready_says(world, "ops", "NotGranted")
    await world.edit(Scope, "web", grant_more)
    await until_ready_says(world, "ops", "Synced")
    await world.create(Role(metadata=ObjectMeta(name="dev"), spec=RoleSpec(scope="web", permissions=["read"])))
    await until_ready_says(world, "dev", "Synced")
    await world.delete(Role, "ops")
    await world.gone(Role, "ops")


async def test_rows_are_what_the_cluster_says_whatever_goes_wrong(
    anyio_backend: BackendOptions, database: Database
) -> None:
    def operator(client: ApiClient) -> Manager:
        options = ManagerOptions(leader_election=False, serve_metrics=False, serve_probes=False)
        manager = Manager(options, client=client)
        register(manager, database)
        return manager

    rows, seed = Rows(database), len(anyio_backend[0])
    result = await sweep(operator, roles_come_and_go, install=[Role, Scope], outside=rows, sample=24, seed=seed)
    assert len(result.runs) == 24  # hooks run in threads, so that a fault may hit another call than was planned
