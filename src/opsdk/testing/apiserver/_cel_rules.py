"""CEL rules of a schema (`x-kubernetes-validations`): compiled once, evaluated on every write.

Guarantees: a rule that does not compile is a fault of the CRD; one that cannot be evaluated is a fault of the object.
Nothing is let pass for want of an answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, final

from opsdk.testing.apiserver._cel_cost import Costs, greatest_cost
from opsdk.testing.apiserver._cel_library import CelProgramError, Checked, Checker, Program, program, times
from opsdk.testing.apiserver._cel_literals import literal_faults
from opsdk.testing.apiserver._cel_paths import normalized_path
from opsdk.testing.apiserver._cel_types import LARGEST_REQUEST, CelType, declare
from opsdk.testing.apiserver._cel_values import CelValueError, aligned, to_cel
from opsdk.testing.apiserver._fields import (
    FieldError,
    Tree,
    child,
    duplicate,
    entries,
    forbidden,
    go_json,
    invalid,
    is_array,
    is_integer,
    is_object,
    members,
    omitted,
    required,
)
from opsdk.testing.apiserver._schema_values import Correlation

__all__ = ["RuleSet", "rules_of"]

_LONGEST_MESSAGE_BYTES: Final = 5 * 1024
_NO_TYPE: Final = (
    "Internal error: internal error: failed to construct type information for x-kubernetes-validations rules: "
    "unable to convert structural schema to CEL declarations"
)
_NO_OLD_SELF: Final = "may not be set if oldSelf is not used in rule"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """A rule that compiles."""

    source: Tree
    check: Program
    message: Program | None
    uses_old_self: bool
    optional_old_self: bool
    field_path: str

    @property
    def name(self) -> str:
        """What errors call it."""
        text: str = self.source.get("message") or self.source["rule"]
        return text.strip()

    @property
    def otherwise(self) -> str:
        """What is said when it does not hold."""
        given: str = (self.source.get("message") or "").strip()
        return given or f"failed rule: {self.name}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """The rules of a place in the schema, and those below."""

    of: CelType
    rules: tuple[_Rule, ...]
    properties: Mapping[str, _Node] = field(default_factory=dict[str, "_Node"])
    element: _Node | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSet:
    """All rules of a schema.

    Args:
        faults: What keeps the schema from being accepted; fields begin below the schema.
        root: The rules; None: there are none.
    """

    faults: tuple[FieldError, ...]
    root: _Node | None

    def validate(self, new: Tree, old: Tree | None, correlation: Correlation | None) -> Iterator[FieldError]:
        """What breaks a rule. Rules that only look at the new value are not held against what did not change.

        Args:
            new: The whole object.
            old: The object as it is; None for a new one.
            correlation: The old object, for what is unchanged.
        """
        if self.root is not None:
            yield from _validate(self.root, "", new, old, correlation, lambda: False)


def rules_of(schema: Tree) -> RuleSet:
    """The rules of a version's `openAPIV3Schema`."""
    return _compiled(go_json(schema))


@lru_cache(maxsize=256)
def _compiled(schema_json: str) -> RuleSet:
    schema: Tree = json.loads(schema_json)
    of = declare(schema, resource=True)
    if of is None:
        return RuleSet(faults=(), root=None)
    compiler = _Compiler(of)
    root = compiler.node(schema, of, "", forbids_old_self=None, count=1)
    return RuleSet(faults=(*compiler.faults, *compiler.costs.faults()), root=root)


