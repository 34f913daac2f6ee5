"""Fault sweeps: break an operator at every call that it makes, and see whether it still does its work."""

from opsdk.testing.sweeps._calls import ApiCall, WatchEventSeen
from opsdk.testing.sweeps._faults import FAULT_KINDS, FaultKind
from opsdk.testing.sweeps._settings import Invariant, Operator, Outside, Scenario
from opsdk.testing.sweeps._sweep import sweep
from opsdk.testing.sweeps.errors import ScenarioError, SweepError, SweepUsageError
from opsdk.testing.sweeps.result import SweepFailure, SweepResult
from opsdk.testing.sweeps.world import World

__all__ = [
    "FAULT_KINDS",
    "ApiCall",
    "FaultKind",
    "Invariant",
    "Operator",
    "Outside",
    "Scenario",
    "ScenarioError",
    "SweepError",
    "SweepFailure",
    "SweepResult",
    "SweepUsageError",
    "WatchEventSeen",
    "World",
    "sweep",
]
