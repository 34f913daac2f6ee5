r"""Simple JSONPaths, as CRDs use them for printer columns and selectable fields.

Understood: `.a.b`, `.a\.b`, `['a.b']`, `[0]`, `[-1]`, `[1:3]`, `[*]`, and filters `[?(@.type=="Ready")]` with the six
comparisons or a bare path. Not understood: recursive descent and unions; such a path finds nothing.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias, final

from opsdk.testing.apiserver._fields import is_array, is_object

__all__ = ["find_all", "find_first"]

_NAME: Final = re.compile(r"\.((?:\\.|[^.\[\]\\])+)")
_QUOTED: Final = re.compile(r"""\[\s*(?:'((?:\\.|[^'\\])*)'|"((?:\\.|[^"\\])*)")\s*\]""")
_INDEX: Final = re.compile(r"\[\s*(-?\d+)\s*\]")
_SLICE: Final = re.compile(r"\[\s*(-?\d*)\s*:\s*(-?\d*)\s*\]")
_FILTER: Final = re.compile(r"\[\s*\?\(\s*(.+?)\s*\)\s*\]")
_COMPARISON: Final = re.compile(r"@(\S*?)\s*(==|!=|<=|>=|<|>)\s*(.+)")
_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@final
@dataclass(frozen=True, slots=True)
class _Field:
    name: str


@final
@dataclass(frozen=True, slots=True)
class _Items:
    chosen: slice | int


@final
@dataclass(frozen=True, slots=True)
class _Filter:
    path: tuple[_Step, ...]
    compare: Callable[[Any, Any], bool] | None
    literal: object


_Step: TypeAlias = "_Field | _Items | _Filter"


def find_all(path: str, value: object) -> list[object]:
    """All values at a path, in order; empty where it leads nowhere or is not understood."""
    steps = _parse(path)
    if steps is None:
        return []
    return _walk(steps, value)


def find_first(path: str, value: object) -> object:
    """The first value at a path, None where there is none."""
    found = find_all(path, value)
    return found[0] if found else None


def _walk(steps: tuple[_Step, ...], value: object) -> list[object]:
    values = [value]
    for step in steps:
        values = [found for each in values for found in _step(step, each)]
    return values


def _step(step: _Step, value: object) -> list[object]:
    match step:
        case _Field(name):
            return [value[name]] if is_object(value) and name in value else []
        case _Items(chosen):
            if is_object(value):
                return [*value.values()] if chosen == slice(None) else []
            if not is_array(value):
                return []
            if isinstance(chosen, slice):
                return value[chosen]
            return [value[chosen]] if -len(value) <= chosen < len(value) else []
        case _Filter():
            return [each for each in value if _holds(step, each)] if is_array(value) else []


def _holds(condition: _Filter, value: object) -> bool:
    found = _walk(condition.path, value)
    if condition.compare is None:
        return bool(found)
    if not found:
        return False
    left, right = found[0], condition.literal
    if isinstance(left, bool) is not isinstance(right, bool) or isinstance(left, str) is not isinstance(right, str):
        return condition.compare is operator.ne
    try:
        return condition.compare(left, right)
    except TypeError:
        return False


@lru_cache(maxsize=1024)
def _parse(path: str) -> tuple[_Step, ...] | None:
    rest = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    steps: list[_Step] = []
    while rest and rest != ".":
        if found := _NAME.match(rest):
            name = re.sub(r"\\(.)", r"\1", found[1])
            steps.append(_Items(slice(None)) if name == "*" else _Field(name))
        elif found := _QUOTED.match(rest):
            steps.append(_Field(re.sub(r"\\(.)", r"\1", found[1] if found[1] is not None else found[2])))
        elif found := _INDEX.match(rest):
            steps.append(_Items(int(found[1])))
        elif found := re.match(r"\[\s*\*\s*\]", rest):
            steps.append(_Items(slice(None)))
        elif found := _SLICE.match(rest):
            steps.append(_Items(slice(int(found[1]) if found[1] else None, int(found[2]) if found[2] else None)))
        elif found := _FILTER.match(rest):
            condition = _parse_filter(found[1])
            if condition is None:
                return None
            steps.append(condition)
        else:
            return None
        rest = rest[found.end() :]
    return tuple(steps)


def _parse_filter(text: str) -> _Filter | None:
    if compared := _COMPARISON.fullmatch(text):
        path = _parse(compared[1])
        literal = _literal(compared[3].strip())
        if path is None or literal is None:
            return None
        return _Filter(path, _OPERATORS[compared[2]], literal)
    path = _parse(text.removeprefix("@")) if text.startswith("@") else None
    return None if path is None else _Filter(path, None, None)


def _literal(text: str) -> str | float | bool | None:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    if text in {"true", "false"}:
        return text == "true"
    try:
        return int(text) if re.fullmatch(r"-?\d+", text) else float(text)
    except ValueError:
        return None
