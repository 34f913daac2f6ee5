"""Who the client is to the server: tokens, plugins, certificates; over every transport, in real time."""

from __future__ import annotations

import base64
import json
import ssl
import stat
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.streams.tls import TLSAttribute
from lightkube.resources.core_v1 import ConfigMap

from loopback import (
    CHUNKED,
    Exchange,
    Handler,
    MakeTransport,
    Server,
    chunk,
    config,
    get,
    reply,
    serving,
    using,
)
from opsdk.client import HttpxTransport, LeanTransport, RawClient
from opsdk.errors import ApiConnectionError, ConfigurationError, UnauthorizedError
from opsdk.models import resource_of
from opsdk.testing.controlplane._pki import Authority
from opsdk.types import Json

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


@pytest.fixture(params=[HttpxTransport, LeanTransport])
def make_transport(request: pytest.FixtureRequest) -> object:
    return request.param


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ({"token": "t"}, "Bearer t"),
        ({"username": "u", "password": "p:w"}, "Basic dTpwOnc="),
        ({"username": "u"}, None),
    ],
)
async def test_static_credentials_are_sent(
    make_transport: MakeTransport, user: Mapping[str, Json], expected: str | None
) -> None:
    async def handler(exchange: Exchange) -> bytes:
        return reply(status="401 Unauthorized")

    async with serving(handler) as server, using(make_transport(config(server.url, user=user))) as transport:
        assert (await transport.request(get())).status == 401
    assert [one.headers.get("authorization") for one in server.exchanges] == [expected], "asked once: no other is known"


async def test_impersonation_is_sent(make_transport: MakeTransport) -> None:
    async def handler(exchange: Exchange) -> bytes:
        return reply()

    user: Mapping[str, Json] = {"as": "boss", "as-groups": ["a"]}
    async with serving(handler) as server, using(make_transport(config(server.url, user=user))) as transport:
        await transport.request(get())
    (exchange,) = server.exchanges
    assert exchange.headers["impersonate-user"] == "boss"
    assert exchange.headers["impersonate-group"] == "a"


