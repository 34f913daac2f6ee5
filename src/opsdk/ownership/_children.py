"""The children of one kind: created, changed, collected.

`Children` is generic over the owner only; which class its children are of is known inside, so that an owner can hold
several kinds in one list without losing a type.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Generic, Protocol, TypeVar, final

import msgspec

from opsdk.errors import (
    AlreadyExistsError,
    ChildConflictError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    ObjectError,
    TerminalError,
)
from opsdk.models import ResourceInfo, codec_of, metadata_of, request_of, view_of
from opsdk.ownership._fields import applied_fields, owns_unwanted
from opsdk.ownership._intent import Parts
from opsdk.ownership._marks import Marks
from opsdk.ownership._spelling import equivalent, lay_over
from opsdk.ownership._wanted import Owner, Wanted, describe_owner, wanted_children
from opsdk.protocols import Client, KubeObject
from opsdk.types import JsonObject, Preconditions, PropagationPolicy, Request, Result

__all__ = ["WAIT", "Binding", "Children", "Outcome", "Plan", "TypedChildren"]

CR = TypeVar("CR", bound=KubeObject)
CR_contra = TypeVar("CR_contra", bound=KubeObject, contravariant=True)
Child = TypeVar("Child", bound=KubeObject)

WAIT: Final = timedelta(seconds=5)
"""How long to wait for a child that is on its way out. Its deletion is an event for whoever watches the kind."""

_SOON: Final = timedelta(milliseconds=200)
_NAMESPACE_GONE: Final = timedelta(seconds=30)

_logger = logging.getLogger("opsdk.ownership")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """How children are read and written.

    Args:
        client: The client.
        fresh: The same, past its caches.
        field_manager: The name for server-side apply.
        propagation: What happens to the children of children that are deleted.
    """

    client: Client
    fresh: Client
    field_manager: str
    propagation: PropagationPolicy


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of the children of one kind.

    Args:
        result: When to look again.
        conflicts: The names that are taken.
        ready: Whether all desired children are there and ready.
    """

    result: Result
    conflicts: tuple[ChildConflictError, ...]
    ready: bool


class Plan(Protocol):
    """What is to become of the children of one kind and one owner."""

    @property
    def faults(self) -> tuple[str, ...]:
        """Why nothing can become of it; empty: nothing speaks against it."""
        ...

    @property
    def finalizer(self) -> str | None:
        """The finalizer that the owner needs before the first child is there."""
        ...

    async def converge(self) -> Outcome:
        """Create what is missing, change what differs, delete what is no longer wanted."""
        ...


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

    def plan(self, cr: CR_contra, owner: Owner, /) -> Plan:
        """What `build` says for this owner."""
        ...

    async def ready(self, cr: CR_contra, owner: Owner, /) -> bool:
        """Whether all desired children are there and ready."""
        ...

    async def collect(self, owner: Owner, /) -> int:
        """Delete all children of the owner, and say how many are still there."""
        ...


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TypedChildren(Generic[CR, Child]):
    """The children of one kind. The arguments are those of `For`."""

    binding: Binding
    kind: type[Child]
    info: ResourceInfo
    build: Callable[[CR], list[Child] | None]
    update: Callable[[CR, Child], Child] | None
    is_ready: Callable[[Child], bool] | None
    finalizer: str | None
    apply: bool
    recreate: bool
    # Changes that the server took and that changed nothing: an `update` that takes away what the server fills in.
    futile: Marks = field(default_factory=Marks)
    # What was applied, and found to own nothing besides.
    applied: Marks = field(default_factory=Marks)

    def plan(self, cr: CR, owner: Owner, /) -> _Plan[CR, Child]:
        """See `Children`."""
        wanted = wanted_children(
            owner, self.kind, self.build(cr), only_set=self.apply, elsewhere=self.finalizer is not None
        )
        return _Plan(self, cr, owner, wanted)

    async def ready(self, cr: CR, owner: Owner, /) -> bool:
        """See `Children`."""
        if self.is_ready is None:
            return True
        plan = self.plan(cr, owner)
        if plan.faults:
            raise ObjectError(f"children of {owner}: {'; '.join(plan.faults)}")
        for request in plan.wanted.children:
            child = await self.binding.client.find(self.kind, request.name, namespace=request.namespace)
            if child is None or not owner.owns(child) or not self.judge(child):
                return False
        return True

    async def collect(self, owner: Owner, /) -> int:
        """See `Children`."""
        remaining = 0
        for child in await self.list(self.binding.fresh, owner):
            remaining += 1
            if view_of(child).deletionTimestamp is None:
                await self.delete(owner, child)
        return remaining

    async def list(self, client: Client, owner: Owner) -> Sequence[Child]:
        """The children that are ours, in the order of their names."""
        namespace = owner.request.namespace if self.info.namespaced and self.finalizer is None else None
        found = await client.list(self.kind, namespace=namespace, labels=owner.labels)
        return sorted(filter(owner.owns, found), key=lambda child: str(request_of(child)))

    async def delete(self, owner: Owner, child: Child) -> None:
        """Delete this incarnation of the child, unless it stops being ours."""
        request = request_of(child)
        for last in (False, True):
            uid = view_of(child).uid
            try:
                await self.binding.client.delete(
                    self.kind,
                    request.name,
                    namespace=request.namespace,
                    preconditions=Preconditions(uid=uid),
                    propagation=self.binding.propagation,
                )
            except NotFoundError:
                return
            except ConflictError:
                current = await self.binding.fresh.find(self.kind, request.name, namespace=request.namespace)
                if current is None or not owner.owns(current):
                    return
                if last:
                    raise
                child = current
            else:
                _logger.info("%s: deleted %s %s", owner, self.info.kind, request)
                return

    def judge(self, child: Child) -> bool:
        """Whether a child that is there is ready."""
        return view_of(child).deletionTimestamp is None and (self.is_ready is None or self.is_ready(child))


