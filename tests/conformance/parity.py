"""Writes docs/parity.md: what the suite asks of both servers, and where they differ.

The document is a function of the collected tests and of `differences.py` alone. That its claims hold is what the suite
says when it runs on both servers; that it is not stale is checked by collecting the tests, without running them.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import pytest

from conformance.differences import DIFFERENCES, Difference

__all__ = ["DOCUMENT", "PATHS", "ParityError", "collect", "render"]

_ROOT: Final = Path(__file__).resolve().parents[2]
DOCUMENT: Final = _ROOT / "docs" / "parity.md"
PATHS: Final = (
    *sorted(str(path) for path in Path(__file__).parent.glob("test_*.py")),
    str(_ROOT / "tests" / "foreign"),
)
"""Tests of API behaviour over plain HTTP, then other people's programs."""

_SERVERS: Final = frozenset(("memory", "real"))
_SECTION: Final = re.compile(r"# --- (?P<title>.+) ---")
_WORDS: Final = {
    "cel": "CEL",
    "crd": "CRD",
    "crds": "CRDs",
    "http": "HTTP",
    "json": "JSON",
    "kubernetes asyncio": "kubernetes-asyncio",
    "openapi": "OpenAPI",
    "yaml": "YAML",
    "suite s": "suite's",
}
_SPELLED: Final = re.compile(rf"\b({'|'.join(_WORDS)})\b")


class ParityError(Exception):
    """The tests do not say enough for a row that is explained."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One test function, on however many servers and in however many cases."""

    area: str
    section: str
    behaviour: str
    servers: frozenset[str]
    cases: int
    differences: tuple[Difference, ...]


@final
class _Collected:
    """A plugin that keeps what pytest has found."""

    def __init__(self) -> None:
        self.items: list[pytest.Function] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.items = [item for item in session.items if isinstance(item, pytest.Function)]


def collect() -> Sequence[Row]:
    """Find the tests, without running them.

    Raises:
        ParityError: They cannot be imported.
    """
    plugin, said = _Collected(), io.StringIO()
    with contextlib.redirect_stdout(said):
        code = pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *PATHS], plugins=[plugin])
    if code != pytest.ExitCode.OK:
        raise ParityError(said.getvalue())
    functions: dict[tuple[str, str], list[pytest.Function]] = defaultdict(list)
    for item in plugin.items:
        if _server(item):
            functions[str(item.path), item.originalname].append(item)
    return [_row(items) for items in functions.values()]


def _row(items: Sequence[pytest.Function]) -> Row:
    item = items[0]
    by_server: dict[str, int] = defaultdict(int)
    for each in items:
        by_server[_server(each)] += 1
    differences = {mark.name: mark for each in items for mark in _declared(each)}
    return Row(
        area=_first_line(inspect.getdoc(item.module) or ""),
        section=_section(item),
        behaviour=_sentence(item.originalname),
        servers=_servers(by_server),
        cases=min(by_server.values()),
        differences=tuple(differences.values()),
    )


def _servers(names: Iterable[str]) -> frozenset[str]:
    found: set[str] = set()
    for name in names:
        found |= _SERVERS if name == "both" else {"real" if name == "real" else "memory"}
    return frozenset(found)


def _server(item: pytest.Function) -> str:
    """Where it runs; `both` for a test that compares the two, nothing for one that is about no server."""
    server = item.callspec.params.get("server") if hasattr(item, "callspec") else None
    if isinstance(server, str):
        return server
    return "both" if item.get_closest_marker("controlplane") else ""


def _declared(item: pytest.Function) -> Iterable[Difference]:
    for mark in item.iter_markers("differs"):
        yield from mark.args


def _section(item: pytest.Function) -> str:
    """The heading that the test stands under in its file."""
    _, line, _ = item.reportinfo()
    above = Path(item.path).read_text().splitlines()[:line]
    titles = [match["title"] for line in above if (match := _SECTION.fullmatch(line))]
    return titles[-1] if titles else ""


