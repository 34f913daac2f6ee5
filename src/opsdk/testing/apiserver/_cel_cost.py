"""How much a rule can cost at most, in the units and by the estimates of the API server; too much is refused.

An estimate multiplies what the schema says of sizes (`maxItems`, `maxLength`, `maxProperties`); where it says nothing,
a request of three megabytes is the limit, and where nothing is known of a value it may be endless.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, final

from opsdk.testing.apiserver._cel_function import OPAQUE
from opsdk.testing.apiserver._cel_size import ENDLESS, ONE, UNKNOWN, Size, capped, scaled
from opsdk.testing.apiserver._cel_types import CelType
from opsdk.testing.apiserver._fields import FieldError, Tree, forbidden

__all__ = ["Costs", "greatest_cost"]

_RULE_LIMIT: Final = 10_000_000  # all the values that a rule is held against together
_SCHEMA_LIMIT: Final = 100_000_000  # all rules together
_MOST_NAMED: Final = 4

_TRAVERSAL: Final = 0.1
_PATTERN: Final = 0.25
_LIST, _MAP, _STRUCT = 10, 30, 40
_SCALARS: Final = frozenset({"1", "2", "3", "4"})
_TEXT, _BYTES = "5", "6"
_COMPARISONS: Final = frozenset({"_<_", "_<=_", "_>_", "_>=_"})
_FORMAT_PATTERN: Final = 128 * _PATTERN
_PARSED: Final = frozenset({"cidr", "ip", "isCIDR", "isIP", "isQuantity", "isSemver", "quantity", "semver", "url"})
_TRAVERSED: Final = frozenset({"lowerAscii", "substring", "trim", "upperAscii"})
_EQUAL_AT_ONCE: Final = frozenset(OPAQUE[kind] for kind in ("cidr", "ip", "quantity", "semver"))
_OF_LISTS: Final = frozenset({"indexOf", "isSorted", "lastIndexOf", "max", "min", "sum"})


@final
class Costs:
    """What the rules of a schema cost."""

    def __init__(self) -> None:
        self._faults: list[FieldError] = []
        self._costs: list[tuple[int, str]] = []

    def add(self, where: str, what: str, cost: int) -> None:
        """Note what an expression costs at most, wherever it is evaluated."""
        if cost > _RULE_LIMIT:
            self._faults.append(forbidden(where, _too_much(f"estimated {what} cost", cost, _RULE_LIMIT)))
        self._costs.append((cost, where))

    def faults(self) -> Iterator[FieldError]:
        """What is too much."""
        yield from self._faults
        total = sum(cost for cost, _ in self._costs)
        if total <= _SCHEMA_LIMIT:
            return
        named = [each for each in self._costs if each[0] >= _SCHEMA_LIMIT // 100]
        for _, where in sorted(named, key=lambda each: -each[0])[:_MOST_NAMED]:
            yield forbidden(
                where, "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
            )
        what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        yield FieldError("", "FieldValueForbidden", f"Forbidden: {_too_much(what, total, _SCHEMA_LIMIT)}")


def _too_much(what: str, cost: int, limit: int) -> str:
    factor = cost / limit
    shown = "more than 100x" if factor > 100 else f"{factor:f}x" if factor < 1.5 else f"{factor:.1f}x"
    return (
        f"{what} exceeds budget by factor of {shown} (try simplifying the rule, or adding maxItems, maxProperties, and "
        "maxLength where arrays, maps, and strings are declared)"
    )


def greatest_cost(checked: Tree, of: CelType) -> int:
    """The most that evaluating an expression once can cost.

    Args:
        checked: `expr`, `reference_map`, `type_map`.
        of: The type of `self`.
    """
    return _Estimate(checked["type_map"], of).cost(checked["expr"])


@final
@dataclass(slots=True)
class _Entries:
    """Sizes of what is inside a list or map."""

    is_list: bool
    key: Size
    value: Size


@final
@dataclass(slots=True)
class _Local:
    """A variable of a comprehension."""

    path: tuple[str, ...]
    size: Size | None
    entries: _Entries | None


@final
@dataclass(slots=True)
class _Estimate:
    types: Tree
    of: CelType
    paths: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    locals: dict[str, list[_Local]] = field(default_factory=dict[str, list[_Local]])
    sizes: dict[str, Size] = field(default_factory=dict[str, Size])
    entries: dict[str, _Entries] = field(default_factory=dict[str, _Entries])

    # What is known of an expression

    def type(self, expr: Tree) -> Tree:
        found: Tree = self.types.get(expr["id"], {})
        return found

    def local(self, expr: Tree) -> _Local | None:
        stack = self.locals.get(expr.get("ident_expr", {}).get("name", ""))
        return stack[-1] if stack else None

    def path(self, expr: Tree) -> tuple[str, ...]:
        local = self.local(expr)
        return local.path if local is not None else self.paths.get(expr["id"], ())

    def size(self, expr: Tree) -> Size:
        return self.known_size(expr) or UNKNOWN

    def known_size(self, expr: Tree) -> Size | None:
        if expr["id"] in self.sizes:
            return self.sizes[expr["id"]]
        literal = _literal_size(expr)
        if literal is not None:
            return literal
        declared = self.declared(self.path(expr))
        if declared is not None:
            self.sizes[expr["id"]] = declared
            return declared
        if _is_scalar(self.type(expr)):
            return ONE
        local = self.local(expr)
        return local.size if local is not None else None

    def declared(self, path: tuple[str, ...]) -> Size | None:
        """What the schema says of the length of a value."""
        here: CelType | None = self.of
        if not path or path[0] in {"@result", "__result__"}:
            return None
        for name in path[1:]:
            if here is None:
                return None
            if name == "@keys":
                return Size(0, 0) if here.kind == "map" else None
            here = here.element if name in {"@items", "@values"} else here.fields.get(name)
        return Size(0, here.most) if here is not None else None

    def inside(self, expr: Tree) -> _Entries | None:
        if expr["id"] in self.entries:
            return self.entries[expr["id"]]
        local = self.local(expr)
        return local.entries if local is not None else None

    # Costs

    def cost(self, expr: Tree) -> int:
        if "ident_expr" in expr:
            self.paths[expr["id"]] = self.path(expr) or (expr["ident_expr"]["name"],)
            return 1
        if "select_expr" in expr:
            return self.of_select(expr)
        if "call_expr" in expr:
            return capped(self.of_call(expr))
        if "list_expr" in expr:
            return self.of_list(expr)
        if "struct_expr" in expr:
            return self.of_map(expr)
        if "comprehension_expr" in expr:
            return capped(self.of_comprehension(expr))
        return 0

    def of_select(self, expr: Tree) -> int:
        select: Tree = expr["select_expr"]
        operand: Tree = select["operand"]
        cost = self.cost(operand)
        if select.get("test_only"):
            return cost
        of = self.type(operand)
        self.paths[expr["id"]] = (*self.path(operand), select["field"])
        return cost + ("map_type" in of or "message_type" in of or "type_param" in of)

    def of_list(self, expr: Tree) -> int:
        elements: list[Tree] = expr["list_expr"].get("elements", [])
        cost = sum(map(self.cost, elements))
        self.entries[expr["id"]] = _Entries(True, ONE, Size.around([self.size(each) for each in elements]))
        return cost + _LIST

    def of_map(self, expr: Tree) -> int:
        struct: Tree = expr["struct_expr"]
        entries: list[Tree] = struct.get("entries", [])
        if struct.get("message_name"):
            return sum(self.cost(each["value"]) for each in entries) + _STRUCT
        cost = sum(self.cost(each["map_key"]) + self.cost(each["value"]) for each in entries)
        self.entries[expr["id"]] = _Entries(
            False,
            Size.around([self.size(each["map_key"]) for each in entries]),
            Size.around([self.size(each["value"]) for each in entries]),
        )
        return cost + _MAP

    def of_comprehension(self, expr: Tree) -> int:
        made: Tree = expr["comprehension_expr"]
        over, start, step = made["iter_range"], made["accu_init"], made["loop_step"]
        cost = self.cost(over) + self.cost(start)
        self.push(made["accu_var"], _Local(self.path(start), self.known_size(start), self.inside(start)))
        self.push_items(made, over)
        each_time = self.cost(made["loop_condition"]) + self.cost(step)
        for name in ("iter_var", "iter_var2"):
            if made.get(name):
                self.locals[made[name]].pop()
        cost += self.cost(made["result"])
        self.locals[made["accu_var"]].pop()
        count = self.size(over)
        if "const_expr" in start:
            size = self.known_size(start)
            if size is not None:
                self.sizes[expr["id"]] = size
        elif "list_expr" in start or "struct_expr" in start:
            self.sizes[expr["id"]] = count
            inside = self.inside(step)
            if inside is not None:
                self.entries[expr["id"]] = inside
        return cost + count.most * each_time

    def push(self, name: str, local: _Local) -> None:
        self.locals.setdefault(name, []).append(local)

    def push_items(self, made: Tree, over: Tree) -> None:
        inside = self.inside(over)
        is_list = inside.is_list if inside is not None else "list_type" in self.type(over)
        key, value = ("@indices", "@items") if is_list else ("@keys", "@values")
        path = self.path(over)
        of_key = _Local((*path, key), inside.key if inside is not None else None, None)
        of_value = _Local((*path, value), inside.value if inside is not None else None, None)
        if made.get("iter_var2"):
            self.push(made["iter_var"], of_key)
            self.push(made["iter_var2"], of_value)
        else:
            self.push(made["iter_var"], of_value if is_list else of_key)

    def of_call(self, expr: Tree) -> int:
        made: Tree = expr["call_expr"]
        function: str = made["function"]
        arguments: list[Tree] = made.get("args", [])
        if function == "dyn":
            cost = 1 + self.cost(arguments[0])
            known, inside = self.known_size(arguments[0]), self.inside(arguments[0])
            if known is not None:
                self.sizes[expr["id"]] = known
            if inside is not None:
                self.entries[expr["id"]] = inside
            return cost
        costs = [self.cost(each) for each in arguments]
        target: Tree | None = made.get("target")
        if target is not None:
            costs.append(self.cost(target))
        if function in {"_&&_", "_||_"}:
            return sum(costs)
        if function == "_?_:_":
            return self.of_condition(expr, arguments, costs)
        own, size = self.of_function(expr, function, target, arguments)
        if function == "_[_]":
            size = self.of_index(expr, arguments)
        size = size or self.known_size(expr)
        if size is not None:
            self.sizes[expr["id"]] = size
        return sum(costs) + own

    def of_condition(self, expr: Tree, arguments: list[Tree], costs: list[int]) -> int:
        first, second = arguments[1:]
        self.sizes[expr["id"]] = Size.around([self.size(first), self.size(second)])
        one, other = self.inside(first), self.inside(second)
        if one is not None and other is not None:
            self.entries[expr["id"]] = _Entries(
                one.is_list, Size.around([one.key, other.key]), Size.around([one.value, other.value])
            )
        return costs[0] + max(costs[1:])

    def of_index(self, expr: Tree, arguments: list[Tree]) -> Size | None:
        inside = self.inside(arguments[0])
        step = "@items" if "list_type" in self.type(arguments[0]) else "@values"
        self.paths[expr["id"]] = (*self.path(arguments[0]), step)
        return inside.value if inside is not None else None

    def of_function(
        self, expr: Tree, function: str, target: Tree | None, arguments: list[Tree]
    ) -> tuple[int, Size | None]:
        """The cost of the call alone, and the size of its result where it has one of its own."""
        match function:
            case "startsWith" | "endsWith":
                return scaled(self.size(arguments[0]).most, _TRAVERSAL), None
            case "contains" if target is not None:
                one, other = self.size(target).most, self.size(arguments[0]).most
                return scaled(one, _TRAVERSAL) * scaled(other, _TRAVERSAL), None
            case "matches" | "find" | "findAll":
                text, pattern = (target, arguments[0]) if target is not None else (arguments[0], arguments[1])
                size = self.size(text)
                cost = scaled(size.most + 1, _TRAVERSAL) * scaled(self.size(pattern).most, _PATTERN)
                return cost, Size(0, size.most) if function != "matches" else None
            case "@in":
                by_size = "list_type" in self.type(arguments[1])
                return self.size(arguments[1]).most if by_size else 1, None
            case "_==_" | "_!=_":
                return self.of_equality(function, *arguments), None
            case "_+_":
                return self.of_sum(expr, *arguments)
            case "format" | "replace" | "split" | "join" | "strings.quote" | "bytes" | "string":
                return self.of_text(function, target, arguments)
            case "validate":
                return scaled(scaled(self.size(arguments[0]).most, _TRAVERSAL), _FORMAT_PATTERN), None
            case "ip.isCanonical":
                return scaled(self.size(arguments[0]).most, 2 * _TRAVERSAL), None
            case "containsIP" | "containsCIDR":
                return self.of_network(function, arguments[0]), None
            case _ if function in _COMPARISONS and self.is_text(arguments[0]):
                return scaled(min(self.size(each).most for each in arguments), _TRAVERSAL), None
            case _ if function in _PARSED and target is None:
                size = self.size(arguments[0])
                return scaled(size.most, _TRAVERSAL), size if function == "url" else None
            case _ if function in _TRAVERSED and target is not None:
                size = self.size(target)
                return scaled(size.most, _TRAVERSAL), size
            case _ if function in _OF_LISTS and target is not None:
                return self.of_list_function(target), None
            case _:
                return self.of_library(function, target, arguments)

    def is_text(self, expr: Tree) -> bool:
        return self.type(expr).get("primitive") in {_TEXT, _BYTES}

    def of_equality(self, function: str, one: Tree, other: Tree) -> int:
        name: str = self.type(one).get("message_type", "")
        if function == "_==_" and name and self.type(one) == self.type(other):
            if name in _EQUAL_AT_ONCE:
                return 1
            if name == OPAQUE["format"]:
                return scaled(64, _TRAVERSAL)
            if name == OPAQUE["url"]:
                return scaled((self.known_size(other) or ONE).most, _TRAVERSAL)
        return scaled(min(self.size(one).most, self.size(other).most), _TRAVERSAL)

    def of_sum(self, expr: Tree, one: Tree, other: Tree) -> tuple[int, Size | None]:
        of = self.type(expr)
        if "list_type" not in of and not self.is_text(expr):
            return 1, None
        size = self.size(one).plus(self.size(other))
        if "list_type" in of:
            left, right = self.inside(one), self.inside(other)
            if left is not None and right is not None:
                self.entries[expr["id"]] = _Entries(
                    left.is_list, Size.around([left.key, right.key]), Size.around([left.value, right.value])
                )
            return 1, size
        return scaled(size.most, _TRAVERSAL), size

    def of_text(self, function: str, target: Tree | None, arguments: list[Tree]) -> tuple[int, Size | None]:
        size = self.size(target if target is not None else arguments[0])
        cost = scaled(size.most, _TRAVERSAL)
        match function:
            case "format":
                return cost, None
            case "strings.quote":
                return cost, Size(size.least + 2, capped(size.most * 2 + 2))
            case "bytes" if self.type(arguments[0]).get("primitive") == _TEXT:
                return cost, Size(size.least, capped(size.most * 4))
            case "string" if self.type(arguments[0]).get("primitive") == _BYTES:
                return cost, Size(size.least // 4, size.most)
            case "replace":
                return scaled(size.most, 2 * _TRAVERSAL), _replaced(size, *map(self.size, arguments[:2]))
            case "split":
                most = size.most
                if len(arguments) > 1 and "int64_value" in arguments[1].get("const_expr", {}):
                    most = int(arguments[1]["const_expr"]["int64_value"]) % 2**64
                return scaled(size.most, 2 * _TRAVERSAL), Size(0, most)
            case "join" if target is not None:
                joined = self.of_join(target, size, arguments)
                return scaled(joined.most, _TRAVERSAL), joined
            case _:
                return 1, None

    def of_join(self, target: Tree, count: Size, arguments: list[Tree]) -> Size:
        joined = count.times(self.of_items(target))
        if arguments:
            separators = Size(max(count.least - 1, 0), max(count.most - 1, 0))
            joined = joined.plus(self.size(arguments[0]).times(separators))
        return joined

    def of_items(self, target: Tree) -> Size:
        """What is known of a list's items by the schema."""
        path = self.path(target)
        return (self.declared((*path, "@items")) if path else None) or UNKNOWN

    def of_list_function(self, target: Tree) -> int:
        of: Tree = self.type(target).get("list_type", {}).get("elem_type", {})
        count = self.size(target).most
        if "list_type" not in self.type(target):
            return scaled(count, _TRAVERSAL)
        is_text = of.get("primitive") in {_TEXT, _BYTES}
        return count * (1 + (scaled(self.of_items(target).most, _TRAVERSAL) if is_text else 0))

    def of_network(self, function: str, argument: Tree) -> int:
        cost = scaled(32, _TRAVERSAL)
        if function == "containsCIDR":
            cost += scaled(16, _TRAVERSAL) + 1
        if self.is_text(argument):
            cost += scaled(self.size(argument).most, _TRAVERSAL)
        return cost

    def of_library(self, function: str, target: Tree | None, arguments: list[Tree]) -> tuple[int, Size | None]:
        """Functions of the libraries of sets and lists."""
        if function.startswith("sets."):
            factor = 2 if function == "sets.equivalent" else 1
            return self.size(arguments[0]).most * self.size(arguments[1]).most * factor + 1, None
        listed = self.size(target) if target is not None else UNKNOWN
        match function:
            case "lists.range":
                count = _number(arguments[0], ENDLESS)
                return _allocating(1, count), Size(count, count)
            case "reverse":
                return _allocating(1, listed.most), listed
            case "slice":
                start, end = _number(arguments[0], 0), _number(arguments[1], listed.most)
                return _allocating(1, max(end - start, 0)), Size(end - start, end - start)
            case "flatten":
                depth = _number(arguments[0], ENDLESS) if arguments else 1
                return _allocating(depth, listed.most), listed
            case "distinct" | "sort":
                of: Tree = self.type(target or {"id": ""}).get("list_type", {}).get("elem_type", {})
                text = function == "sort" and of.get("primitive") in {_TEXT, _BYTES}
                pairs = listed.times(listed)
                return _allocating(2 + (_TRAVERSAL if text else 0), pairs.most), pairs
            case _:
                return 1, None


