"""Controllers and managers at a real kube-apiserver: signals, outages, caches that are behind."""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
import tracemalloc
import uuid
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import cast

import anyio
import anyio.to_thread
import pytest
from lightkube.models.flowcontrol_v1 import (
    FlowSchemaSpec,
    LimitedPriorityLevelConfiguration,
    LimitResponse,
    PolicyRulesWithSubjects,
    PriorityLevelConfigurationReference,
    PriorityLevelConfigurationSpec,
    ResourcePolicyRule,
    UserSubject,
)
from lightkube.models.flowcontrol_v1 import Subject as FlowSubject
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.models.rbac_v1 import RoleRef, Subject
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import ConfigMap, Event, Secret
from lightkube.resources.flowcontrol_apiserver_v1 import FlowSchema, PriorityLevelConfiguration
from lightkube.resources.rbac_authorization_v1 import ClusterRoleBinding

from e2e.runtime.harness import (
    GROUP,
    PATIENCE_SECONDS,
    client_of,
    config_of,
    control_plane,
    eventually,
    manager_options,
    new_namespace,
    server_port,
    starting,
    trusting,
)
from etcd_gateway import Etcd
from opsdk import (
    CustomResource,
    MachineStatus,
    Manager,
    Model,
    Request,
    Result,
    StateHandler,
    StateMachine,
    Transition,
    for_state_machine,
    setup,
)
from opsdk.client import ApiClient
from opsdk.controller import generation_changed
from opsdk.errors import DecodeError, LeadershipLostError, TooManyRequestsError
from opsdk.models import codec_of, owner_reference_to, view_of
from opsdk.testing.controlplane import ControlPlane
from opsdk.types import MergePatch
from opsdk.workqueue import ExponentialBackoff
from tcp_proxy import http_proxy, tcp_proxy

pytestmark = [pytest.mark.anyio, pytest.mark.controlplane]


class LampSpec(Model):
    """Whether it should shine."""

    lit: bool = False


class Lamp(CustomResource[LampSpec, MachineStatus], group=GROUP, version="v1"):
    """Something with a life."""

    def get_machine_status(self) -> MachineStatus:
        return self.status


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with control_plane(Lamp) as plane:
        yield plane


def config(name: str, namespace: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace), data=data)


async def data_of(client: ApiClient, name: str, namespace: str) -> dict[str, str]:
    return data_in(await client.get(ConfigMap, name, namespace=namespace))


def data_in(found: ConfigMap) -> dict[str, str]:
    return dict(cast("dict[str, str] | None", found.data) or {})  # pyright: ignore[reportUnknownMemberType] - a bare dict


async def test_w10_an_object_that_does_not_fit_is_told_once_others_are_served_and_a_mended_status_wakes_it(
    plane: ControlPlane,
) -> None:
    """kube-apiserver would refuse it, so it gets into etcd past it, as objects do whose schema became stricter."""
    async with client_of(plane) as client:
        namespace = await new_namespace(client)
        manager = Manager(manager_options(namespace), client=client)
        failures = 0
        served: list[str] = []

        async def serve(request: Request) -> Result:
            nonlocal failures
            try:
                lamp = await manager.client.find(Lamp, request.name, namespace=request.namespace)
            except DecodeError:
                failures += 1
                raise
            if lamp is not None:
                served.append(request.name)
            return Result()

        manager.controller(Lamp).predicates(generation_changed()).complete(serve)
        metadata = {"name": "bad", "namespace": namespace, "uid": str(uuid.uuid4()), "generation": 1}
        bad = {"apiVersion": f"{GROUP}/v1", "kind": "Lamp", "metadata": metadata, "spec": {"lit": True}}
        bad["status"] = {"observedGeneration": "one"}
        etcd = Etcd(plane.folder)
        await anyio.to_thread.run_sync(etcd.put, {f"/registry/{GROUP}/lamps/{namespace}/bad": bad})
        async with starting(manager):
            await client.create(Lamp(metadata=ObjectMeta(name="good", namespace=namespace), spec=LampSpec()))
            await eventually(lambda: "good" in served and failures == 1, "one served, one not")
            await until_told(client, namespace)
            await anyio.sleep(1)
            assert failures == 1
            mended = MergePatch({"status": {"observedGeneration": 1}})
            await client.status.patch(Lamp, "bad", mended, namespace=namespace)
            await eventually(lambda: "bad" in served, "the mended one")
        found = await client.list(Event, namespace=namespace)
        assert [(event.reason, event.count) for event in found] == [("MalformedResource", 1)]


