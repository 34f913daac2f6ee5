"""Lightkube's structs inside pydantic models."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from lightkube.models.core_v1 import EnvVar, ResourceRequirements, Volume
from pydantic import ValidationError, create_model

from opsdk.errors import ResourceDefinitionError
from opsdk.models import K8s, K8sStruct, Model


class Spec(Model):
    resources: K8s[ResourceRequirements] | None = None
    env: list[K8s[EnvVar]] = []  # noqa: RUF012 - pydantic copies it
    by_name: dict[str, K8s[Volume]] = {}  # noqa: RUF012 - pydantic copies it


def test_structs_are_read_as_themselves_and_written_as_lightkube_spells_them() -> None:
    text = (
        '{"resources":{"limits":{"cpu":"1"}},"env":[{"name":"A","value":"b"}],'
        '"byName":{"v":{"name":"v","emptyDir":{"sizeLimit":"1Gi"}}}}'
    )
    spec = Spec.model_validate_json(text)
    assert spec.resources == ResourceRequirements(limits={"cpu": "1"})
    assert spec.env == [EnvVar(name="A", value="b")]
    assert json.loads(spec.model_dump_json()) == json.loads(text)


def test_a_struct_given_to_a_model_is_kept_as_it_is() -> None:
    resources = ResourceRequirements()
    assert Spec(resources=resources).resources is resources


def test_a_number_for_a_quantity_is_read_as_text() -> None:
    spec = Spec.model_validate({"by_name": {"v": {"name": "v", "emptyDir": {"sizeLimit": 3}}}})
    assert spec.by_name["v"].emptyDir is not None
    assert spec.by_name["v"].emptyDir.sizeLimit == "3"


def test_what_does_not_fit_the_struct_is_refused_with_its_place() -> None:
    with pytest.raises(ValidationError, match=r"Expected `str`, got `int` - at `\$\.name`"):
        Spec.model_validate({"env": [{"name": 1}]})


def test_a_model_with_structs_can_be_copied() -> None:
    spec = Spec(env=[EnvVar(name="A")])
    other = copy.deepcopy(spec)
    assert other == spec
    assert other.env[0] is not spec.env[0]


@pytest.mark.parametrize("annotation", [EnvVar, list[EnvVar], dict[str, list[EnvVar]], EnvVar | None])
def test_a_struct_without_the_annotation_is_refused_and_the_error_says_how_to_write_it(annotation: object) -> None:
    fields: dict[str, Any] = {"fine": (K8s[Volume] | None, None), "env": (annotation, ...)}
    with pytest.raises(ResourceDefinitionError, match=r"^Made\.env: EnvVar is a struct.* write K8s\[EnvVar\]"):
        create_model("Made", __base__=Model, **fields)


def test_the_annotation_on_anything_else_is_refused() -> None:
    with pytest.raises(TypeError, match=r"K8s.* is for msgspec structs"):
        create_model("Made", __base__=Model, count=(K8s[int], ...))


def test_annotations_are_equal() -> None:
    assert K8sStruct() == K8sStruct()
    assert len({K8sStruct(), K8sStruct()}) == 1
