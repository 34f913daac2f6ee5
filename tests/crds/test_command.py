"""`opsdk crd --install` against both servers, over HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from crds.harness import new_kind_name
from opsdk.cli import main
from opsdk.testing.apiserver import ApiServer

MODULE = """
from opsdk import CustomResource, Model

class Spec(Model):
    {field}: int = 1

class {kind}(CustomResource[Spec], group="crds.example.com", version="v1", scope="Cluster"):
    pass
"""


@pytest.fixture(params=["memory", pytest.param("real", marks=pytest.mark.controlplane)])
def cluster(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[str]:
    """The kubeconfig of a server, which the environment names."""
    monkeypatch.chdir(tmp_path)
    if request.param == "real":
        monkeypatch.setenv("KUBECONFIG", str(request.getfixturevalue("real_kubeconfig")))
        yield "real"
        return

    @asynccontextmanager
    async def served() -> AsyncGenerator[str]:
        async with ApiServer() as server, server.serve() as api:
            yield api.kubeconfig()

    with start_blocking_portal() as portal, portal.wrap_async_context_manager(served()) as text:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(text)
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        yield "memory"


def write(folder: Path, kind: str, field: str) -> str:
    path = folder / f"{kind.lower()}_{field}.py"
    path.write_text(MODULE.format(kind=kind, field=field))
    return str(path)


def test_install_creates_changes_and_leaves_alone(
    cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = new_kind_name()
    name = f"{kind.lower()}s.crds.example.com"
    first, second = write(tmp_path, kind, "size"), write(tmp_path, kind, "color")
    assert main(["crd", first, "--install", "--dry-run"]) == 0
    assert capsys.readouterr().out == f"{name} created (dry run)\n"
    assert main(["crd", first, "--install"]) == 0
    assert capsys.readouterr().out == f"{name} created\n"
    assert main(["crd", first, "--install"]) == 0
    assert capsys.readouterr().out == f"{name} unchanged\n"
    assert main(["crd", second, "--install", "--field-manager", "somebody-else"]) == 1
    assert "--force takes over" in capsys.readouterr().err
    assert main(["crd", second, "--install", "--field-manager", "somebody-else", "--force"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{name} changed\n  spec.versions[v1]")
    assert "properties.size" in out


def test_a_wrong_context_is_told(cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = write(tmp_path, new_kind_name(), "size")
    assert main(["crd", module, "--install", "--context", "nowhere"]) == 2
    assert "nowhere" in capsys.readouterr().err


def test_a_cluster_that_is_not_there_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    module = write(tmp_path, new_kind_name(), "size")
    assert main(["crd", module, "--install"]) == 2
    assert "opsdk crd: " in capsys.readouterr().err
