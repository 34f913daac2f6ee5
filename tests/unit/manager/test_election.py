"""Invariant: of all electors on one Lease, at most one has its gate open, whatever the network does."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import anyio
import pytest
from lightkube.models.coordination_v1 import LeaseSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import Namespace

from opsdk.client import ApiClient, HttpRequest, HttpResponse, HttpStream, Transport
from opsdk.clock import ManualClock, using
from opsdk.errors import ApiConnectionError, ConfigurationError, LeadershipLostError
from opsdk.manager.election import LeaderElector
from opsdk.testing import ApiServer

pytestmark = pytest.mark.anyio


class Network:
    """A transport between one replica and the server, which can be slow, cut, or answered by 5xx."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.cut = False
        self.status: int | None = None
        self.delays: random.Random | None = None
        self.loses_answers = 0.0
        self.choice_of_delays: tuple[float, ...] = (0.0, 0.0, 0.01, 0.1, 1.0)

    async def _pass(self) -> None:
        if self.delays is not None:
            await anyio.sleep(self.delays.choice(self.choice_of_delays))
        if self.cut:
            await anyio.sleep(1)
            raise ApiConnectionError("the network is cut")

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        await self._pass()
        if self.status is not None:
            return HttpResponse(status=self.status, headers={}, body=b"etcd is away")
        answer = await self.inner.request(request)
        await self._pass()
        if self.delays is not None and self.delays.random() < self.loses_answers:
            raise ApiConnectionError("the answer was lost")
        return answer

    @asynccontextmanager
    async def stream(self, request: HttpRequest, /) -> AsyncGenerator[HttpStream]:
        await self._pass()
        async with self.inner.stream(request) as stream:
            yield stream

    async def aclose(self) -> None:
        await self.inner.aclose()


async def until(condition: Callable[[], bool], within: float) -> None:
    with anyio.fail_after(within):
        while not condition():  # noqa: ASYNC110 - what is waited for depends on time alone
            await anyio.sleep(0.05)


class Replica:
    def __init__(self, server: ApiServer, name: str, *, retry_seconds: float = 2, lease_seconds: float = 15) -> None:
        self.network = Network(server.transport())
        self.elector = LeaderElector(
            ApiClient(self.network),
            name="op",
            namespace="default",
            identity=name,
            lease_duration=timedelta(seconds=lease_seconds),
            retry_period=timedelta(seconds=retry_seconds),
        )
        self.losses: list[str] = []
        self.terms = 0

    async def lead_for_ever(self) -> None:
        self.terms += 1
        await anyio.sleep_forever()

    async def run(self) -> None:
        while True:
            try:
                await self.elector.run(self.lead_for_ever)
            except LeadershipLostError as error:
                self.losses.append(str(error))


async def read_lease(server: ApiServer) -> LeaseSpec:
    lease = await server.client().get(Lease, "op", namespace="default")
    assert lease.spec is not None
    return lease.spec


@pytest.mark.parametrize("seed", range(3))
async def test_never_are_two_gates_open_at_once(seed: int) -> None:
    chaos = random.Random(seed)
    terms = 0
    async with ApiServer() as server, anyio.create_task_group() as tasks:
        replicas = [Replica(server, f"replica-{number}") for number in range(3)]
        for number, replica in enumerate(replicas):
            replica.network.delays = random.Random(100 * seed + number)
            replica.network.loses_answers = 0.1
            tasks.start_soon(replica.run)

        async def disturb() -> None:
            """One replica at a time falls ill, preferably the leader; the others are well enough to want its place."""
            while True:
                await anyio.sleep(chaos.uniform(5, 30))
                leaders = [replica for replica in replicas if replica.elector.is_leader]
                victim = chaos.choice(leaders or replicas).network
                healthy = victim.choice_of_delays
                match chaos.randrange(3):
                    case 0:
                        victim.cut = True
                    case 1:
                        victim.status = 503
                    case _:
                        victim.choice_of_delays = (0.0, 2.0, 4.9, 6.0)
                await anyio.sleep(chaos.uniform(5, 30))
                victim.cut, victim.status, victim.choice_of_delays = False, None, healthy

        tasks.start_soon(disturb)
        for _ in range(10_000):
            await anyio.sleep(0.1)
            open_gates = [replica.elector.identity for replica in replicas if replica.elector.is_leader]
            assert len(open_gates) <= 1
        terms = sum(replica.terms for replica in replicas)
        tasks.cancel_scope.cancel()
    assert terms >= 10  # leadership did change hands, or the test proves nothing


