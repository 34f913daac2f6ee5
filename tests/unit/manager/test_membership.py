"""Members that divide keys, without managers: what they do while views come faster than work ends, or out of order."""

from __future__ import annotations

from datetime import timedelta

import anyio
import pytest
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.coordination_v1 import Lease

from opsdk.client import ApiClient
from opsdk.manager import ShardMembership
from opsdk.manager._views import View
from opsdk.manager.sharding import SHARD_GROUP_LABEL, VIEW_ANNOTATION
from opsdk.testing import ApiServer
from replicas import Link, until

pytestmark = pytest.mark.anyio


async def test_the_grace_of_work_that_has_to_end_does_not_begin_anew_with_each_view() -> None:
    ended: list[float] = []

    async def work(member: ShardMembership, uid: str) -> None:
        turn = member.turn(uid)
        assert turn is not None
        with turn.taken():
            await anyio.sleep_forever()
        ended.append(anyio.current_time())

    async with ApiServer() as server, anyio.create_task_group() as tasks:
        members = [
            ShardMembership(server.client(), name="op", namespace="default", hand_over_grace=timedelta(seconds=6))
            for _ in range(8)
        ]
        tasks.start_soon(members[0].run)
        await until(lambda: members[0].settled, within=10)
        for number in range(64):
            tasks.start_soon(work, members[0], f"uid-{number}")
        began = anyio.current_time()
        for newcomer in members[1:]:
            tasks.start_soon(newcomer.run)
            await anyio.sleep(3)
        assert members[0].members == len(members)
        assert ended
        assert 6 <= ended[0] - began <= 12  # of those that the first newcomer is to have
        tasks.cancel_scope.cancel()


async def test_a_first_view_that_comes_late_to_where_another_was_deleted_makes_no_second_owner() -> None:
    """Who published it had looked before the other member came."""
    uids = [f"uid-{number}" for number in range(64)]
    async with ApiServer() as server, anyio.create_task_group() as tasks:
        links = [Link(server.transport()) for _ in range(2)]
        members = [ShardMembership(ApiClient(link), name="op", namespace="default") for link in links]
        for member in members:
            tasks.start_soon(member.run)
        await until(lambda: all(member.settled and member.members == 2 for member in members), within=20)
        await anyio.sleep(3)  # and both have said so
        publisher = max(members, key=lambda member: member.lease)  # it leaves publishing to the other one at first
        links[1 - members.index(publisher)].cut = True
        annotations = {VIEW_ANNOTATION: View.first([publisher.lease.partition("/")[2]]).encode()}
        await server.client().delete(Lease, "op.shards", namespace="default")
        metadata = ObjectMeta(
            name="op.shards", namespace="default", labels={SHARD_GROUP_LABEL: "op"}, annotations=annotations
        )
        await server.client().create(Lease(metadata=metadata))
        for _ in range(400):
            await anyio.sleep(0.1)
            assert not [uid for uid in uids if all(member.turn(uid) for member in members)]
        assert all(publisher.turn(uid) for uid in uids)
        tasks.cancel_scope.cancel()
