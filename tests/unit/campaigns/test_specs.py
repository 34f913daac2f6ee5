"""Generated specs against the API server's own validation, which knows nothing of how they were generated.

Invariant: what `specs_of` makes is accepted, and what `invalid_specs_of` makes of it is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
import pytest
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st
from lightkube.resources.core_v1 import ConfigMap

from opsdk.client.transport import HttpRequest, HttpResponse
from opsdk.errors import ObjectError
from opsdk.testing.apiserver import ApiServer
from opsdk.testing.campaigns import invalid_specs_of, specs_of
from opsdk.types import Json, JsonObject

STRING: Final[JsonObject] = {"type": "string"}
PROPERTIES: Final[JsonObject] = {
    "plain": STRING,
    "short": {"type": "string", "minLength": 2, "maxLength": 4},
    "choice": {"type": "string", "enum": ["red", "green"]},
    "pattern": {"type": "string", "pattern": "^[a-z]+-[0-9]{1,3}$", "maxLength": 10},
    "middle": {"type": "string", "pattern": "x.z"},
    **{
        name.replace("-", ""): {"type": "string", "format": name}
        for name in (
            "byte",
            "cidr",
            "date",
            "date-time",
            "duration",
            "email",
            "hostname",
            "ipv4",
            "ipv6",
            "mac",
            "uri",
            "uuid",
        )
    },
    "small": {"type": "integer", "minimum": -3, "maximum": 3},
    "above": {"type": "integer", "minimum": 5, "exclusiveMinimum": True, "format": "int32"},
    "below": {"type": "integer", "maximum": -5},
    "even": {"type": "integer", "multipleOf": 2, "minimum": 0},
    "ratio": {"type": "number", "minimum": 0, "maximum": 1, "exclusiveMaximum": True},
    "flag": {"type": "boolean"},
    "either": {"x-kubernetes-int-or-string": True},
    "nothing": {"type": "string", "nullable": True},
    "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "strings": {"type": "object", "additionalProperties": STRING, "maxProperties": 2},
    "inner": {"type": "object", "properties": {"must": STRING, "may": {"type": "integer"}}, "required": ["must"]},
    "items": {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3},
    "set": {"type": "array", "items": STRING, "x-kubernetes-list-type": "set"},
    "map": {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name", "protocol"],
        "items": {
            "type": "object",
            "properties": {"name": STRING, "protocol": {"type": "string", "default": "TCP", "enum": ["TCP", "UDP"]}},
            "required": ["name"],
        },
    },
    "branch": {
        "type": "object",
        "properties": {"file": STRING, "url": STRING},
        "oneOf": [{"required": ["file"], "not": {"required": ["url"]}}, {"required": ["url"]}],
    },
}


FIELDS: Final = sorted(PROPERTIES)
QUICK: Final = settings(
    max_examples=12, deadline=None, database=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)


def crd_of(spec: JsonObject) -> JsonObject:
    schema: JsonObject = {"type": "object", "properties": {"spec": spec}}
    names: JsonObject = {"kind": "Thing", "plural": "things", "singular": "thing", "listKind": "ThingList"}
    version: JsonObject = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.specs.example.com"},
        "spec": {"group": "specs.example.com", "names": names, "scope": "Namespaced", "versions": [version]},
    }


def crd_with(*fields: str) -> JsonObject:
    properties = {field: PROPERTIES[field] for field in fields}
    return crd_of({"type": "object", "properties": properties, "required": list(fields)})


def creator(crd: JsonObject) -> Callable[[Json], HttpResponse]:
    server = ApiServer()

    def send(path: str, body: JsonObject, query: tuple[tuple[str, str], ...] = ()) -> HttpResponse:
        headers = {"content-type": "application/json"}
        raw = msgspec.json.encode(body)
        return server.handle(HttpRequest(method="POST", path=path, query=query, headers=headers, body=raw))

    made = send("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    assert made.status == 201, made.body

    def create(spec: Json) -> HttpResponse:
        thing: JsonObject = {
            "apiVersion": "specs.example.com/v1",
            "kind": "Thing",
            "metadata": {"name": "t"},
            "spec": spec,
        }
        path = "/apis/specs.example.com/v1/namespaces/default/things"
        return send(path, thing, (("dryRun", "All"),))

    return create


@pytest.mark.parametrize("field", FIELDS)
def test_what_the_schema_allows_is_accepted_and_varies(field: str) -> None:
    create, seen = creator(crd_with(field)), set[str]()

    @QUICK
    @given(spec=specs_of(crd_with(field)))
    def check(spec: JsonObject) -> None:
        answer = create(spec)
        seen.add(canonical_text(spec))
        if field != "branch":  # `not` is left to the server
            assert answer.status == 201, answer.body

    check()
    assert len(seen) > 1


def canonical_text(spec: JsonObject) -> str:
    return msgspec.json.encode(spec, order="sorted").decode()


@pytest.mark.parametrize("field", [field for field in FIELDS if field not in {"branch", "middle", "open"}])
def test_what_is_just_outside_of_the_schema_is_refused(field: str) -> None:
    create = creator(crd_with(field))

    @QUICK
    @given(broken=invalid_specs_of(crd_with(field)))
    def check(broken: tuple[JsonObject, str]) -> None:
        spec, why = broken
        assert why.startswith("spec.")
        assert create(spec).status in {400, 422}, why

    check()


VIOLATIONS: Final = {
    "below": "above -5",
    "choice": "none of the enum",
    "either": "neither a number nor a string",
    "even": "no multiple of 2",
    "flag": "not of type boolean",
    "inner": "required, and missing",
    "ipv4": "no ipv4",
    "items": "fewer than 1 items",
    "map": "the same key twice",
    "pattern": "does not match",
    "ratio": "not below 1",
    "set": "the same item twice",
    "short": "longer than 4",
    "small": "below -3",
    "strings": "more than 2 properties",
}


@pytest.mark.parametrize(("field", "why"), sorted(VIOLATIONS.items()))
def test_every_kind_of_rule_is_broken(field: str, why: str) -> None:
    spec, text = find(
        invalid_specs_of(crd_with(field)), lambda one: why in one[1], settings=settings(QUICK, max_examples=200)
    )
    assert text.startswith(f"spec.{field}")
    assert creator(crd_with(field))(spec).status in {400, 422}


def test_fields_can_be_given() -> None:
    given_fields = {"plain": st.just("registry.example.com/a:1"), "map[].name": st.just("web")}
    spec = find(
        specs_of(crd_with("plain", "map"), fields=given_fields), lambda spec: bool(spec.get("map")), settings=QUICK
    )
    assert spec["plain"] == "registry.example.com/a:1"
    assert b'"name":"web"' in msgspec.json.encode(spec)
    with pytest.raises(ObjectError, match=r"no ports\.name; items of lists are written"):
        specs_of(crd_with("plain"), fields={"ports.name": st.just("web")})


def test_simplest_values_come_first() -> None:
    properties = {name: PROPERTIES[name] for name in ("plain", "short", "inner", "items", "small")}
    schema: JsonObject = {"type": "object", "properties": properties, "required": ["short", "inner"]}
    simplest = find(specs_of(crd_of(schema)), lambda _: True, settings=QUICK)
    assert simplest == {"short": "00", "inner": {"must": ""}}


def test_kinds_without_a_spec_are_refused() -> None:
    with pytest.raises(ObjectError):
        specs_of(ConfigMap)
    with pytest.raises(ObjectError, match="no schema of a spec"):
        specs_of(crd_of({}))
    with pytest.raises(ObjectError, match="a stored version"):
        specs_of({"kind": "ConfigMap"})
