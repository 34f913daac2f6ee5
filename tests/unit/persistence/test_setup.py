"""Under a manager: what causes a pass, and what does not."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from lightkube.models.meta_v1 import Condition, ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Event
from pydantic import Field

from opsdk.errors import NotReadyError
from opsdk.manager import Manager, ManagerOptions
from opsdk.models import Conditions, CustomResource, Model, codec_of, find_condition
from opsdk.persistence import Hook, PersistenceReconciler, RetryDelays, setup_reconciler
from opsdk.protocols import Client
from opsdk.testing import ApiServer
from opsdk.types import MergePatch

pytestmark = pytest.mark.anyio

FINALIZER = "roles.demo.example.com/finalizer"


class RoleSpec(Model):
    scope: str = "s"


class RoleStatus(Model):
    conditions: Conditions = Field(default_factory=list[Condition])
    observed_generation: int = 0


class Role(CustomResource[RoleSpec, RoleStatus], group="demo.example.com", version="v1"):
    def get_status_conditions(self) -> list[Condition]:
        return self.status.conditions

    def set_observed_generation(self, generation: int) -> None:
        self.status.observed_generation = generation

    def get_observed_generation(self) -> int:
        return self.status.observed_generation


class Rows:
    """Notes when it was called, and raises what the test says."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.names: list[str] = []
        self.deleted: list[str] = []
        self.error: Callable[[Role], Exception | None] = lambda _: None

    async def persist(self, role: Role) -> None:
        self.times.append(anyio.current_time())
        self.names.append(role.metadata.name or "")
        error = self.error(role)
        if error is not None:
            raise error

    async def delete(self, uid: str) -> None:
        self.deleted.append(uid)

    async def make_way(self, role: Role) -> None: ...

    @property
    def delays(self) -> list[int]:
        """Whole seconds from call to call."""
        return [round(later - earlier) for earlier, later in zip(self.times, self.times[1:], strict=False)]


def role(name: str = "ops", **labels: str) -> Role:
    return Role(metadata=ObjectMeta(name=name, namespace="default", labels=dict(labels)), spec=RoleSpec())


def manager_on(server: ApiServer) -> Manager:
    options = ManagerOptions(leader_election=False, serve_metrics=False, serve_probes=False)
    return Manager(options, client=server.client())


def duplicate() -> sqlite3.IntegrityError:
    error = sqlite3.IntegrityError("UNIQUE constraint failed: roles.name")
    error.sqlite_errorcode = sqlite3.SQLITE_CONSTRAINT_UNIQUE
    return error


def set_up(
    manager: Manager, rows: Rows, on_conflict: Hook[Role] | None = None, retries: RetryDelays | None = None
) -> PersistenceReconciler[Role]:
    return setup_reconciler(
        manager,
        Role,
        on_upsert=rows.persist,
        on_delete=rows.delete,
        on_conflict=on_conflict,
        finalizer=FINALIZER,
        retries=retries,
    )


@asynccontextmanager
async def running(
    rows: Rows, on_conflict: Hook[Role] | None = None, retries: RetryDelays | None = None
) -> AsyncGenerator[tuple[Client, PersistenceReconciler[Role]]]:
    async with ApiServer() as server:
        await server.install(Role)
        manager = manager_on(server)
        roles = set_up(manager, rows, on_conflict, retries)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.start)
            await anyio.sleep(1)
            yield server.client(), roles
            manager.stop()


def patches(manager: Manager) -> float:
    """How many patches the manager has sent."""
    return sum(
        sample.value
        for family in manager.metrics.registry.collect()
        for sample in family.samples
        if sample.name == "rest_client_requests_total" and sample.labels["method"] == "PATCH"
    )


async def ready(client: Client, name: str = "ops") -> tuple[str, str]:
    found = await client.get(Role, name, namespace="default")
    condition = find_condition(found.status.conditions, "Ready")
    return ("", "") if condition is None else (condition.status, condition.reason)


async def test_a_stored_object_is_asked_about_once_although_its_status_was_written() -> None:
    rows = Rows()
    async with running(rows) as (client, _):
        await client.create(role())
        await anyio.sleep(60)
        assert await ready(client) == ("True", "Synced")
        assert len(rows.times) == 1


