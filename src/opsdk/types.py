"""Small values that every layer shares: requests, results, patches, selectors.

Nothing here talks to anything; nothing here imports from the layers above.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Literal, TypeAlias, final

import msgspec

__all__ = [
    "ConditionStatus",
    "Json",
    "JsonObject",
    "JsonPatch",
    "LabelSelector",
    "MergePatch",
    "Patch",
    "Preconditions",
    "PropagationPolicy",
    "Request",
    "Result",
    "Scope",
    "StrategicMergePatch",
]

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""A JSON value that is only read."""

JsonObject: TypeAlias = "Mapping[str, Json]"
"""A JSON object that is only read."""

Scope: TypeAlias = Literal["Namespaced", "Cluster"]
"""Whether objects of a kind live in namespaces."""

ConditionStatus: TypeAlias = Literal["True", "False", "Unknown"]
"""The three values that the API conventions allow for a condition's status."""

PropagationPolicy: TypeAlias = Literal["Background", "Foreground", "Orphan"]
"""What happens to dependents when their owner is deleted."""

LabelSelector: TypeAlias = "Mapping[str, str] | str"
"""Labels that must be equal, or a selector in Kubernetes' own syntax (`"tier in (web,api),!canary"`)."""


@final
class Request(msgspec.Struct, frozen=True, gc=False):  # each event makes some: a tenth of what a dataclass costs
    """What a reconciler is asked to look at: the name of one object, never the object.

    Args:
        name: The object's name.
        namespace: Its namespace; None for a cluster-scoped object.
    """

    name: str
    namespace: str | None = None

    def __str__(self) -> str:
        return self.name if self.namespace is None else f"{self.namespace}/{self.name}"


@final
class Result(msgspec.Struct, frozen=True):
    """What a reconcile asks for after it succeeded.

    Args:
        requeue_after: When to look at the object again: None, only when something happens; zero, at once.

    Raises:
        TypeError: `requeue_after` is no timedelta, but for example a number.
        ValueError: `requeue_after` is negative.
    """

    requeue_after: timedelta | None = None

    def __post_init__(self) -> None:
        if self.requeue_after is None:
            return
        _require_timedelta(self.requeue_after)
        if self.requeue_after < timedelta(0):
            msg = f"requeue_after is {self.requeue_after}; it must not be negative (None: no requeue, zero: now)"
            raise ValueError(msg)

    def sooner(self, other: Result, /) -> Result:
        """The one of the two results that asks to be called again first."""
        if self.requeue_after is None:
            return other
        if other.requeue_after is None or self.requeue_after <= other.requeue_after:
            return self
        return other


def _require_timedelta(value: object) -> None:
    """Refuse what the type checker would refuse, where there is none."""
    if not isinstance(value, timedelta):
        msg = (
            f"requeue_after: {value!r:.100} is of type {type(value).__name__}; give a timedelta, as in "
            "Result(requeue_after=timedelta(seconds=5))"
        )
        raise TypeError(msg)


@final
class MergePatch(msgspec.Struct, frozen=True):
    """A JSON merge patch (RFC 7386): what to set; null removes; lists are replaced whole."""

    body: JsonObject


@final
class JsonPatch(msgspec.Struct, frozen=True):
    """A JSON patch (RFC 6902): a list of operations, applied all or not at all."""

    operations: Sequence[JsonObject]


@final
class StrategicMergePatch(msgspec.Struct, frozen=True):
    """A strategic merge patch: lists merge by key. Built-in kinds only; the server answers 415 for custom resources."""

    body: JsonObject


Patch: TypeAlias = MergePatch | JsonPatch | StrategicMergePatch
"""A patch that names its own kind, so that the wrong content type cannot be sent."""


@final
class Preconditions(msgspec.Struct, frozen=True, kw_only=True):
    """What must still be true of an object for a delete to happen; else a `ConflictError`.

    Args:
        uid: The object is still this incarnation of its name.
        resource_version: Nobody has written it since.
    """

    uid: str | None = None
    resource_version: str | None = None
