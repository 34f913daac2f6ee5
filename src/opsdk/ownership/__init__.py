"""Declarative ownership: which children an object has, built by pure functions and kept in line.

Usable with any client that speaks the `opsdk.protocols.Client` protocol; needs no manager and no controller. `release`
is loaded when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from opsdk.ownership.declaration import For, OwnedKind, OwnedResources
from opsdk.ownership.labels import OWNER_SET_LABEL, OWNER_UID_LABEL
from opsdk.ownership.owner import CHILD_CONFLICT, CHILDREN_READY, FIELD_CONFLICT, ResourceOwner
from opsdk.ownership.plan import OwnershipPlan, PlannedAction, PlannedChange

if TYPE_CHECKING:
    from opsdk.ownership.release import ReleasedObject, ReleaseReport, release

__all__ = [
    "CHILDREN_READY",
    "CHILD_CONFLICT",
    "FIELD_CONFLICT",
    "OWNER_SET_LABEL",
    "OWNER_UID_LABEL",
    "For",
    "OwnedKind",
    "OwnedResources",
    "OwnershipPlan",
    "PlannedAction",
    "PlannedChange",
    "ReleaseReport",
    "ReleasedObject",
    "ResourceOwner",
    "release",
]

_LATER: Final = ("ReleaseReport", "ReleasedObject", "release")

if not TYPE_CHECKING:  # which would believe in every name

    def __getattr__(name: str) -> object:
        if name not in _LATER:
            msg = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(msg)
        value: object = getattr(import_module("opsdk.ownership.release"), name)
        globals()[name] = value
        return value
