"""Kubernetes' two spellings of time.

`Time` has seconds and `MicroTime` six digits after them; both are UTC and end in Z. The API server refuses a MicroTime
without its digits, and reads what has no offset as no time at all.
"""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["micro_time_text", "time_text", "to_second"]


def _utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError(
            f"{moment.isoformat()} has no time zone, and Kubernetes wants one; use opsdk.clock.now() or "
            "datetime(..., tzinfo=UTC)"
        )
    return moment.astimezone(UTC)


def time_text(moment: datetime) -> str:
    """`moment` as a Time.

    Raises:
        ValueError: It is naive.
    """
    return f"{_utc(moment).replace(tzinfo=None).isoformat(timespec='seconds')}Z"


def micro_time_text(moment: datetime) -> str:
    """`moment` as a MicroTime.

    Raises:
        ValueError: It is naive.
    """
    return f"{_utc(moment).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def to_second(moment: datetime) -> datetime:
    """`moment` as it will be read back: in UTC, without the fraction.

    Raises:
        ValueError: It is naive.
    """
    return _utc(moment).replace(microsecond=0)
