"""Keeping one child by server-side apply."""

from __future__ import annotations

from typing import Generic, TypeVar, final

import msgspec

from opsdk.errors import ConflictError, FieldConflictError
from opsdk.models import codec_of, metadata_of, request_of, resource_of, view_of
from opsdk.ownership._fields import applied_fields, contests, handed_over, unwanted
from opsdk.ownership._marks import Marks
from opsdk.ownership._spelling import equivalent, lay_over
from opsdk.protocols import Client, KubeObject
from opsdk.types import Json, JsonObject, JsonPatch

__all__ = ["Application", "application_of", "apply_child"]

Child = TypeVar("Child", bound=KubeObject)


@final
class Application(msgspec.Struct, Generic[Child], frozen=True, kw_only=True):
    """An apply that would do something.

    Args:
        before: The child's document.
        after: The same with everything that is wanted.
        desired: What is wanted.
        given_up: The fields that we own and do not want any more.
        former: The child with all its managedFields, when it was never applied to before; else None.
    """

    before: JsonObject
    after: JsonObject
    desired: JsonObject
    given_up: tuple[str, ...]
    former: Child | None


async def application_of(
    fresh: Client, child: Child, existing: Child, applied: Marks, *, manager: str, cached: bool
) -> Application[Child] | None:
    """What an apply of `child` would do to the existing one; None when that is nothing.

    Args:
        fresh: Reads past the caches.
        child: What is wanted, and no more.
        existing: The child as it is.
        applied: Of which children it is known that we own nothing besides what we last applied.
        manager: Our field manager.
        cached: Whether `existing` came from a cache, which keeps our own entry of managedFields only.
    """
    codec = codec_of(type(child))
    before = _document(codec.encode(existing))
    desired = _document(codec.encode(child, only_set=True))
    after = lay_over(before, desired)
    as_wanted = equivalent(before, after)
    full: Child | None = existing
    if cached and not metadata_of(existing).managedFields:
        # That our entry is not there may be because nobody keeps track. The answer is kept, not asked for each time.
        if as_wanted and applied.has(existing, desired):
            return None
        request = request_of(existing)
        full = await fresh.find(type(child), request.name, namespace=request.namespace)
    metadata = None if full is None else metadata_of(full)
    owned = None if metadata is None else applied_fields(metadata, manager)
    given_up = () if owned is None else tuple(unwanted(owned, desired))
    never_applied = metadata is not None and bool(metadata.managedFields) and owned is None
    if as_wanted and not given_up and not never_applied:
        applied.add(existing, desired)
        return None
    return Application(
        before=before, after=after, desired=desired, given_up=given_up, former=full if never_applied else None
    )


async def apply_child(
    client: Client,
    child: Child,
    application: Application[Child],
    *,
    manager: str,
    force: bool,
) -> Child:
    """Apply. What somebody wrote over our fields is drift, and reverted; what somebody else applies too is not.

    Raises:
        FieldConflictError: Another manager applies some of the fields too, and `force` is not set.
        ConflictError: The child is another incarnation, or was written since it was read.
    """
    if application.former is not None:
        await _hand_over(client, application.former, manager)
    if force:
        return await client.apply(child, force=True, field_manager=manager)
    try:
        return await client.apply(child, field_manager=manager)
    except ConflictError as error:
        found = contests(error)
        if not found:
            raise
        rivals: dict[str, list[str]] = {}
        for contest in found:
            if contest.applied:
                rivals.setdefault(contest.manager, []).append(contest.field)
        if rivals:
            request = request_of(child)
            kind = resource_of(type(child)).kind
            raise FieldConflictError(kind, request.namespace, request.name, rivals) from error
    return await client.apply(child, force=True, field_manager=manager)


async def _hand_over(client: Client, child: KubeObject, manager: str) -> None:
    """Let what `manager` owns by updates be owned by server-side apply from now on."""
    entries = handed_over(metadata_of(child), manager)
    if entries is None:
        return
    operations: list[JsonObject] = [
        {"op": "replace", "path": "/metadata/managedFields", "value": entries},
        # Not a change, but a condition: the server refuses it when there is another version by now.
        {"op": "replace", "path": "/metadata/resourceVersion", "value": view_of(child).resourceVersion},
    ]
    request = request_of(child)
    patch = JsonPatch(operations)
    await client.patch(type(child), request.name, patch, namespace=request.namespace, field_manager=manager)


def _document(raw: bytes) -> dict[str, Json]:
    document: dict[str, Json] = msgspec.json.decode(raw)
    return document
