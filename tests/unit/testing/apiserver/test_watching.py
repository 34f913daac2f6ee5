"""Watches: replay, selections, bookmarks, limits; in memory, on virtual time."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from opsdk.client.transport import HttpRequest, HttpStream
from opsdk.testing.apiserver import ApiServer

pytestmark = pytest.mark.anyio
Send = Callable[..., tuple[int, Any]]
MAPS = "/api/v1/namespaces/default/configmaps"
MERGE = "application/merge-patch+json"


class Events:
    def __init__(self, stream: HttpStream) -> None:
        self.status = stream.status
        self._chunks = stream.chunks

    async def next(self) -> tuple[str, dict[str, Any]]:
        with anyio.fail_after(3600):
            event = json.loads(await anext(self._chunks))
        return event["type"], event["object"]

    async def names(self, count: int) -> list[str]:
        found: list[str] = []
        for _ in range(count):
            kind, obj = await self.next()
            found.append(f"{kind} {obj['metadata'].get('name', '')}".strip())
        return found

    async def rest(self) -> list[str]:
        with anyio.fail_after(7200):
            return [json.loads(chunk)["type"] async for chunk in self._chunks]


@asynccontextmanager
async def watching(server: ApiServer, path: str = MAPS, **query: object) -> AsyncGenerator[Events]:
    parameters = {"watch": "true", **{name: str(value) for name, value in query.items()}}
    request = HttpRequest(method="GET", path=path, query=tuple(parameters.items()))
    async with server.transport().stream(request) as stream:
        yield Events(stream)


def make(send: Send, name: str, **labels: str) -> None:
    assert send("POST", MAPS, {"metadata": {"name": name, "labels": labels}})[0] == 201


async def test_a_watch_replays_what_happened_since_its_version(server: ApiServer, send: Send) -> None:
    make(send, "a")
    start = server.resource_version
    make(send, "b")
    send("PATCH", f"{MAPS}/a", {"data": {"x": "1"}}, content_type=MERGE)
    send("DELETE", f"{MAPS}/b")
    async with watching(server, resourceVersion=start) as events:
        assert await events.names(3) == ["ADDED b", "MODIFIED a", "DELETED b"]


async def test_a_deleted_object_carries_the_version_of_its_delete(server: ApiServer, send: Send) -> None:
    make(send, "a")
    start = server.resource_version
    send("DELETE", f"{MAPS}/a")
    async with watching(server, resourceVersion=start) as events:
        kind, obj = await events.next()
    assert (kind, obj["metadata"]["resourceVersion"]) == ("DELETED", server.resource_version)


@pytest.mark.parametrize("version", [{}, {"resourceVersion": "0"}])
async def test_a_watch_without_a_version_begins_with_what_is_there(
    server: ApiServer, send: Send, version: dict[str, str]
) -> None:
    make(send, "a")
    async with watching(server, **version) as events:
        assert await events.names(1) == ["ADDED a"]
        make(send, "b")
        assert await events.names(1) == ["ADDED b"]


async def test_events_come_while_the_watch_waits(server: ApiServer, send: Send) -> None:
    async with watching(server, resourceVersion=server.resource_version) as events, anyio.create_task_group() as group:

        async def later() -> None:
            await anyio.sleep(100)
            make(send, "a")

        group.start_soon(later)
        assert await events.names(1) == ["ADDED a"]


async def test_a_watch_is_of_its_namespace_and_kind(server: ApiServer, send: Send) -> None:
    async with watching(server, resourceVersion=server.resource_version) as events:
        send("POST", "/api/v1/namespaces/kube-system/configmaps", {"metadata": {"name": "other"}})
        send("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "other"}})
        make(send, "a")
        assert await events.names(1) == ["ADDED a"]


async def test_what_leaves_and_enters_a_selection_is_deleted_and_added(server: ApiServer, send: Send) -> None:
    make(send, "a", app="x")
    async with watching(server, resourceVersion=server.resource_version, labelSelector="app=x") as events:
        send("PATCH", f"{MAPS}/a", {"data": {"k": "v"}}, content_type=MERGE)
        send("PATCH", f"{MAPS}/a", {"metadata": {"labels": {"app": "y"}}}, content_type=MERGE)
        left = server.resource_version
        send("PATCH", f"{MAPS}/a", {"data": {"k": "w"}}, content_type=MERGE)
        send("PATCH", f"{MAPS}/a", {"metadata": {"labels": {"app": "x"}}}, content_type=MERGE)
        assert await events.names(1) == ["MODIFIED a"]
        kind, obj = await events.next()
        assert (kind, obj["metadata"]["labels"], obj["metadata"]["resourceVersion"]) == ("DELETED", {"app": "x"}, left)
        assert await events.names(1) == ["ADDED a"]


async def test_a_field_selection_of_one_name(server: ApiServer, send: Send) -> None:
    query = {"resourceVersion": server.resource_version, "fieldSelector": "metadata.name=b"}
    async with watching(server, **query) as events:
        make(send, "a")
        make(send, "b")
        assert await events.names(1) == ["ADDED b"]


async def test_w01_a_forgotten_version_is_an_error_in_the_stream(server: ApiServer, send: Send) -> None:
    start = server.resource_version
    make(send, "a")
    server.compact()
    async with watching(server, resourceVersion=start) as events:
        assert events.status == 200
        kind, status = await events.next()
        assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
        assert status["message"].startswith(f"too old resource version: {start} (")
        assert await events.rest() == []


async def test_w01_a_forgotten_version_is_an_http_status_by_choice(clock: Any) -> None:
    server = ApiServer(clock=clock, expired_watch_is_http=True)
    server.compact()
    async with watching(server, "/api/v1/namespaces", resourceVersion="1") as events:
        assert events.status == 410


async def test_history_is_bounded(clock: Any) -> None:
    server = ApiServer(clock=clock, history=3)
    start = server.resource_version
    for name in "abcd":
        body = json.dumps({"metadata": {"name": name}}).encode()
        server.handle(HttpRequest(method="POST", path=MAPS, body=body))
    async with watching(server, resourceVersion=start) as events:
        assert (await events.next())[0] == "ERROR"


async def test_w06_bookmarks_move_the_version_on_while_nothing_happens(server: ApiServer, send: Send) -> None:
    query = {"resourceVersion": server.resource_version, "allowWatchBookmarks": "true"}
    async with watching(server, **query) as events:
        send("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "other"}})
        kind, obj = await events.next()
        assert kind == "BOOKMARK"
        assert (obj["kind"], obj["metadata"]["resourceVersion"]) == ("ConfigMap", server.resource_version)


async def test_no_bookmarks_unless_asked_for(server: ApiServer) -> None:
    async with watching(server, resourceVersion=server.resource_version, timeoutSeconds=600) as events:
        assert await events.rest() == []


async def test_w16_initial_events_end_with_a_marked_bookmark(server: ApiServer, send: Send) -> None:
    make(send, "a")
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    async with watching(server, **query) as events:
        assert await events.names(1) == ["ADDED a"]
        kind, obj = await events.next()
        assert kind == "BOOKMARK"
        assert obj["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert obj["metadata"]["resourceVersion"] == server.resource_version
        make(send, "b")
        assert await events.names(1) == ["ADDED b"]


async def test_initial_events_need_a_version_match(server: ApiServer) -> None:
    async with watching(server, sendInitialEvents="true") as events:
        assert events.status == 422


async def test_a_watch_ends_after_its_timeout(server: ApiServer) -> None:
    begin = anyio.current_time()
    async with watching(server, resourceVersion=server.resource_version, timeoutSeconds=30) as events:
        assert await events.rest() == []
    assert anyio.current_time() - begin == pytest.approx(30, abs=1)


async def test_a_watch_from_the_future_waits_for_it(server: ApiServer, send: Send) -> None:
    future = int(server.resource_version) + 1
    async with watching(server, resourceVersion=future) as events:
        make(send, "a")
        make(send, "b")
        assert await events.names(1) == ["ADDED b"]


async def test_writes_that_change_nothing_are_not_seen(server: ApiServer, send: Send) -> None:
    make(send, "a")
    async with watching(server, resourceVersion=server.resource_version) as events:
        send("PATCH", f"{MAPS}/a", {"metadata": {"labels": None}}, content_type=MERGE)
        make(send, "b")
        assert await events.names(1) == ["ADDED b"]


async def test_w02_watches_end_when_the_server_says_so(server: ApiServer) -> None:
    async with watching(server, resourceVersion=server.resource_version) as events:
        assert server.open_watches == 1
        server.end_watches()
        assert await events.rest() == []
    assert server.open_watches == 0


async def test_a_watch_left_in_the_middle_is_closed(server: ApiServer, send: Send) -> None:
    make(send, "a")
    async with watching(server) as events:
        await events.next()
    assert server.open_watches == 0


async def test_a_table_watch_has_column_definitions_once(server: ApiServer, send: Send) -> None:
    make(send, "a")
    make(send, "b")
    request = HttpRequest(
        method="GET",
        path=MAPS,
        query=(("watch", "1"),),
        headers={"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"},
    )
    async with server.transport().stream(request) as stream:
        events = Events(stream)
        tables = [(await events.next())[1] for _ in range(2)]
    assert [bool(table.get("columnDefinitions")) for table in tables] == [True, False]


async def test_cancelling_a_request_before_it_begins_changes_nothing(server: ApiServer) -> None:
    before = server.resource_version
    body = json.dumps({"metadata": {"name": "a"}}).encode()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await server.transport().request(HttpRequest(method="POST", path=MAPS, body=body))
    assert server.resource_version == before