async def test_a_failure_is_really_retried_after_two_minutes() -> None:
    rows = Rows()
    rows.error = lambda _: ValueError(f"attempt {len(rows.times)}")
    async with running(rows) as (client, _):
        await client.create(role())
        await anyio.sleep(500)
        assert await ready(client) == ("False", "PersistFailed")
        assert rows.delays == [120, 120, 120, 120]


async def test_a_violated_constraint_is_really_retried_after_fifteen_seconds() -> None:
    rows = Rows()
    rows.error = lambda _: duplicate() if len(rows.times) < 3 else None
    async with running(rows, rows.make_way) as (client, _):
        await client.create(role())
        await anyio.sleep(100)
        assert await ready(client) == ("True", "Synced")
        assert rows.delays == [15, 15]


async def test_not_ready_waits_for_a_change_or_for_the_time_it_named() -> None:
    rows = Rows()
    rows.error = lambda _: NotReadyError("ScopeNotFound", f"attempt {len(rows.times)}")
    async with running(rows) as (client, roles):
        await client.create(role())
        await anyio.sleep(1000)
        assert len(rows.times) == 1
        roles.enqueue("default", "ops")
        await anyio.sleep(10)
        assert len(rows.times) == 2
        rows.error = lambda _: NotReadyError("Waiting", requeue_after=timedelta(seconds=30))
        roles.enqueue("default", "ops")
        await anyio.sleep(100)
        assert rows.delays[2:] == [30, 30, 30]


async def test_spec_labels_and_annotations_cause_a_pass() -> None:
    rows = Rows()
    async with running(rows) as (client, _):
        await client.create(role())
        await anyio.sleep(10)
        patches: list[MergePatch] = [
            MergePatch({"spec": {"scope": "t"}}),
            MergePatch({"metadata": {"labels": {"a": "b"}}}),
            MergePatch({"metadata": {"annotations": {"a": "b"}}}),
        ]
        for count, patch in enumerate(patches, start=2):
            await client.patch(Role, "ops", patch, namespace="default")
            await anyio.sleep(10)
            assert len(rows.times) == count


async def test_a_finalizer_that_somebody_took_is_put_back() -> None:
    rows = Rows()
    async with running(rows) as (client, _):
        await client.create(role())
        await anyio.sleep(10)
        await client.patch(Role, "ops", MergePatch({"metadata": {"finalizers": None}}), namespace="default")
        await anyio.sleep(10)
        found = await client.get(Role, "ops", namespace="default")
        assert found.metadata.finalizers == [FINALIZER]


async def test_enqueue_works_from_any_thread_and_ignores_what_is_not_there() -> None:
    rows = Rows()
    async with running(rows) as (client, roles):
        await client.create(role())
        await anyio.sleep(10)
        threads = [threading.Thread(target=roles.enqueue, args=("default", name)) for name in ("ops", "nobody")]
        for thread in threads:
            thread.start()
        for thread in threads:
            await anyio.to_thread.run_sync(thread.join)
        await anyio.sleep(10)
        assert rows.names == ["ops", "ops"]


async def test_what_was_enqueued_before_the_start_is_kept_and_after_the_stop_forgotten() -> None:
    rows = Rows()
    async with ApiServer() as server:
        await server.install(Role)
        await server.client().create(role())
        manager = manager_on(server)
        roles = set_up(manager, rows)
        roles.enqueue("default", "ops")
        await roles.resync()  # the cache is not there yet: from the server
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.start)
            await anyio.sleep(10)
            manager.stop()
        assert rows.names == ["ops"]
        roles.enqueue("default", "ops")
        assert rows.names == ["ops"]


async def test_a_stopping_manager_waits_for_a_hook_in_a_thread() -> None:
    entered, release = threading.Event(), threading.Event()
    done: list[str] = []

    def persist(role: Role) -> None:
        entered.set()
        assert release.wait(10)
        done.append(role.metadata.name or "")

    async with ApiServer() as server:
        await server.install(Role)
        await server.client().create(role())
        manager = manager_on(server)
        setup_reconciler(manager, Role, on_upsert=persist, on_delete=Rows().delete, finalizer=FINALIZER)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.start)
            await anyio.to_thread.run_sync(entered.wait, 10)
            manager.stop()
            await anyio.lowlevel.checkpoint()
            assert not done
            release.set()
        assert done == ["ops"]
        stored = await server.client().get(Role, "ops", namespace="default")
        assert stored.status.observed_generation == 1


