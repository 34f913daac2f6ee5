"""The life of a manager, in virtual time, without sockets."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from datetime import timedelta

import anyio
import pytest
from lightkube.models.core_v1 import NamespaceSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import ConfigMap, Event, Namespace

from opsdk.cache import Malformed
from opsdk.client import ApiClient
from opsdk.controller import ControllerHost
from opsdk.errors import ApiConnectionError, ConfigurationError, DecodeError, LeadershipLostError, ManagerError
from opsdk.events import Recorder
from opsdk.manager import Manager, ManagerOptions
from opsdk.manager._malformed import MalformedReporter
from opsdk.metrics import Metrics
from opsdk.models import CustomResource, Model
from opsdk.persistence import PersistenceHost
from opsdk.testing import ApiServer
from opsdk.types import Request, Result

pytestmark = pytest.mark.anyio

ALONE = ManagerOptions(leader_election=False, serve_metrics=False, serve_probes=False)
ELECTED = ManagerOptions(
    leader_election_id="op", leader_election_namespace="default", serve_metrics=False, serve_probes=False
)


class LooseSpec(Model):
    size: str


class Loose(CustomResource[LooseSpec, Model], group="demo.example.com", version="v1", kind="Loose", plural="looses"):
    """What the server takes."""


class StrictSpec(Model):
    size: int


class Strict(CustomResource[StrictSpec, Model], group="demo.example.com", version="v1", kind="Loose", plural="looses"):
    """What the program takes of it."""


class Work:
    """A runnable that notes when it starts and ends."""

    def __init__(self, name: str, diary: list[str], *, job_seconds: float = 0) -> None:
        self.name = name
        self.diary = diary
        self.job_seconds = job_seconds
        self.started = anyio.Event()

    async def run(self) -> None:
        self.diary.append(f"{self.name} starts")
        self.started.set()
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(self.job_seconds)
            self.diary.append(f"{self.name} ends")


class Failing:
    def __init__(self, error: Exception, after_seconds: float = 1) -> None:
        self.error = error
        self.after_seconds = after_seconds

    async def run(self) -> None:
        await anyio.sleep(self.after_seconds)
        raise self.error


async def holder(server: ApiServer) -> str:
    lease = await server.client().find(Lease, "op", namespace="default")
    return "" if lease is None or lease.spec is None else lease.spec.holderIdentity or ""


def takes_hosts(controllers: ControllerHost, persistence: PersistenceHost) -> None:
    """A manager is both, structurally: this call is for the type checkers."""


async def test_a_manager_hosts_controllers_and_persistence() -> None:
    async with ApiServer() as server:
        manager = Manager(ALONE, client=server.client())
        takes_hosts(manager, manager)


async def test_it_runs_what_was_added_until_it_is_stopped() -> None:
    diary: list[str] = []
    async with ApiServer() as server:
        manager = Manager(ALONE, client=server.client())
        manager.add(Work("leader", diary))
        manager.add(Work("everywhere", diary), leader_only=False)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.start)
            await anyio.sleep(1)
            assert sorted(diary) == ["everywhere starts", "leader starts"]
            manager.stop()
        assert diary[2:] == ["leader ends", "everywhere ends"]


async def test_stop_may_come_from_any_thread_and_before_the_start() -> None:
    diary: list[str] = []
    async with ApiServer() as server:
        manager = Manager(ALONE, client=server.client())
        manager.add(Work("leader", diary))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.start)
            await anyio.sleep(1)
            await anyio.to_thread.run_sync(manager.stop)
        assert diary == ["leader starts", "leader ends"]

        early = Manager(ALONE, client=server.client())
        early.stop()
        with anyio.fail_after(1):
            await early.start()


async def test_a_manager_runs_once() -> None:
    async with ApiServer() as server:
        manager = Manager(ALONE, client=server.client())
        manager.stop()
        await manager.start()
        with pytest.raises(ManagerError, match="started before"):
            await manager.start()


async def test_what_a_runnable_raises_stops_the_manager_and_is_raised_bare() -> None:
    diary: list[str] = []
    async with ApiServer() as server:
        manager = Manager(ALONE, client=server.client())
        manager.add(Work("other", diary))
        manager.add(Failing(LookupError("broken")))
        with pytest.raises(LookupError, match="broken"):
            await manager.start()
    assert diary == ["other starts", "other ends"]


async def test_runnables_that_fail_together_are_a_group() -> None:
    async with ApiServer() as server:
        manager = Manager(ALONE, client=server.client())
        manager.add(Failing(LookupError("a")))
        manager.add(Failing(OSError("b")), leader_only=False)
        with pytest.raises(ExceptionGroup) as caught:
            await manager.start()
    assert {type(error) for error in caught.value.exceptions} == {LookupError, OSError}


async def test_cancelling_it_ends_everything_and_gives_the_lease_back() -> None:
    diary: list[str] = []
    async with ApiServer() as server:
        manager = Manager(ELECTED, client=server.client())
        manager.add(Work("leader", diary))
        with anyio.move_on_after(5):
            await manager.start()
        assert diary == ["leader starts", "leader ends"]
        assert await holder(server) == ""


async def test_q04_running_reconciles_finish_waiting_ones_do_not_start_and_the_lease_goes_last() -> None:
    started: list[str] = []
    ended: list[str] = []
    holders_at_end: list[str] = []

    async with ApiServer() as server:
        client = server.client()

        class Slow:
            async def reconcile(self, request: Request, /) -> Result:
                started.append(request.name)
                await anyio.sleep(10)
                ended.append(request.name)
                holders_at_end.append(await holder(server))
                return Result()

        for number in range(60):
            await client.create(ConfigMap(metadata=ObjectMeta(name=f"c{number}", namespace="default")))
        manager = Manager(ELECTED, client=client)
        manager.controller(ConfigMap).options(max_concurrent=20).complete(Slow())
        before = 0.0
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.start)
            await anyio.sleep(5)
            assert len(started) == 20
            before = anyio.current_time()
            manager.stop()
        assert anyio.current_time() - before < 10
        assert len(started) == len(ended) == 20
        assert all(holders_at_end)
        assert await holder(server) == ""


async def test_q04_reconciles_that_outlast_the_grace_period_are_cancelled() -> None:
    ended: list[bool] = []
    async with ApiServer() as server:
        client = server.client()

        class Endless:
            async def reconcile(self, request: Request, /) -> Result:
                try:
                    await anyio.sleep(10_000)
                finally:
                    ended.append(True)
                return Result()

        await client.create(ConfigMap(metadata=ObjectMeta(name="c", namespace="default")))
        manager = Manager(replace(ELECTED, grace_period=timedelta(seconds=25)), client=client)
        manager.controller(ConfigMap).complete(Endless())
        before = 0.0
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.start)
            await anyio.sleep(60)
            before = anyio.current_time()
            manager.stop()
        assert anyio.current_time() - before == pytest.approx(25, abs=0.5)
        assert ended == [True]
        assert await holder(server) == ""


async def test_q05_a_replica_that_does_not_lead_never_starts_leader_work_on_its_way_out() -> None:
    diary: list[str] = []
    async with ApiServer() as server:
        leader = Manager(ELECTED, client=server.client())
        standby = Manager(ELECTED, client=server.client())
        standby.add(Work("leader work", diary))
        standby.add(Work("standby work", diary, job_seconds=20), leader_only=False)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(leader.start)
            await anyio.sleep(5)
            tasks.start_soon(standby.start)
            await anyio.sleep(60)
            standby.stop()
            await anyio.sleep(1)
            leader.stop()  # the Lease is free while the standby is still on its way out
        assert diary == ["standby work starts", "standby work ends"]
        assert await holder(server) == ""


async def test_q06_losing_the_lease_cancels_leader_work_refuses_writes_and_is_raised() -> None:
    diary: list[str] = []
    async with ApiServer() as server:
        manager = Manager(ELECTED, client=server.client())
        manager.add(Work("leader", diary))
        refused: list[str] = []

        async def take_the_lease() -> None:
            await anyio.sleep(5)
            client = server.client()
            lease = await client.get(Lease, "op", namespace="default")
            base = client.snapshot(lease)
            assert lease.spec is not None
            lease.spec.holderIdentity = "somebody-else"
            await client.patch_from(base, lease)

        class Writes:
            async def run(self) -> None:
                try:
                    await anyio.sleep_forever()
                finally:
                    with anyio.CancelScope(shield=True):
                        try:
                            await manager.client.create(ConfigMap(metadata=ObjectMeta(name="c", namespace="default")))
                        except LeadershipLostError as error:
                            refused.append(str(error))

        manager.add(Writes())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take_the_lease)
            with pytest.raises(LeadershipLostError, match="somebody-else holds it now"):
                await manager.start()
        assert diary == ["leader starts", "leader ends"]
        assert len(refused) == 1
        assert await holder(server) == "somebody-else"
        assert await server.client().find(ConfigMap, "c", namespace="default") is None


async def test_a_standby_takes_over_at_once_with_warm_caches_when_the_leader_is_stopped() -> None:
    seen: list[str] = []

    class Notes:
        def __init__(self, who: str) -> None:
            self.who = who

        async def reconcile(self, request: Request, /) -> Result:
            seen.append(f"{self.who} {request.name}")
            return Result()

    async with ApiServer() as server:
        await server.client().create(ConfigMap(metadata=ObjectMeta(name="c", namespace="default")))
        managers = [Manager(ELECTED, client=server.client()) for _ in range(2)]
        for number, manager in enumerate(managers):
            manager.controller(ConfigMap).complete(Notes(f"manager{number}"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(managers[0].start)
            await anyio.sleep(3)
            tasks.start_soon(managers[1].start)
            await anyio.sleep(30)
            assert seen == ["manager0 c"]
            assert managers[1].informers.synced
            assert not managers[1].is_leader
            with pytest.raises(LeadershipLostError):
                await managers[1].client.create(ConfigMap(metadata=ObjectMeta(name="d", namespace="default")))
            managers[0].stop()
            await anyio.sleep(3)
            assert seen == ["manager0 c", "manager1 c"]
            managers[1].stop()


async def test_a_runnable_added_while_it_runs_runs_too() -> None:
    diary: list[str] = []
    async with ApiServer() as server:
        manager = Manager(ALONE, client=server.client())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.start)
            await anyio.sleep(1)
            manager.add(Work("late", diary))
            await anyio.sleep(1)
            manager.stop()
        assert diary == ["late starts", "late ends"]


async def test_two_controllers_of_one_name_are_refused_with_a_way_out() -> None:
    async def reconcile(_: Request) -> Result:
        return Result()

    async with ApiServer() as server:
        manager = Manager(ALONE, client=server.client())
        manager.controller(ConfigMap).complete(reconcile)
        with pytest.raises(ManagerError, match=r"\.named\('configmap-2'\)"):
            manager.controller(ConfigMap).complete(reconcile)
        manager.controller(ConfigMap).named("other").complete(reconcile)


async def test_two_managers_live_side_by_side() -> None:
    async with ApiServer() as server:
        managers = [Manager(ALONE, client=server.client()) for _ in range(2)]
        async with anyio.create_task_group() as tasks:
            for manager in managers:
                tasks.start_soon(manager.start)
            await anyio.sleep(1)
            for manager in managers:
                manager.stop()
        assert managers[0].metrics.registry is not managers[1].metrics.registry


async def test_only_the_named_namespaces_are_watched() -> None:
    seen: list[Request] = []

    class Notes:
        async def reconcile(self, request: Request, /) -> Result:
            seen.append(request)
            return Result()

    async with ApiServer() as server:
        client = server.client()
        await client.create(Namespace(metadata=ObjectMeta(name="blue"), spec=NamespaceSpec()))
        for namespace in ("default", "blue"):
            await client.create(ConfigMap(metadata=ObjectMeta(name="c", namespace=namespace)))
        manager = Manager(replace(ALONE, namespaces=("blue",)), client=client)
        manager.controller(ConfigMap).complete(Notes())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.start)
            await anyio.sleep(5)
            manager.stop()
    assert seen == [Request("c", "blue")]


async def test_it_closes_no_client_that_it_was_given() -> None:
    async with ApiServer() as server:
        client = server.client()
        manager = Manager(ALONE, client=client)
        manager.stop()
        await manager.start()
        assert await client.list(ConfigMap, namespace="default") == []


async def test_without_any_configuration_construction_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/at/all")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigurationError, match="nowhere"):
        Manager(ALONE)


async def test_a_lease_without_a_namespace_is_refused_at_construction() -> None:
    async with ApiServer() as server:
        with pytest.raises(ConfigurationError, match="leader_election_namespace"):
            Manager(
                replace(ELECTED, leader_election_namespace=None),
                client=ApiClient(server.transport(), namespace=None),
            )


async def test_requests_and_events_are_counted() -> None:
    async with ApiServer() as server:
        manager = Manager(ALONE, client=server.client())
        subject = await manager.client.create(ConfigMap(metadata=ObjectMeta(name="c", namespace="default")))
        await manager.recorder.record(subject, "Normal", "Seen", "hello")
        registry = manager.metrics.registry
        assert registry.get_sample_value("opsdk_events_total", {"type": "Normal", "outcome": "created"}) == 1
        text = manager.metrics.exposition().decode()
        assert 'rest_client_requests_total{code="201"' in text
        (event,) = await server.client().list(Event, namespace="default")
        assert event.reportingComponent == "opsdk"


async def test_ends_leave_no_threads(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with ApiServer() as server:
        manager = Manager(ALONE, client=server.client())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.start)
            await anyio.sleep(1)
            manager.stop()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("opsdk")]


async def test_an_api_error_in_a_runnable_is_an_ordinary_failure() -> None:
    async with ApiServer() as server:
        manager = Manager(ALONE, client=server.client())
        manager.add(Failing(ApiConnectionError("cut")))
        with pytest.raises(ApiConnectionError, match="cut"):
            await manager.start()


async def test_an_object_that_does_not_fit_its_model_is_counted_logged_and_told_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with ApiServer() as server:
        await server.install(Loose)
        client = server.client()
        await client.create(Loose(metadata=ObjectMeta(name="bad", namespace="default"), spec=LooseSpec(size="much")))
        await client.create(Loose(metadata=ObjectMeta(name="good", namespace="default"), spec=LooseSpec(size="3")))
        seen: list[str] = []

        class Reads:
            async def reconcile(self, request: Request, /) -> Result:
                await manager.client.get(Strict, request.name, namespace=request.namespace)
                seen.append(request.name)
                return Result()

        manager = Manager(ALONE, client=client)
        manager.controller(Strict).complete(Reads())
        with caplog.at_level(logging.ERROR, "opsdk.manager"):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(manager.start)
                await anyio.sleep(5)
                manager.stop()
        assert "good" in seen
        assert manager.metrics.registry.get_sample_value("opsdk_malformed_objects_total", {"kind": "Loose"}) == 1
        assert "malformed object skipped" in caplog.text
        events = [event for event in await client.list(Event) if event.reason == "MalformedResource"]
        assert [(event.type, event.involvedObject.name) for event in events] == [("Warning", "bad")]
        assert "size" in (events[0].message or "")


async def test_a_malformed_object_that_is_found_while_the_manager_stops_harms_nobody() -> None:
    async with ApiServer() as server:
        metrics = Metrics()
        reporter = MalformedReporter(metrics, Recorder(server.client(), component="test"))
        with anyio.move_on_after(1):
            await reporter.run()
        reporter(Malformed(kind=ConfigMap, header=None, error=DecodeError("no", kind="ConfigMap")))
    assert metrics.registry.get_sample_value("opsdk_malformed_objects_total", {"kind": "ConfigMap"}) == 1
