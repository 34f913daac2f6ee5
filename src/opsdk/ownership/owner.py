"""Keeps the children of an object as declared.

Guarantees: a pass over an owner whose children are as declared writes nothing, in whatever spelling the server keeps
them. Nothing that is not ours is changed or deleted. The order of writes is that of the declaration; within a kind,
first what `build` returned in its order, then what is no longer wanted by name.
Not promised: that children are ready when a pass ends; ask `are_all_ready`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from typing import Final, Generic, TypeVar, final

from lightkube.models.meta_v1 import Condition

from opsdk.client import refresh_metadata
from opsdk.client.finalizers import add_finalizers, has_finalizer, remove_finalizers
from opsdk.client.reach import field_manager_of, uncached
from opsdk.errors import (
    ChildConflictError,
    ConflictError,
    InvalidOwnedResourcesError,
    NotFoundError,
    ObjectError,
    ResourceDefinitionError,
    UndeclaredKindError,
)
from opsdk.events import Recorder
from opsdk.models import ResourceInfo, find_condition, resource_of, set_condition, view_of
from opsdk.models.status_pass import status_pass_of
from opsdk.ownership._children import WAIT, Binding, Children
from opsdk.ownership._wanted import Owner
from opsdk.ownership.declaration import OwnedKind
from opsdk.ownership.labels import default_owner_set, owner_set_fault
from opsdk.protocols import Client, EventRecorder, KubeObject, MachineObject, StatusConditioner
from opsdk.types import ConditionStatus, PropagationPolicy, Result

__all__ = ["CHILDREN_READY", "CHILD_CONFLICT", "ResourceOwner"]

CR = TypeVar("CR", bound=KubeObject)

CHILDREN_READY: Final = "ChildrenReady"
"""The type of the condition that tells about children, once there was something to tell."""

CHILD_CONFLICT: Final = "ChildConflict"
"""The reason of that condition, and of the event, when a child's name is taken."""

_FINALIZER: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

_logger = logging.getLogger("opsdk.ownership")


