"""Which kinds the server has: all of Kubernetes' own, taken from lightkube's resource classes, and those of CRDs."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import final

import lightkube.resources
from lightkube.core.resource import (
    ApiInfo,
    GlobalResource,
    GlobalSubResource,
    NamespacedResource,
    NamespacedSubResource,
    Resource,
    api_info,
)

from opsdk.testing.apiserver._subresources import EXTRA
from opsdk.types import JsonObject

__all__ = ["KindInfo", "KindRegistry", "PrintColumn", "ScalePaths", "builtin_kinds", "find_builtin", "version_rank"]

ALL_VERBS = frozenset({"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"})

_SHORT_NAMES: dict[str, tuple[str, ...]] = {
    "certificatesigningrequests.certificates.k8s.io": ("csr",),
    "componentstatuses": ("cs",),
    "configmaps": ("cm",),
    "cronjobs.batch": ("cj",),
    "customresourcedefinitions.apiextensions.k8s.io": ("crd", "crds"),
    "daemonsets.apps": ("ds",),
    "deployments.apps": ("deploy",),
    "endpoints": ("ep",),
    "events": ("ev",),
    "events.events.k8s.io": ("ev",),
    "horizontalpodautoscalers.autoscaling": ("hpa",),
    "ingresses.networking.k8s.io": ("ing",),
    "ipaddresses.networking.k8s.io": ("ip",),
    "limitranges": ("limits",),
    "namespaces": ("ns",),
    "networkpolicies.networking.k8s.io": ("netpol",),
    "nodes": ("no",),
    "persistentvolumeclaims": ("pvc",),
    "persistentvolumes": ("pv",),
    "poddisruptionbudgets.policy": ("pdb",),
    "pods": ("po",),
    "priorityclasses.scheduling.k8s.io": ("pc",),
    "replicasets.apps": ("rs",),
    "replicationcontrollers": ("rc",),
    "resourcequotas": ("quota",),
    "serviceaccounts": ("sa",),
    "services": ("svc",),
    "statefulsets.apps": ("sts",),
    "storageclasses.storage.k8s.io": ("sc",),
    "volumeattributesclasses.storage.k8s.io": ("vac",),
}
_IN_ALL = frozenset(
    {
        "cronjobs.batch",
        "daemonsets.apps",
        "deployments.apps",
        "horizontalpodautoscalers.autoscaling",
        "jobs.batch",
        "pods",
        "replicasets.apps",
        "replicationcontrollers",
        "services",
        "statefulsets.apps",
    }
)
_EXTENSIONS = frozenset(
    {
        "apiservices.apiregistration.k8s.io",
        "customresourcedefinitions.apiextensions.k8s.io",
        "mutatingadmissionpolicies.admissionregistration.k8s.io",
        "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
        "mutatingwebhookconfigurations.admissionregistration.k8s.io",
        "validatingadmissionpolicies.admissionregistration.k8s.io",
        "validatingadmissionpolicybindings.admissionregistration.k8s.io",
        "validatingwebhookconfigurations.admissionregistration.k8s.io",
    }
)
_SUPPORTED_SUBRESOURCES = frozenset(
    {"approval", "binding", "ephemeralcontainers", "eviction", "finalize", "log", "resize", "scale", "status", "token"}
)
_DEPRECATED = {
    ("componentstatuses", "v1"): "v1 ComponentStatus is deprecated in v1.19+",
    ("endpoints", "v1"): "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
}
_NOT_DONE = {"componentstatuses": frozenset({"watch"})}
# The same objects under two groups.
_SHARED_STORAGE = {"events.events.k8s.io": "events"}


@final
@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Where a kind keeps what its scale subresource shows; each a path of field names."""

    spec_replicas: tuple[str, ...]
    status_replicas: tuple[str, ...]
    selector: tuple[str, ...] | None = None


