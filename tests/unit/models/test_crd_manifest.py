"""CRD manifests from models."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
import yaml
from lightkube.core.resource import ApiInfo, NamespacedResourceG, ResourceDef
from lightkube.core.schema import DictMixin
from lightkube.generic_resource import create_namespaced_resource  # pyright: ignore[reportUnknownVariableType] - untyped `verbs`
from lightkube.models.meta_v1 import ObjectMeta
from pydantic import Field

from opsdk.errors import CrdSchemaError, ResourceDefinitionError
from opsdk.models import (
    Cel,
    Conditions,
    CustomResource,
    MachineStatus,
    MachineStatusStruct,
    Model,
    PrintColumn,
    Scale,
    crd_manifest,
    crd_yaml,
)
from opsdk.protocols import KubeObject
from opsdk.testing.apiserver._schema_crd import default_crd, validate_crd

GROUP = "demo.example.com"


class WidgetSpec(Model):
    replicas: int = Field(default=1, ge=0)
    tier: str = "web"


class WidgetStatus(MachineStatus):
    replicas: int = 0
    selector: str = ""


class RoleStatus(Model):
    conditions: Conditions = []  # noqa: RUF012 - pydantic copies it


class Widget(
    CustomResource[WidgetSpec, WidgetStatus],
    group=GROUP,
    version="v1",
    short_names=["wd"],
    categories=["all"],
    scale=Scale(label_selector=".status.selector"),
    rules=[Cel("self.metadata.name.size() < 30", message="the name is too long")],
    selectable_fields=[".spec.tier"],
):
    """A web front end.

    It follows its spec.
    """


class Role(CustomResource[WidgetSpec, RoleStatus], group=GROUP, version="v1", scope="Cluster"):
    pass


class Plain(CustomResource[WidgetSpec], group=GROUP, version="v1", plural="plain", singular="plainthing"):
    pass


class OldWidget(
    CustomResource[WidgetSpec, WidgetStatus],
    group=GROUP,
    version="v1beta1",
    kind="Widget",
    deprecated="use v1",
    storage=False,
    print_columns=[PrintColumn(name="Tier", json_path=".spec.tier", description="Which.", priority=1, format="byte")],
):
    pass


class StructSpec(DictMixin, rename="camel"):
    replicas: int
    run_as: str | None = None


class StructWidget(NamespacedResourceG, DictMixin, kw_only=True):
    """A widget as a struct."""

    _api_info = ApiInfo(resource=ResourceDef(GROUP, "v1", "StructWidget"), plural="structwidgets", verbs=["get"])
    apiVersion: str | None = None  # noqa: N815 - Kubernetes' spelling
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: StructSpec
    status: MachineStatusStruct | None = None


def crd(*kinds: type[KubeObject]) -> dict[str, Any]:
    """The manifest, found right by the API server's own rules."""
    manifest = cast("dict[str, Any]", crd_manifest(*kinds))
    stored = json.loads(json.dumps(manifest))
    default_crd(stored)
    assert validate_crd(stored) == []
    return manifest


def version(*kinds: type[KubeObject], index: int = 0) -> dict[str, Any]:
    return cast("dict[str, Any]", crd(*kinds)["spec"]["versions"][index])


def test_names_scope_and_group_are_the_classs() -> None:
    manifest = crd(Widget)
    assert manifest["metadata"] == {"name": "widgets.demo.example.com"}
    assert manifest["spec"]["group"] == GROUP
    assert manifest["spec"]["scope"] == "Namespaced"
    assert manifest["spec"]["names"] == {
        "kind": "Widget",
        "listKind": "WidgetList",
        "plural": "widgets",
        "singular": "widget",
        "shortNames": ["wd"],
        "categories": ["all"],
    }
    assert crd(Role)["spec"]["scope"] == "Cluster"
    assert crd(Plain)["spec"]["names"]["singular"] == "plainthing"


def test_the_root_schema_leaves_metadata_to_the_server() -> None:
    schema = version(Widget)["schema"]["openAPIV3Schema"]
    assert schema["description"] == "A web front end.\n\nIt follows its spec."
    assert schema["properties"]["metadata"] == {"type": "object"}
    assert list(schema["properties"]) == ["apiVersion", "kind", "metadata", "spec", "status"]
    assert schema["required"] == ["spec"]
    assert schema["x-kubernetes-validations"] == [
        {"rule": "self.metadata.name.size() < 30", "message": "the name is too long"}
    ]


def test_a_class_without_a_docstring_has_no_description() -> None:
    schema = version(Role)["schema"]["openAPIV3Schema"]
    assert "description" not in schema
    assert "description" not in schema["properties"]["spec"]


def test_a_status_model_means_a_status_subresource() -> None:
    assert version(Role)["subresources"] == {"status": {}}
    assert "subresources" not in version(Plain)
    assert "status" not in version(Plain)["schema"]["openAPIV3Schema"]["properties"]


