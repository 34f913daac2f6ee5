"""The status that a state machine keeps, for custom resources that are structs. See `opsdk.models.machine_status`."""

from __future__ import annotations

from datetime import datetime

import msgspec
from lightkube.core.schema import DictMixin
from lightkube.models.meta_v1 import Condition

__all__ = ["MachineStatusStruct", "StateTransitionStruct"]


class StateTransitionStruct(DictMixin, rename="camel", kw_only=True):
    """One step from state to state, as a struct. See `StateTransition`."""

    from_: str = msgspec.field(default="", name="from")
    to: str
    reason: str = ""
    timestamp: datetime


class MachineStatusStruct(DictMixin, rename="camel", kw_only=True):
    """The part of a status that a `StateMachine` keeps, as a struct. See `MachineStatus`."""

    state: str = ""
    observed_generation: int = 0
    conditions: list[Condition] = []  # noqa: RUF012 - msgspec makes a new one for each
    state_history: list[StateTransitionStruct] = []  # noqa: RUF012 - msgspec makes a new one for each
    pending_entry: bool = False
