"""Specs just outside of a schema: allowed ones with one thing changed that the API server has to refuse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, final

from opsdk.testing.campaigns._schema import number_at, object_at, texts_at
from opsdk.testing.campaigns._strategies import FORMATS
from opsdk.types import Json, JsonObject

__all__ = ["Violation", "violations"]

_Path: TypeAlias = tuple[str | int, ...]
_NO_SUCH_OPTION: Final = "not-an-option"
_NO_FORMAT: Final = "§ no such format §"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A spec that must be refused.

    Args:
        spec: The whole spec.
        why: What is wrong with it, and where.
    """

    spec: JsonObject
    why: str


def violations(schema: JsonObject, spec: JsonObject) -> list[Violation]:
    """Everything that can be made wrong about a spec that the schema allows, one thing at a time.

    Only what the API server refuses for certain: an unknown field is no fault (it is pruned), nor is null where the
    field is optional (it is dropped).
    """
    found: list[Violation] = []
    for path, value, why in _faults(schema, spec, ()):
        broken = _replaced(spec, path, value)
        if isinstance(broken, Mapping):
            found.append(Violation(spec=broken, why=f"spec{_text(path)}: {why}"))
    return found


@final
class _Gone:
    """In the place of a value: the field is to be left out."""


_GONE: Final = _Gone()


def _faults(schema: JsonObject, value: Json, path: _Path) -> Iterator[tuple[_Path, Json | _Gone, str]]:
    if value is None or any(key in schema for key in ("anyOf", "oneOf", "allOf", "not")):
        return  # what a branch forbids, another may allow
    if schema.get("x-kubernetes-int-or-string") is True:
        yield path, True, "neither a number nor a string"
        return
    wrong = _wrong_type(schema)
    if wrong is not None and path:
        yield path, wrong, f"not of type {schema.get('type')}"
    if schema.get("enum") is not None and schema.get("type") == "string":
        yield path, _NO_SUCH_OPTION, "none of the enum"
        return
    match value:
        case bool():
            return
        case int() | float():
            yield from ((path, number, why) for number, why in _bounds(schema))
        case str():
            yield from ((path, text, why) for text, why in _lengths(schema, value))
        case Mapping():
            yield from _in_object(schema, value, path)
        case _:
            yield from _in_array(schema, [*value], path)


def _in_object(schema: JsonObject, value: JsonObject, path: _Path) -> Iterator[tuple[_Path, Json | _Gone, str]]:
    properties, extra = object_at(schema, "properties"), object_at(schema, "additionalProperties")
    for name in texts_at(schema, "required"):
        if name in value and "default" not in object_at(properties, name):
            yield (*path, name), _GONE, "required, and missing"
    most = number_at(schema, "maxProperties")
    if most is not None and extra and value:
        sample = next(iter(value.values()))
        yield path, {f"k{number}": sample for number in range(int(most) + 1)}, f"more than {int(most)} properties"
    for name, one in value.items():
        yield from _faults(object_at(properties, name) if name in properties else extra, one, (*path, name))


def _in_array(schema: JsonObject, value: list[Json], path: _Path) -> Iterator[tuple[_Path, Json | _Gone, str]]:
    kind = schema.get("x-kubernetes-list-type")
    if value and (kind in {"set", "map"} or schema.get("uniqueItems") is True):
        yield path, [*value, value[0]], f"the same {'key' if kind == 'map' else 'item'} twice"
    most, least = number_at(schema, "maxItems"), number_at(schema, "minItems")
    if most is not None and value and kind not in {"set", "map"}:
        yield path, [value[0]] * (int(most) + 1), f"more than {int(most)} items"
    if least:
        yield path, value[: int(least) - 1], f"fewer than {int(least)} items"
    for index, item in enumerate(value):
        yield from _faults(object_at(schema, "items"), item, (*path, index))


def _wrong_type(schema: JsonObject) -> Json | None:
    match schema.get("type"):
        case "object" | "array":
            return "a string"
        case "string":
            return 7
        case "integer" | "number" | "boolean":
            return "a string"
        case _:
            return None


def _bounds(schema: JsonObject) -> Iterator[tuple[int | float, str]]:
    low, high = number_at(schema, "minimum"), number_at(schema, "maximum")
    if low is not None:
        excluded = schema.get("exclusiveMinimum") is True
        yield (low, f"not above {low}") if excluded else (low - 1, f"below {low}")
    if high is not None:
        excluded = schema.get("exclusiveMaximum") is True
        yield (high, f"not below {high}") if excluded else (high + 1, f"above {high}")
    step = number_at(schema, "multipleOf")
    if step is not None and step > 1:
        yield int(low if low is not None else 0) // int(step) * int(step) + 1, f"no multiple of {step}"


def _lengths(schema: JsonObject, value: str) -> Iterator[tuple[str, str]]:
    low, high = number_at(schema, "minLength"), number_at(schema, "maxLength")
    if low:
        yield (value + "x" * int(low))[: int(low) - 1], f"shorter than {int(low)}"
    if high is not None:
        yield (value + "x" * (int(high) + 1))[: int(high) + 1], f"longer than {int(high)}"
    name = schema.get("format")
    if isinstance(name, str) and name in FORMATS:
        yield _NO_FORMAT, f"no {name}"
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and pattern.startswith("^") and pattern.endswith("$"):
        yield _NO_FORMAT, f"does not match {pattern}"


def _replaced(value: Json, path: _Path, new: Json | _Gone) -> Json | _Gone:
    if not path:
        return new
    step, rest = path[0], path[1:]
    if isinstance(value, Mapping) and isinstance(step, str):
        inner = _replaced(value.get(step), rest, new)
        others = {key: one for key, one in value.items() if key != step}
        return others if isinstance(inner, _Gone) else {**others, step: inner}
    if isinstance(value, list | tuple) and isinstance(step, int):
        items = [*value]
        inner = _replaced(items[step], rest, new)
        return [*items[:step], *([] if isinstance(inner, _Gone) else [inner]), *items[step + 1 :]]
    return value


def _text(path: _Path) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
