"""What a pass writes to status: computed by difference, sent once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final, Generic, cast, final

import anyio
import msgspec
from typing_extensions import TypeVar

from opsdk.errors import NotFoundError, ObjectError
from opsdk.models import codec_of, find_condition, metadata_of, name_of, set_condition, view_of
from opsdk.persistence._memory import Memo
from opsdk.protocols import (
    Client,
    KubeObject,
    ObservedGenerationGetter,
    ObservedGenerationSetter,
    Snapshot,
    StatusConditioner,
    StatusPatchGenerator,
)
from opsdk.types import ConditionStatus, Json, JsonObject, JsonPatch, MergePatch

__all__ = [
    "ReadyChange",
    "StatusWrite",
    "begin_status",
    "observe_generation",
    "observed_generation_of",
    "set_ready",
    "write_status",
]

T = TypeVar("T", bound=KubeObject)

READY: Final = "Ready"

_Generate = Callable[[object], MergePatch | JsonPatch | None]


@final
class ReadyChange(msgspec.Struct, frozen=True, kw_only=True):
    """What `set_ready` did to the object in hand. The memo learns of it when it is written, not before.

    Args:
        changed: Whether Ready's status or reason changed, which is when an event is due.
        ready: Status and reason now.
        message_at: When the message became what it is, on the loop's clock; None: it is what it was.
    """

    changed: bool
    ready: tuple[str, str]
    message_at: float | None

    def remember(self, memo: Memo) -> None:
        """It is written."""
        memo.ready = self.ready
        if self.message_at is not None:
            memo.message_written_at = self.message_at


@final
class StatusWrite(msgspec.Struct, Generic[T], frozen=True):
    """What the object looked like before the hook: the base of the difference."""

    base: Snapshot[T]
    previous: T | None


def begin_status(client: Client, obj: T) -> StatusWrite[T]:
    """Remember what `obj` looks like now."""
    previous: T | None = None
    if isinstance(obj, StatusPatchGenerator):
        codec = codec_of(type(obj))
        previous = cast("T", codec.decode(codec.encode(obj)))
    return StatusWrite(client.snapshot(obj), previous)


def observed_generation_of(obj: KubeObject) -> int | None:
    """The generation that status is about; None when the object cannot tell."""
    return obj.get_observed_generation() if isinstance(obj, ObservedGenerationGetter) else None


def observe_generation(obj: KubeObject) -> None:
    """Say that status is about the current generation."""
    generation = view_of(obj).generation
    if generation is not None and isinstance(obj, ObservedGenerationSetter):
        obj.set_observed_generation(generation)


def set_ready(
    obj: KubeObject, memo: Memo, status: ConditionStatus, reason: str, message: str, *, hold_message: timedelta
) -> ReadyChange:
    """Set the Ready condition, if the object has conditions.

    A message that differs on every pass must not cause a write on every pass, each of which would cause the next one:
    with status, reason and generation unchanged, a new message waits until `hold_message` after the last one.
    """
    generation = view_of(obj).generation
    ready = (status, reason)
    if not isinstance(obj, StatusConditioner):
        return ReadyChange(changed=memo.ready != ready, ready=ready, message_at=None)
    conditions = obj.get_status_conditions()
    old = find_condition(conditions, READY)
    changed = old is None or (old.status, old.reason) != ready
    now = anyio.current_time()
    if old is not None and not changed and old.observedGeneration == generation and old.message != message:
        written = memo.message_written_at
        if written is not None and now - written < hold_message.total_seconds():
            return ReadyChange(changed=False, ready=ready, message_at=None)
    touched = set_condition(
        conditions, type=READY, status=status, reason=reason, message=message, observed_generation=generation
    )
    return ReadyChange(changed=changed, ready=ready, message_at=now if touched else None)


async def write_status(client: Client, obj: T, write: StatusWrite[T]) -> None:
    """Send the difference, if there is one. An object that is gone needs no status.

    Raises:
        ConflictError: Somebody else wrote the object since it was read.
        ObjectError: The object's own patch changes something other than status.
    """
    try:
        if isinstance(obj, StatusPatchGenerator):
            generate = cast("_Generate", obj.generate_status_patch)  # `previous` is a copy of the same class
            patch = generate(write.previous)
            if patch is None:
                return
            view = view_of(obj)
            stored = await client.status.patch(
                type(obj), name_of(obj), _guarded(patch, view.resourceVersion), namespace=view.namespace
            )
            _move_on(obj, stored)
        else:
            written = await client.status.patch_from(write.base, obj)
            if written is not None:
                _move_on(obj, written)
    except NotFoundError:
        return


def _move_on(obj: KubeObject, stored: KubeObject) -> None:
    metadata_of(obj).resourceVersion = view_of(stored).resourceVersion


def _guarded(patch: MergePatch | JsonPatch, resource_version: str | None) -> MergePatch | JsonPatch:
    """The patch, reduced to status, on the condition that nobody has written the object since it was read."""
    match patch:
        case MergePatch(body):
            if "status" not in body:
                raise ObjectError("generate_status_patch returned a merge patch without status")
            guarded: dict[str, Json] = {"status": body["status"]}
            if resource_version:
                guarded["metadata"] = {"resourceVersion": resource_version}
            return MergePatch(guarded)
        case JsonPatch(operations):
            for operation in operations:
                path = operation.get("path")
                if not (isinstance(path, str) and (path == "/status" or path.startswith("/status/"))):
                    raise ObjectError(f"generate_status_patch returned an operation on {path!r}, which is not status")
            test: JsonObject = {"op": "test", "path": "/metadata/resourceVersion", "value": resource_version}
            return JsonPatch([test, *operations] if resource_version else list(operations))
