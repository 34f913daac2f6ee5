"""A real API server for the tests marked `controlplane`: the one that KUBECONFIG names, else one of our own."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from opsdk.testing.controlplane import ControlPlane, find_assets
from opsdk.types import JsonObject

__all__ = ["RealCluster", "real_cluster"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RealCluster:
    """Where it is, and its processes when they are ours."""

    kubeconfig: Path
    control_plane: ControlPlane | None


@contextmanager
def real_cluster(crds: Sequence[JsonObject] = ()) -> Generator[RealCluster]:
    """KUBECONFIG takes precedence, then KUBEBUILDER_ASSETS and PATH, then the build that the Makefile points to."""
    if configured := os.environ.get("KUBECONFIG"):
        yield RealCluster(kubeconfig=Path(configured), control_plane=None)
        return
    built = os.environ.get("OPSDK_CONTROLPLANE_ASSETS")
    with ControlPlane(assets=find_assets(Path(built) if built else None), crds=crds) as control_plane:
        yield RealCluster(kubeconfig=control_plane.kubeconfig, control_plane=control_plane)