async def until_told(client: ApiClient, namespace: str) -> None:
    with anyio.fail_after(PATIENCE_SECONDS):
        while not await client.list(Event, namespace=namespace):  # noqa: ASYNC110 - the server's to know
            await anyio.sleep(0.1)


async def test_q03_failures_back_off_and_are_a_handful_of_events_with_a_rising_count(plane: ControlPlane) -> None:
    async with client_of(plane) as client:
        namespace = await new_namespace(client)
        manager = Manager(manager_options(namespace), client=client)
        times: list[float] = []

        async def fail(request: Request) -> Result:
            times.append(anyio.current_time())
            found = await manager.client.get(ConfigMap, request.name, namespace=request.namespace)
            await manager.recorder.record(found, "Warning", "Failed", "it always does")
            raise RuntimeError("it always does")

        backoff = ExponentialBackoff[Request](base=timedelta(milliseconds=10), jitter=0)
        manager.controller(ConfigMap).options(rate_limit=backoff).complete(fail)
        async with starting(manager):
            await client.create(config("a", namespace))
            await eventually(lambda: len(times) == 9, "nine failures")
        waits = [after - before for before, after in pairwise(times)]
        assert all(wait >= 0.01 * 2**number for number, wait in enumerate(waits))
        (event,) = await client.list(Event, namespace=namespace)
        assert (event.reason, event.type) == ("Failed", "Warning")
        assert event.count is not None
        assert event.count > 1


async def test_q05_a_replica_that_does_not_lead_is_stopped_without_having_worked(plane: ControlPlane) -> None:
    async with client_of(plane) as client:
        namespace = await new_namespace(client)
        await client.create(config("a", namespace))
        worked: list[str] = []

        def replica(name: str) -> Manager:
            manager = Manager(manager_options(namespace, "q05"), client=client)

            async def work(request: Request) -> Result:
                worked.append(name)
                return Result()

            manager.controller(ConfigMap).complete(work)
            return manager

        first, second = replica("first"), replica("second")
        async with starting(first):
            await eventually(lambda: bool(worked), "the first leads")
            async with starting(second):
                await eventually(lambda: second.informers.synced, "the second is warm")
                first.stop()
                second.stop()
        assert set(worked) == {"first"}


