"""The pydantic base of everything that goes over the wire as part of a custom resource."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Unpack, get_args, get_origin

import msgspec
from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic.errors import PydanticSchemaGenerationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from opsdk.errors import ResourceDefinitionError
from opsdk.models._schema_rules import with_rules
from opsdk.models.markers import Cel
from opsdk.models.structs import K8sStruct

__all__ = ["Model", "NoStatus"]


class Model(BaseModel):
    """A part of a custom resource: snake_case in Python, camelCase on the wire.

    A name that the rule does not give (`clusterIP`) is set with `Annotated[str, Field(alias="clusterIP")]`; inside
    `Annotated` it does not change the constructor that type checkers see.

    Args:
        rules: CEL rules on the object that the model is, which may compare its fields; subclasses inherit them.

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

    _opsdk_rules: ClassVar[tuple[Cel, ...]] = ()

    def __init_subclass__(cls, *, rules: Sequence[Cel] = (), **kwargs: Unpack[ConfigDict]) -> None:
        super().__init_subclass__(**kwargs)
        inherited = [rule for base in cls.__bases__ if issubclass(base, Model) for rule in base._opsdk_rules]  # noqa: SLF001 - our own class
        cls._opsdk_rules = tuple(dict.fromkeys((*inherited, *rules)))

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__()  # the keywords are for __init_subclass__

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler, /) -> JsonSchemaValue:
        out = handler(schema)
        with_rules(handler.resolve_ref_schema(out), *(rule.document() for rule in cls._opsdk_rules))
        return out

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
