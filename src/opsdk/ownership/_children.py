"""The children of one kind, for any owner.

`Children` is generic over the owner only; which class its children are of is known inside, so that an owner can hold
several kinds in one list without losing a type.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar, final

import msgspec

from opsdk.errors import ConflictError, NotFoundError, ObjectError
from opsdk.models import ResourceInfo, request_of, view_of
from opsdk.ownership._answers import answer_fault, children_fault
from opsdk.ownership._marks import Marks
from opsdk.ownership._pass import Pass, TypedPass
from opsdk.ownership._wanted import Owner, Wanted, wanted_children
from opsdk.protocols import Client, KubeObject
from opsdk.types import Preconditions, PropagationPolicy, Request

__all__ = ["Binding", "Children", "TypedChildren"]

CR = TypeVar("CR", bound=KubeObject)
CR_contra = TypeVar("CR_contra", bound=KubeObject, contravariant=True)
Child = TypeVar("Child", bound=KubeObject)

_logger = logging.getLogger("opsdk.ownership")


@final
class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """How children are read and written.

    Args:
        client: The client.
        fresh: The same, past its caches.
        owners: The class of the owners.
        field_manager: The name for server-side apply.
        propagation: What happens to the children of children that are deleted.
    """

    client: Client
    fresh: Client
    owners: type[KubeObject]
    field_manager: str
    propagation: PropagationPolicy


class Children(Protocol[CR_contra]):
    """The children of one kind, for any owner."""

    @property
    def kind(self) -> type[KubeObject]:
        """Their class."""
        ...

    @property
    def info(self) -> ResourceInfo:
        """Their kind."""
        ...

    @property
    def finalizer(self) -> str | None:
        """What holds an owner until its children of this kind are gone."""
        ...

    def begin(self, cr: CR_contra, owner: Owner, /) -> Pass:
        """A pass over the children of one owner, with what `build` says."""
        ...

    async def ready(self, cr: CR_contra, owner: Owner, /) -> bool:
        """Whether all desired children are there and ready."""
        ...

    async def present(self, owner: Owner, /) -> Sequence[KubeObject]:
        """All children of the owner that the server has."""
        ...

    async def delete(self, owner: Owner, child: KubeObject, /) -> None:
        """Delete this incarnation of a child, unless it stops being ours."""
        ...


@final
class TypedChildren(msgspec.Struct, Generic[CR, Child], frozen=True, kw_only=True):
    """The children of one kind. The arguments are those of `For`."""

    binding: Binding
    kind: type[Child]
    info: ResourceInfo
    build: Callable[[CR], list[Child] | None]
    update: Callable[[CR, Child], Child] | None
    is_ready: Callable[[Child], bool] | None
    when: Callable[[CR], bool] | None
    finalizer: str | None
    apply: bool
    force: bool
    adopt: bool
    recreate: bool
    # Changes that the server took and that changed nothing: an `update` that takes away what the server fills in.
    futile: Marks = msgspec.field(default_factory=Marks)
    # What was applied, and found to own nothing besides.
    applied: Marks = msgspec.field(default_factory=Marks)

    def begin(self, cr: CR, owner: Owner, /) -> TypedPass[CR, Child]:
        """See `Children`."""
        built, fault = self._built(cr)
        if fault:
            wanted: Wanted[Child] = Wanted(children={}, faults=(f"{self.info.kind}: {fault}",))
        else:
            elsewhere = self.finalizer is not None
            wanted = wanted_children(owner, self.kind, built, only_set=self.apply, elsewhere=elsewhere)
        return TypedPass(self, cr, owner, wanted)

    def _built(self, cr: CR) -> tuple[Sequence[Child] | None, str]:
        """What `build` says, and why that cannot be used; empty: it can."""
        if self.when is not None:
            answer = self.when(cr)
            if fault := answer_fault(self.when, answer, object, ""):
                return None, f"when: {fault}"
            if not answer:
                return None, ""
        built = self.build(cr)
        fault = children_fault(self.build, built)
        return (None, f"build: {fault}") if fault else (built, "")

    async def ready(self, cr: CR, owner: Owner, /) -> bool:
        """See `Children`."""
        if self.is_ready is None:
            return True
        this = self.begin(cr, owner)
        if this.faults:
            raise ObjectError(f"children of {owner}: {'; '.join(this.faults)}")
        for request in this.wanted.children:
            child = await self.binding.client.find(self.kind, request.name, namespace=request.namespace)
            if child is None or not owner.owns(child) or not self.judge(child):
                return False
        return True

    async def present(self, owner: Owner, /) -> Sequence[Child]:
        """See `Children`."""
        return await self.list(self.binding.fresh, owner)

    async def list(self, client: Client, owner: Owner, *, needed: bool = False) -> Sequence[Child]:
        """The children that are ours, in the order of their names.

        Args:
            client: Reads them.
            owner: Whose.
            needed: Whether a kind that the server does not know is an error. Otherwise there are no children of it.
        """
        namespace = owner.request.namespace if self.info.namespaced and self.finalizer is None else None
        try:
            found = await client.list(self.kind, namespace=namespace, labels=owner.labels)
        except NotFoundError:
            if needed:
                raise
            # The kind's CRD is gone, or what answered was no API server. An API server has something to say on the
            # owner, whose kind it does know.
            await self.binding.fresh.find(self.binding.owners, owner.request.name, namespace=owner.request.namespace)
            return []
        ours = [child for child in found if owner.owns(child)]
        if len(ours) > 1:
            ours.sort(key=lambda child: str(request_of(child)))
        return ours

    async def delete(self, owner: Owner, child: KubeObject, /) -> None:
        """See `Children`."""
        request = request_of(child)
        for last in (False, False, True):
            view = view_of(child)
            try:
                await self.binding.client.delete(
                    self.kind,
                    request.name,
                    namespace=request.namespace,
                    # The version too: somebody may have made the child his own since it was read.
                    preconditions=Preconditions(uid=view.uid, resource_version=view.resourceVersion),
                    propagation=self.binding.propagation,
                )
            except NotFoundError:
                return
            except ConflictError:
                current = await self.current(request)
                if current is None or not owner.owns(current):
                    return
                if last:
                    raise
                child = current
            else:
                _logger.info("%s: deleted %s %s", owner, self.info.kind, request)
                return

    async def current(self, request: Request) -> Child | None:
        """The object of that name, past the caches."""
        return await self.binding.fresh.find(self.kind, request.name, namespace=request.namespace)

    def judge(self, child: Child) -> bool:
        """Whether a child that is there is ready."""
        if view_of(child).deletionTimestamp is not None or self.is_ready is None:
            return view_of(child).deletionTimestamp is None
        answer = self.is_ready(child)
        if fault := answer_fault(self.is_ready, answer, object, ""):
            raise ObjectError(f"{self.info.kind}: ready: {fault}")
        return answer
