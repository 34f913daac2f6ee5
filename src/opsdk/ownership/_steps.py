"""What is decided about one child before anything is written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias, final

import msgspec

from opsdk.models import ResourceInfo
from opsdk.ownership.plan import PlannedAction, PlannedChange
from opsdk.patches import describe_difference, redacted
from opsdk.types import JsonObject, Request

__all__ = ["Redact", "Step", "described"]

Redact: TypeAlias = Callable[[str, Sequence[str]], bool]
"""Whether a value must not be shown, by the child's kind and the path of the value."""

_KEPT: Final = ("name", "namespace", "annotations", "finalizers", "labels", "ownerReferences")


@final
class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What is to become of one child.

    Args:
        action: What.
        request: Its name.
        reason: Why nothing can be done now.
        before: Makes its document as it is; None: there is none.
        after: Makes its document as it is to be.
        given_up: The fields that we applied once and do not want any more.
        becomes_ready: Whether it would be ready then, as far as that can be told before.
        run: Does it; None: nothing can be done now.
    """

    action: PlannedAction
    request: Request
    reason: str = ""
    before: Callable[[], JsonObject] | None = None
    after: Callable[[], JsonObject] | None = None
    given_up: tuple[str, ...] = ()
    becomes_ready: Callable[[], bool] | None = None
    run: Callable[[], Awaitable[None]] | None = None

    def held(self, reason: str) -> Step:
        """The same step, that has to wait for something else."""
        return msgspec.structs.replace(self, action="wait", reason=reason, run=None)


def described(info: ResourceInfo, step: Step, redact: Redact | None) -> PlannedChange:
    """The step as the public knows it, with nothing secret in it."""

    def hidden(path: Sequence[str]) -> bool:
        return redact is not None and redact(info.kind, path)

    before, after = _shown(info, step.before), _shown(info, step.after)
    lines: list[str] = []
    if after is not None:
        lines += describe_difference({"kind": info.kind} if before is None else before, after, redact=hidden)
    lines += [f"{path}: ours -> (given up)" for path in step.given_up]
    return PlannedChange(
        action=step.action,
        kind=info.kind,
        request=step.request,
        reason=step.reason,
        difference=tuple(line for line in lines if not line.startswith("apiVersion: ")),
        before=None if before is None else redacted(before, redact=hidden),
        after=None if after is None else redacted(after, redact=hidden),
    )


def _shown(info: ResourceInfo, make: Callable[[], JsonObject] | None) -> JsonObject | None:
    if make is None:
        return None
    document = make()
    metadata = document.get("metadata")
    members = metadata if isinstance(metadata, dict) else {}
    return {
        "apiVersion": info.api_version,
        "kind": info.kind,
        "metadata": {name: members[name] for name in _KEPT if name in members},
        **{name: value for name, value in document.items() if name not in {"apiVersion", "kind", "metadata", "status"}},
    }
