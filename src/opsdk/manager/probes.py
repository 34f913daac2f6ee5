"""The kubelet's questions, answered from a thread of their own: `/livez` (also `/healthz`) and `/readyz`.

Alive means that the event loop turns. Ready means that every cache is complete and fresh, that leadership is in order
(leading or standing by), and that the checks of the program pass.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias, final
from urllib.parse import parse_qs

import msgspec

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

__all__ = ["Check", "Health", "ProbeApplication", "Verdict"]

_logger = logging.getLogger(__name__)

Check: TypeAlias = Callable[[], "str | None"]
"""Returns None when all is well, else what is wrong. Called on a thread of the probe server: quick, and thread-safe.

A check that raises fails; the exception is logged, and the answer names only its type.
"""

Verdicts: TypeAlias = Callable[[], "Sequence[Verdict]"]


@final
class Verdict(msgspec.Struct, frozen=True):
    """What one check found.

    Args:
        name: The check.
        fault: What is wrong; None: nothing.
    """

    name: str
    fault: str | None = None


@final
class Health:
    """The checks of one process: some named ones, and those that are computed together.

    Args:
        title: `livez` or `readyz`.
        builtin: The manager's own checks.
    """

    def __init__(self, title: str, builtin: Verdicts) -> None:
        self.title: Final[str] = title
        self._builtin = builtin
        self._lock = threading.Lock()
        self._checks: dict[str, Check] = {}

    def add(self, name: str, check: Check) -> None:
        """Add a check, in place of one of the same name. From any thread."""
        if not name or "/" in name:
            msg = f"{name!r} cannot name a check: /{self.title}/NAME asks for it"
            raise ValueError(msg)
        with self._lock:
            self._checks[name] = check

    def verdicts(self) -> list[Verdict]:
        """Run all checks. From any thread."""
        with self._lock:
            checks = list(self._checks.items())
        return [*self._builtin(), *(_run(name, check) for name, check in checks)]


def _run(name: str, check: Check) -> Verdict:
    try:
        return Verdict(name, check())
    except Exception as error:
        # The text may hold what nobody outside may read, such as a database's address.
        _logger.warning("the check %s failed", name, exc_info=error)
        return Verdict(name, f"it raised {type(error).__name__}")


@final
class ProbeApplication:
    """Answers the probes, as a WSGI application.

    200 and `ok`, or 500 and what is wrong. `?verbose` lists every check; `/readyz/NAME` asks for one.

    Args:
        liveness: Behind `/livez` and `/healthz`.
        readiness: Behind `/readyz`.
    """

    def __init__(self, liveness: Health, readiness: Health) -> None:
        self._routes = {"livez": liveness, "healthz": liveness, "readyz": readiness}

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one probe. Called on the server's threads."""
        status, text = self._answer(
            str(environ["REQUEST_METHOD"]), str(environ["PATH_INFO"]), str(environ.get("QUERY_STRING", ""))
        )
        body = text.encode()
        start_response(
            status,
            [
                ("Content-Type", "text/plain; charset=utf-8"),
                ("Content-Length", str(len(body))),
                ("X-Content-Type-Options", "nosniff"),
                ("Cache-Control", "no-store"),
            ],
        )
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    def _answer(self, method: str, path: str, query: str) -> tuple[str, str]:
        route, _, only = path.strip("/").partition("/")
        health = self._routes.get(route)
        if health is None:
            return "404 Not Found", "probes are at /livez, /readyz and /healthz\n"
        if method not in {"GET", "HEAD"}:
            return "405 Method Not Allowed", "use GET\n"
        verdicts = health.verdicts()
        if only:
            verdicts = [verdict for verdict in verdicts if verdict.name == only]
            if not verdicts:
                return "404 Not Found", f"{route} has no such check\n"
        healthy = all(verdict.fault is None for verdict in verdicts)
        if healthy and "verbose" not in parse_qs(query, keep_blank_values=True):
            return "200 OK", "ok"
        lines = [
            f"[+]{verdict.name} ok" if verdict.fault is None else f"[-]{verdict.name} failed: {verdict.fault}"
            for verdict in verdicts
        ]
        lines.append(f"{route} check {'passed' if healthy else 'failed'}")
        return "200 OK" if healthy else "500 Internal Server Error", "\n".join(lines) + "\n"
