"""What every transport over sockets has to hold, on both backends, in real time."""

from __future__ import annotations

import base64
import gzip
import json
import ssl
import stat
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qsl

import anyio
import anyio.abc
import pytest
from anyio.streams.tls import TLSListener
from lightkube.resources.core_v1 import ConfigMap

from opsdk.client import ApiClient, ClientConfig, HttpRequest, HttpxTransport, LeanTransport, RawClient, Transport
from opsdk.errors import ApiConnectionError, ApiTimeoutError, ConfigurationError, UnauthorizedError
from opsdk.models import resource_of
from opsdk.types import Json

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


MakeTransport = Callable[[ClientConfig], Transport]


@pytest.fixture(params=[HttpxTransport, LeanTransport])
def make_transport(request: pytest.FixtureRequest) -> object:
    return request.param


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request as the server saw it, and the connection it came on."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    connection: int
    stream: anyio.abc.ByteStream


Handler = Callable[[Exchange], Awaitable[bytes | None]]
"""Returns the raw answer to send; None ends the connection."""


@dataclass(slots=True)
class Server:
    port: int
    connections: int = 0
    exchanges: list[Exchange] = field(default_factory=list[Exchange])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def reply(body: bytes = b"{}", *, status: str = "200 OK", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


@asynccontextmanager
async def serving(handler: Handler, *, tls: ssl.SSLContext | None = None) -> AsyncGenerator[Server]:
    listener: anyio.abc.Listener[anyio.abc.ByteStream] = await anyio.create_tcp_listener(
        local_host="127.0.0.1", backlog=256
    )
    server = Server(listener.extra(anyio.abc.SocketAttribute.local_port))
    if tls is not None:
        listener = TLSListener(listener, ssl_context=tls, standard_compatible=False)

    async def serve(stream: anyio.abc.ByteStream) -> None:
        server.connections += 1
        number = server.connections
        data = b""
        try:
            async with stream:
                while True:
                    while b"\r\n\r\n" not in data:
                        data += await stream.receive()
                    head, data = data.split(b"\r\n\r\n", 1)
                    first, *lines = head.decode().split("\r\n")
                    headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in lines)}
                    length = int(headers.get("content-length", "0"))
                    while len(data) < length:
                        data += await stream.receive()
                    method, target, _ = first.split(" ")
                    exchange = Exchange(
                        method=method,
                        target=target,
                        headers=headers,
                        body=data[:length],
                        connection=number,
                        stream=stream,
                    )
                    data = data[length:]
                    server.exchanges.append(exchange)
                    answer = await handler(exchange)
                    if answer is None:
                        return
                    await stream.send(answer)
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, ssl.SSLError):
            pass

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        try:
            yield server
        finally:
            tasks.cancel_scope.cancel()


def config(
    server: str, *, user: Mapping[str, Json] | None = None, cluster: Mapping[str, Json] | None = None
) -> ClientConfig:
    return ClientConfig.from_dict(
        {
            "current-context": "x",
            "clusters": [{"name": "x", "cluster": {"server": server, **(cluster or {})}}],
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
            "users": [{"name": "x", "user": dict(user or {})}],
        }
    )


@asynccontextmanager
async def using(transport: Transport) -> AsyncGenerator[Transport]:
    try:
        yield transport
    finally:
        await transport.aclose()


@asynccontextmanager
async def connected(handler: Handler, make_transport: MakeTransport) -> AsyncGenerator[Transport]:
    async with serving(handler) as server, using(make_transport(config(server.url))) as transport:
        yield transport


def get(path: str = "/x", *, read_timeout: timedelta | None = None) -> HttpRequest:
    return HttpRequest(method="GET", path=path, read_timeout=read_timeout)