@final
class _Compiler:
    """Compiles the rules of one schema.

    Args:
        root: Its type.
    """

    def __init__(self, root: CelType) -> None:
        self._checker = Checker(root)
        self.faults: list[FieldError] = []
        self.costs = Costs()

    def node(
        self, schema: Tree, of: CelType, where: str, *, forbids_old_self: str | None, count: int | None
    ) -> _Node | None:
        """The rules of a place and below; None where there are none.

        Args:
            forbids_old_self: The list above whose items have no old values; None where there is none.
            count: How many values there can be at this place; None where nothing limits them.
        """
        properties: dict[str, _Node] = {}
        for name, below in members(schema, "properties").items():
            type_below = of.properties.get(name)
            place = f"{where}.properties[{name}]"
            if type_below is None:
                self._untyped(below, place)
                continue
            found = self.node(below, type_below, place, forbids_old_self=forbids_old_self, count=count)
            if found is not None:
                properties[name] = found
        element = self._element(schema, of, where, forbids_old_self, count)
        rules = tuple(self._rules(schema, of, where, forbids_old_self, count))
        if not rules and not properties and element is None:
            return None
        return _Node(of=of, rules=rules, properties=properties, element=element)

    def _untyped(self, schema: Tree, where: str) -> None:
        """Rules on what has no type, or on lists and maps of it, are faults: they could not be evaluated."""
        if entries(schema, "x-kubernetes-validations"):
            self.faults.append(FieldError(f"{where}.x-kubernetes-validations", "InternalError", _NO_TYPE))
        for name, below in members(schema, "properties").items():
            self._untyped(below, f"{where}.properties[{name}]")
        for key in ("items", "additionalProperties"):
            if is_object(schema.get(key)):
                self._untyped(schema[key], f"{where}.{key}")

    def _element(
        self, schema: Tree, of: CelType, where: str, forbids_old_self: str | None, count: int | None
    ) -> _Node | None:
        if of.element is None:
            return None
        limited = is_integer(schema.get("maxProperties" if of.kind == "map" else "maxItems"))
        below = count * of.most if count is not None and limited else None
        if of.kind == "map":
            place = f"{where}.additionalProperties"
            return self.node(
                schema["additionalProperties"], of.element, place, forbids_old_self=forbids_old_self, count=below
            )
        if schema.get("x-kubernetes-list-type") != "map":
            forbids_old_self = forbids_old_self or where or "<root>"
        return self.node(schema["items"], of.element, f"{where}.items", forbids_old_self=forbids_old_self, count=below)

    def _rules(
        self, schema: Tree, of: CelType, where: str, forbids_old_self: str | None, count: int | None
    ) -> Iterator[_Rule]:
        for index, source in enumerate(entries(schema, "x-kubernetes-validations")):
            place = f"{where}.x-kubernetes-validations[{index}]"
            expression: str = source.get("rule") or ""
            optional = bool(source.get("optionalOldSelf"))
            if not expression.strip():
                continue
            try:
                checked = self._check(expression, of, optional=optional)
                if checked.gives != "bool":
                    raise CelProgramError("cel expression must evaluate to a bool")  # noqa: TRY301 - one way out
            except CelProgramError as error:
                self.faults.append(invalid(f"{place}.rule", source, str(error)))
                if source.get("optionalOldSelf") is not None:
                    self.faults.append(invalid(f"{place}.optionalOldSelf", source["optionalOldSelf"], _NO_OLD_SELF))
                continue
            times = count if count is not None else LARGEST_REQUEST // (of.least_bytes + 1)
            self.costs.add(f"{place}.rule", "rule", greatest_cost(checked.tree, of) * times)
            if checked.uses_old_self and forbids_old_self is not None:
                text = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {forbids_old_self}"
                self.faults.append(invalid(f"{place}.rule", expression, text))
            if not checked.uses_old_self and source.get("optionalOldSelf") is not None:
                self.faults.append(invalid(f"{place}.optionalOldSelf", source["optionalOldSelf"], _NO_OLD_SELF))
            yield _Rule(
                source=source,
                check=program(expression, optional_old_self=optional and checked.uses_old_self),
                message=self._message(source, of, place, optional=optional),
                uses_old_self=checked.uses_old_self,
                optional_old_self=optional,
                field_path=normalized_path(source.get("fieldPath") or "", schema) or "",
            )

    def _message(self, source: Tree, of: CelType, place: str, *, optional: bool) -> Program | None:
        expression: str = source.get("messageExpression") or ""
        if not expression:
            return None
        try:
            checked = self._check(expression, of, optional=optional)
            if checked.gives != "string":
                raise CelProgramError("messageExpression must evaluate to a string")  # noqa: TRY301 - one way out
        except CelProgramError as error:
            text = str(error).replace("compilation failed", "messageExpression compilation failed")
            self.faults.append(invalid(f"{place}.messageExpression", source, text))
            return None
        self.costs.add(f"{place}.messageExpression", "messageExpression", greatest_cost(checked.tree, of))
        return program(expression)

    def _check(self, expression: str, of: CelType, *, optional: bool) -> Checked:
        try:
            checked = self._checker.check(expression, of, optional_old_self=optional)
        except CelProgramError as error:
            raise CelProgramError(f"compilation failed: {error}") from error
        for fault in literal_faults(checked.tree, _why_not):  # the first is enough
            raise CelProgramError(f"compilation failed: ERROR: <input>:1:1: {fault}\n | {expression}")
        return checked


