"""Bytes to objects and back, for the four families of classes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Literal, cast

import pytest
from lightkube.core.resource import ApiInfo, NamespacedResourceG, ResourceDef
from lightkube.core.schema import DictMixin
from lightkube.generic_resource import create_namespaced_resource  # pyright: ignore[reportUnknownVariableType] - untyped `verbs`
from lightkube.models.apps_v1 import DeploymentSpec
from lightkube.models.coordination_v1 import LeaseSpec
from lightkube.models.core_v1 import (
    Container,
    EventSeries,
    ObjectReference,
    PodSpec,
    PodTemplateSpec,
    ResourceRequirements,
)
from lightkube.models.events_v1 import EventSeries as EventsV1Series
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import ConfigMap, Event, Pod
from lightkube.resources.events_v1 import Event as EventsV1Event
from pydantic import Field

from opsdk.errors import DecodeError, ObjectError, ResourceDefinitionError
from opsdk.models import (
    CustomResource,
    K8s,
    MachineStatus,
    MachineStatusStruct,
    MicroTime,
    Model,
    codec_of,
    set_condition,
)
from opsdk.protocols import KubeObject
from opsdk.types import Json, JsonObject

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - the subject of some tests


class Part(Model):
    name: str
    weight: int = 1


class Shape(Model):
    kind: Literal["round"] = "round"
    radius: int = 1


class WidgetSpec(Model):
    replicas: int = Field(default=1, ge=0)
    paused_reason: str | None = None
    parts: list[Part] = []  # noqa: RUF012 - pydantic copies it
    shape: Shape | None = None
    resources: K8s[ResourceRequirements] | None = None
    moment: MicroTime | None = None


class WidgetStatus(MachineStatus):
    ready_replicas: int = 0


class Widget(CustomResource[WidgetSpec, WidgetStatus], group="demo.example.com", version="v1"):
    pass


class Gizmo(NamespacedResourceG, DictMixin, kw_only=True):
    """A kind written as a struct, without lightkube's generated constructor."""

    _api_info = ApiInfo(resource=ResourceDef("demo.example.com", "v1", "Gizmo"), plural="gizmos", verbs=["get"])
    apiVersion: str | None = None  # noqa: N815 - Kubernetes' spelling
    kind: str | None = None
    metadata: ObjectMeta | None = None
    status: MachineStatusStruct | None = None


class Gadget(NamespacedResourceG, DictMixin, kw_only=True):
    """A struct whose type is the default, which lightkube's structs leave out."""

    _api_info = ApiInfo(resource=ResourceDef("demo.example.com", "v1", "Gadget"), plural="gadgets", verbs=["get"])
    apiVersion: str | None = "demo.example.com/v1"  # noqa: N815 - Kubernetes' spelling
    kind: str | None = "Gadget"
    metadata: ObjectMeta | None = None
    status: MachineStatusStruct | None = None


class Own:
    """A class that knows its own JSON."""

    _api_info = ApiInfo(resource=ResourceDef("demo.example.com", "v1", "Own"), plural="owns", verbs=["global_list"])

    def __init__(self, name: str, size: int) -> None:
        self.metadata: ObjectMeta | None = ObjectMeta(name=name)
        self.size = size

    @classmethod
    def from_wire(cls, document: JsonObject, /) -> Own:
        metadata = document["metadata"]
        size = document["size"]
        if not isinstance(metadata, Mapping) or not isinstance(size, int):
            raise ValueError("size must be a number")  # noqa: TRY004 - what from_wire promises
        return cls(str(metadata["name"]), size)

    def to_wire(self) -> JsonObject:
        assert self.metadata is not None
        return {"metadata": {"name": self.metadata.name}, "size": self.size}


Crontab = create_namespaced_resource("demo.example.com", "v1", "Crontab", "crontabs")


def document(raw: bytes) -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads(raw))


def deployment() -> Deployment:
    return Deployment(
        metadata=ObjectMeta(name="d", creationTimestamp=NOON),
        spec=DeploymentSpec(
            selector=LabelSelector(matchLabels={"a": "b"}),
            template=PodTemplateSpec(spec=PodSpec(containers=[Container(name="web")])),
        ),
    )


# every family


def test_a_codec_is_made_once_for_each_class() -> None:
    assert codec_of(Widget) is codec_of(Widget)


