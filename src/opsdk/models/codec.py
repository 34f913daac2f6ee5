"""Between an object and its bytes, for each family of classes.

Four families: msgspec structs (lightkube's resources and your own), pydantic custom resources, lightkube's generic
resources, and classes that bring `from_wire` and `to_wire`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol, Self, TypeVar, cast, final, runtime_checkable

import msgspec
from lightkube.models.meta_v1 import ObjectMeta

from opsdk.errors import DecodeError, ResourceDefinitionError
from opsdk.models._codec_faults import document_fault, message_and_place, of_msgspec, unwritable
from opsdk.models._struct_wire import encode_struct, struct_from_wire, struct_to_wire
from opsdk.models.families import is_custom_resource, is_validation_error
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
        from opsdk.models._model_codec import ModelCodec  # needs pydantic, which is there where a model is

        return ModelCodec(kind, resource)
    if callable(getattr(kind, "from_wire", None)) and callable(getattr(kind, "to_wire", None)):
        return _WireCodec(cast("type[WireObject]", kind), resource)
    if dict in kind.__mro__:
        return _GenericCodec(kind, resource)
    raise ResourceDefinitionError(
        f"{kind.__qualname__} is neither a msgspec struct nor a CustomResource nor a generic resource of lightkube: "
        "give it the methods from_wire and to_wire"
    )


_encoder = msgspec.json.Encoder()


@final
class _StructCodec:
    def __init__(self, kind: type[Any], resource: ResourceInfo) -> None:
        self.resource = resource
        self._kind = kind
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)
        # A class that leaves out defaults leaves out its type as well, where that is the default.
        omits = kind.__struct_config__.omit_defaults
        defaults = {field.name: field.default for field in msgspec.structs.fields(kind)}
        wanted = {"apiVersion": resource.api_version, "kind": resource.kind}
        self._writes_type = all(
            name in defaults and not (omits and defaults[name] == text) for name, text in wanted.items()
        )

    def decode(self, raw: bytes, /) -> Any:
        try:
            return self._decoder.decode(raw)
        except msgspec.ValidationError as error:
            try:
                return struct_from_wire(msgspec.json.decode(raw), self._kind)
            except msgspec.ValidationError:
                raise of_msgspec(self.resource, raw, error) from error
        except msgspec.DecodeError as error:
            raise of_msgspec(self.resource, raw, error) from error

    def encode(self, obj: Any, /, *, only_set: bool = False) -> bytes:
        try:
            if self._writes_type and obj.apiVersion == self.resource.api_version and obj.kind == self.resource.kind:
                return encode_struct(obj)
            document = struct_to_wire(obj)
        except ValueError as error:
            raise unwritable(self.resource, getattr(obj.metadata, "name", None), str(error)) from error
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


@final
class _GenericCodec:
    def __init__(self, kind: type[Any], resource: ResourceInfo) -> None:
        self.resource = resource
        self._kind = kind

    def decode(self, raw: bytes, /) -> Any:
        try:
            document = msgspec.json.decode(raw, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise of_msgspec(self.resource, raw, error) from error
        try:
            if document.get("metadata") is not None:
                struct_from_wire(document["metadata"], ObjectMeta)
        except msgspec.ValidationError as error:
            message, path = message_and_place(str(error))
            raise document_fault(self.resource, raw, message, f"metadata.{path}".rstrip(".")) from error
        return self._kind(document)

    def encode(self, obj: Any, /, *, only_set: bool = False) -> bytes:
        document = cast("dict[str, object]", obj)
        try:
            return _with_type(self.resource, cast("JsonObject", _plain(document)))
        except ValueError as error:
            raise unwritable(self.resource, None, str(error)) from error


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
            raise of_msgspec(self.resource, raw, error) from error
        try:
            return self._kind.from_wire(document)
        except DecodeError:
            raise
        except (ValueError, TypeError, LookupError) as error:
            if is_validation_error(error):
                from opsdk.models._model_codec import of_pydantic  # needs pydantic, which is there where its errors are

                raise of_pydantic(self.resource, raw, error) from error
            raise document_fault(self.resource, raw, f"{type(error).__name__}: {error}") from error

    def encode(self, obj: Any, /, *, only_set: bool = False) -> bytes:
        try:
            return _with_type(self.resource, cast("JsonObject", _plain(cast("WireObject", obj).to_wire())))
        except ValueError as error:
            raise unwritable(self.resource, None, str(error)) from error
