"""The examples follow whatever their users ask for."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import strategies as st
from lightkube.models.meta_v1 import ObjectMeta

import webapp
from opsdk import Manager, ManagerOptions
from opsdk.client import ApiClient
from opsdk.testing.apiserver.actors import DeploymentActor
from opsdk.testing.campaigns import campaign
from opsdk.types import Json
from roles import Role, Scope, ScopeSpec, register
from roles_database import Base, Database

OPTIONS = ManagerOptions(leader_election=False, serve_metrics=False, serve_probes=False)


def test_webapps_end_as_their_last_spec_says() -> None:
    def operator(client: ApiClient) -> Manager:
        manager = Manager(OPTIONS, client=client)
        webapp.register(manager)
        return manager

    report = campaign(
        operator,
        webapp.WebApp,
        cluster=lambda client: DeploymentActor(client, failing_images=["1", "a"]).run(),
        settle=webapp.ROLLOUT_TIMEOUT + timedelta(minutes=2),
    )
    assert report.changes > 15
    assert report.invalid > 5


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database.in_file(tmp_path / "roles.db")
    yield made
    made.close()


async def make_scope(client: ApiClient) -> None:
    metadata = ObjectMeta(name="web", namespace="default")
    await client.create(Scope(metadata=metadata, spec=ScopeSpec(permissions=["read"])))


class Rows:
    """What the operator of roles keeps outside of the cluster."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def reset(self) -> None:
        Base.metadata.drop_all(self._database.engine)
        self._database.create_tables()

    async def state(self) -> Json:
        active, rows = self._database.active_roles(), self._database.roles()
        return {name: {"object": key.name, "active in": active.get(name)} for name, key in rows.items()}


def test_roles_and_their_rows_end_as_the_last_spec_says(database: Database) -> None:
    def operator(client: ApiClient) -> Manager:
        manager = Manager(OPTIONS, client=client)
        register(manager, database)
        return manager

    report = campaign(
        operator,
        Role,
        install=[Scope],
        prepare=make_scope,
        outside=Rows(database),
        fields={
            "scope": st.sampled_from(["web", "missing"]),
            "permissions": st.lists(st.sampled_from(["read", "write"]), unique=True),
        },
        settle=timedelta(minutes=5),
        examples=12,
    )
    assert report.changes > 8
