"""Between an object and its bytes, for each family of classes.

Four families: msgspec structs (lightkube's resources and your own), pydantic custom resources, lightkube's generic
resources, and classes that bring `from_wire` and `to_wire`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Literal, Protocol, Self, TypeVar, cast, final, get_args, get_origin, runtime_checkable

import msgspec
from lightkube.models.meta_v1 import ObjectMeta
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError

from opsdk.errors import DecodeError, ObjectError, ResourceDefinitionError
from opsdk.models._struct_wire import encode_struct, struct_from_wire, struct_to_wire
from opsdk.models.custom_resource import CustomResource, is_custom_resource
from opsdk.models.partial import PartialObjectMetadata
from opsdk.models.resources import ResourceInfo, resource_of
from opsdk.protocols import KubeObject
from opsdk.types import JsonObject

__all__ = ["Codec", "WireObject", "codec_of"]

T = TypeVar("T", bound=KubeObject)
A = TypeVar("A")


class Codec(Protocol[T]):
    """Turns objects of one class into bytes and back.

    Guarantees:
        * What is encoded always says its apiVersion and kind.
        * Times are UTC and end in Z; a MicroTime always has six digits.
    """

    @property
    def resource(self) -> ResourceInfo:
        """The kind."""
        ...

    def decode(self, raw: bytes, /) -> T:
        """The object of a JSON document.

        Raises:
            DecodeError: It does not fit; says which object and field.
        """
        ...

    def encode(self, obj: T, /, *, only_set: bool = False) -> bytes:
        """The object as JSON.

        Args:
            obj: The object.
            only_set: Only what was given or changed, not what has its default: what an apply should own. Structs
                know no difference; they always leave out what has its default.

        Raises:
            ObjectError: A time has no time zone; the text names the field.
        """
        ...


@runtime_checkable
class WireObject(KubeObject, Protocol):
    """A class that knows its own JSON."""

    @classmethod
    def from_wire(cls, document: JsonObject, /) -> Self:
        """The object of a document.

        Raises:
            ValueError: It does not fit.
        """
        ...

    def to_wire(self) -> JsonObject:
        """The object's document."""
        ...


def codec_of(kind: type[T]) -> Codec[T]:
    """The codec of a class. Made once for each class.

    Raises:
        ResourceDefinitionError: The class does not say which kind it stands for, or belongs to none of the families.
    """
    return _codec_of(kind)


@lru_cache(maxsize=4096)
def _codec_of(kind: type[Any]) -> Codec[Any]:
    resource = resource_of(kind)
    if issubclass(kind, PartialObjectMetadata):
        return _PartialCodec(kind, resource)
    if issubclass(kind, msgspec.Struct):
        return _StructCodec(kind, resource)
    if is_custom_resource(kind):
        return _ModelCodec(kind, resource)
    if callable(getattr(kind, "from_wire", None)) and callable(getattr(kind, "to_wire", None)):
        return _WireCodec(cast("type[WireObject]", kind), resource)
    if dict in kind.__mro__:
        return _GenericCodec(kind, resource)
    raise ResourceDefinitionError(
        f"{kind.__qualname__} is neither a msgspec struct nor a CustomResource nor a generic resource of lightkube: "
        "give it the methods from_wire and to_wire"
    )


_encoder = msgspec.json.Encoder()


class _Head(msgspec.Struct):
    metadata: Any = None


_head_decoder = msgspec.json.Decoder(_Head)
_AT = re.compile(r"^(?P<message>.*?)(?: - at `\$\.?(?P<path>.*)`)?$", re.DOTALL)


def _fault(resource: ResourceInfo, raw: bytes, message: str, field: str = "") -> DecodeError:
    """The error for a document, with as much of its name as can be read."""
    metadata: object = None
    with suppress(msgspec.DecodeError):
        metadata = _head_decoder.decode(raw).metadata
    name: object = None
    namespace: object = None
    if isinstance(metadata, dict):
        names = cast("dict[str, object]", metadata)
        name, namespace = names.get("name"), names.get("namespace")
    return DecodeError(
        message,
        kind=resource.kind,
        field=field,
        namespace=namespace if isinstance(namespace, str) else None,
        name=name if isinstance(name, str) else "",
    )


def _of_msgspec(resource: ResourceInfo, raw: bytes, error: msgspec.DecodeError) -> DecodeError:
    if not isinstance(error, msgspec.ValidationError):
        return _fault(resource, raw, f"not a JSON document: {error}")
    found = _AT.match(str(error))
    if found is None:
        return _fault(resource, raw, str(error))
    return _fault(resource, raw, found["message"], found["path"] or "")


