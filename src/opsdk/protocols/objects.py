"""What opsdk asks of an object. Methods and read-only properties only, so that pydantic models and structs both fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol, Self, runtime_checkable

from lightkube.models.meta_v1 import Condition, ObjectMeta, OwnerReference

from opsdk.types import JsonPatch, MergePatch

__all__ = [
    "KubeObject",
    "MachineObject",
    "MachineStatusView",
    "MetadataView",
    "ObservedGenerationGetter",
    "ObservedGenerationSetter",
    "StateTransitionView",
    "StatusConditioner",
    "StatusPatchGenerator",
]


@runtime_checkable
class KubeObject(Protocol):
    """Anything with Kubernetes metadata: lightkube's resources, `CustomResource`, a class of your own."""

    @property
    def metadata(self) -> ObjectMeta | None: ...


class MetadataView(Protocol):
    """`ObjectMeta` as a typed, read-only view: lightkube declares the maps as bare `dict`."""

    @property
    def name(self) -> str | None: ...
    @property
    def namespace(self) -> str | None: ...
    @property
    def uid(self) -> str | None: ...
    @property
    def resourceVersion(self) -> str | None: ...  # noqa: N802 - lightkube's spelling
    @property
    def generation(self) -> int | None: ...
    @property
    def creationTimestamp(self) -> datetime | None: ...  # noqa: N802 - lightkube's spelling
    @property
    def deletionTimestamp(self) -> datetime | None: ...  # noqa: N802 - lightkube's spelling
    @property
    def labels(self) -> Mapping[str, str] | None: ...
    @property
    def annotations(self) -> Mapping[str, str] | None: ...
    @property
    def finalizers(self) -> Sequence[str] | None: ...
    @property
    def ownerReferences(self) -> Sequence[OwnerReference] | None: ...  # noqa: N802 - lightkube's spelling


class StateTransitionView(Protocol):
    """One entry of a state history."""

    @property
    def from_(self) -> str: ...
    @property
    def to(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def timestamp(self) -> datetime: ...


class MachineStatusView(Protocol):
    """What a state machine needs of a status. `MachineStatus` and `MachineStatusStruct` both fit.

    Read-only here; the machine writes through `opsdk.models.AnyMachineStatus`, the union of both families.
    """

    @property
    def state(self) -> str: ...
    @property
    def observed_generation(self) -> int: ...
    @property
    def conditions(self) -> list[Condition]: ...
    @property
    def state_history(self) -> Sequence[StateTransitionView]: ...
    @property
    def pending_entry(self) -> bool: ...


@runtime_checkable
class MachineObject(KubeObject, Protocol):
    """A custom resource that a `StateMachine` can drive."""

    def get_machine_status(self) -> MachineStatusView:
        """The status itself, not a copy: what the machine writes into it is what gets stored."""
        ...


@runtime_checkable
class StatusConditioner(KubeObject, Protocol):
    """A custom resource with conditions."""

    def get_status_conditions(self) -> list[Condition]:
        """The list itself, not a copy: conditions are set by changing it."""
        ...


@runtime_checkable
class ObservedGenerationSetter(KubeObject, Protocol):
    """A custom resource that records which generation its status is about."""

    def set_observed_generation(self, generation: int, /) -> None: ...


@runtime_checkable
class ObservedGenerationGetter(KubeObject, Protocol):
    """A custom resource that tells which generation its status is about; 0 when none."""

    def get_observed_generation(self) -> int: ...


@runtime_checkable
class StatusPatchGenerator(KubeObject, Protocol):
    """A custom resource that decides itself what is written to its status."""

    def generate_status_patch(self, previous: Self, /) -> MergePatch | JsonPatch | None:
        """The patch from `previous` (a copy from before the hooks ran) to this object; None: write nothing."""
        ...
