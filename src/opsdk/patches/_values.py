"""What JSON values are, and which of a list's items are the same item."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final, TypeAlias

from typing_extensions import TypeIs

from opsdk.types import Json, JsonObject

__all__ = ["Identity", "identities", "identity_field", "is_array", "is_object", "same"]


# Asking an abstract class takes ten times as long as this, and most values are of these.
_SCALARS: Final = frozenset({str, int, float, bool, type(None)})


def is_object(value: Json) -> TypeIs[Mapping[str, Json]]:
    """Whether `value` is a JSON object."""
    kind = type(value)
    return kind is dict or (kind is not list and kind not in _SCALARS and isinstance(value, Mapping))


def is_array(value: Json) -> TypeIs[Sequence[Json]]:
    """Whether `value` is a JSON array."""
    kind = type(value)
    if kind is list or kind is dict or kind in _SCALARS:
        return kind is list
    return isinstance(value, Sequence) and not isinstance(value, str)


def same(left: Json, right: Json) -> bool:
    """Whether two values are the same JSON value."""
    if left is right:
        return True
    if left != right:  # Python's equality is coarser than JSON's, so this settles it, and fast
        return False
    if type(left) is str:
        return True
    if is_object(left):
        # Equal texts are the same, and most leaves are texts: a call for each would be most of the work.
        return is_object(right) and all(type(value) is str or same(value, right[name]) for name, value in left.items())
    if is_array(left):
        return is_array(right) and all(map(same, left, right))
    return isinstance(left, bool) == isinstance(right, bool)


Identity: TypeAlias = Hashable
"""What makes an item of a list the same item after an edit."""

# The list map keys of Kubernetes' own types and of the API conventions, the likelier first.
_CANDIDATES: tuple[tuple[tuple[str, Json], ...], ...] = (
    (("name", None),),
    (("type", None),),
    (("uid", None),),
    (("containerPort", None), ("protocol", "TCP")),
    (("port", None), ("protocol", "TCP")),
    (("mountPath", None),),
    (("devicePath", None),),
    (("topologyKey", None), ("whenUnsatisfiable", "DoNotSchedule")),
    (("ip", None),),
    (("key", None),),
    (("id", None),),
    (("host", None),),
)


def _identity(item: JsonObject, fields: tuple[tuple[str, Json], ...]) -> Identity | None:
    values: list[Hashable] = []
    for name, default in fields:
        value = item.get(name, default)
        if value is None or is_object(value) or is_array(value):
            return None
        values.append((type(value) is bool, value))
    return tuple(values)


def _all_identities(items: Sequence[Json], fields: tuple[tuple[str, Json], ...]) -> list[Identity] | None:
    found: list[Identity] = []
    for item in items:
        if not is_object(item):
            return None
        identity = _identity(item, fields)
        if identity is None:
            return None
        found.append(identity)
    return found if len(set(found)) == len(found) else None


def identities(*lists: Sequence[Json]) -> Callable[[int], list[Identity]] | None:
    """The natural key that every item of every list has and that is unique in each; None when there is none.

    Where several fit, the one that recognises the most items wins: a Service's port that was renamed is still the
    same port.

    Returns:
        A function from the position of a list to the identities of its items.
    """
    best: list[list[Identity]] | None = None
    best_score = -1
    for fields in _CANDIDATES:
        found: list[list[Identity]] = []
        for items in lists:
            of_list = _all_identities(items, fields)
            if of_list is None:
                break
            found.append(of_list)
        else:
            common = set(found[0]).intersection(*found[1:])
            if len(common) > best_score:
                best, best_score = found, len(common)
                if best_score == min(map(len, lists)):
                    break  # there is no more to recognise
    return None if best is None else best.__getitem__


def identity_field(item: Json) -> tuple[str, Json] | None:
    """The field that names `item` best, and its value; None when it has none."""
    if is_object(item):
        for fields in _CANDIDATES:
            if _identity(item, fields) is not None:
                name = fields[0][0]
                return name, item[name]
    return None
