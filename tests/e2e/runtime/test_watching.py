"""Caches at a real kube-apiserver: cut off, silent, compacted, refused, restarted."""

from __future__ import annotations

import gc
import json
import logging
import tracemalloc
import uuid
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.to_thread
import msgspec
import pytest
from lightkube.models.core_v1 import ObjectReference
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.models.rbac_v1 import PolicyRule, RoleRef, Subject
from lightkube.resources.core_v1 import ConfigMap, Event, Namespace, Secret, ServiceAccount
from lightkube.resources.rbac_authorization_v1 import ClusterRole, ClusterRoleBinding

from e2e.runtime.harness import (
    GROUP,
    PATIENCE_SECONDS,
    Gadget,
    GadgetSpec,
    client_of,
    control_plane,
    eventually,
    following,
    new_namespace,
    server_port,
    trusting,
)
from etcd_gateway import Etcd
from opsdk import CustomResource
from opsdk.cache import ObjectAdded, ObjectDeleted, ReflectorOptions
from opsdk.client import ApiClient
from opsdk.errors import AlreadyExistsError, ApiTimeoutError, ForbiddenError, NotFoundError
from opsdk.models import crd_manifest, resource_of
from opsdk.testing.controlplane import ControlPlane
from opsdk.types import JsonObject
from tcp_proxy import HttpProxy, Proxied, http_proxy, tcp_proxy

pytestmark = [pytest.mark.anyio, pytest.mark.controlplane]


@pytest.fixture
def anyio_backend() -> str:
    return "trio"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with control_plane(Gadget) as plane:
        yield plane


def config(name: str, namespace: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace), data=data)


def event(name: str, namespace: str) -> Event:
    """The one kind that kube-apiserver keeps no history of: it asks etcd."""
    return Event(
        metadata=ObjectMeta(name=name, namespace=namespace),
        involvedObject=ObjectReference(namespace=namespace, name="nobody"),
        reason="Test",
    )


def gadget(name: str, namespace: str, padding: str = "") -> Gadget:
    return Gadget(metadata=ObjectMeta(name=name, namespace=namespace), spec=GadgetSpec(padding=padding))


def key_of(name: str, namespace: str) -> str:
    """Where etcd has it."""
    return f"/registry/{GROUP}/gadgets/{namespace}/{name}"


