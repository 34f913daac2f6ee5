"""Bytes and headers, indexes, and what a change of the store tells."""

from __future__ import annotations

import gc
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lightkube.resources.core_v1 import ConfigMap

from opsdk.cache import Change, Malformed, ObjectAdded, ObjectDeleted, ObjectModified, Store, selector_of
from opsdk.cache.header import read_document
from opsdk.errors import DecodeError, ObjectError
from opsdk.types import Json, Request


def document(name: str = "a", *, version: int = 1, uid: str = "", data: object = None, **metadata: Any) -> bytes:
    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": uid or f"uid-{name}",
                "resourceVersion": str(version),
                **metadata,
            },
            "data": data,
        }
    )


def put(store: Store[ConfigMap], raw: bytes) -> list[Change[ConfigMap]]:
    found = store.read(raw)
    assert found is not None
    return store.put(found)


A = Request("a", "default")


def test_managed_fields_are_cut_from_the_bytes_and_all_else_stays() -> None:
    managed: object = [{"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:data": {"f:k": None}}}]
    raw = document(managedFields=managed, data={"k": 'a "managedFields": [1] ü'}, labels={"x": "y"})
    header, rest = read_document(raw, kind="ConfigMap")
    expected = msgspec.json.decode(raw)
    del expected["metadata"]["managedFields"]
    assert msgspec.json.decode(rest) == expected
    assert header.labels == {"x": "y"}


MANAGED: Json = [{"manager": "kubectl", "operation": "Apply", "fieldsV1": {"f:data": {}}}]


METADATA: list[dict[str, Json]] = [
    {"name": "a", "managedFields": MANAGED},
    {"managedFields": MANAGED, "name": "a"},
    {"name": "a", "managedFields": MANAGED, "labels": {"x": 'a "quoted" \\ ü'}},
    {"name": "a", "managedFields": MANAGED, "labels": None},
    {"name": "a", "managedFields": []},
    {"name": "a", "managedFields": None},
    {"name": "a"},
]
BEFORE: list[dict[str, Json]] = [{}, {"data": {"metadata": {"managedFields": MANAGED}}}, {"text": '"managedFields":[]'}]


@pytest.mark.parametrize("metadata", METADATA)
@pytest.mark.parametrize(
    "before", [{}, {"data": {"metadata": {"managedFields": MANAGED}}}, {"text": '"managedFields":[]'}]
)
@pytest.mark.parametrize("keep", [None, "opsdk", "kubectl", "ku<bectl"])
@pytest.mark.parametrize("spaces", [0, 1])
def test_only_the_objects_own_managed_fields_are_cut_however_it_is_written(
    metadata: dict[str, Json], before: dict[str, Json], keep: str | None, spaces: int
) -> None:
    raw = msgspec.json.format(msgspec.json.encode({**before, "metadata": metadata, "spec": before}), indent=spaces - 1)
    _, rest = read_document(raw, kind="X", keep_manager=keep)
    kept = MANAGED if keep == "kubectl" and metadata.get("managedFields") == MANAGED else None
    expected = {name: value for name, value in metadata.items() if name != "managedFields"}
    if kept is not None:
        expected["managedFields"] = kept
    found = msgspec.json.decode(rest)
    assert {"managedFields": None, **expected} == {"managedFields": None, **found.pop("metadata")}
    assert found == {**before, "spec": before}


def test_a_header_keeps_nothing_of_the_page_that_it_was_in() -> None:
    page = bytearray(document(labels={"x": "y"}, managedFields=MANAGED))
    read_document(bytes(page), kind="ConfigMap")
    header, rest = read_document(memoryview(page).tobytes(), kind="ConfigMap")
    assert not any(isinstance(value, msgspec.Raw) for value in msgspec.structs.astuple(header))
    assert len(rest) < len(page)


def test_our_own_apply_entry_may_stay() -> None:
    ours: object = {"manager": "opsdk", "operation": "Apply", "fieldsV1": {"f:data": {}}}
    others = [{"manager": "opsdk", "operation": "Update"}, {"manager": "kubectl", "operation": "Apply"}]
    _, rest = read_document(document(managedFields=[*others, ours]), kind="ConfigMap", keep_manager="opsdk")
    assert msgspec.json.decode(rest)["metadata"]["managedFields"] == [ours]


