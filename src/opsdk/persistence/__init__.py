"""Resources kept in step with a database: stored by a hook, removed by another, and honest about it in status."""

from opsdk.persistence._hooks import Hook
from opsdk.persistence._not_ready import find_not_ready
from opsdk.persistence._unique import is_unique_violation
from opsdk.persistence.reconciler import ConflictRecognizer, PersistenceReconciler
from opsdk.persistence.setup import PersistenceHost, setup_reconciler

__all__ = [
    "ConflictRecognizer",
    "Hook",
    "PersistenceHost",
    "PersistenceReconciler",
    "find_not_ready",
    "is_unique_violation",
    "setup_reconciler",
]
