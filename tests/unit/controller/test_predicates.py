"""Which changes pass which predicate."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lightkube.resources.core_v1 import ConfigMap

from opsdk.cache import Cached, Change, ObjectAdded, ObjectDeleted, ObjectModified, Store
from opsdk.controller import (
    Predicate,
    annotations_changed,
    changed,
    generation_changed,
    labels_changed,
    resource_changed,
)


def cached(**metadata: Any) -> Cached[ConfigMap]:
    document = {"metadata": {"name": "a", "namespace": "b", "uid": "u", "resourceVersion": "1"} | metadata}
    found = Store(ConfigMap).read(msgspec.json.encode(document))
    assert found is not None
    return found


BEFORE = cached(generation=1, labels={"x": "y"}, annotations={"p": "q"})
DIFFERENT: dict[str, Cached[ConfigMap]] = {
    "generation": cached(generation=2, labels={"x": "y"}, annotations={"p": "q"}),
    "deletion": cached(
        generation=1, labels={"x": "y"}, annotations={"p": "q"}, deletionTimestamp="2026-01-01T00:00:00Z"
    ),
    "labels": cached(generation=1, labels={"x": "z"}, annotations={"p": "q"}),
    "annotations": cached(generation=1, labels={"x": "y"}, annotations={"p": "r"}),
    "version": cached(generation=1, labels={"x": "y"}, annotations={"p": "q"}, resourceVersion="2"),
    "nothing": BEFORE,
}


@pytest.mark.parametrize(
    ("predicate", "passing"),
    [
        (generation_changed(), ("generation", "deletion")),
        (labels_changed(), ("labels",)),
        (annotations_changed(), ("annotations",)),
        (resource_changed(), ("version",)),
        (generation_changed() | labels_changed(), ("generation", "deletion", "labels")),
        (generation_changed() & labels_changed(), ()),
        (~labels_changed(), ("generation", "deletion", "annotations", "version", "nothing")),
    ],
    ids=repr,
)
def test_modifications_pass_by_what_changed(predicate: Predicate[ConfigMap], passing: tuple[str, ...]) -> None:
    found = {name for name, after in DIFFERENT.items() if predicate(ObjectModified(old=BEFORE, new=after))}
    assert found == set(passing)


@pytest.mark.parametrize(
    "predicate", [generation_changed(), labels_changed(), annotations_changed(), resource_changed()]
)
def test_objects_that_come_and_go_pass(predicate: Predicate[ConfigMap]) -> None:
    assert predicate(ObjectAdded(new=BEFORE))
    assert predicate(ObjectDeleted(old=BEFORE))


def test_predicates_of_the_users_own_see_the_object() -> None:
    def is_new(change: Change[ConfigMap]) -> bool:
        return isinstance(change, ObjectAdded) and not change.initial

    assert Predicate(is_new)(ObjectAdded(new=BEFORE))
    assert not Predicate(is_new)(ObjectAdded(new=BEFORE, initial=True))
    same_data: Predicate[ConfigMap] = changed(lambda old, new: old.decode() != new.decode())
    assert not same_data(ObjectModified(old=BEFORE, new=BEFORE))


@given(first=st.booleans(), second=st.booleans())
def test_combinations_are_those_of_logic(first: bool, second: bool) -> None:  # noqa: FBT001 - from hypothesis
    one, two = Predicate[ConfigMap](lambda _: first), Predicate[ConfigMap](lambda _: second)
    change = ObjectAdded(new=BEFORE)
    assert (one & two)(change) is (first and second)
    assert (one | two)(change) is (first or second)
    assert (~one)(change) is (not first)
    assert (~(one & two))(change) is (~one | ~two)(change)


def test_a_predicate_says_what_it_is() -> None:
    assert repr(generation_changed() | ~labels_changed()) == "<Predicate (generation_changed | ~labels_changed)>"
