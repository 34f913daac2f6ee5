"""Keeps the children of an object as declared.

Guarantees: a pass over an owner whose children are as declared writes nothing, in whatever spelling the server keeps
them. Nothing that is not ours is changed or deleted, unless `For(..., adopt=True)` asks for it. First comes what is
created or changed: kind by kind in the order of the declaration, or later where `after` says so; within a kind as
`build` returned it. Then what is no longer wanted goes: kind by kind, or later where `after` says so; within a kind by
name.
Not promised: that children are ready when a pass ends; ask `are_all_ready`. That nothing foreign is met by the apply
that creates a child, if it appears in the moment between the last look and that apply.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from typing import Final, Generic, TypeVar, cast, final
from weakref import WeakKeyDictionary

import msgspec
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
from opsdk.models import ResourceInfo, find_condition, request_of, resource_of, set_condition, view_of
from opsdk.models.status_pass import status_pass_of
from opsdk.ownership._children import Binding, Children
from opsdk.ownership._order import Order, find_cycle, order_of
from opsdk.ownership._pass import WAIT, Conflict, Pass
from opsdk.ownership._steps import Redact, Step, described
from opsdk.ownership._wanted import Owner
from opsdk.ownership.declaration import OwnedKind
from opsdk.ownership.labels import default_owner_set, owner_set_fault
from opsdk.ownership.plan import OwnershipPlan, PlannedChange
from opsdk.protocols import Client, EventRecorder, KubeObject, MachineObject, StatusConditioner
from opsdk.types import ConditionStatus, PropagationPolicy, Result

__all__ = ["CHILDREN_READY", "CHILD_CONFLICT", "FIELD_CONFLICT", "ResourceOwner"]

CR = TypeVar("CR", bound=KubeObject)

CHILDREN_READY: Final = "ChildrenReady"
"""The type of the condition that tells about children, once there was something to tell."""

CHILD_CONFLICT: Final = "ChildConflict"
"""The reason of that condition, and of the event, when a child's name is taken."""

