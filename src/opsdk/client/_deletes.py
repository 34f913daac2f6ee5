"""What a delete says besides what it is about."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from opsdk.client._queries import whole_seconds
from opsdk.types import Json, Preconditions, PropagationPolicy

__all__ = ["delete_options"]


def delete_options(
    *,
    propagation: PropagationPolicy | None,
    dry_run: bool,
    preconditions: Preconditions | None = None,
    grace_period: timedelta | None = None,
) -> bytes:
    """The body of a DELETE."""
    options: dict[str, Json] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if propagation is not None:
        options["propagationPolicy"] = propagation
    if dry_run:
        options["dryRun"] = ["All"]
    if grace_period is not None:
        options["gracePeriodSeconds"] = int(whole_seconds(grace_period))
    conditions: dict[str, Json] = {}
    if preconditions is not None and preconditions.uid is not None:
        conditions["uid"] = preconditions.uid
    if preconditions is not None and preconditions.resource_version is not None:
        conditions["resourceVersion"] = preconditions.resource_version
    if conditions:
        options["preconditions"] = conditions
    return msgspec.json.encode(options)