@final
class ResourceOwner(Generic[CR]):
    """Creates, changes and deletes the children of objects of one kind.

    It is no `Reconciler` by itself: call `reconcile` from your own, or from a hook of a state machine, with the object
    that you have read.

    Args:
        kind: The class of the owners.
        client: Reads and writes them and their children.
        owned: The kinds of children.
        name: Tells the children of several `ResourceOwner`s of one kind apart; part of their labels, so it must not
            change later. Default: made from the owner's kind and group.
        event_recorder: Who records events. Default: one of its own, that writes through `client`.
        propagation: What happens to what deleted children own. Default: it is deleted in the background.

    Raises:
        InvalidOwnedResourcesError: The declaration is wrong; the error lists everything that is.
    """

    def __init__(
        self,
        kind: type[CR],
        client: Client,
        owned: Sequence[OwnedKind[CR]],
        *,
        name: str | None = None,
        event_recorder: EventRecorder | None = None,
        propagation: PropagationPolicy = "Background",
    ) -> None:
        info: ResourceInfo | None = None
        faults: list[str] = []
        try:
            info = resource_of(kind)
        except ResourceDefinitionError as error:
            faults.append(f"{kind.__name__} (the owner): {error}")
        faults.extend(_faults(info, owned))
        owner_set = name if name is not None or info is None else default_owner_set(info)
        if owner_set is not None and (fault := owner_set_fault(owner_set)):
            faults.append(f"name: {fault}")
        if faults or info is None or owner_set is None:
            raise InvalidOwnedResourcesError(kind.__name__ if info is None else info.kind, faults)

        binding = Binding(
            client=client,
            fresh=uncached(client),
            field_manager=field_manager_of(client),
            propagation=propagation,
        )
        self._kind = kind
        self._info = info
        self._client = client
        self._owner_set = owner_set
        self._children: tuple[Children[CR], ...] = tuple(entry.bind(binding) for entry in owned)
        self._given_recorder = event_recorder
        self._recorder = event_recorder

    @property
    def kind(self) -> type[CR]:
        """The class of the owners."""
        return self._kind

    @property
    def client(self) -> Client:
        """The client that the owner works with, for whatever it does not do."""
        return self._client

    @property
    def name(self) -> str:
        """What the label `opsdk.dev/owner-set` of the children says."""
        return self._owner_set

    @property
    def kinds(self) -> tuple[type[KubeObject], ...]:
        """The classes of the children, in the order of their declaration."""
        return tuple(children.kind for children in self._children)

    def use_recorder(self, recorder: EventRecorder, /) -> None:
        """Record events through `recorder`, unless one was given at construction."""
        if self._given_recorder is None:
            self._recorder = recorder

    async def reconcile(self, cr: CR, /) -> Result:
        """Bring the children of the object in hand in line with the declaration, or, if it is being deleted, let go.

        Where `cr` gets or loses a finalizer, it is changed in place too.

        Returns:
            When to look again, at the latest; it composes with results of your own (`Result.sooner`).

        Raises:
            ChildConflictError: The name of a child is taken by an object that is not ours; everything else was done.
            ExceptionGroup: Several of them.
            ObjectError: `cr` was never stored, or `build` returned children that cannot be written; nothing was.
            TerminalError: The server refuses a change for ever: it is of an immutable field.
        """
        owner = Owner.of(cr, self._owner_set)
        if view_of(cr).deletionTimestamp is not None:
            return await self._let_go(cr, owner)
        plans = [children.plan(cr, owner) for children in self._children]
        faults = [fault for plan in plans for fault in plan.faults]
        if faults:
            raise ObjectError(f"children of {owner}: {'; '.join(faults)}")
        needed = [plan.finalizer for plan in plans if plan.finalizer is not None]
        try:
            await add_finalizers(self._client, cr, *dict.fromkeys(needed))
        except NotFoundError:
            return Result()  # gone since it was read, and so are its children
        result, ready = Result(), True
        conflicts: list[ChildConflictError] = []
        for plan in plans:
            outcome = await plan.converge()
            result = result.sooner(outcome.result)
            ready = ready and outcome.ready
            conflicts.extend(outcome.conflicts)
        await self._tell(cr, owner, conflicts, ready=ready)
        if len(conflicts) == 1:
            raise conflicts[0]
        if conflicts:
            raise ExceptionGroup(f"children of {owner}: {len(conflicts)} names are taken", conflicts)
        return result

    async def is_ready(self, cr: CR, kind: type[KubeObject], /) -> bool:
        """Whether all children of a kind that the object is to have are there and ready.

        A kind without a `ready` predicate is, whether or not its children exist.

        Raises:
            UndeclaredKindError: No `For` declares the kind.
        """
        return await self._find(kind).ready(cr, Owner.of(cr, self._owner_set))

    async def are_all_ready(self, cr: CR, /) -> bool:
        """Whether `is_ready` holds for every declared kind."""
        owner = Owner.of(cr, self._owner_set)
        for children in self._children:
            if not await children.ready(cr, owner):
                return False
        return True

    def _find(self, kind: type[KubeObject]) -> Children[CR]:
        for children in self._children:
            if children.kind is kind:
                return children
        raise UndeclaredKindError(_kind_name(kind), [children.info.kind for children in self._children])

    async def _let_go(self, cr: CR, owner: Owner) -> Result:
        """Delete the children that the garbage collector does not see, and drop the finalizers of those that are gone.

        Two kinds may share a finalizer: it goes when both are gone.
        """
        remaining: dict[str, int] = {}
        for children in self._children:
            finalizer = children.finalizer
            if finalizer is not None and has_finalizer(cr, finalizer):
                remaining[finalizer] = remaining.get(finalizer, 0) + await children.collect(owner)
        done = [finalizer for finalizer, count in remaining.items() if not count]
        if done:
            await remove_finalizers(self._client, cr, *done)
            _logger.info("%s: children are gone, and so is %s", owner, ", ".join(done))
        return Result(requeue_after=WAIT) if len(done) < len(remaining) else Result()

    async def _tell(self, cr: CR, owner: Owner, conflicts: Sequence[ChildConflictError], *, ready: bool) -> None:
        """Say on the object whether names are taken; and, where that was said once, what holds now."""
        message = "; ".join(map(str, conflicts))
        if conflicts:
            _logger.warning("%s: %s", owner, message)
            await self._record(cr, message)
        conditions = _conditions_of(cr)
        if conditions is None or not (conflicts or find_condition(conditions, CHILDREN_READY)):
            return
        status: ConditionStatus = "True" if ready else "False"
        reason = CHILD_CONFLICT if conflicts else "AllReady" if ready else "NotReady"
        base = self._client.snapshot(cr)
        changed = set_condition(
            conditions,
            type=CHILDREN_READY,
            status=status,
            reason=reason,
            message=message,
            observed_generation=view_of(cr).generation,
        )
        if not changed or status_pass_of(conditions) is not None:
            return  # nothing to write, or somebody else's to write
        try:
            stored = await self._client.status.patch_from(base, cr)
        except (ConflictError, NotFoundError) as error:
            _logger.debug("%s: the condition %s was not written: %s", owner, CHILDREN_READY, error)
        else:
            if stored is not None:
                refresh_metadata(cr, stored)

    async def _record(self, cr: CR, message: str) -> None:
        if self._recorder is None:
            self._recorder = Recorder(self._client, component="opsdk")
        try:
            await self._recorder.record(cr, "Warning", CHILD_CONFLICT, message)
        except Exception:
            _logger.exception("the event %s could not be recorded", CHILD_CONFLICT)


def _conditions_of(cr: KubeObject) -> list[Condition] | None:
    if isinstance(cr, StatusConditioner):
        return cr.get_status_conditions()
    if isinstance(cr, MachineObject):
        return cr.get_machine_status().conditions
    return None


def _kind_name(kind: type[KubeObject]) -> str:
    try:
        return resource_of(kind).kind
    except ResourceDefinitionError:
        return kind.__name__


def _faults(owner: ResourceInfo | None, owned: Sequence[OwnedKind[CR]]) -> Iterator[str]:
    """What is wrong with a declaration, kind by kind."""
    seen: set[tuple[str, str]] = set()
    for entry in owned:
        try:
            info = resource_of(entry.kind)
        except ResourceDefinitionError as error:
            yield f"{entry.kind.__name__}: {error}"
            continue
        if (info.group, info.kind) in seen:
            yield f"{info.kind}: is declared twice; let one `build` return all children of a kind"
        seen.add((info.group, info.kind))
        for fault in entry.faults:
            yield f"{info.kind}: {fault}"
        if entry.finalizer is not None and not _FINALIZER.fullmatch(entry.finalizer):
            yield f"{info.kind}: finalizer {entry.finalizer!r} is not of the form domain/name"
        if owner is not None and owner.namespaced and not info.namespaced and entry.finalizer is None:
            yield (
                f"{info.kind}: is cluster-scoped, and {owner.kind} is not, so Kubernetes allows no owner reference; "
                "give it a finalizer"
            )
