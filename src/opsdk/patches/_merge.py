"""JSON merge patches, RFC 7386."""

from __future__ import annotations

from opsdk.patches._values import is_object, same
from opsdk.types import Json, JsonObject

__all__ = ["apply_merge_patch", "merge_difference"]


def merge_difference(before: JsonObject, after: JsonObject) -> JsonObject:
    """The merge patch that turns `before` into `after`; empty when there is nothing to do.

    A member that is null and one that is not there are the same to a merge patch, and so to this function.

    Guarantees: applied to `before` it gives `after`, up to null members. Only what differs is named, down to the leaf;
    lists are replaced whole.
    """
    patch: dict[str, Json] = {}
    for name, old in before.items():
        if old is not None and after.get(name) is None:
            patch[name] = None
    for name, new in after.items():
        if new is None:
            continue
        old = before.get(name)
        if old is new:
            continue
        if is_object(old) and is_object(new):
            inner = merge_difference(old, new)
            if inner:
                patch[name] = inner
        elif not same(old, new):
            patch[name] = new
    return patch


def apply_merge_patch(document: Json, patch: Json) -> Json:
    """`document` with the merge patch applied, as RFC 7386 says."""
    if not is_object(patch):
        return patch
    result: dict[str, Json] = dict(document) if is_object(document) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = apply_merge_patch(result.get(name), value)
    return result