async def test_a_standby_takes_over_within_the_lease_duration_after_the_leader_dies() -> None:
    async with ApiServer() as server:
        first, second = Replica(server, "first"), Replica(server, "second")
        async with anyio.create_task_group() as tasks:
            await first.elector.acquire()  # and then nothing: it never renews
            tasks.start_soon(second.run)
            await until(lambda: second.elector.is_leader, within=15 + 3)
            assert not first.elector.is_leader
            tasks.cancel_scope.cancel()


async def test_a_leader_that_ends_in_order_is_followed_within_one_retry() -> None:
    async with ApiServer() as server:
        first, second = Replica(server, "first"), Replica(server, "second")
        async with anyio.create_task_group() as tasks:
            await first.elector.acquire()
            tasks.start_soon(second.run)
            await anyio.sleep(5)
            await first.elector.release()
            assert not first.elector.is_leader
            spec = await read_lease(server)
            assert (spec.holderIdentity or "", spec.leaseDurationSeconds) == ("", 1)
            await until(lambda: second.elector.is_leader, within=2 * 1.2 + 0.1)
            assert (await read_lease(server)).leaseTransitions == 1
            tasks.cancel_scope.cancel()


async def test_q06_a_leader_cut_off_from_the_server_closes_its_gate_before_the_lease_can_be_taken() -> None:
    async with ApiServer() as server:
        replica = Replica(server, "first")
        ended: list[float] = []

        async def lead() -> None:
            try:
                await anyio.sleep_forever()
            finally:
                ended.append(anyio.current_time())

        cut_at = 0.0

        async def cut() -> None:
            nonlocal cut_at
            await anyio.sleep(20)
            replica.network.cut = True
            cut_at = anyio.current_time()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cut)
            with pytest.raises(LeadershipLostError, match=r"default/op lost by first: not renewed within 10 s"):
                await replica.elector.run(lead)
        assert ended
        assert ended[0] - cut_at <= 10
        with pytest.raises(LeadershipLostError):
            replica.elector.gate()


async def test_q07_ten_minutes_of_5xx_end_with_a_leader_and_no_restart() -> None:
    async with ApiServer() as server, anyio.create_task_group() as tasks:
        replica = Replica(server, "first")
        replica.network.status = 503
        tasks.start_soon(replica.elector.run, replica.lead_for_ever)
        await anyio.sleep(600)
        assert not replica.elector.is_leader
        replica.network.status = None
        await until(lambda: replica.elector.is_leader, within=5)
        tasks.cancel_scope.cancel()


async def test_a_lease_that_the_server_finds_invalid_ends_the_wait() -> None:
    async with ApiServer() as server:
        replica = Replica(server, "first")
        replica.network.status = 422
        with anyio.fail_after(1), pytest.raises(ConfigurationError, match="refuses the Lease default/op, and always"):
            await replica.elector.run(replica.lead_for_ever)


