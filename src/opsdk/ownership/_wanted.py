"""The children of one kind that an owner is to have, made ready to be written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar, final

import msgspec
from lightkube.models.meta_v1 import OwnerReference

from opsdk.models import ResourceInfo, codec_of, metadata_of, owner_reference_to, request_of, resource_of, view_of
from opsdk.ownership.labels import OWNER_SET_LABEL, OWNER_UID_LABEL
from opsdk.protocols import KubeObject
from opsdk.types import Request

__all__ = ["Owner", "Wanted", "belongs_to_nobody", "controller_of", "describe_owner", "wanted_children"]

Child = TypeVar("Child", bound=KubeObject)


@final
class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """Whose children, seen from the children.

    Args:
        info: The owner's kind.
        request: Its name.
        uid: Its uid.
        owner_set: The name of the `ResourceOwner`.
        labels: The labels of its children.
        reference: What its children carry where Kubernetes allows it.
    """

    info: ResourceInfo
    request: Request
    uid: str
    owner_set: str
    labels: Mapping[str, str]
    reference: OwnerReference

    @classmethod
    def of(cls, cr: KubeObject, owner_set: str) -> Owner:
        """The owner that `cr` is.

        Raises:
            ObjectError: It was not read from the server.
        """
        reference = owner_reference_to(cr)
        return cls(
            info=resource_of(type(cr)),
            request=request_of(cr),
            uid=reference.uid,
            owner_set=owner_set,
            labels={OWNER_UID_LABEL: reference.uid, OWNER_SET_LABEL: owner_set},
            reference=reference,
        )

    def __str__(self) -> str:
        return f"{self.info.kind} {self.request}"

    def may_be_referred_to(self, namespace: str | None) -> bool:
        """Whether an object in that namespace (None: in none) may have an owner reference to it."""
        return self.request.namespace is None or self.request.namespace == namespace

    def adopt(self, child: KubeObject) -> None:
        """Put our labels and, where allowed, our owner reference on a child, in place."""
        metadata, view = metadata_of(child), view_of(child)
        labels = view.labels or {}
        if not self.labels.items() <= labels.items():
            # A new map: the author may use theirs for other things. Not where ours are there already, for a map that
            # was changed in place is known by its identity.
            metadata.labels = {**labels, **self.labels}
        if self.may_be_referred_to(view.namespace):
            others = [reference for reference in view.ownerReferences or () if reference.uid != self.uid]
            metadata.ownerReferences = [*others, self.reference]

    def owns(self, child: KubeObject) -> bool:
        """Whether the child is ours: by our controller reference or uid label, and our owner-set.

        An object with another controller is not, whatever its labels say: EndpointSlices have those of their Service.
        """
        view = view_of(child)
        labels = view.labels or {}
        if labels.get(OWNER_SET_LABEL) != self.owner_set:
            return False
        controller = controller_of(child)
        return labels.get(OWNER_UID_LABEL) == self.uid if controller is None else controller.uid == self.uid


def controller_of(child: KubeObject) -> OwnerReference | None:
    """The reference to the child's controller, if it has one."""
    for entry in view_of(child).ownerReferences or ():
        if entry.controller:
            return entry
    return None


def belongs_to_nobody(child: KubeObject) -> bool:
    """Whether an object has neither a controller nor labels by which some `ResourceOwner` tracks it."""
    labels = view_of(child).labels or {}
    return controller_of(child) is None and OWNER_UID_LABEL not in labels and OWNER_SET_LABEL not in labels


def describe_owner(child: KubeObject) -> str:
    """Whom a child belongs to, for the text of an error; empty when it belongs to nobody."""
    controller = controller_of(child)
    labels = view_of(child).labels or {}
    owner_set = labels.get(OWNER_SET_LABEL, "")
    if controller is not None:
        return f"{controller.kind} {controller.name}" + (f" (owner set {owner_set})" if owner_set else "")
    return f"the owner with uid {labels[OWNER_UID_LABEL]} (owner set {owner_set})" if OWNER_UID_LABEL in labels else ""


@final
class Wanted(msgspec.Struct, Generic[Child], frozen=True, kw_only=True):
    """The desired children of one kind.

    Args:
        children: Copies of what was built, in that order, with namespace, labels and owner reference.
        faults: What makes them impossible to write; empty: nothing.
    """

    children: dict[Request, Child]
    faults: tuple[str, ...]


def wanted_children(
    owner: Owner, kind: type[Child], built: Sequence[Child] | None, *, only_set: bool, elsewhere: bool
) -> Wanted[Child]:
    """Check what was built, and make it ready to be written.

    Args:
        owner: Whose children.
        kind: Their class.
        built: What `build` returned.
        only_set: Whether the copies are to have only what was set.
        elsewhere: Whether children may be where Kubernetes allows no owner reference.
    """
    info, codec = resource_of(kind), codec_of(kind)
    children: dict[Request, Child] = {}
    faults: list[str] = []
    for number, original in enumerate(built or (), 1):
        place = f"{info.kind} number {number}"
        if not isinstance(original, kind):
            faults.append(f"{place} is a {type(original).__name__}")
            continue
        if original.metadata is None or not original.metadata.name:
            faults.append(f"{place} has no name")
            continue
        child = codec.decode(codec.encode(original, only_set=only_set))
        metadata = metadata_of(child)
        if info.namespaced:
            metadata.namespace = metadata.namespace or owner.request.namespace
        request = request_of(child)
        fault = _place_fault(owner, info, request, elsewhere=elsewhere)
        if request in children:
            fault = "is there twice"
        if fault:
            faults.append(f"{info.kind} {request} {fault}")
            continue
        owner.adopt(child)
        children[request] = child
    return Wanted(children=children, faults=tuple(faults))


def _place_fault(owner: Owner, info: ResourceInfo, request: Request, *, elsewhere: bool) -> str:
    if not info.namespaced:
        return "names a namespace, and its kind is cluster-scoped" if request.namespace is not None else ""
    if request.namespace is None:
        return "names no namespace, and its owner has none to give"
    if not elsewhere and not owner.may_be_referred_to(request.namespace):
        return (
            f"is in another namespace than its owner ({owner.request.namespace}), where the garbage collector cannot "
            "see it: declare it with For(..., finalizer=...)"
        )
    return ""
