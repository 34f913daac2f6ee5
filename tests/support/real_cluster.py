"""A real API server for the tests marked `controlplane`: the one that KUBECONFIG names, else one of our own.

Programs come from KUBEBUILDER_ASSETS, PATH, or the folder that OPSDK_CONTROLPLANE_ASSETS names (`make e2e` sets it).
"""

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
def real_cluster(crds: Sequence[JsonObject] = (), *, controllers: bool | None = None) -> Generator[RealCluster]:
    """A cluster that is ended with the context, if it is ours.

    Args:
        crds: Kinds to install before the controllers start; not in a cluster that is not ours.
        controllers: As for `ControlPlane`.
    """
    if configured := os.environ.get("KUBECONFIG"):
        yield RealCluster(kubeconfig=Path(configured), control_plane=None)
        return
    built = os.environ.get("OPSDK_CONTROLPLANE_ASSETS")
    assets = find_assets(Path(built) if built else None)
    with ControlPlane(assets=assets, crds=crds, controllers=controllers) as control_plane:
        yield RealCluster(kubeconfig=control_plane.kubeconfig, control_plane=control_plane)
