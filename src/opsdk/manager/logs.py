"""Logs that say what they are about: JSON in a cluster, readable on a terminal.

Every line that is logged inside a reconcile, by opsdk or by anybody's `logging.getLogger(...)`, carries the
controller, the object and the reconcile's id.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, Literal, TextIO, TypeAlias, final

from typing_extensions import override

from opsdk.controller.context import current_reconcile

__all__ = ["JsonFormatter", "LogFormat", "ReconcileContextFilter", "TextFormatter", "configure_logging"]

LogFormat: TypeAlias = Literal["auto", "json", "text"]
"""JSON for machines, text for people; auto: JSON where the process runs in a cluster."""

Redact: TypeAlias = Callable[[str], str]
"""Is given a line before it is written, and returns what may be seen of it."""

_CONTEXT: Final = "opsdk_context"
_PLAIN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", _CONTEXT}
_CREDENTIALS: Final = re.compile(r"(?i)\b(bearer|basic)\s+[a-z0-9._~+/=-]{8,}")
_SECRET_NAME: Final = re.compile(r"(?i)password|passwd|secret|token|credential|authorization|api_?key")
_COLOURS: Final = {"DEBUG": "2", "WARNING": "33", "ERROR": "31", "CRITICAL": "1;31"}


def _context_of(record: logging.LogRecord) -> Mapping[str, str]:
    context: Mapping[str, str] = getattr(record, _CONTEXT, {})
    return context


def _extras_of(record: logging.LogRecord) -> dict[str, str | int | float | bool]:
    """What the caller passed as `extra=`, as far as it is a plain value and its name is not that of a secret."""
    return {
        key: "[redacted]" if _SECRET_NAME.search(key) else value
        for key, value in vars(record).items()
        if key not in _PLAIN and not key.startswith("_") and isinstance(value, (str, int, float, bool))
    }


def _time_of(record: logging.LogRecord) -> str:
    return f"{_second_of(int(record.created))}.{int(record.msecs):03d}Z"


@lru_cache(maxsize=1)  # many lines fall into one
def _second_of(created: int) -> str:
    return datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _without_credentials(text: str) -> str:
    folded = text.casefold()
    if "bearer" not in folded and "basic" not in folded:
        return text  # the expression takes a quarter of a line's time to find that out
    return _CREDENTIALS.sub(r"\1 [redacted]", text)


@final
class ReconcileContextFilter(logging.Filter):
    """Puts the reconcile that a line was logged in on the record, as the mapping `opsdk_context`.

    Add it to a handler of your own to have the context there, too. It lets every record pass.
    """

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        if not hasattr(record, _CONTEXT):
            setattr(record, _CONTEXT, _current_context())
        return True


def _current_context() -> dict[str, str]:
    context = current_reconcile()
    return {} if context is None else {key: value for key, value in context.fields().items() if value}


@final
class JsonFormatter(logging.Formatter):
    """One JSON object a line: ts, level, logger, msg, the reconcile's context, extras, exception."""

    def __init__(self, *, redact: Redact | None = None) -> None:
        super().__init__()
        self._redact = redact

    @override
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "ts": _time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": self._seen(record.getMessage()),
        }
        for key, value in {**_extras_of(record), **_context_of(record)}.items():
            line.setdefault(key, self._seen(value) if isinstance(value, str) else value)
        if record.exc_info:
            line["exception"] = self._seen(self.formatException(record.exc_info))
        if record.stack_info:
            line["stack"] = self._seen(self.formatStack(record.stack_info))
        return json.dumps(line, ensure_ascii=False, default=str)

    def _seen(self, text: str) -> str:
        text = _without_credentials(text)
        return text if self._redact is None else self._redact(text)


@final
class TextFormatter(logging.Formatter):
    """A line for people: time, level, logger, message, then `key=value`.

    Args:
        colours: Whether to colour the level and dim the context.
        redact: Is given the line before it is written.
    """

    def __init__(self, *, colours: bool = False, redact: Redact | None = None) -> None:
        super().__init__()
        self._colours = colours
        self._redact = redact

    @override
    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        pairs = {**_extras_of(record), **_context_of(record)}
        context = " ".join(f"{key}={value}" for key, value in pairs.items())
        level = f"{record.levelname:<7}"
        parts = [
            self._paint("2", _time_of(record)),
            self._paint(_COLOURS.get(record.levelname, ""), level),
            record.name,
            message,
            self._paint("2", context),
        ]
        text = " ".join(part for part in parts if part)
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        if record.stack_info:
            text += "\n" + self.formatStack(record.stack_info)
        text = _without_credentials(text)
        return text if self._redact is None else self._redact(text)

    def _paint(self, colour: str, text: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._colours and colour and text else text


def configure_logging(
    format: LogFormat = "auto",  # noqa: A002 - what logging calls it
    level: str | int = "INFO",
    *,
    stream: TextIO | None = None,
    redact: Redact | None = None,
) -> logging.Handler:
    """Set up the root logger: one handler that writes lines with the reconcile's context.

    Replaces the handler of an earlier call, and nobody else's.

    Args:
        format: `json`, `text`, or `auto`: JSON in a cluster, text elsewhere.
        level: The root logger's level.
        stream: Where to write; default: standard error. Colours only when it is a terminal and `NO_COLOR` is not set.
        redact: Is given each text before it is written. Credentials in HTTP's own spelling are cut in any case.

    Returns:
        The handler, for those who want to move it.
    """
    target = sys.stderr if stream is None else stream
    if format == "auto":
        format = "json" if os.environ.get("KUBERNETES_SERVICE_HOST") else "text"  # noqa: A001 - see above
    handler = _Handler(target)
    colours = target.isatty() and not os.environ.get("NO_COLOR")
    handler.setFormatter(
        JsonFormatter(redact=redact) if format == "json" else TextFormatter(colours=colours, redact=redact)
    )
    handler.addFilter(ReconcileContextFilter())
    root = logging.getLogger()
    for old in [other for other in root.handlers if isinstance(other, _Handler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    return handler


@final
class _Handler(logging.StreamHandler[TextIO]):
    """Ours, so that a second call finds the first one's."""
