"""The pydantic base of everything that goes over the wire as part of a custom resource."""

from __future__ import annotations

from typing import Annotated, ClassVar, get_args, get_origin

import msgspec
from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic.errors import PydanticSchemaGenerationError
from pydantic_core import CoreSchema

from opsdk.errors import ResourceDefinitionError
from opsdk.models.structs import K8sStruct

__all__ = ["Model", "NoStatus"]


class Model(BaseModel):
    """A part of a custom resource: snake_case in Python, camelCase on the wire.

    A name that the rule does not give (`clusterIP`) is set with `Annotated[str, Field(alias="clusterIP")]`; inside
    `Annotated` it does not change the constructor that type checkers see.

    Guarantees:
        * Fields that the model does not know survive a round trip.
        * Docstrings of classes and attributes become descriptions in the CRD.

    Not promised: assignments are not validated (`widget.spec.replicas = "three"` is the type checker's to refuse,
    `= -1` the API server's, by the same schema). Validation costs 1.6 µs instead of 0.3 for a number; what decides is
    that it would copy every list on its way in, so that `widget.status.conditions = found` is no longer `found`, and
    run model validators on half-changed objects. A subclass can turn it on: `validate_assignment=True`.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(
        alias_generator=to_camel,
        extra="allow",
        hide_input_in_errors=True,  # a spec can hold secrets, and errors end up in logs
        populate_by_name=True,
        serialize_by_alias=True,
        use_attribute_docstrings=True,
    )

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type[BaseModel], handler: GetCoreSchemaHandler, /) -> CoreSchema:
        try:
            return handler(source)
        except PydanticSchemaGenerationError as error:
            for name, field in cls.__pydantic_fields__.items():
                annotated = any(isinstance(entry, K8sStruct) for entry in field.metadata)
                struct = None if annotated else _bare_struct(field.annotation)
                if struct is not None:
                    raise ResourceDefinitionError(
                        f"{cls.__qualname__}.{name}: {struct.__name__} is a struct, which pydantic does not know; "
                        f"write K8s[{struct.__name__}] (from opsdk.models)"
                    ) from error
            raise


def _bare_struct(annotation: object) -> type | None:
    """The first struct in an annotation that is not wrapped in `K8s`."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return annotation
    if get_origin(annotation) is Annotated and any(isinstance(entry, K8sStruct) for entry in get_args(annotation)):
        return None
    return next((found for inner in get_args(annotation) if (found := _bare_struct(inner)) is not None), None)


class NoStatus(Model):
    """The status of a kind that has none: no status subresource, nothing sent."""