FIELD_CONFLICT: Final = "FieldConflict"
"""The same, when another field manager applies fields of a child that we apply too."""

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
        undeclared = list(_undeclared(owned))
        faults.extend(undeclared or _faults(info, owned))
        owner_set = name if name is not None or info is None else default_owner_set(info)
        if owner_set is not None and (fault := owner_set_fault(owner_set)):
            faults.append(f"name: {fault}")
        if faults or info is None or owner_set is None:
            raise InvalidOwnedResourcesError(kind.__name__ if info is None else info.kind, faults)

        binding = Binding(
            client=client,
            fresh=uncached(client),
            owners=kind,
            field_manager=field_manager_of(client),
            propagation=propagation,
        )
        self._kind = kind
        self._info = info
        self._client = client
        self._owner_set = owner_set
        self._children: tuple[Children[CR], ...] = tuple(entry.bind(binding) for entry in owned)
        self._order: Order = order_of(_positions(owned))
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
            FieldConflictError: Another field manager applies fields of a child too; everything else was done.
            ExceptionGroup: Several of these.
            ObjectError: `cr` was never stored, or `build` returned children that cannot be written; nothing was.
            TerminalError: The server refuses a change for ever: it is of an immutable field.
        """
        owner = Owner.of(cr, self._owner_set)
        if view_of(cr).deletionTimestamp is not None:
            return await self._let_go(cr, owner)
        passes = self._begin(cr, owner)
        try:
            await add_finalizers(self._client, cr, *_needed(passes))
        except NotFoundError:
            return Result()  # gone since it was read, and so are its children
        for number in self._order.coming:
            await passes[number].look()
            self._hold(passes, number)
            await passes[number].run()
        for number in self._order.going:
            for child in self._leftovers(passes, number):
                if view_of(child).deletionTimestamp is None:
                    await self._children[number].delete(owner, child)
        result = Result()
        for entry in passes:
            result = result.sooner(entry.result)
        conflicts = [conflict for number in self._order.coming for conflict in passes[number].conflicts]
        await self._tell(cr, owner, conflicts, ready=all(entry.ready for entry in passes))
        if len(conflicts) == 1:
            raise conflicts[0]
        if conflicts:
            raise ExceptionGroup(_summary(owner, conflicts), conflicts)
        return result

    async def plan(self, cr: CR, /, *, redact: Redact | None = None) -> OwnershipPlan:
        """What `reconcile` would do now, without doing it: nothing is written, not even tried.

        Args:
            cr: The object, as it was read. It is not changed.
            redact: Called with a child's kind and the path of a value, says whether it must not be shown. Values of
                Secrets never are.

        Raises:
            ObjectError: `cr` was never stored, or `build` returned children that cannot be written.
        """
        owner = Owner.of(cr, self._owner_set)
        if view_of(cr).deletionTimestamp is not None:
            return await self._departure_plan(cr, owner)
        passes = self._begin(cr, owner)
        changes: list[PlannedChange] = []
        for number in self._order.coming:
            entry = passes[number]
            await entry.look()
            self._hold(passes, number)
            entry.suppose()
            changes.extend(described(entry.info, step, redact) for step in entry.steps)
        for number in self._order.going:
            waits = not self._leftovers(passes, number)
            changes.extend(self._parting(number, child, waits=waits) for child in passes[number].leftovers)
        return OwnershipPlan(
            owner=str(owner),
            changes=tuple(changes),
            finalizers_to_add=tuple(name for name in _needed(passes) if not has_finalizer(cr, name)),
        )

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
            if _same_kind(children.kind, kind):
                return children
        raise UndeclaredKindError(_kind_name(kind), [children.info.kind for children in self._children])

    def _begin(self, cr: CR, owner: Owner) -> list[Pass]:
        """A pass for each kind, in the order of the declaration.

        Raises:
            ObjectError: There are children that cannot be written.
        """
        passes: list[Pass] = [children.begin(cr, owner) for children in self._children]
        faults = [fault for entry in passes for fault in entry.faults]
        if faults:
            raise ObjectError(f"children of {owner}: {'; '.join(faults)}")
        return passes

    def _hold(self, passes: Sequence[Pass], number: int) -> None:
        """Have a kind wait for those that it comes after, if they are not ready."""
        needs = self._order.needs[number]
        missing = [passes[need].info.kind for need in sorted(needs) if not passes[need].ready] if needs else ()
        if missing:
            passes[number].hold(f"it comes after {' and '.join(missing)}, not ready yet")

    def _leftovers(self, passes: Sequence[Pass], number: int) -> Sequence[KubeObject]:
        """The children that are to go now: all of a kind, once nothing is left to go of what comes after it."""
        entry = passes[number]
        if entry.leftovers and any(passes[other].leftovers for other in self._order.dependents[number]):
            entry.wait()
            return ()
        return entry.leftovers

    async def _departures(self, cr: CR, owner: Owner) -> list[_Departure]:
        """What is there of a deleted owner's children, as far as it is ours to delete them.

        These are the kinds with a finalizer, and the kinds that come after those, which have to go first. All others
        are the garbage collector's, once the owner is gone.
        """
        held = {
            number
            for number, children in enumerate(self._children)
            if children.finalizer is not None and has_finalizer(cr, children.finalizer)
        }
        involved = held.union(*(self._order.dependents[number] for number in held))
        departures: list[_Departure] = []
        left: set[int] = set()
        for number in self._order.going:
            if number in involved:
                present = await self._children[number].present(owner)
                departures.append(
                    _Departure(number=number, present=present, waits=bool(left & self._order.dependents[number]))
                )
                if present:
                    left.add(number)
        return departures

    def _released(self, cr: CR, departures: Sequence[_Departure]) -> list[str]:
        """The finalizers whose children are gone. Two kinds may share one: it goes when both are gone."""
        waiting: dict[str, bool] = {}
        for departure in departures:
            finalizer = self._children[departure.number].finalizer
            if finalizer is not None and has_finalizer(cr, finalizer):
                waiting[finalizer] = waiting.get(finalizer, False) or bool(departure.present)
        return [finalizer for finalizer, waits in waiting.items() if not waits]

    async def _let_go(self, cr: CR, owner: Owner) -> Result:
        """Delete the children that the collector does not see, and drop the finalizers of those that are gone."""
        departures = await self._departures(cr, owner)
        for departure in departures:
            for child in () if departure.waits else departure.present:
                if view_of(child).deletionTimestamp is None:
                    await self._children[departure.number].delete(owner, child)
        done = self._released(cr, departures)
        if done:
            await remove_finalizers(self._client, cr, *done)
            _logger.info("%s: children are gone, and so is %s", owner, ", ".join(done))
        return Result(requeue_after=WAIT) if any(departure.present for departure in departures) else Result()

    async def _departure_plan(self, cr: CR, owner: Owner) -> OwnershipPlan:
        departures = await self._departures(cr, owner)
        changes = [
            self._parting(departure.number, child, waits=departure.waits)
            for departure in departures
            for child in departure.present
        ]
        done = self._released(cr, departures)
        return OwnershipPlan(owner=str(owner), changes=tuple(changes), finalizers_to_remove=tuple(done))

    def _parting(self, number: int, child: KubeObject, *, waits: bool) -> PlannedChange:
        """What is planned for a child that is to go."""
        step = Step(action="delete", request=request_of(child))
        if view_of(child).deletionTimestamp is not None:
            step = step.held("it is on its way out")
        elif waits:
            step = step.held("it goes after what comes after it")
        return described(self._children[number].info, step, None)

    async def _tell(self, cr: CR, owner: Owner, conflicts: Sequence[Conflict], *, ready: bool) -> None:
        """Say on the object whether there are conflicts; and, where that was said once, what holds now."""
        conditions = _conditions_of(cr)
        if not conflicts and (conditions is None or not find_condition(conditions, CHILDREN_READY)):
            return  # as nearly always
        message = "; ".join(map(str, conflicts))
        taken = any(isinstance(conflict, ChildConflictError) for conflict in conflicts)
        reason = CHILD_CONFLICT if taken else FIELD_CONFLICT
        if conflicts:
            _logger.warning("%s: %s", owner, message)
            await self._record(cr, reason, message)
        if conditions is None:
            return
        status: ConditionStatus = "True" if ready else "False"
        if not conflicts:
            reason = "AllReady" if ready else "NotReady"
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

    async def _record(self, cr: CR, reason: str, message: str) -> None:
        if self._recorder is None:
            self._recorder = Recorder(self._client, component="opsdk")
        try:
            await self._recorder.record(cr, "Warning", reason, message)
        except Exception:
            _logger.exception("the event %s could not be recorded", reason)


@final
class _Departure(msgspec.Struct, frozen=True, kw_only=True):
    """What is there of one kind of a deleted owner's children.

    Args:
        number: The kind, by its position in the declaration.
        present: The children.
        waits: Whether something is left of a kind that comes after it, which goes first.
    """

    number: int
    present: Sequence[KubeObject]
    waits: bool


def _needed(passes: Sequence[Pass]) -> list[str]:
    """The finalizers that the owner needs before the first child is there."""
    return list(dict.fromkeys(entry.finalizer for entry in passes if entry.finalizer is not None))


def _summary(owner: Owner, conflicts: Sequence[Conflict]) -> str:
    taken = all(isinstance(conflict, ChildConflictError) for conflict in conflicts)
    return f"children of {owner}: {len(conflicts)} {'names are taken' if taken else 'conflicts'}"


def _conditions_of(cr: KubeObject) -> list[Condition] | None:
    speaks = _speaks.get(type(cr))
    if speaks is None:
        # Asking a protocol takes as long as decoding the object, and the answer is the class's.
        speaks = _speaks[type(cr)] = (isinstance(cr, StatusConditioner), isinstance(cr, MachineObject))
    if speaks[0]:
        return cast("StatusConditioner", cr).get_status_conditions()
    if speaks[1]:
        return cast("MachineObject", cr).get_machine_status().conditions
    return None


_speaks: Final = WeakKeyDictionary[type[KubeObject], tuple[bool, bool]]()


def _kind_name(kind: type[KubeObject]) -> str:
    try:
        return resource_of(kind).kind
    except ResourceDefinitionError:
        return kind.__name__


def _same_kind(one: type[KubeObject], other: type[KubeObject]) -> bool:
    """Whether two classes are, or stand for, the same kind."""
    if one is other:
        return True
    try:
        first, second = resource_of(one), resource_of(other)
    except ResourceDefinitionError:
        return False
    return (first.group, first.kind) == (second.group, second.kind)


def _positions(owned: Sequence[OwnedKind[CR]]) -> list[list[int]]:
    """Of each declared kind, what it comes after, by position."""
    return [
        [number for number, other in enumerate(owned) for kind in entry.after if _same_kind(other.kind, kind)]
        for entry in owned
    ]


def _order_faults(owned: Sequence[OwnedKind[CR]]) -> Iterator[str]:
    """What is wrong with the order of the declared kinds."""
    for entry in owned:
        for kind in entry.after:
            if not any(_same_kind(other.kind, kind) for other in owned):
                yield f"{_kind_name(entry.kind)}: comes after {_kind_name(kind)}, which is not declared here"
    if cycle := find_cycle(dict(enumerate(_positions(owned)))):
        yield f"after: goes round in a circle: {' after '.join(_kind_name(owned[number].kind) for number in cycle)}"


def _undeclared(owned: object) -> Iterator[str]:
    """What is no declaration of a kind at all."""
    if isinstance(owned, OwnedKind):
        yield "owned: is one For; give a list of them"
    elif not isinstance(owned, Sequence) or isinstance(owned, str):
        yield f"owned: is of type {type(owned).__name__}; give a list of For(...)"
    else:
        for number, entry in enumerate(cast("Sequence[object]", owned)):
            if not isinstance(entry, OwnedKind):
                yield f"owned[{number}]: {entry!r:.100} is of type {type(entry).__name__}; give a For(...)"


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
        if entry.finalizer is not None and not _FINALIZER.fullmatch(str(entry.finalizer)):
            yield f"{info.kind}: finalizer {entry.finalizer!r} is not of the form domain/name"
        if owner is not None and owner.namespaced and not info.namespaced and entry.finalizer is None:
            yield (
                f"{info.kind}: is cluster-scoped, and {owner.kind} is not, so Kubernetes allows no owner reference; "
                "give it a finalizer"
            )
    yield from _order_faults(owned)
