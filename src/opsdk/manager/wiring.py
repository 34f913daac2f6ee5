"""`setup`: what a manager does for the parts that it is told about."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Generic, final

import msgspec
from typing_extensions import TypeVar

from opsdk.cache import Cached, Change, ObjectAdded, ObjectDeleted, ObjectModified
from opsdk.errors import DecodeError
from opsdk.manager.manager import Manager
from opsdk.metrics import Census
from opsdk.models import MachineStatusStruct, resource_of
from opsdk.models.families import is_machine_model
from opsdk.protocols import MachineObject

if TYPE_CHECKING:  # a manager without state machines does not load them
    from opsdk.statemachine import StateMachine

__all__ = ["SetupOption", "for_state_machine", "setup"]

CR = TypeVar("CR", bound=MachineObject)


@final
class SetupOption:
    """One thing for `setup` to do. Made by functions such as `for_state_machine`; opaque."""

    __slots__ = ("_apply",)

    def __init__(self, apply: Callable[[Manager], None], /) -> None:
        self._apply = apply

    def apply(self, manager: Manager, /) -> None:
        """Do it. Called by `setup`."""
        self._apply(manager)


def setup(manager: Manager, /, *options: SetupOption) -> None:
    """Let `manager` serve what operators are expected to serve, and take care of the parts that `options` name.

    `/healthz`, `/livez`, `/readyz` and `/metrics` are served as the manager's own options say. Call it before the
    manager starts.

    Args:
        manager: The manager.
        options: See `for_state_machine`.
    """
    for option in options:
        option.apply(manager)


def for_state_machine(machine: StateMachine[CR], /) -> SetupOption:
    """Meter a state machine, and let it record its events through the manager, unless it was given a recorder.

    Its transitions, dwell times, passes and unexpected exceptions are counted; its objects are, from the cache, by
    state, by generation lag and by pending deletion.
    """

    def apply(manager: Manager) -> None:
        info = resource_of(machine.kind)
        machine.observe(manager.metrics.machine(info.kind, machine.states))
        machine.use_recorder(manager.recorder)
        census = manager.metrics.census(info.kind, machine.states)
        namespaces = manager.namespaces if info.scope == "Namespaced" else ()
        for namespace in namespaces or (None,):
            manager.informers.informer(machine.kind, namespace).add_handler(_CensusHandler(census))

    return SetupOption(apply)


class _Status(msgspec.Struct):
    state: str = ""
    observed_generation: int = msgspec.field(default=0, name="observedGeneration")


class _Document(msgspec.Struct):
    status: _Status | None = None


_FACTS: Final = msgspec.json.Decoder(_Document)


@final
class _CensusHandler(Generic[CR]):
    """Keeps a census in step with a cache.

    A model whose status is a `MachineStatus` has its state and generation in a known place, which is read from the
    bytes without decoding the object. Others are decoded, once for each change.
    """

    def __init__(self, census: Census) -> None:
        self._census = census
        self._plain: bool | None = None

    def __call__(self, change: Change[CR], /) -> None:
        match change:
            case ObjectAdded(new=new) | ObjectModified(new=new):
                self._put(new)
            case ObjectDeleted(old=old):
                self._census.drop(old.header.uid)

    def _put(self, cached: Cached[CR]) -> None:
        header = cached.header
        try:
            state, observed = self._facts(cached)
        except (DecodeError, msgspec.MsgspecError):
            state, observed = "", header.generation  # malformed objects are reported elsewhere
        self._census.put(
            header.uid,
            state=state,
            lagging=observed < header.generation,
            deleting=header.deletion_timestamp is not None,
        )

    def _facts(self, cached: Cached[CR]) -> tuple[str, int]:
        if self._plain:
            status = _FACTS.decode(cached.raw).status or _Status()
            return status.state, status.observed_generation
        obj = cached.decode()
        status_view = obj.get_machine_status()
        if self._plain is None:
            own: object = getattr(obj, "status", None)
            self._plain = status_view is own and (isinstance(own, MachineStatusStruct) or is_machine_model(own))
        return status_view.state, status_view.observed_generation
