"""A small HTTP server on threads of its own, so that it answers while the event loop is blocked.

It carries the metrics endpoint here and the probes of the manager. One thread accepts, one more serves each
connection (answers are closed at once), and `close` leaves none of them behind.

*Guarantees*: no reverse DNS look-up when it starts; a peer that connects and stays silent, in the TLS handshake too,
occupies only its own thread and only for ten seconds, and one that sends a byte now and then for thirty; there are at
most a hundred connections at once, and more are closed; certificates are read again when their files change.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from socketserver import BaseRequestHandler, TCPServer
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, cast, final

import msgspec
from typing_extensions import override

from opsdk.errors import ConfigurationError
from opsdk.metrics._http import serve_request

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

__all__ = ["BindAddress", "ServingTls", "ThreadedServer", "parse_bind_address"]

_PEER_TIMEOUT_SECONDS: Final = 10.0
_LONGEST_SECONDS: Final = 30.0
_MOST_CONNECTIONS: Final = 100
_JOIN_SECONDS: Final = 2.0

_logger: Final = logging.getLogger(__name__)


@final
class BindAddress(msgspec.Struct, frozen=True):
    """Where a server listens.

    Args:
        host: An address of this machine; empty means all of them.
        port: 0 lets the system choose.
    """

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ServingTls:
    """Certificates of a server, as PEM files.

    Args:
        certificate: The server's certificate, followed by its intermediates.
        key: The certificate's private key.
        client_ca: When given, clients must present a certificate that one of these authorities signed.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None

    @staticmethod
    def of(*, certificate: Path | None, key: Path | None, client_ca: Path | None) -> ServingTls | None:
        """From options that are all optional: None when none is given.

        Raises:
            ConfigurationError: Only a part of what TLS needs is given.
        """
        if certificate is not None and key is not None:
            return ServingTls(certificate=certificate, key=key, client_ca=client_ca)
        if certificate is None and key is None and client_ca is None:
            return None
        msg = f"TLS needs a certificate and its key; got certificate={certificate}, key={key}, client_ca={client_ca}"
        raise ConfigurationError(msg)


def parse_bind_address(text: str, /) -> BindAddress:
    """Read `:8080`, `127.0.0.1:0`, `localhost:8080` or `[::1]:8080`.

    Raises:
        ConfigurationError: It is none of these.
    """
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not (port.isascii() and port.isdigit()) or (":" in host and not bracketed):
        msg = f"bind address {text!r} is not HOST:PORT; write ':8080', '127.0.0.1:8080' or '[::1]:8080'"
        raise ConfigurationError(msg)
    if len(port) > 9 or int(port) > 65535:
        raise ConfigurationError(f"bind address {text!r}: the port is out of range; it must be 0 to 65535")
    return BindAddress(host[1:-1] if bracketed else host, int(port))


@final
class _Certificates:
    """A TLS context that follows its files: a renewed certificate is used from the next connection on."""

    def __init__(self, tls: ServingTls) -> None:
        self._tls = tls
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            if tls.client_ca is not None:
                self._context.verify_mode = ssl.CERT_REQUIRED
                self._context.load_verify_locations(tls.client_ca)
            self._seen = self._stamp()
            self._context.load_cert_chain(tls.certificate, tls.key)
        except OSError as error:
            msg = f"certificate {tls.certificate}, key {tls.key} or client CA {tls.client_ca} cannot be used: {error}"
            raise ConfigurationError(msg) from error

    def _stamp(self) -> tuple[int, int]:
        return self._tls.certificate.stat().st_mtime_ns, self._tls.key.stat().st_mtime_ns

    def wrap(self, connection: socket.socket) -> ssl.SSLSocket:
        """Speak TLS on `connection`; the handshake happens at the first read, in the connection's own thread."""
        with contextlib.suppress(OSError):  # half-written files: the loaded pair serves on, the next connection retries
            stamp = self._stamp()
            if stamp != self._seen:
                self._context.load_cert_chain(self._tls.certificate, self._tls.key)
                self._seen = stamp
        return self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)


