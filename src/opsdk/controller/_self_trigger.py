"""Notices an object whose every reconcile causes the next one."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, Generic, final

import anyio
import msgspec
from typing_extensions import TypeVar

from opsdk.cache import Cached
from opsdk.patches import merge_difference
from opsdk.protocols import KubeObject
from opsdk.types import Json, JsonObject, Request

__all__ = ["SelfTriggerDetector"]

T = TypeVar("T", bound=KubeObject)

logger = logging.getLogger(__name__)

_IN_A_ROW: Final = 25
"""More than the steps of any sensible lifecycle; the warning is repeated each time the number has doubled."""
_ECHO_SECONDS: Final = 1.0
_MOST_FIELDS: Final = 5
_OURS_TO_CHANGE: Final = frozenset({"resourceVersion", "generation", "managedFields"})


@final
class _Trail(msgspec.Struct, Generic[T]):
    """Reconciles in a row that met a change; `echo` is the one that the latest of them met."""

    echo: tuple[Cached[T], Cached[T]] | None
    in_a_row: int = 0
    warn_at: int = _IN_A_ROW


@final
class SelfTriggerDetector(Generic[T]):
    """Counts, for each object, reconciles in a row during or right after which the object itself changed.

    Which of the changes were the operator's own cannot be known; that each of so many reconciles met one can.
    Remembers only objects that are being reconciled, were a moment ago, or have changed meanwhile.
    """

    def __init__(self, controller: str) -> None:
        self._controller = controller
        self._running: set[Request] = set()
        self._ended: OrderedDict[Request, float] = OrderedDict()
        self._trails: dict[Request, _Trail[T]] = {}

    def __len__(self) -> int:
        return len(self._running | self._ended.keys() | self._trails.keys())

    def started(self, request: Request) -> bool:
        """A reconcile begins; whether the object has just been found to trigger itself."""
        self._running.add(request)
        self._ended.pop(request, None)
        trail = self._trails.get(request)
        if trail is None:
            return False
        echo, trail.echo = trail.echo, None
        if echo is None:
            del self._trails[request]
            return False
        trail.in_a_row += 1
        if trail.in_a_row < trail.warn_at:
            return False
        trail.warn_at *= 2
        logger.warning(
            "controller %s: %d reconciles of %s in a row changed the object itself, and each change caused the next "
            "reconcile. What changes is %s. Write it only when it differs, or keep such changes out with a predicate "
            "such as generation_changed()",
            self._controller,
            trail.in_a_row,
            request,
            ", ".join(_changed_fields(*echo)) or "nothing that can be named",
        )
        return True

    def ended(self, request: Request, at: float) -> None:
        """A reconcile ended, at that time of the loop."""
        self._running.discard(request)
        self._ended[request] = at
        while True:
            oldest = next(iter(self._ended))
            if at - self._ended[oldest] <= _ECHO_SECONDS:
                break
            self._forget_end(oldest)

    def changed(self, request: Request, old: Cached[T], new: Cached[T]) -> None:
        """The object changed in a way that causes a reconcile."""
        ended_at = self._ended.get(request)
        if request in self._running or (ended_at is not None and anyio.current_time() - ended_at <= _ECHO_SECONDS):
            trail = self._trails.get(request)
            if trail is None:
                self._trails[request] = _Trail((old, new))
            else:
                trail.echo = (old, new)

    def gone(self, request: Request) -> None:
        """The object was deleted."""
        self._trails.pop(request, None)
        self._ended.pop(request, None)

    def _forget_end(self, request: Request) -> None:
        del self._ended[request]
        trail = self._trails.get(request)
        if trail is not None and trail.echo is None:
            del self._trails[request]  # its latest reconcile met no change


def _changed_fields(old: Cached[T], new: Cached[T]) -> list[str]:
    """The names of what differs: never values, which may be secret."""
    try:
        before: Json = msgspec.json.decode(old.raw)
        after: Json = msgspec.json.decode(new.raw)
    except msgspec.MsgspecError:
        return []
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        return []
    found: list[str] = []
    _collect(merge_difference(before, after), "", found)
    return found[:_MOST_FIELDS]


def _collect(difference: JsonObject, path: str, found: list[str]) -> None:
    for name, value in difference.items():
        if path == "metadata" and name in _OURS_TO_CHANGE:
            continue
        place = f"{path}.{name}" if path else name
        if isinstance(value, Mapping) and value:
            _collect(value, place, found)
        else:
            found.append(place)
