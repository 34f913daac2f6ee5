"""Declarative ownership: which children an object has, built by pure functions and kept in line.

Usable with any client that speaks the `opsdk.protocols.Client` protocol; needs no manager and no controller.
"""

from opsdk.ownership.declaration import For, OwnedKind, OwnedResources
from opsdk.ownership.labels import OWNER_SET_LABEL, OWNER_UID_LABEL
from opsdk.ownership.owner import CHILD_CONFLICT, CHILDREN_READY, FIELD_CONFLICT, ResourceOwner
from opsdk.ownership.plan import OwnershipPlan, PlannedAction, PlannedChange
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
