"""The status that a state machine keeps: where the object is, how it came there, what it told about itself.

Two families: `MachineStatus` for pydantic custom resources, `MachineStatusStruct` for those written as lightkube
structs. Same fields, same spelling on the wire; empty values are left out there, as Kubernetes' own types do.
"""

from __future__ import annotations

from typing import TypeAlias

from pydantic import Field

from opsdk.models.base import Model
from opsdk.models.machine_status_struct import MachineStatusStruct
from opsdk.models.scalars import Time
from opsdk.models.structs import Conditions

__all__ = ["AnyMachineStatus", "MachineStatus", "StateTransition"]


def _is_empty(value: object) -> bool:
    return not value


class StateTransition(Model):
    """One step from state to state."""

    from_: str = Field(default="", validation_alias="from", serialization_alias="from", exclude_if=_is_empty)
    """The state before; empty for the first."""
    to: str
    """The state after."""
    reason: str = Field(default="", exclude_if=_is_empty)
    """Why, in one CamelCase word."""
    timestamp: Time
    """When."""


class MachineStatus(Model):
    """The part of a status that a `StateMachine` keeps. Inherit from it and add fields of your own."""

    state: str = Field(default="", exclude_if=_is_empty)
    """The state that the object is in; empty before the first."""
    observed_generation: int = Field(default=0, exclude_if=_is_empty)
    """The generation of the spec that this status is about."""
    conditions: Conditions = Field(default=[], exclude_if=_is_empty)
    """What is true of the object now."""
    state_history: list[StateTransition] = Field(default=[], exclude_if=_is_empty)
    """The last transitions, oldest first."""
    pending_entry: bool = Field(default=False, exclude_if=_is_empty)
    """The state has been reached, but what has to be done on entering it has not succeeded yet."""


AnyMachineStatus: TypeAlias = MachineStatus | MachineStatusStruct
"""Either family; `isinstance` tells them apart."""
