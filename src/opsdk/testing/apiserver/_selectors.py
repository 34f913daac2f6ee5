"""Label and field selectors, in Kubernetes' syntax."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import final

from opsdk.testing.apiserver._json import Document, Value, as_text, dig
from opsdk.testing.apiserver._kinds import KindInfo
from opsdk.testing.apiserver._names import qualified_name_faults
from opsdk.testing.apiserver._status import StatusError, bad_request
from opsdk.testing.apiserver._store import Stored

__all__ = ["Selection", "field_reader", "parse_labels", "selection"]

_TOKEN = re.compile(r"\s*(==|!=|=|!|\(|\)|,|<|>|[^\s=!(),<>]+)")
_SYMBOLS = frozenset({"==", "!=", "=", "!", "(", ")", ",", "<", ">"})
_VALUE = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
_SEGMENT_CHARACTERS = 63

Requirement = Callable[[Mapping[str, str]], bool]

# What field selectors may name besides metadata.name and metadata.namespace.
_FIELDS: dict[str, tuple[str, ...]] = {
    "pods": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "events": (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    "secrets": ("type",),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "services": ("spec.clusterIP", "spec.type"),
    "replicasets.apps": ("status.replicas",),
    "replicationcontrollers": ("status.replicas",),
    "jobs.batch": ("status.successful",),
    "statefulsets.apps": ("status.successful",),
    "certificatesigningrequests.certificates.k8s.io": ("spec.signerName",),
    "resourceslices.resource.k8s.io": ("spec.driver", "spec.nodeName"),
}
_ZERO = {
    "spec.hostNetwork": "false",
    "spec.unschedulable": "false",
    "status.replicas": "0",
    "status.successful": "0",
}
_ELSEWHERE = {
    "reportingComponent": ("reportingComponent",),
    "source": ("source", "component"),
    "status.successful": ("status", "succeeded"),
}
# events.k8s.io names the same fields differently.
_EVENT_ALIASES = {"reportingController": "reportingComponent"}


@final
@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects a list or watch is about."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Callable[[Stored], bool], ...] = ()
    name: str = ""

    @property
    def everything(self) -> bool:
        """Whether nothing is left out."""
        return not self.labels and not self.fields

    def matches(self, stored: Stored) -> bool:
        """Whether an object is one of them."""
        return all(requirement(stored.labels) for requirement in self.labels) and all(
            requirement(stored) for requirement in self.fields
        )


def selection(info: KindInfo, labels: str, fields: str, selectable: Mapping[str, str]) -> Selection:
    """Parse both selectors of a request.

    Args:
        selectable: For custom resources the field paths that their CRD makes selectable.

    Raises:
        StatusError: 400, a selector does not parse or names a field that cannot be selected by.
    """
    return Selection(
        labels=parse_labels(labels),
        fields=tuple(_parse_fields(info, fields, selectable)),
        name=_exact_name(fields),
    )


def field_reader(storage: str, selectable: tuple[str, ...] = ()) -> Callable[[Document], Mapping[str, str]]:
    """What the store keeps of each object of a resource for field selectors."""
    names = _FIELDS.get(storage, ()) + selectable
    if not names:
        return lambda _: {}

    def read(document: Document) -> Mapping[str, str]:
        return {name: _field_text(document, name) for name in names}

    return read


def _field_text(document: Document, name: str) -> str:
    value: Value = dig(document, *_ELSEWHERE.get(name, tuple(name.split("."))))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return as_text(value) or _ZERO.get(name, "")


# Labels


@lru_cache(maxsize=1024)
def parse_labels(text: str) -> tuple[Requirement, ...]:
    """Parse a label selector; tests send the same few over and over.

    Raises:
        StatusError: 400, it does not parse.
    """
    if not text.strip():
        return ()
    parser = _Parser(text)
    return tuple(parser.requirements())


def _bad_requirement(why: str) -> StatusError:
    return bad_request(f"unable to parse requirement: {why}")


@final
class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        self._current = ""
        position = 0
        while position < len(text.rstrip()):
            found = _TOKEN.match(text, position)
            if found is None:
                raise _bad_requirement(f"unexpected character at {position}")
            self._tokens.append(found.group(1))
            position = found.end()

    def _next(self) -> str:
        return self._tokens.pop(0) if self._tokens else ""

    def requirements(self) -> list[Requirement]:
        found: list[Requirement] = []
        if self._tokens[:1] != ["!"] and self._is_symbol():
            raise bad_request(f"found '{self._tokens[0]}', expected: !, identifier, or 'end of string'")
        while self._tokens:
            found.append(self._requirement())
            separator = self._next()
            if separator and separator != ",":
                raise bad_request(f"found '{separator}', expected: ',' or 'end of string'")
            if separator and self._tokens[:1] != ["!"] and (not self._tokens or self._is_symbol()):
                raise bad_request(f"found '{''.join(self._tokens[:1])}', expected: identifier after ','")
        return found

    def _is_symbol(self) -> bool:
        return self._tokens[0] in _SYMBOLS

    def _requirement(self) -> Requirement:
        token = self._next()
        if token == "!":  # noqa: S105 - a token of the syntax
            key = self._key(self._next())
            return lambda labels: key not in labels
        key = self._current = self._key(token)
        if not self._tokens or self._tokens[0] == ",":
            return lambda labels: key in labels
        operator = self._next()
        if operator in {"=", "=="}:
            value = self._value()
            return lambda labels: labels.get(key) == value
        if operator == "!=":
            value = self._value()
            return lambda labels: labels.get(key) != value
        if operator in {"in", "notin"}:
            values = self._values()
            if operator == "in":
                return lambda labels: labels.get(key) in values
            return lambda labels: labels.get(key) not in values
        if operator in {"<", ">"}:
            bound = self._value()
            if not bound.lstrip("-").isdigit():
                text = "for 'Gt', 'Lt' operators, the value must be an integer"
                raise _bad_requirement(f'values[0]: Invalid value: "{bound}": {text}')
            limit, above = int(bound), operator == ">"
            return lambda labels: _numeric(labels.get(key), limit, above=above)
        raise _bad_requirement(f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")

    def _key(self, token: str) -> str:
        faults = qualified_name_faults(token)
        if faults:
            raise _bad_requirement(f'<nil>: Invalid value: "{token}": {"; ".join(faults)}')
        return token

    def _value(self) -> str:
        if not self._tokens or self._tokens[0] == ",":
            return ""
        return self._checked(self._next())

    def _checked(self, value: str) -> str:
        if not _VALUE.match(value) or len(value) > _SEGMENT_CHARACTERS:
            fault = (
                "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and "
                "must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', "
                "regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
            )
            raise _bad_requirement(f'values[0][{self._current}]: Invalid value: "{value}": {fault}')
        return value

    def _values(self) -> frozenset[str]:
        opening = self._next()
        if opening != "(":
            raise _bad_requirement(f"found '{opening}' expected: '('")
        values: list[str] = []
        expect_value = True
        while True:
            token = self._next()
            if token == "":
                raise _bad_requirement("found '', expected: ',' or ')'")
            if token == ")":  # noqa: S105 - a token of the syntax
                if expect_value:
                    values.append("")
                return frozenset(values)
            if token == ",":  # noqa: S105 - a token of the syntax
                if expect_value:
                    values.append("")
                expect_value = True
            else:
                values.append(self._checked(token))
                expect_value = False


def _numeric(value: str | None, limit: int, *, above: bool) -> bool:
    if value is None or not value.lstrip("-").isdigit():
        return False
    return int(value) > limit if above else int(value) < limit


# Fields


def _split_fields(text: str) -> list[tuple[str, str, str]]:
    found: list[tuple[str, str, str]] = []
    for term in re.split(r"(?<!\\),", text):
        if not term:
            continue
        parsed = re.match(r"^([^=!]+)(==|!=|=)(.*)$", term)
        if parsed is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        value = re.sub(r"\\([\\,=])", r"\1", parsed.group(3))
        found.append((parsed.group(1), "!=" if parsed.group(2) == "!=" else "=", value))
    return found


def _exact_name(text: str) -> str:
    for name, operator, value in _split_fields(text):
        if name == "metadata.name" and operator == "=":
            return value
    return ""


def _parse_fields(info: KindInfo, text: str, selectable: Mapping[str, str]) -> list[Callable[[Stored], bool]]:
    found: list[Callable[[Stored], bool]] = []
    known = frozenset(_FIELDS.get(info.storage, ())) | frozenset(selectable)
    for name, operator, value in _split_fields(text):
        found.append(_field_requirement(info, name, operator, value, known))
    return found


def _field_requirement(
    info: KindInfo, name: str, operator: str, value: str, known: frozenset[str]
) -> Callable[[Stored], bool]:
    wanted = operator == "="
    if name == "metadata.name":
        return lambda stored: (stored.name == value) is wanted
    if name == "metadata.namespace" and info.namespaced:
        return lambda stored: (stored.namespace == value) is wanted
    if info.group == "events.k8s.io":
        name = _EVENT_ALIASES.get(name, name)
        name = f"involvedObject{name.removeprefix('regarding')}" if name.startswith("regarding.") else name
    if name == "spec.host" and info.storage == "pods":
        name = "spec.nodeName"
    if name not in known:
        why = f"field label not supported: {name}"
        if info.builtin and info.storage not in _FIELDS:
            why = f'"{name}" is not a known field selector: only "metadata.name", "metadata.namespace"'
        raise bad_request(why)
    return lambda stored: (stored.fields.get(name, "") == value) is wanted