async def test_a_namespace_that_is_not_there_is_told_with_the_way_out(caplog: pytest.LogCaptureFixture) -> None:
    async with ApiServer() as server, anyio.create_task_group() as tasks:
        elector = LeaderElector(server.client(), name="op", namespace="later")
        tasks.start_soon(elector.run, anyio.sleep_forever)
        await anyio.sleep(5)
        record = caplog.records[-1]
        assert record.levelname == "ERROR"
        assert "create the namespace later, or name another as leader_election_namespace" in record.getMessage()
        await server.client().create(Namespace(metadata=ObjectMeta(name="later")))
        await until(lambda: elector.is_leader, within=5)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(("name", "namespace"), [("Bad_Name", "default"), ("op", "a.b"), ("op", "x" * 64)])
def test_names_that_the_server_would_refuse_are_refused_at_once(name: str, namespace: str) -> None:
    with pytest.raises(ConfigurationError, match="Lease is '"):
        LeaderElector(ApiServer().client(), name=name, namespace=namespace)


async def test_a_renewal_whose_answer_was_lost_is_recognised_as_our_own() -> None:
    async with ApiServer() as server, anyio.create_task_group() as tasks:
        replica = Replica(server, "first")
        tasks.start_soon(replica.run)
        await anyio.sleep(1)
        replica.network.delays, replica.network.loses_answers = random.Random(1), 0.3
        for _ in range(600):
            await anyio.sleep(1)
            assert (await read_lease(server)).holderIdentity in {"first", None, ""}
        assert replica.terms >= 1
        assert all("holds it now" not in loss for loss in replica.losses)
        tasks.cancel_scope.cancel()


async def test_every_renewal_differs_even_when_the_wall_clock_stands() -> None:
    with using(ManualClock()):
        async with ApiServer() as server, anyio.create_task_group() as tasks:
            replica = Replica(server, "first")
            tasks.start_soon(replica.run)
            times: list[datetime | None] = []
            for _ in range(5):
                await anyio.sleep(3)
                times.append((await read_lease(server)).renewTime)
            assert len(set(times)) == 5
            tasks.cancel_scope.cancel()


async def test_a_wall_clock_that_is_wrong_by_a_day_changes_nothing() -> None:
    async with ApiServer() as server, anyio.create_task_group() as tasks:
        first, second = Replica(server, "first"), Replica(server, "second")
        tasks.start_soon(first.run)
        await anyio.sleep(1)
        ahead = ManualClock()
        ahead.advance(timedelta(days=30_000))
        with using(ahead):
            tasks.start_soon(second.run)
        for _ in range(600):
            await anyio.sleep(0.1)
            assert first.elector.is_leader
            assert not second.elector.is_leader
        tasks.cancel_scope.cancel()


async def test_a_lease_that_somebody_deletes_is_made_again_by_its_leader() -> None:
    async with ApiServer() as server, anyio.create_task_group() as tasks:
        first, second = Replica(server, "first"), Replica(server, "second")
        tasks.start_soon(first.run)
        await anyio.sleep(1)
        tasks.start_soon(second.run)
        await anyio.sleep(10)
        await server.client().delete(Lease, "op", namespace="default")
        for _ in range(300):
            await anyio.sleep(0.1)
            assert [first.elector.is_leader, second.elector.is_leader].count(True) <= 1
        assert first.elector.is_leader
        assert (await read_lease(server)).holderIdentity == "first"
        tasks.cancel_scope.cancel()


async def test_the_gate_is_closed_before_leading() -> None:
    async with ApiServer() as server:
        replica = Replica(server, "first")
        with pytest.raises(LeadershipLostError, match="does not lead"):
            replica.elector.gate()
        await replica.elector.acquire()
        replica.elector.gate()


async def test_a_candidate_that_ends_while_it_takes_the_lease_does_not_leave_it_taken() -> None:
    async with ApiServer() as server:
        replica = Replica(server, "first")
        replica.network.delays, replica.network.choice_of_delays = random.Random(1), (1.0,)
        with anyio.move_on_after(3.5):  # the Lease is written after 3 s, and its answer comes after 4
            await replica.elector.acquire()
            pytest.fail("it was to be cancelled before the answer came")
        assert (await read_lease(server)).holderIdentity == "first"
        await replica.elector.release()
        assert not (await read_lease(server)).holderIdentity