@final
@dataclass(frozen=True, slots=True)
class PrintColumn:
    """One column of `kubectl get`, as a CRD declares it."""

    name: str
    type: str
    json_path: str
    description: str = ""
    format: str = ""
    priority: int = 0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class KindInfo:
    """One served resource: a plural in one version of a group.

    Args:
        schema: The structural schema (the version's `openAPIV3Schema`); None for built-in kinds.
        storage_schema: The schema of the version that objects are kept in.
        preserve_unknown: The CRD asks to keep fields that its schema does not know.
        storage: Which objects these are; the versions of one resource share it.
        storage_version: The version that objects are kept in.
        generation: Whether the kind counts generations.
        answers_with_object: Whether a finished DELETE answers with the object instead of a Status.
        conditional_update: Whether a PUT must carry a resourceVersion.
        created_by_put: Whether a PUT of a name that does not exist creates it.
        served_uid: The uid of the CRD that defines the kind; empty for built-in kinds.
        deprecation: The warning that every use of the version gets; empty where it is not deprecated.
    """

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    storage: str
    storage_version: str
    short_names: tuple[str, ...] = ()
    subresources: frozenset[str] = frozenset()
    categories: tuple[str, ...] = ()
    verbs: frozenset[str] = ALL_VERBS
    list_kind: str = ""
    builtin: bool = True
    generation: bool = False
    answers_with_object: bool = False
    conditional_update: bool = False
    created_by_put: bool = False
    schema: JsonObject | None = None
    storage_schema: JsonObject | None = None
    preserve_unknown: bool = False
    print_columns: tuple[PrintColumn, ...] = ()
    scale: ScalePaths | None = None
    served_uid: str = ""
    deprecation: str = ""

    @property
    def api_version(self) -> str:
        """`apps/v1`, or `v1` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def storage_api_version(self) -> str:
        """The apiVersion that objects are kept in."""
        group = "" if self.storage == "events" else self.group
        return f"{group}/{self.storage_version}" if group else self.storage_version

    @property
    def resource(self) -> str:
        """`deployments.apps`, or `pods` for the core group."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def key(self, namespace: str, name: str) -> str:
        """The key of an object in the store."""
        return f"{namespace}/{name}" if self.namespaced else name


@final
class KindRegistry:
    """The kinds that a server has at the moment."""

    def __init__(self, kinds: Iterable[KindInfo] = ()) -> None:
        self._by_resource: dict[tuple[str, str, str], KindInfo] = {}
        self._by_kind: dict[tuple[str, str, str], KindInfo] = {}
        self._by_storage: dict[str, KindInfo] = {}
        self._by_group_kind: dict[tuple[str, str], KindInfo] = {}
        self.revision: int = 0
        """Counts changes, for what is computed from the registry."""
        for kind in kinds:
            self.add(kind)

    @classmethod
    def with_builtins(cls) -> KindRegistry:
        """A registry of all built-in kinds."""
        return cls(builtin_kinds())

    def kinds(self) -> tuple[KindInfo, ...]:
        """All kinds, built-in ones first."""
        return tuple(self._by_resource.values())

    def add(self, info: KindInfo, /) -> None:
        """Serve a kind, or serve it differently."""
        self._by_resource[info.group, info.version, info.plural] = info
        self._by_kind[info.group, info.version, info.kind] = info
        self._by_group_kind[info.group, info.kind] = info
        if info.api_version == info.storage_api_version:
            self.keep(info)
        self.revision += 1

    def keep(self, info: KindInfo, /) -> None:
        """Use a version for storage; it need not be served."""
        self._by_storage[info.storage] = info

    def forget(self, storage: str, /) -> None:
        """A resource is gone with all its versions."""
        self._by_storage.pop(storage, None)

    def remove(self, info: KindInfo, /) -> None:
        """Stop serving a kind."""
        self._by_resource.pop((info.group, info.version, info.plural), None)
        self._by_kind.pop((info.group, info.version, info.kind), None)
        self._by_group_kind.pop((info.group, info.kind), None)
        self.revision += 1

    def find(self, group: str, version: str, plural: str) -> KindInfo | None:
        """The resource at a path, if there is one."""
        return self._by_resource.get((group, version, plural))

    def find_kind(self, group: str, version: str, kind: str) -> KindInfo | None:
        """The resource of a kind, if there is one."""
        return self._by_kind.get((group, version, kind))

    def stored_as(self, storage: str) -> KindInfo | None:
        """The kind in the version that its objects are kept in."""
        return self._by_storage.get(storage)

    def of_group_kind(self, group: str, kind: str) -> KindInfo | None:
        """Some version of a kind."""
        return self._by_group_kind.get((group, kind))

    def has_version(self, group: str, version: str) -> bool:
        """Whether anything is served in that version of that group."""
        return any(info.group == group and info.version == version for info in self._by_resource.values())

    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """Groups with their versions, the preferred one first; the core group is the empty string."""
        found: dict[str, list[str]] = {}
        for info in self._by_resource.values():
            versions = found.setdefault(info.group, [])
            if info.version not in versions:
                versions.append(info.version)
        return {group: tuple(sorted(versions, key=version_rank, reverse=True)) for group, versions in found.items()}


