"""The fixtures, in a pytest of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = """
import pytest
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap
from opsdk.types import Result

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend(virtual_anyio_backend):
    return virtual_anyio_backend


class Operator:
    def __init__(self, client):
        self.client = client

    async def reconcile(self, request):
        await self.client.create(ConfigMap(metadata=ObjectMeta(name="made", namespace="default")))
        return Result()


async def start(simulator):
    sim = await simulator(Operator)
    await sim.create(ConfigMap(metadata=ObjectMeta(name="first", namespace="default")))
    return sim


async def test_expected(simulator):
    (await start(simulator)).expect_create(ConfigMap, "made")


async def test_left_over(simulator):
    await start(simulator)


async def test_fails_by_itself(simulator):
    await start(simulator)
    raise KeyError("mine")


async def test_server(api_server):
    assert await api_server.client().list(ConfigMap, namespace="nowhere") == []
"""


def test_the_fixtures_check_what_was_not_expected_unless_the_test_has_failed(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rA"]
    environment = {**os.environ, "PYTEST_ADDOPTS": ""}
    run = subprocess.run(
        [*command, str(tmp_path)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    lines = run.stdout.splitlines()

    def outcomes(name: str) -> set[str]:
        return {line.split(" ", 1)[0] for line in lines if f"::{name}[" in line and line[:1].isupper()}

    assert outcomes("test_expected") == {"PASSED"}
    assert outcomes("test_server") == {"PASSED"}
    assert outcomes("test_left_over") == {"PASSED", "ERROR"}
    assert outcomes("test_fails_by_itself") == {"FAILED"}
    assert "1 write that no expect_" in run.stdout
