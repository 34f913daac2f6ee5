"""The server refuses what the model refuses, wherever a schema can say so; where it cannot is written down."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError, create_model

from crds.cases import CASES, NOT_EXPRESSIBLE, STRICTER, Case, Gap
from crds.harness import Server, kind_of
from opsdk.errors import InvalidError
from opsdk.models import CustomResource, Model, codec_of

pytestmark = pytest.mark.anyio

DOCS = Path(__file__).parents[2] / "docs" / "crds.md"


def _kind(entries: Sequence[Case | Gap]) -> type[CustomResource[Any, Any]]:
    """One kind for all the tests, with an optional field for each entry."""
    fields: dict[str, Any] = {_field(index): (entry.type, None) for index, entry in enumerate(entries)}
    spec = create_model("Spec", __base__=Model, **fields)
    return kind_of(spec)


def _field(index: int) -> str:
    return f"f{index}"


CONSTRAINED = _kind(CASES)
LOOSE = _kind(NOT_EXPRESSIBLE)
STRICT = _kind(STRICTER)


def _refuses(kind: type[CustomResource[Any, Any]], field: str, value: Any) -> bool:
    """Whether the typed client could not read such an object."""
    try:
        kind.model_validate({"metadata": {"name": "x"}, "spec": {field: value}})
    except ValidationError:
        return True
    return False


def _named(entries: Sequence[Case | Gap]) -> list[Any]:
    return [pytest.param(index, id=entry.name) for index, entry in enumerate(entries)]


@pytest.mark.parametrize("index", _named(CASES))
async def test_the_server_takes_and_refuses_what_the_model_does(server: Server, index: int) -> None:
    case, field = CASES[index], _field(index)
    await server.install_once(CONSTRAINED)
    for value in case.taken:
        assert not _refuses(CONSTRAINED, field, value), f"the model refuses {value!r}"
        stored = await server.try_to_create(CONSTRAINED, {field: value})
        assert codec_of(CONSTRAINED).decode(server.encoded(stored)).metadata.name == "tried"
    for value in case.refused:
        assert _refuses(CONSTRAINED, field, value), f"the model takes {value!r}"
        with pytest.raises(InvalidError) as caught:
            await server.try_to_create(CONSTRAINED, {field: value})
        assert f"spec.{field}" in caught.value.server_message, value


@pytest.mark.parametrize("index", _named(NOT_EXPRESSIBLE))
async def test_what_no_schema_can_say_is_known(server: Server, index: int) -> None:
    gap, field = NOT_EXPRESSIBLE[index], _field(index)
    await server.install_once(LOOSE)
    assert _refuses(LOOSE, field, gap.value)
    stored = await server.try_to_create(LOOSE, {field: gap.value})
    assert _refuses(LOOSE, field, stored["spec"][field]) is not gap.pruned


@pytest.mark.parametrize("index", _named(STRICTER))
async def test_what_only_the_server_refuses_is_known(server: Server, index: int) -> None:
    case, field = STRICTER[index], _field(index)
    await server.install_once(STRICT)
    for value in case.refused:
        assert not _refuses(STRICT, field, value)
        with pytest.raises(InvalidError):
            await server.try_to_create(STRICT, {field: value})


def test_the_guide_lists_what_no_schema_can_say() -> None:
    text = DOCS.read_text(encoding="utf-8")
    missing = [gap.name for gap in NOT_EXPRESSIBLE if f"| {gap.name} |" not in text]
    assert missing == []