async def test_w04_a_rotated_token_is_read_again_and_no_other_watch_notices(
    make_transport: MakeTransport, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("one\n")
    good = "one"

    async def handler(exchange: Exchange) -> bytes | None:
        if exchange.headers.get("authorization") != f"Bearer {good}":
            return reply(status="401 Unauthorized")
        if "watch=true" not in exchange.target:
            return reply()
        event = {"type": "ADDED", "object": {"metadata": {"name": exchange.headers["authorization"]}}}
        await exchange.stream.send(CHUNKED + chunk(json.dumps(event).encode() + b"\n"))
        await anyio.sleep_forever()
        return None

    user: Mapping[str, Json] = {"tokenFile": str(token)}
    config_maps = resource_of(ConfigMap)
    async with serving(handler) as server, using(make_transport(config(server.url, user=user))) as transport:
        client = RawClient(transport)
        async with client.watch(config_maps) as first:
            assert b"Bearer one" in (await anext(first)).object
            token.write_text("two\n")
            good = "two"
            async with client.watch(config_maps) as second:
                assert b"Bearer two" in (await anext(second)).object
            assert await client.request("GET", "/x") == b"{}"
            with anyio.move_on_after(0.1) as scope:
                await anext(first)
            assert scope.cancelled_caught, "the first watch goes on"
    tokens = [one.headers["authorization"] for one in server.exchanges]
    assert tokens == ["Bearer one", "Bearer one", "Bearer two", "Bearer two"]


async def test_a_token_that_stays_rejected_is_an_unauthorized_error(
    make_transport: MakeTransport, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("bad-s3cret")

    async def handler(exchange: Exchange) -> bytes:
        return reply(b'{"kind":"Status","reason":"Unauthorized","message":"Unauthorized"}', status="401 Unauthorized")

    user: Mapping[str, Json] = {"tokenFile": str(token)}
    async with serving(handler) as server, using(make_transport(config(server.url, user=user))) as transport:
        with pytest.raises(UnauthorizedError) as caught:
            await RawClient(transport).request("GET", "/x")
    assert "s3cret" not in str(caught.value)
    assert len(server.exchanges) == 1


async def test_a_missing_token_file_is_named(make_transport: MakeTransport, tmp_path: Path) -> None:
    user: Mapping[str, Json] = {"tokenFile": str(tmp_path / "none")}
    async with using(make_transport(config("http://127.0.0.1:1", user=user))) as transport:
        with pytest.raises(ConfigurationError, match="none is missing or empty"):
            await transport.request(get())


def plugin(tmp_path: Path, body: str, *, version: str = "v1", **more: Json) -> Mapping[str, Json]:
    """A user whose credentials come from a program that counts its runs in a file."""
    script = tmp_path / "plugin"
    script.write_text(
        f"#!{sys.executable}\n"
        "import json, os, pathlib, sys\n"
        f"runs = pathlib.Path({str(tmp_path / 'runs')!r})\n"
        "count = int(runs.read_text()) + 1 if runs.exists() else 1\n"
        "runs.write_text(str(count))\n"
        "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        "def give(**status):\n"
        "    print(json.dumps({'apiVersion': info['apiVersion'], 'kind': 'ExecCredential', 'status': status}))\n"
        f"{body}\n"
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return {
        "exec": {"apiVersion": f"client.authentication.k8s.io/{version}", "command": str(script), **more},
    }


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_an_exec_plugin_is_run_once_until_it_expires_or_is_rejected(
    make_transport: MakeTransport, tmp_path: Path, version: str
) -> None:
    good = "t1-hello"

    async def handler(exchange: Exchange) -> bytes | None:
        return reply() if exchange.headers.get("authorization") == f"Bearer {good}" else reply(status="401 No")

    user = plugin(
        tmp_path,
        "give(token=f't{count}-' + os.environ['WORD'], expirationTimestamp='2999-01-01T00:00:00Z')",
        version=version,
        env=[{"name": "WORD", "value": "hello"}],
    )
    async with serving(handler) as server, using(make_transport(config(server.url, user=user))) as transport:
        for _ in range(3):
            assert (await transport.request(get())).status == 200
        assert (tmp_path / "runs").read_text() == "1"
        good = "t2-hello"
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(transport.request, get())
        assert (await transport.request(get())).status == 200
        assert (tmp_path / "runs").read_text() == "2", "five rejected requests asked for one new token"


async def test_an_expired_token_of_an_exec_plugin_is_renewed_before_it_is_sent(
    make_transport: MakeTransport, tmp_path: Path
) -> None:
    async def handler(exchange: Exchange) -> bytes:
        return reply()

    user = plugin(tmp_path, "give(token=f't{count}', expirationTimestamp='2020-01-01T00:00:00Z')")
    async with serving(handler) as server, using(make_transport(config(server.url, user=user))) as transport:
        await transport.request(get())
        await transport.request(get())
    assert [one.headers["authorization"] for one in server.exchanges] == ["Bearer t1", "Bearer t2"]


async def test_an_exec_plugin_that_asks_is_told_about_the_cluster(
    make_transport: MakeTransport, tmp_path: Path
) -> None:
    async def handler(exchange: Exchange) -> bytes:
        return reply()

    user = plugin(tmp_path, "give(token=info['spec']['cluster']['server'])", provideClusterInfo=True)
    async with serving(handler) as server, using(make_transport(config(server.url, user=user))) as transport:
        await transport.request(get())
    assert server.exchanges[0].headers["authorization"] == f"Bearer {server.url}"


@pytest.mark.parametrize(
    ("body", "error", "text"),
    [
        (
            "print('s3cret'); sys.exit('please  log in\\n first')",
            ApiConnectionError,
            "ended with 1: please log in first$",
        ),
        ("print('s3cret: no JSON')", ConfigurationError, "did not print an ExecCredential"),
        ("give(clientCertificateData='x')", ConfigurationError, "a client certificate without its key"),
        ("give(token='s3cret', clientKeyData='x')", ConfigurationError, "or a key without certificate"),
        ("give()", ConfigurationError, "gave neither a token nor a client certificate"),
        (
            "print(json.dumps({'apiVersion': 'other', 'status': {'token': 's3cret'}}))",
            ConfigurationError,
            "ExecCredential of 'other', not of 'client.authentication.k8s.io/v1'",
        ),
    ],
)
async def test_an_exec_plugin_that_fails_is_named_and_its_output_is_not_shown(
    make_transport: MakeTransport, tmp_path: Path, body: str, error: type[Exception], text: str
) -> None:
    async with using(make_transport(config("http://127.0.0.1:1", user=plugin(tmp_path, body)))) as transport:
        with pytest.raises(error, match=text) as caught:
            await transport.request(get())
    assert "s3cret" not in str(caught.value)
    assert str(tmp_path / "plugin") in str(caught.value)


async def test_an_exec_plugin_that_is_not_there_comes_with_its_hint(
    make_transport: MakeTransport, tmp_path: Path
) -> None:
    user: Mapping[str, Json] = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(tmp_path / "none"),
            "installHint": "Install it from the shop",
        }
    }
    async with using(make_transport(config("http://127.0.0.1:1", user=user))) as transport:
        with pytest.raises(ConfigurationError, match=r"none' cannot be run: .*\. Install it from the shop"):
            await transport.request(get())


@pytest.mark.parametrize(
    ("user", "text"),
    [
        (
            {"exec": {"apiVersion": "client.authentication.k8s.io/v1alpha1", "command": "x"}},
            "v1alpha1' is not supported",
        ),
        (
            {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "x", "interactiveMode": "Always"}},
            "interactiveMode is Always",
        ),
        ({"auth-provider": {"name": "gcp"}}, "auth-provider is not supported"),
        ({"client-certificate-data": "eA=="}, "without a client-key"),
        ({"client-key-data": "eA=="}, "without a client-certificate"),
        ({"client-certificate-data": "eA==", "client-key-data": "eA=="}, "client-certificate and user.client-key: not"),
        ({"client-certificate": "/none", "client-key": "/none"}, "client-key: No such file"),
        ({"client-certificate-data": "x", "client-key-data": "eA=="}, "client-certificate-data is not base64"),
    ],
)
async def test_credentials_that_cannot_be_used_are_refused_at_once(
    make_transport: MakeTransport, user: Mapping[str, Json], text: str
) -> None:
    with pytest.raises(ConfigurationError, match=text):
        make_transport(config("https://127.0.0.1:1", user=user))


