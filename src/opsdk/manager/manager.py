"""One task group of runnables, in order up and in order down."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import final

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup, TaskStatus
from typing_extensions import TypeVar

from opsdk._backend import ThreadWaker
from opsdk._groups import raise_bare
from opsdk.cache import CachedClient, Informers
from opsdk.client import ApiClient
from opsdk.controller import Controller, ControllerBuilder
from opsdk.errors import ConfigurationError, LeadershipLostError, ManagerError
from opsdk.events import Recorder
from opsdk.manager._failures import raise_failures
from opsdk.manager._group import RunnableGroup
from opsdk.manager._malformed import MalformedReporter
from opsdk.manager.election import LeaderElector
from opsdk.manager.logs import configure_logging
from opsdk.manager.options import ManagerOptions
from opsdk.manager.probes import Check, Health, ProbeApplication, Verdict
from opsdk.manager.readiness import Readiness
from opsdk.manager.sharding import ShardMembership
from opsdk.manager.watchdog import Watchdog
from opsdk.metrics import Metrics, ThreadedServer
from opsdk.protocols import KubeObject, Runnable

__all__ = ["Manager"]

T = TypeVar("T", bound=KubeObject)

_logger = logging.getLogger(__name__)


@final
class Manager:
    """Runs controllers and what they need: caches, leader election, probes, metrics.

    Starts in this order: probes and metrics, caches, runnables that run everywhere, and, once this process leads,
    controllers and other leader-only runnables. Stops in the opposite one: leader-only runnables stop taking work and
    get the grace period to finish what they are at, then the others, the caches, probes and metrics; the Lease is given
    back last.

    *Guarantees*: a replica that does not lead never starts leader-only work, also while it stops. When leadership is
    lost, leader work is cancelled at once and `client` refuses to write. The process is never exited: `run` and `start`
    raise what went wrong. A manager makes at most one client, and closes only that one.

    *Not promised*: an end within the grace period when a task suppresses its cancellation.

    Args:
        options: See `ManagerOptions`. Default: as there, without leader election.
        client: How to reach the API server; stays the caller's. Default: one from the environment (in a cluster, or a
            kubeconfig), which the manager owns.
        metrics: Where to count. Default: new ones, with a registry of their own.

    Raises:
        ConfigurationError: There is no usable configuration for a client, or no namespace for the Lease.
    """

    def __init__(
        self,
        options: ManagerOptions | None = None,
        *,
        client: ApiClient | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._options = options = options if options is not None else ManagerOptions(leader_election=False)
        self._metrics = metrics if metrics is not None else Metrics()
        self._owns_client = client is None
        base = client if client is not None else _client_from_env(options)
        self._api_client = base.with_observer(self._metrics.rest_client)
        self._elector = self._make_elector(options)
        self._shards = self._make_shards(options)
        alone = self._elector is None and self._shards is None
        gated = self._api_client if alone else self._api_client.with_gate(self._gate)
        self._informers = Informers(self._api_client, options=options.reflector, namespaces=options.namespaces)
        self._client = CachedClient(gated, self._informers)
        self._recorder = Recorder(
            gated, component=options.field_manager, observer=self._metrics.events, redact=options.redact
        )

        self._failures: list[Exception] = []
        self._caches = RunnableGroup("caches", self._failed)
        self._everywhere = RunnableGroup("runnables", self._failed)
        self._leader_only = RunnableGroup("leader-only runnables", self._failed)
        self._sharded = RunnableGroup("controllers", self._failed)
        self._informers.malformed = malformed = MalformedReporter(self._metrics, self._recorder)
        self._caches.add(malformed)
        self._caches.add(self._informers)

        self._readiness = Readiness(self._informers, staleness=options.readiness_staleness)
        self._watchdog = Watchdog(warn_after=options.block_warning, on_beat=self._readiness.look)
        self._liveness_checks = Health("livez", self._loop_verdicts)
        self._readiness_checks = Health("readyz", self._ready_verdicts)
        self._servers: dict[str, ThreadedServer] = {}

        self._controllers: set[str] = set()
        self._claim = threading.Lock()
        self._used = False
        self._stop_asked = ThreadWaker()
        self._stopping = False

    def _make_elector(self, options: ManagerOptions) -> LeaderElector | None:
        if not options.leader_election:
            return None
        return LeaderElector(
            self._api_client,
            name=options.leader_election_id,
            namespace=self._lease_namespace(options),
            identity=options.leader_election_identity,
            lease_duration=options.lease_duration,
            renew_deadline=options.renew_deadline,
            retry_period=options.retry_period,
            observer=self._metrics.leader(options.leader_election_id),
        )

    def _make_shards(self, options: ManagerOptions) -> ShardMembership | None:
        if options.sharding is None:
            return None
        shards = ShardMembership(
            self._api_client,
            name=options.leader_election_id,
            namespace=self._lease_namespace(options),
            identity=options.leader_election_identity,
            lease_duration=options.lease_duration,
            renew_deadline=options.renew_deadline,
            retry_period=options.retry_period,
            hand_over_grace=options.sharding.hand_over_grace,
        )
        self._metrics.watch_shards(shards)
        return shards

    def _lease_namespace(self, options: ManagerOptions) -> str:
        namespace = options.leader_election_namespace or self._api_client.namespace
        if namespace is None:
            msg = (
                "leader_election_namespace: the Lease needs a namespace, and neither the pod nor the kubeconfig's "
                "context has one; set ManagerOptions.leader_election_namespace"
            )
            raise ConfigurationError(msg)
        return namespace

    def _gate(self) -> None:
        """Before each write: a reconcile under sharding needs its turn, everything else leadership, or membership."""
        if self._shards is not None and (self._elector is None or self._shards.current_turn() is not None):
            self._shards.gate()
        elif self._elector is not None:
            self._elector.gate()

    # What a program works with

    @property
    def options(self) -> ManagerOptions:
        """The options."""
        return self._options

    @property
    def client(self) -> CachedClient:
        """For reconcilers: reads watched kinds from their caches; writes only while this process leads.

        Under sharding, a reconcile may write as long as its object is this process's. A write without that right is a
        `LeadershipLostError`.
        """
        return self._client

    @property
    def api_client(self) -> ApiClient:
        """For everything else: reads from the server, and writes whether or not this process leads."""
        return self._api_client

    @property
    def informers(self) -> Informers:
        """The caches, shared by all controllers."""
        return self._informers

    @property
    def metrics(self) -> Metrics:
        """The metrics; add your own to `metrics.registry`."""
        return self._metrics

    @property
    def recorder(self) -> Recorder:
        """Records events about objects, in the operator's name."""
        return self._recorder

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The namespaces that are watched; empty: all."""
        return self._options.namespaces

    @property
    def is_leader(self) -> bool:
        """Whether this process may write now. Always, without leader election. Needs a running loop.

        Under sharding: whether it may run leader-only work that is no controller.
        """
        return self._elector is None or self._elector.is_leader

    @property
    def shards(self) -> ShardMembership | None:
        """This process's part in dividing the objects; None without sharding."""
        return self._shards

    @property
    def metrics_url(self) -> str | None:
        """Where `/metrics` is served on this machine; None when it is not, or not now."""
        return self._server_url("metrics")

    @property
    def probes_url(self) -> str | None:
        """Where the probes are served on this machine; None when they are not, or not now."""
        return self._server_url("probes")

    def _server_url(self, name: str) -> str | None:
        server = self._servers.get(name)
        return None if server is None else server.url

    def controller(self, kind: type[T], /) -> ControllerBuilder[T]:
        """A builder of a controller of `kind`, to be finished with `.complete(reconciler)`.

        Raises:
            ResourceDefinitionError: The class does not say which kind it is.
        """
        return ControllerBuilder(self, kind)

    def add(self, runnable: Runnable, /, *, leader_only: bool = True) -> None:
        """Run `runnable` with the manager. When it raises, the manager stops and raises that.

        Call it before the start, or on the manager's loop: then it runs at once.

        One with a method `drain()` is asked to end by itself when the manager stops, and cancelled after the grace
        period; any other is cancelled.

        Args:
            runnable: What to run. It may return early: then it is done.
            leader_only: Run it only while this process leads (the default), or on every replica.

        Raises:
            ManagerError: It is a controller with the name of another one: their metrics and logs would be mixed up. Or
                it is for the leader only, and there is sharding without leader election.
        """
        if isinstance(runnable, Controller):
            if runnable.name in self._controllers:
                msg = (
                    f"there is a controller {runnable.name!r} already; give this one another name: "
                    f"manager.controller(Kind).named('{runnable.name}-2')"
                )
                raise ManagerError(msg)
            self._controllers.add(runnable.name)
            if leader_only and self._shards is not None:
                runnable.divide(self._shards)
                self._metrics.watch_share(runnable)
                self._sharded.add(runnable)
                return
        elif leader_only and self._shards is not None and self._elector is None:
            msg = (
                f"{runnable!r} is for the leader only, and with sharding and leader_election=False there is none: it "
                "would run on every replica. Set leader_election=True, or say leader_only=False"
            )
            raise ManagerError(msg)
        (self._leader_only if leader_only else self._everywhere).add(runnable)

    def add_readiness_check(self, name: str, check: Check) -> None:
        """Make `/readyz` depend on `check`; see `Check` for what it returns and where it is called."""
        self._readiness_checks.add(name, check)

    def add_liveness_check(self, name: str, check: Check) -> None:
        """Make `/livez` and `/healthz` depend on `check`. What fails here restarts the pod."""
        self._liveness_checks.add(name, check)

    # Life

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT; a second one cancels at once. Must be called in the main thread.

        Sets up logging as the options say, where the program has not.

        Raises:
            ManagerError: It was started before.
            LeadershipLostError: Another replica may lead now.
            Exception: What a runnable raised; a group when independent ones failed together.
        """
        if self._options.log_format is not None and not logging.getLogger().handlers:
            configure_logging(self._options.log_format, self._options.log_level, redact=self._options.redact)
        try:
            async with anyio.create_task_group() as tasks:
                hurry = anyio.Event()
                await tasks.start(self._listen_to_signals, hurry)
                await self._start(hurry)
                tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise_bare(group)

    async def start(self) -> None:
        """Run until `stop` is called or something fails. Leaves signals alone.

        Raises:
            ManagerError: It was started before.
            LeadershipLostError: Another replica may lead now.
            Exception: What a runnable raised; a group when independent ones failed together.
        """
        await self._start(anyio.Event())

    def stop(self) -> None:
        """Begin to stop, in order, and return at once. From any thread; also before the start, and more than once."""
        self._stopping = True
        self._stop_asked.wake()

    async def _listen_to_signals(
        self, hurry: anyio.Event, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            task_status.started()
            stop_asked = False
            async for received in signals:
                if stop_asked:
                    _logger.warning("%s again: cancelling what still runs", received.name)
                    hurry.set()
                else:
                    _logger.info("%s: stopping", received.name)
                    stop_asked = True  # by a signal: whoever called `stop` before has not asked to hurry
                    self.stop()

    async def _start(self, hurry: anyio.Event) -> None:
        with self._claim:
            if self._used:
                raise ManagerError("this manager was started before; make a new one")
            self._used = True
        try:
            async with self._serving():
                await self._work(hurry)
        except BaseExceptionGroup as group:
            raise_bare(group)
        finally:
            if self._elector is not None:
                await self._elector.release()
            if self._owns_client:
                with anyio.CancelScope(shield=True):
                    await self._api_client.aclose()
        raise_failures("several runnables failed", self._failures)

    async def _work(self, hurry: anyio.Event) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watchdog.run, name="opsdk watchdog")
            self._caches.start(tasks)
            self._everywhere.start(tasks)
            if self._shards is not None:
                self._sharded.start(tasks)
                tasks.start_soon(self._divide, self._shards, name="opsdk sharding")
            election = anyio.CancelScope()
            tasks.start_soon(self._lead, tasks, election, name="opsdk leader election")
            _logger.info("started")
            while not self._stopping:
                await self._stop_asked.wait()
            if not self.is_leader:
                election.cancel()
            self._readiness.stopping = True
            deadline = anyio.current_time() + self._options.grace_period.total_seconds()
            async with anyio.create_task_group() as work:  # neither needs the other
                for group in (self._leader_only, self._sharded):
                    work.start_soon(self._stop_group, group, deadline, hurry)
            for group in (self._everywhere, self._caches):
                await self._stop_group(group, deadline, hurry)
            tasks.cancel_scope.cancel()

    async def _stop_group(self, group: RunnableGroup, deadline: float, hurry: anyio.Event) -> None:
        must_end = self._lost and group is not self._sharded  # those have a right of their own to go on
        grace = 0.0 if must_end else max(deadline - anyio.current_time(), 0.0)
        await group.stop(grace, hurry=hurry)

    async def _divide(self, shards: ShardMembership) -> None:
        """Be a member when the caches are complete, or have had time to: a kind that cannot be read stops no others."""
        with anyio.move_on_after(self._options.lease_duration.total_seconds()):
            await self._informers.wait_synced()
        try:
            await shards.run()
        except Exception as error:  # noqa: BLE001 - raised at the end of the manager
            self._failed(error)

    async def _lead(self, tasks: TaskGroup, election: anyio.CancelScope) -> None:
        """Start what leaders do when this process leads, and keep the Lease until the end of the work."""
        if self._elector is None:
            self._leader_only.start(tasks)
            return
        try:
            with election:
                await self._elector.acquire()
                if not self._stopping:
                    self._leader_only.start(tasks)
                await self._elector.hold()
        except Exception as error:  # noqa: BLE001 - raised at the end of the manager
            self._readiness.leadership = "leadership was lost; the manager is stopping"
            self._leader_only.cancel()
            self._failed(error)

    @property
    def _lost(self) -> bool:
        return any(isinstance(failure, LeadershipLostError) for failure in self._failures)

    def _failed(self, error: Exception) -> None:
        _logger.error("stopping because of %s: %s", type(error).__name__, error)
        self._failures.append(error)
        self.stop()

    @asynccontextmanager
    async def _serving(self) -> AsyncGenerator[None]:
        """Probes and metrics, on threads of their own."""
        options = self._options
        try:
            if options.serve_probes:
                self._servers["probes"] = ThreadedServer(
                    ProbeApplication(self._liveness_checks, self._readiness_checks), options.probe_bind_address
                )
            if options.serve_metrics:
                self._servers["metrics"] = self._metrics.server(
                    options.metrics_bind_address,
                    certificate=options.metrics_certificate,
                    key=options.metrics_key,
                    client_ca=options.metrics_client_ca,
                )
            for name, server in self._servers.items():
                server.start()
                _logger.info("serving %s at %s", name, server.url)
            yield
        finally:
            servers = list(self._servers.values())
            self._servers.clear()
            with anyio.CancelScope(shield=True):
                for server in servers:
                    await anyio.to_thread.run_sync(server.close)

    # Health

    def _loop_verdicts(self) -> Sequence[Verdict]:
        silence = self._watchdog.silence_seconds
        blocked = silence >= self._options.liveness_block.total_seconds()
        return [Verdict("loop", f"the event loop has not turned for {silence:.0f} s" if blocked else None)]

    def _ready_verdicts(self) -> Sequence[Verdict]:
        return [*self._loop_verdicts(), *self._readiness.verdicts()]


def _client_from_env(options: ManagerOptions) -> ApiClient:
    return ApiClient.from_env(context=options.kubeconfig_context, field_manager=options.field_manager)
