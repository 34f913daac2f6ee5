"""What every transport over sockets has to hold, on both backends, in real time."""

from __future__ import annotations

import gzip
import json
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qsl

import anyio
import pytest
from lightkube.resources.core_v1 import ConfigMap

from loopback import (
    CHUNKED,
    Exchange,
    MakeTransport,
    chunk,
    config,
    connected,
    get,
    reply,
    serving,
    using,
)
from opsdk.client import ApiClient, HttpRequest, HttpxTransport, LeanTransport, Transport
from opsdk.errors import ApiConnectionError, ApiTimeoutError

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


@pytest.fixture(params=[HttpxTransport, LeanTransport])
def make_transport(request: pytest.FixtureRequest) -> object:
    return request.param


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
            with anyio.fail_after(60):
                while server.open:  # noqa: ASYNC110 - the server's side of it
                    await anyio.sleep(0.01)
            await anyio.sleep(0.02)
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
        with anyio.fail_after(60):
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

    quick = get(read_timeout=timedelta(seconds=0.6))
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
        with anyio.fail_after(60):
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
        with anyio.fail_after(60):
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
