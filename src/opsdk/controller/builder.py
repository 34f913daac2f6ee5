"""How a controller is put together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Generic, Self, TypeAlias, final

from typing_extensions import TypeVar

from opsdk.cache import Cached, Informer
from opsdk.controller._malformed import MalformedObjects
from opsdk.controller._self_trigger import SelfTriggerDetector
from opsdk.controller._share import Share, WorkDivision
from opsdk.controller._sources import (
    KeyStream,
    MapFunction,
    MappedSource,
    OwnedSource,
    PrimarySource,
    Source,
    StreamSource,
)
from opsdk.controller.controller import Controller
from opsdk.controller.host import ControllerHost
from opsdk.controller.predicates import Predicate
from opsdk.errors import ManagerError
from opsdk.models import resource_of
from opsdk.protocols import KubeObject, Reconciler
from opsdk.types import LabelSelector, Request, Result
from opsdk.workqueue import RateLimiter, WorkQueue

__all__ = ["ControllerBuilder", "ReconcileFunction"]

T = TypeVar("T", bound=KubeObject)
C = TypeVar("C", bound=KubeObject)

ReconcileFunction: TypeAlias = Callable[[Request], Awaitable[Result]]
"""A reconciler that is a function."""


@final
class ControllerBuilder(Generic[T]):
    """Puts together a controller of one kind; `complete` makes it and gives it to the host.

    ::

        manager.controller(Widget).owns(Deployment).options(max_concurrent=4).complete(reconciler)

    Args:
        host: Will run it; a manager.
        kind: The class whose objects are reconciled.

    Raises:
        ResourceDefinitionError: The class does not say which kind it stands for.
    """

    def __init__(self, host: ControllerHost, kind: type[T]) -> None:
        self._host = host
        self._kind = kind
        self._resource = resource_of(kind)
        self._name = self._resource.kind.lower()
        self._labels: LabelSelector | None = None
        self._predicates: list[Predicate[T]] = []
        self._sources: list[Callable[[Sequence[Informer[T]]], Source]] = []
        self._max_concurrent = 1
        self._timeout: timedelta | None = None
        self._rate_limit: RateLimiter[Request] | None = None
        self._complete = False

    def named(self, name: str) -> Self:
        """Give it a name, for metrics and logs. Default: the kind in lower case. Unique in a process."""
        if not name:
            raise ValueError("a controller's name must not be empty")
        self._name = name
        return self

    def owns(self, child: type[C], *, predicates: Sequence[Predicate[C]] = ()) -> Self:
        """Reconcile the owner when one of its children changes.

        A child is known by its controller owner reference, or by the label that `ResourceOwner` puts on children that
        live where no reference can point.

        Args:
            child: The children's class.
            predicates: Only changes to which all say yes.
        """
        resource_of(child)

        def make(owners: Sequence[Informer[T]]) -> Source:
            return OwnedSource(self._informers(child), tuple(predicates), self._resource, owners, self._name)

        self._sources.append(make)
        return self

    def watches(
        self,
        kind: type[C],
        *,
        map: MapFunction[C],  # noqa: A002 - the word for it
        labels: LabelSelector | None = None,
        predicates: Sequence[Predicate[C]] = (),
    ) -> Self:
        """Reconcile what `map` says when an object of another kind changes.

        Args:
            kind: The class of the other objects.
            map: Is given the object, before and after a modification, and returns which of ours to reconcile. Sync or
                async; sync functions run on the loop and must be quick.
            labels: Only objects that match.
            predicates: Only changes to which all say yes.
        """
        resource_of(kind)

        def make(_owners: Sequence[Informer[T]]) -> Source:
            return MappedSource(self._informers(kind, labels), tuple(predicates), map, self._name)

        self._sources.append(make)
        return self

    def source(self, stream: KeyStream) -> Self:
        """Reconcile what a stream from anywhere says.

        Args:
            stream: An async iterable of requests, or an async function that is given a `KeySink` to put them in. When
                it ends, the other sources go on; when it raises, the controller fails.
        """

        def make(_owners: Sequence[Informer[T]]) -> Source:
            return StreamSource(stream)

        self._sources.append(make)
        return self

    def predicates(self, *predicates: Predicate[T]) -> Self:
        """Reconcile only changes of the kind itself to which all of these say yes. Default: every change."""
        self._predicates += predicates
        return self

    def options(
        self,
        *,
        max_concurrent: int | None = None,
        timeout: timedelta | None = None,
        rate_limit: RateLimiter[Request] | None = None,
        labels: LabelSelector | None = None,
    ) -> Self:
        """Say how to work. What is not given, or None, stays as it is; so it may be called again for more.

        Args:
            max_concurrent: How many objects may be reconciled at once. Default 1.
            timeout: A reconcile that takes longer is cancelled and counts as failed, with `ReconcileTimeoutError`.
                Default: none.
            rate_limit: How failed objects wait. Default: backoff from 5 ms to 1000 s, and 10 a second over all.
            labels: Only objects that match are watched and reconciled. Default: all.

        Raises:
            ValueError: `max_concurrent` is below 1, or `timeout` not positive.
        """
        if max_concurrent is not None and max_concurrent < 1:
            msg = f"max_concurrent is {max_concurrent}; it must be at least 1"
            raise ValueError(msg)
        if timeout is not None and timeout <= timedelta(0):
            msg = f"timeout is {timeout}; it must be positive (leave it out for none)"
            raise ValueError(msg)
        if max_concurrent is not None:
            self._max_concurrent = max_concurrent
        if timeout is not None:
            self._timeout = timeout
        if rate_limit is not None:
            self._rate_limit = rate_limit
        if labels is not None:
            self._labels = labels
        return self

    def complete(self, reconciler: Reconciler | ReconcileFunction) -> Controller:
        """Make the controller and give it to the host.

        Raises:
            ManagerError: This builder has made one already.
        """
        if self._complete:
            raise ManagerError(f"the builder of controller {self._name} was completed before; make a new one")
        self._complete = True
        primary = self._informers(self._kind, self._labels)
        detector = SelfTriggerDetector[T](self._name)
        malformed = MalformedObjects()

        def look_up(request: Request) -> Cached[T] | None:
            for informer in primary:
                if (found := informer.read(request)) is not None:
                    return found
            return None

        queue = WorkQueue(self._name, rate_limiter=self._rate_limit, metrics=self._host.metrics.workqueue(self._name))
        self._host.metrics.watch_workqueue(queue)

        def share(division: WorkDivision) -> Share[T]:
            return Share(division, primary, queue)

        controller = Controller(
            self._name,
            resource=self._resource,
            reconcile=reconciler.reconcile if isinstance(reconciler, Reconciler) else reconciler,
            queue=queue,
            look_up=look_up,
            share=share,
            sources=[
                PrimarySource(primary, tuple(self._predicates), detector, malformed, self._name),
                *(make(primary) for make in self._sources),
            ],
            detector=detector,
            malformed=malformed,
            metrics=self._host.metrics.reconcile(self._name),
            max_concurrent=self._max_concurrent,
            timeout=self._timeout,
        )
        self._host.add(controller)
        return controller

    def _informers(self, kind: type[C], labels: LabelSelector | None = None) -> Sequence[Informer[C]]:
        """One for each namespace that is watched."""
        places: Sequence[str | None] = self._host.namespaces if resource_of(kind).namespaced else ()
        return [self._host.informers.informer(kind, place, labels) for place in places or (None,)]
