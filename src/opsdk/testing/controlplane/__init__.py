"""A real etcd, kube-apiserver and kube-controller-manager for tests, on loopback, in seconds.

The programs come from `KUBEBUILDER_ASSETS`, else from `PATH`, else from a folder that is passed in (opsdk's own
repository builds one from Go modules). Several can run side by side; each has its own folder, ports and credentials.
"""

from opsdk.testing.controlplane._assets import Assets, find_assets
from opsdk.testing.controlplane._controlplane import ControlPlane
from opsdk.testing.controlplane._process import Process, ProcessFailedError

__all__ = ["Assets", "ControlPlane", "Process", "ProcessFailedError", "find_assets"]