def test_a_header_has_what_queues_and_indexes_need() -> None:
    header, _ = read_document(
        document(
            version=7,
            generation=3,
            deletionTimestamp="2026-01-01T00:00:00Z",
            ownerReferences=[
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "1"},
                {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "2", "controller": True},
            ],
        ),
        kind="ConfigMap",
    )
    assert (header.request, header.order, header.generation, header.deleting) == (A, 7, 3, True)
    assert header.controller is not None
    assert (header.controller.name, header.controller.group) == ("p", "")
    assert [owner.group for owner in header.owners] == ["apps", ""]


def test_nulls_are_as_good_as_nothing() -> None:
    header, _ = read_document(
        document(labels=None, ownerReferences=None, generation=None, deletionTimestamp=None), kind="ConfigMap"
    )
    assert (header.labels, header.owners, header.generation, header.deleting) == ({}, (), 0, False)


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{}", b'{"metadata":{}}', b'{"metadata":{"name":1}}', document(labels={"x": 1})]
)
def test_metadata_that_cannot_be_read_is_a_report_and_not_a_crash(raw: bytes) -> None:
    reports: list[Malformed] = []
    assert Store(ConfigMap, malformed=reports.append).read(raw) is None
    (report,) = reports
    assert report.header is None
    assert report.error.kind == "ConfigMap"


def test_each_read_hands_out_an_object_of_its_own() -> None:
    store = Store(ConfigMap)
    put(store, document(data={"k": "v"}))
    first, second = store.get(A), store.get(A)
    assert first is not None
    assert first is not second
    first.immutable = True
    third = store.get(A)
    assert third is not None
    assert third.immutable is None


def test_changes_tell_what_came_changed_and_went() -> None:
    store = Store(ConfigMap)
    (added,) = put(store, document(version=1))
    assert isinstance(added, ObjectAdded)
    assert put(store, document(version=1)) == []  # seen already
    (modified,) = put(store, document(version=2))
    assert isinstance(modified, ObjectModified)
    assert (modified.old.header.order, modified.new.header.order) == (1, 2)
    assert put(store, document(version=1)) == []  # overtaken
    last = store.read(document(version=3))
    assert last is not None
    (deleted,) = store.discard(last)
    assert isinstance(deleted, ObjectDeleted)
    assert deleted.old.header.order == 3
    assert store.discard(last) == []
    assert len(store) == 0


def test_an_object_made_anew_under_a_name_is_a_deletion_and_an_addition() -> None:
    store = Store(ConfigMap)
    put(store, document(version=1, uid="first"))
    gone, came = put(store, document(version=5, uid="second"))
    assert isinstance(gone, ObjectDeleted)
    assert gone.old.header.uid == "first"
    assert isinstance(came, ObjectAdded)
    stale = store.read(document(version=4, uid="first"))
    assert stale is not None
    assert store.discard(stale) == []  # the deletion of the first one does not take the second


def test_objects_are_found_by_namespace_label_uid_owner_and_declared_index() -> None:
    store = Store(ConfigMap)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "owner"}
    put(store, document("a", labels={"x": "1"}, ownerReferences=[owner]))
    put(store, document("b", labels={"x": "2"}))
    put(store, document("c", namespace="other", labels={"x": "1"}))
    store.add_index("first label", lambda cached: cached.header.labels.values())

    def names(found: Any) -> list[str]:
        return sorted(cached.header.name for cached in found)

    assert names(store.select()) == ["a", "b", "c"]
    assert names(store.select(namespace="default")) == ["a", "b"]
    for labels in ("x=1", {"x": "1"}, selector_of("x=1")):
        assert names(store.select(labels=labels)) == ["a", "c"]
    with pytest.raises(ObjectError, match="selector"):
        store.select(labels="x in")
    assert names(store.select(namespace="nowhere")) == []
    assert names(store.owned_by("owner")) == ["a"]
    assert names(store.by_index("first label", "1")) == ["a", "c"]
    found = store.by_uid("uid-b")
    assert found is not None
    assert found.header.name == "b"
    with pytest.raises(LookupError, match="no index"):
        store.by_index("second label", "1")
    with pytest.raises(ValueError, match="already"):
        store.add_index("first label", lambda _: [])


def test_an_index_function_that_raises_costs_its_object_the_index_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Store(ConfigMap)
    store.add_index("label", lambda cached: [cached.header.labels["x"]])
    put(store, document("a"))
    put(store, document("b", labels={"x": "1"}))
    assert [cached.header.name for cached in store.by_index("label", "1")] == ["b"]
    assert len(store) == 2
    (record,) = caplog.records
    assert "default/a" in record.getMessage()


