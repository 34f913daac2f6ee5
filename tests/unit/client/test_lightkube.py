"""Lightkube's own client, reached through ours: what it says who it is, logs, exec, and the gate of writes."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import anyio
import lightkube
import pytest
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap

from loopback import CHUNKED, Exchange, chunk, config, reply, serving
from opsdk.client import ApiClient, LeanTransport
from opsdk.errors import ConfigurationError, LeadershipLostError
from opsdk.types import Json

# lightkube's client knows asyncio only where it watches or runs plugins; logs and exec work on both
pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


async def test_logs_come_line_by_line_with_our_credentials_which_are_read_again_when_rejected(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    seen: list[tuple[str, str, str]] = []

    async def handler(exchange: Exchange) -> bytes | None:
        headers = exchange.headers
        if headers["authorization"] == "Bearer old":
            token.write_text("new")
            return reply(status="401 Unauthorized")
        seen.append((exchange.target.partition("?")[0], headers["authorization"], headers["impersonate-user"]))
        return CHUNKED + chunk(b"one\ntw") + chunk(b"o\n") + chunk(b"")

    user: Mapping[str, Json] = {"tokenFile": str(token), "as": "boss"}
    async with serving(handler) as server, ApiClient.from_config(config(server.url, user=user)) as client:
        plain = client.lightkube()
        try:
            lines = [line async for line in plain.log("p", namespace="n", tail_lines=2, newlines=False)]
        finally:
            await plain.close()
    assert lines == ["one", "two"]
    assert seen == [("/api/v1/namespaces/n/pods/p/log", "Bearer new", "boss")]


def frame(data: bytes, *, opcode: int = 2) -> bytes:
    """One WebSocket frame of a server."""
    return bytes([0x80 | opcode, len(data)]) + data


async def test_a_command_can_be_run_in_a_pod() -> None:
    async def handler(exchange: Exchange) -> bytes | None:
        assert exchange.headers["authorization"] == "Bearer t"
        key = exchange.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode(), usedforsecurity=False).digest()).decode()
        await exchange.stream.send(
            (
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                f"Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n"
            ).encode()
        )
        status = json.dumps({"kind": "Status", "status": "Success"}).encode()
        await exchange.stream.send(frame(b"\x01hello\n") + frame(b"\x03" + status))
        await exchange.stream.receive()
        return frame(b"\x03\xe8", opcode=8)

    async with serving(handler) as server, ApiClient.from_config(config(server.url, user={"token": "t"})) as client:
        plain = client.lightkube()
        with anyio.fail_after(60):
            done = await plain.exec("p", namespace="n", command=["echo", "hello"], stdout=True)
        await plain.close()
    assert (done.exit_code, done.stdout) == (0, "hello\n")
    assert "/pods/p/exec?command=echo&command=hello&stdout=true" in server.exchanges[0].target


async def test_the_gate_of_writes_stands_before_lightkubes_writes_and_exec_too() -> None:
    async def handler(exchange: Exchange) -> bytes:
        return reply(b'{"metadata": {"name": "c"}}')

    def closed() -> None:
        raise LeadershipLostError("lease", "me", "somebody else may lead")

    async with serving(handler) as server, ApiClient.from_config(config(server.url), field_manager="me") as client:
        plain = client.with_gate(closed).lightkube()
        assert (await plain.get(ConfigMap, "c", namespace="n")).metadata is not None
        with pytest.raises(LeadershipLostError):
            await plain.create(ConfigMap(metadata=ObjectMeta(name="c", namespace="n")))
        with pytest.raises(LeadershipLostError):
            await plain.exec("p", namespace="n", command="ls")
        await plain.close()
        free = client.lightkube()
        await free.create(ConfigMap(metadata=ObjectMeta(name="c", namespace="n")))
        await free.close()
    assert [one.target for one in server.exchanges] == [
        "/api/v1/namespaces/n/configmaps/c",
        "/api/v1/namespaces/n/configmaps?fieldManager=me",
    ]


async def test_the_namespace_is_the_contexts_as_lightkube_has_it() -> None:
    settings = config("http://127.0.0.1:1")
    async with ApiClient.from_config(settings) as client:
        plain = client.lightkube()
        assert isinstance(plain, lightkube.AsyncClient)
        assert plain.namespace == "default"
        await plain.close()


async def test_a_client_made_from_a_transport_cannot_tell_where_the_server_is() -> None:
    async with ApiClient(LeanTransport(config("http://127.0.0.1:1"))) as client:
        with pytest.raises(ConfigurationError, match=r"ApiClient\.from_config"):
            client.lightkube()
