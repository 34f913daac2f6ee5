"""What the cluster stores, and what four programs know of it, each in its own family of classes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Generic, Self, TypeVar, final

import msgspec
from lightkube.core.resource import ApiInfo, NamespacedResourceG, ResourceDef
from lightkube.generic_resource import create_namespaced_resource  # pyright: ignore[reportUnknownVariableType] - lightkube's own
from lightkube.models.meta_v1 import ObjectMeta
from pydantic import Field

from opsdk.models import CustomResource, ListMap, Model, PreserveUnknown
from opsdk.protocols import KubeObject
from opsdk.types import Json, JsonObject

__all__ = [
    "FAMILIES",
    "Family",
    "StoredWidget",
    "Widget",
    "WidgetSpec",
    "WidgetStatus",
    "stored_widget",
]

GROUP: Final = "client.example.com"
T = TypeVar("T", bound=KubeObject)


# What the cluster stores


class StoredDetail(Model):
    depth: int = 0
    hidden: str | None = None


class StoredPoint(Model):
    x: int
    y: int | None = None


class StoredPart(Model):
    name: str
    size: int = 1
    hidden: str | None = None
    detail: StoredDetail | None = None
    points: list[StoredPoint] = Field(default_factory=list[StoredPoint])


class StoredSpec(Model):
    size: int = Field(default=1, ge=0)
    hidden: str | None = None
    cpu: str | None = None
    detail: StoredDetail | None = None
    parts: Annotated[list[StoredPart], ListMap("name")] = Field(default_factory=list[StoredPart])
    points: list[StoredPoint] = Field(default_factory=list[StoredPoint])
    table: dict[str, StoredDetail] = Field(default_factory=dict[str, StoredDetail])
    free: Annotated[dict[str, Any], PreserveUnknown()] = Field(default_factory=dict[str, Any])


class StoredReport(Model):
    name: str
    ready: int = 0
    hidden: str | None = None


class StoredStatus(Model):
    ready: int = 0
    hidden: str | None = None
    parts: Annotated[list[StoredReport], ListMap("name")] = Field(default_factory=list[StoredReport])


class StoredWidget(
    CustomResource[StoredSpec, StoredStatus], group=GROUP, version="v1", kind="Widget", plural="widgets"
):
    """What the cluster stores: fields at every depth that the programs below have never heard of."""


def _detail(word: str) -> dict[str, Json]:
    return {"depth": 1, "hidden": word}


def _part(name: str) -> dict[str, Json]:
    return {
        "name": name,
        "size": 1,
        "hidden": name,
        "detail": _detail(name),
        "points": [{"x": 1, "y": 2}, {"x": 3, "y": 4}],
    }


def stored_widget(name: str, namespace: str, *, owner_uid: str) -> dict[str, Json]:
    """A widget with something in every field; its owner is the ConfigMap `theirs`."""
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Widget",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app": "x", "other": "y"},
            "annotations": {"a": "1"},
            "finalizers": ["example.com/theirs"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "theirs", "uid": owner_uid}],
        },
        "spec": {
            "size": 1,
            "hidden": "x",
            "cpu": "1000m",
            "detail": _detail("d"),
            "parts": [_part("a"), _part("b")],
            "points": [{"x": 1, "y": 2}, {"x": 3, "y": 4}],
            "table": {"k": _detail("k"), "l": _detail("l")},
            "free": {"any": [{"thing": 1, "deep": {"er": [1, 2]}}], "count": 1},
        },
        "status": {"ready": 0, "hidden": "x", "parts": [{"name": "a", "ready": 1, "hidden": "a"}]},
    }


# A program of pydantic models


class Part(Model):
    name: str
    size: int = 1


class Report(Model):
    name: str
    ready: int = 0


class WidgetSpec(Model):
    size: int = Field(default=1, ge=0)
    parts: list[Part] = Field(default_factory=list[Part])


class WidgetStatus(Model):
    ready: int = 0
    parts: list[Report] = Field(default_factory=list[Report])


class Widget(CustomResource[WidgetSpec, WidgetStatus], group=GROUP, version="v1"):
    """What a program of pydantic models knows."""


# A program of structs: what they do not know, they drop


class PartStruct(msgspec.Struct):
    name: str
    size: int = 1


class ReportStruct(msgspec.Struct):
    name: str
    ready: int = 0


class SpecStruct(msgspec.Struct, omit_defaults=True):
    size: int = 1
    parts: list[PartStruct] = msgspec.field(default_factory=list[PartStruct])


class StatusStruct(msgspec.Struct, omit_defaults=True):
    ready: int = 0
    parts: list[ReportStruct] = msgspec.field(default_factory=list[ReportStruct])


def _api_info() -> ApiInfo:
    return ApiInfo(
        resource=ResourceDef(GROUP, "v1", "Widget"),
        plural="widgets",
        verbs=["delete", "deletecollection", "get", "list", "patch", "post", "put", "watch", "global_list"],
    )


class StructWidget(NamespacedResourceG, msgspec.Struct, omit_defaults=True):
    """What a program of structs knows."""

    _api_info = _api_info()

    apiVersion: str | None = None  # noqa: N815 - Kubernetes' own name
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: SpecStruct | None = None
    status: StatusStruct | None = None


# A program of dictionaries

GenericWidget: Any = create_namespaced_resource(GROUP, "v1", "Widget", "widgets")


# A program with a codec of its own, which knows one number of each


@final
class HandmadeWidget:
    """Knows the sizes, by name, and how many are ready."""

    _api_info = _api_info()

    def __init__(
        self, metadata: ObjectMeta | None, size: int, parts: dict[str, int], ready: int, reports: dict[str, int]
    ) -> None:
        self.metadata = metadata
        self.size = size
        self.parts = parts
        self.ready = ready
        self.reports = reports

    @classmethod
    def from_wire(cls, document: JsonObject, /) -> Self:
        spec, status = _object(document.get("spec")), _object(document.get("status"))
        return cls(
            msgspec.convert(document["metadata"], ObjectMeta),
            _number(spec.get("size"), 1),
            {str(part["name"]): _number(part.get("size"), 1) for part in _objects(spec.get("parts"))},
            _number(status.get("ready"), 0),
            {str(part["name"]): _number(part.get("ready"), 0) for part in _objects(status.get("parts"))},
        )

    def to_wire(self) -> JsonObject:
        document: dict[str, Json] = {
            "metadata": msgspec.to_builtins(self.metadata, str_keys=True),
            "spec": {"size": self.size, "parts": [{"name": name, "size": size} for name, size in self.parts.items()]},
            "status": {
                "ready": self.ready,
                "parts": [{"name": name, "ready": ready} for name, ready in self.reports.items()],
            },
        }
        return document


def _object(value: Json) -> JsonObject:
    return value if isinstance(value, Mapping) else {}


def _objects(value: Json) -> list[JsonObject]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, Sequence) else []


def _number(value: Json, default: int) -> int:
    return value if isinstance(value, int) else default


# All four, and how to do the same to each


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Family(Generic[T]):
    """One way to write the class.

    Args:
        name: For the test's id.
        kind: The class.
        make: A new object of that name, namespace and size, with one part `a`.
        size: The size of an object.
        grow: Set the size, and that of the part `b` if there is one, in place.
        report: Set what is ready, and of the report `a` if there is one, in place.
        ready: What is ready.
    """

    name: str
    kind: type[T]
    make: Callable[[str, str, int], T]
    size: Callable[[T], int]
    grow: Callable[[T, int], None]
    report: Callable[[T, int], None]
    ready: Callable[[T], int]

    def __str__(self) -> str:
        return self.name


def _make_model(name: str, namespace: str, size: int) -> Widget:
    return Widget(
        metadata=ObjectMeta(name=name, namespace=namespace), spec=WidgetSpec(size=size, parts=[Part(name="a")])
    )


def _grow_model(obj: Widget, size: int) -> None:
    obj.spec.size = size
    for part in obj.spec.parts:
        if part.name == "b":
            part.size = size


def _report_model(obj: Widget, ready: int) -> None:
    obj.status.ready = ready
    for part in obj.status.parts:
        part.ready = ready


def _make_struct(name: str, namespace: str, size: int) -> StructWidget:
    return StructWidget(
        metadata=ObjectMeta(name=name, namespace=namespace), spec=SpecStruct(size=size, parts=[PartStruct(name="a")])
    )


def _size_struct(obj: StructWidget) -> int:
    assert obj.spec is not None
    return obj.spec.size


def _grow_struct(obj: StructWidget, size: int) -> None:
    assert obj.spec is not None
    obj.spec.size = size
    for part in obj.spec.parts:
        if part.name == "b":
            part.size = size


def _report_struct(obj: StructWidget, ready: int) -> None:
    obj.status = obj.status or StatusStruct()
    obj.status.ready = ready
    for part in obj.status.parts:
        part.ready = ready


def _ready_struct(obj: StructWidget) -> int:
    return 0 if obj.status is None else obj.status.ready


def _make_generic(name: str, namespace: str, size: int) -> Any:
    return GenericWidget(
        metadata=ObjectMeta(name=name, namespace=namespace), spec={"size": size, "parts": [{"name": "a"}]}
    )


def _grow_generic(obj: Any, size: int) -> None:
    obj["spec"]["size"] = size
    for part in obj["spec"].get("parts", ()):
        if part["name"] == "b":
            part["size"] = size


def _report_generic(obj: Any, ready: int) -> None:
    obj.setdefault("status", {})["ready"] = ready
    for part in obj["status"].get("parts", ()):
        part["ready"] = ready


def _make_handmade(name: str, namespace: str, size: int) -> HandmadeWidget:
    return HandmadeWidget(ObjectMeta(name=name, namespace=namespace), size, {"a": 1}, 0, {})


def _grow_handmade(obj: HandmadeWidget, size: int) -> None:
    obj.size = size
    if "b" in obj.parts:
        obj.parts["b"] = size


def _report_handmade(obj: HandmadeWidget, ready: int) -> None:
    obj.ready = ready
    obj.reports = dict.fromkeys(obj.reports, ready)


FAMILIES: Final[tuple[Family[Any], ...]] = (
    Family(
        name="pydantic",
        kind=Widget,
        make=_make_model,
        size=lambda obj: obj.spec.size,
        grow=_grow_model,
        report=_report_model,
        ready=lambda obj: obj.status.ready,
    ),
    Family(
        name="struct",
        kind=StructWidget,
        make=_make_struct,
        size=_size_struct,
        grow=_grow_struct,
        report=_report_struct,
        ready=_ready_struct,
    ),
    Family(
        name="generic",
        kind=GenericWidget,
        make=_make_generic,
        size=lambda obj: int(obj["spec"]["size"]),
        grow=_grow_generic,
        report=_report_generic,
        ready=lambda obj: int(obj.get("status", {}).get("ready", 0)),
    ),
    Family(
        name="codec",
        kind=HandmadeWidget,
        make=_make_handmade,
        size=lambda obj: obj.size,
        grow=_grow_handmade,
        report=_report_handmade,
        ready=lambda obj: obj.ready,
    ),
)


def grown(document: Mapping[str, Any], size: int) -> dict[str, Any]:
    """The document as it has to be after `grow`."""
    after = copy.deepcopy(dict(document))
    after["spec"]["size"] = size
    after["spec"]["parts"][1]["size"] = size
    return after


def reported(document: Mapping[str, Any], ready: int) -> dict[str, Any]:
    """The document as it has to be after `report`."""
    after = copy.deepcopy(dict(document))
    after["status"]["ready"] = ready
    after["status"]["parts"][0]["ready"] = ready
    return after