async def test_a_request_arrives_as_it_was_meant(make_transport: MakeTransport) -> None:
    async def handler(exchange: Exchange) -> bytes:
        return reply(b'{"a": 1}', status="201 Created", headers="X-Thing: Yes\r\n")

    async with serving(handler) as server, using(make_transport(config(f"{server.url}/prefix/"))) as transport:
        response = await transport.request(
            HttpRequest(
                method="PATCH",
                path="/api/v1/x/a%2Fb%25c",
                query=(("labelSelector", "a in (b,c)"), ("continue", "x+y/z=&é"), ("fieldSelector", "a=b\\,c")),
                headers={"content-type": "application/json", "user-agent": "opsdk/1"},
                body=b'{"x": 1}',
            )
        )
    assert (response.status, response.body, response.headers["x-thing"]) == (201, b'{"a": 1}', "Yes")
    (exchange,) = server.exchanges
    assert exchange.method == "PATCH"
    path, _, query = exchange.target.partition("?")
    assert path == "/prefix/api/v1/x/a%2Fb%25c"
    assert parse_qsl(query) == [
        ("labelSelector", "a in (b,c)"),
        ("continue", "x+y/z=&é"),
        ("fieldSelector", "a=b\\,c"),
    ]
    assert exchange.body == b'{"x": 1}'
    assert exchange.headers["content-type"] == "application/json"
    assert exchange.headers["user-agent"] == "opsdk/1"
    assert exchange.headers["host"] == f"127.0.0.1:{server.port}"
    assert "authorization" not in exchange.headers


@pytest.mark.parametrize("status", ["204 No Content", "302 Found", "404 Not Found", "503 Busy"])
async def test_any_status_is_an_answer(make_transport: MakeTransport, status: str) -> None:
    async def handler(exchange: Exchange) -> bytes:
        return f"HTTP/1.1 {status}\r\n".encode() + (
            b"\r\n" if status.startswith("204") else b"Content-Length: 2\r\nLocation: /y\r\n\r\nno"
        )

    async with serving(handler) as server, using(make_transport(config(server.url))) as transport:
        response = await transport.request(get())
        assert response.status == int(status[:3])
        async with transport.stream(get()) as stream:
            assert stream.status == int(status[:3])


async def test_compressed_answers_come_decompressed(make_transport: MakeTransport) -> None:
    body = gzip.compress(b"x" * 100_000)

    async def handler(exchange: Exchange) -> bytes:
        return reply(body, headers="Content-Encoding: gzip\r\n")

    async with serving(handler) as server, using(make_transport(config(server.url))) as transport:
        assert (await transport.request(get())).body == b"x" * 100_000


async def test_a_stream_asks_for_no_compression(make_transport: MakeTransport) -> None:
    """kube-apiserver would compress a watch in several gzip members, of which many readers see only the first."""

    async def handler(exchange: Exchange) -> bytes:
        return reply()

    async with (
        serving(handler) as server,
        using(make_transport(config(server.url))) as transport,
        transport.stream(get()) as stream,
    ):
        assert stream.status == 200
    assert server.exchanges[0].headers.get("accept-encoding", "identity") == "identity"


async def test_connections_are_used_again(make_transport: MakeTransport) -> None:
    async def handler(exchange: Exchange) -> bytes:
        return reply()

    async with serving(handler) as server, using(make_transport(config(server.url))) as transport:
        for _ in range(5):
            await transport.request(get())
    assert server.connections == 1


async def test_a_kept_connection_that_the_server_closed_is_not_used(make_transport: MakeTransport) -> None:
    async def handler(exchange: Exchange) -> bytes | None:
        await exchange.stream.send(reply())
        return None

    async with serving(handler) as server, using(make_transport(config(server.url))) as transport:
        for _ in range(3):
            await transport.request(HttpRequest(method="POST", path="/x", body=b"{}"))
            await anyio.sleep(0.05)
    assert server.connections == 3


async def test_a_refused_connection_says_that_nothing_was_sent(make_transport: MakeTransport) -> None:
    async def handler(exchange: Exchange) -> None:
        return None

    async with serving(handler) as server:
        url = server.url
    async with using(make_transport(config(url))) as transport:
        with pytest.raises(ApiConnectionError, match=r"GET http://127\.0\.0\.1.*/x: ") as caught:
            await transport.request(get())
        assert not caught.value.sent
        with pytest.raises(ApiConnectionError) as caught:
            async with transport.stream(get()):
                pass
        assert not caught.value.sent


