"""What log lines look like, and what they say about the reconcile they are from."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator

import msgspec
import pytest

from opsdk.controller.context import ReconcileContext, reconciling
from opsdk.manager.logs import LogFormat, configure_logging

CONTEXT = ReconcileContext(
    controller="widget",
    kind="Widget",
    namespace="staging",
    name="w",
    reconcile_id="r-1",
    uid="u-1",
    generation=3,
    document=lambda: b'{"status":{"state":"running"}}',
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def logged(stream: io.StringIO) -> dict[str, object]:
    return msgspec.json.decode(stream.getvalue(), type=dict[str, object])


def test_a_users_own_logger_carries_the_reconcile_in_json() -> None:
    stream = io.StringIO()
    configure_logging("json", stream=stream)
    with reconciling(CONTEXT):
        logging.getLogger("my.operator").info("created %s", "w-web", extra={"replicas": 3})
    line = logged(stream)
    assert isinstance(line.pop("ts"), str)
    assert line == {
        "level": "info",
        "logger": "my.operator",
        "msg": "created w-web",
        "replicas": 3,
        "controller": "widget",
        "kind": "Widget",
        "namespace": "staging",
        "name": "w",
        "uid": "u-1",
        "generation": "3",
        "reconcile_id": "r-1",
        "state": "running",
    }


def test_outside_of_a_reconcile_a_line_has_no_context() -> None:
    stream = io.StringIO()
    configure_logging("json", stream=stream)
    logging.getLogger("my.operator").warning("hello")
    assert set(logged(stream)) == {"ts", "level", "logger", "msg"}


def test_text_is_readable_and_coloured_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    plain, terminal = io.StringIO(), Terminal()
    for stream in (plain, terminal):
        configure_logging("text", stream=stream)
        with reconciling(CONTEXT):
            logging.getLogger("my.operator").warning("careful")
    assert "WARNING my.operator careful controller=widget kind=Widget namespace=staging name=w" in plain.getvalue()
    assert "\x1b[" not in plain.getvalue()
    assert "\x1b[33mWARNING" in terminal.getvalue()


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal()
    configure_logging("text", stream=terminal)
    logging.getLogger("my.operator").warning("careful")
    assert "\x1b[" not in terminal.getvalue()


@pytest.mark.parametrize(("host", "first"), [("10.0.0.1", "{"), ("", "2")])
def test_auto_is_json_in_a_cluster_and_text_elsewhere(monkeypatch: pytest.MonkeyPatch, host: str, first: str) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    stream = io.StringIO()
    configure_logging(stream=stream)
    logging.getLogger("my.operator").warning("hello")
    assert stream.getvalue()[0] == first


def test_a_second_call_replaces_the_first_and_nobody_elses_handler() -> None:
    foreign = logging.NullHandler()
    logging.getLogger().addHandler(foreign)
    first, second = io.StringIO(), io.StringIO()
    configure_logging("text", stream=first)
    configure_logging("text", stream=second)
    logging.getLogger("my.operator").warning("once")
    assert first.getvalue() == ""
    assert second.getvalue().count("once") == 1
    assert foreign in logging.getLogger().handlers


@pytest.mark.parametrize("format_", ["json", "text"])
def test_credentials_are_never_shown(format_: LogFormat) -> None:
    stream = io.StringIO()
    configure_logging(format_, stream=stream, redact=lambda text: text.replace("hunter2", "***"))

    def fail() -> None:
        raise ValueError("Authorization: Bearer eyJhbGciOiJSUzI1NiJ9.payload.signature and hunter2")

    try:
        fail()
    except ValueError:
        logging.getLogger("my.operator").exception(
            "sent authorization: Bearer eyJhbGciOiJSUzI1NiJ9.payload.signature, hunter2",
            extra={"header": "Basic dXNlcjpwYXNzd29yZA==", "token": "abc", "client_secret": "xyz"},
        )
    text = stream.getvalue()
    assert "Bearer [redacted]" in text
    for secret in ("eyJhbGci", "dXNlcjpwYXNz", "hunter2", "abc", "xyz"):
        assert secret not in text


def test_an_exception_is_part_of_its_json_line() -> None:
    stream = io.StringIO()
    configure_logging("json", stream=stream)
    try:
        sys.exit("stop")
    except SystemExit:
        logging.getLogger("my.operator").exception("failed")
    line = logged(stream)
    assert "SystemExit: stop" in str(line["exception"])