async def test_a_hook_beyond_its_timeout_has_failed_like_any_other() -> None:
    calls: list[float] = []

    async def persist(role: Role) -> None:
        calls.append(anyio.current_time())
        if len(calls) == 1:
            await anyio.sleep(1000)

    async with ApiServer() as server:
        await server.install(Role)
        await server.client().create(role())
        manager = manager_on(server)
        timeout = timedelta(seconds=5)
        setup_reconciler(
            manager, Role, on_upsert=persist, on_delete=Rows().delete, finalizer=FINALIZER, timeout=timeout
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.start)
            await anyio.sleep(100)
            assert len(calls) == 1
            assert await ready(server.client()) == ("False", "PersistFailed")
            await anyio.sleep(100)
            assert round(calls[1] - calls[0]) == 125
            assert await ready(server.client()) == ("True", "Synced")
            manager.stop()


async def test_a_slow_hook_does_not_keep_other_objects_waiting() -> None:
    stored: list[str] = []

    async def persist(role: Role) -> None:
        if role.metadata.name == "slow":
            await anyio.sleep(1000)
        stored.append(role.metadata.name or "")

    async with ApiServer() as server:
        await server.install(Role)
        await server.client().create(role("slow"))
        manager = manager_on(server)
        setup_reconciler(manager, Role, on_upsert=persist, on_delete=Rows().delete, finalizer=FINALIZER)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.start)
            await anyio.sleep(10)
            await server.client().create(role("quick"))
            await anyio.sleep(10)
            assert stored == ["quick"]
            await anyio.sleep(1000)
            assert stored == ["quick", "slow"]
            manager.stop()


async def test_the_delays_can_be_others() -> None:
    rows = Rows()
    rows.error = lambda _: ValueError("away")
    retries = RetryDelays(failure=timedelta(seconds=7))
    async with running(rows, retries=retries) as (client, _):
        await client.create(role())
        await anyio.sleep(30)
        assert rows.delays == [7, 7, 7, 7]


@pytest.mark.parametrize("name", ["failure", "conflict", "conflict_failure"])
def test_a_delay_that_would_be_a_hot_loop_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is"):
        RetryDelays(**{name: timedelta(0)})


async def test_a_thousand_failing_objects_write_status_no_more_often_than_they_are_retried() -> None:
    rows = Rows()
    rows.error = lambda _: ValueError(f"failure number {len(rows.times)}")
    async with ApiServer() as server:
        await server.install(Role)
        manager = manager_on(server)
        set_up(manager, rows)
        for number in range(1000):
            await server.client().create(role(f"role-{number}"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.start)
            await anyio.sleep(245)
            manager.stop()
    assert len(rows.times) == 3000  # at once, and after each two minutes
    assert patches(manager) == 1000 + 3000  # the finalizers, and what each retry had to say


async def test_a_thousand_objects_whose_text_changes_on_every_pass_write_once() -> None:
    rows = Rows()
    rows.error = lambda _: NotReadyError("ScopeNotFound", f"attempt {len(rows.times)}")
    async with running(rows) as (client, roles):
        for number in range(1000):
            await client.create(role(f"role-{number}"))
        await anyio.sleep(30)
        assert len(rows.times) == 1000
        listed = await client.list(Role, namespace="default")
        before = {found.metadata.name: found.metadata.resourceVersion for found in listed}
        await roles.resync()
        await anyio.sleep(10)
        assert len(rows.times) == 2000
        listed = await client.list(Role, namespace="default")
        assert {found.metadata.name: found.metadata.resourceVersion for found in listed} == before


async def test_metrics_tell_what_the_database_was_asked() -> None:
    rows = Rows()
    async with ApiServer() as server:
        await server.install(Role)
        client = server.client()
        manager = manager_on(server)
        roles = set_up(manager, rows, rows.make_way)

        def count(name: str, **labels: str) -> float | None:
            return manager.metrics.registry.get_sample_value(f"opsdk_persistence_{name}", {"kind": "Role", **labels})

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.start)
            await anyio.sleep(1)
            await client.create(role())
            await anyio.sleep(1)
            assert count("upserts_total", result="stored") == 1
            rows.error = lambda _: NotReadyError("ScopeNotFound")
            roles.enqueue("default", "ops")
            await anyio.sleep(1)
            assert count("upserts_total", result="not_ready") == 1
            assert count("not_ready_total", reason="ScopeNotFound") == 1
            rows.error = lambda _: duplicate()
            roles.enqueue("default", "ops")
            await anyio.sleep(1)
            assert count("upserts_total", result="conflict") == 1
            assert count("conflicts_total", result="resolved") == 1
            rows.error = lambda _: ValueError("away")
            roles.enqueue("default", "ops")
            await anyio.sleep(1)
            assert count("upserts_total", result="failed") == 1
            await client.delete(Role, "ops", namespace="default")
            await anyio.sleep(1)
            assert count("deletes_total", result="deleted") == 1
            assert count("hook_seconds_count", hook="upsert") == 4
            assert count("hook_seconds_count", hook="conflict") == 1
            assert count("hook_seconds_count", hook="delete") == 1
            manager.stop()


