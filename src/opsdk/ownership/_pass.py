"""One pass over the children of one kind and one owner: first everything is decided, then it is done.

That is why a plan cannot say anything else than what a reconcile does: both decide in the same place.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeAlias, TypeVar, final

import msgspec

from opsdk.errors import (
    AlreadyExistsError,
    ChildConflictError,
    ConflictError,
    FieldConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    ObjectError,
    TerminalError,
)
from opsdk.models import ResourceInfo, codec_of, metadata_of, request_of, view_of
from opsdk.ownership._answers import answer_fault
from opsdk.ownership._apply import Application, application_of, apply_child
from opsdk.ownership._intent import Parts
from opsdk.ownership._spelling import equivalent
from opsdk.ownership._steps import Step
from opsdk.ownership._wanted import Owner, Wanted, belongs_to_nobody, describe_owner
from opsdk.patches import decoded, differing, members_of
from opsdk.protocols import KubeObject, Snapshot
from opsdk.types import Json, JsonObject, Request, Result

if TYPE_CHECKING:
    from opsdk.ownership._children import TypedChildren

__all__ = ["WAIT", "Conflict", "Pass", "TypedPass"]

CR = TypeVar("CR", bound=KubeObject)
Child = TypeVar("Child", bound=KubeObject)

Conflict: TypeAlias = ChildConflictError | FieldConflictError
"""What only a person can resolve."""

WAIT: Final = timedelta(seconds=5)
"""How long to wait for a child that is on its way out, or not ready. Both end with an event, for whoever watches."""

_TYPE: Final = ("apiVersion", "kind")

_SOON: Final = timedelta(milliseconds=200)
_NAMESPACE_GONE: Final = timedelta(seconds=30)

# How the API server's validation words it, kind by kind: `field is immutable`, `updates to statefulset spec for fields
# other than ... are forbidden`, `cannot change roleRef`, `may not change once set`.
_IMMUTABLE: Final = re.compile(r"immutable|updates? .*(forbidden|may not)|(can|may) ?not (be )?(change|update)")

_logger = logging.getLogger("opsdk.ownership")


class Pass(Protocol):
    """What is to become of the children of one kind and one owner."""

    @property
    def info(self) -> ResourceInfo:
        """The kind."""
        ...

    @property
    def faults(self) -> tuple[str, ...]:
        """Why nothing can become of it; empty: nothing speaks against it."""
        ...

    @property
    def finalizer(self) -> str | None:
        """The finalizer that the owner needs before the first child is there."""
        ...

    @property
    def steps(self) -> Sequence[Step]:
        """What was decided about the children that are wanted. Those that stay as they are have no step."""
        ...

    @property
    def leftovers(self) -> Sequence[KubeObject]:
        """The children that are there and not wanted, by name."""
        ...

    @property
    def result(self) -> Result:
        """When to look again."""
        ...

    @property
    def conflicts(self) -> Sequence[Conflict]:
        """What only a person can resolve."""
        ...

    @property
    def ready(self) -> bool:
        """Whether all wanted children are there and ready, by what has been looked at and done so far."""
        ...

    async def look(self) -> None:
        """Read, and decide. Nothing is written."""
        ...

    async def run(self) -> None:
        """Create what is missing, change what differs."""
        ...

    def hold(self, reason: str, /) -> None:
        """Leave what would be created or changed for later."""
        ...

    def suppose(self) -> None:
        """Take the steps as done, so that `ready` tells what it would be."""
        ...

    def wait(self) -> None:
        """Look again in a while."""
        ...


@final
class TypedPass(Generic[CR, Child]):
    """See `Pass`."""

    def __init__(self, children: TypedChildren[CR, Child], cr: CR, owner: Owner, wanted: Wanted[Child]) -> None:
        self.wanted = wanted
        self._children = children
        self._client = children.binding.client
        self._kind = children.kind
        self._cr = cr
        self._owner = owner
        self._steps: list[Step] = []
        self._leftovers: Sequence[Child] = ()
        self._result = Result()
        self._conflicts: list[Conflict] = []
        self._ready = True

    @property
    def info(self) -> ResourceInfo:
        """See `Pass`."""
        return self._children.info

    @property
    def faults(self) -> tuple[str, ...]:
        """See `Pass`."""
        return self.wanted.faults

    @property
    def finalizer(self) -> str | None:
        """See `Pass`."""
        return self._children.finalizer if self.wanted.children else None

    @property
    def steps(self) -> Sequence[Step]:
        """See `Pass`."""
        return self._steps

    @property
    def leftovers(self) -> Sequence[Child]:
        """See `Pass`."""
        return self._leftovers

    @property
    def result(self) -> Result:
        """See `Pass`."""
        return self._result

    @property
    def conflicts(self) -> Sequence[Conflict]:
        """See `Pass`."""
        return self._conflicts

    @property
    def ready(self) -> bool:
        """See `Pass`."""
        return self._ready

    # Deciding

    async def look(self) -> None:
        """See `Pass`."""
        found = await self._children.list(self._client, self._owner, needed=bool(self.wanted.children))
        present = {request_of(child): child for child in found}
        for request, child in self.wanted.children.items():
            existing = present.pop(request, None)
            if existing is None:
                # Not among the labelled ones. It may be somebody else's, or have lost its labels.
                existing = await self._client.find(self._kind, request.name, namespace=request.namespace)
            step = self._creation(request, child) if existing is None else await self._decide(request, child, existing)
            if step is not None:
                self._steps.append(step)
            elif existing is not None:
                self._note(existing)
        self._leftovers = list(present.values())

    def _creation(self, request: Request, child: Child) -> Step:
        return Step(
            action="create",
            request=request,
            after=partial(self._document, child),
            becomes_ready=partial(self._children.judge, child),
            run=partial(self._create, request, child),
        )

    async def _decide(self, request: Request, child: Child, existing: Child) -> Step | None:
        """What is to become of a child whose name there is; None: it may stay as it is."""
        if not self._may_be_ours(existing):
            return self._taken(request, existing)
        ours = self._owner.owns(existing)
        if view_of(existing).deletionTimestamp is not None:
            self._wait(WAIT)
            return Step(action="wait", request=request, reason="it is on its way out")
        if self._children.apply:
            return await self._applying(request, child, existing, ours=ours)
        if self._children.update is not None or not ours:
            return self._patching(request, existing, self._children.update, ours=ours)
        return None

    def _may_be_ours(self, existing: Child) -> bool:
        return self._owner.owns(existing) or (self._children.adopt and belongs_to_nobody(existing))

    def _taken(self, request: Request, existing: Child) -> Step:
        self._ready = False
        owner = describe_owner(existing)
        self._conflicts.append(ChildConflictError(self.info.kind, request.namespace, request.name, owner=owner))
        return Step(action="conflict", request=request, reason=f"belongs to {owner or 'nobody'}, not to us")

    def _patching(
        self, request: Request, existing: Child, update: Callable[[CR, Child], Child] | None, *, ours: bool
    ) -> Step | None:
        base = self._client.snapshot(existing)
        version = view_of(existing).resourceVersion
        parts = Parts(existing)
        changed = self._identified(request, existing if update is None else self._updated(request, existing, update))
        codec = codec_of(self._kind)
        typed = codec.encode(changed)
        if typed == base.typed:  # most passes find everything as it should be
            return None
        first, last = members_of(base.typed), members_of(typed)
        names = differing(first, last)
        before: JsonObject = decoded(first, [*_TYPE, *names])
        after: JsonObject = decoded(last, [*_TYPE, *names])
        if changed is existing or view_of(changed).resourceVersion != version:
            intended = parts.intended(before, after, changed)
            if intended != after:
                rest = decoded(last, last.keys() - names)
                changed = codec.decode(msgspec.json.encode({**rest, **intended}))
            after = intended
        if equivalent(before, after):
            return None
        if self._children.futile.knows(existing) and self._is_futile(existing, base, changed):
            return None
        return Step(
            action="change" if ours else "adopt",
            request=request,
            before=partial(_document, base.typed),
            after=partial(self._document, changed),
            becomes_ready=partial(self._children.judge, changed),
            run=partial(self._write, request, existing, partial(self._patch, base, changed, version)),
        )

    def _is_futile(self, existing: Child, base: Snapshot[Child], changed: Child) -> bool:
        """Whether the server has taken this very change before, and nothing had changed."""
        return self._children.futile.has(existing, _document(base.typed), self._document(changed))

    def _updated(self, request: Request, existing: Child, update: Callable[[CR, Child], Child]) -> Child:
        changed = update(self._cr, existing)
        if fault := answer_fault(update, changed, self._kind, f"the {self.info.kind}"):
            raise ObjectError(f"{self.info.kind} {request}: update: {fault}")
        return changed

    def _identified(self, request: Request, changed: Child) -> Child:
        """What `update` returned, with the child's own name, our labels and our owner reference."""
        metadata = metadata_of(changed)
        if (metadata.name, metadata.namespace or request.namespace) != (request.name, request.namespace):
            raise ObjectError(f"update of {self.info.kind} {request} returned {request_of(changed)}")
        metadata.namespace = request.namespace
        self._owner.adopt(changed)
        return changed

    async def _applying(self, request: Request, child: Child, existing: Child, *, ours: bool) -> Step | None:
        binding = self._children.binding
        application = await application_of(
            binding.fresh,
            child,
            existing,
            self._children.applied,
            manager=binding.field_manager,
            cached=binding.fresh is not binding.client,
        )
        if application is None:
            return None
        metadata_of(child).uid = view_of(existing).uid  # this incarnation, or a conflict
        if not ours:
            metadata_of(child).resourceVersion = view_of(existing).resourceVersion  # nobody's still, or a conflict
        return Step(
            action="change" if ours else "adopt",
            request=request,
            before=lambda: application.before,
            after=lambda: application.after,
            given_up=application.given_up,
            becomes_ready=partial(self._children.judge, existing),
            run=partial(self._write, request, existing, partial(self._apply, child, application)),
        )

    # Doing

    async def run(self) -> None:
        """See `Pass`."""
        for step in self._steps:
            if step.run is not None:
                await step.run()

    def hold(self, reason: str, /) -> None:
        """See `Pass`."""
        if any(step.run is not None for step in self._steps):
            self._steps = [step if step.run is None else step.held(reason) for step in self._steps]
            self._wait(WAIT)

    def suppose(self) -> None:
        """See `Pass`."""
        self._ready = self._ready and all(step.becomes_ready() for step in self._steps if step.becomes_ready)

    def wait(self) -> None:
        """See `Pass`."""
        self._result = self._result.sooner(Result(requeue_after=WAIT))

    def _wait(self, delay: timedelta) -> None:
        self._result = self._result.sooner(Result(requeue_after=delay))
        self._ready = False

    def _note(self, child: Child) -> None:
        self._ready = self._ready and self._children.judge(child)

    async def _create(self, request: Request, child: Child) -> None:
        try:
            if not self._children.apply:
                stored = await self._client.create(child)
            elif await self._children.current(request) is not None:
                # An apply takes what it finds, so neither a cache nor an earlier read is believed.
                await self._exists(request)
                return
            else:
                stored = await self._client.apply(child, field_manager=self._children.binding.field_manager)
        except (AlreadyExistsError, ConflictError):
            await self._exists(request)
        except ForbiddenError as error:
            if not any(cause.reason == "NamespaceTerminating" for cause in error.causes):
                raise
            _logger.debug("%s: %s %s was not created: %s", self._owner, self.info.kind, request, error)
            self._wait(_NAMESPACE_GONE)
        else:
            _logger.info("%s: created %s %s", self._owner, self.info.kind, request)
            self._note(stored)

    async def _exists(self, request: Request) -> None:
        """What to do about a child that was to be created and exists: a cache was behind, or somebody was faster."""
        current = await self._children.current(request)
        if current is None or self._may_be_ours(current):
            self._wait(_SOON)
        else:
            self._taken(request, current)

    async def _write(self, request: Request, existing: Child, write: Callable[[], Awaitable[Child | None]]) -> None:
        try:
            stored = await write()
        except (ConflictError, NotFoundError):  # it was changed or deleted since it was read: look again
            self._wait(_SOON)
        except FieldConflictError as error:
            # The fields may be contested because somebody else has made the child his own meanwhile.
            current = await self._children.current(request)
            if current is None or self._may_be_ours(current):
                self._ready = False
                self._conflicts.append(error)
            else:
                self._taken(request, current)
        except InvalidError as error:
            if any(cause.field == "metadata.uid" for cause in error.causes):
                self._wait(_SOON)  # another object has taken the name since
            else:
                await self._refused(request, existing, error)
        else:
            if stored is not None:
                _logger.info("%s: changed %s %s", self._owner, self.info.kind, request)
            self._note(existing if stored is None else stored)

    async def _patch(self, base: Snapshot[Child], changed: Child, version: str | None) -> Child | None:
        stored = await self._client.patch_from(base, changed)
        if stored is not None and view_of(stored).resourceVersion == version:
            self._children.futile.add(stored, _document(base.typed), self._document(changed))
        return stored

    async def _apply(self, child: Child, application: Application[Child]) -> Child:
        manager = self._children.binding.field_manager
        stored = await apply_child(self._client, child, application, manager=manager, force=self._children.force)
        self._children.applied.add(stored, application.desired)
        return stored

    def _document(self, child: Child) -> dict[str, Json]:
        return _document(codec_of(self._kind).encode(child))

    async def _refused(self, request: Request, existing: Child, error: InvalidError) -> None:
        """Decide what becomes of a change that the server will never take."""
        fields = [cause.field for cause in error.causes if _IMMUTABLE.search(cause.message)]
        if not fields and not _IMMUTABLE.search(error.server_message):
            raise error
        kind = self.info.kind
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


def _document(raw: bytes) -> dict[str, Json]:
    document: dict[str, Json] = msgspec.json.decode(raw)
    return document
