"""Laying the difference of two views over the whole of which they are views.

A typed model knows only a part of what the server stores. What a program changed is the difference between two typed
documents; what must be written is the server's document with that difference laid over it.
"""

from __future__ import annotations

from collections.abc import Sequence

from opsdk.patches._merge import merge_difference
from opsdk.patches._values import Identity, identities, is_array, is_object, same
from opsdk.types import Json, JsonObject

__all__ = ["overlay", "overlay_difference"]


def overlay(document: JsonObject, before: JsonObject, after: JsonObject) -> JsonObject:
    """Lay the difference from `before` to `after` over `document`, leaf by leaf.

    Items of lists are matched by their natural key (`name`, `type`, `uid`, `containerPort` with `protocol`, …) where
    every item has one and it is unique; otherwise unchanged items are matched by their value and changed ones by
    their position; a list that cannot be matched is replaced by the one in `after`.

    Guarantees: what is the same in `before` and `after` is not touched, in whatever spelling `document` has it. What
    only `document` has survives, unless something that holds it was removed. `overlay(before, before, after)` is
    `after`, up to the order of members.
    """
    return _object(document, before, after)


def overlay_difference(document: JsonObject, before: JsonObject, after: JsonObject) -> JsonObject:
    """The merge patch that makes `overlay(document, before, after)` of `document`; empty when there is nothing to do.

    Where the model knows all that is stored, as is so mostly, that is the difference between the two views.
    """
    if same(document, before):
        return merge_difference(before, after)
    return merge_difference(document, overlay(document, before, after))


def _object(document: JsonObject, before: JsonObject, after: JsonObject) -> dict[str, Json]:
    result: dict[str, Json] = dict(document)
    for name in before:
        if name not in after:
            result.pop(name, None)
    for name, new in after.items():
        if name in before:
            old = before[name]
            if not same(old, new):
                result[name] = _value(document.get(name), old, new)
        else:
            result[name] = _value(document.get(name), None, new)
    return result


def _value(document: Json, before: Json, after: Json) -> Json:
    if is_object(document) and is_object(after):
        return _object(document, before if is_object(before) else {}, after)
    if is_array(document) and is_array(after) and is_array(before):
        return _array(document, before, after)
    return after


def _array(document: Sequence[Json], before: Sequence[Json], after: Sequence[Json]) -> Sequence[Json]:
    keys = identities(document, before, after)
    if keys is not None:
        return _by_key((document, keys(0)), (before, keys(1)), (after, keys(2)))
    if len(document) == len(before):
        return _by_value_and_position(document, before, after)
    return after


_Keyed = tuple[Sequence[Json], list[Identity]]


def _by_key(document: _Keyed, before: _Keyed, after: _Keyed) -> list[Json]:
    theirs = dict(zip(document[1], document[0], strict=True))
    old = dict(zip(before[1], before[0], strict=True))
    wanted = set(after[1])
    result: list[Json] = []
    for key, new in zip(after[1], after[0], strict=True):
        if key not in theirs:
            result.append(new)
        elif key in old and same(old[key], new):
            result.append(theirs[key])
        else:
            result.append(_value(theirs[key], old.get(key), new))
    result.extend(item for key, item in theirs.items() if key not in old and key not in wanted)
    return result


def _by_value_and_position(document: Sequence[Json], before: Sequence[Json], after: Sequence[Json]) -> list[Json]:
    """Match `after` to `before`, whose items stand where `document`'s do: the equal ones first, then by position."""
    free = set(range(len(before)))
    origin: list[int | None] = []
    for position, new in enumerate(after):
        # The item that stands at the same place is the likelier one among equals.
        order = [position, *free] if position in free else [*free]
        match = next((index for index in order if same(before[index], new)), None)
        if match is not None:
            free.discard(match)
        origin.append(match)
    result: list[Json] = []
    for position, (new, match) in enumerate(zip(after, origin, strict=True)):
        if match is not None:
            result.append(document[match])
        elif position in free:
            free.discard(position)
            result.append(_value(document[position], before[position], new))
        else:
            result.append(new)
    return result