def _allocating(factor: float, count: int) -> int:
    return scaled(count, factor) + _LIST + 1


def _number(expr: Tree, otherwise: int) -> int:
    found = expr.get("const_expr", {}).get("int64_value")
    return int(found) if found is not None else otherwise


def _literal_size(expr: Tree) -> Size | None:
    if "const_expr" in expr:
        constant: Tree = expr["const_expr"]
        if "string_value" in constant:
            return Size.exactly(len(constant["string_value"]))
        if "bytes_value" in constant:
            return Size.exactly(len(constant["bytes_value"]) * 3 // 4)
        return ONE
    if "list_expr" in expr:
        return Size.exactly(len(expr["list_expr"].get("elements", ())))
    if "struct_expr" in expr and not expr["struct_expr"].get("message_name"):
        return Size.exactly(len(expr["struct_expr"].get("entries", ())))
    return None


def _is_scalar(of: Tree) -> bool:
    if of.get("primitive") in _SCALARS or of.get("well_known") in {"2", "3"}:
        return True
    abstract: Tree = of.get("abstract_type", {})
    return abstract.get("name") == "optional_type" and _is_scalar(abstract["parameter_types"][0])


def _replaced(size: Size, old: Size, new: Size) -> Size:
    """The size of a text in which parts are replaced."""
    if old.least == 0:
        most = capped((size.most + 1) * new.most + size.most)
    elif new.most <= old.least:
        most = size.most
    else:
        most = capped(math.ceil(size.most / old.least) * new.most)
    if old.most == 0:
        least = (size.least + 1) * new.least + size.least
    elif old.most <= new.least:
        least = size.least
    else:
        least = math.ceil(size.least / old.most) * new.least
    return Size(least, most)
