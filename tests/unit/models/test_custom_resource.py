"""Custom resources as pydantic models: what a class stands for, and what is refused when it is made."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import new_class
from typing import Annotated, Any, ClassVar, Generic

import pytest
from lightkube.core.resource import ApiInfo
from lightkube.models.meta_v1 import ObjectMeta
from pydantic import Field
from typing_extensions import TypeVar

from opsdk.errors import ResourceDefinitionError
from opsdk.models import (
    Conditions,
    CustomResource,
    MachineStatus,
    Model,
    NoStatus,
    ResourceInfo,
    codec_of,
    crd_manifest,
    resource_of,
)

GROUP = "demo.example.com"


class WidgetSpec(Model):
    replicas: int = Field(default=1, ge=0)
    paused_reason: str | None = None
    cluster_ip: Annotated[str, Field(alias="clusterIP")] = ""


class WidgetStatus(MachineStatus):
    ready_replicas: int = 0


class Widget(CustomResource[WidgetSpec, WidgetStatus], group=GROUP, version="v1"):
    """A web front end that follows its spec."""


class RoleStatus(Model):
    conditions: Conditions = []  # noqa: RUF012 - pydantic copies it


class Role(CustomResource[WidgetSpec, RoleStatus], group=GROUP, version="v1", scope="Cluster"):
    pass


S = TypeVar("S", bound=Model)


def test_a_class_stands_for_the_kind_that_its_keywords_name() -> None:
    assert resource_of(Widget) == ResourceInfo(
        group=GROUP, version="v1", kind="Widget", plural="widgets", scope="Namespaced"
    )
    assert resource_of(Role).scope == "Cluster"


def test_a_new_object_says_its_api_version_and_kind() -> None:
    widget = Widget(spec=WidgetSpec())
    assert (widget.apiVersion, widget.kind) == ("demo.example.com/v1", "Widget")


def test_each_object_has_metadata_and_a_status_of_its_own() -> None:
    one, other = Widget(spec=WidgetSpec()), Widget(spec=WidgetSpec())
    assert type(one.status) is WidgetStatus
    assert type(Role(spec=WidgetSpec()).status) is RoleStatus
    assert one.status is not other.status
    assert one.status.conditions is not other.status.conditions
    assert one.metadata is not other.metadata
    assert one.metadata == ObjectMeta()


def test_lightkube_knows_the_class_by_its_api_info() -> None:
    info = Widget._api_info  # pyright: ignore[reportPrivateUsage] - lightkube's own name
    assert isinstance(info, ApiInfo)
    assert (info.resource.group, info.resource.version, info.resource.kind) == (GROUP, "v1", "Widget")
    assert "global_list" in info.verbs
    assert "global_list" not in Role._api_info.verbs  # pyright: ignore[reportPrivateUsage] - lightkube's own name
    assert Widget(spec=WidgetSpec())._api_info is info  # pyright: ignore[reportPrivateUsage] - lightkube's own name


def test_names_are_camel_case_on_the_wire_unless_a_field_says_otherwise() -> None:
    spec = WidgetSpec(paused_reason="lunch", cluster_ip="10.0.0.1")
    assert spec.model_dump(exclude_none=True) == {"replicas": 1, "pausedReason": "lunch", "clusterIP": "10.0.0.1"}
    assert WidgetSpec.model_validate({"pausedReason": "lunch"}).paused_reason == "lunch"


def test_two_kinds_of_the_same_models_keep_their_names_apart() -> None:
    class Gadget(CustomResource[WidgetSpec, WidgetStatus], group="other.example.com", version="v2"):
        pass

    assert Gadget(spec=WidgetSpec()).apiVersion == "other.example.com/v2"
    assert Widget(spec=WidgetSpec()).apiVersion == "demo.example.com/v1"
    assert Widget(spec=WidgetSpec()).kind == "Widget"


def test_a_generic_base_stands_for_no_kind_and_hands_its_keywords_down() -> None:
    class Base(CustomResource[S, MachineStatus], Generic[S], group=GROUP):
        def state(self) -> str:
            return self.status.state

    class Gizmo(Base[WidgetSpec], version="v1alpha1"):
        pass

    assert resource_of(Gizmo).api_version == "demo.example.com/v1alpha1"
    assert Gizmo(spec=WidgetSpec()).state() == ""
    with pytest.raises(ResourceDefinitionError, match="Base does not say which kind"):
        resource_of(Base)


def test_an_abstract_base_without_type_parameters_stands_for_no_kind() -> None:
    class Base(CustomResource[WidgetSpec, WidgetStatus], abstract=True):
        pass

    class Gizmo(Base, group=GROUP, version="v1"):
        pass

    assert resource_of(Gizmo).kind == "Gizmo"
    with pytest.raises(ResourceDefinitionError, match="Base"):
        crd_manifest(Base)


def test_a_subclass_stands_for_the_same_kind_except_for_what_it_says() -> None:
    class Same(Widget):
        pass

    class Newer(Widget, version="v2"):
        pass

    class Gadget(Widget, kind="Gadget"):
        pass

    assert resource_of(Same) == resource_of(Widget)
    assert resource_of(Newer).version == "v2"
    assert Newer(spec=WidgetSpec()).apiVersion == "demo.example.com/v2"
    assert (resource_of(Gadget).kind, resource_of(Gadget).plural) == ("Gadget", "gadgets")


@pytest.mark.parametrize(
    ("kind", "plural"),
    [
        ("Widget", "widgets"),
        ("Policy", "policies"),
        ("Gateway", "gateways"),
        ("Class", "classes"),
        ("Box", "boxes"),
        ("Branch", "branches"),
    ],
)
def test_the_plural_is_english(kind: str, plural: str) -> None:
    class Any(CustomResource[WidgetSpec], group=GROUP, version="v1", kind=kind):
        pass

    assert resource_of(Any).plural == plural


def define(name: str, base: type, **keywords: object) -> type:
    """The class statement as a call: what it makes is not looked at."""
    return new_class(name, (base,), keywords)


def test_a_missing_group_or_version_is_refused_when_the_class_is_made() -> None:
    with pytest.raises(ResourceDefinitionError, match=r"Gizmo: group is missing"):
        define("Gizmo", CustomResource[WidgetSpec, WidgetStatus], version="v1")
    with pytest.raises(ResourceDefinitionError, match=r"Gadget: version is missing"):
        define("Gadget", CustomResource[WidgetSpec, WidgetStatus], group=GROUP)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("group", "Demo.example.com"),
        ("group", "widgets"),
        ("group", "-demo.example.com"),
        ("group", ""),
        ("version", "V1"),
        ("version", "1"),
        ("kind", "My Widget"),
        ("kind", ""),
        ("plural", "Widgets"),
        ("plural", "a" * 64),
        ("short_names", ["W"]),
        ("categories", ["all things"]),
        ("scope", "namespaced"),
    ],
)
def test_a_name_that_the_api_server_would_refuse_is_refused_when_the_class_is_made(field: str, value: object) -> None:
    keywords: dict[str, object] = {"group": GROUP, "version": "v1", field: value}
    with pytest.raises(ResourceDefinitionError, match=f"^Gizmo: {field} "):
        define("Gizmo", CustomResource[WidgetSpec, WidgetStatus], **keywords)


def test_one_text_for_a_list_of_names_is_refused() -> None:
    with pytest.raises(ResourceDefinitionError, match=r"Gizmo: short_names is a list"):
        define("Gizmo", CustomResource[WidgetSpec], group=GROUP, version="v1", short_names="gz")


def test_b6_a_keyword_that_nobody_knows_is_named_with_those_that_are() -> None:
    keywords: dict[str, Any] = {"group": "demo.example.com", "version": "v1", "shortnames": ["a"]}
    with pytest.raises(ResourceDefinitionError, match=r"unknown keyword shortnames; known are: group, .*short_names, "):
        new_class("Other", (CustomResource[Model, Model],), keywords)


def test_b6_a_keyword_of_another_base_goes_there() -> None:
    class Labelled:
        label: ClassVar[str]

        def __init_subclass__(cls, *, label: str, **kwargs: Any) -> None:
            super().__init_subclass__(**kwargs)
            cls.label = label

    keywords: dict[str, Any] = {"group": "demo.example.com", "version": "v1", "label": "x"}
    made = new_class("Other", (CustomResource[Model, Model], Labelled), keywords)
    assert vars(made)["label"] == "x"


def test_a_status_that_cannot_be_empty_is_refused_when_the_class_is_made() -> None:
    class Full(Model):
        phase: str
        note: str = ""

    with pytest.raises(ResourceDefinitionError, match=r"Gizmo: .*Full cannot be empty: give phase a default"):
        define("Gizmo", CustomResource[WidgetSpec, Full], group=GROUP, version="v1")


def test_a_kind_without_status_sends_none_but_keeps_what_others_wrote() -> None:
    class Plain(CustomResource[WidgetSpec], group=GROUP, version="v1"):
        pass

    plain = Plain(metadata=ObjectMeta(name="p"), spec=WidgetSpec())
    assert isinstance(plain.status, NoStatus)
    assert b"status" not in codec_of(Plain).encode(plain)
    read = codec_of(Plain).decode(b'{"spec":{},"status":{"phase":"Ready"}}')
    assert b'"status":{"phase":"Ready"}' in codec_of(Plain).encode(read)


def test_fields_of_types_that_are_defined_locally_work() -> None:
    class Extra(Model):
        size: int

    class Gizmo(CustomResource[WidgetSpec], group=GROUP, version="v1"):
        extra: Extra

    gizmo = codec_of(Gizmo).decode(b'{"spec":{},"extra":{"size":3}}')
    assert gizmo.extra == Extra(size=3)


class Early(CustomResource[WidgetSpec, WidgetStatus], group=GROUP, version="v1"):
    later: Later | None = None


class Later(Model):
    size: int


def test_a_field_may_refer_to_a_class_that_comes_later() -> None:
    early = codec_of(Early).decode(b'{"spec":{},"later":{"size":3}}')
    assert early.later == Later(size=3)
    assert (early.apiVersion, early.kind, type(early.status)) == ("demo.example.com/v1", "Early", WidgetStatus)


def test_pydantic_options_can_be_given_as_class_keywords() -> None:
    class Gizmo(CustomResource[WidgetSpec], group=GROUP, version="v1", title="A gizmo"):
        pass

    assert Gizmo.model_config.get("title") == "A gizmo"


def test_an_error_about_a_value_does_not_show_the_value() -> None:
    with pytest.raises(ValueError, match="replicas") as caught:
        WidgetSpec.model_validate({"replicas": "hunter2"})
    assert "hunter2" not in str(caught.value)


MULTI_LINE = '''
from opsdk import CustomResource, Model


class Spec(Model):
    size: int = 1
    """How big."""


class Widget(
    CustomResource[Spec],
    group="demo.example.com",
    version="v1",
    short_names=["wd"],
):
    """A widget."""
'''


def test_a_class_may_have_a_header_of_many_lines_at_the_end_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "many_lines.py").write_text(MULTI_LINE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    kind: Any = importlib.import_module("many_lines").Widget
    schema: Any = crd_manifest(kind)["spec"]
    root = schema["versions"][0]["schema"]["openAPIV3Schema"]
    assert root["description"] == "A widget."
    assert root["properties"]["spec"]["properties"]["size"]["description"] == "How big."
