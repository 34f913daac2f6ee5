"""Values that a structural schema allows, as hypothesis strategies; the simplest come first when a failure shrinks."""

from __future__ import annotations

import base64
import json
import math
import re
import string
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from typing import Final, cast

from hypothesis import strategies as st
from hypothesis.errors import HypothesisException
from hypothesis.strategies import SearchStrategy

from opsdk.errors import ObjectError
from opsdk.testing.campaigns._schema import number_at, object_at, objects_at, texts_at
from opsdk.testing.campaigns._variants import Union, union_in
from opsdk.types import Json, JsonObject

__all__ = ["FORMATS", "canonical", "values_of"]

_LETTERS: Final = string.ascii_lowercase
_WORD: Final = _LETTERS + string.digits
_MAX_ITEMS: Final = 3
_MAX_TEXT: Final = 8
_MAX_NUMBER: Final = 1_000
_INT32: Final = 2**31 - 1
_INT64: Final = 2**63 - 1


_DAY: Final = st.integers(0, 14_000).map(lambda days: (date(2000, 1, 1) + timedelta(days=days)).isoformat())
_MOMENT: Final = st.tuples(_DAY, st.integers(0, 23)).map(lambda when: f"{when[0]}T{when[1]:02}:00:00Z")
_IPV4: Final = st.integers(0, 255).map(lambda last: f"192.0.2.{last}")
_IPV6: Final = st.integers(0, 65535).map(lambda last: f"2001:db8::{last:x}")
_LABEL: Final = st.text(_LETTERS, min_size=1, max_size=_MAX_TEXT)
_HOST: Final = _LABEL.map(lambda label: f"{label}.example.com")

FORMATS: Final[Mapping[str, SearchStrategy[str]]] = {
    "byte": st.binary(min_size=1, max_size=_MAX_TEXT).map(lambda raw: base64.b64encode(raw).decode()),
    "cidr": st.integers(0, 255).map(lambda last: f"10.{last}.0.0/16"),
    "date": _DAY,
    "date-time": _MOMENT,
    "datetime": _MOMENT,
    "duration": st.tuples(st.integers(0, 59), st.sampled_from(["s", "m", "h", "ms"])).map(
        lambda both: f"{both[0]}{both[1]}"
    ),
    "email": _LABEL.map(lambda label: f"{label}@example.com"),
    "hexcolor": st.text("0123456789abcdef", min_size=6, max_size=6).map(lambda digits: f"#{digits}"),
    "hostname": _HOST,
    "ipv4": _IPV4,
    "ipv6": _IPV6,
    "k8s-long-name": _HOST,
    "k8s-short-name": _LABEL,
    "mac": st.integers(0, 255).map(lambda last: f"02:00:00:00:00:{last:02x}"),
    "uri": _LABEL.map(lambda label: f"https://example.com/{label}"),
    "url": _LABEL.map(lambda label: f"https://example.com/{label}"),
    "uuid": st.uuids(version=4).map(str),
    "uuid4": st.uuids(version=4).map(str),
}
"""Strings of each format that the API server checks and schemas use; of other formats: words."""


def values_of(
    schema: JsonObject, *, fields: Mapping[str, SearchStrategy[Json]] | None = None, path: str = ""
) -> SearchStrategy[Json]:
    """Values that a structural schema allows.

    Types, enums, bounds, lengths, patterns, formats, `required`, list types `set` and `map`, int-or-string,
    `nullable` and preserved unknown fields are respected, and so are the rules that our models' CRDs have for unions
    with a discriminator. Of `anyOf` and `oneOf` one branch is followed, of `allOf` all; what `not` and other CEL rules
    forbid is not known here. Strings and keys of maps about which the schema says
    nothing are short words, because an operator usually makes names of them.

    Args:
        schema: The structural schema.
        fields: Strategies for single fields, by path below the schema (`template.image`, `ports[].name`): for what is
            meant but not written in the schema.
        path: Where the schema stands.

    Raises:
        ObjectError: A path in `fields` is not in the schema; or no values can be made of what it says about a field.
    """
    used: set[str] = set()
    found = _Reader(fields or {}, used).value(schema, path)
    unknown = sorted(set(fields or {}) - used)
    if unknown:
        raise ObjectError(
            f"the schema of the spec has no {', '.join(unknown)}; items of lists are written ports[].name"
        )
    return found