async def test_q12_an_operator_that_wakes_itself_for_ever_is_told_which_field_it_is(
    plane: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    async with client_of(plane) as client:
        namespace = await new_namespace(client)
        manager = Manager(manager_options(namespace), client=client)
        passes = 0

        async def touch(request: Request) -> Result:
            nonlocal passes
            passes += 1
            patch = MergePatch({"data": {"lookedAt": str(passes)}})
            await manager.client.patch(ConfigMap, request.name, patch, namespace=request.namespace)
            return Result()

        manager.controller(ConfigMap).complete(touch)
        async with starting(manager):
            await client.create(config("a", namespace))
            await eventually(lambda: "data.lookedAt" in caplog.text, "the warning")
        assert passes < 100


async def test_q02_a_hook_that_deletes_its_own_object_is_done_without_a_retry_or_a_warning(
    plane: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    async with client_of(plane) as client:
        namespace = await new_namespace(client)
        manager = Manager(manager_options(namespace), client=client)
        entered: list[str] = []

        async def burn_out(lamp: Lamp) -> Result:
            entered.append(lamp.metadata.name or "")
            await manager.client.delete(Lamp, lamp.metadata.name or "", namespace=namespace)
            return Result()

        machine = StateMachine(
            Lamp,
            manager.client,
            initial="dark",
            states={
                "dark": StateHandler[Lamp](transitions=[Transition(to="lit", when=lambda lamp: lamp.spec.lit)]),
                "lit": StateHandler[Lamp](enter=burn_out, terminal=True),
            },
        )
        setup(manager, for_state_machine(machine))

        async def live(request: Request) -> Result:
            found = await manager.client.find(Lamp, request.name, namespace=request.namespace)
            return Result() if found is None else await machine.reconcile(found)

        manager.controller(Lamp).complete(live)
        async with starting(manager):
            lamp = Lamp(metadata=ObjectMeta(name="a", namespace=namespace), spec=LampSpec(lit=True))
            await client.create(lamp)
            await eventually(lambda: bool(entered), "the hook")
            await anyio.sleep(1)
    assert entered == ["a"]
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_q04_sigterm_lets_running_reconciles_end_starts_none_and_gives_the_lease_back_last(
    plane: ControlPlane,
) -> None:
    async with client_of(plane) as client:
        namespace = await new_namespace(client)
        async with anyio.create_task_group() as tasks:
            for number in range(120):
                tasks.start_soon(client.create, config(f"c{number}", namespace))
        manager = Manager(manager_options(namespace, "q04"), client=client)
        begun: set[str] = set()
        finished: set[str] = set()

        async def write(request: Request) -> Result:
            begun.add(request.name)
            await anyio.sleep(2)
            patch = MergePatch({"data": {"by": "q04"}})
            await manager.client.patch(ConfigMap, request.name, patch, namespace=request.namespace)
            finished.add(request.name)
            return Result()

        manager.controller(ConfigMap).options(max_concurrent=20).complete(write)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.run)
            await eventually(lambda: len(begun) == 20, "20 reconciles")
            os.kill(os.getpid(), signal.SIGTERM)
        assert len(begun) == 20, "of the 100 that waited, none has begun"
        assert finished == begun
        lease = await client.get(Lease, "q04", namespace=namespace)
        assert lease.spec is not None
        assert not lease.spec.holderIdentity
        found = [view_of(one) for one in await client.list(ConfigMap, namespace=namespace)]
        last = max(int(one.resourceVersion or 0) for one in found if one.name in finished)
        assert int(view_of(lease).resourceVersion or 0) > last


async def test_q06_a_leader_that_is_cut_off_stops_before_another_leads_and_raises(plane: ControlPlane) -> None:
    async with (
        client_of(plane) as direct,
        tcp_proxy(server_port(plane)) as proxy,
        client_of(plane, port=proxy.port) as cut_off,
    ):
        namespace = await new_namespace(direct)
        await direct.create(config("a", namespace))
        first = Manager(manager_options(namespace, "q06", short=True), client=cut_off)
        second = Manager(manager_options(namespace, "q06", short=True), client=direct)
        told: list[tuple[str, float]] = []

        def work_for(name: str, manager: Manager) -> None:
            class Work:
                async def run(self) -> None:
                    told.append((f"{name} begins", anyio.current_time()))
                    try:
                        await anyio.sleep_forever()
                    finally:
                        told.append((f"{name} ends", anyio.current_time()))

            manager.add(Work())

        work_for("first", first)
        work_for("second", second)
        lost: list[LeadershipLostError] = []

        async def start_the_first() -> None:
            try:
                await first.start()
            except LeadershipLostError as error:
                lost.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(start_the_first)
            await eventually(lambda: bool(told), "the first leads")
            async with starting(second):
                await anyio.sleep(0.5)
                proxy.stall()
                await eventually(lambda: len(told) == 3, "the second leads")
                await eventually(lambda: bool(lost), "the first has said so")
        assert [what for what, _ in told[:3]] == ["first begins", "first ends", "second begins"]
        assert not first.is_leader


async def test_q07_a_server_without_its_store_for_a_while_is_outlived_without_a_restart(plane: ControlPlane) -> None:
    """etcd is dead: kube-apiserver answers with 5xx or not at all. A manager waits, then leads, then works."""
    async with client_of(plane) as client:
        namespace = await new_namespace(client)
        await client.create(config("a", namespace))
        manager = Manager(manager_options(namespace, "q07"), client=client)
        seen: list[str] = []

        async def note(request: Request) -> Result:
            seen.append(request.name)
            return Result()

        manager.controller(ConfigMap).complete(note)
        plane.etcd.kill()
        try:
            async with starting(manager):
                await anyio.sleep(6)
                assert not manager.is_leader
                plane.etcd.start()
                await eventually(lambda: "a" in seen, "it leads and works")
        finally:
            plane.etcd.start()
            await anyio.to_thread.run_sync(plane.wait_ready)


async def test_q07_a_server_that_answers_429_is_asked_seldom_and_worked_with_when_it_has_room(
    plane: ControlPlane,
) -> None:
    """A priority level without seats takes one request at a time, and refuses others, with Retry-After."""
    async with (
        client_of(plane) as direct,
        http_proxy(server_port(plane), trusting(plane)) as proxy,
        client_of(plane, port=proxy.tcp.port, plain=True, context="plain-user") as busy,
    ):
        namespace = await new_namespace(direct)
        await direct.create(
            ClusterRoleBinding(
                metadata=ObjectMeta(name=namespace),
                roleRef=RoleRef(apiGroup="rbac.authorization.k8s.io", kind="ClusterRole", name="cluster-admin"),
                subjects=[Subject(apiGroup="rbac.authorization.k8s.io", kind="User", name="plain-user")],
            )
        )
        manager = Manager(manager_options(namespace), client=busy)
        begun = 0

        async def copy(request: Request) -> Result:
            nonlocal begun
            begun += 1
            found = await manager.client.get(ConfigMap, request.name, namespace=request.namespace)
            data = data_in(found)
            if data.get("is") != data["wanted"]:
                patch = MergePatch({"data": {"is": data["wanted"]}})
                await manager.client.patch(ConfigMap, request.name, patch, namespace=request.namespace)
            return Result()

        manager.controller(ConfigMap).complete(copy)
        await direct.create(config("a", namespace, wanted="1"))
        async with starting(manager):
            await until_copied(direct, namespace, "1")
            await direct.create(no_seats())
            await direct.create(for_plain_user())
            async with hogging(plane, busy, namespace):
                asked, began = len(proxy.requests), begun
                await direct.patch(ConfigMap, "a", MergePatch({"data": {"wanted": "2"}}), namespace=namespace)
                await eventually(lambda: begun > began, "it is woken")
                await anyio.sleep(3)
                assert begun - began <= 15, "backoff"
                assert len(proxy.requests) - asked <= 15
                assert (await data_of(direct, "a", namespace))["is"] == "1"
            await until_copied(direct, namespace, "2")
        await direct.delete(FlowSchema, "plain-user")
        await direct.delete(PriorityLevelConfiguration, "no-seats")


def no_seats() -> PriorityLevelConfiguration:
    limited = LimitedPriorityLevelConfiguration(
        nominalConcurrencyShares=0,
        lendablePercent=0,
        borrowingLimitPercent=0,
        limitResponse=LimitResponse(type="Reject"),
    )
    return PriorityLevelConfiguration(
        metadata=ObjectMeta(name="no-seats"),
        spec=PriorityLevelConfigurationSpec(type="Limited", limited=limited),
    )


def for_plain_user() -> FlowSchema:
    who = FlowSubject(kind="User", user=UserSubject(name="plain-user"))
    what = ResourcePolicyRule(apiGroups=["*"], resources=["*"], verbs=["*"], namespaces=["*"], clusterScope=True)
    rule = PolicyRulesWithSubjects(subjects=[who], resourceRules=[what])
    level = PriorityLevelConfigurationReference(name="no-seats")
    spec = FlowSchemaSpec(priorityLevelConfiguration=level, matchingPrecedence=10, rules=[rule])
    return FlowSchema(metadata=ObjectMeta(name="plain-user"), spec=spec)


@asynccontextmanager
async def hogging(plane: ControlPlane, client: ApiClient, namespace: str) -> AsyncGenerator[None]:
    """Have the plain user's only place taken, by a request whose body does not come.

    kube-apiserver takes a moment to hear of new levels; a request that came before it has a place elsewhere.
    """
    head = (
        f"POST /api/v1/namespaces/{namespace}/configmaps HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {config_of(plane, context='plain-user').user.token}\r\n"
        "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n"
    )
    async with AsyncExitStack() as connections:
        with anyio.fail_after(PATIENCE_SECONDS):
            taken = False
            while not taken:
                connection = await anyio.connect_tcp(
                    "127.0.0.1", server_port(plane), ssl_context=trusting(plane), tls_standard_compatible=False
                )
                await connections.enter_async_context(connection)
                await connection.send(head.encode())
                taken = await refused(client, namespace)
        yield


async def refused(client: ApiClient, namespace: str) -> bool:
    """Whether there is no room within two seconds."""
    for _ in range(20):
        try:
            await client.create(config("probe", namespace), dry_run=True)
        except TooManyRequestsError:
            return True
        await anyio.sleep(0.1)
    return False


async def until_copied(client: ApiClient, namespace: str, value: str) -> None:
    with anyio.fail_after(PATIENCE_SECONDS):
        while (await data_of(client, "a", namespace)).get("is") != value:  # noqa: ASYNC110 - the server's to know
            await anyio.sleep(0.2)


async def test_q10_an_event_for_a_key_that_is_to_come_back_in_an_hour_is_worked_on_now(plane: ControlPlane) -> None:
    async with client_of(plane) as client:
        namespace = await new_namespace(client)
        manager = Manager(manager_options(namespace), client=client)
        seen: list[str] = []

        async def note(request: Request) -> Result:
            seen.append((await data_of(client, request.name, namespace))["n"])
            return Result(requeue_after=timedelta(hours=1))

        manager.controller(ConfigMap).complete(note)
        async with starting(manager):
            await client.create(config("a", namespace, n="1"))
            await eventually(lambda: seen == ["1"], "the first")
            await anyio.sleep(0.3)
            await client.patch(ConfigMap, "a", MergePatch({"data": {"n": "2"}}), namespace=namespace)
            await eventually(lambda: seen == ["1", "2"], "the second")


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def test_q11_objects_that_come_and_go_leave_nothing_behind(plane: ControlPlane) -> None:
    async with client_of(plane) as client:
        namespace = await new_namespace(client)
        manager = Manager(manager_options(namespace), client=client)
        reconciled: set[str] = set()

        async def note(request: Request) -> Result:
            found = await manager.client.find(ConfigMap, request.name, namespace=request.namespace)
            if found is not None:
                reconciled.add(request.name)
                return Result(requeue_after=timedelta(hours=1))
            return Result()

        controller = manager.controller(ConfigMap).options(max_concurrent=4).complete(note)
        informer = manager.informers.informer(ConfigMap, namespace)
        path = f"/api/v1/namespaces/{namespace}/configmaps"

        async def come_and_go(prefix: str, times: int) -> None:
            for number in range(times):
                name = f"{prefix}-{number}"
                await client.raw.request("POST", path, body=codec_of(ConfigMap).encode(config(name, namespace)))
                await eventually(lambda name=name: name in reconciled, name)  # type: ignore[misc]
                await client.delete(ConfigMap, name, namespace=namespace)

        async def several(prefix: str, times: int) -> tuple[int, int, int]:
            """Descriptors, threads, and bytes of memory, after some have come and gone."""
            async with anyio.create_task_group() as tasks:
                for number in range(4):
                    tasks.start_soon(come_and_go, f"{prefix}{number}", times)
            await eventually(lambda: len(informer.store) == 0, "all gone")
            await anyio.sleep(0.5)
            reconciled.clear()
            gc.collect()
            return open_descriptors(), threading.active_count(), tracemalloc.get_traced_memory()[0]

        async with starting(manager):
            tracemalloc.start()
            try:
                await several("warm", 10)
                before = await several("first", 25)
                after = await several("second", 50)
            finally:
                tracemalloc.stop()
        assert len(controller.queue) == 0
        assert after[0] <= before[0] + 2
        assert after[1] <= before[1]
        assert after[2] - before[2] < 200 * 250, "200 objects, and not even their documents"


async def test_q13_a_cache_that_is_seconds_behind_makes_no_child_twice(plane: ControlPlane) -> None:
    async with (
        client_of(plane) as direct,
        http_proxy(server_port(plane), trusting(plane)) as proxy,
        client_of(plane, port=proxy.tcp.port, plain=True) as client,
    ):
        namespace = await new_namespace(direct)
        manager = Manager(manager_options(namespace), client=client)
        reconciles = 0

        async def make_child(request: Request) -> Result:
            nonlocal reconciles
            owner = await manager.client.find(ConfigMap, request.name, namespace=request.namespace)
            if owner is None:
                return Result()
            if await manager.client.find(Secret, request.name, namespace=request.namespace) is None:
                references = [owner_reference_to(owner)]
                child = ObjectMeta(name=request.name, namespace=request.namespace, ownerReferences=references)
                await manager.client.create(Secret(metadata=child))
            reconciles += 1
            return Result()

        manager.controller(ConfigMap).owns(Secret).complete(make_child)
        async with starting(manager):
            await eventually(lambda: len(proxy.watching("secrets") + proxy.watching("configmaps")) == 2, "watches")
            (behind,) = proxy.watching("secrets")
            behind.hold()
            await direct.create(config("a", namespace))
            for number in range(4):
                await eventually(lambda number=number: reconciles > number, "a reconcile")  # type: ignore[misc]
                await direct.patch(ConfigMap, "a", MergePatch({"data": {"n": str(number)}}), namespace=namespace)
            await eventually(lambda: reconciles >= 5, "reconciles with a cache that shows no child")
            assert len(manager.informers.informer(Secret, namespace).store) == 0
            behind.release()
            await eventually(lambda: len(manager.informers.informer(Secret, namespace).store) == 1, "the child")
        made = [target for method, target in proxy.requests if method == "POST" and "/secrets" in target]
        assert len(made) == 1


async def test_q14_an_edit_between_our_write_and_its_echo_is_reconciled(plane: ControlPlane) -> None:
    async with (
        client_of(plane) as direct,
        http_proxy(server_port(plane), trusting(plane)) as proxy,
        client_of(plane, port=proxy.tcp.port, plain=True) as client,
    ):
        namespace = await new_namespace(direct)
        manager = Manager(manager_options(namespace), client=client)
        seen: list[dict[str, str]] = []
        written = anyio.Event()

        async def copy(request: Request) -> Result:
            found = await manager.client.get(ConfigMap, request.name, namespace=request.namespace)
            data = data_in(found)
            seen.append(data)
            if data.get("is") != data["wanted"]:
                (echo,) = proxy.watching("configmaps")
                echo.hold()
                patch = MergePatch({"data": {"is": data["wanted"]}})
                await manager.client.patch(ConfigMap, request.name, patch, namespace=request.namespace)
                written.set()
            return Result()

        manager.controller(ConfigMap).complete(copy)
        async with starting(manager):
            await eventually(lambda: len(proxy.watching("configmaps")) == 1, "a watch")
            await direct.create(config("a", namespace, wanted="1"))
            with anyio.fail_after(PATIENCE_SECONDS):
                await written.wait()
            await direct.patch(ConfigMap, "a", MergePatch({"data": {"wanted": "2"}}), namespace=namespace)
            written = anyio.Event()
            assert seen[-1]["wanted"] == "1"
            (echo,) = proxy.watching("configmaps")
            echo.release()
            with anyio.fail_after(PATIENCE_SECONDS):
                await written.wait()
            (echo,) = proxy.watching("configmaps")
            echo.release()
        assert await data_of(direct, "a", namespace) == {"wanted": "2", "is": "2"}
