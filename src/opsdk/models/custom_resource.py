"""Custom resources as pydantic models."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, Unpack, final

import msgspec
from lightkube.core.resource import ApiInfo, ResourceDef
from lightkube.models.meta_v1 import ObjectMeta
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypeVar

from opsdk.errors import ResourceDefinitionError
from opsdk.models._names import group_fault, kind_fault, label_fault, plural_of
from opsdk.models.base import Model, NoStatus
from opsdk.models.markers import Cel, PrintColumn, Scale
from opsdk.models.structs import K8s
from opsdk.types import Scope

__all__ = ["CustomResource", "Definition", "definition_of"]

SpecT = TypeVar("SpecT", bound=BaseModel)
StatusT = TypeVar("StatusT", bound=BaseModel, default=NoStatus)

_VERBS_OF_ALL = ("delete", "deletecollection", "get", "list", "patch", "post", "put", "watch")
_VERBS_ACROSS_NAMESPACES = ("global_list", "global_watch")


@final
class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """What the class keywords of a `CustomResource` said, completed with defaults. See there."""

    group: str | None = None
    version: str | None = None
    kind: str | None = None
    plural: str | None = None
    singular: str | None = None
    scope: Scope = "Namespaced"
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    print_columns: tuple[PrintColumn, ...] | None = None
    scale: Scale | None = None
    rules: tuple[Cel, ...] = ()
    selectable_fields: tuple[str, ...] = ()
    storage: bool | None = None
    served: bool = True
    deprecated: bool | str = False


def _none() -> Any:
    """Stands where the class of the status is not known yet; replaced for each class that stands for a kind."""
    raise ResourceDefinitionError("a generic CustomResource stands for no kind and cannot be instantiated")


def _is_no_status(status: BaseModel) -> bool:
    return isinstance(status, NoStatus) and not status.model_extra


class CustomResource(Model, Generic[SpecT, StatusT]):
    """An object of a kind of your own.

    ::

        class Widget(CustomResource[WidgetSpec, WidgetStatus], group="demo.example.com", version="v1"):
            "A web front end that follows its spec."

    A class with open type parameters, or with `abstract=True`, stands for no kind: a base for others. A class that
    inherits from one that stands for a kind stands for the same one, except for what its own keywords say.

    Args:
        group: API group, a DNS name with a dot.
        version: Version within the group.
        kind: Default: the class's name.
        plural: Name in paths and RBAC rules. Default: the lower-case English plural of the kind.
        singular: Default: the lower-case kind.
        scope: `Namespaced` (default) or `Cluster`.
        short_names: For kubectl.
        categories: Groups of kinds for kubectl, such as `all`.
        print_columns: Columns of `kubectl get`. Default: State, Ready and Age if the status is a `MachineStatus`,
            else the server's own.
        scale: The scale subresource, by choice.
        rules: CEL rules on the whole object; `metadata.name` can only be checked here.
        selectable_fields: Paths that field selectors may use (`.spec.tier`).
        storage: Whether objects are stored in this version; needs to be said only where a kind has several.
        served: Whether the server offers this version. Default: yes.
        deprecated: Warn users of this version, with a text of your own if it is one.
        abstract: Stands for no kind.

    Guarantees:
        * `metadata` and `status` are never None: an object made or read without them has empty ones of its own.
        * Unknown fields survive in spec and status.

    Raises:
        ResourceDefinitionError: When the class is made: a keyword is missing or wrong, or the status cannot be empty.
    """

    # Pydantic looks for the docstrings of attributes also where `CustomResource[...]` is written, which is no class
    # statement, and may not find the end of it. The attributes that have docstrings are those of spec and status.
    model_config: ClassVar[ConfigDict] = ConfigDict(use_attribute_docstrings=False)

    _api_info: ClassVar[ApiInfo]
    _opsdk_definition: ClassVar[Definition] = Definition()

    apiVersion: str = ""  # noqa: N815 - Kubernetes' spelling
    kind: str = ""
    metadata: K8s[ObjectMeta] = Field(default_factory=ObjectMeta)
    spec: SpecT
    status: StatusT = Field(default_factory=_none, exclude_if=_is_no_status)

    def __init_subclass__(
        cls,
        *,
        group: str | None = None,
        version: str | None = None,
        kind: str | None = None,
        plural: str | None = None,
        singular: str | None = None,
        scope: Scope | None = None,
        short_names: Sequence[str] | None = None,
        categories: Sequence[str] | None = None,
        print_columns: Sequence[PrintColumn] | None = None,
        scale: Scale | None = None,
        rules: Sequence[Cel] | None = None,
        selectable_fields: Sequence[str] | None = None,
        storage: bool | None = None,
        served: bool | None = None,
        deprecated: bool | str | None = None,
        abstract: bool = False,
        **kwargs: Unpack[ConfigDict],
    ) -> None:
        try:
            super().__init_subclass__(**kwargs)
        except TypeError as error:
            if not kwargs:
                raise
            # Pydantic has taken its own by now, and another base would have taken what it knows.
            known = ", ".join([*Definition.__struct_fields__, "abstract"])
            raise ResourceDefinitionError(
                f"{cls.__qualname__}: unknown keyword {', '.join(kwargs)}; known are: {known}, and pydantic's own"
            ) from error
        before = cls._opsdk_definition
        if kind is not None and kind != before.kind:  # another kind: the names are not its own
            before = msgspec.structs.replace(before, plural=None, singular=None, short_names=())
        if version is not None and version != before.version:
            before = msgspec.structs.replace(before, storage=None, served=True, deprecated=False)
        given: dict[str, Any] = {
            "group": group,
            "version": version,
            "kind": kind,
            "plural": plural,
            "singular": singular,
            "scope": scope,
            "short_names": _as_tuple(cls, "short_names", short_names),
            "categories": _as_tuple(cls, "categories", categories),
            "print_columns": None if print_columns is None else tuple(print_columns),
            "scale": scale,
            "rules": None if rules is None else tuple(rules),
            "selectable_fields": _as_tuple(cls, "selectable_fields", selectable_fields),
            "storage": storage,
            "served": served,
            "deprecated": deprecated,
        }
        cls._opsdk_definition = msgspec.structs.replace(
            before, **{name: value for name, value in given.items() if value is not None}
        )

    @classmethod
    def __pydantic_init_subclass__(cls, *, abstract: bool = False, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__()
        generic = cls.__pydantic_generic_metadata__
        if abstract or generic["parameters"] or generic["origin"] is not None:
            return
        definition = _completed(cls, cls._opsdk_definition)
        cls._opsdk_definition = definition
        cls._api_info = ApiInfo(
            resource=ResourceDef(definition.group or "", definition.version or "", definition.kind or ""),
            plural=definition.plural or "",
            verbs=[*_VERBS_OF_ALL, *(_VERBS_ACROSS_NAMESPACES if definition.scope == "Namespaced" else ())],
        )
        _fill_defaults(cls, definition)


def _as_tuple(cls: type, field: str, values: Sequence[str] | None) -> tuple[str, ...] | None:
    if isinstance(values, str):
        raise ResourceDefinitionError(f"{cls.__qualname__}: {field} is a list of texts, not one text: [{values!r}]")
    return None if values is None else tuple(values)


def _completed(cls: type[BaseModel], given: Definition) -> Definition:
    kind = cls.__name__ if given.kind is None else given.kind
    definition = msgspec.structs.replace(
        given,
        kind=kind,
        plural=plural_of(kind) if given.plural is None else given.plural,
        singular=kind.lower() if given.singular is None else given.singular,
    )
    where = cls.__qualname__
    for field, value, fault in (
        ("group", definition.group, group_fault),
        ("version", definition.version, label_fault),
        ("kind", definition.kind, kind_fault),
        ("plural", definition.plural, label_fault),
        ("singular", definition.singular, label_fault),
        *(("short_names", name, label_fault) for name in definition.short_names),
        *(("categories", name, label_fault) for name in definition.categories),
    ):
        if value is None:
            raise ResourceDefinitionError(
                f"{where}: {field} is missing; say `class {cls.__name__}(CustomResource[...], group=..., version=...)`"
                ", or abstract=True if it is a base for other kinds"
            )
        problem = fault(value)
        if problem is not None:
            raise ResourceDefinitionError(f"{where}: {field} {value!r} {problem}")
    if definition.scope not in {"Namespaced", "Cluster"}:
        raise ResourceDefinitionError(f"{where}: scope {definition.scope!r} must be 'Namespaced' or 'Cluster'")
    return definition


def _fill_defaults(cls: type[BaseModel], definition: Definition) -> None:
    members = cls.model_fields
    members["apiVersion"].default = f"{definition.group}/{definition.version}"
    members["kind"].default = definition.kind
    status = members["status"]
    model = status.annotation
    if status.default_factory is _none or status.is_required():
        if not (inspect.isclass(model) and issubclass(model, BaseModel)):
            raise ResourceDefinitionError(f"{cls.__qualname__}: status must be a model, not {model!r}")
        needed = [name for name, field in model.model_fields.items() if field.is_required()]
        if needed:
            raise ResourceDefinitionError(
                f"{cls.__qualname__}: a new object has an empty status, but {model.__qualname__} cannot be empty: "
                f"give {', '.join(needed)} a default"
            )
        status.default_factory = model
    cls.model_rebuild(force=True, raise_errors=False)


def definition_of(cls: type[CustomResource[Any, Any]]) -> Definition:
    """What the class keywords said, completed with defaults.

    Raises:
        ResourceDefinitionError: The class stands for no kind.
    """
    if not hasattr(cls, "_api_info"):
        raise ResourceDefinitionError(f"{cls.__qualname__} stands for no kind: it is a base for others")
    return cls._opsdk_definition  # pyright: ignore[reportPrivateUsage] - this module's own