def test_scale_and_selectable_fields_are_there_by_choice() -> None:
    found = version(Widget)
    assert found["subresources"]["scale"] == {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    assert found["selectableFields"] == [{"jsonPath": ".spec.tier"}]


def test_a_machine_status_gets_columns_unless_the_class_has_its_own() -> None:
    class Quiet(CustomResource[WidgetSpec, WidgetStatus], group=GROUP, version="v1", print_columns=[]):
        pass

    assert [column["name"] for column in version(Widget)["additionalPrinterColumns"]] == ["State", "Ready", "Age"]
    assert "additionalPrinterColumns" not in version(Role)
    assert "additionalPrinterColumns" not in version(Quiet)
    assert version(OldWidget, Widget, index=1)["additionalPrinterColumns"] == [
        {
            "name": "Tier",
            "type": "string",
            "jsonPath": ".spec.tier",
            "description": "Which.",
            "priority": 1,
            "format": "byte",
        }
    ]


def test_several_classes_are_versions_of_one_kind_newest_first() -> None:
    manifest = crd(OldWidget, Widget)
    assert manifest == crd(Widget, OldWidget)
    assert [(v["name"], v["served"], v["storage"]) for v in manifest["spec"]["versions"]] == [
        ("v1", True, True),
        ("v1beta1", True, False),
    ]
    assert manifest["spec"]["versions"][1]["deprecationWarning"] == "use v1"
    assert manifest["spec"]["names"]["shortNames"] == ["wd"]


def test_versions_stand_in_kubernetes_order() -> None:
    names = ["v1alpha1", "v2", "foo1", "v1beta2", "v10", "v1beta1", "v1"]
    kinds: list[type[KubeObject]] = []
    for name in names:

        class Any(CustomResource[WidgetSpec], group=GROUP, version=name, storage=name == "v1"):
            pass

        kinds.append(Any)
    ordered = [v["name"] for v in crd(*kinds)["spec"]["versions"]]
    assert ordered == ["v10", "v2", "v1", "v1beta2", "v1beta1", "v1alpha1", "foo1"]


def test_one_version_is_stored() -> None:
    class Both(CustomResource[WidgetSpec], group=GROUP, version="v2", kind="Widget"):
        pass

    class Also(CustomResource[WidgetSpec], group=GROUP, version="v3", kind="Widget", storage=True):
        pass

    class Too(CustomResource[WidgetSpec], group=GROUP, version="v4", kind="Widget", storage=True):
        pass

    with pytest.raises(ResourceDefinitionError, match="which of v1, v2 is stored"):
        crd_manifest(Widget, Both)
    with pytest.raises(ResourceDefinitionError, match="v3, v4 all say storage=True"):
        crd_manifest(Widget, Also, Too)


def test_classes_of_different_kinds_make_no_crd_together() -> None:
    with pytest.raises(ResourceDefinitionError, match="not versions of one kind"):
        crd_manifest(OldWidget, Role)
    with pytest.raises(ResourceDefinitionError, match="given twice"):
        crd_manifest(Widget, OldWidget, OldWidget)
    with pytest.raises(ResourceDefinitionError, match="at least one"):
        crd_manifest()


def test_a_kind_written_as_a_struct_has_a_manifest_too() -> None:
    found = version(StructWidget)
    schema = found["schema"]["openAPIV3Schema"]
    assert schema["description"] == "A widget as a struct."
    assert schema["required"] == ["spec"]
    assert schema["properties"]["spec"] == {
        "type": "object",
        "properties": {"replicas": {"type": "integer", "format": "int64"}, "runAs": {"type": "string"}},
        "required": ["replicas"],
    }
    assert found["subresources"] == {"status": {}}
    assert [column["name"] for column in found["additionalPrinterColumns"]] == ["State", "Ready", "Age"]


def test_both_families_of_machine_status_have_one_schema() -> None:
    class Twin(CustomResource[WidgetSpec, MachineStatus], group=GROUP, version="v1"):
        pass

    def bare(schema: Any) -> Any:
        if isinstance(schema, dict):
            members = cast("dict[str, Any]", schema)
            return {name: bare(value) for name, value in members.items() if name != "description"}
        return schema

    def status(kind: type[KubeObject]) -> Any:
        return bare(version(kind)["schema"]["openAPIV3Schema"]["properties"]["status"])

    assert status(Twin) == status(StructWidget)


def test_a_generic_resource_has_no_schema() -> None:
    crontab = create_namespaced_resource("crd.example.com", "v1", "Crontab", "crontabs")
    with pytest.raises(CrdSchemaError, match="Crontab is neither"):
        crd_manifest(crontab)


def test_labels_and_annotations_are_the_callers() -> None:
    manifest = crd_manifest(Widget, labels={"a": "b"}, annotations={"c": "d"})
    assert manifest["metadata"] == {
        "name": "widgets.demo.example.com",
        "labels": {"a": "b"},
        "annotations": {"c": "d"},
    }


def test_yaml_is_the_manifests_one_document_for_each_kind() -> None:
    text = crd_yaml(Widget, Role, OldWidget)
    assert list(yaml.safe_load_all(text)) == [crd_manifest(Role), crd_manifest(Widget, OldWidget)]
    assert text == crd_yaml(OldWidget, Role, Widget)
    assert "description: |-\n" in text


@pytest.mark.parametrize(
    ("keywords", "told"),
    [
        (
            {"print_columns": [PrintColumn(name="X", json_path=".spec.teir")]},
            r"print column X: \.spec\.teir leads nowhere",
        ),
        ({"print_columns": [PrintColumn(name="X", json_path=".status.stateHistory.to")]}, None),
        ({"print_columns": [PrintColumn(name="X", json_path=".metadata.labels.anything")]}, None),
        ({"print_columns": [PrintColumn(name="X", json_path="spec")]}, "leads nowhere"),
        ({"selectable_fields": [".spec.teir"]}, r"selectable field: .* there is no \.spec\.teir"),
        ({"scale": Scale(spec_replicas=".spec.count")}, r"scale: .* there is no \.spec\.count"),
        ({"scale": Scale(label_selector=".status.sel")}, r"there is no \.status\.sel"),
    ],
)
def test_paths_that_lead_nowhere_are_refused(keywords: dict[str, Any], told: str | None) -> None:
    class Pathed(CustomResource[WidgetSpec, WidgetStatus], group=GROUP, version="v1", **keywords):
        pass

    if told is None:
        crd(Pathed)
    else:
        with pytest.raises(CrdSchemaError, match=f"Pathed: .*{told}"):
            crd_manifest(Pathed)
