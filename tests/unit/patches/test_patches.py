"""The invariants of differences, and the edges that have hurt."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import cast

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsdk.patches import (
    JsonPatchError,
    apply_json_patch,
    apply_merge_patch,
    describe_difference,
    json_difference,
    merge_difference,
    overlay,
    same,
)
from opsdk.types import Json, JsonObject

MEMBERS = st.sampled_from(["a", "b", "c", "d/e", "f~g", "name", "type", ""])
LEAVES: st.SearchStrategy[Json] = st.one_of(
    st.booleans(), st.integers(-2, 2), st.sampled_from(["", "x", "y", "1"]), st.sampled_from([0.5, 1.0])
)
NULLABLE = st.one_of(LEAVES, st.none())


def named(name: str, value: Json) -> dict[str, Json]:
    return {"name": name, "v": value}


def values(leaves: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    def grow(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
        either: st.SearchStrategy[Json] = st.one_of(
            st.dictionaries(MEMBERS, inner, max_size=4),
            st.lists(inner, max_size=4),
            st.lists(st.builds(named, st.sampled_from("xyz"), inner), max_size=4),
        )
        return either

    return st.recursive(leaves, grow, max_leaves=12)


def documents(leaves: st.SearchStrategy[Json]) -> st.SearchStrategy[dict[str, Json]]:
    return st.dictionaries(MEMBERS, values(leaves), max_size=4)


def with_unknown_fields(value: Json, count: int = 0) -> Json:
    """What the server might store where a model sees `value`: the same, and a field the model does not know."""
    if isinstance(value, Mapping):
        return {**{k: with_unknown_fields(v, count + 1) for k, v in value.items()}, "unknown": count}
    if isinstance(value, list):
        return [with_unknown_fields(item, count + 1) for item in value]
    return value


def without_unknown_fields(value: Json) -> Json:
    if isinstance(value, Mapping):
        return {k: without_unknown_fields(v) for k, v in value.items() if k != "unknown"}
    if isinstance(value, list):
        return [without_unknown_fields(item) for item in value]
    return value


def without_null_members(value: Json) -> Json:
    if isinstance(value, Mapping):
        return {k: without_null_members(v) for k, v in value.items() if v is not None}
    return value


def as_object(value: Json) -> JsonObject:
    assert isinstance(value, Mapping)
    return value


@given(documents(LEAVES), documents(LEAVES))
def test_a_merge_difference_applied_to_before_gives_after(before: JsonObject, after: JsonObject) -> None:
    assert same(apply_merge_patch(before, merge_difference(before, after)), after)


@given(documents(NULLABLE), documents(NULLABLE))
def test_a_merge_difference_sees_no_difference_between_null_and_nothing(before: JsonObject, after: JsonObject) -> None:
    given_after = apply_merge_patch(before, merge_difference(before, after))
    assert same(without_null_members(given_after), without_null_members(after))


@given(documents(NULLABLE))
def test_no_difference_is_an_empty_patch(document: JsonObject) -> None:
    twin = copy.deepcopy(document)
    assert merge_difference(document, twin) == {}
    assert json_difference(document, twin) == []
    assert describe_difference(document, twin) == []
    assert same(overlay(document, twin, twin), document)


@given(documents(NULLABLE), documents(NULLABLE))
def test_a_json_difference_applied_to_before_gives_after(before: JsonObject, after: JsonObject) -> None:
    operations = json_difference(before, after)
    assert same(apply_json_patch(before, operations), after)
    theirs = cast("Json", jsonpatch.JsonPatch([dict(one) for one in operations]).apply(copy.deepcopy(before)))
    assert same(theirs, after), "another implementation of RFC 6902 reads it the same way"


@given(documents(NULLABLE), documents(NULLABLE))
def test_a_difference_changes_none_of_its_arguments(before: JsonObject, after: JsonObject) -> None:
    kept = copy.deepcopy((before, after))
    operations = json_difference(before, after)
    apply_json_patch(before, operations)
    apply_merge_patch(before, merge_difference(before, after))
    overlay(before, before, after)
    assert (before, after) == kept


@given(documents(NULLABLE), documents(NULLABLE))
def test_laid_over_itself_the_difference_gives_after(before: JsonObject, after: JsonObject) -> None:
    assert same(overlay(before, before, after), after)


@given(documents(NULLABLE), documents(NULLABLE))
def test_an_overlay_gives_after_in_what_the_model_knows(before: JsonObject, after: JsonObject) -> None:
    document = as_object(with_unknown_fields(before))
    assert same(without_unknown_fields(overlay(document, before, after)), after)


@given(documents(NULLABLE), MEMBERS, LEAVES)
def test_an_overlay_keeps_every_unknown_field_outside_of_what_changed(
    before: JsonObject, member: str, value: Json
) -> None:
    document = as_object(with_unknown_fields(before))
    result = overlay(document, before, {**before, member: value})
    assert same({k: v for k, v in result.items() if k != member}, {k: v for k, v in document.items() if k != member})


@given(
    st.lists(st.sampled_from("abcdef"), unique=True), st.lists(st.sampled_from("abcdef"), unique=True), st.integers()
)
def test_an_overlay_keeps_unknown_fields_of_every_named_item_that_stays(
    old: Sequence[str], new: Sequence[str], image: int
) -> None:
    before: JsonObject = {"items": [{"name": name, "image": 0} for name in old]}
    after: JsonObject = {"items": [{"name": name, "image": image} for name in new]}
    document: JsonObject = {"items": [{"name": name, "image": 0, "secretOf": name} for name in old]}
    assert overlay(document, before, after) == {
        "items": [
            {"name": name, "image": image, "secretOf": name} if name in old else {"name": name, "image": image}
            for name in new
        ]
    }


def test_unchanged_values_keep_the_spelling_of_the_document() -> None:
    document: JsonObject = {"limits": {"cpu": "1000m"}, "at": "2026-01-01T00:00:00.000000Z", "n": 1}
    before: JsonObject = {"limits": {"cpu": "1"}, "at": "2026-01-01T00:00:00Z", "n": 1, "defaulted": True}
    assert overlay(document, before, {**before, "n": 2}) == {**document, "n": 2}


def test_items_without_a_name_keep_their_unknown_fields_when_one_is_added_in_front() -> None:
    before: JsonObject = {"rules": [{"verbs": ["get"]}, {"verbs": ["list"]}]}
    after: JsonObject = {"rules": [{"verbs": ["watch"]}, {"verbs": ["get"]}, {"verbs": ["list"]}]}
    document: JsonObject = {"rules": [{"verbs": ["get"], "x": 1}, {"verbs": ["list"], "x": 2}]}
    assert overlay(document, before, after) == {
        "rules": [{"verbs": ["watch"]}, {"verbs": ["get"], "x": 1}, {"verbs": ["list"], "x": 2}]
    }


def test_a_service_port_that_is_renamed_is_the_same_port() -> None:
    before: JsonObject = {"ports": [{"name": "web", "port": 80}]}
    after: JsonObject = {"ports": [{"name": "http", "port": 80}]}
    document: JsonObject = {"ports": [{"name": "web", "port": 80, "appProtocol": "h2c"}]}
    assert overlay(document, before, after) == {"ports": [{"name": "http", "port": 80, "appProtocol": "h2c"}]}


def test_one_port_number_in_two_protocols_is_two_ports() -> None:
    before: JsonObject = {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53}]}
    after: JsonObject = {"ports": [{"port": 53}, {"port": 53, "protocol": "UDP", "nodePort": 1}]}
    document: JsonObject = {"ports": [{"port": 53, "protocol": "UDP", "x": "udp"}, {"port": 53, "x": "tcp"}]}
    assert overlay(document, before, after) == {
        "ports": [{"port": 53, "x": "tcp"}, {"port": 53, "protocol": "UDP", "nodePort": 1, "x": "udp"}]
    }


def test_items_that_neither_view_has_survive() -> None:
    document: JsonObject = {"conditions": [{"type": "Ready", "status": "False"}, {"type": "Theirs", "status": "True"}]}
    before: JsonObject = {"conditions": [{"type": "Ready", "status": "False"}]}
    after: JsonObject = {"conditions": [{"type": "Ready", "status": "True"}]}
    assert overlay(document, before, after) == {
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "Theirs", "status": "True"}]
    }


def test_true_is_not_one() -> None:
    assert merge_difference({"a": {"b": True}}, {"a": {"b": 1}}) == {"a": {"b": 1}}
    assert merge_difference({"a": [True]}, {"a": [1]}) == {"a": [1]}
    assert merge_difference({"a": 1}, {"a": 1.0}) == {}


def test_a_change_in_a_list_item_tests_the_item_first() -> None:
    before: JsonObject = {"spec": {"containers": [{"name": "web", "image": "a"}, {"name": "log", "image": "b"}]}}
    after: JsonObject = {"spec": {"containers": [{"name": "web", "image": "a"}, {"name": "log", "image": "c"}]}}
    operations = json_difference(before, after)
    assert operations == [
        {"op": "test", "path": "/spec/containers/1/name", "value": "log"},
        {"op": "replace", "path": "/spec/containers/1/image", "value": "c"},
    ]
    moved: JsonObject = {"spec": {"containers": [{"name": "log", "image": "b"}, {"name": "web", "image": "a"}]}}
    with pytest.raises(JsonPatchError, match="the test failed") as caught:
        apply_json_patch(moved, operations)
    assert (caught.value.operation, caught.value.path) == (0, "/spec/containers/1/name")


def test_o04_a_finalizer_is_removed_by_a_patch_that_tests_it() -> None:
    operations = json_difference({"finalizers": ["theirs", "ours"]}, {"finalizers": ["theirs"]})
    assert operations == [
        {"op": "test", "path": "/finalizers/1", "value": "ours"},
        {"op": "remove", "path": "/finalizers/1"},
    ]


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        ({"op": "remove", "path": "/b"}, "there is no 'b'"),
        ({"op": "replace", "path": "/b", "value": 1}, "there is no 'b'"),
        ({"op": "add", "path": "/b/c", "value": 1}, "there is no 'b'"),
        ({"op": "add", "path": "/list/3", "value": 1}, "has 2 items"),
        ({"op": "replace", "path": "/list/-", "value": 1}, "no index"),
        ({"op": "remove", "path": "/list/01"}, "no index"),
        ({"op": "add", "path": "/a/b", "value": 1}, "neither object nor list"),
        ({"op": "add", "path": "a", "value": 1}, "starts with /"),
        ({"op": "add", "path": "/a"}, "needs a value"),
        ({"op": "move", "path": "/a"}, "needs a from"),
        ({"op": "move", "from": "/obj", "path": "/obj/x"}, "into itself"),
        ({"op": "copy", "from": "/zz", "path": "/a"}, "there is no 'zz'"),
        ({"op": "test", "path": "/a", "value": True}, "the test failed"),
        ({"op": "frobnicate", "path": "/a"}, "unknown operation"),
        ({"op": "remove"}, "it has no path"),
    ],
)
def test_an_operation_that_cannot_be_applied_is_refused_with_its_place(operation: JsonObject, why: str) -> None:
    with pytest.raises(JsonPatchError, match=why) as caught:
        apply_json_patch({"a": 1, "list": [1, 2], "obj": {}}, [{"op": "test", "path": "/a", "value": 1}, operation])
    assert caught.value.operation == 1


def test_moves_and_copies_work() -> None:
    document: JsonObject = {"a": {"b": 1}, "list": [1, 2]}
    assert apply_json_patch(document, [{"op": "move", "from": "/a/b", "path": "/c"}]) == {
        "a": {},
        "list": [1, 2],
        "c": 1,
    }
    assert apply_json_patch(document, [{"op": "copy", "from": "/list/0", "path": "/list/-"}]) == {
        "a": {"b": 1},
        "list": [1, 2, 1],
    }
    assert apply_json_patch(document, [{"op": "replace", "path": "", "value": {"x": 1}}]) == {"x": 1}


def test_a_difference_reads_as_lines() -> None:
    before: JsonObject = {
        "spec": {"replicas": 1, "containers": [{"name": "web", "image": "a"}, {"name": "old"}], "args": ["x", "y"]},
        "gone": True,
    }
    after: JsonObject = {
        "spec": {"replicas": 2, "containers": [{"name": "web", "image": "b"}], "args": ["x", "z"]},
        "new": {"k": "v" * 100},
    }
    assert describe_difference(before, after) == [
        "spec.replicas: 1 -> 2",
        'spec.containers[web].image: "a" -> "b"',
        'spec.containers[old]: {"name": "old"} -> (none)',
        'spec.args[1]: "y" -> "z"',
        "gone: true -> (none)",
        'new: (none) -> {"k": "' + "v" * 72 + "…",
    ]


def test_t2_of_a_list_that_grows_only_what_was_appended_is_shown() -> None:
    history: list[Json] = [{"to": name, "reason": "x" * 100} for name in "abcd"]
    assert describe_difference({"history": history}, {"history": [*history, {"to": "e"}]}) == [
        'history[4]: (none) -> {"to": "e"}'
    ]
    assert describe_difference({"history": history[:2]}, {"history": [history[1], {"to": "e"}, {"to": "f"}]}) == [
        'history[0]: {"to": "a", "reason": "' + "x" * 56 + "… -> (none)",
        'history[1]: (none) -> {"to": "e"}',
        'history[2]: (none) -> {"to": "f"}',
    ]
    full: list[Json] = [{"to": name} for name in "abcd"]
    assert describe_difference({"history": full}, {"history": [*full[1:], {"to": "e"}]}) == [
        'history[0]: {"to": "a"} -> (none)',
        'history[3]: (none) -> {"to": "e"}',
    ]
    assert describe_difference({"args": ["x", "y"]}, {"args": ["z", "y"]}) == ['args[0]: "x" -> "z"']
    assert describe_difference({"args": ["x", "y"]}, {"args": ["y", "x", "y"]}) == [
        'args[0]: "x" -> (none)',
        'args[1]: (none) -> "x"',
        'args[2]: (none) -> "y"',
    ]
    assert describe_difference({"args": ["x", "y"]}, {"args": ["z"]}) == ['args: ["x", "y"] -> ["z"]']


def test_the_values_of_a_secret_are_never_shown() -> None:
    before: JsonObject = {"kind": "Secret", "data": {"password": "aHVudGVyMg=="}, "stringData": {"x": "hunter2"}}
    after: JsonObject = {
        "kind": "Secret",
        "data": {"password": "aHVudGVyMw==", "more": "aHVudGVyNA=="},
        "metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "hunter5"}},
    }
    lines = describe_difference(before, after)
    assert len(lines) == 4
    assert not any("hunter" in line or "aHVud" in line for line in lines)
    assert lines[0] == "data.password: (hidden) -> (hidden)"


def test_a_hook_can_hide_more() -> None:
    lines = describe_difference(
        {"spec": {"token": "s3cret", "n": 1}},
        {"spec": {"token": "s4cret", "n": 2}, "status": {"token": "s5cret"}},
        redact=lambda path: path[-1] == "token",
    )
    assert lines == [
        "spec.token: (hidden) -> (hidden)",
        "spec.n: 1 -> 2",
        'status: (none) -> {"token": "(hidden)"}',
    ]