class _Reader:
    def __init__(self, fields: Mapping[str, SearchStrategy[Json]], used: set[str]) -> None:
        self._fields = fields
        self._used = used

    def value(self, schema: JsonObject, path: str) -> SearchStrategy[Json]:
        if path in self._fields:
            self._used.add(path)
            return _given(self._fields[path], path)
        try:
            found = self._alternatives(schema, path)
            found.validate()  # now, while it is known which field it is
        except (HypothesisException, re.error) as error:
            raise ObjectError(
                f"no values can be made for {path or 'the spec'} of what its schema says ({error}); give a strategy: "
                f"fields={{{path!r}: …}}"
            ) from error
        return st.one_of(found, st.none()) if schema.get("nullable") is True and schema.get("enum") is None else found

    def _alternatives(self, schema: JsonObject, path: str) -> SearchStrategy[Json]:
        if schema.get("x-kubernetes-int-or-string") is True:
            return self._int_or_string(schema)
        for each in objects_at(schema, "allOf"):
            schema = _narrowed(schema, each, "allOf")
        union = union_in(schema)
        if union is not None:
            return self._variants(schema, union, path)
        for way in ("anyOf", "oneOf"):
            branches = objects_at(schema, way)
            if branches:
                return st.one_of([self._alternatives(_narrowed(schema, each, way), path) for each in branches])
        return self._plain(schema, path)

    def _plain(self, schema: JsonObject, path: str) -> SearchStrategy[Json]:
        options = schema.get("enum")
        if isinstance(options, list | tuple):
            return st.sampled_from([*options])
        match schema.get("type"):
            case "object":
                return self._object(schema, path)
            case "array":
                return self._array(schema, path)
            case "string":
                return _texts(schema)
            case "integer":
                return _integers(schema)
            case "number":
                return _numbers(schema)
            case "boolean":
                return st.booleans()
            case _:
                return _anything() if schema.get("x-kubernetes-preserve-unknown-fields") is True else st.just({})

    def _object(self, schema: JsonObject, path: str) -> SearchStrategy[Json]:
        properties = object_at(schema, "properties")
        required = set(texts_at(schema, "required"))
        inner: dict[str, SearchStrategy[Json]] = {
            name: self.value(one, f"{path}.{name}" if path else name)
            for name, one in properties.items()
            if isinstance(one, Mapping)
        }
        known = st.fixed_dictionaries(
            {name: one for name, one in inner.items() if name in required},
            optional={name: one for name, one in inner.items() if name not in required},
        )
        extra = schema.get("additionalProperties")
        unknown = schema.get("x-kubernetes-preserve-unknown-fields") is True
        if extra is True or (unknown and not isinstance(extra, Mapping)):
            others: SearchStrategy[Json] = _anything()
        elif isinstance(extra, Mapping):
            others = self.value(extra, f"{path}[]")
        else:
            return known.map(_json)
        low, high = _sizes(schema, "minProperties", "maxProperties", _MAX_ITEMS)
        keys = st.text(_LETTERS, min_size=1, max_size=_MAX_TEXT).filter(lambda key: key not in inner)
        more = st.dictionaries(keys, others, min_size=max(0, low - len(required)), max_size=high)
        return st.tuples(known, more).map(lambda both: {**both[1], **both[0]})

    def _variants(self, schema: JsonObject, union: Union, path: str) -> SearchStrategy[Json]:
        """The field that tells the variants apart, then what goes with its value."""
        key = union.key
        tags = self.value(object_at(object_at(schema, "properties"), key), f"{path}.{key}" if path else key)
        options = object_at(object_at(schema, "properties"), key).get("enum")
        values: list[Json] = [*options] if isinstance(options, list | tuple) else []
        values += [json.loads(text) for text in union.variants]
        made = {json.dumps(tag): self._alternatives(union.schema_for(tag), path) for tag in values}

        def variant(tag: Json) -> SearchStrategy[Json]:
            fields = made.get(json.dumps(tag), st.just({}))  # the server refuses another tag, whatever is beside it
            return fields.map(lambda rest: {key: tag, **_members(rest, key)})

        return tags.flatmap(variant)

    def _array(self, schema: JsonObject, path: str) -> SearchStrategy[Json]:
        low, high = _sizes(schema, "minItems", "maxItems", _MAX_ITEMS)
        items = self.value(object_at(schema, "items"), f"{path}[]")
        unique: Callable[[Json], str] | None = None
        match schema.get("x-kubernetes-list-type"):
            case "map":
                keys = texts_at(schema, "x-kubernetes-list-map-keys")
                unique = _by_keys(keys, object_at(object_at(schema, "items"), "properties"))
            case "set":
                unique = canonical
            case _:
                unique = canonical if schema.get("uniqueItems") is True else None
        return st.lists(items, min_size=low, max_size=high, unique_by=unique).map(_json)

    def _int_or_string(self, schema: JsonObject) -> SearchStrategy[Json]:
        options = schema.get("enum")
        if isinstance(options, list | tuple):
            return st.sampled_from([*options])
        percent = st.integers(0, 100).map(lambda number: f"{number}%")
        strings = _texts(schema) if "pattern" in schema or "maxLength" in schema else percent
        return st.one_of(_integers(schema), strings)


def _members(value: Json, key: str) -> JsonObject:
    """The members of an object without one."""
    return {name: one for name, one in value.items() if name != key} if isinstance(value, Mapping) else {}


def _given(given: object, path: str) -> SearchStrategy[Json]:
    """Refuse a value in the place of a strategy, where there is no type checker."""
    if not isinstance(given, SearchStrategy):
        raise ObjectError(f"fields has {given!r} for {path}; give a strategy, such as st.just({given!r})")
    return cast("SearchStrategy[Json]", given)