def version_rank(version: str) -> tuple[int, int, int]:
    """Kubernetes' order of versions: stable before beta before alpha, then higher numbers."""
    body = version[1:] if version.startswith("v") else ""
    for stability, word in ((1, "beta"), (0, "alpha")):
        major, found, minor = body.partition(word)
        if found and major.isdigit():
            return stability, int(major), int(minor) if minor.isdigit() else 0
    return (2, int(body), 0) if body.isdigit() else (-1, 0, 0)


@cache
def builtin_kinds() -> tuple[KindInfo, ...]:
    """All kinds that Kubernetes itself has, from lightkube's resource classes."""
    classes = tuple(_resource_classes())
    subresources: dict[tuple[str, str, str], set[str]] = {}
    mains: list[tuple[ApiInfo, bool]] = []
    for cls in classes:
        info = api_info(cls)
        if issubclass(cls, NamespacedSubResource | GlobalSubResource):
            if info.parent is not None and info.action in _SUPPORTED_SUBRESOURCES:
                parent = info.parent
                subresources.setdefault((parent.group, parent.version, info.plural), set()).add(info.action)
        elif issubclass(cls, NamespacedResource | GlobalResource):
            mains.append((info, issubclass(cls, NamespacedResource)))
    versions: dict[tuple[str, str], list[str]] = {}
    for info, _ in mains:
        versions.setdefault((info.resource.group, info.plural), []).append(info.resource.version)
    return tuple(
        _builtin(
            info,
            namespaced=namespaced,
            subresources=frozenset(
                subresources.get((info.resource.group, info.resource.version, info.plural), set[str]())
            ),
            storage_version=max(versions[info.resource.group, info.plural], key=version_rank),
        )
        for info, namespaced in mains
    )


def find_builtin(kind: str) -> KindInfo:
    """The stable version of a built-in kind.

    Raises:
        LookupError: There is none of that name.
    """
    for info in builtin_kinds():
        if info.kind == kind and info.version == info.storage_version and info.storage == info.resource:
            return info
    raise LookupError(kind)


def _resource_classes() -> Iterable[type[Resource]]:
    for module_info in pkgutil.iter_modules(lightkube.resources.__path__):
        module = importlib.import_module(f"lightkube.resources.{module_info.name}")
        for value in vars(module).values():
            candidate: object = value
            if isinstance(candidate, type) and issubclass(candidate, Resource) and "_api_info" in vars(candidate):
                yield candidate


def _builtin(info: ApiInfo, *, namespaced: bool, subresources: frozenset[str], storage_version: str) -> KindInfo:
    definition = info.resource
    resource = f"{info.plural}.{definition.group}" if definition.group else info.plural
    verbs = frozenset(
        {"post": "create", "put": "update"}.get(verb, verb) for verb in info.verbs if not verb.startswith("global_")
    )
    scale = ScalePaths(
        spec_replicas=("spec", "replicas"),
        status_replicas=("status", "replicas"),
        selector=("spec", "selector"),
    )
    return KindInfo(
        group=definition.group,
        version=definition.version,
        kind=definition.kind,
        plural=info.plural,
        singular=definition.kind.lower(),
        namespaced=namespaced,
        storage=_SHARED_STORAGE.get(resource, resource),
        storage_version=storage_version,
        short_names=_SHORT_NAMES.get(resource, ()),
        subresources=subresources | EXTRA.get(resource, frozenset()),
        categories=("all",) if resource in _IN_ALL else ("api-extensions",) if resource in _EXTENSIONS else (),
        verbs=verbs & ALL_VERBS - _NOT_DONE.get(resource, frozenset()),
        list_kind=f"{definition.kind}List",
        generation=resource in _WITH_GENERATION,
        answers_with_object=resource in _ANSWERS_WITH_OBJECT,
        conditional_update=resource in _CONDITIONAL_UPDATES,
        created_by_put=resource in _CREATED_BY_PUT,
        scale=scale if "scale" in subresources else None,
        deprecation=_DEPRECATED.get((resource, definition.version), ""),
    )


