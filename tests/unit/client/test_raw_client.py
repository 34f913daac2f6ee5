"""Retries, lists and watches at the level of bytes, over a transport that follows a script."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import Literal

import anyio
import pytest
from lightkube.resources.core_v1 import ConfigMap

from opsdk.client import HttpRequest, HttpResponse, HttpStream, RawClient, RawEvent
from opsdk.clock import ManualClock, using
from opsdk.errors import (
    AlreadyExistsError,
    ApiConnectionError,
    ApiError,
    ApiProtocolError,
    ApiStatusError,
    ApiTimeoutError,
    BadRequestError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    LeadershipLostError,
    MethodNotAllowedError,
    NotFoundError,
    ServerError,
    ServerTimeoutError,
    StatusCause,
    TooManyRequestsError,
    UnauthorizedError,
    UnsupportedMediaTypeError,
)
from opsdk.models import resource_of
from opsdk.types import Json

pytestmark = pytest.mark.anyio

CONFIG_MAPS = resource_of(ConfigMap)

Answer = HttpResponse | ApiError
Piece = bytes | float | ApiError
"""What a stream does next: deliver bytes, be silent for so many seconds, break."""


class Script:
    """Answers with what it was given, in order, and remembers what it was asked."""

    def __init__(self, answers: Sequence[Answer] = (), pieces: Sequence[Piece] = (), head: HttpResponse | None = None):
        self.answers = list(answers)
        self.pieces = pieces
        self.head = head or answer(200)
        self.requests: list[HttpRequest] = []
        self.at: list[float] = []
        self.streams_open = 0

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        await anyio.lowlevel.checkpoint()
        self.requests.append(request)
        self.at.append(anyio.current_time())
        result = self.answers.pop(0)
        if isinstance(result, ApiError):
            raise result
        return result

    @asynccontextmanager
    async def stream(self, request: HttpRequest, /) -> AsyncGenerator[HttpStream]:
        self.requests.append(request)
        self.streams_open += 1
        try:
            async with aclosing(self._chunks()) as chunks:
                yield HttpStream(status=self.head.status, headers=self.head.headers, chunks=chunks)
        finally:
            self.streams_open -= 1

    async def _chunks(self) -> AsyncGenerator[bytes]:
        if self.head.body:
            yield self.head.body
        for piece in self.pieces:
            if isinstance(piece, bytes):
                yield piece
            elif isinstance(piece, ApiError):
                raise piece
            else:
                await anyio.sleep(piece)

    async def aclose(self) -> None:
        pass


def answer(status: int, body: Json = None, **headers: str) -> HttpResponse:
    content = b"" if body is None else body.encode() if isinstance(body, str) else json.dumps(body).encode()
    return HttpResponse(
        status=status, headers={name.replace("_", "-"): value for name, value in headers.items()}, body=content
    )


def failure(code: int, reason: str, message: str = "no", **details: Json) -> dict[str, Json]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
        "details": details,
    }


def event(kind: str, name: str = "a", version: str = "1") -> bytes:
    return json.dumps({"type": kind, "object": {"metadata": {"name": name, "resourceVersion": version}}}).encode()


class Observed:
    def __init__(self) -> None:
        self.lines: list[tuple[str, str, str]] = []

    def observe(self, *, verb: str, host: str, code: str, seconds: float) -> None:
        assert seconds >= 0
        self.lines.append((verb, host, code))


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", BadRequestError),
        (401, "Unauthorized", UnauthorizedError),
        (403, "Forbidden", ForbiddenError),
        (404, "NotFound", NotFoundError),
        (405, "MethodNotAllowed", MethodNotAllowedError),
        (409, "AlreadyExists", AlreadyExistsError),
        (409, "Conflict", ConflictError),
        (410, "Expired", GoneError),
        (410, "Gone", GoneError),
        (415, "UnsupportedMediaType", UnsupportedMediaTypeError),
        (422, "Invalid", InvalidError),
        (429, "TooManyRequests", TooManyRequestsError),
        (500, "InternalError", ServerError),
        (503, "ServiceUnavailable", ServerError),
        (504, "Timeout", ServerTimeoutError),
        (418, "", ApiStatusError),
        (302, "", ApiStatusError),
    ],
)
async def test_an_error_status_is_the_error_of_its_code(code: int, reason: str, kind: type[ApiStatusError]) -> None:
    for content_type in ("application/json", "application/json; charset=utf-8", ""):
        script = Script([answer(code, failure(code, reason, "the text"), content_type=content_type)])
        with pytest.raises(ApiStatusError, match="the text") as caught:
            await RawClient(script).request("POST", "/api/v1/namespaces")
        assert type(caught.value) is kind
        assert (caught.value.code, caught.value.reason) == (code, reason)
        assert caught.value.request == "POST /api/v1/namespaces"


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/apis/demo.io/v1/widgets", "the server has no widgets.demo.io/v1; is the CRD installed?"),
        ("/apis/demo.io/v1/namespaces/x/widgets/w", "the server has no widgets.demo.io/v1; is the CRD installed?"),
        (
            "/apis/gateway.networking.k8s.io/v1/gateways/g",
            "gateways.gateway.networking.k8s.io/v1; is the CRD installed?",
        ),
        ("/apis/apps/v9/deployments", "the server has no deployments.apps/v9"),
        ("/apis/networking.k8s.io/v9/namespaces/x/ingresses", "the server has no ingresses.networking.k8s.io/v9"),
    ],
)
async def test_b7_a_404_of_no_object_names_the_kind_that_is_missing(path: str, hint: str) -> None:
    plain = answer(404, "404 page not found\n", content_type="text/plain")
    for missing in (plain, answer(404, failure(404, "NotFound", "the server could not find the requested resource"))):
        with pytest.raises(NotFoundError) as caught:
            await RawClient(Script([missing])).request("GET", path)
        assert str(caught.value).endswith(hint)
        assert caught.value.hint in str(caught.value)


@pytest.mark.parametrize(
    ("path", "missing"),
    [
        ("/apis/demo.io/v1/namespaces/x/widgets/w", answer(404, failure(404, "NotFound", name="w", kind="widgets"))),
        ("/apis/demo.io/v1/namespaces/x/widgets/w", answer(404, "<html>default backend</html>")),
        ("/apis/demo.io/v1/namespaces/x/widgets/w/scale", answer(404, "404 page not found")),
        ("/api/v1/pods/a", answer(404, "404 page not found")),
        ("/version", answer(404, "404 page not found")),
    ],
)
async def test_b7_other_404s_say_what_the_server_said(path: str, missing: HttpResponse) -> None:
    with pytest.raises(NotFoundError) as caught:
        await RawClient(Script([missing])).request("GET", path)
    assert caught.value.hint == ""
    assert "the server has no" not in str(caught.value)


async def test_an_error_carries_what_the_status_says() -> None:
    causes: Json = [{"reason": "FieldValueInvalid", "field": "spec.size", "message": "too big"}, {"field": "x"}, 7]
    status = failure(422, "Invalid", name="w", kind="widgets", causes=causes)
    with pytest.raises(InvalidError) as caught:
        await RawClient(Script([answer(422, status)])).request("POST", "/x")
    assert (caught.value.name, caught.value.kind) == ("w", "widgets")
    assert caught.value.causes == (
        StatusCause("spec.size", "FieldValueInvalid", "too big"),
        StatusCause("x", "", ""),
    )


@pytest.mark.parametrize(
    "body",
    [
        "",
        "null",
        "[]",
        "{",
        '{"kind": "Status"}',
        '{"kind": "Status", "details": null, "code": "x", "reason": 7, "message": []}',
        '{"kind": "Status", "details": {"causes": {}, "retryAfterSeconds": "x"}}',
        '{"error": "upstream"}',
        "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
    ],
)
async def test_an_answer_that_is_no_status_is_the_error_of_its_code_all_the_same(body: str) -> None:
    with pytest.raises(ConflictError) as caught:
        await RawClient(Script([answer(409, body)])).request("POST", "/x")
    assert caught.value.reason == ""


async def test_a_proxys_page_is_a_server_error_with_the_first_of_its_text() -> None:
    page = "<html><style>b {}</style><h1>503</h1>\n<p>No server " + "is available " * 100 + "<script>x('y')"
    with pytest.raises(ServerError) as caught:
        await RawClient(Script([answer(503, page, content_type="text/html")])).request("GET", "/x")
    assert caught.value.server_message.startswith("503 No server is available")
    assert len(caught.value.server_message) == 200


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("3", 3),
        ("0", 0),
        ("-5", 0),
        ("1.5", 1.5),
        ("Thu, 01 Jan 2026 00:00:07 GMT", 7),
        ("Thu, 01 Jan 2026 00:00:07 -0000", 7),
        ("Wed, 31 Dec 2025 00:00:00 GMT", 0),
        ("1e300", 86_400),
        ("nan", None),
        ("soon", None),
        ("", None),
    ],
)
async def test_retry_after_is_read_as_seconds_or_as_a_date(header: str, seconds: float | None) -> None:
    with using(ManualClock(datetime(2026, 1, 1, tzinfo=UTC))), pytest.raises(TooManyRequestsError) as caught:
        await RawClient(Script([answer(429, retry_after=header)])).request("POST", "/x")
    assert caught.value.retry_after == (None if seconds is None else timedelta(seconds=seconds))


async def test_retry_after_is_also_read_from_the_details() -> None:
    status = failure(429, "TooManyRequests", retryAfterSeconds=4)
    with pytest.raises(TooManyRequestsError) as caught:
        await RawClient(Script([answer(429, status)])).request("POST", "/x")
    assert caught.value.retry_after == timedelta(seconds=4)


@pytest.mark.parametrize("code", [429, 503])
async def test_a_read_waits_as_long_as_the_server_asks_and_asks_again(code: int) -> None:
    script = Script([answer(code, retry_after="5"), answer(code, retry_after="2"), answer(200, "ok")])
    assert await RawClient(script).request("GET", "/x") == b"ok"
    assert 5 <= script.at[1] - script.at[0] < 6
    assert 2 <= script.at[2] - script.at[1] < 3


async def test_after_three_tries_the_servers_answer_is_raised() -> None:
    script = Script([answer(429, retry_after="1")] * 4)
    with pytest.raises(TooManyRequestsError):
        await RawClient(script).request("GET", "/x")
    assert len(script.requests) == 3


@pytest.mark.parametrize(("preconditioned", "tries"), [(False, 1), (True, 2)])
async def test_a_write_is_repeated_for_a_busy_server_only_with_a_precondition(
    *, preconditioned: bool, tries: int
) -> None:
    script = Script([answer(429, retry_after="1"), answer(200, "ok")])
    with suppress(TooManyRequestsError):
        assert await RawClient(script).request("PUT", "/x", preconditioned=preconditioned) == b"ok"
    assert len(script.requests) == tries


@pytest.mark.parametrize("headers", [{}, {"retry_after": "3600"}])
async def test_a_server_that_names_no_bearable_time_is_not_asked_again(headers: dict[str, str]) -> None:
    script = Script([answer(503, "busy", **headers)])
    with pytest.raises(ServerError):
        await RawClient(script).request("GET", "/x")


async def test_a_read_whose_connection_broke_is_repeated_with_growing_pauses() -> None:
    script = Script([ApiConnectionError("broke"), ApiConnectionError("broke"), answer(200, "ok")])
    assert await RawClient(script).request("GET", "/x") == b"ok"
    assert 0.1 <= script.at[1] - script.at[0] <= 0.3
    assert 0.2 <= script.at[2] - script.at[1] <= 0.6


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_a_write_that_may_have_been_sent_is_never_repeated(method: str) -> None:
    script = Script([ApiConnectionError("broke")])
    with pytest.raises(ApiConnectionError):
        await RawClient(script).request(method, "/x", preconditioned=True)


@pytest.mark.parametrize("error", [ApiConnectionError("refused", sent=False), ApiTimeoutError("slow", sent=False)])
async def test_a_write_of_which_nothing_was_sent_is_repeated(error: ApiError) -> None:
    script = Script([error, answer(201, "ok")])
    assert await RawClient(script).request("POST", "/x") == b"ok"


async def test_a_read_that_timed_out_is_not_repeated() -> None:
    with pytest.raises(ApiTimeoutError):
        await RawClient(Script([ApiTimeoutError("slow")])).request("GET", "/x")


async def test_the_gate_is_asked_before_every_try_of_a_write_and_never_for_a_read() -> None:
    asked = 0

    def gate() -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            raise LeadershipLostError("ns/lease", "me", "over")

    script = Script([answer(200, "ok"), ApiConnectionError("refused", sent=False), answer(201, "ok")])
    client = RawClient(script, write_gate=gate)
    await client.request("GET", "/x")
    assert asked == 0
    with pytest.raises(LeadershipLostError):
        await client.request("POST", "/x")
    assert len(script.requests) == 2, "the second try of the write was stopped before it was sent"


async def test_every_try_is_observed() -> None:
    observed = Observed()
    script = Script([ApiConnectionError("broke"), answer(200, "ok"), answer(404)], pieces=[event("ADDED") + b"\n"])
    client = RawClient(script, observer=observed, host="api:6443")
    await client.request("GET", "/x")
    with pytest.raises(NotFoundError):
        await client.request("DELETE", "/x")
    async with client.watch(CONFIG_MAPS):
        pass
    assert observed.lines == [
        ("GET", "api:6443", "<error>"),
        ("GET", "api:6443", "200"),
        ("DELETE", "api:6443", "404"),
        ("GET", "api:6443", "200"),
    ]


async def test_a_request_says_who_asks_and_what_it_sends() -> None:
    script = Script([answer(200), answer(200)])
    client = RawClient(script)
    await client.request("GET", "/x", query=[("a", "b c")])
    await client.request("PATCH", "/x", body=b"{}", content_type="application/merge-patch+json")
    first, second = script.requests
    assert first.headers["user-agent"] == f"opsdk/{version('opsdk')}"
    assert first.headers["accept"] == "application/json"
    assert "content-type" not in first.headers
    assert first.query == (("a", "b c"),)
    assert second.headers["content-type"] == "application/merge-patch+json"


async def test_a_page_has_raw_items_and_w08_the_lists_own_version() -> None:
    body: Json = {
        "metadata": {"resourceVersion": "50", "continue": "t", "remainingItemCount": 9},
        "items": [{"metadata": {"name": "a", "resourceVersion": "99"}}, {"metadata": {"name": "b"}}],
    }
    script = Script([answer(200, body)])
    page = await RawClient(script).list_page(
        CONFIG_MAPS,
        namespace="n",
        labels={"app": "x", "tier": "y"},
        fields={"metadata.name": "a,b=c\\d"},
        limit=2,
        continue_token="s",
        resource_version="0",
        resource_version_match="NotOlderThan",
    )
    assert (page.resource_version, page.continue_token) == ("50", "t")
    assert [json.loads(item)["metadata"]["name"] for item in page.items] == ["a", "b"]
    (request,) = script.requests
    assert request.path == "/api/v1/namespaces/n/configmaps"
    assert dict(request.query) == {
        "labelSelector": "app=x,tier=y",
        "fieldSelector": "metadata.name=a\\,b\\=c\\\\d",
        "limit": "2",
        "continue": "s",
        "resourceVersion": "0",
        "resourceVersionMatch": "NotOlderThan",
    }


async def test_an_empty_list_may_say_null() -> None:
    page = await RawClient(Script([answer(200, {"metadata": {"resourceVersion": "5"}, "items": None})])).list_page(
        CONFIG_MAPS
    )
    assert (page.items, page.continue_token) == ([], "")


@pytest.mark.parametrize("body", ["", "<html>", "[]", "{}", '{"metadata": {}, "items": 5}'])
async def test_an_answer_that_is_no_list_is_a_protocol_error(body: str) -> None:
    with pytest.raises(ApiProtocolError, match="configmaps"):
        await RawClient(Script([answer(200, body)])).list_page(CONFIG_MAPS)


async def events_of(script: Script, inactivity: timedelta | None = None) -> list[RawEvent]:
    async with RawClient(script).watch(CONFIG_MAPS, inactivity=inactivity) as events:
        return [one async for one in events]


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
async def test_w05_lines_end_only_at_a_line_feed(size: int) -> None:
    text = "a\u0085b\u2028c\u2029d\u000be\u000cf"
    line = json.dumps({"type": "ADDED", "object": {"data": {"k": text}}}, ensure_ascii=False).encode() + b"\n"
    stream = line + b"\r\n" + b"\n" + line
    pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
    events = await events_of(Script(pieces=pieces))
    assert [json.loads(one.object)["data"]["k"] for one in events] == [text, text]


async def test_w05_a_line_that_is_cut_is_a_connection_error() -> None:
    script = Script(pieces=[event("ADDED") + b"\n" + event("MODIFIED")[:20]])
    async with RawClient(script).watch(CONFIG_MAPS) as events:
        assert (await anext(events)).type == "ADDED"
        with pytest.raises(ApiConnectionError, match="in the middle of a line"):
            await anext(events)
    assert script.streams_open == 0


async def test_an_empty_stream_is_an_ordinary_end() -> None:
    assert await events_of(Script(pieces=[])) == []


async def test_the_end_of_a_watch_stays_its_end() -> None:
    async with RawClient(Script(pieces=[event("ADDED") + b"\n"])).watch(CONFIG_MAPS) as events:
        assert (await anext(events)).type == "ADDED"
        for _ in range(2):
            with pytest.raises(StopAsyncIteration):
                await anext(events)


async def test_bookmarks_are_asked_for_and_delivered() -> None:
    script = Script(pieces=[event("BOOKMARK", version="77") + b"\n"])
    async with RawClient(script).watch(
        CONFIG_MAPS,
        namespace="n",
        labels="a in (b)",
        resource_version="5",
        timeout=timedelta(seconds=300.5),
        send_initial_events=True,
        inactivity=timedelta(seconds=60),
    ) as events:
        one = await anext(events)
    assert (one.type, json.loads(one.object)["metadata"]["resourceVersion"]) == ("BOOKMARK", "77")
    (request,) = script.requests
    assert dict(request.query) == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "labelSelector": "a in (b)",
        "resourceVersion": "5",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "timeoutSeconds": "301",
    }
    assert request.read_timeout is not None
    assert timedelta(seconds=60) < request.read_timeout < timedelta(seconds=301)


async def test_a_watch_without_limits_is_not_held_to_the_timeout_of_ordinary_reads() -> None:
    script = Script()
    await events_of(script)
    assert (script.requests[0].read_timeout or timedelta()) >= timedelta(days=1)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (failure(410, "Expired", "too old resource version"), GoneError),
        (failure(410, "Gone"), GoneError),
        ({**failure(0, "Expired")}, GoneError),
        (failure(500, "InternalError"), ServerError),
        (failure(429, "TooManyRequests"), TooManyRequestsError),
        ({"what": "is this"}, ServerError),
    ],
)
async def test_an_error_event_raises_what_it_says(status: Json, error: type[ApiStatusError]) -> None:
    line = json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"
    script = Script(pieces=[event("ADDED") + b"\n" + line + event("ADDED") + b"\n"])
    with pytest.raises(error, match="watch /api/v1/configmaps"):
        await events_of(script)
    assert script.streams_open == 0


async def test_a_watch_that_is_refused_raises_what_the_answer_says() -> None:
    script = Script(head=answer(410, failure(410, "Expired", "too old")))
    with pytest.raises(GoneError, match="too old"):
        await events_of(script)
    assert script.streams_open == 0


@pytest.mark.parametrize("line", [b"<html>\n", b"{}\n", b'{"type":"SHRUG","object":{}}\n', b"[1]\n"])
async def test_a_line_that_is_no_event_is_a_protocol_error(line: bytes) -> None:
    with pytest.raises(ApiProtocolError):
        await events_of(Script(pieces=[line]))


async def test_w03_a_silent_stream_is_given_up_within_the_inactivity_limit() -> None:
    script = Script(pieces=[event("ADDED") + b"\n", 50.0, event("BOOKMARK") + b"\n", 10_000.0])
    started = anyio.current_time()
    with pytest.raises(ApiTimeoutError, match="silent for 60 s"):
        await events_of(script, inactivity=timedelta(seconds=60))
    assert anyio.current_time() - started == pytest.approx(110, abs=1)
    assert script.streams_open == 0


async def test_w03_an_answer_that_does_not_begin_is_given_up_within_the_limit_and_a_second() -> None:
    script = Script(pieces=[])
    await events_of(script, inactivity=timedelta(seconds=60))
    assert script.requests[0].read_timeout == timedelta(seconds=61)


async def test_a_connection_that_breaks_under_a_watch_is_a_connection_error() -> None:
    with pytest.raises(ApiConnectionError, match="broke"):
        await events_of(Script(pieces=[event("ADDED") + b"\n", ApiConnectionError("broke")]))


@pytest.mark.parametrize("how", ["break", "raise", "cancel"])
async def test_however_a_watch_is_left_its_stream_is_closed(how: Literal["break", "raise", "cancel"]) -> None:
    script = Script(pieces=[event("ADDED") + b"\n", 1000.0])
    client = RawClient(script)

    async def watch() -> None:
        async with client.watch(CONFIG_MAPS) as events:
            async for _ in events:
                if how == "break":
                    break
                if how == "raise":
                    raise ZeroDivisionError

    if how == "cancel":
        with anyio.move_on_after(5) as scope:
            await watch()
        assert scope.cancelled_caught
    elif how == "raise":
        with pytest.raises(ZeroDivisionError):
            await watch()
    else:
        await watch()
    assert script.streams_open == 0
