"""Runs a reconciler against the in-memory API server, when the test says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType
from typing import Generic, Self, cast, final, overload

from lightkube import AsyncClient
from typing_extensions import TypeVar

from opsdk import clock
from opsdk.client import ApiClient, Transport
from opsdk.clock import ManualClock
from opsdk.errors import RetryError, TerminalError
from opsdk.models import metadata_of, request_of, resource_of
from opsdk.protocols import Client, KubeObject, Reconciler
from opsdk.testing.apiserver import ApiServer
from opsdk.testing.simulator._errors import NotSettledError, SimulatorUsageError
from opsdk.testing.simulator._expectations import Expectations
from opsdk.testing.simulator._httpx2 import lightkube_client
from opsdk.testing.simulator._path import Target
from opsdk.testing.simulator._pending import Pending, PrimaryKind
from opsdk.testing.simulator._recording import RecordingTransport
from opsdk.testing.simulator._report import queued_text
from opsdk.testing.simulator._seeding import ensure_namespace, is_served, set_ready, set_state
from opsdk.types import Request, Result

__all__ = ["Simulator"]

T = TypeVar("T", bound=KubeObject)
R_co = TypeVar("R_co", bound=Reconciler, default=Reconciler, covariant=True)

_FIELD_MANAGER = "simulator"
_TEST_MANAGER = "simulator-test"
_LAST_SHOWN = 4


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _World(Generic[R_co]):
    """What exists between the start and the end of `async with`."""

    server: ApiServer
    transport: Transport
    client: ApiClient
    reconciler: R_co
    pending: Pending


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Primary:
    kind: type[KubeObject]
    request: Request
    resource: PrimaryKind


@final
class Simulator(Expectations, Generic[R_co]):
    """A reconciler, an in-memory API server, and a record of what the one wrote to the other.

    ::

        async with Simulator(WidgetReconciler) as sim:
            await sim.create(Widget(metadata=ObjectMeta(name="w"), spec=WidgetSpec()))
            sim.expect_create(Deployment, matching(replicas(1)))

    Everything happens when the test says so: no tasks, no sockets, no real time. The wall clock that the reconciler
    and the server see is `clock`; only `settle` and `advance` move it. The *primary* is the first object created.

    *Guarantees*: writes are recorded in order, whichever client makes them; reads, dry runs and access reviews are not
    recorded. Writes that the server refuses change nothing, so they are not expected, but kept in `refused` and shown
    when something fails. The end of `async with` asserts that every write was expected, unless its body raised.

    *Not promised*: what a cluster's controllers do (a Deployment does not become available by itself); stale caches
    (the reconciler reads what is stored).

    To a type checker it is a `Simulator[WidgetReconciler]`; one without a parameter takes any reconciler.

    Args:
        make_reconciler: Called once, with a client whose writes are recorded; returns the reconciler.
        client_type: `lightkube.AsyncClient`, for a reconciler that takes lightkube's own client.
        install: Custom resources to define besides those of created objects, such as children.
        namespace: The namespace of objects that name none. Default: `default`.
    """

    @overload
    def __init__(
        self,
        make_reconciler: Callable[[Client], R_co],
        *,
        client_type: None = None,
        install: Sequence[type[KubeObject]] = (),
        namespace: str = "default",
    ) -> None: ...
    @overload
    def __init__(
        self,
        make_reconciler: Callable[[AsyncClient], R_co],
        *,
        client_type: type[AsyncClient],
        install: Sequence[type[KubeObject]] = (),
        namespace: str = "default",
    ) -> None: ...
    def __init__(
        self,
        make_reconciler: Callable[[Client], R_co] | Callable[[AsyncClient], R_co],
        *,
        client_type: type[AsyncClient] | None = None,
        install: Sequence[type[KubeObject]] = (),
        namespace: str = "default",
    ) -> None:
        super().__init__()
        self._make = (
            _with_our_client(cast("Callable[[Client], R_co]", make_reconciler))
            if client_type is None
            else _with_lightkube(cast("Callable[[AsyncClient], R_co]", make_reconciler), namespace)
        )
        self._install = tuple(install)
        self._namespace = namespace
        self._clock = ManualClock()
        self._exits = AsyncExitStack()
        self._open: _World[R_co] | None = None
        self._first: _Primary | None = None

    async def __aenter__(self) -> Self:
        if self._open is not None:
            raise SimulatorUsageError("a Simulator is entered once")
        async with AsyncExitStack() as exits:
            server = await exits.enter_async_context(ApiServer(clock=self._clock))
            transport = server.transport()
            if self._install:
                await server.install(*self._install)
            self._open = _World(
                server=server,
                transport=transport,
                client=server.client(field_manager=_TEST_MANAGER),
                reconciler=self._make(RecordingTransport(transport, self._log)),
                pending=Pending(transport=transport, revision=lambda: server.resource_version),
            )
            self._exits = exits.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        await self._exits.aclose()
        if error is None:
            self.assert_complete()

    @property
    def clock(self) -> ManualClock:
        """The wall clock of the reconciler and of the API server; starts at 2026-01-01T00:00:00Z."""
        return self._clock

    @property
    def server(self) -> ApiServer:
        """The API server under it all."""
        return self._world.server

    @property
    def fake_client(self) -> ApiClient:
        """A client that is not recorded: for what the test itself, or a cluster, does."""
        return self._world.client

    @property
    def reconciler(self) -> R_co:
        """What `make_reconciler` returned."""
        return self._world.reconciler

    def advance(self, by: timedelta, /) -> None:
        """Move the wall clock forward. Nothing is reconciled."""
        self._clock.advance(by)

    async def create(self, obj: T, /) -> T:
        """Store an object as a user would, without recording that, and reconcile.

        Custom resources are defined and namespaces created on demand; an object without a namespace gets the
        simulator's. An object of the primary's kind is reconciled itself, for any other kind the primary is.

        Returns:
            The object as it is afterwards; as it was stored, if the reconcile has deleted it.

        Raises:
            Exception: What the reconciler raised.
        """
        world = self._world
        kind = type(obj)
        info = resource_of(kind)
        if not await is_served(world.transport, kind):
            await world.server.install(kind)
        namespace: str | None = None
        if info.scope == "Namespaced":
            namespace = metadata_of(obj).namespace or self._namespace
            await ensure_namespace(world.transport, namespace)
        stored = await world.client.create(obj, namespace=namespace)
        request = request_of(stored)
        if self._first is None:
            target = Target(
                group=info.group, version=info.version, plural=info.plural, namespace=None, name=None, subresource=None
            )
            resource = PrimaryKind(
                group=info.group, kind=info.kind, target=target, namespaced=info.scope == "Namespaced"
            )
            self._first = _Primary(kind=kind, request=request, resource=resource)
        await self._run(request if kind is self._first.kind else self._first.request)
        return await world.client.find(kind, request.name, namespace=request.namespace) or stored

    async def reconcile(self, name: str | None = None, namespace: str | None = None) -> Result:
        """Reconcile once.

        Args:
            name: The object; None: the primary.
            namespace: Its namespace; None: the primary's, or none if that is cluster-scoped.

        Raises:
            Exception: What the reconciler raised.
            SimulatorUsageError: There is no primary and no name was given.
        """
        return await self._run(self._request(name, namespace))

    async def settle(self, *, within: timedelta | None = None, limit: int = 100) -> None:
        """Reconcile until nothing is due: what a controller would do if all was left alone.

        A reconcile is due when its object or a child has changed since it last ran (a child has an owner reference to
        the object, or its uid in the label `opsdk.dev/owner-uid`), and when the time has come that its last result
        asked for. In the latter case the clock jumps there. A reconcile that failed stays due.

        Args:
            within: How far the clock may jump in all; what is due later stays so, and the clock ends there. For
                reconcilers that always ask to be called again.
            limit: After how many reconciles to give up.

        Raises:
            Exception: What the reconciler raised.
            NotSettledError: `limit` reconciles were not enough.
        """
        pending, primary = self._world.pending, self._primary
        end = None if within is None else self._clock.now() + within
        ran: list[Request] = []
        while True:
            await pending.look(primary.resource, self._log.touched)
            request = next(iter(pending.changed), None)
            timer: tuple[Request, datetime] | None = None
            if request is None:
                timer = pending.first_timer()
                if timer is None or (end is not None and timer[1] > end):
                    break
                request = timer[0]
            if len(ran) >= limit:
                raise NotSettledError(self._unsettled_text(ran))
            if timer is not None:
                self._clock.advance(max(timer[1] - self._clock.now(), timedelta(0)))
            ran.append(request)
            await self._run(request)
        if end is not None:
            self._clock.advance(max(end - self._clock.now(), timedelta(0)))

    async def simulate_ready(self, kind: type[KubeObject], name: str, namespace: str | None = None) -> Result:
        """Set an object's Ready condition to True, as its controllers would, and reconcile the primary.

        The condition's reason is SimulatedReady. Of built-in kinds that controllers look after, status says besides
        that what theirs report: a Deployment is Available; Deployments, ReplicaSets, StatefulSets and DaemonSets have
        all replicas ready and the generation observed; a Job is Complete; a Pod and its containers run. All other
        conditions stay as they are.

        Args:
            kind: The object's kind, usually a child's.
            name: Its name.
            namespace: Its namespace; None: the primary's.

        Raises:
            ObjectError: There is no such object, or its status has no conditions.
            Exception: What the reconciler raised.
        """
        primary = self._primary
        place = self._place(kind, namespace)
        await set_ready(self._world.transport, kind, name, place, self._clock.now())
        return await self._run(primary.request)

    async def simulate_state(self, state: str) -> Result:
        """Put the primary into a state, without predicates and without its `enter`; then reconcile it.

        The state's history gets an entry with reason SimulatedState, so that its dwell time counts from now.

        Raises:
            ObjectError: The primary's status keeps no state.
            Exception: What the reconciler raised.
        """
        primary = self._primary
        request = primary.request
        await set_state(self._world.transport, primary.kind, request.name, request.namespace, state, self._clock.now())
        return await self._run(request)

    async def _run(self, request: Request) -> Result:
        pending = self._world.pending
        if self._first is not None:
            await pending.look(self._first.resource, self._log.touched)
        pending.ran(request)
        with clock.using(self._clock):
            try:
                result = cast("object", await self._world.reconciler.reconcile(request))
            except TerminalError:
                raise
            except RetryError as error:
                pending.timers[request] = self._clock.now() + error.requeue_after
                raise
            except Exception:
                pending.changed[request] = None
                raise
        if not isinstance(result, Result):
            what = "None" if result is None else f"{result!r}"
            raise SimulatorUsageError(f"reconcile returned {what}; it has to return a Result, such as Result()")
        if result.requeue_after is not None:
            pending.timers[request] = self._clock.now() + result.requeue_after
        return result

    @property
    def _world(self) -> _World[R_co]:
        if self._open is None:
            raise SimulatorUsageError("use it inside: async with Simulator(…) as sim")
        return self._open

    @property
    def _primary(self) -> _Primary:
        if self._first is None:
            raise SimulatorUsageError("there is no primary object yet: await sim.create(…) first")
        return self._first

    def _request(self, name: str | None, namespace: str | None) -> Request:
        if name is None:
            return self._primary.request
        if namespace is None and (self._first is None or self._first.resource.namespaced):
            namespace = self._namespace if self._first is None else self._first.request.namespace
        return Request(name, namespace)

    def _place(self, kind: type[KubeObject], namespace: str | None) -> str | None:
        if resource_of(kind).scope == "Cluster":
            return None
        return namespace or self._primary.request.namespace or self._namespace

    def _unsettled_text(self, ran: Sequence[Request]) -> str:
        pending = self._world.pending
        lines = [f"settle gave up after {len(ran)} reconciles"]
        lines += [f"  {request} is due because it, or a child of it, keeps changing" for request in pending.changed]
        for request, due in pending.timers.items():
            wait = (due - self._clock.now()).total_seconds()
            lines.append(f"  {request} asks to be called again in {wait:g} s; if it always does, use settle(within=…)")
        lines += queued_text("the last writes", self.actions[-_LAST_SHOWN:])
        return "\n".join(lines)


def _with_our_client(make: Callable[[Client], R_co]) -> Callable[[Transport], R_co]:
    return lambda transport: make(ApiClient(transport, field_manager=_FIELD_MANAGER))


def _with_lightkube(make: Callable[[AsyncClient], R_co], namespace: str) -> Callable[[Transport], R_co]:
    return lambda transport: make(lightkube_client(transport, namespace=namespace, field_manager=_FIELD_MANAGER))