@final
class _Server(TCPServer):
    """A server that lets go of its sockets and threads when it is closed."""

    allow_reuse_address = True

    def __init__(self, application: WSGIApplication, address: BindAddress, certificates: _Certificates | None) -> None:
        self._application = application
        self._certificates = certificates
        self._told = False
        self._lock = threading.Lock()
        self._open: dict[socket.socket, tuple[threading.Thread, float]] = {}
        host = address.host
        dual_stack = not host and socket.has_dualstack_ipv6()
        self.address_family = socket.AF_INET6 if dual_stack or ":" in host else socket.AF_INET
        self._dual_stack = dual_stack
        super().__init__((host, address.port), BaseRequestHandler)
        self.port: int = int(self.server_address[1])
        self._about = {
            "SERVER_NAME": str(self.server_address[0]),
            "SERVER_PORT": str(self.port),
            "wsgi.url_scheme": "http" if certificates is None else "https",
        }

    @override
    def server_bind(self) -> None:
        if self._dual_stack:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    @override
    def get_request(self) -> tuple[socket.socket, object]:
        connection, peer = self.socket.accept()
        connection.settimeout(_PEER_TIMEOUT_SECONDS)
        if self._certificates is not None:
            connection = self._certificates.wrap(connection)
        return connection, peer

    @override
    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        assert isinstance(request, socket.socket)  # noqa: S101 - a stream server's requests are sockets
        thread = threading.Thread(
            target=self._serve_connection,
            args=(request, client_address),
            name=f"opsdk-http-{self.port}-connection",
            daemon=True,
        )
        with self._lock:
            if len(self._open) >= _MOST_CONNECTIONS:
                raise ConnectionRefusedError("too many connections at once")  # whoever called this closes it
            self._open[request] = thread, time.monotonic()
        try:
            thread.start()
        except RuntimeError:  # there are too many
            with self._lock:
                del self._open[request]
            raise

    @override
    def service_actions(self) -> None:
        """Hang up on those that take too long, a byte at a time. Called several times a second."""
        before = time.monotonic() - _LONGEST_SECONDS
        with self._lock:
            overdue = [connection for connection, (_, since) in self._open.items() if since < before]
        for connection in overdue:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    @override
    def handle_error(self, request: object, client_address: object) -> None:
        """Tell, once, of a connection that could not be served; it is closed, and the peer may come again."""
        _logger.log(
            logging.DEBUG if self._told else logging.WARNING,
            "port %s: a connection was refused",
            self.port,
            exc_info=True,
        )
        self._told = True

    def _serve_connection(self, connection: socket.socket, client_address: object) -> None:
        peer = str(cast("tuple[object, ...]", client_address)[0])  # as it is: a name would cost DNS
        try:
            # A peer that goes away, or fails at its handshake, is the peer's business.
            with contextlib.suppress(OSError), connection.makefile("rb") as reader:
                serve_request(reader, connection, self._application, {**self._about, "REMOTE_ADDR": peer})
        finally:
            self.shutdown_request(connection)
            with self._lock:
                self._open.pop(connection, None)

    def hang_up(self) -> None:
        """Close what is still connected and wait for the threads that served it."""
        with self._lock:
            still_open = list(self._open.items())
        for connection, _ in still_open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for _, (thread, _) in still_open:
            thread.join(_JOIN_SECONDS)


@final
class ThreadedServer:
    """Serves a WSGI application from threads of its own, from entering its context until leaving it.

    Args:
        application: Called on the server's threads, several at once.
        address: Where to listen; see `parse_bind_address`.
        tls: Serve HTTPS with these certificates; default: plain HTTP.

    Raises:
        ConfigurationError: The address is malformed or taken, or the certificates cannot be read.
    """

    def __init__(
        self,
        application: WSGIApplication,
        address: str,
        *,
        tls: ServingTls | None = None,
    ) -> None:
        self._address = parse_bind_address(address)
        certificates = None if tls is None else _Certificates(tls)
        self._scheme = "http" if tls is None else "https"
        try:
            self._server = _Server(application, self._address, certificates)
        except OSError as error:
            msg = f"cannot listen on {self._address}: {error}"
            raise ConfigurationError(msg) from error
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port that it listens on, also when the system chose it."""
        return self._server.port

    @property
    def url(self) -> str:
        """Where a client on this machine reaches it."""
        host = self._address.host or "localhost"
        return f"{self._scheme}://{BindAddress(host, self.port)}"

    def start(self) -> None:
        """Begin to serve. Returns at once."""
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.1},
            name=f"opsdk-http-{self.port}",
            daemon=True,
        )
        self._thread.start()

    def close(self) -> None:
        """Stop serving; blocks for a moment until the threads are gone. Harmless when called twice."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._server.shutdown()
            thread.join()
        self._server.server_close()
        self._server.hang_up()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
