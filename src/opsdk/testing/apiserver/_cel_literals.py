"""What the server checks of a rule that compiles: literals that can be judged without a value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from opsdk.testing.apiserver._cel_syntax import children, constant_text
from opsdk.testing.apiserver._fields import Tree, go_json

__all__ = ["literal_faults"]

_PATTERNS: Final = frozenset({"find", "findAll", "matches"})
_CONVERSIONS: Final = frozenset({"bool", "double", "duration", "int", "timestamp", "uint"})
_CLAUSE: Final = re.compile(r"%(\.\d+)?(.?)", re.DOTALL)


def literal_faults(checked: Tree, evaluates: Callable[[str], str | None]) -> Iterator[str]:
    """Patterns, durations and times that are none; lists and maps of mixed types.

    Args:
        checked: `expr` and `type_map`.
        evaluates: Says why an expression cannot be evaluated, None where it can.
    """
    yield from _faults(checked["expr"], checked["type_map"], evaluates, mixed=False)


def _faults(expr: Tree, types: Tree, evaluates: Callable[[str], str | None], *, mixed: bool) -> Iterator[str]:
    made: Tree = expr.get("call_expr", {})
    function: str = made.get("function", "")
    arguments: list[Tree] = made.get("args", [])
    if function in _PATTERNS and len(arguments) > ("target" not in made):
        pattern = constant_text(arguments["target" not in made])
        if pattern is not None and (why := evaluates(f'"".matches({_literal(pattern)})')) is not None:
            yield f"invalid matches argument: {why}"
    if function in _CONVERSIONS and "target" not in made and arguments:
        text = constant_text(arguments[0])
        if text is not None and evaluates(f"[{function}({_literal(text)})].size() == 1") is not None:
            yield f"invalid {function} argument"
    if function == "format" and (text := constant_text(made["target"])) is not None:
        yield from _format_faults(text, arguments[0].get("list_expr"))
    if not mixed:
        yield from _mixed(expr, types)
    for below in children(expr):
        yield from _faults(below, types, evaluates, mixed=mixed or function == "format")


def _format_faults(text: str, arguments: Tree | None) -> Iterator[str]:
    clauses: list[str] = [found[2] for found in _CLAUSE.finditer(text)]
    for each in clauses:
        if each not in set("%sdfexXob"):
            yield f'could not parse formatting clause: unrecognized formatting clause "{each}"'
            return
    wanted = sum(each != "%" for each in clauses)
    if arguments is not None and len(arguments.get("elements", ())) < wanted:
        yield f"index {len(arguments.get('elements', ()))} out of range"


def _literal(text: str) -> str:
    """A text as an expression."""
    escaped = text.encode("unicode_escape").decode().replace('"', '\\"')
    return f'"{escaped}"'


def _mixed(expr: Tree, types: Tree) -> Iterator[str]:
    found: Tree = expr.get("list_expr", {})
    optional = {int(each) for each in found.get("optional_indices", ())}
    yield from _different([_type(each, types, at in optional) for at, each in enumerate(found.get("elements", ()))])
    entries: list[Tree] = expr.get("struct_expr", {}).get("entries", [])
    if entries and all("map_key" in each for each in entries):
        yield from _different([_type(each["map_key"], types, optional=False) for each in entries])
        yield from _different([_type(each["value"], types, bool(each.get("optional_entry"))) for each in entries])


def _type(expr: Tree, types: Tree, optional: bool) -> Tree:  # noqa: FBT001 - one of a few columns
    found: Tree = types.get(str(expr["id"]), {})
    if optional:
        inner: Tree = found.get("abstract_type", {}).get("parameter_types", [{}])[0]
        return inner
    return found


def _different(types: list[Tree]) -> Iterator[str]:
    for each in types[1:]:
        if each != types[0]:
            yield f"expected type '{_named(types[0])}' but found '{_named(each)}'"
            return


def _named(of: Tree) -> str:
    return go_json(of)
