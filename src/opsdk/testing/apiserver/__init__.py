"""A Kubernetes API server in memory that tells the truth, for tests and for trying things out."""

from opsdk.testing.apiserver._kinds import KindInfo, KindRegistry
from opsdk.testing.apiserver.server import ApiServer

__all__ = ["ApiServer", "KindInfo", "KindRegistry"]
