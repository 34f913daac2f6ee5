"""A manager with its endpoints and its signals: real sockets, real threads, real time."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import ConfigMap

from loopback import config as config_of
from opsdk.client import ApiClient, HttpRequest, HttpResponse, HttpStream, LeanTransport, Transport
from opsdk.errors import ConfigurationError, ForbiddenError, OpsdkError
from opsdk.manager import Manager, ManagerOptions, Sharding
from opsdk.models import CustomResource, Model, codec_of
from opsdk.testing import ApiServer
from opsdk.types import MergePatch, Request, Result

pytestmark = pytest.mark.anyio

SERVING = ManagerOptions(
    leader_election=False,
    metrics_bind_address="127.0.0.1:0",
    probe_bind_address="127.0.0.1:0",
    block_warning=timedelta(seconds=0.2),
    log_format=None,
)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class NotInstalledSpec(Model):
    size: int = 0


class NotInstalled(CustomResource[NotInstalledSpec, Model], group="demo.example.com", version="v1"):
    """A kind whose CRD is missing."""


class _Data(msgspec.Struct):
    data: dict[str, str] = {}


def value_of(found: ConfigMap) -> str:
    # By way of the document: lightkube declares a bare dict.
    return msgspec.json.decode(codec_of(ConfigMap).encode(found), type=_Data).data["k"]


class NoWatch:
    """A transport to a server whose RBAC rules forbid watches."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.forbidden = True

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        return await self.inner.request(request)

    @asynccontextmanager
    async def stream(self, request: HttpRequest, /) -> AsyncGenerator[HttpStream]:
        if self.forbidden:
            raise ForbiddenError(403, reason="Forbidden", message="cannot watch resource")
        async with self.inner.stream(request) as stream:
            yield stream

    async def aclose(self) -> None:
        await self.inner.aclose()


class Elsewhere:
    """An API server on a loop and a thread of its own, which goes on while the test's loop is blocked."""

    def __init__(self, portal: BlockingPortal, server: ApiServer, url: str) -> None:
        self._portal = portal
        self._client = server.client(field_manager="somebody-else")
        self.config = config_of(url)

    def create(self, obj: ConfigMap) -> None:
        self._portal.call(self._client.create, obj)

    def change(self, name: str, value: str) -> None:
        async def patch() -> None:
            await self._client.patch(ConfigMap, name, MergePatch({"data": {"k": value}}), namespace="default")

        self._portal.call(patch)

    def delete(self, name: str) -> None:
        async def delete() -> None:
            await self._client.delete(ConfigMap, name, namespace="default")

        self._portal.call(delete)


@contextmanager
def a_server_elsewhere() -> Generator[Elsewhere]:
    with (
        start_blocking_portal("asyncio") as portal,
        portal.wrap_async_context_manager(ApiServer()) as server,
        portal.wrap_async_context_manager(server.serve()) as served,
    ):
        yield Elsewhere(portal, server, served.url)


def ask_now(url: str | None, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"{url}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def ask(url: str | None, path: str) -> tuple[int, str]:
    return await anyio.to_thread.run_sync(ask_now, url, path)


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not condition():  # noqa: ASYNC110 - whatever it is, it happens by itself
            await anyio.sleep(0.02)


async def until_readiness(manager: Manager, code: int, text: str = "") -> str:
    """Wait until `/readyz` answers with this code, and something that matches."""
    await until(lambda: manager.probes_url is not None)
    with anyio.fail_after(60):
        while True:
            answer = await ask(manager.probes_url, "/readyz?verbose")
            if answer[0] == code and re.search(text, answer[1]):
                return answer[1]
            await anyio.sleep(0.05)


async def until_alive(url: str | None) -> None:
    """Wait until `/livez` says that the loop turns."""
    with anyio.fail_after(60):
        while (await ask(url, "/livez"))[0] != 200:  # noqa: ASYNC110 - it turns by itself
            await anyio.sleep(0.05)


async def until_ready(manager: Manager) -> None:
    await until_readiness(manager, 200)


async def test_probes_and_metrics_are_served_while_it_runs_and_no_thread_stays() -> None:
    async with ApiServer() as server:
        manager = Manager(SERVING, client=server.client())
        manager.informers.informer(ConfigMap)
        database: list[str | None] = ["no connection"]
        manager.add_readiness_check("database", lambda: database[0])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.start)
            await until_readiness(manager, 500, r"\[-\]database failed: no connection")
            database[0] = None
            await until_ready(manager)
            code, text = await ask(manager.probes_url, "/readyz?verbose")
            assert (code, text.splitlines()) == (
                200,
                [
                    "[+]loop ok",
                    "[+]manager ok",
                    "[+]caches ok",
                    "[+]leadership ok",
                    "[+]database ok",
                    "readyz check passed",
                ],
            )
            assert (await ask(manager.probes_url, "/healthz"))[0] == 200
            code, text = await ask(manager.metrics_url, "/metrics")
            assert code == 200
            assert "rest_client_requests_total" in text
            manager.stop()
        assert manager.probes_url is None
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("opsdk")]


