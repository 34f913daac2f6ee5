"""Resources kept in step with a database: stored by a hook, removed by another, and honest about it in status."""

from opsdk.persistence._calls import ConflictRecognizer
from opsdk.persistence._hooks import Hook
from opsdk.persistence._not_ready import find_not_ready
from opsdk.persistence._unique import is_unique_violation
from opsdk.persistence.delays import RetryDelays
from opsdk.persistence.observer import HookName, PersistenceMetrics, PersistenceObserver
from opsdk.persistence.reconciler import PersistenceReconciler
from opsdk.persistence.setup import PersistenceHost, setup_reconciler

__all__ = [
    "ConflictRecognizer",
    "Hook",
    "HookName",
    "PersistenceHost",
    "PersistenceMetrics",
    "PersistenceObserver",
    "PersistenceReconciler",
    "RetryDelays",
    "find_not_ready",
    "is_unique_violation",
    "setup_reconciler",
]