@final
class _Plan(Generic[CR, Child]):
    """See `Plan`."""

    def __init__(self, children: TypedChildren[CR, Child], cr: CR, owner: Owner, wanted: Wanted[Child]) -> None:
        self.wanted = wanted
        self._children = children
        self._client = children.binding.client
        self._kind = children.kind
        self._cr = cr
        self._owner = owner
        self._result = Result()
        self._conflicts: list[ChildConflictError] = []
        self._ready = True

    @property
    def faults(self) -> tuple[str, ...]:
        """See `Plan`."""
        return self.wanted.faults

    @property
    def finalizer(self) -> str | None:
        """See `Plan`."""
        return self._children.finalizer if self.wanted.children else None

    async def converge(self) -> Outcome:
        """See `Plan`."""
        present = {request_of(child): child for child in await self._children.list(self._client, self._owner)}
        for request, child in self.wanted.children.items():
            existing = present.pop(request, None)
            if existing is None:
                # Not among the labelled ones. It may be somebody else's, or have lost its labels.
                existing = await self._client.find(self._kind, request.name, namespace=request.namespace)
            if existing is None:
                await self._create(request, child)
            elif not self._owner.owns(existing):
                self._taken(request, existing)
            elif view_of(existing).deletionTimestamp is not None:
                self._wait(WAIT)
            else:
                await self._bring_in_line(request, child, existing)
        for leftover in present.values():
            if view_of(leftover).deletionTimestamp is None:
                await self._children.delete(self._owner, leftover)
        return Outcome(result=self._result, conflicts=tuple(self._conflicts), ready=self._ready)

    def _wait(self, delay: timedelta) -> None:
        self._result = self._result.sooner(Result(requeue_after=delay))
        self._ready = False

    def _taken(self, request: Request, existing: Child) -> None:
        self._ready = False
        self._conflicts.append(
            ChildConflictError(
                self._children.info.kind, request.namespace, request.name, owner=describe_owner(existing)
            )
        )

    async def _create(self, request: Request, child: Child) -> None:
        binding = self._children.binding
        try:
            if not self._children.apply:
                stored = await self._client.create(child)
            elif binding.fresh is not self._client and await self._current(request) is not None:
                # An apply takes what it finds, so a cache that is behind must not be believed.
                await self._exists(request)
                return
            else:
                stored = await self._client.apply(child, field_manager=binding.field_manager)
        except (AlreadyExistsError, ConflictError):
            await self._exists(request)
        except ForbiddenError as error:
            if not any(cause.reason == "NamespaceTerminating" for cause in error.causes):
                raise
            _logger.debug("%s: %s %s was not created: %s", self._owner, self._children.info.kind, request, error)
            self._wait(_NAMESPACE_GONE)
        else:
            _logger.info("%s: created %s %s", self._owner, self._children.info.kind, request)
            self._note(stored)

    async def _current(self, request: Request) -> Child | None:
        return await self._children.binding.fresh.find(self._kind, request.name, namespace=request.namespace)

    async def _exists(self, request: Request) -> None:
        """What to do about a child that was to be created and exists: a cache was behind, or somebody was faster."""
        current = await self._current(request)
        if current is None or self._owner.owns(current):
            self._wait(_SOON)
        else:
            self._taken(request, current)

    def _note(self, child: Child) -> None:
        self._ready = self._ready and self._children.judge(child)

    async def _bring_in_line(self, request: Request, child: Child, existing: Child) -> None:
        try:
            stored = await self._write(request, child, existing)
        except (ConflictError, NotFoundError):  # it was changed or deleted since it was read: look again
            self._wait(_SOON)
        except InvalidError as error:
            if any(cause.field == "metadata.uid" for cause in error.causes):
                self._wait(_SOON)  # another object has taken the name since
            else:
                await self._refused(request, existing, error)
        else:
            if stored is not None:
                _logger.info("%s: changed %s %s", self._owner, self._children.info.kind, request)
            self._note(existing if stored is None else stored)

    async def _refused(self, request: Request, existing: Child, error: InvalidError) -> None:
        """Decide what becomes of a change that the server will never take."""
        fields = [cause.field for cause in error.causes if "immutable" in cause.message]
        if not fields and "immutable" not in error.server_message:
            raise error
        kind = self._children.info.kind
        if self._children.recreate:
            _logger.info("%s: %s %s is made anew: %s", self._owner, kind, request, error)
            await self._children.delete(self._owner, existing)
            self._wait(_SOON)
            return
        what = ", ".join(fields) or "a field"
        raise TerminalError(
            f"{kind} {request} of {self._owner}: {what} cannot be changed in place ({error.server_message}); undo the "
            "change, or let the child be deleted and made anew with For(..., recreate=True)"
        ) from error

    async def _write(self, request: Request, child: Child, existing: Child) -> Child | None:
        """Write what differs; None when nothing does."""
        if self._children.apply:
            return await self._apply(child, existing)
        if self._children.update is not None:
            return await self._patch(request, existing, self._children.update)
        return None

    async def _patch(self, request: Request, existing: Child, update: Callable[[CR, Child], Child]) -> Child | None:
        base = self._client.snapshot(existing)
        before, version = self._document(base.typed), view_of(existing).resourceVersion
        parts = Parts(existing)
        changed = update(self._cr, existing)
        changed = self._identified(request, changed)
        after = self._document(codec_of(self._kind).encode(changed))
        if changed is existing or view_of(changed).resourceVersion != version:
            after = parts.intended(before, after, changed)
            changed = codec_of(self._kind).decode(msgspec.json.encode(after))
        if equivalent(before, after) or self._children.futile.has(existing, before, after):
            return None
        stored = await self._client.patch_from(base, changed)
        if stored is not None and view_of(stored).resourceVersion == version:
            self._children.futile.add(existing, before, after)
        return stored

    def _identified(self, request: Request, changed: Child) -> Child:
        """What `update` returned, with the child's own name, our labels and our owner reference."""
        metadata = metadata_of(changed)
        if (metadata.name, metadata.namespace or request.namespace) != (request.name, request.namespace):
            raise ObjectError(f"update of {self._children.info.kind} {request} returned {request_of(changed)}")
        metadata.namespace = request.namespace
        self._owner.adopt(changed)
        return changed

    async def _apply(self, child: Child, existing: Child) -> Child | None:
        codec = codec_of(self._kind)
        before = self._document(codec.encode(existing))
        desired = self._document(codec.encode(child, only_set=True))
        as_wanted = equivalent(before, lay_over(before, desired))
        if as_wanted and not await self._owns_more(existing, desired):
            self._children.applied.add(existing, desired)
            return None
        metadata_of(child).uid = view_of(existing).uid  # this incarnation, or a conflict
        stored = await self._client.apply(child, force=True, field_manager=self._children.binding.field_manager)
        self._children.applied.add(stored, desired)
        return stored

    async def _owns_more(self, existing: Child, desired: JsonObject) -> bool:
        """Whether we own fields of the child that are not wanted any more, or none at all."""
        binding = self._children.binding
        metadata = metadata_of(existing)
        if not metadata.managedFields and binding.fresh is not self._client:
            # A cache keeps our own entry only. That there is none, may be because nobody keeps track.
            if self._children.applied.has(existing, desired):
                return False
            request = request_of(existing)
            metadata = metadata_of(await binding.fresh.get(self._kind, request.name, namespace=request.namespace))
        if not metadata.managedFields:
            return False  # nobody keeps track
        owned = applied_fields(metadata, binding.field_manager)
        return owned is None or owns_unwanted(owned, desired)

    def _document(self, raw: bytes) -> JsonObject:
        document: JsonObject = msgspec.json.decode(raw)
        return document