def _sentence(name: str) -> str:
    words = name.removeprefix("test_").replace("_", " ")
    return _SPELLED.sub(lambda match: _WORDS[match[0]], words)


def _first_line(text: str) -> str:
    return text.partition("\n")[0].rstrip(".")


def render(rows: Sequence[Row]) -> str:
    """The document.

    Raises:
        ParityError: A row that nobody explains: a test on one server only, a difference without a test.
    """
    _check(rows)
    cases = sum(row.cases for row in rows)
    parts = [
        "# Parity of the in-memory API server with kube-apiserver",
        "<!-- written by `make parity` from the tests in tests/conformance and tests/foreign -->",
        (
            f"One suite runs on the in-memory server and on kube-apiserver {_version()} with its controllers: "
            f"{len(rows)} behaviours in {cases} cases. It passes on both. {len(DIFFERENCES)} differences are known, "
            "and the tests assert both sides of each. How this is kept true: [the design note](design/conformance.md)."
        ),
        (
            "A behaviour is one test, and its name says what was seen; a case is that test with one set of values (a "
            "kind, a patch, an odd name), run on both servers. “(3 cases)” after a behaviour: it was tried with three; "
            "without it, with one. Behaviours that are the same on both are folded, by area, below the differences."
        ),
        "## What differs",
        _table(
            ("what", "kube-apiserver", "in memory", "why", "what to do about it"),
            [
                (
                    f'<a id="{each.name}"></a>{each.what}',
                    each.kube_apiserver,
                    each.in_memory,
                    each.reason,
                    each.advice,
                )
                for each in DIFFERENCES
            ],
        ),
    ]
    areas: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        areas[row.area][row.section].append(row)
    for area, sections in areas.items():
        parts.append(f"## {area}")
        head = ("behaviour", "in memory", "kube-apiserver")
        if differ := [_line(row) for found in sections.values() for row in found if row.differences]:
            parts.append(_table(head, differ))
        alike: list[tuple[str, ...]] = []
        count = 0
        for section, found in sections.items():
            lines = [_line(row) for row in found if not row.differences]
            if section and lines:
                alike.append((f"**{section}**", "", ""))
            alike.extend(lines)
            count += len(lines)
        if alike:
            summary = f"<summary>{count} the same on both</summary>"
            parts += [f"<details>\n{summary}", _table(head, alike), "</details>"]
    return "\n\n".join(parts) + "\n"


def _line(row: Row) -> tuple[str, ...]:
    behaviour = f"{row.behaviour} ({row.cases} cases)" if row.cases > 1 else row.behaviour
    if not row.differences:
        return behaviour, "✓", "✓"
    links = ", ".join(f"[{each.what}](#{each.name})" for each in row.differences)
    return behaviour, f"✓, but for {links}", "✓"


def _check(rows: Sequence[Row]) -> None:
    faults = [
        f"{row.area}: “{row.behaviour}” runs only on {', '.join(row.servers)}"
        for row in rows
        if row.servers != _SERVERS
    ]
    used = {difference for row in rows for difference in row.differences}
    faults += [f"no test shows the difference {each.name}" for each in DIFFERENCES if each not in used]
    faults += [f"{each.name} is missing in DIFFERENCES" for each in used if each not in DIFFERENCES]
    for each in DIFFERENCES:
        texts = (each.what, each.kube_apiserver, each.in_memory, each.reason, each.advice)
        if not all(text.strip() and "|" not in text for text in texts):
            faults.append(f"{each.name} has a text that is empty, or that breaks the table")
    if faults:
        raise ParityError("\n".join(faults))


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *lines))


def _version() -> str:
    """The version that the project builds its control plane from."""
    modules = (_ROOT / "tests" / "controlplane" / "go.mod").read_text()
    found = re.search(r"k8s\.io/kubernetes v(\S+)", modules)
    if found is None:
        msg = "tests/controlplane/go.mod requires no k8s.io/kubernetes"
        raise ParityError(msg)
    return found[1]
