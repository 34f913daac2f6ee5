"""What a reconcile would do, as data and for people to read."""

from __future__ import annotations

from typing import Literal, TypeAlias, final

import msgspec

from opsdk.types import JsonObject, Request

__all__ = ["OwnershipPlan", "PlannedAction", "PlannedChange"]

PlannedAction: TypeAlias = Literal["create", "change", "adopt", "delete", "wait", "conflict"]
"""What is to become of a child. `wait` and `conflict` are no writes: something else has to happen first."""


@final
class PlannedChange(msgspec.Struct, frozen=True, kw_only=True):
    """One child, and what is to become of it. Values of Secrets are hidden everywhere.

    Args:
        action: What.
        kind: The child's kind.
        request: Its name.
        reason: Why it is waited for, whom it belongs to.
        difference: One line for each leaf that is to differ: `spec.replicas: 1 -> 2`.
        before: The child as it is, without status and without what the server decides; None for one to be created.
        after: The child as it is to be; None for one to be deleted.
    """

    action: PlannedAction
    kind: str
    request: Request
    reason: str = ""
    difference: tuple[str, ...] = ()
    before: JsonObject | None = None
    after: JsonObject | None = None

    def __str__(self) -> str:
        """A line, and one for each leaf that is to differ below it."""
        head = f"{self.action} {self.kind} {self.request}" + (f": {self.reason}" if self.reason else "")
        return "\n".join((head, *(f"    {line}" for line in self.difference)))


@final
class OwnershipPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What `ResourceOwner.reconcile` would do with the children of one object, judged by what can be read.

    Not promised: what the server will say. A change that it refuses, an object that appears meanwhile, and what
    follows once something has become ready are no part of a plan.

    Args:
        owner: The object, for people to read.
        changes: Its children that would not stay as they are, in the order in which they would be written.
        finalizers_to_add: What the object itself gets before the first child.
        finalizers_to_remove: What the object itself, being deleted, loses.
    """

    owner: str
    changes: tuple[PlannedChange, ...]
    finalizers_to_add: tuple[str, ...] = ()
    finalizers_to_remove: tuple[str, ...] = ()

    @property
    def writes(self) -> bool:
        """Whether anything would be written."""
        finalizers = self.finalizers_to_add or self.finalizers_to_remove
        return bool(finalizers) or any(change.action not in {"wait", "conflict"} for change in self.changes)

    def __str__(self) -> str:
        """The plan, one line for each step and for each leaf that is to differ."""
        lines = [f"add finalizer {name}" for name in self.finalizers_to_add]
        lines += [str(change) for change in self.changes]
        lines += [f"remove finalizer {name}" for name in self.finalizers_to_remove]
        body = "\n".join(lines or ["nothing to do"])
        return "\n".join((f"{self.owner}:", *(f"  {line}" for line in body.splitlines())))