async def test_a_kind_without_generations_is_looked_at_when_its_data_changes() -> None:
    stored: list[bytes] = []

    async def persist(config: ConfigMap) -> None:
        stored.append(codec_of(ConfigMap).encode(config))

    deleted: list[str] = []

    async def delete(uid: str) -> None:
        deleted.append(uid)

    async with ApiServer() as server:
        client = server.client()
        await client.create(ConfigMap(metadata=ObjectMeta(name="c", namespace="default"), data={"a": "1"}))
        manager = manager_on(server)
        setup_reconciler(manager, ConfigMap, on_upsert=persist, on_delete=delete, finalizer=FINALIZER)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.start)
            await anyio.sleep(1)
            await client.patch(ConfigMap, "c", MergePatch({"data": {"a": "2"}}), namespace="default")
            await anyio.sleep(60)
            assert b'"data":{"a":"2"}' in stored[-1]
            assert len(stored) <= 3  # once more for our own finalizer, and not for ever
            await client.delete(ConfigMap, "c", namespace="default")
            await anyio.sleep(1)
            assert len(deleted) == 1
            assert await client.find(ConfigMap, "c", namespace="default") is None
            manager.stop()


async def test_resync_looks_at_all_that_match() -> None:
    rows = Rows()
    async with running(rows) as (client, roles):
        for name in ("a", "b", "c"):
            await client.create(role(name, team="web" if name == "b" else "sre"))
        await anyio.sleep(10)
        rows.names.clear()
        await roles.resync(labels={"team": "sre"})
        await anyio.sleep(10)
        assert sorted(rows.names) == ["a", "c"]


async def test_a_deleted_object_loses_its_row() -> None:
    rows = Rows()
    async with running(rows) as (client, _):
        created = await client.create(role())
        await anyio.sleep(10)
        await client.delete(Role, "ops", namespace="default")
        await anyio.sleep(10)
        assert rows.deleted == [created.metadata.uid]
        assert await client.find(Role, "ops", namespace="default") is None
        events = [event.reason for event in await client.list(Event, namespace="default")]
        assert sorted(reason for reason in events if reason) == ["Created", "Deleted"]


class LooseSpec(Model):
    scope: str | int = "s"


class LooseRole(CustomResource[LooseSpec, RoleStatus], group="demo.example.com", version="v1", kind="Role"):
    """The same kind as its CRD has it; the operator's model wants more."""


async def test_w10_a_malformed_object_is_reported_the_others_go_on_and_it_can_be_deleted() -> None:
    rows = Rows()
    async with ApiServer() as server:
        await server.install(LooseRole)
        client = server.client()
        bad = LooseRole(
            metadata=ObjectMeta(name="bad", namespace="default", finalizers=[FINALIZER]), spec=LooseSpec(scope=7)
        )
        uid = (await client.create(bad)).metadata.uid
        manager = manager_on(server)
        set_up(manager, rows)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.start)
            await anyio.sleep(10)
            await client.create(role("good"))
            await anyio.sleep(10)
            assert rows.names == ["good"]
            await client.delete(LooseRole, "bad", namespace="default")
            await anyio.sleep(10)
            assert rows.deleted == [uid]
            assert await client.find(LooseRole, "bad", namespace="default") is None
            manager.stop()
        reasons = [event.reason for event in await client.list(Event, namespace="default")]
        assert reasons.count("MalformedResource") == 1