@pytest.mark.parametrize(
    ("cluster", "text"),
    [
        ({"certificate-authority-data": "x"}, "certificate-authority-data is not base64"),
        ({"certificate-authority-data": "eA=="}, "certificate-authority-data holds no certificate"),
        ({"certificate-authority": "/none"}, "certificate-authority /none: No such file"),
        ({"certificate-authority": "/none", "insecure-skip-tls-verify": True}, "exclude each other"),
    ],
)
async def test_a_certificate_authority_that_cannot_be_used_is_refused_at_once(
    make_transport: MakeTransport, cluster: Mapping[str, Json], text: str
) -> None:
    with pytest.raises(ConfigurationError, match=text):
        make_transport(config("https://127.0.0.1:1", cluster=cluster))


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate authority, a server `kube` and two clients."""
    folder = tmp_path_factory.mktemp("pki")
    authority = Authority(folder)
    authority.issue("server", common_name="server", addresses=("kube",))
    for name in ("client", "client2"):
        authority.issue(name, common_name=name)
    return folder


async def secure(exchange: Exchange) -> bytes:
    return reply(b"secure")


@asynccontextmanager
async def serving_tls(pki: Path, handler: Handler = secure) -> AsyncGenerator[Server]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=pki / "ca.crt")
    context.load_cert_chain(pki / "server.crt", pki / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    async with serving(handler, tls=context) as server:
        yield server


def peer_of(exchange: Exchange) -> str:
    """The client that the certificate names; the content of the certificate holds the name as it is."""
    certificate = exchange.stream.extra(TLSAttribute.peer_certificate_binary)
    assert certificate is not None
    return "client2" if b"client2" in certificate else "client"


def base64_of(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


@pytest.mark.parametrize("how", ["files", "data"])
async def test_tls_with_certificates_on_both_sides(make_transport: MakeTransport, pki: Path, how: str) -> None:
    if how == "files":
        cluster: Mapping[str, Json] = {"certificate-authority": str(pki / "ca.crt")}
        user: Mapping[str, Json] = {
            "client-certificate": str(pki / "client.crt"),
            "client-key": str(pki / "client.key"),
        }
    else:
        cluster = {"certificate-authority-data": base64_of(pki / "ca.crt"), "certificate-authority": "/not/this"}
        user = {
            "client-certificate-data": base64_of(pki / "client.crt"),
            "client-key-data": base64_of(pki / "client.key"),
        }
    async with serving_tls(pki) as server:
        url = f"https://127.0.0.1:{server.port}"
        named = config(url, user=user, cluster={**cluster, "tls-server-name": "kube"})
        async with using(make_transport(named)) as transport:
            assert (await transport.request(get())).body == b"secure"
        async with using(make_transport(config(url, user=user, cluster=cluster))) as transport:
            with pytest.raises(ApiConnectionError, match="certificate") as caught:
                await transport.request(get())
            assert not caught.value.sent
        unknown = config(url, user=user, cluster={"tls-server-name": "kube"})
        async with using(make_transport(unknown)) as transport:
            with pytest.raises(ApiConnectionError, match="certificate"):
                await transport.request(get())
        trusting = config(url, user=user, cluster={"insecure-skip-tls-verify": True})
        async with using(make_transport(trusting)) as transport:
            assert (await transport.request(get())).body == b"secure"


GIVE_CERTIFICATE = """
name = "client" if count == 1 else "client2"
folder = pathlib.Path({folder!r})
give(
    clientCertificateData=(folder / (name + ".crt")).read_text(),
    clientKeyData=(folder / (name + ".key")).read_text(),
    expirationTimestamp="{expires}",
)
"""


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_an_exec_plugin_may_give_client_certificates_which_are_renewed_with_their_connections(
    make_transport: MakeTransport, pki: Path, tmp_path: Path, version: str
) -> None:
    good = "client"

    async def handler(exchange: Exchange) -> bytes:
        assert "authorization" not in exchange.headers
        return reply() if peer_of(exchange) == good else reply(status="401 Unauthorized")

    body = GIVE_CERTIFICATE.format(folder=str(pki), expires="2999-01-01T00:00:00Z")
    cluster: Mapping[str, Json] = {"certificate-authority": str(pki / "ca.crt"), "tls-server-name": "kube"}
    async with serving_tls(pki, handler) as server:
        settings = config(
            f"https://127.0.0.1:{server.port}", user=plugin(tmp_path, body, version=version), cluster=cluster
        )
        async with using(make_transport(settings)) as transport:
            for _ in range(3):
                assert (await transport.request(get())).status == 200
            good = "client2"
            for _ in range(3):
                assert (await transport.request(get())).status == 200
            async with transport.stream(get()) as stream:
                assert stream.status == 200
    assert (tmp_path / "runs").read_text() == "2", "asked for once, and once more after the rejection"


async def test_an_expired_client_certificate_of_an_exec_plugin_is_renewed_before_it_is_used(
    make_transport: MakeTransport, pki: Path, tmp_path: Path
) -> None:
    peers: list[str] = []

    async def handler(exchange: Exchange) -> bytes:
        peers.append(peer_of(exchange))
        return reply()

    body = GIVE_CERTIFICATE.format(folder=str(pki), expires="2020-01-01T00:00:00Z")
    cluster: Mapping[str, Json] = {"certificate-authority": str(pki / "ca.crt"), "tls-server-name": "kube"}
    async with serving_tls(pki, handler) as server:
        settings = config(f"https://127.0.0.1:{server.port}", user=plugin(tmp_path, body), cluster=cluster)
        async with using(make_transport(settings)) as transport:
            await transport.request(get())
            await transport.request(get())
    assert peers == ["client", "client2"]


async def test_a_client_certificate_of_an_exec_plugin_that_cannot_be_used_is_an_error_without_its_text(
    make_transport: MakeTransport, tmp_path: Path
) -> None:
    user = plugin(tmp_path, "give(clientCertificateData='s3cret', clientKeyData='s3cret')")
    async with using(make_transport(config("https://127.0.0.1:1", user=user))) as transport:
        with pytest.raises(ConfigurationError, match="client certificate of the exec plugin: not usable") as caught:
            await transport.request(get())
    assert "s3cret" not in str(caught.value)
