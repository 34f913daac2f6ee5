"""Controllers: sources of keys, a queue, workers that reconcile, and what their results mean.

Not a controller yet, but what makes one: `ControllerBuilder`. What it needs of the program around it is
`ControllerHost`, which a manager is.
"""

from opsdk.controller._share import Turn, WorkDivision
from opsdk.controller._sources import KeyStream, MapFunction
from opsdk.controller.builder import ControllerBuilder, ReconcileFunction
from opsdk.controller.context import ReconcileContext, current_reconcile, reconciling
from opsdk.controller.controller import Controller
from opsdk.controller.host import ControllerHost
from opsdk.controller.metrics import ControllerMetrics, ReconcileMetrics, ReconcileOutcome, WorkInProgress
from opsdk.controller.predicates import (
    Predicate,
    annotations_changed,
    changed,
    generation_changed,
    labels_changed,
    resource_changed,
)

__all__ = [
    "Controller",
    "ControllerBuilder",
    "ControllerHost",
    "ControllerMetrics",
    "KeyStream",
    "MapFunction",
    "Predicate",
    "ReconcileContext",
    "ReconcileFunction",
    "ReconcileMetrics",
    "ReconcileOutcome",
    "Turn",
    "WorkDivision",
    "WorkInProgress",
    "annotations_changed",
    "changed",
    "current_reconcile",
    "generation_changed",
    "labels_changed",
    "reconciling",
    "resource_changed",
]