def canonical(value: Json) -> str:
    """The same text for the same value; 1 and 1.0 are the same, 1 and true are not."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key!r}:{canonical(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(canonical(item) for item in value) + "]"
    if isinstance(value, float) and value.is_integer():
        return repr(int(value))
    return repr(value)


def _by_keys(keys: list[str], properties: JsonObject) -> Callable[[Json], str]:
    """What tells items of a list map apart; a key that is left out has its default."""
    defaults: dict[str, Json] = {key: object_at(properties, key).get("default") for key in keys}

    def identity(item: Json) -> str:
        return canonical([item.get(key, defaults[key]) for key in keys]) if isinstance(item, Mapping) else ""

    return identity


def _narrowed(schema: JsonObject, branch: JsonObject, way: str) -> JsonObject:
    """A schema with what a branch adds to it."""
    narrowed: dict[str, Json] = {key: value for key, value in schema.items() if key != way}
    for key, value in branch.items():
        if key == "properties" and isinstance(value, Mapping):
            known = object_at(schema, "properties")
            inner: dict[str, Json] = dict(known)
            for name, one in value.items():
                if isinstance(one, Mapping):
                    inner[name] = _narrowed(object_at(known, name), one, "")
            narrowed["properties"] = inner
        elif key == "required":
            narrowed["required"] = [
                *{**dict.fromkeys(texts_at(schema, "required")), **dict.fromkeys(texts_at(branch, key))}
            ]
        elif key == "items" and isinstance(value, Mapping):
            narrowed["items"] = _narrowed(object_at(schema, "items"), value, "")
        else:
            narrowed[key] = value
    return narrowed


def _texts(schema: JsonObject) -> SearchStrategy[Json]:
    low, high = _sizes(schema, "minLength", "maxLength", _MAX_TEXT)

    def fits(text: str) -> bool:
        # Python's `$` lets a newline follow, the API server's does not.
        return low <= len(text) <= high and not text.endswith("\n")

    pattern, name = schema.get("pattern"), schema.get("format")
    if isinstance(pattern, str):
        high = int(number_at(schema, "maxLength") or max(4 * _MAX_TEXT, 4 * low))
        printable = st.characters(min_codepoint=32, max_codepoint=126)
        found: SearchStrategy[str] = st.from_regex(re.compile(pattern, re.ASCII), alphabet=printable).filter(fits)
    elif isinstance(name, str) and name in FORMATS:
        high = int(number_at(schema, "maxLength") or 253)
        found = FORMATS[name].filter(fits)
    else:
        found = st.text(_WORD, min_size=low, max_size=high)
    return found.map(_json)


def _integers(schema: JsonObject) -> SearchStrategy[Json]:
    low, high = number_at(schema, "minimum"), number_at(schema, "maximum")
    limit = _INT32 if schema.get("format") == "int32" else _INT64
    step = number_at(schema, "multipleOf")
    lowest = -_MAX_NUMBER if low is None else math.ceil(low)
    highest = (lowest if low is not None else 0) + _MAX_NUMBER if high is None else math.floor(high)
    if low is None and high is not None:
        lowest = min(lowest, highest - _MAX_NUMBER)
    if schema.get("exclusiveMinimum") is True and low is not None and lowest == low:
        lowest += 1
    if schema.get("exclusiveMaximum") is True and high is not None and highest == high:
        highest -= 1
    lowest, highest = max(lowest, -limit - 1), min(highest, limit)
    if step is not None and float(step).is_integer() and step > 0:
        size = int(step)
        return st.integers(-(-lowest // size), highest // size).map(lambda number: number * size)
    return st.integers(lowest, highest)


def _numbers(schema: JsonObject) -> SearchStrategy[Json]:
    low, high = number_at(schema, "minimum"), number_at(schema, "maximum")
    step = number_at(schema, "multipleOf")
    lowest = float((high if high is not None and high < 0 else 0) - _MAX_NUMBER) if low is None else float(low)
    highest = max(lowest, 0.0) + _MAX_NUMBER if high is None else float(high)
    if step is not None and step > 0:
        size = step
        return st.integers(math.ceil(lowest / size), math.floor(highest / size)).map(lambda number: number * size)
    return st.floats(
        lowest,
        highest,
        exclude_min=schema.get("exclusiveMinimum") is True and low is not None,
        exclude_max=schema.get("exclusiveMaximum") is True and high is not None,
        allow_nan=False,
        allow_infinity=False,
        allow_subnormal=False,
        width=32 if schema.get("format") == "float" else 64,
    ).map(_json)


def _anything() -> SearchStrategy[Json]:
    leaves: SearchStrategy[Json] = st.one_of(
        st.booleans(), st.integers(-_MAX_NUMBER, _MAX_NUMBER), st.text(_WORD, max_size=_MAX_TEXT)
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=_MAX_ITEMS).map(_json),
            st.dictionaries(st.text(_LETTERS, min_size=1, max_size=_MAX_TEXT), inner, max_size=_MAX_ITEMS).map(_json),
        ),
        max_leaves=4,
    )


def _sizes(schema: JsonObject, low: str, high: str, usual: int) -> tuple[int, int]:
    least = int(number_at(schema, low) or 0)
    most = number_at(schema, high)
    return least, min(int(most), least + usual) if most is not None else least + usual


def _json(value: Json) -> Json:
    return value