def _place(location: Sequence[int | str]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")


def _of_pydantic(resource: ResourceInfo, raw: bytes, error: ValidationError) -> DecodeError:
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    first = faults[0]
    if first["type"] == "json_invalid":
        return _fault(resource, raw, f"not a JSON document: {first['msg']}")
    places: list[tuple[str, str]] = []
    for fault in faults:
        found = _AT.match(fault["msg"])
        message, inner = (fault["msg"], "") if found is None else (found["message"], found["path"] or "")
        place = _place(fault["loc"])
        places.append(
            (f"{place}.{inner}" if inner and place else place or inner, message.removeprefix("Value error, "))
        )
    field, message = places[0]
    if len(places) > 1:
        message += "; " + "; ".join(f"{where}: {text}" for where, text in places[1:4])
        if len(places) > 4:
            message += f"; and {len(places) - 4} more"
    return _fault(resource, raw, message, field)


def _unwritable(resource: ResourceInfo, name: str | None, error: ValueError) -> ObjectError:
    text = str(error)
    if isinstance(error, PydanticSerializationError):  # keeps the cause only as text, behind its own
        text = text.rsplit("ValueError: ", 1)[-1]
    return ObjectError(f"{resource.kind}{f' {name}' if name else ''} cannot be written: {text}")


@final
class _StructCodec:
    def __init__(self, kind: type[Any], resource: ResourceInfo) -> None:
        self.resource = resource
        self._kind = kind
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)
        names = {field.name for field in msgspec.structs.fields(kind)}
        self._has_type = {"apiVersion", "kind"} <= names

    def decode(self, raw: bytes, /) -> Any:
        try:
            return self._decoder.decode(raw)
        except msgspec.ValidationError as error:
            try:
                return struct_from_wire(msgspec.json.decode(raw), self._kind)
            except msgspec.ValidationError:
                raise _of_msgspec(self.resource, raw, error) from error
        except msgspec.DecodeError as error:
            raise _of_msgspec(self.resource, raw, error) from error

    def encode(self, obj: Any, /, *, only_set: bool = False) -> bytes:
        try:
            if self._has_type and obj.apiVersion == self.resource.api_version and obj.kind == self.resource.kind:
                return encode_struct(obj)
            document = struct_to_wire(obj)
        except ValueError as error:
            raise _unwritable(self.resource, getattr(obj.metadata, "name", None), error) from error
        return _with_type(self.resource, document)


@final
class _PartialCodec:
    """The server calls each of these `PartialObjectMetadata`; here they have the kind of what they are of."""

    def __init__(self, kind: type[PartialObjectMetadata], resource: ResourceInfo) -> None:
        self.resource = resource
        self._struct = _StructCodec(kind, resource)

    def decode(self, raw: bytes, /) -> Any:
        obj = self._struct.decode(raw)
        obj.apiVersion, obj.kind = self.resource.api_version, self.resource.kind
        return obj

    def encode(self, obj: Any, /, *, only_set: bool = False) -> bytes:
        return self._struct.encode(obj, only_set=only_set)


def _with_type(resource: ResourceInfo, document: JsonObject) -> bytes:
    rest = {key: value for key, value in document.items() if key not in {"apiVersion", "kind"}}
    return _encoder.encode({"apiVersion": resource.api_version, "kind": resource.kind, **rest})


_TYPE = {"apiVersion", "kind"}
_TYPE_AND_METADATA = {*_TYPE, "metadata"}


@final
class _ModelCodec:
    def __init__(self, kind: type[CustomResource[Any, Any]], resource: ResourceInfo) -> None:
        self.resource = resource
        self._kind = kind
        head = _encoder.encode({"apiVersion": resource.api_version, "kind": resource.kind})
        self._head = head[:-1]
        # Metadata is a struct, which msgspec writes in a tenth of the time, unless somebody has a say in how.
        decorators = kind.__pydantic_decorators__
        self._plain = not (decorators.model_serializers or decorators.field_serializers)

    def decode(self, raw: bytes, /) -> Any:
        try:
            obj = self._kind.__pydantic_validator__.validate_json(raw)
        except ValidationError as error:
            raise _of_pydantic(self.resource, raw, error) from error
        if obj.kind != self.resource.kind or obj.apiVersion != self.resource.api_version:
            raise _fault(
                self.resource,
                raw,
                f"the document is {obj.kind!r} of {obj.apiVersion!r}, the model is of {self.resource.api_version!r}",
                "kind" if obj.kind != self.resource.kind else "apiVersion",
            )
        return obj

    def encode(self, obj: Any, /, *, only_set: bool = False) -> bytes:
        model = cast("CustomResource[Any, Any]", obj)
        if only_set:
            _note_changes(model)
        head, exclude = self._head, _TYPE
        try:
            if self._plain and not only_set and type(model.metadata) is ObjectMeta:
                head = b"".join((head, b',"metadata":', encode_struct(model.metadata)))
                exclude = _TYPE_AND_METADATA
            body = self._kind.__pydantic_serializer__.to_json(
                model, by_alias=True, exclude_none=True, exclude_unset=only_set, exclude=exclude
            )
        except ValueError as error:
            raise _unwritable(self.resource, model.metadata.name, error) from error
        return head + b"}" if body == b"{}" else b"".join((head, b",", body[1:]))


