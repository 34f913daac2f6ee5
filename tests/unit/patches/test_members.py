"""Documents by their members."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsdk.patches import (
    apply_merge_patch,
    decoded,
    differing,
    members_of,
    merge_difference,
    overlay,
    overlay_difference,
    same,
)
from opsdk.types import Json, JsonObject

_LEAVES: st.SearchStrategy[Json] = st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["", "a", "b"])
_VALUES: st.SearchStrategy[Json] = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "x", "y"]), inner, max_size=3),
    max_leaves=8,
)
_DOCUMENTS: st.SearchStrategy[dict[str, Json]] = st.dictionaries(
    st.sampled_from(["metadata", "spec", "status"]), _VALUES, max_size=3
)


def without_nulls(value: Json) -> Json:
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    return value


@given(_DOCUMENTS, _DOCUMENTS)
def test_all_members_that_are_not_told_to_differ_are_the_same(one: JsonObject, other: JsonObject) -> None:
    names = differing(members_of(msgspec.json.encode(one)), members_of(msgspec.json.encode(other)))
    for name in {*one, *other}.difference(names):
        assert name in one
        assert name in other
        assert same(one[name], other[name])


@given(_DOCUMENTS, st.sets(st.sampled_from(["metadata", "spec", "absent"])))
def test_members_are_decoded_as_they_stand(document: JsonObject, names: set[str]) -> None:
    found = decoded(members_of(msgspec.json.encode(document)), names)
    assert same(found, {name: value for name, value in document.items() if name in names})


@pytest.mark.parametrize("raw", [b"[]", b"1", b'{"a":', b""])
def test_what_is_no_object_has_no_members(raw: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        members_of(raw)


@given(_DOCUMENTS, _DOCUMENTS, _DOCUMENTS, st.booleans())
def test_the_patch_of_an_overlay_makes_the_overlay(
    document: JsonObject,
    before: JsonObject,
    after: JsonObject,
    known: bool,  # noqa: FBT001 - hypothesis passes it
) -> None:
    stored = msgspec.json.decode(msgspec.json.encode(before)) if known else document
    patch = overlay_difference(stored, before, after)
    laid = overlay(stored, before, after)
    assert same(
        without_nulls(apply_merge_patch(stored, patch)),
        without_nulls(apply_merge_patch(stored, merge_difference(stored, laid))),
    )
    if known:
        assert same(without_nulls(apply_merge_patch(stored, patch)), without_nulls(laid))
