"""Custom resources as pydantic models, and what every layer needs to know about any object.

Three parts: models (`Model`, `CustomResource`, `MachineStatus`, lightkube's structs inside them), knowledge about
classes and objects (`resource_of`, `codec_of`, `metadata_of`, conditions), and CRD manifests (`crd_manifest`).
"""

from opsdk.models.base import Model, NoStatus
from opsdk.models.codec import Codec, WireObject, codec_of
from opsdk.models.conditions import find_condition, is_condition_true, set_condition
from opsdk.models.crd import crd_manifest, crd_manifests, crd_yaml, manifests_yaml
from opsdk.models.crd_changes import crd_losses
from opsdk.models.custom_resource import CustomResource
from opsdk.models.machine_status import (
    AnyMachineStatus,
    MachineStatus,
    MachineStatusStruct,
    StateTransition,
    StateTransitionStruct,
)
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
from opsdk.models.resources import ResourceInfo, resource_of
from opsdk.models.scalars import Duration, Quantity
from opsdk.models.structs import Conditions, K8s, K8sStruct, MicroTime, Time

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
    "manifests_yaml",
    "metadata_of",
    "name_of",
    "owner_reference_to",
    "request_of",
    "resource_of",
    "set_condition",
    "view_of",
]
