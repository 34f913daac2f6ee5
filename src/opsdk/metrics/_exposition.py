"""The metrics endpoint as a WSGI application."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

    from prometheus_client import CollectorRegistry

__all__ = ["Exposition"]

_PATH: Final = "/metrics"


@final
class Exposition:
    """Answers GET and HEAD of `/metrics` in the format that the scraper asks for; anything else is not here.

    Args:
        registry: Gives what to show.
    """

    def __init__(self, registry: Callable[[], CollectorRegistry]) -> None:
        self._registry = registry

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request. Called on the server's threads."""
        method, path = str(environ["REQUEST_METHOD"]), str(environ["PATH_INFO"])
        if path.rstrip("/") != _PATH:
            start_response("404 Not Found", [("Content-Type", "text/plain; charset=utf-8")])
            return [b"metrics are at /metrics\n"]
        if method not in {"GET", "HEAD"}:
            start_response("405 Method Not Allowed", [("Allow", "GET, HEAD"), ("Content-Length", "0")])
            return []
        from opsdk.metrics._prometheus import choose_encoder, gzip_accepted  # loaded by the first scrape

        try:
            encode, content_type = choose_encoder(str(environ.get("HTTP_ACCEPT", "")))
        except (TypeError, ValueError):  # a version that is no version
            encode, content_type = choose_encoder("")
        body = encode(self._registry())
        headers = [("Content-Type", content_type)]
        if gzip_accepted(str(environ.get("HTTP_ACCEPT_ENCODING", ""))):
            import gzip  # with its friends, a megabyte; Prometheus asks for it, people do not

            body = gzip.compress(body, compresslevel=1)
            headers.append(("Content-Encoding", "gzip"))
        headers.append(("Content-Length", str(len(body))))
        start_response("200 OK", headers)
        return [] if method == "HEAD" else [body]