# What `metadata.generation` is kept for; custom resources always have it.
_WITH_GENERATION = frozenset(
    {
        "cronjobs.batch",
        "customresourcedefinitions.apiextensions.k8s.io",
        "csidrivers.storage.k8s.io",
        "daemonsets.apps",
        "deployments.apps",
        "deviceclasses.resource.k8s.io",
        "devicetaintrules.resource.k8s.io",
        "endpointslices.discovery.k8s.io",
        "evictionrequests.lifecycle.k8s.io",
        "flowschemas.flowcontrol.apiserver.k8s.io",
        "horizontalpodautoscalers.autoscaling",
        "ingressclasses.networking.k8s.io",
        "ingresses.networking.k8s.io",
        "jobs.batch",
        "mutatingadmissionpolicies.admissionregistration.k8s.io",
        "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
        "mutatingwebhookconfigurations.admissionregistration.k8s.io",
        "networkpolicies.networking.k8s.io",
        "poddisruptionbudgets.policy",
        "pods",
        "podtemplates",
        "priorityclasses.scheduling.k8s.io",
        "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
        "replicasets.apps",
        "replicationcontrollers",
        "resourceslices.resource.k8s.io",
        "statefulsets.apps",
        "validatingadmissionpolicies.admissionregistration.k8s.io",
        "validatingadmissionpolicybindings.admissionregistration.k8s.io",
        "validatingwebhookconfigurations.admissionregistration.k8s.io",
    }
)
# Kinds whose PUT needs a resourceVersion; custom resources are such too.
_CONDITIONAL_UPDATES = frozenset(
    {
        "apiservices.apiregistration.k8s.io",
        "clustertrustbundles.certificates.k8s.io",
        "compositepodgroups.scheduling.k8s.io",
        "csidrivers.storage.k8s.io",
        "csinodes.storage.k8s.io",
        "csistoragecapacities.storage.k8s.io",
        "customresourcedefinitions.apiextensions.k8s.io",
        "evictionrequests.lifecycle.k8s.io",
        "leasecandidates.coordination.k8s.io",
        "leases.coordination.k8s.io",
        "mutatingadmissionpolicies.admissionregistration.k8s.io",
        "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
        "mutatingwebhookconfigurations.admissionregistration.k8s.io",
        "podcertificaterequests.certificates.k8s.io",
        "poddisruptionbudgets.policy",
        "podgroups.scheduling.k8s.io",
        "resourcepoolstatusrequests.resource.k8s.io",
        "runtimeclasses.node.k8s.io",
        "storageversionmigrations.storagemigration.k8s.io",
        "storageversions.internal.apiserver.k8s.io",
        "validatingadmissionpolicies.admissionregistration.k8s.io",
        "validatingadmissionpolicybindings.admissionregistration.k8s.io",
        "validatingwebhookconfigurations.admissionregistration.k8s.io",
        "volumeattachments.storage.k8s.io",
        "workloads.scheduling.k8s.io",
    }
)
# Kinds that a PUT creates.
_CREATED_BY_PUT = frozenset(
    {
        "clusterrolebindings.rbac.authorization.k8s.io",
        "clusterroles.rbac.authorization.k8s.io",
        "endpoints",
        "events",
        "events.events.k8s.io",
        "leasecandidates.coordination.k8s.io",
        "leases.coordination.k8s.io",
        "limitranges",
        "rolebindings.rbac.authorization.k8s.io",
        "roles.rbac.authorization.k8s.io",
        "runtimeclasses.node.k8s.io",
        "services",
    }
)
# Kinds whose DELETE answers with the object instead of a Status.
_ANSWERS_WITH_OBJECT = frozenset(
    {
        "csidrivers.storage.k8s.io",
        "csinodes.storage.k8s.io",
        "deviceclasses.resource.k8s.io",
        "namespaces",
        "persistentvolumeclaims",
        "persistentvolumes",
        "pods",
        "podtemplates",
        "resourceclaims.resource.k8s.io",
        "resourceclaimtemplates.resource.k8s.io",
        "resourcepoolstatusrequests.resource.k8s.io",
        "resourcequotas",
        "resourceslices.resource.k8s.io",
        "serviceaccounts",
        "services",
        "storageclasses.storage.k8s.io",
        "volumeattachments.storage.k8s.io",
        "volumeattributesclasses.storage.k8s.io",
    }
)
