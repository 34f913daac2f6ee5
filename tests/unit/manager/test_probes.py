"""The probes' answers."""

from __future__ import annotations

import logging
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from opsdk.manager.probes import Health, ProbeApplication, Verdict
from opsdk.metrics import ThreadedServer


def ask(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


class Probes:
    def __init__(self) -> None:
        self.loop_fault: str | None = None
        self.cache_fault: str | None = None
        self.liveness = Health("livez", lambda: [Verdict("loop", self.loop_fault)])
        self.readiness = Health("readyz", lambda: [Verdict("caches", self.cache_fault), Verdict("leadership")])
        self.server = ThreadedServer(ProbeApplication(self.liveness, self.readiness), "127.0.0.1:0")

    def ask(self, path: str) -> tuple[int, str]:
        return ask(self.server.url + path)


@pytest.fixture
def probes() -> Iterator[Probes]:
    probes = Probes()
    with probes.server:
        yield probes


@pytest.mark.parametrize("path", ["/livez", "/healthz", "/readyz", "/readyz/", "/readyz/caches"])
def test_a_healthy_process_answers_ok(probes: Probes, path: str) -> None:
    assert probes.ask(path) == (200, "ok")


def test_verbose_lists_every_check(probes: Probes) -> None:
    probes.readiness.add("database", lambda: None)
    assert probes.ask("/readyz?verbose") == (
        200,
        "[+]caches ok\n[+]leadership ok\n[+]database ok\nreadyz check passed\n",
    )


def test_a_fault_says_what_is_wrong(probes: Probes) -> None:
    probes.cache_fault = "the cache of Widget has not synced"
    code, text = probes.ask("/readyz")
    assert code == 500
    assert "[-]caches failed: the cache of Widget has not synced" in text
    assert probes.ask("/readyz/leadership") == (200, "ok")
    assert probes.ask("/livez") == (200, "ok")


def test_a_check_that_raises_fails_without_showing_its_text_outside(
    probes: Probes, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> str | None:
        raise ConnectionError("postgres://admin:hunter2@db")

    probes.liveness.add("database", broken)
    with caplog.at_level(logging.WARNING, "opsdk.manager"):
        code, text = probes.ask("/healthz")
    assert code == 500
    assert "database failed: it raised ConnectionError" in text
    assert "hunter2" not in text


@pytest.mark.parametrize("path", ["/", "/metrics", "/readyz/no-such-check", "/livezz"])
def test_anything_else_is_not_found(probes: Probes, path: str) -> None:
    assert probes.ask(path)[0] == 404


@pytest.mark.parametrize("name", ["", "a/b"])
def test_a_check_needs_a_name_that_a_path_can_hold(probes: Probes, name: str) -> None:
    with pytest.raises(ValueError, match="cannot name a check"):
        probes.readiness.add(name, lambda: None)
