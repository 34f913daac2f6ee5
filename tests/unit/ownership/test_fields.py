"""What a field manager owns, read from managedFields."""

from __future__ import annotations

import pytest
from lightkube.models.meta_v1 import ManagedFieldsEntry, ObjectMeta

from opsdk.ownership._fields import applied_fields, unwanted
from opsdk.types import JsonObject

FIELDS: JsonObject = {
    "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
    "f:spec": {
        "f:replicas": {},
        "f:ports": {'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}, "f:targetPort": {}}},
        "f:finalizers": {'v:"a.b/c"': {}},
    },
}
WANTED: JsonObject = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"replicas": 2, "ports": [{"port": 80, "targetPort": 8080}], "finalizers": ["a.b/c"]},
}


def owns_unwanted(fields: JsonObject, desired: JsonObject) -> bool:
    return any(unwanted(fields, desired))


def entry(manager: str, operation: str, subresource: str | None = None) -> ManagedFieldsEntry:
    return ManagedFieldsEntry(
        manager=manager, operation=operation, subresource=subresource, fieldsV1={"f:spec": {f"f:{manager}": {}}}
    )


def test_only_what_the_manager_applied_counts() -> None:
    metadata = ObjectMeta(
        managedFields=[
            entry("us", "Update"),
            entry("us", "Apply", "status"),
            entry("them", "Apply"),
            entry("us", "Apply"),
        ]
    )
    assert applied_fields(metadata, "us") == {"f:spec": {"f:us": {}}}
    assert applied_fields(metadata, "nobody") is None
    assert applied_fields(ObjectMeta(), "us") is None


def test_fields_that_are_all_wanted_are_no_reason_to_apply() -> None:
    assert not owns_unwanted(FIELDS, WANTED)


@pytest.mark.parametrize(
    "spec",
    [
        {"ports": [{"port": 80, "targetPort": 8080}], "finalizers": ["a.b/c"]},
        {"replicas": 2, "ports": [{"port": 80}], "finalizers": ["a.b/c"]},
        {"replicas": 2, "ports": [{"port": 81, "targetPort": 8080}], "finalizers": ["a.b/c"]},
        {"replicas": 2, "ports": [{"port": 80, "targetPort": 8080, "protocol": "UDP"}], "finalizers": ["a.b/c"]},
        {"replicas": 2, "ports": [{"port": 80, "targetPort": 8080}], "finalizers": []},
        {"replicas": 2, "ports": {}, "finalizers": ["a.b/c"]},
    ],
)
def test_an_owned_field_that_is_no_longer_wanted_is_noticed(spec: JsonObject) -> None:
    assert owns_unwanted(FIELDS, {**WANTED, "spec": spec})


def test_of_several_items_that_fit_the_one_with_all_its_keys_is_taken() -> None:
    fields: JsonObject = {"f:ports": {'k:{"port":53,"protocol":"UDP"}': {"f:name": {}}}}
    assert not owns_unwanted(fields, {"ports": [{"port": 53}, {"port": 53, "protocol": "UDP", "name": "dns"}]})


def test_items_of_lists_without_keys_are_found_by_their_place() -> None:
    assert not owns_unwanted({"f:args": {"i:0": {}}}, {"args": ["x"]})
    assert owns_unwanted({"f:args": {"i:1": {}}}, {"args": ["x"]})
