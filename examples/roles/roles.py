"""An operator that keeps roles in a database.

A `Role` refers to a `Scope`. Both are rows in the database; a role takes effect there only when its scope exists and
grants what it asks for, and what is missing is told in its status. A role's name is unique in the whole database.

    DATABASE_URL=postgresql+psycopg://user@host/db python examples/roles/roles.py    # default: sqlite:///roles.db
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

import anyio
import anyio.to_thread
from lightkube.models.meta_v1 import Condition
from pydantic import Field
from sqlalchemy.exc import SQLAlchemyError

from opsdk import (
    CustomResource,
    Manager,
    Model,
    NotReadyError,
    default_manager_options,
    setup_reconciler,
)
from opsdk.models import Conditions, PrintColumn
from opsdk.persistence import PersistenceReconciler, RetryDelays
from roles_database import DEFAULT_URL, Database, ObjectKey

GROUP: Final = "access.example.com"
HOOK_TIMEOUT: Final = timedelta(seconds=30)
PING_INTERVAL: Final = timedelta(seconds=5)
COLUMNS: Final = [
    PrintColumn(name="Ready", json_path='.status.conditions[?(@.type=="Ready")].status'),
    PrintColumn(name="Reason", json_path='.status.conditions[?(@.type=="Ready")].reason'),
    PrintColumn(name="Age", json_path=".metadata.creationTimestamp", type="date"),
]

logger = logging.getLogger(__name__)


# ---- the resources -------------------------------------------------------------------------------------------------


class PersistedStatus(Model):
    """What the operator has to say; the same for both kinds."""

    conditions: Conditions = Field(default=[])
    observed_generation: int = 0


class ScopeSpec(Model):
    """What roles may be granted here."""

    permissions: list[str] = Field(default=[])


class Scope(CustomResource[ScopeSpec, PersistedStatus], group=GROUP, version="v1", print_columns=COLUMNS):
    def get_status_conditions(self) -> list[Condition]:
        return self.status.conditions

    def set_observed_generation(self, generation: int) -> None:
        self.status.observed_generation = generation

    def get_observed_generation(self) -> int:
        return self.status.observed_generation


class RoleSpec(Model):
    """Who may do what."""

    scope: str = Field(min_length=1, description="The name of a Scope in the same namespace.")
    name: str = Field(default="", max_length=63, description="The role's name in the database; default: the object's.")
    permissions: list[str] = Field(default=[])


class Role(CustomResource[RoleSpec, PersistedStatus], group=GROUP, version="v1", print_columns=COLUMNS):
    def get_status_conditions(self) -> list[Condition]:
        return self.status.conditions

    def set_observed_generation(self, generation: int) -> None:
        self.status.observed_generation = generation

    def get_observed_generation(self) -> int:
        return self.status.observed_generation


def key_of(obj: Role | Scope) -> ObjectKey:
    metadata = obj.metadata
    return ObjectKey(namespace=metadata.namespace or "", name=metadata.name or "", uid=metadata.uid or "")


def name_of(role: Role) -> str:
    return role.spec.name or role.metadata.name or ""


class NameTakenError(Exception):
    """Another role has the name, and still wants it."""


# ---- the hooks -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """What was set up: for whoever has to enqueue or resync."""

    roles: PersistenceReconciler[Role]
    scopes: PersistenceReconciler[Scope]


def register(manager: Manager, database: Database, *, retries: RetryDelays | None = None) -> Operator:
    """Everything that a manager needs to know about roles and scopes."""

    # Plain functions: they run in worker threads, and a stopping manager waits for them.

    def store_role(role: Role) -> None:
        key = key_of(role)
        missing = database.store_role(key, name_of(role), role.spec.scope, role.spec.permissions)
        if missing != []:
            # Once more, now that others can see the row: a scope that is stored at the same time either is seen here,
            # or sees the row and enqueues the role.
            missing = database.activate_role(key.uid)
        if missing is None:
            raise NotReadyError("ScopeNotFound", f"Scope {key.namespace}/{role.spec.scope} does not exist")
        if missing:
            raise NotReadyError("NotGranted", f"Scope {role.spec.scope} does not grant {', '.join(missing)}")

    async def make_way_for_role(role: Role) -> None:
        """Remove the row that holds the name, unless its object is still there and wants it."""
        holder = await anyio.to_thread.run_sync(
            lambda: database.holder_of(name_of(role), other_than=role.metadata.uid or "")
        )
        if holder is None:
            return  # gone by now
        # from the server, not from the cache: a rename may have happened a moment ago
        other = await manager.api_client.find(Role, holder.name, namespace=holder.namespace)
        if other is not None and other.metadata.uid == holder.uid:
            if other.metadata.deletionTimestamp is not None:
                return  # its row goes with it
            if name_of(other) == name_of(role):
                raise NameTakenError(f"{name_of(role)} is the name of {holder.namespace}/{holder.name}")
        await anyio.to_thread.run_sync(database.delete_stale_role, holder.uid, name_of(role))

    def store_scope(scope: Scope) -> None:
        key = key_of(scope)
        for role in database.store_scope(key.uid, key.namespace, key.name, scope.spec.permissions):
            roles.enqueue(role.namespace, role.name)  # from any thread

    def delete_scope(uid: str) -> None:
        for role in database.delete_scope(uid):
            roles.enqueue(role.namespace, role.name)

    def make_way_for_scope(scope: Scope) -> None:
        """Kubernetes has one Scope of a name, so another row of that name is a stale one."""
        key = key_of(scope)
        database.delete_other_scopes(key.uid, key.namespace, key.name)

    roles = setup_reconciler(
        manager,
        Role,
        on_upsert=store_role,
        on_delete=database.delete_role,
        on_conflict=make_way_for_role,
        finalizer=f"roles.{GROUP}/row",
        retries=retries,
        timeout=HOOK_TIMEOUT,
        redact=first_line,
    )
    scopes = setup_reconciler(
        manager,
        Scope,
        on_upsert=store_scope,
        on_delete=delete_scope,
        on_conflict=make_way_for_scope,
        finalizer=f"scopes.{GROUP}/row",
        retries=retries,
        timeout=HOOK_TIMEOUT,
        redact=first_line,
    )
    return Operator(roles=roles, scopes=scopes)


def first_line(text: str) -> str:
    """What SQLAlchemy and drivers add below is for developers, not for a status."""
    return text.split("\n", 1)[0]


class Recovery:
    """When the database is back, everything is looked at at once, not only when its retry is due."""

    def __init__(self, database: Database, operator: Operator, interval: timedelta = PING_INTERVAL) -> None:
        self._database = database
        self._operator = operator
        self._interval = interval

    async def run(self) -> None:
        away = False
        while True:
            try:
                await anyio.to_thread.run_sync(self._database.ping)
            except SQLAlchemyError as error:
                if not away:
                    logger.warning("the database is away: %s", first_line(str(error)))
                away = True
            else:
                if away:
                    logger.warning("the database is back")
                    await self._operator.scopes.resync()
                    await self._operator.roles.resync()
                away = False
            await anyio.sleep(self._interval.total_seconds())


async def main() -> None:
    database = Database(os.environ.get("DATABASE_URL", DEFAULT_URL))
    await anyio.to_thread.run_sync(database.create_tables)
    options = replace(default_manager_options(f"roles.{GROUP}"), metrics_bind_address=":9090")
    manager = Manager(options)
    operator = register(manager, database)
    manager.add(Recovery(database, operator))
    try:
        await manager.run()  # until SIGTERM or SIGINT
    finally:
        database.close()


if __name__ == "__main__":
    anyio.run(main)
