"""Which family a class belongs to, asked without loading pydantic.

An operator whose custom resources are structs never needs pydantic, which costs a start 80 ms and 9 MB. Where a class
or an object is a model, pydantic and the module of its base are loaded already; so while they are not, nothing is.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeGuard

from typing_extensions import TypeIs

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

    from opsdk.models.custom_resource import CustomResource
    from opsdk.models.machine_status import MachineStatus

__all__ = ["is_custom_resource", "is_machine_model", "is_model", "is_validation_error"]


def is_model(value: object) -> TypeIs[BaseModel]:
    """Whether something is a model of pydantic."""
    base = _loaded("pydantic.main", "BaseModel")
    return base is not None and isinstance(value, base)


def is_custom_resource(kind: type[Any]) -> TypeGuard[type[CustomResource[Any, Any]]]:
    """Whether a class is a `CustomResource`."""
    base = _loaded("opsdk.models.custom_resource", "CustomResource")
    return base is not None and issubclass(kind, base)


def is_machine_model(status: object) -> TypeIs[MachineStatus]:
    """Whether a status is a `MachineStatus`; one that is a struct is none."""
    base = _loaded("opsdk.models.machine_status", "MachineStatus")
    return base is not None and isinstance(status, base)


def is_validation_error(error: Exception) -> TypeIs[ValidationError]:
    """Whether pydantic refused a value."""
    base = _loaded("pydantic_core", "ValidationError")
    return base is not None and isinstance(error, base)


def _loaded(module: str, name: str) -> type | None:
    """A class, if its module has been loaded that far."""
    found: type | None = getattr(sys.modules.get(module), name, None)
    return found