@pytest.mark.parametrize(
    ("obj", "api_version", "kind"),
    [
        (deployment(), "apps/v1", "Deployment"),
        (Widget(spec=WidgetSpec()), "demo.example.com/v1", "Widget"),
        (Gizmo(metadata=ObjectMeta(name="g")), "demo.example.com/v1", "Gizmo"),
        (Gadget(metadata=ObjectMeta(name="g")), "demo.example.com/v1", "Gadget"),
        (
            codec_of(Gadget).decode(b'{"apiVersion":"demo.example.com/v1","kind":"Gadget","metadata":{"name":"g"}}'),
            "demo.example.com/v1",
            "Gadget",
        ),
        (Crontab(metadata=ObjectMeta(name="c")), "demo.example.com/v1", "Crontab"),
        (Own("o", 1), "demo.example.com/v1", "Own"),
    ],
)
def test_what_is_written_says_its_kind(obj: KubeObject, api_version: str, kind: str) -> None:
    family: type[KubeObject] = type(obj)
    found = document(codec_of(family).encode(obj))
    assert (found["apiVersion"], found["kind"]) == (api_version, kind)


@pytest.mark.parametrize("kind", [Deployment, Widget, Gizmo, Crontab, Own])
def test_what_is_no_json_is_a_decode_error_that_names_the_kind(kind: type[KubeObject]) -> None:
    with pytest.raises(DecodeError, match=rf"^{kind.__name__}: not a JSON document") as caught:
        codec_of(kind).decode(b'{"metadata":')
    assert caught.value.kind == kind.__name__


def test_a_class_of_no_family_is_refused() -> None:
    class Stranger:
        _api_info = ApiInfo(resource=ResourceDef("e.com", "v1", "Stranger"), plural="strangers", verbs=["global_list"])
        metadata: ObjectMeta | None = None

    with pytest.raises(ResourceDefinitionError, match=r"Stranger .*from_wire and to_wire"):
        codec_of(Stranger)


# structs


def test_a_built_in_kind_survives_a_round_trip() -> None:
    codec = codec_of(Deployment)
    assert codec.decode(codec.encode(deployment())) == deployment()


def test_a_struct_that_does_not_fit_names_object_and_field() -> None:
    raw = b'{"metadata":{"name":"d","namespace":"ns"},"spec":{"replicas":"three","selector":{},"template":{}}}'
    with pytest.raises(DecodeError) as caught:
        codec_of(Deployment).decode(raw)
    error = caught.value
    assert (error.kind, error.namespace, error.name, error.field) == ("Deployment", "ns", "d", "spec.replicas")
    assert "three" not in str(error)


def test_a_struct_whose_name_is_no_text_still_gives_a_decode_error() -> None:
    with pytest.raises(DecodeError) as caught:
        codec_of(Pod).decode(b'{"metadata":{"name":1}}')
    assert (caught.value.field, caught.value.name) == ("metadata.name", "")


def test_a_quantity_may_be_a_number_on_the_wire() -> None:
    raw = b'{"spec":{"containers":[],"volumes":[{"name":"v","emptyDir":{"sizeLimit":5}}]}}'
    pod = codec_of(Pod).decode(raw)
    assert pod.spec is not None
    assert pod.spec.volumes is not None
    assert pod.spec.volumes[0].emptyDir is not None
    assert pod.spec.volumes[0].emptyDir.sizeLimit == "5"


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (NOON, "2026-01-01T12:00:00Z"),
        (NOON.replace(microsecond=5), "2026-01-01T12:00:00Z"),
        (NOON.astimezone(timezone(timedelta(hours=5))), "2026-01-01T12:00:00Z"),
        (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00Z"),
    ],
)
def test_a_time_is_written_in_utc_with_seconds(moment: datetime, text: str) -> None:
    config_map = ConfigMap(metadata=ObjectMeta(name="c", creationTimestamp=moment))
    assert document(codec_of(ConfigMap).encode(config_map))["metadata"]["creationTimestamp"] == text


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (NOON, "2026-01-01T12:00:00.000000Z"),
        (NOON.replace(microsecond=5), "2026-01-01T12:00:00.000005Z"),
        (NOON.astimezone(timezone(timedelta(hours=5))), "2026-01-01T12:00:00.000000Z"),
    ],
)
def test_a_micro_time_always_has_six_digits(moment: datetime, text: str) -> None:
    lease = Lease(metadata=ObjectMeta(name="l"), spec=LeaseSpec(acquireTime=moment, renewTime=moment))
    spec = document(codec_of(Lease).encode(lease))["spec"]
    assert (spec["acquireTime"], spec["renewTime"]) == (text, text)