def test_what_a_list_shows_is_believed_even_if_it_is_older() -> None:
    store = Store(ConfigMap)
    put(store, document(version=9))
    restored = store.read(document(version=5))
    assert restored is not None
    (change,) = store.put(restored, listed=True)
    assert isinstance(change, ObjectModified)
    assert change.new.header.order == 5


def test_what_the_last_list_did_not_show_is_taken_out_at_its_end_and_nothing_else() -> None:
    store = Store(ConfigMap)
    for name in "abcd":
        put(store, document(name, version=1))
    store.list_started()
    for name in "ab":  # this one broke
        cached = store.read(document(name, version=1))
        assert cached is not None
        store.put(cached, listed=True)
    store.list_started()
    for name, version in (("b", 1), ("c", 2), ("e", 3)):
        cached = store.read(document(name, version=version))
        assert cached is not None
        store.put(cached, listed=True)
    assert {change.old.header.name for change in store.discard_unlisted() if isinstance(change, ObjectDeleted)} == {
        "a",
        "d",
    }
    assert {cached.header.name for cached in store.select()} == {"b", "c", "e"}
    assert store.discard_unlisted() == []


def test_w10_what_does_not_fit_is_reported_once_per_version_and_all_else_is_served() -> None:
    reports: list[Malformed] = []
    store = Store(ConfigMap, malformed=reports.append)
    put(store, document("good", data={"k": "v"}))
    put(store, document("bad", data=["k"]))
    for _ in range(3):
        assert [found.metadata.name for found in store.decode_all(store.select()) if found.metadata] == ["good"]
        with pytest.raises(DecodeError, match="bad"):
            store.get(Request("bad", "default"))
    (report,) = reports
    assert report.header is not None
    assert (report.header.name, report.error.field) == ("bad", "data")
    put(store, document("bad", version=2, data=["l"]))
    store.decode_all(store.select())
    assert len(reports) == 2


def test_bytes_and_headers_are_not_tracked_by_the_collector() -> None:
    store = Store(ConfigMap)
    put(store, document("first"))
    gc.collect()
    before = len(gc.get_objects())
    for number in range(1_000):
        put(store, document(f"n{number}", labels={"x": "y"}))
    gc.collect()
    assert len(gc.get_objects()) - before < 100
    assert len(store) == 1_001


# The store against a model: a dict, and indexes rebuilt from it.
# After any history, it has what the dict has, each index finds what a scan finds, and the changes, applied one by one
# to an empty dict, give the same.


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "discard"]),
            st.sampled_from("abc"),
            st.sampled_from("12"),
            st.sampled_from(["o1", "o2", ""]),
        ),
        max_size=30,
    )
)
def test_the_store_agrees_with_a_dict_and_its_changes_tell_the_whole_story(
    history: list[tuple[str, str, str, str]],
) -> None:
    store = Store(ConfigMap)
    model: dict[str, tuple[str, str]] = {}
    told: dict[str, str] = {}
    for version, (what, name, incarnation, owner) in enumerate(history, start=1):
        uid = f"{name}-{incarnation}"
        owners = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner}] if owner else []
        cached = store.read(document(name, version=version, uid=uid, ownerReferences=owners))
        assert cached is not None
        if what == "put":
            changes = store.put(cached)
            model[name] = (uid, owner)
        else:
            changes = store.discard(cached)
            if name in model and model[name][0] == uid:
                del model[name]
        for change in changes:
            match change:
                case ObjectAdded(new=new):
                    assert new.header.name not in told
                    told[new.header.name] = new.header.uid
                case ObjectModified(old=old, new=new):
                    assert told[old.header.name] == new.header.uid
                case ObjectDeleted(old=old):
                    assert told.pop(old.header.name) == old.header.uid
    assert told == {name: uid for name, (uid, _) in model.items()}
    assert {cached.header.name for cached in store.select()} == set(model)
    for owner in ("o1", "o2"):
        assert {cached.header.name for cached in store.owned_by(owner)} == {
            name for name, (_, of) in model.items() if of == owner
        }
    for name, (uid, _) in model.items():
        found = store.by_uid(uid)
        assert found is not None
        assert found.header.name == name
    assert all(store.by_uid(f"{name}-{uid}") is None for name in "abc" for uid in "12" if name not in model)
