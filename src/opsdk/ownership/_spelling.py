"""Whether two documents mean the same to the API server, whatever their spelling.

The server rewrites what it stores: `1000m` of CPU comes back as `1`, an empty list does not come back at all, nor does
`hostNetwork: false`, a time comes back in UTC. None of that is drift.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from fractions import Fraction
from typing import Final

from opsdk.models.omitted import is_builtin, is_omitted
from opsdk.patches import identities, is_array, is_object, same
from opsdk.types import Json, JsonObject

__all__ = ["Path", "equivalent", "is_blank", "lay_over", "root_of", "same_leaf", "written"]

_WRITABLE_METADATA: Final = ("annotations", "finalizers", "labels", "ownerReferences")

# The members of these objects are quantities, whatever their names.
_QUANTITY_MAPS: Final = frozenset(
    {
        "allocatable",
        "capacity",
        "default",
        "defaultRequest",
        "hard",
        "limits",
        "max",
        "maxLimitRequestRatio",
        "min",
        "overhead",
        "requests",
    }
)
_QUANTITIES: Final = frozenset({"averageValue", "divisor", "sizeLimit"})
_METRICS: Final = frozenset({"current", "target"})  # their `value` is a quantity
_INT_OR_STRING: Final = frozenset({"maxSurge", "maxUnavailable", "minAvailable", "port", "targetPort"})
# Here every character counts.
_OPAQUE: Final = frozenset(
    {"annotations", "args", "binaryData", "command", "data", "labels", "matchLabels", "stringData"}
)
# Maps that mean the same when they are empty as when they are absent. (An empty `emptyDir` means something.)
_PLAIN_MAPS: Final = _QUANTITY_MAPS | {
    "annotations",
    "binaryData",
    "data",
    "labels",
    "matchLabels",
    "nodeSelector",
    "parameters",
    "stringData",
}

_QUANTITY: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|([numkMGTPE]|[KMGTPE]i))?")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_SUFFIXES: Final[Mapping[str, Fraction]] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    **{suffix: Fraction(10 ** (3 * power)) for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Fraction(2 ** (10 * power)) for power, suffix in enumerate("KMGTPE", 1)},
}

Path = tuple[str, ...]
"""The names that lead to a value, without positions in lists; a mark before them says that the kind is built in."""

_BUILTIN: Final = "(built-in)"


def root_of(document: JsonObject) -> Path:
    """The path of a whole document."""
    return (_BUILTIN,) if is_builtin(document) else ()


def equivalent(left: JsonObject, right: JsonObject) -> bool:
    """Whether two objects of one kind mean the same, apart from status and from what the server decides."""
    return _equivalent(written(left), written(right), root_of(left))


def lay_over(existing: JsonObject, desired: JsonObject) -> JsonObject:
    """`existing` with everything that `desired` says; where both mean the same, in the spelling of `existing`.

    Members and items of keyed lists that only `existing` has stay, for they may be somebody else's.
    """
    merged = _laid_object(existing, {**written(desired)}, root_of(existing))
    return {**merged, "metadata": {**_members(existing, "metadata"), **_members(merged, "metadata")}}


def written(document: JsonObject) -> JsonObject:
    metadata = _members(document, "metadata")
    kept = {name: value for name, value in document.items() if name not in {"apiVersion", "kind", "metadata", "status"}}
    return {**kept, "metadata": {name: metadata[name] for name in _WRITABLE_METADATA if name in metadata}}


def _members(document: JsonObject, name: str) -> JsonObject:
    value = document.get(name)
    return value if is_object(value) else {}


def _equivalent(left: Json, right: Json, path: Path) -> bool:
    if is_object(left) and is_object(right):
        return all(_member_equivalent(left, right, name, path) for name in {*left, *right})
    if is_array(left) and is_array(right):
        return len(left) == len(right) and all(_equivalent(a, b, path) for a, b in zip(left, right, strict=True))
    return same_leaf(left, right, path)


def _member_equivalent(left: JsonObject, right: JsonObject, name: str, path: Path) -> bool:
    one, other, place = left.get(name), right.get(name), (*path, name)
    if is_blank(one, place) and is_blank(other, place):
        return True
    return _equivalent(one, other, place)


def is_blank(value: Json, path: Path) -> bool:
    """Whether a member means the same as its absence."""
    if value is None:
        return True
    if is_array(value):
        return not value
    if is_object(value):
        return not value and path[-1] in _PLAIN_MAPS
    return path[0] == _BUILTIN and _OPAQUE.isdisjoint(path[-2:]) and is_omitted(value, path)


def same_leaf(left: Json, right: Json, path: Path) -> bool:
    if same(left, right):
        return True
    if not path or not _OPAQUE.isdisjoint(path[-2:]):
        return False
    name, holder = path[-1], path[-2] if len(path) > 1 else ""
    if name in _QUANTITIES or holder in _QUANTITY_MAPS or (name == "value" and holder in _METRICS):
        amount = _quantity(left)
        return amount is not None and amount == _quantity(right)
    if name in _INT_OR_STRING and not isinstance(left, bool) and not isinstance(right, bool):
        return str(left) == str(right) and isinstance(left, int | str) and isinstance(right, int | str)
    if isinstance(left, str) and isinstance(right, str) and _TIME.fullmatch(left) and _TIME.fullmatch(right):
        return datetime.fromisoformat(left) == datetime.fromisoformat(right)
    return False


def _quantity(value: Json) -> Fraction | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    found = _QUANTITY.fullmatch(str(value))
    if found is None:
        return None
    number, exponent, suffix = found.groups()
    amount = Fraction(f"{number}{exponent or ''}")
    return amount * _SUFFIXES[suffix] if suffix else amount


def _laid(existing: Json, desired: Json, path: Path) -> Json:
    if is_object(existing) and is_object(desired):
        return _laid_object(existing, desired, path)
    if is_array(existing) and is_array(desired):
        return _laid_array(existing, desired, path)
    return existing if same_leaf(existing, desired, path) else desired


def _laid_object(existing: JsonObject, desired: JsonObject, path: Path) -> JsonObject:
    result = dict(existing)
    for name, value in desired.items():
        place = (*path, name)
        if is_blank(value, place) and is_blank(existing.get(name), place):
            continue
        result[name] = _laid(existing.get(name), value, place)
    return result


def _laid_array(existing: Sequence[Json], desired: Sequence[Json], path: Path) -> Sequence[Json]:
    if path[-1:] == ("finalizers",):
        return [*existing, *(item for item in desired if item not in existing)]
    keys = identities(existing, desired)
    if keys is None:
        if len(existing) != len(desired):
            return desired
        return [_laid(old, new, path) for old, new in zip(existing, desired, strict=True)]
    theirs = dict(zip(keys(0), existing, strict=True))
    wanted = dict(zip(keys(1), desired, strict=True))
    laid = {key: _laid(theirs[key], item, path) if key in theirs else item for key, item in wanted.items()}
    return list({**theirs, **laid}.values())  # in their order, which is not ours to change