async def test_a_connection_that_ends_without_an_answer_says_that_something_may_have_been_sent(
    make_transport: MakeTransport,
) -> None:
    async def handler(exchange: Exchange) -> None:
        return None

    async with serving(handler) as server, using(make_transport(config(server.url))) as transport:
        with pytest.raises(ApiConnectionError) as caught:
            await transport.request(HttpRequest(method="POST", path="/x", body=b"{}"))
        assert caught.value.sent
    assert len(server.exchanges) == 1


async def test_an_answer_that_is_cut_is_a_connection_error(make_transport: MakeTransport) -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort")

    async with serving(handler) as server, using(make_transport(config(server.url))) as transport:
        with pytest.raises(ApiConnectionError) as caught:
            await transport.request(get())
        assert caught.value.sent


async def test_what_is_not_http_is_a_connection_error(make_transport: MakeTransport) -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.stream.send(b"SSH-2.0-OpenSSH\r\n\r\n")

    async with serving(handler) as server, using(make_transport(config(server.url))) as transport:
        with pytest.raises(ApiConnectionError):
            await transport.request(get())


async def test_a_server_that_does_not_answer_in_time_is_a_timeout(make_transport: MakeTransport) -> None:
    async def handler(exchange: Exchange) -> bytes:
        await anyio.sleep(0 if exchange.target == "/fast" else 30)
        return reply()

    async with serving(handler) as server, using(make_transport(config(server.url))) as transport:
        with pytest.raises(ApiTimeoutError) as caught:
            await transport.request(get(read_timeout=timedelta(seconds=0.1)))
        assert caught.value.sent
        assert (await transport.request(get("/fast"))).status == 200


async def test_a_stream_comes_in_pieces_while_the_server_sends_them(make_transport: MakeTransport) -> None:
    go = anyio.Event()

    async def handler(exchange: Exchange) -> bytes:
        await exchange.stream.send(CHUNKED + chunk(b"one"))
        await go.wait()
        return chunk(b"two") + chunk(b"")

    async with connected(handler, make_transport) as transport, transport.stream(get()) as stream:
        with anyio.fail_after(5):
            assert await anext(stream.chunks) == b"one"
        go.set()
        assert [piece async for piece in stream.chunks] == [b"two"]


async def test_a_stream_that_is_cut_is_a_connection_error(make_transport: MakeTransport) -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.stream.send(CHUNKED + chunk(b"one"))

    async with connected(handler, make_transport) as transport, transport.stream(get()) as stream:
        assert await anext(stream.chunks) == b"one"
        with pytest.raises(ApiConnectionError):
            await anext(stream.chunks)


async def test_a_silent_stream_is_a_timeout(make_transport: MakeTransport) -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.stream.send(CHUNKED + chunk(b"one"))
        await anyio.sleep(30)

    quick = get(read_timeout=timedelta(seconds=0.2))
    async with connected(handler, make_transport) as transport, transport.stream(quick) as stream:
        assert await anext(stream.chunks) == b"one"
        with pytest.raises(ApiTimeoutError):
            await anext(stream.chunks)


async def test_leaving_a_stream_closes_its_connection(make_transport: MakeTransport) -> None:
    gone = anyio.Event()

    async def handler(exchange: Exchange) -> None:
        await exchange.stream.send(CHUNKED + chunk(b"one"))
        try:
            await exchange.stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            gone.set()

    async with connected(handler, make_transport) as transport:
        async with transport.stream(get()) as stream:
            await anext(stream.chunks)
        with anyio.fail_after(5):
            await gone.wait()


async def test_w14_many_watches_do_not_starve_ordinary_requests(make_transport: MakeTransport) -> None:
    async def handler(exchange: Exchange) -> bytes | None:
        if exchange.target == "/unary":
            return reply()
        await exchange.stream.send(CHUNKED + chunk(b"one"))
        await anyio.sleep_forever()
        return None

    async with connected(handler, make_transport) as transport, AsyncExitStack() as watches:
        for _ in range(120):
            stream = await watches.enter_async_context(transport.stream(get("/watch")))
            assert await anext(stream.chunks) == b"one"
        with anyio.fail_after(5):
            assert (await transport.request(get("/unary"))).status == 200