def test_micro_times_of_both_kinds_of_events_have_six_digits() -> None:
    core = Event(
        metadata=ObjectMeta(name="e", namespace="n"),
        involvedObject=ObjectReference(name="x"),
        eventTime=NOON,
        firstTimestamp=NOON.replace(microsecond=7),
        series=EventSeries(count=2, lastObservedTime=NOON),
    )
    found = document(codec_of(Event).encode(core))
    assert found["eventTime"] == found["series"]["lastObservedTime"] == "2026-01-01T12:00:00.000000Z"
    assert found["firstTimestamp"] == "2026-01-01T12:00:00Z"
    new = EventsV1Event(eventTime=NOON, series=EventsV1Series(count=2, lastObservedTime=NOON))
    found = document(codec_of(EventsV1Event).encode(new))
    assert found["eventTime"] == found["series"]["lastObservedTime"] == "2026-01-01T12:00:00.000000Z"


def test_a_naive_time_is_refused_and_the_field_is_named() -> None:
    lease = Lease(metadata=ObjectMeta(name="l"), spec=LeaseSpec(renewTime=NAIVE))
    with pytest.raises(ObjectError, match=r"Lease l cannot be written: spec\.renewTime: .*no time zone"):
        codec_of(Lease).encode(lease)


def test_encoding_a_struct_does_not_change_it() -> None:
    moment = NOON.replace(microsecond=5)
    gizmo = Gizmo(metadata=ObjectMeta(name="g", creationTimestamp=moment))
    codec_of(Gizmo).encode(gizmo)
    assert (gizmo.apiVersion, gizmo.kind) == (None, None)
    assert gizmo.metadata is not None
    assert gizmo.metadata.creationTimestamp == moment


# pydantic


def widget() -> Widget:
    return Widget(metadata=ObjectMeta(name="w", namespace="ns"), spec=WidgetSpec())


def test_none_is_left_out() -> None:
    assert document(codec_of(Widget).encode(widget()))["spec"] == {"replicas": 1, "parts": []}


def test_m03_fields_that_the_model_does_not_know_survive() -> None:
    raw = b'{"metadata":{"name":"w"},"spec":{"new":{"a":[1]},"parts":[{"name":"p","extra":true}]},"status":{"x":1}}'
    found = document(codec_of(Widget).encode(codec_of(Widget).decode(raw)))
    assert found["spec"]["new"] == {"a": [1]}
    assert found["spec"]["parts"] == [{"name": "p", "extra": True, "weight": 1}]
    assert found["status"]["x"] == 1


def test_m02_an_object_stored_before_a_field_existed_loads_with_its_default() -> None:
    assert codec_of(Widget).decode(b'{"spec":{}}').spec.replicas == 1


def test_a_model_that_does_not_fit_names_object_and_field_as_on_the_wire() -> None:
    raw = b'{"metadata":{"name":"w","namespace":"ns"},"spec":{"pausedReason":1,"parts":[{"name":"p"},{}]}}'
    with pytest.raises(DecodeError) as caught:
        codec_of(Widget).decode(raw)
    error = caught.value
    assert (error.kind, error.namespace, error.name, error.field) == ("Widget", "ns", "w", "spec.pausedReason")
    assert "spec.parts[1].name" in str(error)


def test_an_error_inside_a_struct_inside_a_model_names_the_whole_path() -> None:
    with pytest.raises(DecodeError) as caught:
        codec_of(Widget).decode(b'{"spec":{"resources":{"claims":[{"name":1}]}}}')
    assert caught.value.field == "spec.resources.claims[0].name"
    with pytest.raises(DecodeError) as caught:
        codec_of(Widget).decode(b'{"metadata":{"name":1},"spec":{}}')
    assert caught.value.field == "metadata.name"


@pytest.mark.parametrize("what", [b'{"kind":"Gadget","spec":{}}', b'{"apiVersion":"demo.example.com/v2","spec":{}}'])
def test_a_document_of_another_kind_or_version_is_refused(what: bytes) -> None:
    with pytest.raises(DecodeError, match=r"Widget: (kind|apiVersion): the document is"):
        codec_of(Widget).decode(what)


