"""ControlPlane itself: several side by side, each ended with whoever started it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from opsdk import CustomResource, Model
from opsdk.errors import ConfigurationError
from opsdk.models import crd_manifest
from opsdk.testing.controlplane import Assets, ControlPlane, ProcessFailedError, find_assets

pytestmark = pytest.mark.controlplane


class ThingSpec(Model):
    size: int = 1


class Thing(CustomResource[ThingSpec], group="other-things.example.com", version="v1"):
    """A kind to install."""


# A user's project, whose only test tells where its control plane is, and then waits to be killed.
_PROJECT = """
import json, time
from pathlib import Path
import pytest
from opsdk import CustomResource, Model
from opsdk.models import crd_manifest
from opsdk.testing.controlplane import ControlPlane

class ThingSpec(Model):
    size: int = 1

class Thing(CustomResource[ThingSpec], group="things.example.com", version="v1"):
    pass

@pytest.fixture(scope="session")
def control_plane_crds():
    return [crd_manifest(Thing)]

def test_it(control_plane: ControlPlane) -> None:
    processes = (control_plane.etcd, control_plane.api_server, control_plane.controller_manager)
    found = [str(control_plane.folder), str(control_plane.kubeconfig), *(each.pid for each in processes)]
    Path("found.tmp").write_text(json.dumps(found))
    Path("found.tmp").rename("found")
    time.sleep(600)
"""


def assets_folder() -> Path:
    built = os.environ.get("OPSDK_CONTROLPLANE_ASSETS")
    return find_assets(Path(built) if built else None).etcd.parent


@pytest.fixture
def project(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A run of pytest in a project that uses the plugin's fixtures."""
    (tmp_path / "test_project.py").write_text(_PROJECT)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_project.py"]
    environment = {**os.environ, "KUBEBUILDER_ASSETS": str(assets_folder())}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log)
    yield process
    process.kill()
    process.wait()


def runs(pid: int) -> bool:
    """Whether a process is there and more than a zombie."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def wait_until(holds: Callable[[], bool], seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_one_goes_with_a_pytest_that_is_killed_and_another_stays(
    project: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    with ControlPlane(assets=find_assets(assets_folder()), controllers=False, crds=[crd_manifest(Thing)]) as ours:
        assert ours._is_discovered(crd_manifest(Thing))  # pyright: ignore[reportPrivateUsage] - it asks as others do
        assert int(ours.url.rpartition(":")[2]) < 32768, "no connection gets that port while the server is down"
        wait_until((tmp_path / "found").exists)
        folder_name, kubeconfig, *pids = json.loads((tmp_path / "found").read_text())
        folder = Path(folder_name)
        assert folder.is_dir()
        assert all(runs(pid) for pid in pids)
        assert len({ours.folder, folder, ours.kubeconfig, Path(kubeconfig)}) == 4
        project.send_signal(signal.SIGKILL)
        project.wait()
        wait_until(lambda: not any(runs(pid) for pid in pids) and not folder.exists())
        ours.wait_ready()
        mine, ids = ours.folder, (ours.etcd.pid, ours.api_server.pid)
    assert not mine.exists()
    assert not any(runs(pid) for pid in ids if pid is not None)


def test_a_program_that_cannot_start_is_told_with_its_log_and_nothing_is_left(tmp_path: Path) -> None:
    for name in ("etcd", "kube-apiserver"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\necho the disk is full >&2\nexit 3\n")
        program.chmod(0o700)
    assets = Assets(etcd=tmp_path / "etcd", kube_apiserver=tmp_path / "kube-apiserver")
    control_plane = ControlPlane(assets=assets, start_timeout_seconds=10)
    with pytest.raises(ProcessFailedError, match=r"ended early \(exit status 3\):\nthe disk is full"):
        control_plane.start()
    with pytest.raises(ConfigurationError, match="not started"):
        _ = control_plane.folder
