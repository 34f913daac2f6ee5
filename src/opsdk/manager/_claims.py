"""What a Lease says about its holder."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import final

import msgspec
from lightkube.models.coordination_v1 import LeaseSpec
from lightkube.resources.coordination_v1 import Lease

from opsdk.protocols import MetadataView

__all__ = ["Claim", "annotations_of", "why"]


def annotations_of(metadata: MetadataView | None) -> Mapping[str, str]:
    """The annotations; none when there is no metadata."""
    return {} if metadata is None else metadata.annotations or {}


def why(error: Exception) -> str:
    """What went wrong, for people: a timeout of our own has no text."""
    return str(error) or "no answer in time"


@final
class Claim(msgspec.Struct, frozen=True):
    """What a Lease says. Another one means that its holder is alive."""

    holder: str
    acquired: datetime | None
    renewed: datetime | None
    seconds: int
    transitions: int

    @staticmethod
    def of(lease: Lease) -> Claim:
        """The claim in a Lease."""
        spec = lease.spec or LeaseSpec()
        return Claim(
            spec.holderIdentity or "",
            spec.acquireTime,
            spec.renewTime,
            spec.leaseDurationSeconds or 0,
            spec.leaseTransitions or 0,
        )
