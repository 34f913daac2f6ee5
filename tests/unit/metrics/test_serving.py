"""The threaded server: it starts at once, answers, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from opsdk.errors import ConfigurationError
from opsdk.metrics import serving
from opsdk.metrics.serving import BindAddress, ServingTls, ThreadedServer, parse_bind_address
from opsdk.testing.controlplane._pki import Authority, Credential

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment


def hello(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"hello"]


def read(url: str, context: ssl.SSLContext | None = None) -> bytes:
    with urllib.request.urlopen(url, timeout=30, context=context) as answer:
        body = answer.read()
        assert isinstance(body, bytes)
        return body


def opsdk_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("opsdk-http")]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":8080", BindAddress("", 8080)),
        ("127.0.0.1:0", BindAddress("127.0.0.1", 0)),
        ("[::1]:9090", BindAddress("::1", 9090)),
        ("localhost:1", BindAddress("localhost", 1)),
    ],
)
def test_bind_addresses_are_read(text: str, address: BindAddress) -> None:
    assert parse_bind_address(text) == address


@pytest.mark.parametrize("text", ["", "8080", "host:", "host:http", "::1:80", ":-1"])
def test_a_malformed_bind_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"127\.0\.0\.1:8080"):
        parse_bind_address(text)


def test_a_port_out_of_range_is_refused_with_the_range() -> None:
    with pytest.raises(ConfigurationError, match="0 to 65535"):
        parse_bind_address(":70000")


def test_a_server_answers_on_the_port_it_was_given_and_leaves_no_thread() -> None:
    with ThreadedServer(hello, "127.0.0.1:0") as server:
        assert server.port != 0
        assert read(server.url) == b"hello"
    assert opsdk_threads() == []
    with pytest.raises(urllib.error.URLError):
        read(server.url)


def test_a_silent_client_keeps_neither_others_waiting_nor_the_server_open() -> None:
    with ThreadedServer(hello, "127.0.0.1:0") as server, socket.create_connection(("127.0.0.1", server.port)):
        assert read(server.url) == b"hello"
        before = time.monotonic()
        server.close()
        assert time.monotonic() - before < 8, "not even until it is given up as silent"
        assert opsdk_threads() == []


def test_a_server_that_gets_no_thread_hangs_up_and_serves_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.endswith("-connection"):
            raise RuntimeError("can't start new thread")
        start(thread)

    with ThreadedServer(hello, "127.0.0.1:0") as server:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            with pytest.raises(OSError, match=r"."):
                read(server.url)
        assert read(server.url) == b"hello"
    assert "can't start new thread" in caplog.text


def test_a_client_that_sends_a_byte_now_and_then_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_LONGEST_SECONDS", 0.5)
    with (
        ThreadedServer(hello, "127.0.0.1:0") as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=20) as slow,
    ):
        cut = False
        for byte in b"GET / HTTP/1.1\r\nx: " + b"y" * 1_000:
            try:
                slow.sendall(bytes([byte]))
            except OSError:
                cut = True
                break
            time.sleep(0.02)
        assert cut
        assert read(server.url) == b"hello"


def test_of_too_many_connections_the_last_are_closed_and_there_is_room_again_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(serving, "_MOST_CONNECTIONS", 3)
    with ThreadedServer(hello, "127.0.0.1:0") as server:
        with contextlib.ExitStack() as silent:
            for _ in range(3):
                silent.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            for _ in range(2):
                with socket.create_connection(("127.0.0.1", server.port), timeout=20) as one:
                    assert one.recv(1) == b""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                assert read(server.url) == b"hello"
                break
            time.sleep(0.02)
        else:
            pytest.fail("the server has no room again")
    warnings = [one for one in caplog.records if one.levelname == "WARNING"]
    assert len(warnings) == 1
    assert "too many connections" in caplog.text


def test_a_taken_port_is_a_configuration_error_that_names_it() -> None:
    with (
        ThreadedServer(hello, "127.0.0.1:0") as server,
        pytest.raises(ConfigurationError, match=f"127.0.0.1:{server.port}"),
    ):
        ThreadedServer(hello, f"127.0.0.1:{server.port}")


def authority(folder: Path, name: str) -> Authority:
    (folder / name).mkdir()
    return Authority(folder / name)


def server_of(signer: Authority) -> Credential:
    return signer.issue("server", common_name="server", addresses=("127.0.0.1",))


def test_https_follows_a_renewed_certificate(tmp_path: Path) -> None:
    first, second = authority(tmp_path, "first"), authority(tmp_path, "second")
    used, renewed = server_of(first), server_of(second)
    with ThreadedServer(hello, "127.0.0.1:0", tls=ServingTls(certificate=used.certificate, key=used.key)) as server:
        trust_first = ssl.create_default_context(cafile=first.certificate)
        assert read(server.url, trust_first) == b"hello"

        trust_second = ssl.create_default_context(cafile=second.certificate)
        used.certificate.write_bytes(renewed.certificate.read_bytes())
        used.key.write_bytes(renewed.key.read_bytes())
        assert read(server.url, trust_second) == b"hello"


def test_a_client_without_a_certificate_is_refused_where_one_is_asked_for(tmp_path: Path) -> None:
    servers, clients = authority(tmp_path, "servers"), authority(tmp_path, "clients")
    used, client = server_of(servers), clients.issue("client", common_name="client")
    tls = ServingTls(certificate=used.certificate, key=used.key, client_ca=clients.certificate)
    with ThreadedServer(hello, "127.0.0.1:0", tls=tls) as server:
        stranger = ssl.create_default_context(cafile=servers.certificate)
        with pytest.raises(OSError, match=r"(?i)certificate|reset|closed|pipe|ssl"):
            read(server.url, stranger)
        friend = ssl.create_default_context(cafile=servers.certificate)
        friend.load_cert_chain(client.certificate, client.key)
        assert read(server.url, friend) == b"hello"
    assert opsdk_threads() == []


def test_a_silent_tls_client_keeps_nobody_waiting(tmp_path: Path) -> None:
    servers = authority(tmp_path, "servers")
    used = server_of(servers)
    with (
        ThreadedServer(hello, "127.0.0.1:0", tls=ServingTls(certificate=used.certificate, key=used.key)) as server,
        socket.create_connection(("127.0.0.1", server.port)),
    ):
        assert read(server.url, ssl.create_default_context(cafile=servers.certificate)) == b"hello"


def test_half_of_tls_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="its key"):
        ServingTls.of(certificate=tmp_path / "c.pem", key=None, client_ca=None)
    with pytest.raises(ConfigurationError, match=r"missing\.pem"):
        ThreadedServer(
            hello, "127.0.0.1:0", tls=ServingTls(certificate=tmp_path / "missing.pem", key=tmp_path / "k.pem")
        )
