"""When an object is tried again."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta
from typing import final

__all__ = ["RetryDelays"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RetryDelays:
    """How long a persistence reconciler waits before it tries an object again.

    Attributes:
        failure: After a failed `on_upsert` or `on_delete`. Default 2 minutes. As long as nothing but the text of a
            failure changes, status is not written more often than this.
        conflict: After `on_conflict` has made way. Default 15 seconds.
        conflict_failure: After a failed `on_conflict`. Default 5 minutes.

    Raises:
        ValueError: One of them is not positive, which would be a hot loop.
    """

    failure: timedelta = timedelta(minutes=2)
    conflict: timedelta = timedelta(seconds=15)
    conflict_failure: timedelta = timedelta(minutes=5)

    def __post_init__(self) -> None:
        for field in fields(self):
            delay: timedelta = getattr(self, field.name)
            if delay <= timedelta(0):
                raise ValueError(f"retry delay {field.name} is {delay}; it must be positive")
