"""The gate of writes is asked when there is a connection, right before the first byte goes, each time it goes."""

from __future__ import annotations

import anyio
import pytest
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap

from loopback import Exchange, MakeTransport, Server, config, reply, serving, using
from opsdk.client import ApiClient, HttpRequest, HttpxTransport, LeanTransport, RawClient
from opsdk.errors import ApiConnectionError, LeadershipLostError
from opsdk.testing import ApiServer

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


@pytest.fixture(params=[HttpxTransport, LeanTransport])
def make_transport(request: pytest.FixtureRequest) -> object:
    return request.param


async def ok(_: Exchange) -> bytes:
    return reply()


class ClosesBeforeTheBytesGo:
    """Is open when a request sets out, and closed as soon as the server has a connection of ours."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.asked_without_connection = 0

    def __call__(self) -> None:
        if not self.asked_without_connection:
            self.asked_without_connection += 1
            return
        raise LeadershipLostError("ns/lease", "me", "the renewal is overdue")


async def test_a_gate_that_closes_while_a_connection_is_made_stops_the_write(make_transport: MakeTransport) -> None:
    async with serving(ok) as server, using(make_transport(config(server.url))) as transport:
        client = RawClient(transport, write_gate=ClosesBeforeTheBytesGo(server))
        with pytest.raises(LeadershipLostError):
            await client.request("POST", "/x", body=b"{}")
        with anyio.fail_after(60):
            while server.connections == 0 or server.open:  # noqa: ASYNC110 - the server's side of it
                await anyio.sleep(0.01)
        assert server.connections == 1
        assert server.exchanges == []


async def test_a_gate_that_closes_before_a_kept_connection_is_used_stops_the_write(
    make_transport: MakeTransport,
) -> None:
    async with serving(ok) as server, using(make_transport(config(server.url))) as transport:
        client = RawClient(transport, write_gate=ClosesBeforeTheBytesGo(server))
        await client.request("GET", "/x")
        with pytest.raises(LeadershipLostError):
            await client.request("POST", "/x", body=b"{}")
        await client.request("GET", "/x")  # the transport is as good as before
        assert [one.method for one in server.exchanges] == ["GET", "GET"]


async def test_an_open_gate_is_asked_twice_for_each_try_and_never_for_a_read(make_transport: MakeTransport) -> None:
    asked: list[int] = []
    async with serving(ok) as server, using(make_transport(config(server.url))) as transport:
        client = RawClient(transport, write_gate=lambda: asked.append(len(server.exchanges)))
        await client.request("GET", "/x")
        assert asked == []
        await client.request("POST", "/x", body=b"{}")
        assert asked == [1, 1]


async def test_a_write_that_is_sent_again_is_asked_for_again() -> None:
    """Nothing listens: nothing was sent, so the client tries three times, and a gate that closes ends that."""
    asked = 0

    def gate() -> None:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise LeadershipLostError("ns/lease", "me", "over")

    async with serving(ok) as server:
        url = server.url
    async with using(LeanTransport(config(url))) as transport:
        with pytest.raises(LeadershipLostError):
            await RawClient(transport, write_gate=gate).request("POST", "/x", body=b"{}")
        assert asked == 2, "refused before there was a connection: the transport did not ask"
        with pytest.raises(ApiConnectionError):
            await RawClient(transport, write_gate=lambda: None).request("POST", "/x", body=b"{}")


async def test_lightkubes_own_client_is_asked_late_too() -> None:
    async with serving(ok) as server, ApiClient.from_config(config(server.url)) as client:
        plain = client.with_gate(ClosesBeforeTheBytesGo(server)).lightkube()
        with pytest.raises(LeadershipLostError):
            await plain.create(ConfigMap(metadata=ObjectMeta(name="c", namespace="n")))
        await plain.close()
        assert server.exchanges == []


async def test_the_server_in_memory_asks_when_it_takes_the_request() -> None:
    opened = True

    def gate() -> None:
        if not opened:
            raise LeadershipLostError("ns/lease", "me", "over")

    async with ApiServer() as server:
        request = HttpRequest(method="POST", path="/api/v1/namespaces/default/configmaps", body=b"{}", gate=gate)
        refused: list[LeadershipLostError] = []
        async with anyio.create_task_group() as tasks:

            async def send() -> None:
                try:
                    await server.transport().request(request)
                except LeadershipLostError as error:
                    refused.append(error)

            tasks.start_soon(send)
            opened = False
        assert refused
