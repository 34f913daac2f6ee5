"""`opsdk release`, from its arguments to what it prints."""

from __future__ import annotations

import argparse
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap

from opsdk.cli import main
from opsdk.cli._release import configure, perform
from opsdk.client import ApiClient
from opsdk.ownership import OWNER_SET_LABEL
from opsdk.testing import ApiServer

pytestmark = pytest.mark.anyio

FINALIZER = "demo.example.com/children"


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    configure(parser)
    return parser.parse_args(arguments)


@pytest.fixture
async def client() -> AsyncGenerator[ApiClient]:
    async with ApiServer() as server:
        client = server.client()
        metadata = ObjectMeta(name="c", namespace="default", finalizers=[FINALIZER], labels={OWNER_SET_LABEL: "web"})
        await client.create(ConfigMap(metadata=metadata))
        yield client


async def test_a_dry_run_says_what_would_be_released_and_releases_nothing(
    client: ApiClient, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--finalizer", "demo.example.com/*", "--owner-set", "web")
    assert await perform(client, parsed(*arguments, "--dry-run")) == 0
    expected = f"label {OWNER_SET_LABEL}", f"finalizer {FINALIZER}"
    assert capsys.readouterr().out.splitlines() == [f"would release ConfigMap default/c: {what}" for what in expected]
    assert await perform(client, parsed(*arguments)) == 0
    assert capsys.readouterr().out.splitlines() == [f"released ConfigMap default/c: {what}" for what in expected]
    assert await perform(client, parsed(*arguments)) == 0
    assert capsys.readouterr().out == "nothing to release\n"


async def test_it_looks_only_where_it_is_told_to(client: ApiClient, capsys: pytest.CaptureFixture[str]) -> None:
    for place in (("--kind", "secrets"), ("--namespace", "kube-system")):
        assert await perform(client, parsed("--finalizer", FINALIZER, *place)) == 0
        assert capsys.readouterr().out == "nothing to release\n"
    assert await perform(client, parsed("--finalizer", FINALIZER, "--kind", "configmaps", "-n", "default")) == 0
    assert "released ConfigMap default/c" in capsys.readouterr().out


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_it_finds_the_cluster_by_kubeconfig_and_says_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with ApiServer() as server, server.serve() as served:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(served.kubeconfig())
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        assert await anyio.to_thread.run_sync(main, ["release", "--finalizer", FINALIZER]) == 0
        assert await anyio.to_thread.run_sync(main, ["release"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "nothing to release\n"
    assert captured.err.startswith("opsdk release: ")
    assert "neither finalizers nor owner sets are named" in captured.err