async def test_a_standby_is_ready_its_caches_are_kept_up_to_date_and_metrics_tell_who_leads() -> None:
    elected = replace(SERVING, leader_election=True, leader_election_id="op", leader_election_namespace="default")
    async with ApiServer() as server, anyio.create_task_group() as tasks:
        client = server.client()
        managers = [Manager(elected, client=client) for _ in range(2)]
        reconciled: list[int] = []
        for number, manager in enumerate(managers):

            async def reconcile(_: Request, number: int = number) -> Result:
                reconciled.append(number)
                return Result()

            manager.controller(ConfigMap).complete(reconcile)
        leader, standby = managers
        tasks.start_soon(leader.start)
        await until_ready(leader)
        await until(lambda: leader.is_leader)
        tasks.start_soon(standby.start)
        await until_ready(standby)
        await client.create(ConfigMap(metadata=ObjectMeta(name="c", namespace="default"), data={"k": "v"}))
        informer = standby.informers.informer(ConfigMap)
        await until(lambda: Request("c", "default") in informer.store)
        await until(lambda: bool(reconciled))
        assert set(reconciled) == {0}
        shown = [(await ask(manager.metrics_url, "/metrics"))[1] for manager in managers]
        assert 'leader_election_master_status{name="op"} 1.0' in shown[0]
        assert 'leader_election_master_status{name="op"} 0.0' in shown[1]
        assert (await ask(standby.probes_url, "/readyz"))[0] == 200
        leader.stop()
        await until(lambda: standby.is_leader)
        await until(lambda: set(reconciled) == {0, 1})
        standby.stop()


async def test_members_that_divide_the_objects_are_ready_and_a_blocked_loop_silences_no_scrape() -> None:
    sharded = replace(
        SERVING,
        sharding=Sharding(),
        leader_election_id="op",
        leader_election_namespace="default",
        lease_duration=timedelta(seconds=3),
        renew_deadline=timedelta(seconds=2),
        retry_period=timedelta(seconds=0.2),
    )
    async with ApiServer() as server, anyio.create_task_group() as tasks:
        for number in range(10):
            await server.client().create(ConfigMap(metadata=ObjectMeta(name=f"c{number}", namespace="default")))
        managers = [Manager(sharded, client=server.client()) for _ in range(2)]

        async def reconcile(_: Request) -> Result:
            return Result()

        for manager in managers:
            manager.controller(ConfigMap).complete(reconcile)
            tasks.start_soon(manager.start)
        for manager in managers:
            await until_ready(manager)
        members = [shards for manager in managers if (shards := manager.shards) is not None]
        await until(lambda: all(shards.settled and shards.members == 2 for shards in members))
        urls = [manager.metrics_url for manager in managers]
        texts: list[str] = []

        def scrape() -> None:
            texts.extend(ask_now(url, "/metrics")[1] for url in urls)

        thread = threading.Thread(target=scrape)
        thread.start()
        thread.join()  # blocks the loop, and the threads answer all the same
        found = [re.findall(r'opsdk_shard_objects\{controller="configmap"\} (\d+)', text) for text in texts]
        assert sum(int(count) for counts in found for count in counts) == 10
        assert all("opsdk_shard_members 2.0" in text for text in texts)
        for manager in managers:
            manager.stop()


