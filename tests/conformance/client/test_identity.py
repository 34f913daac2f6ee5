"""Who the client is to a real kube-apiserver, and how it gets there: every kind of credential, contexts, proxies."""

from __future__ import annotations

import base64
import json
import stat
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.abc
import msgspec
import pytest
import yaml
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Namespace

from conformance.harness import new_name
from opsdk.client import ApiClient, ClientConfig, HttpxTransport, Impersonation, LeanTransport, Transport
from opsdk.errors import ApiConnectionError, ForbiddenError, UnauthorizedError
from opsdk.types import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.controlplane]

Make = Callable[[ClientConfig], Transport]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


@pytest.fixture(params=[LeanTransport, HttpxTransport])
def make(request: pytest.FixtureRequest) -> object:
    return request.param


def section(kubeconfig: Path, kind: str, name: str) -> dict[str, Any]:
    """An entry of the kubeconfig."""
    document = yaml.safe_load(kubeconfig.read_text())
    (found,) = [entry[kind] for entry in document[f"{kind}s"] if entry["name"] == name]
    return dict(found)


def with_user(kubeconfig: Path, user: JsonObject, **cluster: str) -> ClientConfig:
    """The same cluster, with another user."""
    document = yaml.safe_load(kubeconfig.read_text())
    return ClientConfig.from_dict(
        {
            "current-context": "x",
            "clusters": [{"name": "x", "cluster": {**document["clusters"][0]["cluster"], **cluster}}],
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
            "users": [{"name": "x", "user": user}],
        }
    )


@asynccontextmanager
async def client_of(make: Make, config: ClientConfig) -> AsyncGenerator[ApiClient]:
    async with ApiClient(make(config)) as client:
        yield client


async def who_am_i(client: ApiClient) -> str:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    answer = await client.raw.request("POST", path, body=json.dumps(review).encode())
    return str(msgspec.json.decode(answer)["status"]["userInfo"]["username"])


@pytest.mark.parametrize("context", ["admin", "token-admin"])
async def test_a_context_names_a_user_with_a_certificate_or_a_token(
    real_kubeconfig: Path, make: Make, context: str
) -> None:
    async with client_of(make, ClientConfig.from_files([real_kubeconfig], context=context)) as client:
        assert await client.list(Namespace)


async def test_a_user_without_rights_is_refused_with_what_was_asked_for(real_kubeconfig: Path, make: Make) -> None:
    async with client_of(make, ClientConfig.from_files([real_kubeconfig], context="plain-user")) as client:
        with pytest.raises(ForbiddenError, match='cannot list resource "configmaps"') as caught:
            await client.list(ConfigMap, namespace="default")
    assert (caught.value.code, caught.value.reason, caught.value.kind) == (403, "Forbidden", "configmaps")


async def test_an_admin_who_impersonates_a_plain_user_is_refused_like_that_user(
    real_kubeconfig: Path, make: Make
) -> None:
    admin = ClientConfig.from_files([real_kubeconfig])
    as_plain = replace(admin, impersonate=Impersonation(user="plain-user", groups=("visitors",)))
    async with client_of(make, as_plain) as client:
        assert await who_am_i(client) == "plain-user"
        for attempt in (
            client.get(ConfigMap, "c", namespace="default"),
            client.create(ConfigMap(metadata=ObjectMeta(name=new_name(), namespace="default"))),
            client.delete_collection(ConfigMap, namespace="default"),
        ):
            with pytest.raises(ForbiddenError, match='User "plain-user" cannot'):
                await attempt
        with pytest.raises(ForbiddenError, match='User "plain-user" cannot watch'):
            async with client.watch(ConfigMap, namespace="default"):
                pass
    async with ApiClient.from_config(as_plain) as ours:
        plain = ours.lightkube()
        with pytest.raises(Exception, match='User "plain-user" cannot'):
            await plain.get(ConfigMap, "c", namespace="default")
        await plain.close()


async def test_a_wrong_token_is_an_unauthorized_error(real_kubeconfig: Path, make: Make) -> None:
    async with client_of(make, with_user(real_kubeconfig, {"token": "wrong"})) as client:
        with pytest.raises(UnauthorizedError):
            await client.list(Namespace)


