"""The test kit: an in-memory API server, a simulator and fault sweeps on top of it, and virtual time. For tests only.

`opsdk.testing.plugin` has fixtures for pytest. pytest imports it wherever opsdk is installed, so names are imported
from their packages when they are first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
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
    from opsdk.testing.sweeps import SweepError, SweepResult, World, sweep
    from opsdk.testing.virtual_time import VirtualClock, virtual_asyncio_options, virtual_backends, virtual_trio_options

__all__ = [
    "Action",
    "ApiServer",
    "ExpectationError",
    "Matching",
    "NotSettledError",
    "RecordedEvent",
    "Simulator",
    "SweepError",
    "SweepResult",
    "UnexpectedActionsError",
    "VirtualClock",
    "World",
    "matching",
    "sweep",
    "virtual_asyncio_options",
    "virtual_backends",
    "virtual_trio_options",
]

_HOMES: Final = {
    "apiserver": ("ApiServer",),
    "simulator": (
        "Action",
        "ExpectationError",
        "Matching",
        "NotSettledError",
        "RecordedEvent",
        "Simulator",
        "UnexpectedActionsError",
        "matching",
    ),
    "sweeps": ("SweepError", "SweepResult", "World", "sweep"),
    "virtual_time": ("VirtualClock", "virtual_asyncio_options", "virtual_backends", "virtual_trio_options"),
}
_HOME_OF: Final = {name: f"opsdk.testing.{home}" for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
