"""The test kit: an in-memory API server, a simulator on top of it, and virtual time. Imported by tests only.

`opsdk.testing.plugin` has fixtures for pytest.
"""

from opsdk.testing.apiserver import ApiServer
from opsdk.testing.simulator import (
    Action,
    ExpectationError,
    Matching,
    NotSettledError,
    RecordedEvent,
    Simulator,
    UnexpectedActionsError,
    matching,
)
from opsdk.testing.virtual_time import VirtualClock, virtual_asyncio_options, virtual_backends, virtual_trio_options

__all__ = [
    "Action",
    "ApiServer",
    "ExpectationError",
    "Matching",
    "NotSettledError",
    "RecordedEvent",
    "Simulator",
    "UnexpectedActionsError",
    "VirtualClock",
    "matching",
    "virtual_asyncio_options",
    "virtual_backends",
    "virtual_trio_options",
]
