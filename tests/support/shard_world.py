"""Replicas that divide objects, or want to lead, in a world that a schedule disturbs; and who may write what in it.

The replicas' writes have no precondition: only the gate keeps a late one from taking effect. Each is judged when it
takes effect: no other replica may have the right to write to that object at that time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, Protocol, TypeAlias

import anyio
import anyio.abc
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import ConfigMap

from opsdk.client import ApiClient, HttpRequest, HttpResponse, WriteGate
from opsdk.errors import ApiError, LeadershipLostError
from opsdk.manager import LeaderElector, ShardMembership, ShardTurn
from opsdk.testing import ApiServer
from opsdk.types import MergePatch
from replicas import Link, SkewedClock, until

__all__ = ["Action", "Candidate", "Contender", "Event", "Member", "World"]

LEASE, DEADLINE, RETRY = timedelta(seconds=15), timedelta(seconds=10), timedelta(seconds=2)

Disturbance: TypeAlias = Literal["pause", "cut", "errors", "lose_answers", "slow", "heal"]
Action: TypeAlias = Literal[Disturbance, "end", "die", "start", "delete_lease", "delete_view"]


@dataclass(frozen=True, slots=True)
class Event:
    """After so many seconds, this happens to that replica."""

    after: float
    replica: int
    action: Action


class Contender(Protocol):
    """One life of a replica."""

    def may_write(self, obj: str) -> bool:
        """Whether it may write to the object now, by its own clock."""
        ...

    async def run(self) -> None:
        """Contend until cancelled, and write what it may."""
        ...


@dataclass
class World:
    """A server, replicas, and what has been seen.

    Args:
        make: Makes one life of a replica: world, number, link, clock.
        rates: The speed of each replica's clock.
        objects: The names of the objects.
        job_seconds: How long a member works on an object before it writes.
    """

    make: Callable[[World, int, Link, SkewedClock], Contender]
    rates: Sequence[float]
    objects: Sequence[str]
    job_seconds: float = 0.4
    server: ApiServer = field(default_factory=ApiServer)
    writes: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    violations: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.links = [Link(_Judged(self, number), seed=number) for number in range(len(self.rates))]
        self.clocks = [SkewedClock(rate=rate, offset=1000.0 * n) for n, rate in enumerate(self.rates)]
        self.lives: list[Contender | None] = [None] * len(self.rates)
        self.scopes: list[anyio.CancelScope | None] = [None] * len(self.rates)

    def holders(self, obj: str) -> list[int]:
        """The replicas that may write to the object now."""
        return [number for number, life in enumerate(self.lives) if life is not None and life.may_write(obj)]

    def took_effect(self, number: int, obj: str) -> None:
        """A write did."""
        self.writes.append((obj, number))
        others = [holder for holder in self.holders(obj) if holder != number]
        if others:
            self.violations.append(f"{number} wrote {obj} while {others} may, at {anyio.current_time():.2f}")

    def start(self, tasks: anyio.abc.TaskGroup, number: int) -> None:
        """Let the replica live, if it does not."""
        if self.lives[number] is None:
            life = self.lives[number] = self.make(self, number, self.links[number], self.clocks[number])
            scope = self.scopes[number] = anyio.CancelScope()
            tasks.start_soon(self._live, number, life, scope)

    async def _live(self, number: int, life: Contender, scope: anyio.CancelScope) -> None:
        with scope:
            await life.run()
        if self.lives[number] is life:
            self.lives[number] = None

    def apply(self, tasks: anyio.abc.TaskGroup, number: int, action: Action) -> None:
        """Let something happen to a replica."""
        link, scope = self.links[number], self.scopes[number]
        match action:
            case "pause" | "cut" | "errors" | "lose_answers" | "slow" | "heal":
                self._disturb(link, action)
            case "end":
                if scope is not None:
                    scope.cancel()
            case "die":
                link.cut = True
                link.resume()
                if scope is not None:
                    scope.cancel()
            case "start":
                self.start(tasks, number)
            case "delete_lease":
                tasks.start_soon(self._delete_leases, _holder, f"replica-{number}")
            case "delete_view":
                tasks.start_soon(self._delete_leases, _name, "op.shards")

    @staticmethod
    def _disturb(link: Link, disturbance: Disturbance) -> None:
        match disturbance:
            case "pause":
                link.pause()
            case "cut":
                link.cut = True
            case "errors":
                link.status = 503
            case "lose_answers":
                link.loses_answers = 0.4
            case "slow":
                link.delays = (0.0, 0.5, 2.0, 4.9)
            case "heal":
                link.heal()

    async def _delete_leases(self, text_of: Callable[[Lease], str], text: str) -> None:
        """What a person does who knows no better."""
        client = self.server.client()
        for lease in await client.list(Lease, namespace="default"):
            if text_of(lease) == text:
                await client.delete(Lease, _name(lease), namespace="default")

    async def play(self, events: Sequence[Event], *, settle_seconds: float = 90.0) -> None:
        """Start all replicas, let the events happen, heal everything, and wait until each object has a holder."""
        async with self.server, anyio.create_task_group() as tasks:
            client = self.server.client()
            for name in self.objects:
                await client.create(ConfigMap(metadata=ObjectMeta(name=name, namespace="default")))
            for number in range(len(self.rates)):
                self.start(tasks, number)
            tasks.start_soon(self._look)
            for event in events:
                await anyio.sleep(event.after)
                self.apply(tasks, event.replica % len(self.rates), event.action)
            for link in self.links:
                link.heal()
            await until(self._ends_are_over, within=30)
            for number in range(len(self.rates)):
                self.start(tasks, number)
            await until(self._all_held, within=settle_seconds)
            self.writes.clear()  # who hung may still lose what it holds: each is written to, but not at once
            await until(lambda: {obj for obj, _ in self.writes} == set(self.objects), within=settle_seconds)
            await until(self._all_held, within=settle_seconds)
            tasks.cancel_scope.cancel()

    def _ends_are_over(self) -> bool:
        return not any(
            life is not None and scope is not None and scope.cancel_called
            for life, scope in zip(self.lives, self.scopes, strict=True)
        )

    def _all_held(self) -> bool:
        return all(len(self.holders(obj)) == 1 for obj in self.objects)

    async def _look(self) -> None:
        """No two replicas may ever have the right to one object, whether or not they use it."""
        while True:
            await anyio.sleep(0.1)
            for obj in self.objects:
                if len(holders := self.holders(obj)) > 1:
                    self.violations.append(f"{holders} may write {obj} at {anyio.current_time():.2f}")


def _holder(lease: Lease) -> str:
    return (lease.spec.holderIdentity if lease.spec else None) or ""


def _name(lease: Lease) -> str:
    return (lease.metadata.name if lease.metadata else None) or ""


class _Judged:
    """The server, as one replica reaches it: its writes to objects are judged as they take effect."""

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self._number = number
        self._inner = world.server.transport()
        self.stream = self._inner.stream
        self.aclose = self._inner.aclose

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        answer = await self._inner.request(request)
        if request.method == "PATCH" and "/configmaps/" in request.path and answer.status == 200:
            self._world.took_effect(self._number, request.path.rpartition("/")[2])
        return answer


async def _stamp(client: ApiClient, obj: str, number: int) -> None:
    patch = MergePatch({"metadata": {"annotations": {"by": f"{number} at {anyio.current_time()}"}}})
    with anyio.CancelScope(shield=True):  # deaf to cancellation: nothing but the gate stops it
        await client.patch(ConfigMap, obj, patch, namespace="default")


class Member:
    """A replica that divides the objects with others. An object's uid is its name here.

    Args:
        gated: Whether its writes go by the gate; without, the world has to notice.
    """

    def __init__(
        self,
        world: World,
        number: int,
        link: Link,
        clock: SkewedClock,
        *,
        gated: bool = True,
    ) -> None:
        self._world = world
        self._number = number
        plain = ApiClient(link)
        self.shards = ShardMembership(
            plain,
            name="op",
            namespace="default",
            identity=f"replica-{number}",
            lease_duration=LEASE,
            renew_deadline=DEADLINE,
            retry_period=RETRY,
            hand_over_grace=timedelta(seconds=3),
            clock=clock,
        )
        self._client = plain.with_gate(self.shards.gate if gated else None)
        self._turns: dict[str, ShardTurn] = {}

    def may_write(self, obj: str) -> bool:
        turn = self._turns.get(obj)
        return self.shards.turn(obj) is not None or (turn is not None and turn.in_force)

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.shards.run)
            for obj in self._world.objects:
                tasks.start_soon(self._work, obj)

    async def _work(self, obj: str) -> None:
        while True:
            await anyio.sleep(0.7)
            turn = self.shards.turn(obj)
            if turn is None:
                continue
            self._turns[obj] = turn
            try:
                with turn.taken():
                    await anyio.sleep(self._world.job_seconds)
                    await _stamp(self._client, obj, self._number)
            except (ApiError, LeadershipLostError):
                pass
            finally:
                del self._turns[obj]


class Candidate:
    """A replica that wants to lead, and writes while it does.

    Args:
        gated: Whether its writes go by the gate; without, the world has to notice.
    """

    def __init__(
        self,
        world: World,
        number: int,
        link: Link,
        clock: SkewedClock,
        *,
        gated: bool = True,
    ) -> None:
        self._world = world
        self._number = number
        plain = ApiClient(link)
        self.elector = LeaderElector(
            plain,
            name="op",
            namespace="default",
            identity=f"replica-{number}",
            lease_duration=LEASE,
            renew_deadline=DEADLINE,
            retry_period=RETRY,
            clock=clock,
        )
        gate: WriteGate | None = self.elector.gate if gated else None
        self._client = plain.with_gate(gate)

    def may_write(self, obj: str) -> bool:
        del obj
        return self.elector.is_leader

    async def run(self) -> None:
        while True:
            try:
                await self.elector.run(self._lead)
            except LeadershipLostError:
                await anyio.sleep(0.1)

    async def _lead(self) -> None:
        while True:
            await anyio.sleep(0.7)
            for obj in self._world.objects:
                try:
                    await _stamp(self._client, obj, self._number)
                except ApiError:
                    continue