async def test_a_cancelled_request_does_not_spoil_the_next(make_transport: MakeTransport) -> None:
    async def handler(exchange: Exchange) -> bytes:
        if exchange.target == "/slow":
            await anyio.sleep(0.2)
            return reply(b"slow")
        return reply(b"fast")

    async with serving(handler) as server, using(make_transport(config(server.url))) as transport:
        for delay in (0, 0.01, 0.05):
            await transport.request(get("/fast"))
            with anyio.move_on_after(delay) as scope:
                await transport.request(get("/slow"))
            assert scope.cancelled_caught
            for _ in range(2):
                assert (await transport.request(get("/fast"))).body == b"fast"


async def test_however_requests_are_cancelled_nobody_gets_the_answer_of_another(make_transport: MakeTransport) -> None:
    async def handler(exchange: Exchange) -> bytes:
        number = int(exchange.target.removeprefix("/"))
        await anyio.sleep(number % 7 / 1000)
        return reply(exchange.target.encode() * (number % 5 * 20_000 + 1))

    wrong: list[str] = []
    answered = 0

    async def one(transport: Transport, number: int) -> None:
        nonlocal answered
        path = f"/{number}"
        with anyio.move_on_after(number % 11 / 1000 if number % 3 else None):
            body = (await transport.request(get(path))).body
            answered += 1
            if body != path.encode() * (number % 5 * 20_000 + 1):
                wrong.append(path)

    async with connected(handler, make_transport) as transport:
        for batch in range(10):
            async with anyio.create_task_group() as tasks:
                for number in range(30):
                    tasks.start_soon(one, transport, batch * 30 + number)
    assert wrong == []
    assert answered >= 100


async def test_a_closed_transport_says_so(make_transport: MakeTransport) -> None:
    transport = make_transport(config("http://127.0.0.1:1"))
    await transport.aclose()
    await transport.aclose()
    with pytest.raises(ApiConnectionError, match="closed"):
        await transport.request(get())
    with pytest.raises(ApiConnectionError, match="closed"):
        async with transport.stream(get()):
            pass


# Credentials


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
        ("give(clientCertificateData='x')", ConfigurationError, "client certificate, which is not supported"),
        ("give()", ConfigurationError, "gave no token"),
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
    """A certificate authority, a server `kube` and a client, made by the openssl program."""
    folder = tmp_path_factory.mktemp("pki")

    def openssl(*arguments: str) -> None:
        try:
            subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)
        except FileNotFoundError:
            pytest.skip("needs the openssl program")

    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *new_key, "-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.crt", "-days", "2")
    for name, extension in (("server", "subjectAltName=DNS:kube"), ("client", "extendedKeyUsage=clientAuth")):
        (folder / f"{name}.ext").write_text(extension)
        openssl("req", *new_key, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        signing = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", f"{name}.ext")
        openssl("x509", "-req", "-in", f"{name}.csr", *signing, "-out", f"{name}.crt", "-days", "2")
    return folder


@asynccontextmanager
async def serving_tls(pki: Path) -> AsyncGenerator[Server]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=pki / "ca.crt")
    context.load_cert_chain(pki / "server.crt", pki / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED

    async def handler(exchange: Exchange) -> bytes:
        return reply(b"secure")

    async with serving(handler, tls=context) as server:
        yield server


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


async def test_a_client_made_from_the_environment_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def handler(exchange: Exchange) -> bytes:
        assert exchange.headers["user-agent"].startswith("opsdk/")
        document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "team"}}
        return reply(json.dumps(document).encode())

    async with serving(handler) as server:
        file = tmp_path / "config"
        file.write_text(
            json.dumps(
                {
                    "current-context": "x",
                    "clusters": [{"name": "x", "cluster": {"server": server.url}}],
                    "contexts": [{"name": "x", "context": {"cluster": "x", "namespace": "team"}}],
                }
            )
        )
        monkeypatch.setenv("KUBECONFIG", str(file))
        async with ApiClient.from_env(field_manager="me") as client:
            assert (client.namespace, client.field_manager) == ("team", "me")
            found = await client.get(ConfigMap, "a", namespace="team")
            assert found.metadata is not None
            assert found.metadata.name == "a"
