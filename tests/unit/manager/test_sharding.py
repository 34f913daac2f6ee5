"""Managers that divide the objects: each object with one of them, and none with nobody in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import anyio
import anyio.lowlevel
import pytest
from lightkube.models.meta_v1 import ObjectMeta, OwnerReference
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import ConfigMap, Secret

from opsdk.client import ApiClient
from opsdk.errors import (
    AlreadyExistsError,
    ConfigurationError,
    ConflictError,
    LeadershipLostError,
    ManagerError,
)
from opsdk.manager import Manager, ManagerOptions, Sharding
from opsdk.models import CustomResource, Model
from opsdk.protocols import MetadataView
from opsdk.testing import ApiServer
from opsdk.types import MergePatch, Request, Result
from replicas import Link, until

pytestmark = pytest.mark.anyio

SHARDED = ManagerOptions(
    leader_election_id="op",
    leader_election_namespace="default",
    leader_election=False,
    sharding=Sharding(),
    serve_metrics=False,
    serve_probes=False,
)
OBJECTS = 40
"""Who has which is as good as random: with so many, one of three is left without any once in four million times."""


class Absent(CustomResource[Model, Model], group="demo.example.com", version="v1"):
    """A kind that the server does not know."""


class Replica:
    """A manager with a controller of ConfigMaps, and a diary of what it reconciles."""

    def __init__(
        self, server: ApiServer, name: str, diary: list[tuple[str, str]], *, options: ManagerOptions = SHARDED
    ) -> None:
        self.name = name
        self.diary = diary
        self.link = Link(server.transport())
        self.manager = Manager(
            replace(options, leader_election_identity=name, field_manager=name),
            client=ApiClient(self.link, field_manager=name),
        )
        self.job_seconds = 0.0
        self.stamps = False
        self.job: Callable[[Replica, Request], Awaitable[None]] | None = None
        self.working: Counter[str] = Counter()
        self.refused: list[str] = []
        self.manager.controller(ConfigMap).owns(Secret).options(max_concurrent=8).complete(self.reconcile)

    async def reconcile(self, request: Request) -> Result:
        self.diary.append((self.name, request.name))
        self.working[request.name] += 1
        try:
            if self.job_seconds:
                await anyio.sleep(self.job_seconds)
            if self.stamps:
                await self.stamp(request)
            if self.job is not None:
                await self.job(self, request)
        finally:
            self.working[request.name] -= 1
        return Result()

    async def stamp(self, request: Request) -> None:
        """Write without a precondition, deaf to cancellation: only the gate can stop it."""
        patch = MergePatch({"metadata": {"annotations": {"by": self.name}}})
        with anyio.CancelScope(shield=True):
            try:
                await self.manager.client.patch(ConfigMap, request.name, patch, namespace=request.namespace)
            except LeadershipLostError:
                self.refused.append(request.name)
                raise

    @property
    def share(self) -> int:
        value = self.manager.metrics.registry.get_sample_value("opsdk_shard_objects", {"controller": "configmap"})
        return int(value or 0)

    def ready(self, members: int) -> bool:
        shards = self.manager.shards
        return shards is not None and shards.settled and shards.members == members


def annotations_of(metadata: MetadataView | None) -> Mapping[str, str]:
    return {} if metadata is None else metadata.annotations or {}


def all_ready(*replicas: Replica) -> Callable[[], bool]:
    return lambda: all(replica.ready(len(replicas)) for replica in replicas)


@asynccontextmanager
async def group(count: int, *, options: ManagerOptions = SHARDED) -> AsyncGenerator[tuple[ApiServer, list[Replica]]]:
    """So many replicas that have settled, over OBJECTS objects."""
    diary: list[tuple[str, str]] = []
    async with ApiServer() as server, anyio.create_task_group() as tasks:
        client = server.client()
        for number in range(OBJECTS):
            await client.create(ConfigMap(metadata=ObjectMeta(name=f"c{number}", namespace="default")))
        replicas = [Replica(server, f"replica-{number}", diary, options=options) for number in range(count)]
        for replica in replicas:
            tasks.start_soon(replica.manager.start)
        await until(all_ready(*replicas), within=20)
        await anyio.sleep(1)
        yield server, replicas
        for replica in replicas:
            replica.manager.stop()
        await anyio.sleep(30)
        tasks.cancel_scope.cancel()


def owners(diary: list[tuple[str, str]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for replica, name in diary:
        found.setdefault(name, set()).add(replica)
    return found


async def touch(server: ApiServer, count: int = OBJECTS) -> None:
    client = server.client()
    for number in range(count):
        obj = await client.get(ConfigMap, f"c{number}", namespace="default")
        base = client.snapshot(obj)
        obj.data = {"touched": str(anyio.current_time())}
        await client.patch_from(base, obj)


async def test_each_object_is_reconciled_by_one_of_three_replicas_and_each_has_some() -> None:
    async with group(3) as (server, replicas):
        diary = replicas[0].diary
        diary.clear()
        await touch(server)
        await anyio.sleep(2)
        assert {name: len(by) for name, by in owners(diary).items()} == {f"c{number}": 1 for number in range(OBJECTS)}
        assert sum(replica.share for replica in replicas) == OBJECTS
        shares = [replica.share for replica in replicas]
        assert min(shares) > 0, shares


async def test_children_count_with_their_owner() -> None:
    async with group(3) as (server, replicas):
        client = server.client()
        diary = replicas[0].diary
        await touch(server, 6)
        await anyio.sleep(1)
        before = owners(diary)
        diary.clear()
        for number in range(6):
            owner = await client.get(ConfigMap, f"c{number}", namespace="default")
            assert owner.metadata is not None
            reference = OwnerReference(
                apiVersion="v1", kind="ConfigMap", name=f"c{number}", uid=owner.metadata.uid or "", controller=True
            )
            metadata = ObjectMeta(name=f"s{number}", namespace="default", ownerReferences=[reference])
            await client.create(Secret(metadata=metadata))
        await anyio.sleep(1)
        after = owners(diary)
        assert set(after) == {f"c{number}" for number in range(6)}
        assert all(after[name] <= before[name] for name in after)


async def test_the_objects_of_a_replica_that_ends_in_order_are_served_by_the_others_at_once() -> None:
    async with group(3) as (_, replicas):
        gone, *left = replicas
        gone.diary.clear()
        mine = gone.share
        gone.manager.stop()
        await until(all_ready(*left), within=6)
        await anyio.sleep(0.5)
        assert len(owners(gone.diary)) == mine, "what it had was reconciled by the others, and nothing else moved"
        assert all(by <= {replica.name for replica in left} for by in owners(gone.diary).values())


async def test_a_replica_that_comes_takes_its_share_and_nothing_else_moves() -> None:
    async with group(2) as (server, replicas), anyio.create_task_group() as tasks:
        third = Replica(server, "late", replicas[0].diary)
        third.diary.clear()
        tasks.start_soon(third.manager.start)
        await until(all_ready(*replicas, third), within=15)
        await anyio.sleep(1)
        assert {replica for replica, _ in third.diary} == {"late"}
        assert len(third.diary) == third.share > 0
        assert sum(replica.share for replica in (*replicas, third)) == OBJECTS
        third.manager.stop()


async def test_a_replica_that_hangs_is_replaced_after_its_lease_and_its_late_writes_are_refused() -> None:
    async with group(3) as (server, replicas):
        hung, *left = replicas
        hung.stamps = True
        hung.job_seconds = 1
        await touch(server)
        await anyio.sleep(0.5)
        mine = [name for name, count in hung.working.items() if count]
        assert mine
        hung.link.pause()  # each of these is about to write, without a precondition
        hung.diary.clear()
        await until(all_ready(*left), within=15 + 2 + 4)
        await touch(server)
        await anyio.sleep(1)
        assert all(by <= {replica.name for replica in left} for by in owners(hung.diary).values())
        assert set(owners(hung.diary)) == {f"c{number}" for number in range(OBJECTS)}
        hung.link.resume()
        await anyio.sleep(1)
        assert sorted(hung.refused) == sorted(mine)
        for name in mine:
            found = await server.client().get(ConfigMap, name, namespace="default")
            assert "by" not in annotations_of(found.metadata)
        await until(all_ready(*replicas), within=15)
        await anyio.sleep(1)
        assert hung.share > 0
        assert sum(replica.share for replica in replicas) == OBJECTS


async def test_while_objects_move_none_is_worked_on_by_two() -> None:
    async with group(2) as (server, replicas), anyio.create_task_group() as tasks:
        everybody = [*replicas]
        for replica in everybody:
            replica.job_seconds = 3
        worst = 0

        async def watch() -> None:
            nonlocal worst
            while True:
                both = sum((replica.working for replica in everybody), Counter[str]())
                worst = max(worst, *both.values(), 0)
                await anyio.sleep(0.1)

        async def churn() -> None:
            while True:
                await touch(server, 8)
                await anyio.sleep(2)

        tasks.start_soon(watch)
        tasks.start_soon(churn)
        for number in range(2):
            await anyio.sleep(5)
            newcomer = Replica(server, f"new-{number}", replicas[0].diary)
            newcomer.job_seconds = 3
            everybody.append(newcomer)
            tasks.start_soon(newcomer.manager.start)
        await until(all_ready(*everybody), within=30)
        await anyio.sleep(10)
        for newcomer in everybody[2:]:
            newcomer.manager.stop()
            await anyio.sleep(8)
        assert worst == 1
        tasks.cancel_scope.cancel()


async def test_a_reconcile_of_an_object_that_moves_is_cancelled_after_the_grace_and_only_then_handed_over() -> None:
    options = replace(SHARDED, sharding=Sharding(hand_over_grace=timedelta(seconds=4)))
    async with group(1, options=options) as (server, replicas), anyio.create_task_group() as tasks:
        first = replicas[0]
        first.job_seconds = 10_000
        await touch(server)
        await anyio.sleep(1)
        assert sum(first.working.values()) == 8
        second = Replica(server, "second", first.diary, options=options)
        began = anyio.current_time()
        tasks.start_soon(second.manager.start)
        await until(all_ready(first, second), within=15)
        assert anyio.current_time() - began >= 4
        taken = {name for replica, name in first.diary if replica == "second"}
        await anyio.sleep(1)
        assert not any(first.working[name] for name in taken)
        second.manager.stop()
        await anyio.sleep(5)
        tasks.cancel_scope.cancel()


async def test_an_object_that_is_gone_is_reconciled_by_whom_it_belonged_to() -> None:
    async with group(3) as (server, replicas):
        diary = replicas[0].diary
        before = owners(diary)
        touched = {name: {by[-1]} for name, by in ((n, [r for r, m in diary if m == n]) for n in before)}
        diary.clear()
        for number in range(OBJECTS):
            await server.client().delete(ConfigMap, f"c{number}", namespace="default")
        await anyio.sleep(2)
        assert {name: len(by) for name, by in owners(diary).items()} == dict.fromkeys(touched, 1)
        assert owners(diary) == touched
        assert sum(replica.share for replica in replicas) == 0


async def test_the_leases_are_cleared_away_and_the_last_ones_are_free() -> None:
    async with group(3) as (server, replicas):
        for replica in replicas[1:]:
            replica.manager.stop()
        await until(all_ready(replicas[0]), within=10)
        await anyio.sleep(3)
        names = sorted(lease.metadata.name or "" for lease in await server.client().list(Lease) if lease.metadata)
        assert len(names) == 2
        assert names[0] == "op.shards"
        replicas[0].manager.stop()
        await anyio.sleep(3)
        for lease in await server.client().list(Lease):
            assert lease.spec is None or not lease.spec.holderIdentity


async def test_writes_outside_of_reconciles_need_membership() -> None:
    async with ApiServer() as server:
        replica = Replica(server, "one", [])
        with pytest.raises(LeadershipLostError, match="no member"):
            await replica.manager.client.create(ConfigMap(metadata=ObjectMeta(name="x", namespace="default")))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(replica.manager.start)
            await until(all_ready(replica), within=10)
            await replica.manager.client.create(ConfigMap(metadata=ObjectMeta(name="x", namespace="default")))
            replica.manager.stop()


async def test_leader_only_work_beside_sharded_controllers_has_one_leader() -> None:
    running: list[str] = []

    class Work:
        def __init__(self, name: str) -> None:
            self.name = name

        async def run(self) -> None:
            running.append(self.name)
            await anyio.sleep_forever()

    options = replace(SHARDED, leader_election=True)
    async with ApiServer() as server, anyio.create_task_group() as tasks:
        replicas = [Replica(server, f"replica-{number}", [], options=options) for number in range(3)]
        for replica in replicas:
            replica.manager.add(Work(replica.name))
            tasks.start_soon(replica.manager.start)
        await until(all_ready(*replicas), within=20)
        assert len(running) == 1
        assert [replica.manager.is_leader for replica in replicas].count(True) == 1
        for replica in replicas:
            replica.manager.stop()


async def test_without_an_election_there_is_no_leader_only_work_but_controllers() -> None:
    class Work:
        async def run(self) -> None:
            await anyio.sleep_forever()

    async with ApiServer() as server:
        manager = Manager(SHARDED, client=server.client())
        with pytest.raises(ManagerError, match="leader_only=False"):
            manager.add(Work())
        manager.add(Work(), leader_only=False)


@pytest.mark.parametrize("name", ["", "x" * 64])
def test_sharding_needs_a_name_that_fits(name: str) -> None:
    with pytest.raises(ConfigurationError, match="sharding needs one"):
        replace(SHARDED, leader_election_id=name)


def test_options_of_sharding_are_checked() -> None:
    with pytest.raises(ConfigurationError, match="hand_over_grace"):
        Sharding(hand_over_grace=timedelta(seconds=-1))


async def test_a_write_is_judged_by_the_manager_whose_client_makes_it() -> None:
    """Several managers in one process: the right to one's objects is no right to write with another one's client."""
    async with group(1) as (server, replicas), anyio.create_task_group() as tasks:
        other = Manager(replace(SHARDED, leader_election_id="other"), client=server.client())
        alone = Manager(replace(SHARDED, sharding=None), client=server.client())
        refused: list[str] = []

        async def reconcile(request: Request) -> Result:
            metadata = ObjectMeta(name=f"made-for-{request.name}", namespace="default")
            try:
                await other.client.create(Secret(metadata=metadata))
            except LeadershipLostError as error:
                refused.append(str(error))
            await alone.client.create(Secret(metadata=metadata))
            await manager.client.delete(Secret, metadata.name or "", namespace="default")
            return Result()

        manager = Manager(replace(SHARDED, leader_election_id="third"), client=server.client())
        manager.controller(ConfigMap).complete(reconcile)
        tasks.start_soon(manager.start)
        await anyio.sleep(10)
        assert len(refused) == OBJECTS
        assert all("other.shards" in text for text in refused)
        assert await server.client().list(Secret, namespace="default") == []
        assert replicas[0].share == OBJECTS, "another group has its own shares"
        manager.stop()


async def test_a_task_that_outlives_its_reconcile_cannot_write_any_more() -> None:
    async with ApiServer() as server, anyio.create_task_group() as tasks:
        await server.client().create(ConfigMap(metadata=ObjectMeta(name="c", namespace="default")))
        manager = Manager(SHARDED, client=server.client())
        refused: list[str] = []
        ends = anyio.Event()

        async def later() -> None:
            await ends.wait()
            try:
                await manager.client.create(Secret(metadata=ObjectMeta(name="late", namespace="default")))
            except LeadershipLostError as error:
                refused.append(str(error))

        async def reconcile(_: Request) -> Result:
            tasks.start_soon(later)
            return Result()

        manager.controller(ConfigMap).complete(reconcile)
        tasks.start_soon(manager.start)
        await anyio.sleep(10)
        ends.set()
        await anyio.sleep(1)
        assert len(refused) == 1
        await manager.client.create(Secret(metadata=ObjectMeta(name="other", namespace="default")))
        manager.stop()


async def test_a_replica_that_stops_finishes_what_it_is_at_before_others_begin() -> None:
    async with group(2) as (server, replicas):
        for replica in replicas:
            replica.job_seconds = 6
        await touch(server)
        await anyio.sleep(1)
        stopping, other = replicas
        mine = {name for name, count in stopping.working.items() if count}
        assert mine
        stopping.diary.clear()
        stopping.stamps = True
        stopping.manager.stop()
        await until(lambda: any(other.working[name] for name in mine), within=30)
        assert not any(stopping.working.values())
        assert stopping.refused == []
        for name in mine:
            found = await server.client().get(ConfigMap, name, namespace="default")
            assert annotations_of(found.metadata)["by"] == stopping.name


async def test_a_kind_that_cannot_be_read_keeps_no_replica_from_its_share_of_others() -> None:
    async with ApiServer() as server, anyio.create_task_group() as tasks:
        await server.client().create(ConfigMap(metadata=ObjectMeta(name="c", namespace="default")))
        replica = Replica(server, "one", [])
        replica.manager.controller(Absent).complete(replica.reconcile)
        tasks.start_soon(replica.manager.start)
        await until(all_ready(replica), within=30)
        await anyio.sleep(1)
        assert [name for _, name in replica.diary] == ["c"]
        replica.manager.stop()


async def test_metrics_tell_how_the_objects_are_divided() -> None:
    async with group(2) as (_, replicas):
        registry = replicas[0].manager.metrics.registry
        assert registry.get_sample_value("opsdk_shard_members") == 2
        assert registry.get_sample_value("opsdk_shard_settled") == 1
        assert registry.get_sample_value("opsdk_shard_losses_total") == 0
        shards = replicas[0].manager.shards
        assert shards is not None
        assert registry.get_sample_value("opsdk_shard_view") == shards.epoch > 0
        replicas[0].link.cut = True
        await anyio.sleep(20)
        assert registry.get_sample_value("opsdk_shard_members") == 0
        assert registry.get_sample_value("opsdk_shard_losses_total") == 1
        assert replicas[0].share == 0
        replicas[0].link.heal()


async def test_without_sharding_nothing_is_shown_of_it() -> None:
    async with ApiServer() as server:
        manager = Manager(replace(SHARDED, sharding=None), client=server.client())
        assert b"opsdk_shard" not in manager.metrics.exposition()


async def test_a_turn_that_was_kept_until_its_object_moved_is_worth_nothing() -> None:
    async with group(1) as (server, replicas), anyio.create_task_group() as tasks:
        first = replicas[0].manager.shards
        assert first is not None
        keys = [f"key-{number}" for number in range(40)]
        kept = {key: turn for key in keys if (turn := first.turn(key)) is not None}
        assert len(kept) == 40
        second = Replica(server, "second", [])
        tasks.start_soon(second.manager.start)
        await until(all_ready(*replicas, second), within=15)
        used: list[str] = []
        for key, turn in kept.items():
            with turn.taken():
                try:
                    first.gate()
                except LeadershipLostError:
                    await anyio.lowlevel.checkpoint()
                    pytest.fail("it is cancelled")
                used.append(key)
        assert used == [key for key in keys if first.holds(key)]
        assert 0 < len(used) < 40
        second.manager.stop()


async def test_writes_that_had_passed_the_gate_before_a_hang_meet_their_preconditions() -> None:
    """Nothing can call back bytes. A late patch of a difference conflicts, a late create finds the name taken."""
    outcomes: list[str] = []

    async def with_preconditions(replica: Replica, request: Request) -> None:
        client = replica.manager.client
        found = await client.get(ConfigMap, request.name, namespace=request.namespace)
        base = client.snapshot(found)
        found.data = {"by": replica.name}
        metadata = ObjectMeta(name=f"{request.name}-child", namespace="default")
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as both:
                both.start_soon(attempt, replica, client.patch_from(base, found))
                both.start_soon(attempt, replica, client.create(Secret(metadata=metadata)))

    async def attempt(replica: Replica, write: Awaitable[object]) -> None:
        try:
            await write
        except (ConflictError, AlreadyExistsError, LeadershipLostError) as error:
            outcomes.append(f"{replica.name}: {type(error).__name__}")

    async with group(3) as (server, replicas):
        hung, *left = replicas
        hung.link.late = True
        for replica in replicas:
            replica.job = with_preconditions
        hung.job_seconds = 0.5
        await touch(server)
        await anyio.sleep(0.1)  # for the last of these changes to come
        mine = sorted(name for name, count in hung.working.items() if count)
        assert mine
        hung.link.pause()
        await until(all_ready(*left), within=15 + 2 + 4)
        await anyio.sleep(1)
        before = {name: await server.client().get(ConfigMap, name, namespace="default") for name in mine}
        hung.link.resume()
        await anyio.sleep(0.2)
        late = Counter(outcome for outcome in outcomes if outcome.startswith(hung.name))
        assert late == {f"{hung.name}: ConflictError": len(mine), f"{hung.name}: AlreadyExistsError": len(mine)}
        for name, obj in before.items():
            now = await server.client().get(ConfigMap, name, namespace="default")
            assert now.metadata is not None
            assert obj.metadata is not None
            assert now.metadata.resourceVersion == obj.metadata.resourceVersion


async def test_work_that_cannot_be_cancelled_holds_up_its_object_and_is_told_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def deaf(_: Replica, __: Request) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(60)

    async with group(1) as (server, replicas), anyio.create_task_group() as tasks:
        first = replicas[0]
        first.job = deaf
        await touch(server, 8)
        await anyio.sleep(1)
        assert sum(first.working.values()) == 8
        second = Replica(server, "second", [])
        tasks.start_soon(second.manager.start)
        await anyio.sleep(40)
        assert not second.ready(2)
        assert second.diary == []
        assert "does not end although it is cancelled, and they wait for it; uids: " in caplog.text
        first.job = None
        await until(all_ready(first, second), within=35)
        await anyio.sleep(1)
        assert second.diary
        second.manager.stop()
