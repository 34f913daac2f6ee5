"""What an `update` function means by the object that it returns.

`update` gets a child as the server has it, full of values that the server filled in, and may change it in place
(`existing.spec.replicas = 3`), put in a part made from scratch (`existing.spec = desired.spec`), or return an object
made from scratch. What was changed in place is meant as it stands: a field that was emptied is to go. What was made
from scratch says nothing about what it leaves out: the server's values stay. Which is which is told by identity.

Maps that belong to the author alone (`data`, selectors) are meant as they stand in any case. Labels, annotations and
resource amounts are not such maps: controllers and the server put entries of their own into them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Final, cast, final

import msgspec

from opsdk.models.families import is_model
from opsdk.ownership._spelling import Path, is_blank, root_of, same_leaf
from opsdk.patches import identities, is_array, is_object, same
from opsdk.types import Json, JsonObject

__all__ = ["Parts"]

_METADATA: Final = "metadata"
_SHARED_MAPS: Final = frozenset({"annotations", "labels", "limits", "requests"})
_WHOLE_MAPS: Final = frozenset({"binaryData", "data", "matchLabels", "nodeSelector", "stringData"})


@final
class Parts:
    """The parts of an object before `update` ran, to be recognised afterwards."""

    def __init__(self, obj: object) -> None:
        self._known: dict[int, object] = {}  # keeps them alive, so that no identity is used twice
        if _is_container(obj):
            self._collect(obj)

    def _collect(self, part: object) -> None:
        if id(part) not in self._known:
            self._known[id(part)] = part
            for inner in _values(part):
                if type(inner) not in _SCALARS and _is_container(inner):
                    self._collect(inner)

    def intended(self, before: JsonObject, after: JsonObject, obj: object) -> JsonObject:
        """The document that `update` means.

        Members that are the same in both may be left out of both, but for apiVersion.

        Args:
            before: The object's document before `update` ran.
            after: The document of what it returned.
            obj: What it returned.
        """
        result = self._object(before, after, obj, root_of(before))
        if id(obj) in self._known or (_METADATA not in before and _METADATA not in after):
            return result
        # Metadata made from scratch does not say that the server's part of it is to go.
        return {**result, _METADATA: {**_object_at(before, _METADATA), **_object_at(result, _METADATA)}}

    def _value(self, before: Json, after: Json, part: object, path: Path, holder: object) -> Json:
        if same(before, after):
            return before
        if is_object(before) and is_object(after):
            return self._object(before, after, part, path, whole=_is_whole(part, path, holder))
        if is_array(before) and is_array(after):
            return self._array(before, after, part, path)
        return before if same_leaf(before, after, path) else after

    def _object(
        self, before: JsonObject, after: JsonObject, part: object, path: Path, *, whole: bool = False
    ) -> JsonObject:
        parts = dict(_members(part))
        as_it_stands = whole or id(part) in self._known or not _is_container(part)
        result: dict[str, Json] = {} if as_it_stands else dict(before)
        for name, value in after.items():
            old, place = before.get(name), (*path, name)
            if is_blank(old, place) and is_blank(value, place):
                if name in before:
                    result[name] = old
                continue
            result[name] = self._value(old, value, parts.get(name), place, part)
        return result

    def _array(self, before: Sequence[Json], after: Sequence[Json], part: object, path: Path) -> Sequence[Json]:
        items = [inner for _, inner in _members(part)]
        if len(items) != len(after):
            return after
        keys = identities(before, after)
        if keys is not None:
            theirs = dict(zip(keys(0), before, strict=True))
            old = [theirs.get(key) for key in keys(1)]
        elif len(before) == len(after):
            old = list(before)
        else:
            return after
        return [self._value(*each, path, part) for each in zip(old, after, items, strict=True)]


def _is_whole(part: object, path: Path, holder: object) -> bool:
    """Whether a part is a map with keys of the author's choosing; in a generic resource everything is a map."""
    name = path[-1]
    if not isinstance(part, Mapping) or name in _SHARED_MAPS:
        return False
    return name in _WHOLE_MAPS or not isinstance(holder, Mapping | list | tuple)


_SCALARS: Final = frozenset({str, int, float, bool, bytes, type(None), datetime})
_CONTAINERS: Final = (msgspec.Struct, list, dict, tuple)


def _is_container(part: object) -> bool:
    if type(part) in _SCALARS:
        return False
    return isinstance(part, _CONTAINERS) or is_model(part) or isinstance(part, Mapping)


@cache  # reading annotations costs far more than reading values
def _fields(struct: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    return tuple((field.name, field.encode_name) for field in msgspec.structs.fields(struct))


def _members(part: object) -> Iterator[tuple[str, object]]:
    """What a part holds, by its name on the wire."""
    if isinstance(part, msgspec.Struct):
        for name, encoded in _fields(type(part)):
            yield encoded, getattr(part, name)
    elif is_model(part):
        for name, info in type(part).model_fields.items():
            yield info.serialization_alias or info.alias or name, getattr(part, name)
        yield from (part.model_extra or {}).items()
    elif isinstance(part, Mapping):
        for key, inner in cast("Mapping[object, object]", part).items():
            yield str(key), inner
    elif isinstance(part, list | tuple):
        for index, inner in enumerate(cast("Sequence[object]", part)):
            yield str(index), inner


def _values(part: object) -> Iterable[object]:
    """The same without names. Every pass looks at every part of every child, so this is to be cheap."""
    if isinstance(part, msgspec.Struct):
        return msgspec.structs.astuple(part)
    if type(part) is list:
        return cast("list[object]", part)
    if type(part) is dict:
        return cast("dict[object, object]", part).values()
    return [inner for _, inner in _members(part)]


def _object_at(document: JsonObject, name: str) -> JsonObject:
    value = document.get(name)
    return value if is_object(value) else {}