async def test_a_leader_whose_last_renewal_was_not_answered_gives_the_lease_back() -> None:
    async with ApiServer() as server:
        replica = Replica(server, "first")

        async def lead() -> None:
            await anyio.sleep(1)
            replica.network.delays, replica.network.loses_answers = random.Random(1), 1.0
            replica.network.choice_of_delays = (0.0,)
            await anyio.sleep(2)
            replica.network.delays = None

        await replica.elector.run(lead)
        assert not (await read_lease(server)).holderIdentity


async def test_what_somebody_else_holds_is_not_given_back() -> None:
    async with ApiServer() as server, anyio.create_task_group() as tasks:
        first, second = Replica(server, "first"), Replica(server, "second")
        await first.elector.acquire()
        tasks.start_soon(second.run)
        await until(lambda: second.elector.is_leader, within=20)
        await first.elector.release()
        assert (await read_lease(server)).holderIdentity == "second"
        assert second.elector.is_leader
        tasks.cancel_scope.cancel()


async def test_an_error_of_the_work_is_raised_bare_and_the_lease_given_back() -> None:
    async with ApiServer() as server:
        replica = Replica(server, "first")

        async def fail() -> None:
            raise LookupError("work")

        with pytest.raises(LookupError, match="work"):
            await replica.elector.run(fail)
        assert not (await read_lease(server)).holderIdentity


async def test_cancelling_the_leader_gives_the_lease_back() -> None:
    async with ApiServer() as server:
        replica = Replica(server, "first")
        with anyio.move_on_after(7):
            await replica.elector.run(replica.lead_for_ever)
        assert replica.terms == 1
        assert not (await read_lease(server)).holderIdentity


@pytest.mark.parametrize(("retry_seconds", "lease_seconds"), [(2, 10), (9, 15), (0, 15)])
async def test_durations_that_cannot_be_safe_are_refused(retry_seconds: float, lease_seconds: float) -> None:
    async with ApiServer() as server:
        with pytest.raises(ConfigurationError, match="renew_deadline"):
            Replica(server, "first", retry_seconds=retry_seconds, lease_seconds=lease_seconds)


class Hang(Network):
    """The process stands still after its first write has taken effect, for longer than it may lead."""

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
        self.seconds = 0.0

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        answer = await super().request(request)
        if request.method != "GET" and not self.seconds:
            self.seconds = 20.0
        return answer


async def test_a_candidate_that_hung_while_it_took_the_lease_leads_all_the_same() -> None:
    async with ApiServer() as server:
        network = Hang(server.transport())
        elector = LeaderElector(
            ApiClient(network),
            name="op",
            namespace="default",
            identity="a",
            clock=lambda: anyio.current_time() + network.seconds,
        )
        with anyio.fail_after(10):
            await elector.acquire()
        assert elector.is_leader
        await elector.release()


class Refusing(Network):
    """The answer to the first write is lost, and all that come after it are refused."""

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
        self.writes = 0
        self.refuses = True

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        if request.method == "GET":
            return await super().request(request)
        self.writes += 1
        if self.writes == 1:
            await super().request(request)
            raise ApiConnectionError("the answer was lost")
        if self.refuses:
            return HttpResponse(status=403, headers={}, body=b"not now")
        return await super().request(request)


async def test_a_lease_taken_without_an_answer_is_given_back_although_the_next_try_was_refused() -> None:
    async with ApiServer() as server:
        network = Refusing(server.transport())
        elector = LeaderElector(ApiClient(network), name="op", namespace="default", identity="a")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(elector.acquire)
            await until(lambda: network.writes == 2, within=10)
            tasks.cancel_scope.cancel()
        assert (await read_lease(server)).holderIdentity == "a"
        network.refuses = False
        await elector.release()
        assert not (await read_lease(server)).holderIdentity
