"""CEL rules where what evaluates them is missing, or is not wanted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from opsdk import CustomResource, Model
from opsdk.errors import ApiStatusError
from opsdk.models import Cel
from opsdk.testing.apiserver import ApiServer, _rules
from opsdk.testing.apiserver._cel_rules import rules_of

pytestmark = pytest.mark.anyio


class RuledSpec(Model, rules=[Cel("self.low <= self.high", message="low must not be above high")]):
    low: int
    high: int


class Ruled(CustomResource[RuledSpec], group="example.com", version="v1", scope="Cluster"):
    pass


WRONG = {"apiVersion": "example.com/v1", "kind": "Ruled", "metadata": {"name": "r"}, "spec": {"low": 2, "high": 1}}


@pytest.fixture
def without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    missing: Callable[[], bool] = lambda: False  # noqa: E731 - typed
    monkeypatch.setattr(_rules, "_installed", missing)


async def test_without_the_extra_a_crd_with_rules_is_refused_and_told_the_ways_out(without_the_extra: None) -> None:
    async with ApiServer() as server:
        with pytest.raises(ApiStatusError) as caught:
            await server.install(Ruled)
    assert caught.value.code == 501
    assert "pip install 'opsdk[cel]'" in caught.value.server_message
    assert 'cel_rules="ignore"' in caught.value.server_message


async def test_rules_are_ignored_where_asked(without_the_extra: None) -> None:
    async with ApiServer(cel_rules="ignore") as server:
        await server.install(Ruled)
        stored = await server.client().create(Ruled.model_validate(WRONG))
    assert stored.spec.low == 2


async def test_the_environment_can_ask_for_it(without_the_extra: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSDK_CEL_RULES", "ignore")
    async with ApiServer() as server:
        await server.install(Ruled)
        assert (await server.client().create(Ruled.model_validate(WRONG))).spec.low == 2


def test_rules_of_one_schema_are_compiled_once() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer", "x-kubernetes-validations": [{"rule": "true"}]}},
    }
    assert rules_of(schema) is rules_of({**schema})