async def test_w15_liveness_shows_a_blocked_loop_and_no_event_is_lost() -> None:
    seen: list[str] = []

    class Notes:
        async def reconcile(self, request: Request, /) -> Result:
            seen.append(request.name)
            return Result()

    async with ApiServer() as server:
        client = server.client()
        manager = Manager(replace(SERVING, liveness_block=timedelta(seconds=0.6)), client=client)
        manager.controller(ConfigMap).complete(Notes())
        answers: list[tuple[int, str]] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.start)
            await until_ready(manager)
            url = manager.probes_url

            blocked = threading.Event()

            def probe() -> None:
                blocked.wait()
                time.sleep(1.2)
                answers.append(ask_now(url, "/livez"))

            prober = threading.Thread(target=probe)
            prober.start()
            for number in range(20):
                await client.create(ConfigMap(metadata=ObjectMeta(name=f"c{number}", namespace="default")))
            blocked.set()
            prober.join()  # the block is the point
            await until(lambda: len(seen) >= 20)
            assert sorted(seen) == sorted(f"c{number}" for number in range(20))
            await until_alive(url)
            manager.stop()
        ((code, text),) = answers
        assert code == 500
        assert "the event loop has not turned for" in text


async def test_w11_a_missing_crd_makes_it_not_ready_by_name_and_nothing_else_stops() -> None:
    seen: list[str] = []

    class Notes:
        async def reconcile(self, request: Request, /) -> Result:
            seen.append(request.name)
            return Result()

    async with ApiServer() as server:
        client = server.client()
        await client.create(ConfigMap(metadata=ObjectMeta(name="c", namespace="default")))
        manager = Manager(SERVING, client=client)
        manager.controller(ConfigMap).complete(Notes())
        manager.controller(NotInstalled).complete(Notes())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.start)
            await until_readiness(manager, 500, r"caches failed: NotInstalled\S* has not synced: cannot list: .*404")
            await until(lambda: seen == ["c"])
            await server.install(NotInstalled)
            await until_ready(manager)
            manager.stop()


async def test_w11_a_watch_that_is_forbidden_makes_it_not_ready_by_name_of_kind_and_verb() -> None:
    async with ApiServer() as server:
        network = NoWatch(server.transport())
        manager = Manager(SERVING, client=ApiClient(network))
        manager.informers.informer(ConfigMap)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.start)
            await until_readiness(manager, 500, r"caches failed: ConfigMap\S* cannot watch: .*403")
            network.forbidden = False
            await until_ready(manager)
            manager.stop()


