"""CEL rules of CRDs: expressions of every group of functions, what is refused, which objects a rule is held against."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from conformance.cel_cases import COSTLY, FAILS, HOLDS, REFUSED
from conformance.differences import CEL_COSTS, CEL_NESTED, CEL_SETS, differs
from conformance.harness import APPLY, JSON_PATCH, MERGE_PATCH, Answer, Api, Body, eventually, is_served
from opsdk.client import ClientConfig, HttpxTransport
from opsdk.testing.apiserver import ApiServer
from opsdk.testing.virtual_time import BackendOptions

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory-asyncio", pytest.param("real", marks=pytest.mark.controlplane)])
def server(request: pytest.FixtureRequest) -> str:
    """One backend in memory: rules are evaluated in one step, which no backend sees."""
    return str(request.param)


@pytest.fixture
async def api(server: str, anyio_backend: BackendOptions, request: pytest.FixtureRequest) -> AsyncGenerator[Api]:
    """Nothing is prepared: the kinds of these tests are cluster-scoped and their own."""
    if server == "real":
        kubeconfig: Path = request.getfixturevalue("real_kubeconfig")
        transport = HttpxTransport(ClientConfig.from_files([kubeconfig]))
        try:
            yield Api(transport, "default", server=server)
        finally:
            await transport.aclose()
    else:
        async with ApiServer() as memory:
            yield Api(memory.transport(), "default", server=server)


GROUP: Final = "cel.conformance.example.com"
CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
VALIDATIONS: Final = "x-kubernetes-validations"


def crd(plural: str, spec: Body, status: Body | None = None) -> Body:
    """A cluster-scoped kind whose spec and status are of these schemas."""
    properties = {"spec": spec, **({"status": status} if status is not None else {})}
    version: Body = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {"plural": plural, "kind": plural.capitalize()},
            "versions": [version],
        },
    }


def of_properties(properties: Mapping[str, Body], *rules: Body) -> Body:
    schema: Body = {"type": "object", "properties": dict(properties)}
    return {**schema, VALIDATIONS: list(rules)} if rules else schema


def ruled(schema: Body, *rules: str | Body) -> Body:
    return {**schema, VALIDATIONS: [{"rule": each} if isinstance(each, str) else each for each in rules]}


def switches(expressions: Sequence[str]) -> Body:
    """A switch for each expression: switched on, the expression is a rule that has to hold."""
    return of_properties({f"f{at}": ruled({"type": "boolean"}, rule) for at, rule in enumerate(expressions)})


def all_on(expressions: Sequence[str]) -> Body:
    return {f"f{at}": True for at in range(len(expressions))}


async def install(api: Api, body: Body) -> str:
    """Have the kind served; the path of its objects."""
    plural = body["spec"]["names"]["plural"]
    path = f"/apis/{GROUP}/v1/{plural}"
    answer = await api.call("POST", CRDS, body)
    assert answer.status in {201, 409}, answer.text
    await eventually(partial(is_served, api, path))
    return path


def document(path: str, spec: Body, name: str = "tried", **more: Any) -> Body:
    kind = path.rpartition("/")[2].capitalize()
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": {"name": name}, "spec": spec, **more}


async def create(api: Api, path: str, spec: Body, **query: str) -> Answer:
    return await api.call("POST", path, document(path, spec), query={"dryRun": "All", **query})


async def change(api: Api, path: str, old: Body, new: Body) -> Answer:
    """Create the one, try to replace it by the other."""
    await api.call("DELETE", f"{path}/tried")
    created = await api.call("POST", path, document(path, old))
    assert created.status == 201, created.text
    body = {**created.body, "spec": new}
    return await api.call("PUT", f"{path}/tried", body, query={"dryRun": "All"})


# --- expressions ---


@pytest.mark.parametrize("group", HOLDS)
async def test_expressions_hold(api: Api, group: str) -> None:
    expressions = HOLDS[group]
    path = await install(api, crd(f"hold{re.sub('[^a-z]', '', group)}s", switches(expressions)))
    answer = await create(api, path, all_on(expressions))
    assert answer.status == 201, answer.text


@pytest.mark.parametrize("group", HOLDS)
async def test_the_opposite_of_what_holds_is_a_fault_with_the_rule_as_its_message(api: Api, group: str) -> None:
    expressions = [f"!({each})" for each in HOLDS[group]]
    path = await install(api, crd(f"not{re.sub('[^a-z]', '', group)}s", switches(expressions)))
    answer = await create(api, path, all_on(expressions))
    assert answer.causes == sorted(
        (f"spec.f{at}", "FieldValueInvalid", f"Invalid value: true: failed rule: {each}")
        for at, each in enumerate(expressions)
    )


async def test_what_cannot_be_evaluated_is_a_fault(api: Api) -> None:
    path = await install(api, crd("fails", switches(FAILS)))
    answer = await create(api, path, all_on(FAILS))
    assert answer.status == 422
    assert {field for field, _, _ in answer.causes} == {f"spec.f{at}" for at in range(len(FAILS))}
    for field, reason, message in answer.causes:
        rule = FAILS[int(field.removeprefix("spec.f"))]
        assert reason == "FieldValueInvalid"
        assert message.startswith('Invalid value: "boolean": ')
        assert message.endswith((f" evaluating rule: {rule}", f" for rule: {rule}"))


@pytest.mark.parametrize("expression", REFUSED)
async def test_a_rule_that_does_not_compile_is_refused_with_its_crd(api: Api, expression: str) -> None:
    body = crd("refuseds", switches([expression]))
    answer = await api.call("POST", CRDS, body, query={"dryRun": "All"})
    assert answer.status == 422, answer.text
    (cause,) = answer.causes
    where = "spec.validation.openAPIV3Schema.properties[spec].properties[f0].x-kubernetes-validations[0].rule"
    assert cause[:2] == (where, "FieldValueInvalid")


PROPERTY: Final = "spec.validation.openAPIV3Schema.properties[spec].properties[a]"
FORBIDDEN: Final = "FieldValueForbidden"


@pytest.mark.parametrize(
    "schema",
    [
        {"x-kubernetes-preserve-unknown-fields": True},
        {"type": "array", "items": {"x-kubernetes-preserve-unknown-fields": True}},
        {"type": "object", "additionalProperties": {"x-kubernetes-preserve-unknown-fields": True}},
    ],
    ids=["value", "list", "map"],
)
async def test_a_rule_on_what_has_no_type_is_refused_with_its_crd(api: Api, schema: Body) -> None:
    answer = await api.call("POST", CRDS, crd("untypeds", of_properties({"any": ruled(schema, "true")})))
    assert answer.status == 422, answer.text
    (cause,) = answer.causes
    message = (
        f"Internal error: internal error: failed to construct type information for {VALIDATIONS} rules: "
        "unable to convert structural schema to CEL declarations"
    )
    where = f"spec.validation.openAPIV3Schema.properties[spec].properties[any].{VALIDATIONS}"
    assert cause == (where, "InternalError", message)


@pytest.mark.parametrize("expression", COSTLY)
async def test_a_rule_that_may_cost_too_much_is_refused_with_its_crd(api: Api, expression: str) -> None:
    body = crd("costlys", of_properties({"a": ruled({"type": "boolean"}, expression)}))
    answer = await api.call("POST", CRDS, body, query={"dryRun": "All"})
    where = f"{PROPERTY}.x-kubernetes-validations[0].rule"
    found = [(field, reason) for field, reason, _ in answer.causes]
    assert found == [("spec.validation.openAPIV3Schema", FORBIDDEN), (where, FORBIDDEN), (where, FORBIDDEN)]


NAME: Final[Body] = {"type": "string", "maxLength": 63}


def items(schema: Body, *rules: str, most: int | None = None) -> Body:
    limit = {} if most is None else {"maxItems": most}
    listed: Body = {"type": "array", "items": schema, **limit}
    return ruled(listed, *rules) if rules else listed


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (items(NAME, "self.all(x, self.exists_one(y, x == y))", most=100), None),
        (items(NAME, "self.all(x, self.exists_one(y, x == y))", most=1000), "3.0x"),
        (items(NAME, "self.all(x, self.exists_one(y, x == y))"), "more than 100x"),
        (items({"type": "string"}, "self.all(x, x.startsWith('a'))"), None),
        (items({"type": "string"}, "self.all(x, x.contains('abcdefghijkl'))"), "more than 100x"),
        (items({"type": "string"}, "self.all(x, x.matches('^abc'))", most=10), None),
        (items({"type": "string"}, "self.all(x, x.matches('^abc'))", most=100), "3.1x"),
        (items(ruled(NAME, "self.matches('^[a-z]+$')")), "5.6x"),
        (items(ruled({"type": "string"}, "self.matches('^[a-z]+$')")), "more than 100x"),
        (items({"type": "integer"}, "self.isSorted()"), None),
        (items(NAME, "self.isSorted()", "self.indexOf('a') < 3", "self.max() < 'z'"), "2.8x"),
        (items(NAME, "self.map(x, x + x).exists(y, self.exists(x, x == y))", most=300), None),
        (ruled({"type": "string"}, "self.split(',').all(x, x.size() < 5)"), "2.0x"),
        (ruled(NAME, "self.split(',').all(x, x.size() < 5)"), None),
        (ruled({"type": "string"}, "self.replace('a', 'bbbb').lowerAscii() != 'x'"), None),
        (ruled({"type": "string"}, "self.replace('a', 'bbbb').matches('a+b+c+d+e+f+')"), None),
        (ruled({"type": "object", "additionalProperties": NAME}, "self.all(k, self[k] != 'x')"), None),
        (ruled({"type": "object", "additionalProperties": NAME}, "self.all(k, k.matches('a'))"), None),
        (
            ruled({"type": "object", "additionalProperties": NAME}, "self.all(k, self.all(l, self[k] != self[l]))"),
            "more than 100x",
        ),
        (ruled({"x-kubernetes-int-or-string": True}, "type(self) == int || self.matches('^abcdefgh$')"), None),
        (ruled({"type": "integer"}, {"rule": "true", "messageExpression": "'is ' + string(self)"}), "more than 100x"),
        (ruled(NAME, {"rule": "true", "messageExpression": "'is ' + self"}), None),
        (items({"type": "string"}, "sets.contains(self, ['a', 'b'])"), None),
        (items(NAME, "self.sort() == self", most=10), None),
        (items(NAME, "self.distinct().size() == self.size()", most=1000), None),
        (items({"type": "string", "format": "date"}, "self.all(x, x > timestamp('2020-01-01T00:00:00Z'))"), None),
        (items({"type": "string", "enum": ["a", "b"]}, "self.all(x, self.all(y, x == y))", most=500), None),
        (items(NAME, "self.all(i, v, self.all(j, w, i == j || v != w))", most=300), None),
        (items(NAME, "cidr('10.0.0.0/8').containsIP(self[0])"), None),
        (ruled({"type": "string"}, "!format.dns1123Label().validate(self).hasValue()"), "1.006634x"),
        (ruled(NAME, "isQuantity(self) && quantity(self).add(quantity('1')) == quantity('2')"), None),
        (items(NAME, "oldSelf.all(x, x in self)", most=500), None),
        (ruled(NAME, "[self, self + self].map(x, x + x).exists(x, x.contains(self))"), None),
        (
            ruled({"type": "string"}, "{'a': self}.exists(k, v, v.contains('aaaaaaaaaa') && v.matches('abcdefgh'))"),
            None,
        ),
    ],
    ids=repr,
)
async def test_the_cost_of_a_rule_depends_on_the_limits_of_the_schema(api: Api, schema: Body, says: str | None) -> None:
    answer = await api.call("POST", CRDS, crd("limits", of_properties({"a": schema})), query={"dryRun": "All"})
    if says is None:
        assert answer.status == 201, answer.text
        return
    first = next(message for _, _, message in answer.causes if "cost exceeds" in message)
    assert f"exceeds budget by factor of {says} " in first


LIST: Final[Body] = {"type": "array", "items": {"type": "integer"}, "maxItems": 5}


@pytest.mark.parametrize(
    ("schema", "rule", "field", "reason"),
    [
        ({"type": "integer"}, {"rule": " "}, "rule", "FieldValueRequired"),
        ({"type": "integer"}, {"rule": "true", "message": " "}, "message", "FieldValueInvalid"),
        ({"type": "integer"}, {"rule": "true", "message": "a\nb"}, "message", "FieldValueInvalid"),
        ({"type": "integer"}, {"rule": "true\n"}, None, None),
        ({"type": "integer"}, {"rule": "true ||\nfalse"}, "message", "FieldValueRequired"),
        ({"type": "integer"}, {"rule": "true ||\nfalse", "message": "m"}, None, None),
        ({"type": "integer"}, {"rule": "true", "reason": "Other"}, "reason", "FieldValueNotSupported"),
        ({"type": "integer"}, {"rule": "true", "messageExpression": " "}, "messageExpression", "FieldValueRequired"),
        ({"type": "integer"}, {"rule": "true", "messageExpression": "1"}, "messageExpression", "FieldValueInvalid"),
        ({"type": "integer"}, {"rule": "true", "messageExpression": "'a' +"}, "messageExpression", "FieldValueInvalid"),
        ({"type": "integer"}, {"rule": "true", "messageExpression": "string(self)"}, None, None),
        ({"type": "integer"}, {"rule": "true", "fieldPath": ".a"}, "fieldPath", "FieldValueInvalid"),
        (of_properties({"a": {"type": "integer"}}), {"rule": "true", "fieldPath": ".a"}, None, None),
        (
            of_properties({"a": {"type": "integer"}}),
            {"rule": "true", "fieldPath": ".b"},
            "fieldPath",
            "FieldValueInvalid",
        ),
        (
            of_properties({"a": {"type": "integer"}}),
            {"rule": "true", "fieldPath": "a"},
            "fieldPath",
            "FieldValueInvalid",
        ),
        (of_properties({"a.b": {"type": "integer"}}), {"rule": "true", "fieldPath": "['a.b']"}, None, None),
        (of_properties({"l": LIST}), {"rule": "true", "fieldPath": ".l[0]"}, "fieldPath", "FieldValueInvalid"),
        ({"type": "integer"}, {"rule": "oldSelf.orValue(1) == self", "optionalOldSelf": True}, None, None),
        ({"type": "integer"}, {"rule": "self > 1", "optionalOldSelf": True}, "optionalOldSelf", "FieldValueInvalid"),
    ],
)
async def test_the_parts_of_a_rule_are_checked(
    api: Api, schema: Body, rule: Body, field: str | None, reason: str | None
) -> None:
    answer = await api.call(
        "POST", CRDS, crd("parts", of_properties({"a": ruled(schema, rule)})), query={"dryRun": "All"}
    )
    if field is None:
        assert answer.status == 201, answer.text
        return
    where = f"spec.validation.openAPIV3Schema.properties[spec].properties[a].x-kubernetes-validations[0].{field}"
    assert answer.status == 422, answer.text
    assert [cause[:2] for cause in answer.causes] == [(where, reason)]


async def test_an_optional_old_value_is_no_value(api: Api) -> None:
    schema = ruled({"type": "integer"}, {"rule": "self == oldSelf", "optionalOldSelf": True})
    answer = await api.call("POST", CRDS, crd("parts", of_properties({"a": schema})), query={"dryRun": "All"})
    fields = [field.rpartition(".")[2] for field, reason, _ in answer.causes if reason == "FieldValueInvalid"]
    assert fields == ["optionalOldSelf", "rule"]


@pytest.mark.parametrize("kind", ["atomic", "set", "map"])
async def test_old_values_of_list_items_are_known_by_their_keys_only(api: Api, kind: str) -> None:
    item: Body = {"type": "object", "properties": {"n": {"type": "string", "maxLength": 5}}, "required": ["n"]}
    if kind == "set":
        item["x-kubernetes-map-type"] = "atomic"
    schema: Body = {
        "type": "array",
        "maxItems": 5,
        "x-kubernetes-list-type": kind,
        "items": ruled(item, "self == oldSelf"),
    }
    if kind == "map":
        schema["x-kubernetes-list-map-keys"] = ["n"]
    answer = await api.call("POST", CRDS, crd("olds", of_properties({"l": schema})), query={"dryRun": "All"})
    if kind == "map":
        assert answer.status == 201, answer.text
        return
    where = "spec.validation.openAPIV3Schema.properties[spec].properties[l].items.x-kubernetes-validations[0].rule"
    assert [cause[:2] for cause in answer.causes] == [(where, "FieldValueInvalid")]


# --- values ---

TEXT: Final[Body] = {"type": "string", "maxLength": 20}
LATER: Final = "self > timestamp('2020-01-01T00:00:00.5Z')"
SPEC: Final = of_properties(
    {
        "number": ruled({"type": "number"}, "self > 1.5", "self < 10"),
        "count": ruled({"type": "integer"}, "self % 2 == 0"),
        "moment": ruled({"type": "string", "format": "date-time"}, LATER),
        "day": ruled({"type": "string", "format": "date"}, "self.getFullYear() == 2020"),
        "span": ruled({"type": "string", "format": "duration"}, "self <= duration('1h')"),
        "raw": ruled({"type": "string", "format": "byte", "maxLength": 20}, "self == b'hi'"),
        "port": ruled({"x-kubernetes-int-or-string": True}, "type(self) == int ? self > 0 : self != ''"),
        "dash-ed": TEXT,
        "namespace": TEXT,
        "a.b/c__d": TEXT,
        "names": ruled(
            {"type": "object", "maxProperties": 5, "additionalProperties": {"type": "integer"}},
            "self.all(k, self[k] > 0)",
            "!('bad' in self)",
        ),
        "deep": {
            "type": "object",
            "maxProperties": 3,
            "additionalProperties": {
                "type": "array",
                "maxItems": 3,
                "items": ruled({"type": "integer"}, {"rule": "self > 0", "message": "must be positive"}),
            },
        },
        "grid": ruled(
            {"type": "array", "maxItems": 3, "items": {**LIST, "maxItems": 3}}, "self.all(row, row.all(x, x > 0))"
        ),
        "nullable": ruled({"type": "integer", "nullable": True}, "self > 0"),
        "maybe": ruled(of_properties({"n": {"type": "integer", "nullable": True}}), "!has(self.n) || self.n > 0"),
        "defaulted": ruled(of_properties({"n": {"type": "integer", "default": 3}}), "self.n == 3"),
        "embedded": ruled(
            {
                "type": "object",
                "x-kubernetes-embedded-resource": True,
                "x-kubernetes-preserve-unknown-fields": True,
            },
            "self.kind == 'ConfigMap' && self.metadata.name.startsWith('a')",
        ),
        "low": {"type": "integer"},
        "high": {"type": "integer"},
        "pair": ruled(
            of_properties({"a": {"type": "integer"}, "b": {"type": "integer"}}),
            {"rule": "self.a < self.b", "reason": "FieldValueForbidden", "fieldPath": ".a", "message": "a too high"},
            {"rule": "self.b < 100", "reason": "FieldValueRequired", "message": "b too high"},
            {"rule": "self.b != 7", "reason": "FieldValueDuplicate", "fieldPath": ".b"},
            {"rule": "self.b != 8", "messageExpression": "self.b == 8 ? 'not eight' : ''", "message": "not that"},
            {"rule": "self.b != 9", "messageExpression": "''", "message": "not nine"},
            {"rule": "self.b != 10", "messageExpression": "string(1 / (self.b - 10))"},
        ),
    },
    {"rule": "!has(self.low) || !has(self.high) || self.low <= self.high", "message": "low above high"},
    {"rule": "!has(self.dash__dash__ed) || self.dash__dash__ed != 'x'", "fieldPath": "['dash-ed']", "message": "dash"},
    {"rule": "!has(self.__namespace__) || self.__namespace__ != 'x'"},
    {"rule": "!has(self.a__dot__b__slash__c__underscores__d) || self.a__dot__b__slash__c__underscores__d != 'x'"},
)
VALUES: Final = crd("values", SPEC)
INVALID: Final = "FieldValueInvalid"


@pytest.mark.parametrize(
    "spec",
    [
        {"number": 2, "count": 4},
        {"number": 2.5},
        {"moment": "2020-01-01T00:00:00.6Z", "day": "2020-05-01", "span": "59m", "raw": "aGk="},
        {"moment": "2020-01-01T02:00:00+01:00"},
        {"port": 1},
        {"port": "http"},
        {"dash-ed": "a", "namespace": "b", "a.b/c__d": "c"},
        {"names": {"a": 1}, "deep": {"a": [1, 2]}, "grid": [[1], []]},
        {"nullable": None, "maybe": {"n": None}, "defaulted": {}},
        {"embedded": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ab"}, "data": {"a": "b"}}},
        {"low": 1, "high": 1, "pair": {"a": 1, "b": 2}},
    ],
    ids=repr,
)
async def test_values_that_keep_the_rules_are_stored(api: Api, spec: Body) -> None:
    answer = await create(api, await install(api, VALUES), spec)
    assert answer.status == 201, answer.text


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        ({"number": 1}, [("spec.number", INVALID, "Invalid value: 1: failed rule: self > 1.5")]),
        ({"number": 11.5}, [("spec.number", INVALID, "Invalid value: 11.5: failed rule: self < 10")]),
        ({"count": 3}, [("spec.count", INVALID, "Invalid value: 3: failed rule: self % 2 == 0")]),
        (
            {"moment": "2020-01-01T00:00:00.4Z"},
            [
                (
                    "spec.moment",
                    INVALID,
                    f'Invalid value: "2020-01-01T00:00:00.4Z": failed rule: {LATER}',
                )
            ],
        ),
        (
            {"day": "2021-05-01"},
            [("spec.day", INVALID, 'Invalid value: "2021-05-01": failed rule: self.getFullYear() == 2020')],
        ),
        ({"span": "61m"}, [("spec.span", INVALID, "Invalid value: \"61m\": failed rule: self <= duration('1h')")]),
        ({"raw": "aG8="}, [("spec.raw", INVALID, "Invalid value: \"aG8=\": failed rule: self == b'hi'")]),
        (
            {"port": 0},
            [("spec.port", INVALID, "Invalid value: 0: failed rule: type(self) == int ? self > 0 : self != ''")],
        ),
        ({"dash-ed": "x"}, [("spec.dash-ed", INVALID, "Invalid value: dash")]),
        (
            {"namespace": "x"},
            [("spec", INVALID, "Invalid value: failed rule: !has(self.__namespace__) || self.__namespace__ != 'x'")],
        ),
        (
            {"names": {"a": 0, "bad": 1}},
            [
                ("spec.names", INVALID, "Invalid value: failed rule: !('bad' in self)"),
                ("spec.names", INVALID, "Invalid value: failed rule: self.all(k, self[k] > 0)"),
            ],
        ),
        ({"deep": {"x": [1, -1]}}, [("spec.deep[x][1]", INVALID, "Invalid value: -1: must be positive")]),
        (
            {"grid": [[1], [0]]},
            [("spec.grid", INVALID, "Invalid value: failed rule: self.all(row, row.all(x, x > 0))")],
        ),
        ({"nullable": 0}, [("spec.nullable", INVALID, "Invalid value: 0: failed rule: self > 0")]),
        (
            {"embedded": {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ab"}}},
            [
                (
                    "spec.embedded",
                    INVALID,
                    "Invalid value: failed rule: self.kind == 'ConfigMap' && self.metadata.name.startsWith('a')",
                )
            ],
        ),
        ({"low": 2, "high": 1}, [("spec", INVALID, "Invalid value: low above high")]),
        ({"pair": {"a": 2, "b": 1}}, [("spec.pair.a", "FieldValueForbidden", "Forbidden: a too high")]),
        ({"pair": {"a": 2, "b": 100}}, [("spec.pair", "FieldValueRequired", "Required value: b too high")]),
        ({"pair": {"a": 2, "b": 7}}, [("spec.pair.b", "FieldValueDuplicate", "Duplicate value")]),
        ({"pair": {"a": 2, "b": 8}}, [("spec.pair", INVALID, "Invalid value: not eight")]),
        ({"pair": {"a": 2, "b": 9}}, [("spec.pair", INVALID, "Invalid value: not nine")]),
        ({"pair": {"a": 2, "b": 10}}, [("spec.pair", INVALID, "Invalid value: failed rule: self.b != 10")]),
        (
            {"pair": {"b": 2}},
            [("spec.pair", INVALID, 'Invalid value: "object": no such key: a evaluating rule: a too high')],
        ),
    ],
    ids=repr,
)
async def test_values_that_break_a_rule_are_refused_in_the_servers_words(
    api: Api, spec: Body, causes: list[tuple[str, str, str]]
) -> None:
    answer = await create(api, await install(api, VALUES), spec)
    assert answer.status == 422, answer.text
    assert answer.causes == causes


async def test_rules_wait_for_values_of_the_right_types(api: Api) -> None:
    answer = await create(api, await install(api, VALUES), {"count": "x", "number": 1})
    assert ("<nil>", INVALID) in [cause[:2] for cause in answer.causes]
    assert not any("failed rule" in message for _, _, message in answer.causes)


# --- old values ---

KEYED: Final[Body] = {
    "type": "array",
    "maxItems": 5,
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name"],
    "items": {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": TEXT,
            "fixed": ruled({"type": "integer"}, {"rule": "self == oldSelf", "message": "is fixed"}),
        },
    },
}
OLD: Final = crd(
    "changes",
    of_properties(
        {
            "fixed": ruled(TEXT, {"rule": "self == oldSelf", "message": "is immutable"}),
            "rising": ruled({"type": "integer"}, {"rule": "self >= oldSelf", "message": "must not fall"}),
            "positive": ruled({"type": "integer"}, "self > 0"),
            "items": KEYED,
            "kept": ruled(KEYED, {"rule": "self == oldSelf", "message": "must stay"}),
            "tags": ruled(
                {"type": "array", "maxItems": 5, "x-kubernetes-list-type": "set", "items": TEXT},
                {"rule": "self == oldSelf", "message": "must stay"},
            ),
            "order": ruled({**LIST}, {"rule": "self == oldSelf", "message": "must stay"}),
            "once": ruled(
                {"type": "integer"},
                {"rule": "!oldSelf.hasValue() || oldSelf.value() == self", "optionalOldSelf": True, "message": "once"},
            ),
            "first": ruled(
                {"type": "integer"},
                {"rule": "oldSelf.hasValue() || self == 1", "optionalOldSelf": True, "message": "begins with 1"},
            ),
            "open": ruled(
                {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                {"rule": "self == oldSelf", "message": "must stay"},
            ),
            "map": {
                "type": "object",
                "maxProperties": 5,
                "additionalProperties": ruled({"type": "integer"}, {"rule": "self == oldSelf", "message": "fixed"}),
            },
        },
        {"rule": "!has(oldSelf.rising) || has(self.rising)", "message": "rising cannot go"},
    ),
    status=of_properties({"phase": ruled(TEXT, {"rule": "self != 'Bad'"}), "seen": {"type": "integer"}}),
)


@pytest.mark.parametrize(
    ("old", "new", "causes"),
    [
        ({"fixed": "a"}, {"fixed": "a"}, []),
        ({"fixed": "a"}, {"fixed": "b"}, [("spec.fixed", INVALID, 'Invalid value: "b": is immutable')]),
        ({}, {"fixed": "b"}, []),
        ({"fixed": "a"}, {}, []),
        ({"rising": 2}, {"rising": 1}, [("spec.rising", INVALID, "Invalid value: 1: must not fall")]),
        ({"rising": 2}, {"rising": 3}, []),
        ({"rising": 2}, {}, [("spec", INVALID, "Invalid value: rising cannot go")]),
        (
            {"items": [{"name": "a", "fixed": 1}, {"name": "b", "fixed": 2}]},
            {"items": [{"name": "b", "fixed": 2}, {"name": "a", "fixed": 3}, {"name": "c", "fixed": 4}]},
            [("spec.items[1].fixed", INVALID, "Invalid value: 3: is fixed")],
        ),
        (
            {"kept": [{"name": "a", "fixed": 1}, {"name": "b", "fixed": 2}]},
            {"kept": [{"name": "b", "fixed": 2}, {"name": "a", "fixed": 1}]},
            [],
        ),
        (
            {"kept": [{"name": "a", "fixed": 1}]},
            {"kept": [{"name": "b", "fixed": 1}]},
            [("spec.kept", INVALID, "Invalid value: must stay")],
        ),
        ({"tags": ["a", "b"]}, {"tags": ["b", "a"]}, []),
        ({"tags": ["a", "b"]}, {"tags": ["a", "c"]}, [("spec.tags", INVALID, "Invalid value: must stay")]),
        ({"order": [1, 2]}, {"order": [2, 1]}, [("spec.order", INVALID, "Invalid value: must stay")]),
        ({"once": 1}, {"once": 2}, [("spec.once", INVALID, "Invalid value: 2: once")]),
        ({}, {"once": 2}, []),
        ({}, {"first": 2}, [("spec.first", INVALID, "Invalid value: 2: begins with 1")]),
        ({"first": 1}, {"first": 2}, []),
        ({"open": {"a": 1}}, {"open": {"a": 1}}, []),
        ({"open": {"a": 1}}, {"open": {"a": 2}}, [("spec.open", INVALID, "Invalid value: must stay")]),
        ({"map": {"a": 1}}, {"map": {"a": 1, "b": 2}}, []),
        ({"map": {"a": 1}}, {"map": {"a": 2}}, [("spec.map[a]", INVALID, "Invalid value: 2: fixed")]),
    ],
    ids=repr,
)
async def test_rules_about_old_values_are_held_against_updates(
    api: Api, old: Body, new: Body, causes: list[tuple[str, str, str]]
) -> None:
    answer = await change(api, await install(api, OLD), old, new)
    assert answer.status == (422 if causes else 200), answer.text
    assert (answer.causes if causes else []) == causes


async def test_a_creation_has_no_old_values(api: Api) -> None:
    answer = await create(api, await install(api, OLD), {"first": 2, "fixed": "a", "rising": 1})
    assert answer.causes == [("spec.first", INVALID, "Invalid value: 2: begins with 1")]


@pytest.mark.parametrize("content_type", [MERGE_PATCH, JSON_PATCH, APPLY])
async def test_patches_of_every_kind_are_held_to_the_rules(api: Api, content_type: str) -> None:
    path = await install(api, OLD)
    await api.call("DELETE", f"{path}/tried")
    await api.call("POST", path, document(path, {"fixed": "a"}))
    bodies: dict[str, Any] = {
        MERGE_PATCH: {"spec": {"fixed": "b"}},
        JSON_PATCH: [{"op": "replace", "path": "/spec/fixed", "value": "b"}],
        APPLY: document(path, {"fixed": "b"}),
    }
    query = {"fieldManager": "x", "force": "true"} if content_type == APPLY else {}
    answer = await api.call("PATCH", f"{path}/tried", bodies[content_type], content_type=content_type, query=query)
    assert answer.causes == [("spec.fixed", INVALID, 'Invalid value: "b": is immutable')]


async def test_a_status_write_is_held_to_the_rules_of_the_status(api: Api) -> None:
    path = await install(api, OLD)
    await api.call("DELETE", f"{path}/tried")
    await api.call("POST", path, document(path, {"fixed": "a"}))
    answer = await api.call(
        "PATCH", f"{path}/tried/status", {"status": {"phase": "Bad"}}, content_type=MERGE_PATCH, query={"dryRun": "All"}
    )
    assert answer.causes == [("status.phase", INVALID, "Invalid value: \"Bad\": failed rule: self != 'Bad'")]


async def test_what_did_not_change_is_not_held_to_a_rule_that_came_later(api: Api) -> None:
    plain = crd("laters", of_properties({"n": {"type": "integer"}, "m": {"type": "integer"}}))
    path = await install(api, plain)
    await api.call("DELETE", f"{path}/tried")
    await api.call("POST", path, document(path, {"n": -1, "m": 1}))
    name = f"{CRDS}/{plain['metadata']['name']}"
    strict = crd("laters", of_properties({"n": ruled({"type": "integer"}, "self > 0"), "m": {"type": "integer"}}))
    replaced = await api.call("PATCH", name, {"spec": strict["spec"]}, content_type=MERGE_PATCH)
    assert replaced.status == 200, replaced.text
    await eventually(partial(_refuses, api, path, {"n": -2}))

    unchanged = await api.call("PATCH", f"{path}/tried", {"spec": {"m": 2}}, content_type=MERGE_PATCH)
    assert unchanged.status == 200, unchanged.text
    changed = await api.call("PATCH", f"{path}/tried", {"spec": {"n": -2}}, content_type=MERGE_PATCH)
    assert changed.causes == [("spec.n", INVALID, "Invalid value: -2: failed rule: self > 0")]
    await api.call("DELETE", name)


async def _refuses(api: Api, path: str, spec: Body) -> bool:
    return (await create(api, path, spec)).status == 422


# --- where the servers differ ---


@differs(CEL_SETS)
async def test_sets_of_one_object_compare_without_order(api: Api) -> None:
    tags: Body = {"type": "array", "maxItems": 5, "x-kubernetes-list-type": "set", "items": TEXT}
    path = await install(api, crd("sets", of_properties({"a": tags, "b": tags}, {"rule": "self.a == self.b"})))
    answer = await create(api, path, {"a": ["x", "y"], "b": ["y", "x"]})
    assert answer.status == CEL_SETS.on(api.server, kube_apiserver=201, in_memory=422)
    same = await create(api, path, {"a": ["x", "y"], "b": ["x", "y"]})
    assert same.status == 201, same.text


@differs(CEL_NESTED)
async def test_faults_of_types_in_lists_of_lists_are_found_in_the_rule(api: Api) -> None:
    grid: Body = {"type": "array", "maxItems": 3, "items": {**LIST, "maxItems": 3}}
    body = crd("nesteds", of_properties({"g": grid}, {"rule": "self.g[0][0].startsWith('x')"}))
    answer = await api.call("POST", CRDS, body, query={"dryRun": "All"})
    assert answer.status == CEL_NESTED.on(api.server, kube_apiserver=422, in_memory=201)
    if answer.status == 201:
        refused = await create(api, await install(api, body), {"g": [[1]]})
        assert [cause[:2] for cause in refused.causes] == [("spec", INVALID)]


@differs(CEL_COSTS)
async def test_a_rule_that_takes_too_long_for_a_value_refuses_it(api: Api) -> None:
    numbers = items({"type": "integer"}, "self.all(x, self.exists_one(y, x == y))", most=500)
    path = await install(api, crd("dears", of_properties({"n": numbers})))
    answer = await create(api, path, {"n": list(range(50))})
    assert answer.status == 201, answer.text
    answer = await create(api, path, {"n": list(range(200))})
    assert answer.status == CEL_COSTS.on(api.server, kube_apiserver=201, in_memory=422)
