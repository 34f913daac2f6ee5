"""What an operator asked of the API server during a run, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast, final

import msgspec

from opsdk.client.transport import HttpRequest
from opsdk.testing.simulator import Target
from opsdk.types import Json, JsonObject

__all__ = ["ApiCall", "WatchEventSeen", "as_object", "as_sequence", "is_dry_run", "is_swept", "parse_json", "text_at"]

_UNSWEPT_GROUPS: Final = frozenset(
    {"authentication.k8s.io", "authorization.k8s.io", "coordination.k8s.io", "events.k8s.io"}
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCall:
    """One request of the operator, other than a watch.

    Args:
        number: Counted from 1 over the run, writes and reads apart: what `crash-after:3` means.
        method: The HTTP method.
        group: API group; empty for the core group.
        version: Version of the API.
        plural: The resource's plural name.
        namespace: None for a cluster-scoped object, and for lists of all namespaces.
        name: None for a list, for a collection, and where the server chooses the name.
        subresource: `status`, `scale` …; None for the object itself.
        existed: Whether the object was there before the call.
        code: What the server answered; 0: the operator never got an answer.
        process: Which process of the operator it was, counted from 1.
    """

    number: int
    method: str
    group: str
    version: str
    plural: str
    namespace: str | None
    name: str | None
    subresource: str | None
    existed: bool
    code: int
    process: int

    def __str__(self) -> str:
        place = "/".join(part for part in (self.plural, self.namespace, self.name) if part)
        return f"{self.method} {place}{f' {self.subresource}' if self.subresource else ''}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEventSeen:
    """One event that a watch of the operator brought.

    Args:
        number: Counted from 1 over the run.
        type: `ADDED`, `MODIFIED` or `DELETED`.
        plural: The resource's plural name.
        namespace: The object's namespace; None for a cluster-scoped one.
        name: Its name.
    """

    number: int
    type: str
    plural: str
    namespace: str | None
    name: str

    def __str__(self) -> str:
        return f"{self.type} {'/'.join(part for part in (self.plural, self.namespace, self.name) if part)}"


def is_swept(target: Target) -> bool:
    """Whether faults are put at calls of this resource: not at events, Leases and reviews."""
    return target.group not in _UNSWEPT_GROUPS and not (not target.group and target.plural == "events")


def is_dry_run(request: HttpRequest) -> bool:
    """Whether the request changes nothing by its own wish."""
    if any(key == "dryRun" for key, _ in request.query):
        return True
    options = as_object(parse_json(request.body)) if request.method == "DELETE" else None
    return options is not None and bool(options.get("dryRun"))


def parse_json(raw: bytes | None) -> Json:
    """Decode `raw`; None when it is empty or not JSON."""
    if not raw:
        return None
    try:
        return cast("Json", msgspec.json.decode(raw))
    except msgspec.DecodeError:
        return None


def as_object(value: Json) -> JsonObject | None:
    """`value` if it is a JSON object."""
    return value if isinstance(value, Mapping) else None


def as_sequence(value: Json) -> Sequence[Json]:
    """`value` if it is a JSON array, else an empty one."""
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def text_at(document: JsonObject | None, *path: str) -> str:
    """The string at `path`, else an empty one."""
    value: Json = document
    for part in path:
        if not isinstance(value, Mapping):
            return ""
        value = value.get(part)
    return value if isinstance(value, str) else ""
