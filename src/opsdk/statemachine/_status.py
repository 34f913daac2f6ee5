"""Writes a machine's part of a status, in whichever family of models the object is written."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Generic, TypeVar, final

import msgspec
from lightkube.models.meta_v1 import Condition

from opsdk.client import refresh_metadata
from opsdk.errors import ObjectError
from opsdk.models import MachineStatusStruct, StateTransitionStruct, codec_of, find_condition, set_condition
from opsdk.models.families import is_machine_model
from opsdk.protocols import Client, MachineObject, MachineStatusView
from opsdk.statemachine._texts import quoted
from opsdk.statemachine.handler import StateCondition

if TYPE_CHECKING:
    from opsdk.models import AnyMachineStatus

__all__ = ["MachinesOwn", "StatusInHand"]

CR = TypeVar("CR", bound=MachineObject)


@final
class MachinesOwn(msgspec.Struct, frozen=True, kw_only=True):
    """What only the machine may change in status, as it was at one moment."""

    state: str
    pending_entry: bool
    history: tuple[tuple[str, str, str, datetime | None], ...]

    def fault(self, later: MachinesOwn) -> str:
        """What somebody else has done to it since, for the text of an error; empty: nothing."""
        if later.state != self.state:
            return f"set status.state to {quoted(later.state)}; declare a Transition"
        if later.history != self.history:
            return "changed status.stateHistory, which the machine keeps; declare a Transition"
        if later.pending_entry != self.pending_entry:
            return f"set status.pendingEntry to {later.pending_entry}, which the machine keeps"
        return ""


@final
class StatusInHand(Generic[CR]):
    """The status of one object during one pass.

    Args:
        client: Writes it.
        cr: The object in hand. Its status now is what the difference is measured against.
    """

    def __init__(self, client: Client, cr: CR) -> None:
        self._client = client
        self._cr = cr
        self._kind = type(cr)
        self._base = client.snapshot(cr)

    @property
    def view(self) -> MachineStatusView:
        """The status as it is in memory now."""
        return self._cr.get_machine_status()

    def machines_own(self) -> MachinesOwn:
        """What the status says now of what only the machine may change."""
        view = self.view
        return MachinesOwn(
            state=view.state,
            pending_entry=bool(view.pending_entry),
            history=tuple((entry.from_, entry.to, entry.reason, entry.timestamp) for entry in view.state_history),
        )

    def record(self, to: str, *, reason: str, at: datetime, keep: int) -> None:
        """Record a transition whose `enter` has yet to succeed."""
        status = _writable(self.view)
        from_, at = status.state, at.replace(microsecond=0)
        if is_machine_model(status):
            from opsdk.models import StateTransition  # loaded where a MachineStatus is

            status.state_history.append(StateTransition(from_=from_, to=to, reason=reason, timestamp=at))
        else:
            status.state_history.append(StateTransitionStruct(from_=from_, to=to, reason=reason, timestamp=at))
        del status.state_history[:-keep]
        status.state = to
        status.pending_entry = True
        if self.view.state != to:
            raise ObjectError(
                f"{self._kind.__name__}.get_machine_status() returned a copy; it has to be the status itself, for what "
                "the machine writes into it is what gets stored"
            )

    def entered(self, conditions: Sequence[StateCondition], *, generation: int | None, at: datetime) -> None:
        """Record that `enter` has succeeded."""
        status = _writable(self.view)
        status.pending_entry = False
        for wanted in conditions:
            set_condition(
                status.conditions,
                type=wanted.type,
                status=wanted.status,
                reason=wanted.reason,
                message=wanted.message,
                observed_generation=generation,
                now=at,
            )
        self.observed(generation)

    def observed(self, generation: int | None, conditions: Sequence[StateCondition] = ()) -> None:
        """Record which generation the pass was about.

        Args:
            generation: The object's.
            conditions: What the state says; where the status still says so, it says it of this generation. Else a
                reader of `observedGeneration` would take a condition for outdated that has been looked at.
        """
        if generation is None:
            return
        status = _writable(self.view)
        status.observed_generation = generation
        for wanted in conditions:
            present = find_condition(status.conditions, wanted.type)
            if present is not None and (present.status, present.reason) == (wanted.status, wanted.reason):
                present.observedGeneration = generation

    def restore(self) -> None:
        """Bring back the status as it was when the pass began."""
        _put_status(self._cr, codec_of(self._kind).decode(self._base.typed))

    def keep(self, kept: Sequence[Condition]) -> None:
        """Put conditions into the status as they are."""
        conditions = self.view.conditions
        for condition in kept:
            present = next((i for i, other in enumerate(conditions) if other.type == condition.type), None)
            if present is None:
                conditions.append(condition)
            else:
                conditions[present] = condition

    async def write(self) -> bool:
        """Write what differs from the status at the beginning of the pass, if anything does.

        The condition of the write is the version that the object in hand says it is of: our own writes to it during
        the pass have moved that on.

        Returns:
            Whether there was a difference.

        Raises:
            ConflictError: Somebody else has written the object since it was read.
            NotFoundError: It is gone.
            ObjectError: The server did not keep what was written.
        """
        stored = await self._client.status.patch_from(self._base, self._cr)
        if stored is None:
            return False
        if lost := _lost(self.view, stored.get_machine_status()):
            raise ObjectError(
                f"{self._kind.__name__}: the server did not keep {', '.join(lost)}: does the schema of its "
                "CustomResourceDefinition have them? `opsdk.models.crd_manifest` writes one that does"
            )
        refresh_metadata(self._cr, stored)
        return True


def _lost(written: MachineStatusView, stored: MachineStatusView) -> list[str]:
    """The fields without which a machine would do the same thing over and over, and which the server dropped."""
    pairs = (
        ("state", written.state, stored.state),
        ("observedGeneration", written.observed_generation, stored.observed_generation),
        ("stateHistory", len(written.state_history), len(stored.state_history)),
        ("pendingEntry", written.pending_entry, stored.pending_entry),
    )
    return [f"status.{name}" for name, mine, theirs in pairs if mine and not theirs]


def _writable(status: MachineStatusView) -> AnyMachineStatus:
    if isinstance(status, MachineStatusStruct) or is_machine_model(status):
        return status
    raise ObjectError(
        f"get_machine_status() returned a {type(status).__name__}; it has to be the object's MachineStatus or "
        "MachineStatusStruct, or a class that inherits from one of them"
    )


def _put_status(cr: MachineObject, pristine: MachineObject) -> None:
    """Give `cr` the status of `pristine`: all of it where it is an attribute `status`, else the machine's part."""
    whole: object = getattr(pristine, "status", None)
    if whole is not None:
        cr.__setattr__("status", whole)
        return
    mine, theirs = _writable(cr.get_machine_status()), _writable(pristine.get_machine_status())
    mine.state = theirs.state
    mine.observed_generation = theirs.observed_generation
    mine.conditions[:] = theirs.conditions
    mine.pending_entry = theirs.pending_entry
    if isinstance(mine, MachineStatusStruct):
        if isinstance(theirs, MachineStatusStruct):
            mine.state_history[:] = theirs.state_history
            return
    elif is_machine_model(theirs):
        mine.state_history[:] = theirs.state_history
        return
    msg = f"{type(cr).__name__}: two objects of one class have different families of status"
    raise TypeError(msg)
