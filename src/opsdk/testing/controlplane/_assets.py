"""Where the programs of a control plane are."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import final

from opsdk.errors import ConfigurationError

__all__ = ["Assets", "find_assets"]

VARIABLE = "KUBEBUILDER_ASSETS"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Assets:
    """The programs of one control plane.

    Args:
        etcd: The store.
        kube_apiserver: The API server.
        kube_controller_manager: The built-in controllers; None where there are none (as in envtest's assets): then
            nothing collects garbage, deletes namespaces or rolls Deployments out.
        kubectl: The command line; None where there is none.
    """

    etcd: Path
    kube_apiserver: Path
    kube_controller_manager: Path | None = None
    kubectl: Path | None = None


def find_assets(folder: Path | None = None) -> Assets:
    """Find the programs.

    Args:
        folder: Where to look when neither `KUBEBUILDER_ASSETS` nor `PATH` has them.

    Raises:
        ConfigurationError: etcd or kube-apiserver are nowhere; the text says where it looked.
    """
    looked: list[str] = []
    if configured := os.environ.get(VARIABLE):
        found = _in_folder(Path(configured))
        if found is None:
            msg = f"{VARIABLE}={configured} has no executable etcd and kube-apiserver"
            raise ConfigurationError(msg)
        return found
    looked.append(f"{VARIABLE} (not set)")
    if (etcd := shutil.which("etcd")) and (apiserver := shutil.which("kube-apiserver")):
        manager, kubectl = shutil.which("kube-controller-manager"), shutil.which("kubectl")
        return Assets(
            etcd=Path(etcd),
            kube_apiserver=Path(apiserver),
            kube_controller_manager=Path(manager) if manager else None,
            kubectl=Path(kubectl) if kubectl else None,
        )
    looked.append("PATH")
    if folder is not None:
        if found := _in_folder(folder):
            return found
        looked.append(str(folder))
    msg = f"no etcd and kube-apiserver found; looked in {', '.join(looked)}. Set {VARIABLE} to a folder that has them"
    raise ConfigurationError(msg)


def _in_folder(folder: Path) -> Assets | None:
    def program(name: str) -> Path | None:
        path = folder / name
        return path if os.access(path, os.X_OK) else None

    etcd, apiserver = program("etcd"), program("kube-apiserver")
    if etcd is None or apiserver is None:
        return None
    return Assets(
        etcd=etcd,
        kube_apiserver=apiserver,
        kube_controller_manager=program("kube-controller-manager"),
        kubectl=program("kubectl"),
    )