async def test_w15_what_happens_while_the_loop_is_blocked_is_not_lost_and_the_newest_state_is_served() -> None:
    def config(name: str, value: str = "") -> ConfigMap:
        return ConfigMap(metadata=ObjectMeta(name=name, namespace="default"), data={"k": value})

    with a_server_elsewhere() as elsewhere:
        seen: list[tuple[str, str]] = []
        answers: list[tuple[int, str]] = []
        client = ApiClient(LeanTransport(elsewhere.config))
        manager = Manager(replace(SERVING, liveness_block=timedelta(seconds=0.6)), client=client)

        async def reconcile(request: Request) -> Result:
            found = await manager.client.find(ConfigMap, request.name, namespace=request.namespace)
            seen.append((request.name, "gone" if found is None else value_of(found)))
            return Result()

        manager.controller(ConfigMap).complete(reconcile)
        for name in ("changed", "deleted"):
            elsewhere.create(config(name, "0"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.start)
            await until(lambda: len(seen) == 2)
            seen.clear()
            url = manager.probes_url

            def meanwhile() -> None:
                for number in range(50):
                    elsewhere.create(config(f"new{number}", "1"))
                for number in range(1, 10):
                    elsewhere.change("changed", str(number))
                elsewhere.delete("deleted")
                time.sleep(1.2)
                answers.append(ask_now(url, "/livez"))

            others = threading.Thread(target=meanwhile)
            others.start()
            others.join()  # the block is the point
            await until(lambda: len({name for name, _ in seen}) >= 52)
            await until_alive(url)
            manager.stop()
        await client.aclose()
    assert answers[0][0] == 500
    assert dict(seen) == {"changed": "9", "deleted": "gone"} | {f"new{number}": "1" for number in range(50)}


async def test_a_taken_port_ends_the_start_with_an_error_and_frees_what_was_taken_before() -> None:
    async with ApiServer() as server:
        first = Manager(SERVING, client=server.client())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first.start)
            await until_ready(first)
            assert first.metrics_url is not None
            taken = first.metrics_url.removeprefix("http://")
            second = Manager(replace(SERVING, metrics_bind_address=taken), client=server.client())
            with pytest.raises(ConfigurationError, match=taken):
                await second.start()
            first.stop()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("opsdk")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_run_in_order(number: signal.Signals) -> None:
    ended: list[str] = []

    class Work:
        async def run(self) -> None:
            try:
                await anyio.sleep_forever()
            finally:
                ended.append("work")

    async with ApiServer() as server:
        manager = Manager(SERVING, client=server.client())
        manager.add(Work())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.run)
            await until_ready(manager)
            os.kill(os.getpid(), number)
    assert ended == ["work"]


async def test_a_second_signal_cancels_at_once() -> None:
    class Endless:
        started = False

        async def reconcile(self, request: Request, /) -> Result:
            self.started = True
            await anyio.sleep(1000)
            return Result()

    async with ApiServer() as server:
        client = server.client()
        await client.create(ConfigMap(metadata=ObjectMeta(name="c", namespace="default")))
        manager, endless = Manager(SERVING, client=client), Endless()
        manager.controller(ConfigMap).complete(endless)
        with anyio.fail_after(20):  # the grace is 25 s
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(manager.run)
                await until(lambda: endless.started)
                os.kill(os.getpid(), signal.SIGTERM)
                await anyio.sleep(0.5)
                os.kill(os.getpid(), signal.SIGTERM)


async def test_the_first_signal_after_a_stop_of_the_programs_own_does_not_cut_the_grace_short() -> None:
    async with ApiServer() as server:
        client = server.client()
        await client.create(ConfigMap(metadata=ObjectMeta(name="c", namespace="default")))
        ends: list[str] = []
        started = anyio.Event()

        async def reconcile(_: Request) -> Result:
            started.set()
            try:
                await anyio.sleep(1)
                ends.append("finished")
            finally:
                ends.append("ended")
            return Result()

        manager = Manager(SERVING, client=client)
        manager.controller(ConfigMap).complete(reconcile)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.run)
            await started.wait()
            manager.stop()
            await anyio.sleep(0.1)
            os.kill(os.getpid(), signal.SIGTERM)
    assert ends == ["finished", "ended"]


async def test_what_a_runnable_raises_leaves_run_bare() -> None:
    class Failing:
        async def run(self) -> None:
            raise LookupError("broken")

    async with ApiServer() as server:
        manager = Manager(SERVING, client=server.client())
        manager.add(Failing())
        with pytest.raises(LookupError, match="broken"):
            await manager.run()


async def test_a_client_from_the_environment_is_the_managers_own_and_closed_with_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with ApiServer() as server, server.serve() as served:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(served.kubeconfig())
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        manager = Manager(replace(SERVING, leader_election=True, leader_election_id="op", serve_metrics=False))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.start)
            await until_ready(manager)
            await until(lambda: manager.is_leader)
            manager.stop()
        lease = await server.client().get(Lease, "op", namespace="default")
        assert lease.spec is not None
        assert not lease.spec.holderIdentity
        with pytest.raises((OpsdkError, RuntimeError), match=r"(?i)close"):
            await manager.api_client.list(ConfigMap, namespace="default")