def test_a_naive_time_in_a_struct_in_a_model_is_refused_and_named() -> None:
    bad = widget()
    bad.metadata.creationTimestamp = NAIVE
    with pytest.raises(ObjectError, match=r"Widget w cannot be written: creationTimestamp: .*no time zone"):
        codec_of(Widget).encode(bad)


def test_a_micro_time_of_a_model_has_six_digits() -> None:
    one = widget()
    one.spec.moment = NOON
    assert document(codec_of(Widget).encode(one))["spec"]["moment"] == "2026-01-01T12:00:00.000000Z"


# only what is set


def only_set(obj: Widget) -> Json:
    found = document(codec_of(Widget).encode(obj, only_set=True))
    assert found.pop("apiVersion") == "demo.example.com/v1"
    assert found.pop("kind") == "Widget"
    return found


def test_defaults_are_not_applied() -> None:
    assert only_set(widget()) == {"metadata": {"name": "w", "namespace": "ns"}, "spec": {}}


def test_what_is_given_or_assigned_is_applied_even_if_it_equals_the_default() -> None:
    one = Widget(metadata=ObjectMeta(name="w"), spec=WidgetSpec(replicas=1))
    one.status.ready_replicas = 0
    assert only_set(one) == {"metadata": {"name": "w"}, "spec": {"replicas": 1}, "status": {"readyReplicas": 0}}


def test_what_was_changed_in_place_is_applied() -> None:
    one = Widget(spec=WidgetSpec())
    one.metadata.name = "w"
    one.spec.parts.append(Part(name="p"))
    set_condition(one.status.conditions, type="Ready", status="True", reason="Up", now=NOON)
    assert only_set(one) == {
        "metadata": {"name": "w"},
        "spec": {"parts": [{"name": "p"}]},
        "status": {
            "conditions": [
                {
                    "lastTransitionTime": "2026-01-01T12:00:00Z",
                    "message": "",
                    "reason": "Up",
                    "status": "True",
                    "type": "Ready",
                }
            ]
        },
    }


def test_a_discriminator_is_applied_though_it_has_a_default() -> None:
    one = Widget(spec=WidgetSpec(shape=Shape(radius=2)))
    assert only_set(one) == {"spec": {"shape": {"kind": "round", "radius": 2}}}


# generic resources


def test_a_generic_resource_keeps_everything_and_takes_metadata_in_either_form() -> None:
    raw = b'{"metadata":{"name":"c","annotations":{"a":"b"}},"spec":{"x":[1,null]}}'
    crontab = codec_of(Crontab).decode(raw)
    assert crontab["spec"] == {"x": [1, None]}
    assert crontab.metadata is not None
    assert crontab.metadata.name == "c"
    assert document(codec_of(Crontab).encode(crontab)) == {
        "apiVersion": "demo.example.com/v1",
        "kind": "Crontab",
        **document(raw),
    }
    crontab["metadata"] = ObjectMeta(name="d", creationTimestamp=NOON.replace(microsecond=1))
    crontab["spec"] = {"template": PodTemplateSpec(metadata=ObjectMeta(name="t"))}
    assert document(codec_of(Crontab).encode(crontab)) == {
        "apiVersion": "demo.example.com/v1",
        "kind": "Crontab",
        "metadata": {"name": "d", "creationTimestamp": "2026-01-01T12:00:00Z"},
        "spec": {"template": {"metadata": {"name": "t"}}},
    }


def test_a_generic_resource_with_wrong_metadata_is_a_decode_error() -> None:
    with pytest.raises(DecodeError) as caught:
        codec_of(Crontab).decode(b'{"metadata":{"labels":[]}}')
    assert caught.value.field == "metadata.labels"


# classes that know their own JSON


def test_a_class_of_ones_own_is_read_and_written_by_its_methods() -> None:
    own = codec_of(Own).decode(b'{"metadata":{"name":"o"},"size":3}')
    assert own.size == 3
    assert document(codec_of(Own).encode(own)) == {
        "apiVersion": "demo.example.com/v1",
        "kind": "Own",
        "metadata": {"name": "o"},
        "size": 3,
    }


def test_what_from_wire_refuses_is_a_decode_error_with_the_objects_name() -> None:
    with pytest.raises(DecodeError, match=r"Own ns/o: .*size must be a number"):
        codec_of(Own).decode(b'{"metadata":{"name":"o","namespace":"ns"},"size":"x"}')
    with pytest.raises(DecodeError, match=r"Own: KeyError"):
        codec_of(Own).decode(b"{}")
