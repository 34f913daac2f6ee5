"""Between custom resources that are pydantic models and their bytes. Loaded with the first of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, cast, final, get_args, get_origin

import msgspec
from lightkube.models.meta_v1 import ObjectMeta
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError

from opsdk.errors import DecodeError
from opsdk.models._codec_faults import document_fault, message_and_place, unwritable
from opsdk.models._struct_wire import encode_struct
from opsdk.models.custom_resource import CustomResource
from opsdk.models.resources import ResourceInfo

__all__ = ["ModelCodec", "of_pydantic"]

_encoder = msgspec.json.Encoder()


def _place(location: Sequence[int | str]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")


def of_pydantic(resource: ResourceInfo, raw: bytes, error: ValidationError) -> DecodeError:
    """The error for a document that pydantic refused."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    first = faults[0]
    if first["type"] == "json_invalid":
        return document_fault(resource, raw, f"not a JSON document: {first['msg']}")
    places: list[tuple[str, str]] = []
    for fault in faults:
        message, inner = message_and_place(fault["msg"])
        place = _place(fault["loc"])
        places.append(
            (f"{place}.{inner}" if inner and place else place or inner, message.removeprefix("Value error, "))
        )
    field, message = places[0]
    if len(places) > 1:
        message += "; " + "; ".join(f"{where}: {text}" for where, text in places[1:4])
        if len(places) > 4:
            message += f"; and {len(places) - 4} more"
    return document_fault(resource, raw, message, field)


def _reason(error: ValueError) -> str:
    text = str(error)
    if isinstance(error, PydanticSerializationError):  # keeps the cause only as text, behind its own
        text = text.rsplit("ValueError: ", 1)[-1]
    return text


_TYPE = {"apiVersion", "kind"}
_TYPE_AND_METADATA = {*_TYPE, "metadata"}


@final
class ModelCodec:
    """The codec of one `CustomResource`."""

    def __init__(self, kind: type[CustomResource[Any, Any]], resource: ResourceInfo) -> None:
        self.resource = resource
        self._kind = kind
        head = _encoder.encode({"apiVersion": resource.api_version, "kind": resource.kind})
        self._head = head[:-1]
        # Metadata is a struct, which msgspec writes in a tenth of the time, unless somebody has a say in how.
        decorators = kind.__pydantic_decorators__
        self._plain = not (decorators.model_serializers or decorators.field_serializers)

    def decode(self, raw: bytes, /) -> Any:
        """See `Codec`."""
        try:
            obj = self._kind.__pydantic_validator__.validate_json(raw)
        except ValidationError as error:
            raise of_pydantic(self.resource, raw, error) from error
        if obj.kind != self.resource.kind or obj.apiVersion != self.resource.api_version:
            raise document_fault(
                self.resource,
                raw,
                f"the document is {obj.kind!r} of {obj.apiVersion!r}, the model is of {self.resource.api_version!r}",
                "kind" if obj.kind != self.resource.kind else "apiVersion",
            )
        return obj

    def encode(self, obj: Any, /, *, only_set: bool = False) -> bytes:
        """See `Codec`."""
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
            raise unwritable(self.resource, model.metadata.name, _reason(error)) from error
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
