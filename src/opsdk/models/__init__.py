"""Custom resources as pydantic models, and what every layer needs to know about any object.

Three parts: models (`Model`, `CustomResource`, `MachineStatus`, lightkube's structs inside them), knowledge about
classes and objects (`resource_of`, `codec_of`, `metadata_of`, conditions), and CRD manifests (`crd_manifest`). What
needs pydantic is loaded when it is first asked for, and so are manifests: an operator whose custom resources are
structs never loads pydantic, and one at work makes no manifests.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from opsdk.models.codec import Codec, WireObject, codec_of
from opsdk.models.conditions import find_condition, is_condition_true, set_condition
from opsdk.models.machine_status_struct import MachineStatusStruct, StateTransitionStruct
from opsdk.models.markers import (
    Cel,
    EmbeddedResource,
    Immutable,
    IntOrString,
    ListAtomic,
    ListMap,
    ListSet,
    MapAtomic,
    Nullable,
    PreserveUnknown,
    PrintColumn,
    Scale,
)
from opsdk.models.metadata import metadata_of, name_of, owner_reference_to, request_of, view_of
from opsdk.models.partial import PartialObjectMetadata, is_metadata_only, metadata_only
from opsdk.models.resources import ResourceInfo, resource_of
from opsdk.models.structs import Conditions, K8s, K8sStruct

if TYPE_CHECKING:
    from opsdk.models.base import Model, NoStatus
    from opsdk.models.crd import crd_manifest, crd_manifests, crd_yaml, manifests_yaml
    from opsdk.models.crd_changes import crd_losses
    from opsdk.models.custom_resource import CustomResource
    from opsdk.models.machine_status import AnyMachineStatus, MachineStatus, StateTransition
    from opsdk.models.scalars import Duration, MicroTime, Quantity, Time

__all__ = [
    "AnyMachineStatus",
    "Cel",
    "Codec",
    "Conditions",
    "CustomResource",
    "Duration",
    "EmbeddedResource",
    "Immutable",
    "IntOrString",
    "K8s",
    "K8sStruct",
    "ListAtomic",
    "ListMap",
    "ListSet",
    "MachineStatus",
    "MachineStatusStruct",
    "MapAtomic",
    "MicroTime",
    "Model",
    "NoStatus",
    "Nullable",
    "PartialObjectMetadata",
    "PreserveUnknown",
    "PrintColumn",
    "Quantity",
    "ResourceInfo",
    "Scale",
    "StateTransition",
    "StateTransitionStruct",
    "Time",
    "WireObject",
    "codec_of",
    "crd_losses",
    "crd_manifest",
    "crd_manifests",
    "crd_yaml",
    "find_condition",
    "is_condition_true",
    "is_metadata_only",
    "manifests_yaml",
    "metadata_of",
    "metadata_only",
    "name_of",
    "owner_reference_to",
    "request_of",
    "resource_of",
    "set_condition",
    "view_of",
]

_LATER: Final = {
    "AnyMachineStatus": "opsdk.models.machine_status",
    "CustomResource": "opsdk.models.custom_resource",
    "Duration": "opsdk.models.scalars",
    "MachineStatus": "opsdk.models.machine_status",
    "MicroTime": "opsdk.models.scalars",
    "Model": "opsdk.models.base",
    "NoStatus": "opsdk.models.base",
    "Quantity": "opsdk.models.scalars",
    "StateTransition": "opsdk.models.machine_status",
    "Time": "opsdk.models.scalars",
    "crd_losses": "opsdk.models.crd_changes",
    "crd_manifest": "opsdk.models.crd",
    "crd_manifests": "opsdk.models.crd",
    "crd_yaml": "opsdk.models.crd",
    "manifests_yaml": "opsdk.models.crd",
}

if not TYPE_CHECKING:  # which would believe in every name

    def __getattr__(name: str) -> object:
        home = _LATER.get(name)
        if home is None:
            msg = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(msg)
        value: object = getattr(import_module(home), name)
        globals()[name] = value
        return value
