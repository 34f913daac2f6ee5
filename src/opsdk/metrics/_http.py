"""One HTTP request and its answer, as much of HTTP as scrapers and probes need.

The standard library's server loads `http.client` and `email` for it: 20 ms of each start and 2 MB. Here a connection
carries one request, with a body that fits into memory or none; what is longer, or is no HTTP/1, is refused.
"""

from __future__ import annotations

import io
import logging
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol, final
from urllib.parse import unquote_to_bytes

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication, WSGIEnvironment

    from _typeshed import OptExcInfo

__all__ = ["Sender", "serve_request"]

_logger = logging.getLogger(__name__)

_LONGEST_LINE: Final = 65_536
_MOST_HEADERS: Final = 100
_LONGEST_BODY: Final = 65_536
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_NO_FIELD_OF_CGI: Final = frozenset({"CONTENT_TYPE", "CONTENT_LENGTH"})


class Sender(Protocol):
    """Where answers go: a socket."""

    def sendall(self, data: bytes, /) -> None:
        """Send all of it."""
        ...


class _RefusedError(Exception):
    """The request cannot be answered as it is; holds the status line."""


def serve_request(reader: BinaryIO, sender: Sender, application: WSGIApplication, server: Mapping[str, str], /) -> None:
    """Read one request and answer it; the connection is to be closed afterwards.

    Args:
        reader: The connection; nothing in it is no request, which is no error.
        sender: The same connection.
        application: Is asked. What it raises is logged, and answered with 500.
        server: What it is told about this server and the peer: `SERVER_NAME`, `wsgi.url_scheme` and so on.

    Raises:
        OSError: The peer is gone, or too slow.
    """
    try:
        environ = _read(reader)
    except _RefusedError as refused:
        sender.sendall(_encoded(str(refused), [("Content-Type", "text/plain")], f"{refused}\n".encode()))
        return
    if environ is None:
        return
    answer = _Answer()
    try:
        answer.fill(application, {**environ, **server})
        data = answer.encoded(head_only=environ["REQUEST_METHOD"] == "HEAD")
    except Exception:
        _logger.exception("no answer to %s %s", environ["REQUEST_METHOD"], environ["PATH_INFO"])
        data = _encoded("500 Internal Server Error", [("Content-Type", "text/plain")], b"failed; the log says why\n")
    sender.sendall(data)


def _read(reader: BinaryIO) -> WSGIEnvironment | None:
    line = _line(reader, "414 URI Too Long")
    if not line:
        return None
    parts = line.split(" ")
    if len(parts) != 3 or not parts[0].isalpha() or not parts[1].startswith("/") or not parts[2].startswith("HTTP/1."):
        raise _RefusedError("400 Bad Request")
    path, _, query = parts[1].partition("?")
    environ: WSGIEnvironment = {
        "REQUEST_METHOD": parts[0],
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),  # as WSGI wants it: bytes, a character each
        "QUERY_STRING": query,
        "SERVER_PROTOCOL": parts[2],
        "wsgi.version": (1, 0),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        **_headers(reader),
    }
    environ["wsgi.input"] = io.BytesIO(_body(reader, environ))
    return environ


def _line(reader: BinaryIO, too_long: str) -> str:
    line = reader.readline(_LONGEST_LINE + 1)
    if len(line) > _LONGEST_LINE:
        raise _RefusedError(too_long)
    return line.decode("latin-1").rstrip("\r\n")


def _headers(reader: BinaryIO) -> dict[str, str]:
    found: dict[str, str] = {}
    for _ in range(_MOST_HEADERS + 1):
        line = _line(reader, "431 Request Header Fields Too Large")
        if not line:
            return found
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():  # also what is folded, which nobody may send any more
            raise _RefusedError("400 Bad Request")
        field = name.upper().replace("-", "_")
        field = field if field in _NO_FIELD_OF_CGI else f"HTTP_{field}"
        found[field] = f"{found[field]},{value.strip()}" if field in found else value.strip()
    raise _RefusedError("431 Request Header Fields Too Large")


def _body(reader: BinaryIO, environ: WSGIEnvironment) -> bytes:
    length = str(environ.get("CONTENT_LENGTH", "0"))
    if "HTTP_TRANSFER_ENCODING" in environ:
        raise _RefusedError("411 Length Required")
    if not (length.isascii() and length.isdigit()):
        raise _RefusedError("400 Bad Request")
    if len(length) > 9 or int(length) > _LONGEST_BODY:
        raise _RefusedError("413 Content Too Large")
    return reader.read(int(length))


@final
class _Answer:
    """What an application says, collected."""

    def __init__(self) -> None:
        self._status = ""
        self._headers: list[tuple[str, str]] = []
        self._body: list[bytes] = []

    def fill(self, application: WSGIApplication, environ: WSGIEnvironment) -> None:
        """Ask the application."""
        chunks = application(environ, self._start)
        try:
            self._body.extend(chunks)
        finally:
            close: Callable[[], object] | None = getattr(chunks, "close", None)
            if close is not None:
                close()

    def _start(
        self, status: str, headers: list[tuple[str, str]], exc_info: OptExcInfo | None = None, /
    ) -> Callable[[bytes], object]:
        self._status, self._headers = status, list(headers)
        return self._body.append

    def encoded(self, *, head_only: bool) -> bytes:
        """The answer as it is sent."""
        if not self._status:
            raise RuntimeError("the application has not called start_response")
        return _encoded(self._status, self._headers, b"".join(self._body), head_only=head_only)


def _encoded(status: str, headers: list[tuple[str, str]], body: bytes, *, head_only: bool = False) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Date: {_date()}", *(f"{name}: {value}" for name, value in headers)]
    if all(name.lower() != "content-length" for name, _ in headers) and not head_only:
        lines.append(f"Content-Length: {len(body)}")
    lines.append("Connection: close")
    return "\r\n".join((*lines, "", "")).encode("latin-1") + (b"" if head_only else body)


def _date() -> str:
    """Now, by the system's clock, in English whatever the locale."""
    now = time.gmtime()
    return time.strftime(f"{_DAYS[now.tm_wday]}, %d {_MONTHS[now.tm_mon - 1]} %Y %H:%M:%S GMT", now)
