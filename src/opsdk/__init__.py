"""A strictly typed SDK for Kubernetes operators.

Write custom resources as typed models (`CustomResource`), declare a lifecycle (`StateMachine`), children
(`ResourceOwner`) or a row in a database (`setup_reconciler`), and run it all under a `Manager`. The packages below have
the rest; each is usable alone.

Names are imported from their packages when they are first asked for, so that a program pays only for what it uses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from opsdk._lightkube import load_clients_when_asked

if TYPE_CHECKING:
    from opsdk.errors import NotReadyError, RetryError, TerminalError
    from opsdk.manager import Manager, ManagerOptions, default_manager_options, for_state_machine, setup
    from opsdk.models import CustomResource, MachineStatus, Model
    from opsdk.ownership import For, OwnedResources, ResourceOwner
    from opsdk.persistence import setup_reconciler
    from opsdk.protocols import (
        Client,
        KubeObject,
        MachineObject,
        ObservedGenerationGetter,
        ObservedGenerationSetter,
        Reconciler,
        StatusConditioner,
        StatusPatchGenerator,
    )
    from opsdk.statemachine import StateCondition, StateEvent, StateHandler, StateMachine, States, Transition
    from opsdk.types import Request, Result

__all__ = [
    "Client",
    "CustomResource",
    "For",
    "KubeObject",
    "MachineObject",
    "MachineStatus",
    "Manager",
    "ManagerOptions",
    "Model",
    "NotReadyError",
    "ObservedGenerationGetter",
    "ObservedGenerationSetter",
    "OwnedResources",
    "Reconciler",
    "Request",
    "ResourceOwner",
    "Result",
    "RetryError",
    "StateCondition",
    "StateEvent",
    "StateHandler",
    "StateMachine",
    "States",
    "StatusConditioner",
    "StatusPatchGenerator",
    "TerminalError",
    "Transition",
    "default_manager_options",
    "for_state_machine",
    "setup",
    "setup_reconciler",
]

load_clients_when_asked()

_HOMES: Final = {
    "errors": ("NotReadyError", "RetryError", "TerminalError"),
    "manager": ("Manager", "ManagerOptions", "default_manager_options", "for_state_machine", "setup"),
    "models": ("CustomResource", "MachineStatus", "Model"),
    "ownership": ("For", "OwnedResources", "ResourceOwner"),
    "persistence": ("setup_reconciler",),
    "protocols": (
        "Client",
        "KubeObject",
        "MachineObject",
        "ObservedGenerationGetter",
        "ObservedGenerationSetter",
        "Reconciler",
        "StatusConditioner",
        "StatusPatchGenerator",
    ),
    "statemachine": ("StateCondition", "StateEvent", "StateHandler", "StateMachine", "States", "Transition"),
    "types": ("Request", "Result"),
}
_HOME_OF: Final = {name: f"opsdk.{home}" for home, names in _HOMES.items() for name in names}


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