async def test_w04_a_token_file_is_read_again_when_its_token_is_rejected(
    real_kubeconfig: Path, make: Make, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(section(real_kubeconfig, "user", "token-admin")["token"])
    async with client_of(make, with_user(real_kubeconfig, {"tokenFile": str(token)})) as client:
        await client.list(Namespace)
    token.write_text("expired")
    async with client_of(make, with_user(real_kubeconfig, {"tokenFile": str(token)})) as client:
        with pytest.raises(UnauthorizedError):
            await client.list(Namespace)
        token.write_text(section(real_kubeconfig, "user", "token-admin")["token"])
        await client.list(Namespace)


async def test_the_pods_service_account_is_found_in_a_cluster(
    real_kubeconfig: Path, make: Make, tmp_path: Path
) -> None:
    admin = ClientConfig.from_files([real_kubeconfig])
    (tmp_path / "token").write_text(section(real_kubeconfig, "user", "token-admin")["token"])
    (tmp_path / "ca.crt").write_bytes(base64.b64decode(admin.cluster.certificate_auth_data or ""))
    (tmp_path / "namespace").write_text("team")
    url = urlsplit(admin.server)
    environ = {"KUBERNETES_SERVICE_HOST": url.hostname or "", "KUBERNETES_SERVICE_PORT": str(url.port)}
    config = ClientConfig.from_env(environ=environ, service_account=str(tmp_path))
    assert config.namespace == "team"
    async with client_of(make, config) as client:
        assert await client.list(Namespace)


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
@pytest.mark.parametrize("what", ["token", "certificate"])
async def test_an_exec_plugin_gives_a_token_or_a_client_certificate(
    real_kubeconfig: Path, make: Make, tmp_path: Path, version: str, what: str
) -> None:
    if what == "token":
        status = {"token": section(real_kubeconfig, "user", "token-admin")["token"]}
    else:
        admin = ClientConfig.from_files([real_kubeconfig], context="admin").user
        status = {
            "clientCertificateData": base64.b64decode(admin.client_cert_data or "").decode(),
            "clientKeyData": base64.b64decode(admin.client_key_data or "").decode(),
        }
    group = "client.authentication.k8s.io"
    credential = {"apiVersion": f"{group}/{version}", "kind": "ExecCredential", "status": status}
    plugin = tmp_path / "plugin"
    plugin.write_text(f"#!{sys.executable}\nprint({json.dumps(json.dumps(credential))})\n")
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    user: JsonObject = {"exec": {"apiVersion": f"{group}/{version}", "command": str(plugin)}}
    async with client_of(make, with_user(real_kubeconfig, user)) as client:
        assert await client.list(Namespace)
        assert await client.list(Namespace)


async def test_the_name_in_the_servers_certificate_can_be_another_than_the_host(
    real_kubeconfig: Path, make: Make
) -> None:
    user = section(real_kubeconfig, "user", "token-admin")
    right = with_user(real_kubeconfig, user, **{"tls-server-name": "kubernetes.default.svc"})
    async with client_of(make, right) as client:
        assert await client.list(Namespace)
    wrong = with_user(real_kubeconfig, user, **{"tls-server-name": "somebody.example.com"})
    async with client_of(make, wrong) as client:
        with pytest.raises(ApiConnectionError, match="certificate") as caught:
            await client.create(Namespace(metadata=ObjectMeta(name=new_name())))
        assert not caught.value.sent


@asynccontextmanager
async def proxy(seen: list[str]) -> AsyncGenerator[int]:
    """An HTTP proxy that tunnels what it is asked to."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")

    async def pipe(source: anyio.abc.ByteStream, sink: anyio.abc.ByteStream, scope: anyio.CancelScope) -> None:
        try:
            async for data in source:
                await sink.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        scope.cancel()

    async def serve(client: anyio.abc.SocketStream) -> None:
        async with client:
            head = b""
            while b"\r\n\r\n" not in head:
                head += await client.receive()
            method, target, _ = head.split(b"\r\n")[0].decode().split(" ")
            seen.append(f"{method} {target}")
            host, _, port = target.partition(":")
            async with await anyio.connect_tcp(host, int(port)) as server, anyio.create_task_group() as tasks:
                await client.send(b"HTTP/1.1 200 OK\r\n\r\n")
                tasks.start_soon(pipe, client, server, tasks.cancel_scope)
                tasks.start_soon(pipe, server, client, tasks.cancel_scope)

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield listener.extra(anyio.abc.SocketAttribute.local_port)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("where", ["kubeconfig", "environment"])
async def test_where_a_proxy_applies_requests_go_through_it(
    real_kubeconfig: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    async with proxy(seen) as port:
        user = section(real_kubeconfig, "user", "token-admin")
        url = f"http://127.0.0.1:{port}"
        if where == "kubeconfig":
            config = with_user(real_kubeconfig, user, **{"proxy-url": url})
        else:
            config = with_user(real_kubeconfig, user)
            monkeypatch.setenv("HTTPS_PROXY", url)
            monkeypatch.delenv("NO_PROXY", raising=False)
            monkeypatch.delenv("no_proxy", raising=False)
        async with ApiClient.from_config(config) as client:
            assert await client.list(Namespace)
            async with client.watch(Namespace) as events:
                await anext(events)
            plain = client.lightkube()
            await plain.get(Namespace, "default")
            await plain.close()
    target = urlsplit(config.server).netloc
    assert set(seen) == {f"CONNECT {target}"}
    assert len(seen) == 3
