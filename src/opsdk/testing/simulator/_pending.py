"""Which reconciles are due: by what changed since they last ran, and by the time they asked for.

A real controller learns of changes by watching. Here, everything that the reconciler has ever looked at is listed and
compared, which sees the same changes without tasks, sockets or waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import final

from opsdk.client.transport import HttpRequest, Transport
from opsdk.ownership.labels import OWNER_UID_LABEL
from opsdk.testing.simulator._action import as_object, parse_json, text_at
from opsdk.testing.simulator._path import Target
from opsdk.types import Json, JsonObject, Request

__all__ = ["Pending", "PrimaryKind"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PrimaryKind:
    """The kind whose objects are reconciled."""

    group: str
    kind: str
    target: Target
    namespaced: bool


@final
@dataclass(slots=True, kw_only=True)
class Pending:
    """What is due.

    Args:
        transport: Where to list.
        revision: The version of the newest write; nothing has changed while it stays.
        changed: Requests with a change that they have not seen, oldest first.
        timers: When each request asked to be looked at again.
    """

    transport: Transport
    revision: Callable[[], str]
    changed: dict[Request, None] = field(default_factory=dict[Request, None])
    timers: dict[Request, datetime] = field(default_factory=dict[Request, datetime])
    _seen: dict[tuple[str, str, str], dict[str, JsonObject]] = field(
        default_factory=dict[tuple[str, str, str], dict[str, JsonObject]]
    )
    _looked: tuple[str, int] | None = None

    async def look(self, primary: PrimaryKind, resources: Mapping[tuple[str, str, str], Target]) -> None:
        """Mark the requests whose object or children have changed since the last look."""
        looked = (self.revision(), len(resources))
        if looked == self._looked:
            return
        self._looked = looked
        owners: dict[str, Request] = {}
        for resource, target in {primary.target.resource: primary.target, **resources}.items():
            if target.plural == "events":
                continue
            now = await self._list(target)
            if now is None:
                continue
            before = self._seen.get(resource, {})
            self._seen[resource] = now
            if resource == primary.target.resource:
                owners = {uid: _request(item) for uid, item in (before | now).items()}
            for uid in {**before, **now}:
                old, new = before.get(uid), now.get(uid)
                if _version(old) == _version(new):
                    continue
                for item in (old, new):
                    if item is not None:
                        for request in _requests(item, resource, primary, owners):
                            self.changed[request] = None

    def ran(self, request: Request) -> None:
        """A reconcile of `request` starts now: what changed before is seen, and its timer is used up."""
        self.changed.pop(request, None)
        self.timers.pop(request, None)

    def first_timer(self) -> tuple[Request, datetime] | None:
        """The request that is due first, and when."""
        return min(self.timers.items(), key=lambda item: item[1], default=None)

    async def _list(self, target: Target) -> dict[str, JsonObject] | None:
        response = await self.transport.request(HttpRequest(method="GET", path=target.collection_path))
        answer = as_object(parse_json(response.body)) if response.status == 200 else None
        if answer is None:
            return None
        items = answer.get("items")
        documents = [item for item in _sequence(items) if isinstance(item, Mapping)]
        return {text_at(item, "metadata", "uid"): item for item in documents}


def _sequence(value: Json) -> Sequence[Json]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def _version(item: JsonObject | None) -> str:
    return text_at(item, "metadata", "resourceVersion")


def _request(item: JsonObject) -> Request:
    return Request(text_at(item, "metadata", "name"), text_at(item, "metadata", "namespace") or None)


def _requests(
    item: JsonObject, resource: tuple[str, str, str], primary: PrimaryKind, owners: Mapping[str, Request]
) -> Iterator[Request]:
    if resource == primary.target.resource:
        yield _request(item)
        return
    metadata = as_object(item.get("metadata")) or {}
    namespace = text_at(metadata, "namespace") or None
    for reference in _sequence(metadata.get("ownerReferences")):
        if not isinstance(reference, Mapping) or text_at(reference, "kind") != primary.kind:
            continue
        if text_at(reference, "apiVersion").rpartition("/")[0] == primary.group:
            yield Request(text_at(reference, "name"), namespace if primary.namespaced else None)
    owner = owners.get(text_at(metadata, "labels", OWNER_UID_LABEL))
    if owner is not None:
        yield owner
