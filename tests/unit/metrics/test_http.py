"""One HTTP request and its answer. Invariant: whatever comes, there is one whole answer, or none to nothing."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterable
from http.client import HTTPResponse
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsdk.metrics._http import serve_request

if TYPE_CHECKING:
    import socket
    from wsgiref.types import StartResponse, WSGIEnvironment

SERVER = {"SERVER_NAME": "127.0.0.1", "SERVER_PORT": "80", "wsgi.url_scheme": "http", "REMOTE_ADDR": "127.0.0.1"}


class Peer:
    """Sends a request and reads the answer with the standard library's client."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self.received = b""
        self.seen: list[WSGIEnvironment] = []

    def sendall(self, data: bytes, /) -> None:
        self.received += data

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self.received)

    def application(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        self.seen.append(environ)
        write = start_response("200 OK", [("Content-Type", "text/plain")])
        write(b"hello ")
        return [environ["wsgi.input"].read()]

    def ask(self) -> tuple[int, bytes]:
        serve_request(io.BytesIO(self._request), self, self.application, SERVER)
        if not self.received:
            return 0, b""
        answered = cast("socket.socket", self)  # of which `makefile` is all that is asked
        response = HTTPResponse(answered, method=self._request.split(b" ")[0].decode("latin-1"))
        response.begin()
        body = response.read()
        assert response.getheader("Connection") == "close"
        assert response.getheader("Date", "").endswith(" GMT")
        return response.status, body


def test_a_request_is_told_as_wsgi_wants_it() -> None:
    peer = Peer(b"GET /a%20b%C3%A9?x=%20y HTTP/1.1\r\nHost: h\r\nAccept: a\r\naccept: b\r\nContent-Type: t\r\n\r\n")
    assert peer.ask() == (200, b"hello ")
    (environ,) = peer.seen
    wanted = {
        "REQUEST_METHOD": "GET",
        "PATH_INFO": "/a bÃ©",
        "QUERY_STRING": "x=%20y",
        "HTTP_ACCEPT": "a,b",
        "HTTP_HOST": "h",
        "CONTENT_TYPE": "t",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "wsgi.url_scheme": "http",
    }
    assert {name: environ[name] for name in wanted} == wanted


def test_a_short_body_is_read() -> None:
    assert Peer(b"POST / HTTP/1.0\r\nContent-Length: 5\r\n\r\nworld and more").ask() == (200, b"hello world")


def test_an_answer_to_head_has_no_body() -> None:
    peer = Peer(b"HEAD / HTTP/1.1\r\n\r\n")
    assert peer.ask() == (200, b"")
    assert peer.received.endswith(b"\r\n\r\n")


def test_nothing_is_no_request() -> None:
    assert Peer(b"").ask() == (0, b"")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /\r\n\r\n", 400),
        (b"GET / HTTP/2\r\n\r\n", 400),
        (b"GET http://elsewhere/ HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00 TLS, to a port without\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : h\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: 70000\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (b"GET /" + 70_000 * b"a" + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nA: " + 70_000 * b"a" + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + 101 * b"A: b\r\n" + b"\r\n", 431),
    ],
)
def test_what_is_malformed_or_too_long_is_refused(request_: bytes, status: int) -> None:
    peer = Peer(request_)
    assert peer.ask()[0] == status
    assert not peer.seen


lines = st.binary(max_size=30) | st.sampled_from([b"GET / HTTP/1.1", b"Host: h", b"Content-Length: 3", b""])


@given(st.lists(lines, max_size=8))
def test_whatever_comes_there_is_one_whole_answer(request_: list[bytes]) -> None:
    status, _ = Peer(b"\r\n".join(request_)).ask()
    assert status in {0, 200, 400, 411, 413, 414, 431}


def test_a_failing_application_is_logged_and_answered(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Peer):
        def application(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            raise LookupError("a secret")

    with caplog.at_level(logging.ERROR):
        status, body = Failing(b"GET /metrics HTTP/1.1\r\n\r\n").ask()
    assert status == 500
    assert b"secret" not in body
    assert "GET /metrics" in caplog.text


def test_an_application_that_says_nothing_is_a_failure() -> None:
    class Silent(Peer):
        def application(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            return []

    assert Silent(b"GET / HTTP/1.1\r\n\r\n").ask()[0] == 500


def test_what_an_application_returns_is_closed() -> None:
    closed: list[str] = []

    class Chunks(list[bytes]):
        def close(self) -> None:
            closed.append("closed")

    class Closing(Peer):
        def application(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            start_response("200 OK", [("Content-Length", "1")])
            return Chunks([b"a"])

    assert Closing(b"GET / HTTP/1.1\r\n\r\n").ask() == (200, b"a")
    assert closed == ["closed"]