def stored(name: str, namespace: str, padding: str = "") -> JsonObject:
    """A Gadget as kube-apiserver would have written it."""
    metadata: JsonObject = {
        "name": name,
        "namespace": namespace,
        "uid": str(uuid.uuid4()),
        "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    spec: JsonObject = {"value": 0, "padding": padding}
    return {"apiVersion": f"{GROUP}/v1", "kind": "Gadget", "metadata": metadata, "spec": spec}


def status(code: int, reason: str, message: str) -> bytes:
    document = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code}
    body = json.dumps({**document, "message": message}).encode()
    return (
        f"HTTP/1.1 {code} {reason}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )


EMPTY = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"


async def test_w01_a_deletion_while_the_watch_is_down_and_etcd_is_compacted_is_one_ordinary_delete(
    plane: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "opsdk.cache")
    async with (
        client_of(plane) as direct,
        tcp_proxy(server_port(plane)) as proxy,
        client_of(plane, port=proxy.port) as client,
    ):
        namespace = await new_namespace(direct)
        for name in ("a", "b"):
            await direct.create(event(name, namespace))
        async with following(client, Event, namespace) as events:
            assert events.names == {"a", "b"}
            events.changes.clear()
            proxy.refusing = True
            proxy.cut()
            await direct.delete(Event, "a", namespace=namespace)
            await direct.create(event("c", namespace))
            await anyio.to_thread.run_sync(Etcd(plane.folder).compact)
            proxy.refusing = False
            await events.sees("b", "c")
    assert "listing again" in caplog.text, "the server said 410"
    (gone,) = [change for change in events.changes if isinstance(change, ObjectDeleted)]
    assert gone.old.decode().reason == "Test"
    assert [change.new.header.name for change in events.changes if isinstance(change, ObjectAdded)] == ["c"]


async def test_w01_a_watch_that_is_answered_with_410_is_a_new_list(plane: ControlPlane) -> None:
    async with (
        client_of(plane) as direct,
        http_proxy(server_port(plane), trusting(plane)) as proxy,
        client_of(plane, port=proxy.tcp.port, plain=True) as client,
    ):
        namespace = await new_namespace(direct)
        await direct.create(config("a", namespace))
        async with following(client, ConfigMap, namespace) as configs:
            await eventually(lambda: bool(proxy.watching("configmaps")), "a watch")
            proxy.tcp.refusing = True
            proxy.tcp.cut()
            await direct.delete(ConfigMap, "a", namespace=namespace)
            gone = [status(410, "Expired", "too old resource version")]
            proxy.substitute = lambda _, target: gone.pop() if gone and "watch=true" in target else None
            proxy.tcp.refusing = False
            await configs.sees()
            assert not gone
            assert isinstance(configs.changes[-1], ObjectDeleted)
            assert len(proxy.targets("configmaps", watch=False)) == 2


async def test_w01_what_happened_while_kube_apiserver_was_dead_is_seen_when_it_is_back(
    plane: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    """Its history begins with its start, so a watch from before is too old; etcd is written to meanwhile."""
    caplog.set_level(logging.INFO, "opsdk.cache")
    etcd = Etcd(plane.folder)
    async with client_of(plane) as client:
        namespace = await new_namespace(client)
        for name in ("a", "b"):
            await client.create(gadget(name, namespace))
        async with following(client, Gadget, namespace) as gadgets:
            gadgets.changes.clear()
            plane.api_server.kill()
            await anyio.to_thread.run_sync(etcd.delete, key_of("a", namespace))
            await anyio.to_thread.run_sync(etcd.put, {key_of("c", namespace): stored("c", namespace)})
            await anyio.to_thread.run_sync(etcd.compact)
            plane.api_server.start()
            await anyio.to_thread.run_sync(plane.wait_ready)
            await gadgets.sees("b", "c")
    assert "listing again" in caplog.text, "the server said 410"
    assert sorted(type(change).__name__ for change in gadgets.changes) == ["ObjectAdded", "ObjectDeleted"]


async def test_w02_watches_that_end_empty_at_once_are_a_handful_of_requests(plane: ControlPlane) -> None:
    async with (
        client_of(plane) as direct,
        http_proxy(server_port(plane), trusting(plane)) as proxy,
        client_of(plane, port=proxy.tcp.port, plain=True) as client,
    ):
        namespace = await new_namespace(direct)
        proxy.substitute = lambda _, target: EMPTY if "watch=true" in target else None
        async with following(client, ConfigMap, namespace) as configs:
            await anyio.sleep(2)
            assert len(proxy.targets("configmaps", watch=True)) <= 5
            await eventually(lambda: len(proxy.targets("configmaps", watch=True)) >= 2, "it is tried again")
            proxy.substitute = lambda _method, _target: None
            await direct.create(config("a", namespace))
            await configs.sees("a")
        assert len(proxy.targets("configmaps", watch=False)) == 1, "no list was needed"


async def test_w03_a_peer_that_falls_silent_is_given_up_and_the_watch_resumed(plane: ControlPlane) -> None:
    options = ReflectorOptions(inactivity=timedelta(seconds=5))
    async with (
        client_of(plane) as direct,
        http_proxy(server_port(plane), trusting(plane)) as proxy,
        client_of(plane, port=proxy.tcp.port, plain=True) as client,
    ):
        namespace = await new_namespace(direct)
        async with following(client, ConfigMap, namespace, options=options) as configs:
            await eventually(lambda: bool(proxy.watching("configmaps")), "a watch")
            (silent,) = proxy.watching("configmaps")
            before = silent.received
            await direct.create(config("first", namespace))
            await eventually(lambda: silent.received > before, "the watch has begun")
            await configs.sees("first")
            silent.hold()
            await direct.create(config("a", namespace))
            await anyio.sleep(1)
            assert configs.names == {"first"}
            assert configs.informer.freshness >= timedelta(seconds=1)
            await eventually(lambda: isinstance(configs.informer.last_error, ApiTimeoutError), "the silence is told")
            await configs.sees("first", "a")
            await eventually(lambda: configs.informer.freshness < timedelta(seconds=5), "it hears of the server again")
        assert len(proxy.targets("configmaps", watch=False)) == 1, "no list was needed"


async def test_w03_a_peer_that_accepts_a_watch_and_never_answers_is_given_up_as_soon(plane: ControlPlane) -> None:
    """As a kube-apiserver does that is stopped: the system accepts connections in its name."""
    options = ReflectorOptions(inactivity=timedelta(seconds=1.5))
    async with (
        client_of(plane) as direct,
        http_proxy(server_port(plane), trusting(plane)) as proxy,
        client_of(plane, port=proxy.tcp.port, plain=True) as client,
    ):
        namespace = await new_namespace(direct)
        async with following(client, ConfigMap, namespace, options=options) as configs:
            await eventually(lambda: bool(proxy.watching("configmaps")), "a watch")
            proxy.tcp.stall()
            proxy.tcp.cut()
            await eventually(lambda: isinstance(configs.informer.last_error, ApiTimeoutError), "no answer", 20)
            proxy.tcp.resume()
            await direct.create(config("a", namespace))
            await configs.sees("a")


async def token_of(client: ApiClient, namespace: str, secret: str) -> str:
    """A token of the service account `operator` that is good as long as a Secret is there."""
    bound = await client.create(Secret(metadata=ObjectMeta(name=secret, namespace=namespace)))
    assert bound.metadata is not None
    reference = {"apiVersion": "v1", "kind": "Secret", "name": secret, "uid": bound.metadata.uid}
    answer = await client.raw.request(
        "POST",
        f"/api/v1/namespaces/{namespace}/serviceaccounts/operator/token",
        body=json.dumps({"spec": {"boundObjectRef": reference, "expirationSeconds": 3600}}).encode(),
    )
    return str(msgspec.json.decode(answer)["status"]["token"])


async def test_w04_a_service_accounts_token_is_rotated_and_only_the_watch_that_meets_it_notices(
    plane: ControlPlane, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    async with client_of(plane) as direct, http_proxy(server_port(plane), trusting(plane)) as proxy:
        namespace = await new_namespace(direct)
        await direct.create(ServiceAccount(metadata=ObjectMeta(name="operator", namespace=namespace)))
        await direct.create(
            ClusterRoleBinding(
                metadata=ObjectMeta(name=namespace),
                roleRef=RoleRef(apiGroup="rbac.authorization.k8s.io", kind="ClusterRole", name="cluster-admin"),
                subjects=[Subject(kind="ServiceAccount", name="operator", namespace=namespace)],
            )
        )
        old = await token_of(direct, namespace, "old")
        file.write_text(old)
        client = client_of(plane, port=proxy.tcp.port, plain=True, user={"tokenFile": str(file)})
        async with (
            client,
            following(client, ConfigMap, namespace) as configs,
            following(client, Secret, namespace) as secrets,
        ):
            await eventually(lambda: len(proxy.watching("configmaps") + proxy.watching("secrets")) == 2, "watches")
            file.write_text(await token_of(direct, namespace, "new"))
            await direct.delete(Secret, "old", namespace=namespace)
            await until_refused(plane, old)
            proxy.tcp.cut(*proxy.watching("configmaps"))
            await direct.create(config("a", namespace))
            await configs.sees("a")
            await direct.create(Secret(metadata=ObjectMeta(name="b", namespace=namespace)))
            await secrets.sees("b", "new")
            assert secrets.informer.last_error is None
        assert len(proxy.targets("secrets", watch=True)) == 1
        assert len(proxy.targets("configmaps", watch=True)) == 3, "the first, the one that met a 401, and the second"
        assert len(proxy.targets("configmaps", watch=False)) == 1


async def until_refused(plane: ControlPlane, token: str) -> None:
    """kube-apiserver believes a token for ten seconds after it has looked at it."""
    async with client_of(plane, user={"token": token}) as client:
        with anyio.fail_after(PATIENCE_SECONDS):
            while True:
                try:
                    await client.raw.request("GET", "/api/v1/namespaces/default")
                except Exception as error:  # noqa: BLE001 - whichever it is, for a moment
                    if "401" in str(error):
                        return
                await anyio.sleep(0.3)


async def test_w06_bookmarks_move_a_quiet_kind_on(plane: ControlPlane) -> None:
    """kube-apiserver sends one shortly before a watch's time is up."""
    options = ReflectorOptions(watch_timeout=timedelta(seconds=3))
    async with (
        client_of(plane) as direct,
        http_proxy(server_port(plane), trusting(plane)) as proxy,
        client_of(plane, port=proxy.tcp.port, plain=True) as client,
    ):
        namespace = await new_namespace(direct)

        def versions() -> list[int]:
            """From which ones it was watched."""
            targets = proxy.targets("gadgets", watch=True)
            return [int(parse_qs(urlsplit(target).query)["resourceVersion"][0]) for target in targets]

        async with following(client, Gadget, namespace, options=options):
            await direct.create(config("of-another-kind", namespace))
            await direct.list(Gadget, namespace=namespace)  # which makes kube-apiserver ask etcd how far it is
            # mostly the second does; a kube-apiserver that stands still at that moment sends no bookmark
            await eventually(lambda: versions()[-1:] > versions()[:1], "a watch from a newer version")
        assert versions() == sorted(versions())
        assert len(proxy.targets("gadgets", watch=False)) == 1


async def test_w07_a_list_whose_token_expires_between_two_pages_is_whole_in_the_end(plane: ControlPlane) -> None:
    etcd = Etcd(plane.folder)
    async with (
        client_of(plane) as direct,
        http_proxy(server_port(plane), trusting(plane)) as proxy,
        client_of(plane, port=proxy.tcp.port, plain=True) as client,
    ):
        namespace = await new_namespace(direct)
        for number in range(6):
            await direct.create(event(f"e{number}", namespace))
        compacted: list[int] = []
        synced: list[bool] = []

        def compact_before_the_second_page(method: str, target: str) -> None:
            if "watch=true" not in target:
                synced.append(events.informer.synced)
            if "continue=" in target and not compacted:
                compacted.append(etcd.compact())

        proxy.substitute = compact_before_the_second_page
        async with following(client, Event, namespace, options=ReflectorOptions(page_size=2), wait=False) as events:
            await eventually(lambda: events.informer.synced, "a whole list")
            assert events.names == {f"e{number}" for number in range(6)}
            assert not any(synced), "nothing was served half"
        lists = proxy.targets("events", watch=False)
    assert len(compacted) == 1
    assert [("continue=" in target) for target in lists] == [False, True, False, True, True]


async def test_w09_too_large_a_resource_version_is_followed_by_a_list_without_one(plane: ControlPlane) -> None:
    async with (
        client_of(plane) as direct,
        http_proxy(server_port(plane), trusting(plane)) as proxy,
        client_of(plane, port=proxy.tcp.port, plain=True) as client,
    ):
        namespace = await new_namespace(direct)
        with pytest.raises(Exception, match="Too large resource version") as caught:
            await direct.raw.list_page(
                resource_of(ConfigMap),
                namespace=namespace,
                resource_version="99999999",
                resource_version_match="NotOlderThan",
            )
        answers = [status(504, "Timeout", str(caught.value))]
        proxy.substitute = lambda _, target: answers.pop() if answers and "watch=true" not in target else None
        async with following(client, ConfigMap, namespace):
            assert not answers
        lists = proxy.targets("configmaps", watch=False)
        assert len(lists) == 2
        assert not any("resourceVersion" in target for target in lists)


class Latecomer(CustomResource[GadgetSpec], group=f"late.{GROUP}", version="v1"):
    """Of a CRD that is not there at first."""


async def test_w11_what_is_not_served_or_not_allowed_is_named_and_comes_back_within_ten_seconds(
    plane: ControlPlane,
) -> None:
    async with (
        client_of(plane) as direct,
        client_of(plane, context="plain-user") as client,
        following(direct, Latecomer, None, wait=False) as latecomers,
        following(client, Secret, "default", wait=False) as secrets,
    ):
        await eventually(lambda: isinstance(latecomers.informer.last_error, NotFoundError), "a 404")
        await eventually(lambda: isinstance(secrets.informer.last_error, ForbiddenError), "a 403")
        assert "cannot list" in latecomers.informer.trouble
        assert "latecomers" in latecomers.informer.trouble
        assert "cannot list" in secrets.informer.trouble
        assert "secrets" in secrets.informer.trouble
        await anyio.sleep(6)  # long enough for the backoff to have grown
        await install(direct, crd_manifest(Latecomer))
        rule = PolicyRule(apiGroups=[""], resources=["secrets"], verbs=["list", "watch"])
        await direct.create(ClusterRole(metadata=ObjectMeta(name="secrets"), rules=[rule]))
        await direct.create(
            ClusterRoleBinding(
                metadata=ObjectMeta(name="secrets"),
                roleRef=RoleRef(apiGroup="rbac.authorization.k8s.io", kind="ClusterRole", name="secrets"),
                subjects=[Subject(apiGroup="rbac.authorization.k8s.io", kind="User", name="plain-user")],
            )
        )
        async with client_of(plane, context="plain-user") as plain:
            await until_answered(direct, resource_of(Latecomer).path())
            await until_answered(plain, "/api/v1/namespaces/default/secrets")
        # ten seconds, and what a busy machine may take on top
        await eventually(lambda: latecomers.informer.synced and secrets.informer.synced, "both come back", 20)
        await eventually(lambda: latecomers.informer.last_error is secrets.informer.last_error is None, "no trouble")


async def until_answered(client: ApiClient, path: str) -> None:
    """kube-apiserver takes a moment to serve a new kind, and to hear of new rights."""
    with anyio.fail_after(PATIENCE_SECONDS):
        while True:
            try:
                await client.raw.request("GET", path)
            except (ForbiddenError, NotFoundError):
                await anyio.sleep(0.1)
            else:
                return


async def install(client: ApiClient, manifest: JsonObject) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    await client.raw.request("POST", path, body=json.dumps(manifest).encode())


MANY = 800
PADDING = "x" * 4000
PAGE = 25
EVERYTHING_BYTES = MANY * len(PADDING)


@pytest.fixture(scope="module")
def many(plane: ControlPlane) -> str:
    """A namespace with many Gadgets, put into etcd."""
    names = [f"g{number:05}" for number in range(MANY)]
    Etcd(plane.folder).put({key_of(name, "many"): stored(name, "many", PADDING) for name in names})
    return "many"


async def make_sure_of(namespace: str, client: ApiClient) -> None:
    with suppress(AlreadyExistsError):
        await client.create(Namespace(metadata=ObjectMeta(name=namespace)))


def peak_over_the_end() -> int:
    """How many bytes more there were at the worst moment than there are now."""
    gc.collect()
    now, peak = tracemalloc.get_traced_memory()
    return peak - now


def resumes(target: str) -> bool:
    """Whether a watch goes on from a version."""
    return "watch=true" in target and "sendInitialEvents" not in target


@pytest.mark.parametrize("streamed", [False, True], ids=["pages", "stream"])
async def test_w12_w13_the_first_sync_and_a_new_list_take_the_store_and_a_page(
    plane: ControlPlane, many: str, *, streamed: bool
) -> None:
    options = ReflectorOptions(page_size=PAGE, stream_lists=streamed)
    async with (
        client_of(plane) as direct,
        http_proxy(server_port(plane), trusting(plane)) as proxy,
        client_of(plane, port=proxy.tcp.port, plain=True) as client,
        following(client, ConfigMap, many),  # what a first request costs is paid
    ):
        tracemalloc.start()
        try:
            async with following(client, Gadget, many, options=options) as gadgets:
                before = len(gadgets.names)
                assert before >= MANY
                gadgets.changes.clear()
                assert peak_over_the_end() < EVERYTHING_BYTES / 3
                await eventually(lambda: bool(proxy.watching("gadgets")), "a watch")
                gone = [status(410, "Expired", "too old resource version")]
                proxy.substitute = lambda _, target: gone.pop() if gone and resumes(target) else None
                tracemalloc.reset_peak()
                proxy.tcp.refusing = True
                proxy.tcp.cut(*proxy.watching("gadgets"))
                await make_sure_of(many, direct)
                await direct.create(gadget(f"new-{before}", many))
                proxy.tcp.refusing = False
                await eventually(lambda: len(gadgets.names) == before + 1, "a new list")
                assert not gone
                assert peak_over_the_end() < EVERYTHING_BYTES / 3
        finally:
            tracemalloc.stop()


async def test_w14_fifty_watches_do_not_hold_up_other_requests_of_their_client(plane: ControlPlane) -> None:
    async with client_of(plane) as client, AsyncExitStack() as watches:
        namespace = await new_namespace(client)
        for _ in range(50):
            await watches.enter_async_context(client.watch(ConfigMap, namespace=namespace, resource_version="0"))
        with anyio.fail_after(PATIENCE_SECONDS):
            async with anyio.create_task_group() as tasks:
                for number in range(50):
                    tasks.start_soon(client.create, config(f"c{number}", namespace))
        assert len(await client.list(ConfigMap, namespace=namespace)) == 50


async def test_w16_a_streamed_list_that_breaks_starts_over_and_a_watch_that_breaks_after_it_goes_on(
    plane: ControlPlane, many: str
) -> None:
    async with (
        client_of(plane) as direct,
        http_proxy(server_port(plane), trusting(plane)) as proxy,
        client_of(plane, port=proxy.tcp.port, plain=True) as client,
    ):
        proxy.tcp.bytes_per_second = EVERYTHING_BYTES / 3
        options = ReflectorOptions(stream_lists=True)
        async with following(client, Gadget, many, options=options, wait=False) as gadgets:
            await break_in_the_middle(proxy)
            assert not gadgets.informer.synced
            proxy.tcp.bytes_per_second = None
            await eventually(lambda: gadgets.informer.synced, "a whole list")
            everything = gadgets.names
            assert len(everything) >= MANY

            await make_sure_of(many, direct)
            # after the bookmark that ends it: the watch goes on
            streams = len(initial_streams(proxy))
            proxy.tcp.cut(*proxy.watching("gadgets"))
            await direct.create(gadget("after", many))
            await gadgets.sees(*everything, "after")
            assert len(initial_streams(proxy)) == streams

            # before it: what was known stays until the next one is whole
            gone = [status(410, "Expired", "too old resource version")]
            proxy.substitute = lambda _, target: gone.pop() if gone and resumes(target) else None
            proxy.tcp.bytes_per_second = EVERYTHING_BYTES / 3
            proxy.tcp.refusing = True
            proxy.tcp.cut()
            await direct.delete(Gadget, "after", namespace=many)
            proxy.tcp.refusing = False
            await break_in_the_middle(proxy)
            assert gadgets.names == {*everything, "after"}
            proxy.tcp.bytes_per_second = None
            await gadgets.sees(*everything)


def initial_streams(proxy: HttpProxy) -> list[str]:
    return [target for target in proxy.targets("gadgets", watch=True) if not resumes(target)]


async def break_in_the_middle(proxy: HttpProxy) -> None:
    def half_way() -> list[Proxied]:
        return [one for one in proxy.watching("gadgets") if one.received > EVERYTHING_BYTES / 4]

    await eventually(lambda: bool(half_way()), "half of a list")
    proxy.tcp.cut(*half_way())
