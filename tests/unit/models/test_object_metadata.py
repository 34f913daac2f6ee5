"""Short ways to an object's metadata."""

from __future__ import annotations

import pytest
from lightkube.generic_resource import create_namespaced_resource  # pyright: ignore[reportUnknownVariableType] - untyped `verbs`
from lightkube.models.meta_v1 import ObjectMeta, OwnerReference
from lightkube.resources.core_v1 import ConfigMap, Namespace

from opsdk.errors import ObjectError
from opsdk.models import codec_of, metadata_of, name_of, owner_reference_to, request_of, view_of
from opsdk.types import Request

Crontab = create_namespaced_resource("metadata.example.com", "v1", "Crontab", "crontabs")


def test_metadata_is_the_objects_own() -> None:
    config_map = ConfigMap(metadata=ObjectMeta(name="c"))
    assert metadata_of(config_map) is config_map.metadata


def test_an_object_without_metadata_is_refused() -> None:
    with pytest.raises(ObjectError, match="ConfigMap has no metadata"):
        metadata_of(ConfigMap())


def test_changes_to_a_generic_resources_metadata_stick() -> None:
    crontab = codec_of(Crontab).decode(b'{"metadata":{"name":"c"}}')
    metadata_of(crontab).labels = {"a": "b"}
    assert view_of(crontab).labels == {"a": "b"}
    assert b'"metadata":{"labels":{"a":"b"},"name":"c"}' in codec_of(Crontab).encode(crontab)


def test_a_view_is_typed() -> None:
    labels = view_of(ConfigMap(metadata=ObjectMeta(name="c", labels={"a": "b"}))).labels
    assert labels == {"a": "b"}


def test_a_request_names_the_object() -> None:
    assert request_of(ConfigMap(metadata=ObjectMeta(name="c", namespace="n"))) == Request("c", "n")
    assert request_of(Namespace(metadata=ObjectMeta(name="n"))) == Request("n")
    assert name_of(Namespace(metadata=ObjectMeta(name="n"))) == "n"


def test_an_object_without_a_name_is_refused() -> None:
    with pytest.raises(ObjectError, match="ConfigMap has no name"):
        request_of(ConfigMap(metadata=ObjectMeta(generateName="c-")))


def test_an_owner_reference_is_the_controllers_and_blocks_deletion_unless_told_otherwise() -> None:
    owner = ConfigMap(metadata=ObjectMeta(name="c", uid="u"))
    assert owner_reference_to(owner) == OwnerReference(
        apiVersion="v1", kind="ConfigMap", name="c", uid="u", controller=True, blockOwnerDeletion=True
    )
    plain = owner_reference_to(owner, controller=False, block=False)
    assert (plain.controller, plain.blockOwnerDeletion) == (False, False)


def test_an_owner_that_was_never_stored_is_refused() -> None:
    with pytest.raises(ObjectError, match="ConfigMap c has no uid"):
        owner_reference_to(ConfigMap(metadata=ObjectMeta(name="c")))