def _note_changes(model: BaseModel) -> None:
    """Count as set what was changed without being assigned (`widget.status.conditions.append(…)`), and discriminators.

    Only what is set anyway is looked into.
    """
    given = model.__pydantic_fields_set__
    for name, field in type(model).model_fields.items():
        value: object = getattr(model, name)
        if name not in given and not field.is_required():
            if field.default_factory_takes_validated_data or _differs(
                value, field.get_default(call_default_factory=True)
            ):
                given.add(name)
            elif get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1:
                given.add(name)  # it says which variant of a union this is
        if name in given:
            _note_changes_in(value)


def _note_changes_in(value: object) -> None:
    if isinstance(value, BaseModel):
        _note_changes(value)
    elif isinstance(value, list | tuple):
        for item in cast("Sequence[object]", value):
            _note_changes_in(item)
    elif isinstance(value, dict):
        for item in cast("dict[object, object]", value).values():
            _note_changes_in(item)


def _set_fields(model: object) -> set[str]:
    return model.model_fields_set if isinstance(model, BaseModel) else set()


def _differs(value: object, default: object) -> bool:
    """Whether a value is no longer the default, or has anything assigned to it that the default has not."""
    if not isinstance(value, BaseModel) or type(value) is not type(default):
        return value != default
    if value != default or not value.model_fields_set <= _set_fields(default):
        return True
    return any(_differs(getattr(value, name), getattr(default, name)) for name in type(value).model_fields)


@final
class _GenericCodec:
    def __init__(self, kind: type[Any], resource: ResourceInfo) -> None:
        self.resource = resource
        self._kind = kind

    def decode(self, raw: bytes, /) -> Any:
        try:
            document = msgspec.json.decode(raw, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise _of_msgspec(self.resource, raw, error) from error
        try:
            if document.get("metadata") is not None:
                struct_from_wire(document["metadata"], ObjectMeta)
        except msgspec.ValidationError as error:
            found = _AT.match(str(error))
            path = "" if found is None else found["path"] or ""
            message = str(error) if found is None else found["message"]
            raise _fault(self.resource, raw, message, f"metadata.{path}".rstrip(".")) from error
        return self._kind(document)

    def encode(self, obj: Any, /, *, only_set: bool = False) -> bytes:
        document = cast("dict[str, object]", obj)
        try:
            return _with_type(self.resource, cast("JsonObject", _plain(document)))
        except ValueError as error:
            raise _unwritable(self.resource, None, error) from error


def _plain(value: object) -> object:
    """The value with the structs in it written as Kubernetes does."""
    if isinstance(value, msgspec.Struct):
        return struct_to_wire(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in cast("dict[str, object]", value).items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast("Sequence[object]", value)]
    return value


@final
class _WireCodec:
    def __init__(self, kind: type[WireObject], resource: ResourceInfo) -> None:
        self.resource = resource
        self._kind = kind

    def decode(self, raw: bytes, /) -> Any:
        try:
            document = msgspec.json.decode(raw, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise _of_msgspec(self.resource, raw, error) from error
        try:
            return self._kind.from_wire(document)
        except DecodeError:
            raise
        except ValidationError as error:
            raise _of_pydantic(self.resource, raw, error) from error
        except (ValueError, TypeError, LookupError) as error:
            raise _fault(self.resource, raw, f"{type(error).__name__}: {error}") from error

    def encode(self, obj: Any, /, *, only_set: bool = False) -> bytes:
        try:
            return _with_type(self.resource, cast("JsonObject", _plain(cast("WireObject", obj).to_wire())))
        except ValueError as error:
            raise _unwritable(self.resource, None, error) from error
