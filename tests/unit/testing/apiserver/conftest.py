"""A server, and a way to talk to it as HTTP clients do, without HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from opsdk.client.transport import HttpRequest
from opsdk.clock import ManualClock
from opsdk.testing.apiserver import ApiServer

Send = Callable[..., tuple[int, Any]]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2026, 1, 1, tzinfo=UTC))


@pytest.fixture
def server(clock: ManualClock) -> ApiServer:
    return ApiServer(clock=clock)


@pytest.fixture
def send(server: ApiServer) -> Send:
    """`send(method, path, body, content_type=…, accept=…, agent=…, **query)` gives status code and decoded body."""

    def call(
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        agent: str = "tests/1.0",
        **query: object,
    ) -> tuple[int, Any]:
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        request = HttpRequest(
            method=method,
            path=path,
            query=tuple((name.removesuffix("_"), str(value)) for name, value in query.items()),
            headers={"content-type": content_type, "accept": accept, "user-agent": agent},
            body=raw,
        )
        response = server.handle(request)
        try:
            return response.status, json.loads(response.body)
        except ValueError:
            return response.status, response.body.decode()

    return call
