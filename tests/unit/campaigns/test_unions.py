"""Specs with unions: which fields go with which variant is known from the rules of the CRD.

Invariant: what `specs_of` makes of a union of models is accepted, whichever variant it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

import anyio
import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from pydantic import Field

from opsdk import CustomResource, Model
from opsdk.client import ApiClient
from opsdk.client.transport import HttpRequest, HttpResponse
from opsdk.models import crd_manifest
from opsdk.testing.apiserver import ApiServer
from opsdk.testing.campaigns import campaign, specs_of
from opsdk.testing.campaigns._plan import Plan, plans
from opsdk.testing.campaigns._schema import definition_of
from opsdk.testing.campaigns._strategies import values_of
from opsdk.types import Json, JsonObject

QUICK: Final = settings(
    max_examples=60, deadline=None, database=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)


class Bucket(Model):
    type: Literal["bucket", "object-store"]
    url: str
    size: int = Field(default=1, ge=1, le=9)
    """Has other bounds than a disk's, so that the schema has anyOf as well."""


class Disk(Model):
    type: Literal["disk"]
    path: str
    for_: str | None = Field(default=None, alias="for")
    size: int = Field(default=10, ge=10, le=99)


class Fast(Model):
    mode: Literal["fast"]
    storage: Annotated[Bucket | Disk, Field(discriminator="type")]


class Slow(Model):
    mode: Literal["slow"]
    seconds_to_wait: int


class StoreSpec(Model):
    storage: Annotated[Bucket | Disk, Field(discriminator="type")]
    more: list[Annotated[Bucket | Disk, Field(discriminator="type")]] = Field(default=[])
    how: Annotated[Fast | Slow, Field(discriminator="mode")] | None = None


class Store(CustomResource[StoreSpec], group="unions.example.com", version="v1"):
    """Has unions at a field, in a list, optional, and within each other."""


def send(server: ApiServer, path: str, body: JsonObject) -> HttpResponse:
    headers = {"content-type": "application/json"}
    raw = msgspec.json.encode(body)
    return server.handle(HttpRequest(method="POST", path=path, query=(), headers=headers, body=raw))


def variants_that_are_accepted(fields: Mapping[str, SearchStrategy[Json]] | None = None) -> set[str]:
    """Check that every spec is accepted, and say which variants of `storage` there were."""
    server, seen, count = ApiServer(), set[str](), iter(range(1_000_000))
    assert send(server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd_manifest(Store)).status == 201

    @QUICK
    @given(spec=specs_of(Store, fields=fields))
    def check(spec: JsonObject) -> None:
        metadata: JsonObject = {"name": f"s{next(count)}"}
        thing: JsonObject = {
            "apiVersion": "unions.example.com/v1",
            "kind": "Store",
            "metadata": metadata,
            "spec": spec,
        }
        answer = send(server, "/apis/unions.example.com/v1/namespaces/default/stores", thing)
        assert answer.status == 201, (spec, answer.body)
        storage = spec["storage"]
        assert isinstance(storage, Mapping)
        seen.add(" ".join(sorted(f"{name}={storage[name]}" if name == "type" else name for name in storage)))

    check()
    return seen


def test_every_variant_of_a_union_comes_with_its_own_fields() -> None:
    seen = variants_that_are_accepted()
    assert {"type=bucket url", "size type=bucket url", "path type=disk", "for path size type=disk"} <= seen
    assert any("object-store" in each for each in seen)


def test_a_strategy_may_choose_the_variant_or_one_of_its_fields() -> None:
    seen = variants_that_are_accepted({"storage.type": st.just("disk"), "storage.path": st.just("/data")})
    assert seen == {"path type=disk", "path size type=disk", "for path type=disk", "for path size type=disk"}


def test_a_strategy_may_make_the_whole_union() -> None:
    whole: Json = {"type": "bucket", "url": "a"}
    assert variants_that_are_accepted({"storage": st.just(whole)}) == {"type=bucket url"}


class Either(
    CustomResource[Annotated[Bucket | Disk, Field(discriminator="type")]], group="unions.example.com", version="v1"
):
    """Is a union as a whole."""


FIELDS: Final = {
    "bucket": {"type", "url", "size"},
    "object-store": {"type", "url", "size"},
    "disk": {"type", "path", "for", "size"},
}


class Idle:
    def __init__(self, client: ApiClient) -> None:
        self.client = client

    async def run(self) -> None:
        await anyio.sleep_forever()


def test_a_campaign_tries_all_lives_of_a_kind_with_unions_and_changes_between_the_variants() -> None:
    report = campaign(Idle, Store, examples=8)
    assert (report.unsuitable, report.changes > 0) == (0, True)
    assert campaign(Idle, Either, examples=8).unsuitable == 0


def test_a_life_of_a_spec_that_is_a_union_never_mixes_its_variants() -> None:
    crossed = 0
    schema = definition_of(Either).spec

    @QUICK
    @given(plan=plans(values_of(schema), schema, changes=3))
    def check(plan: Plan) -> None:
        nonlocal crossed
        for step in plan.steps:
            assert set(step.spec) <= FIELDS[str(step.spec["type"])], step.spec
        crossed += len({str(step.spec["type"]) for step in plan.steps}) > 1

    check()
    assert crossed > 0
