"""The simulator: drive a reconciler by hand against the in-memory API server, and say what it must have written."""

from opsdk.testing.simulator._action import Action, RecordedEvent, Verb
from opsdk.testing.simulator._errors import (
    ExpectationError,
    NotSettledError,
    SimulatorUsageError,
    UnexpectedActionsError,
)
from opsdk.testing.simulator._expectations import Expectations
from opsdk.testing.simulator._httpx2 import TransportAdapter, lightkube_client
from opsdk.testing.simulator._matching import Matching, matching
from opsdk.testing.simulator._path import Target, parse_path
from opsdk.testing.simulator._recording import ActionLog, RecordingTransport
from opsdk.testing.simulator._simulator import Simulator

__all__ = [
    "Action",
    "ActionLog",
    "ExpectationError",
    "Expectations",
    "Matching",
    "NotSettledError",
    "RecordedEvent",
    "RecordingTransport",
    "Simulator",
    "SimulatorUsageError",
    "Target",
    "TransportAdapter",
    "UnexpectedActionsError",
    "Verb",
    "lightkube_client",
    "matching",
    "parse_path",
]
