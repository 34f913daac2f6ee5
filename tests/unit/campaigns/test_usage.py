"""What a campaign says when it cannot find anything: wrong options, schemas that nothing fits, rules nothing meets."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Final, cast

import anyio
import pytest
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from lightkube import AsyncClient

from opsdk import Request, Result
from opsdk.client import ApiClient
from opsdk.errors import ConfigurationError, ObjectError
from opsdk.testing.campaigns import CampaignReport, campaign
from opsdk.types import Json, JsonObject

TEXT: Final[JsonObject] = {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}}


class Idle:
    """Does nothing."""

    def __init__(self, client: ApiClient) -> None:
        self.client = client

    async def run(self) -> None:
        await anyio.sleep_forever()


def crd(spec: JsonObject) -> JsonObject:
    schema: JsonObject = {"type": "object", "properties": {"spec": spec}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "lamps.campaigns.example.com"},
        "spec": {
            "group": "campaigns.example.com",
            "scope": "Namespaced",
            "names": {"kind": "Lamp", "plural": "lamps", "singular": "lamp", "listKind": "LampList"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"laws": []}, r"laws is \[\]; give a list, such as \[Law.REST\]"),
        ({"laws": "rest"}, "laws is 'rest'; give a list"),
        ({"laws": ["rests"]}, "laws has 'rests'; there are Law.HISTORY"),
        ({"ignore": "status"}, r"ignore is 'status'; give a list: ignore=\['status'\]"),
        ({"ignore": ["???"]}, r"ignore has '\?\?\?'; give a kind \('ConfigMap'\), the beginning of a field"),
        ({"ignore": ["Lamp default/subject: status.a: 1 -> 2"]}, "ignore has 'Lamp default/subject.*; give a kind"),
        ({"ignore": ["status.a["]}, "ignore has 'status.a"),
        ({"settle": timedelta(seconds=-5)}, "settle is .*; give a timedelta over zero"),
        ({"patience": 5}, "patience is 5; give a timedelta over zero"),
        ({"examples": 0}, "examples is 0; give an int of 1 or more"),
        ({"changes": -1}, "changes is -1; give an int of 0 or more"),
        ({"seed": "x"}, "seed is 'x'; give an int"),
    ],
)
def test_options_with_which_nothing_would_be_found_are_refused(options: dict[str, object], told: str) -> None:
    untyped = cast("Callable[..., CampaignReport]", campaign)
    with pytest.raises(ConfigurationError, match=told):
        untyped(Idle, crd(TEXT), **options)


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "array", "items": {"type": "string"}}, "Lamp: the schema of the spec has the type array"),
        ({"x-kubernetes-preserve-unknown-fields": True}, "Lamp: the schema of the spec says no type"),
    ],
)
def test_a_spec_that_is_no_object_is_refused(schema: JsonObject, told: str) -> None:
    with pytest.raises(ObjectError, match=told):
        campaign(Idle, crd(schema))


@pytest.mark.parametrize(
    "field",
    [
        {"type": "integer", "minimum": 5, "maximum": 3},
        {"type": "string", "pattern": r"^\pL+$"},
        {"type": "string", "pattern": "^[äöü]+$"},
        {"type": "array", "minItems": 3, "x-kubernetes-list-type": "set", "items": {"type": "string", "enum": ["a"]}},
    ],
)
def test_a_field_of_which_no_values_can_be_made_is_named_with_the_way_out(field: JsonObject) -> None:
    inner: JsonObject = {"type": "object", "required": ["n"], "properties": {"n": field}}
    schema: JsonObject = {"type": "object", "required": ["inner"], "properties": {"inner": inner}}
    with pytest.raises(ObjectError, match=r"no values can be made for inner\.n .*fields=\{'inner\.n': …\}"):
        campaign(Idle, crd(schema))
    with pytest.raises(ObjectError, match=r"fields has 5 for inner\.n; give a strategy, such as st\.just\(5\)"):
        cast("Callable[..., CampaignReport]", campaign)(Idle, crd(schema), fields={"inner.n": 5})


def test_a_rule_that_no_spec_meets_is_told_with_the_servers_words() -> None:
    with pytest.raises(
        ObjectError, match=r"refused every spec of Lamp.*give strategies \(fields=\).*must be of type string"
    ):
        campaign(Idle, crd(TEXT), fields={"a": st.just(5)}, examples=2)


RULED: Final[JsonObject] = {
    "type": "object",
    "properties": {"schedule": {"type": "string", "maxLength": 20}, "other": {"type": "integer"}},
    "x-kubernetes-validations": [{"rule": "!has(self.schedule) || self.schedule.startsWith('* ')", "message": "cron"}],
}


@pytest.mark.parametrize("fields", [{"schedule": st.just("x")}, {"schedule": st.just("x"), "other": st.just(1)}])
def test_when_most_specs_are_refused_a_campaign_fails_and_says_how_many_and_why(
    fields: dict[str, SearchStrategy[Json]],
) -> None:
    schema: JsonObject = {**RULED, "required": ["schedule"]}
    with pytest.raises(ObjectError, match=r"^the API server refused every spec of Lamp, so that nothing .*: cron$"):
        campaign(Idle, crd(schema), fields=fields, examples=5)
    options = st.sampled_from(["x", "y", "z", "* a"])
    with pytest.raises(ObjectError, match=r"refused \d+ of \d+ specs of Lamp, so that hardly anything .*: cron$"):
        campaign(Idle, crd(schema), fields={**fields, "schedule": options}, examples=10)


def test_the_whole_spec_may_be_given_where_a_rule_is_about_several_fields() -> None:
    specs: SearchStrategy[Json] = st.integers(0, 99).map(lambda number: {"schedule": f"* {number}"})
    report = campaign(Idle, crd(RULED), fields={"": specs}, examples=3)
    assert (report.unsuitable, report.lives > 2) == (0, True)


def test_a_strategy_without_values_is_told_as_such() -> None:
    with pytest.raises(ObjectError, match=r"no spec of Lamp could be made: a strategy in fields= has no values"):
        campaign(Idle, crd(TEXT), fields={"a": st.text().filter(lambda _: False)}, examples=2)


class Plain:
    """A reconciler without anything that says what it watches."""

    def __init__(self, client: ApiClient) -> None:
        self.client = client

    async def reconcile(self, request: Request) -> Result:
        return Result()


class Lazy:
    def __init__(self, client: object) -> None:
        self.client = client


@pytest.mark.parametrize(
    ("operator", "told"),
    [
        (
            Plain,
            r"makes a reconciler, Plain, .*; make a Manager that runs it: .*\.complete\(Plain\(manager\.client\)\)",
        ),
        (Lazy, r"makes Lazy, which has no run\(\); make a Manager, or something with run\(\)"),
    ],
)
def test_what_cannot_be_run_is_refused_before_the_first_life(operator: object, told: str) -> None:
    untyped = cast("Callable[..., CampaignReport]", campaign)
    with pytest.raises(ConfigurationError, match=f"^campaign: make_operator {told}"):
        untyped(operator, crd(TEXT))
    with pytest.raises(ConfigurationError, match=f"^campaign: make_operator {told}"):
        untyped(operator, crd(TEXT), client_type=AsyncClient)


def test_a_kind_to_ignore_that_there_is_not_is_told() -> None:
    with pytest.raises(ConfigurationError, match=r"^campaign: ignore names Configmap, and the API server has no such"):
        campaign(Idle, crd(TEXT), ignore=["Lamp.status", "ConfigMap data", "Configmap data.a"], examples=2)


def test_pytest_shows_nothing_of_how_a_campaigns_message_came_to_be() -> None:
    with pytest.raises(ObjectError) as caught:
        campaign(Idle, crd(TEXT), fields={"a": st.just(5)}, examples=2)
    assert [entry.path for entry in caught.traceback.filter(caught)] == [Path(__file__)]
    assert caught.value.__context__ is None