def _why_not(expression: str) -> str | None:
    try:
        program(expression).evaluate({})
    except CelProgramError as error:
        return str(error)
    return None


# Evaluation


def _validate(
    node: _Node,
    path: str,
    new: object,
    old: object,
    correlation: Correlation | None,
    parent_unchanged: Callable[[], bool],
) -> Iterator[FieldError]:
    if new is None:
        return

    def unchanged() -> bool:
        return correlation.unchanged(new) if correlation is not None else parent_unchanged()

    if node.rules:
        yield from _evaluate(node, path, new, old, unchanged)
    if is_object(new):
        for key, each in new.items():
            below = node.properties.get(key)
            where = child(path, key)
            if below is None and node.of.kind == "map":
                below, where = node.element, f"{path}[{key}]"
            if below is not None:
                before = old.get(key) if is_object(old) else None
                deeper = correlation.at_key(key) if correlation is not None else None
                yield from _validate(below, where, each, before, deeper, unchanged)
    elif is_array(new) and node.element is not None:
        for index, each in enumerate(new):
            deeper = correlation.at_item(each) if correlation is not None else None
            before = deeper.old if deeper is not None else None
            yield from _validate(node.element, f"{path}[{index}]", each, before, deeper, unchanged)


def _evaluate(node: _Node, path: str, new: object, old: object, unchanged: Callable[[], bool]) -> Iterator[FieldError]:
    kind: str = node.of.schema.get("type") or ""
    try:
        variables = _variables(node, new, old)
    except CelValueError as error:
        for rule in node.rules:
            yield invalid(path, kind, f"{error} evaluating rule: {rule.name}")
        return
    for rule in node.rules:
        if rule.uses_old_self and old is None and not rule.optional_old_self:
            continue
        try:
            if rule.check.evaluate(variables) is True:
                continue
        except CelProgramError as error:
            yield invalid(path, kind, _failure(str(error), rule.name))
            continue
        if not rule.uses_old_self and unchanged():
            continue
        yield _broken(rule, path, new, kind, _message_of(rule, variables))


def _variables(node: _Node, new: object, old: object) -> dict[str, object]:
    variables: dict[str, object] = {"self": to_cel(new, node.of, times()), "opsdk_has_old": old is not None}
    if any(rule.uses_old_self for rule in node.rules):
        # a variable that is optional has to be there; nobody looks at it
        variables["oldSelf"] = to_cel(aligned(old, new, node.of), node.of, times()) if old is not None else None
    return variables


def _failure(error: str, rule: str) -> str:
    if error.startswith("no such overload"):
        text = "call arguments did not match a supported operator, function or macro signature for rule"
        return f"'{error}': {text}: {rule}"
    return f"{error} evaluating rule: {rule}"


def _message_of(rule: _Rule, variables: Mapping[str, object]) -> str:
    if rule.message is None:
        return rule.otherwise
    try:
        said = rule.message.evaluate(variables)
    except CelProgramError:
        return rule.otherwise
    text = said.strip() if isinstance(said, str) else ""
    if not text or "\n" in text or len(text.encode()) > _LONGEST_MESSAGE_BYTES:
        return rule.otherwise
    return text


def _broken(rule: _Rule, path: str, new: object, kind: str, detail: str) -> FieldError:
    where = child(path, rule.field_path) if rule.field_path else path
    whole = kind in {"object", "array"}
    match rule.source.get("reason"):
        case "FieldValueForbidden":
            return forbidden(where, detail)
        case "FieldValueRequired":
            return required(where, detail)
        case "FieldValueDuplicate":
            return FieldError(where, "FieldValueDuplicate", "Duplicate value") if whole else duplicate(where, new)
        case _:
            return omitted(where, detail) if whole else invalid(where, new, detail)
