"""Label selectors in Kubernetes' own syntax, evaluated here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, Literal, TypeAlias, cast, final

import msgspec

from opsdk.errors import ObjectError
from opsdk.types import LabelSelector

__all__ = ["EVERYTHING", "Requirement", "Selector", "selector_of"]

Operator: TypeAlias = Literal["in", "notin", "exists", "absent"]

_TOKEN: Final = re.compile(r"\s*(==|!=|=|!|,|\(|\)|[^\s=!,()]+)")
_KEY: Final = re.compile(
    r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


@final
class Requirement(msgspec.Struct, frozen=True):
    """One condition on one label."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels fulfil it."""
        match self.operator:
            case "exists":
                return self.key in labels
            case "absent":
                return self.key not in labels
            case "in":
                return labels.get(self.key) in self.values
            case "notin":
                return labels.get(self.key) not in self.values

    def __str__(self) -> str:
        values = ",".join(sorted(self.values))
        match self.operator:
            case "exists":
                return self.key
            case "absent":
                return f"!{self.key}"
            case "in":
                return f"{self.key}={values}" if len(self.values) == 1 else f"{self.key} in ({values})"
            case "notin":
                return f"{self.key}!={values}" if len(self.values) == 1 else f"{self.key} notin ({values})"


@final
class Selector(msgspec.Struct, frozen=True):
    """All of several requirements. Two that say the same in the same way are equal."""

    requirements: frozenset[Requirement] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels fulfil all of it."""
        return not self.requirements or all(requirement.matches(labels) for requirement in self.requirements)

    def __bool__(self) -> bool:
        return bool(self.requirements)

    def __str__(self) -> str:
        return ",".join(sorted(str(requirement) for requirement in self.requirements))


EVERYTHING: Final = Selector()
"""Requires nothing."""


def selector_of(labels: LabelSelector | Selector | None) -> Selector:
    """The selector that the labels, or a text such as `tier in (web,api),!canary`, stand for; a selector is itself.

    Raises:
        ObjectError: The text is no selector; or they are neither a text nor texts by texts.
    """
    if labels is None:
        return EVERYTHING
    if isinstance(labels, Selector):
        return labels
    if isinstance(labels, str):
        return _parse(labels)
    _require_texts(labels)
    return Selector(frozenset(Requirement(key, "in", frozenset([value])) for key, value in labels.items()))


def _require_texts(labels: object) -> None:
    """Refuse what a type checker would refuse, where there is none."""
    if not isinstance(labels, Mapping):
        raise ObjectError(f"label selector {labels!r}: give a text such as 'app=web', or a mapping of texts")
    for key, value in cast("Mapping[object, object]", labels).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise ObjectError(
                f"label selector: {key!r}: {value!r} are not both texts; write {str(key)!r}: {str(value)!r}"
            )


@lru_cache(maxsize=1024)
def _parse(text: str) -> Selector:
    parser = _Parser(text)
    return Selector(frozenset(parser.requirements()))


@final
class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        at = 0
        stripped = text.rstrip()
        while at < len(stripped):
            found = _TOKEN.match(stripped, at)
            if found is None:  # cannot be: the last alternative takes everything else
                raise self._error("it cannot be read")
            self._tokens.append(found[1])
            at = found.end()
        self._at = 0

    def requirements(self) -> list[Requirement]:
        if not self._tokens:
            return []
        found = [self._requirement()]
        while self._peek() == ",":
            self._next()
            found.append(self._requirement())
        if self._peek():
            raise self._error(f"{self._peek()!r} is not expected")
        return found

    def _requirement(self) -> Requirement:
        if self._peek() == "!":
            self._next()
            return Requirement(self._key(), "absent")
        key = self._key()
        match self._peek():
            case "=" | "==":
                self._next()
                return Requirement(key, "in", frozenset([self._value()]))
            case "!=":
                self._next()
                return Requirement(key, "notin", frozenset([self._value()]))
            case "in" | "notin" as operator:
                self._next()
                return Requirement(key, operator, self._values())
            case _:
                return Requirement(key, "exists")

    def _values(self) -> frozenset[str]:
        if self._next() != "(":
            raise self._error("a list of values begins with '('")
        values = [self._value()]
        while (following := self._next()) == ",":
            values.append(self._value())
        if following != ")":
            raise self._error("a list of values ends with ')'")
        return frozenset(values)

    def _key(self) -> str:
        token = self._next()
        if not _KEY.fullmatch(token):
            raise self._error(f"{token!r} is no label" if token else "a label is missing")
        return token

    def _value(self) -> str:
        if self._peek() in {"", ",", ")"}:
            return ""
        token = self._next()
        if not _VALUE.fullmatch(token):
            raise self._error(f"{token!r} is no label value")
        return token

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _error(self, why: str) -> ObjectError:
        return ObjectError(f"label selector {self._text!r}: {why}")
