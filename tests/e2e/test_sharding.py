"""Three replicas in processes of their own divide objects on a real API server; one hangs beyond its Lease.

What is looked at is the watch's history: every write says under which member's Lease and which view it was made.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.abc
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import ConfigMap, Namespace

from opsdk.client import ApiClient, ClientConfig
from opsdk.protocols import Added, Modified
from opsdk.types import MergePatch
from real_cluster import RealCluster
from replicas import data_of

pytestmark = [pytest.mark.anyio, pytest.mark.controlplane]

REPLICA = Path(__file__).parent / "shard_replica.py"
OBJECTS = 30
"""Who has which is as good as random: with so many, one of three is left without any once in 60000 times."""
LEASE_SECONDS = 3.0
SLACK_SECONDS = 15.0
"""What a busy machine may take on top."""
PATIENCE_SECONDS = 120.0


@pytest.fixture(params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The processes are what is tested, and they take their time."""
    return str(request.param)


@dataclass
class Replica:
    """One process, and what it said."""

    name: str
    process: anyio.abc.Process
    begun: list[str] = field(default_factory=list[str])
    refused: list[str] = field(default_factory=list[str])
    lease: str = ""
    members: int = 0

    async def listen(self) -> None:
        assert self.process.stdout is not None
        lines = BufferedByteReceiveStream(self.process.stdout)
        try:
            while True:
                word, lease, what = (await lines.receive_until(b"\n", 1000)).decode().split()
                if word == "refused":
                    self.refused.append(what)
                elif word == "begun":
                    self.begun.append(what)
                else:
                    self.lease, self.members = lease, int(what)
        except (anyio.EndOfStream, anyio.IncompleteRead):
            return


@dataclass(frozen=True, slots=True)
class Write:
    """One write of a replica, as the watch showed it."""

    obj: str
    by: str
    lease: str
    epoch: int
    seen: str


@dataclass
class Scene:
    """The replicas, and the history of the objects."""

    client: ApiClient
    namespace: str
    replicas: list[Replica]
    history: list[Write] = field(default_factory=list[Write])
    data: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    wanted: int = 0

    async def follow(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        async with self.client.watch(ConfigMap, namespace=self.namespace, labels="sharded") as events:
            task_status.started()
            async for event in events:
                if not isinstance(event, Added | Modified):
                    continue
                obj = event.object
                name = (obj.metadata.name if obj.metadata else None) or ""
                data = data_of(obj)
                before, self.data[name] = self.data.get(name, {}), data
                if "by" in data and any(data[key] != before.get(key) for key in ("by", "lease", "epoch", "seen")):
                    self.history.append(Write(name, data["by"], data["lease"], int(data["epoch"]), data["seen"]))

    async def want(self) -> None:
        """Ask for another pass over each object."""
        self.wanted += 1
        for number in range(OBJECTS):
            patch = MergePatch({"data": {"want": str(self.wanted)}})
            await self.client.patch(ConfigMap, f"c{number}", patch, namespace=self.namespace)

    def served(self) -> bool:
        return len(self.data) == OBJECTS and all(data.get("seen") == str(self.wanted) for data in self.data.values())

    async def stop_in_the_middle(self, replica: Replica) -> None:
        """Stop a process that has begun passes and not written yet, and wait for what was on its way."""
        for _ in range(20):
            await self.want()
            await anyio.sleep(0.1)
            os.kill(replica.process.pid, signal.SIGSTOP)
            await anyio.sleep(1.5)
            written = {f"{write.obj}={write.seen}" for write in self.history if write.by == replica.name}
            if any(what.endswith(f"={self.wanted}") for what in {*replica.begun} - written):
                return
            os.kill(replica.process.pid, signal.SIGCONT)  # it had not begun, or had done everything already
            await eventually(self.served, within=PATIENCE_SECONDS)
        pytest.fail("it was never in the middle of a pass")

    def settled(self, *replicas: Replica) -> Callable[[], bool]:
        return lambda: all(replica.members == len(replicas) for replica in replicas)


async def eventually(condition: Callable[[], bool], within: float) -> float:
    """Wait until it holds; returns how long that took."""
    began = anyio.current_time()
    with anyio.fail_after(within):
        while not condition():  # noqa: ASYNC110 - other processes' doing
            await anyio.sleep(0.05)
    return anyio.current_time() - began


@asynccontextmanager
async def scene(cluster: RealCluster, count: int) -> AsyncGenerator[Scene]:
    namespace = f"shards-{uuid.uuid4().hex[:8]}"
    async with ApiClient.from_config(ClientConfig.from_files([cluster.kubeconfig])) as client:
        await client.create(Namespace(metadata=ObjectMeta(name=namespace)))
        for number in range(OBJECTS):
            metadata = ObjectMeta(name=f"c{number}", namespace=namespace, labels={"sharded": "yes"})
            await client.create(ConfigMap(metadata=metadata))
        replicas: list[Replica] = []
        try:
            for number in range(count):
                name = f"replica-{number}"
                command = [sys.executable, str(REPLICA), str(cluster.kubeconfig), namespace, name]
                process = await anyio.open_process(command, stdin=subprocess.DEVNULL, stderr=None)
                replicas.append(Replica(name, process))
            play = Scene(client, namespace, replicas)
            async with anyio.create_task_group() as tasks:
                await tasks.start(play.follow)
                for replica in replicas:
                    tasks.start_soon(replica.listen)
                yield play
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                for replica in replicas:
                    if replica.process.returncode is None:
                        os.kill(replica.process.pid, signal.SIGCONT)
                        replica.process.kill()
                    await replica.process.aclose()
                await client.delete(Namespace, namespace)


async def test_a_replica_that_is_stopped_beyond_its_lease_writes_nothing_late_and_takes_its_share_again(
    cluster: RealCluster,
) -> None:
    async with scene(cluster, 3) as play:
        hung, *left = play.replicas
        await eventually(play.settled(*play.replicas), within=PATIENCE_SECONDS)
        await play.want()
        await eventually(play.served, within=PATIENCE_SECONDS)
        leases = {write.by: write.lease for write in play.history}
        assert set(leases) == {replica.name for replica in play.replicas}, "each has a share"

        await play.stop_in_the_middle(hung)
        old = hung.lease
        before = len(play.history)
        waited = await eventually(play.served, within=PATIENCE_SECONDS)
        assert waited < LEASE_SECONDS + SLACK_SECONDS, "the others serve everything when its Lease has run out"
        await eventually(play.settled(*left), within=PATIENCE_SECONDS)
        assert {write.by for write in play.history[before:]} <= {replica.name for replica in left}

        resumed = len(play.history)
        os.kill(hung.process.pid, signal.SIGCONT)
        await eventually(play.settled(*play.replicas), within=PATIENCE_SECONDS)
        assert all(write.lease != old for write in play.history[before:]), "no late write took effect"
        assert hung.refused, "it did try to write late, or this proves nothing"
        await play.want()
        await eventually(play.served, within=PATIENCE_SECONDS)
        assert hung.name in {write.by for write in play.history[resumed:]}, "it has a share again"

        for name in play.data:
            mine = [write for write in play.history if write.obj == name]
            epochs = [write.epoch for write in mine]
            assert epochs == sorted(epochs), f"{name} was written under an older view than before"
            assert len({(write.epoch, write.by) for write in mine}) == len(set(epochs)), f"{name} had two writers"

        for replica in play.replicas:
            replica.process.terminate()
        for replica in play.replicas:
            assert await replica.process.wait() == 0
        held = await play.client.list(Lease, namespace=play.namespace)
        assert not any(lease.spec is not None and lease.spec.holderIdentity for lease in held)
