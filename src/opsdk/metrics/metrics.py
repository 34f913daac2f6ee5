"""All metrics of one process's operator, under the names that existing dashboards and alerts use.

`controller_runtime_*`, `workqueue_*`, `rest_client_*` and `leader_election_*` have controller-runtime's names, labels
and buckets; what it does not have is `opsdk_*`. Labels are controllers, kinds, declared states, verbs and codes: sets
that the program fixes, never ones that grow with objects.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from pathlib import Path
from typing import Final, final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

from opsdk.metrics._buckets import DWELL_SECONDS, RECONCILE_SECONDS, REST_CLIENT_SECONDS, WORKQUEUE_SECONDS
from opsdk.metrics._collectors import (
    CensusCollector,
    ShardCollector,
    ShardShare,
    ShardState,
    WorkInProgress,
    WorkInProgressCollector,
)
from opsdk.metrics._exposition import Exposition
from opsdk.metrics._families import Counts, Levels, Spreads
from opsdk.metrics.adapters import (
    EventMeter,
    LeaderMeter,
    MachineMeter,
    PersistenceMeter,
    ReconcileMeter,
    RestClientMeter,
    WorkQueueMeter,
)
from opsdk.metrics.census import Census
from opsdk.metrics.serving import ServingTls, ThreadedServer

__all__ = ["Metrics"]


@final
class Metrics:
    """The metrics of one manager, and the meters that its parts report to.

    Several may live in one process: each has its own registry unless one is given.

    Args:
        registry: Where to register. Default: a new registry, with the process's and Python's own metrics in it.
            A registry takes one `Metrics`; prometheus_client refuses the second.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        if registry is None:
            registry = CollectorRegistry(auto_describe=True)
            ProcessCollector(registry=registry)
            PlatformCollector(registry=registry)
            GCCollector(registry=registry)
        self._registry = registry
        self._lock = threading.Lock()
        self._censuses = CensusCollector()
        self._in_progress = WorkInProgressCollector()
        registry.register(self._censuses)
        registry.register(self._in_progress)
        self._shards = ShardCollector()
        registry.register(self._shards)

        self._reconcile_total = Counts(
            "controller_runtime_reconcile_total",
            "Reconciliations per controller and result.",
            ["controller", "result"],
            registry=registry,
        )
        self._reconcile_errors = Counts(
            "controller_runtime_reconcile_errors_total",
            "Reconciliations that failed, per controller.",
            ["controller"],
            registry=registry,
        )
        self._terminal_errors = Counts(
            "controller_runtime_terminal_reconcile_errors_total",
            "Reconciliations that failed and are not retried, per controller.",
            ["controller"],
            registry=registry,
        )
        self._reconcile_panics = Counts(
            "controller_runtime_reconcile_panics_total",
            "Reconciliations that raised something unexpected, per controller.",
            ["controller"],
            registry=registry,
        )
        self._reconcile_timeouts = Counts(
            "controller_runtime_reconcile_timeouts_total",
            "Reconciliations that ran past their timeout, per controller.",
            ["controller"],
            registry=registry,
        )
        self._reconcile_time = Spreads(
            "controller_runtime_reconcile_time_seconds",
            "How long a reconciliation takes, per controller.",
            ["controller"],
            buckets=RECONCILE_SECONDS,
            registry=registry,
        )
        self._max_concurrent = Levels(
            "controller_runtime_max_concurrent_reconciles",
            "How many reconciliations may run at once, per controller.",
            ["controller"],
            registry=registry,
        )
        self._active_workers = Levels(
            "controller_runtime_active_workers",
            "How many reconciliations run now, per controller.",
            ["controller"],
            registry=registry,
        )
        self._self_triggers = Counts(
            "opsdk_self_triggers_total",
            "Objects found whose every reconcile causes the next one, per controller.",
            ["controller"],
            registry=registry,
        )

        queue_labels = ["name", "controller"]
        self._queue_depth = Levels("workqueue_depth", "Keys that wait.", queue_labels, registry=registry)
        self._queue_adds = Counts("workqueue_adds_total", "Keys that were added.", queue_labels, registry=registry)
        self._queue_retries = Counts(
            "workqueue_retries_total", "Keys that were added again with backoff.", queue_labels, registry=registry
        )
        self._queue_wait = Spreads(
            "workqueue_queue_duration_seconds",
            "How long a key waits before it is worked on.",
            queue_labels,
            buckets=WORKQUEUE_SECONDS,
            registry=registry,
        )
        self._queue_work = Spreads(
            "workqueue_work_duration_seconds",
            "How long a key is worked on.",
            queue_labels,
            buckets=WORKQUEUE_SECONDS,
            registry=registry,
        )

        self._requests = Counts(
            "rest_client_requests_total",
            "Requests to the API server, by status code, method and host.",
            ["code", "method", "host"],
            registry=registry,
        )
        self._request_time = Spreads(
            "rest_client_request_duration_seconds",
            "How long a request to the API server takes, by verb and host.",
            ["verb", "host"],
            buckets=REST_CLIENT_SECONDS,
            registry=registry,
        )
        self.rest_client: Final[RestClientMeter] = RestClientMeter(self._requests, self._request_time)
        """Reports requests; implements the client's `RequestObserver`."""

        self._leader = Gauge(
            "leader_election_master_status",
            "Whether this process holds the Lease: 1 leader, 0 standby.",
            ["name"],
            registry=registry,
        )
        self._leader_slow = Counter(
            "leader_election_slowpath_total",
            "Renewals of the Lease that had to read it first.",
            ["name"],
            registry=registry,
        )

        self._transitions = Counter(
            "opsdk_state_transitions_total",
            "Transitions of the state machine, by kind, from and to; from is empty for the first state.",
            ["kind", "from", "to"],
            registry=registry,
        )
        self._dwell = Histogram(
            "opsdk_state_dwell_seconds",
            "How long objects stayed in a state before they left it.",
            ["kind", "state"],
            buckets=DWELL_SECONDS,
            registry=registry,
        )
        self._passes = Counts(
            "opsdk_state_machine_passes_total",
            "Passes of the state machine, by kind and result.",
            ["kind", "result"],
            registry=registry,
        )
        self._pass_time = Spreads(
            "opsdk_state_machine_pass_seconds",
            "How long a pass of the state machine takes.",
            ["kind"],
            buckets=RECONCILE_SECONDS,
            registry=registry,
        )
        self._panics = Counter(
            "opsdk_panics_total",
            "Unexpected exceptions in the hooks of a kind's state machine.",
            ["kind"],
            registry=registry,
        )
        self._malformed = Counter(
            "opsdk_malformed_objects_total",
            "Objects of a watched kind that did not fit their model and were skipped, once per resourceVersion.",
            ["kind"],
            registry=registry,
        )

        self._upserts = Counter(
            "opsdk_persistence_upserts_total",
            "Upserts into the database, by kind and result: stored, not_ready, conflict or failed.",
            ["kind", "result"],
            registry=registry,
        )
        self._deletes = Counter(
            "opsdk_persistence_deletes_total",
            "Deletes from the database, by kind and result: deleted or failed.",
            ["kind", "result"],
            registry=registry,
        )
        self._conflicts = Counter(
            "opsdk_persistence_conflicts_total",
            "Unique constraints that were violated, by kind and what on_conflict did: resolved or failed.",
            ["kind", "result"],
            registry=registry,
        )
        self._not_ready = Counter(
            "opsdk_persistence_not_ready_total",
            "Upserts of objects that are stored and not ready, by kind and reason; many reasons are counted as other.",
            ["kind", "reason"],
            registry=registry,
        )
        self._hook_time = Histogram(
            "opsdk_persistence_hook_seconds",
            "How long the database takes, by kind and hook: upsert, delete or conflict.",
            ["kind", "hook"],
            buckets=RECONCILE_SECONDS,
            registry=registry,
        )

        self.events: Final[EventMeter] = EventMeter(
            Counter(
                "opsdk_events_total",
                "Kubernetes events, by type and what became of them: created, counted, held or failed.",
                ["type", "outcome"],
                registry=registry,
            )
        )
        """Reports Kubernetes events; see `opsdk.events.Recorder`."""

    @property
    def registry(self) -> CollectorRegistry:
        """The registry, for metrics of your own: `Counter(..., registry=manager.metrics.registry)`."""
        return self._registry

    def reconcile(self, controller: str, /) -> ReconcileMeter:
        """The meter of one controller."""
        return ReconcileMeter(
            controller,
            total=self._reconcile_total,
            errors=self._reconcile_errors,
            terminal_errors=self._terminal_errors,
            panics=self._reconcile_panics,
            timeouts=self._reconcile_timeouts,
            seconds=self._reconcile_time,
            max_concurrent=self._max_concurrent,
            active_workers=self._active_workers,
            self_triggers=self._self_triggers,
        )

    def workqueue(self, name: str, /) -> WorkQueueMeter:
        """The meter of one workqueue. For work that is under way, `watch_workqueue` as well."""
        return WorkQueueMeter(
            name,
            depth=self._queue_depth,
            adds=self._queue_adds,
            retries=self._queue_retries,
            wait=self._queue_wait,
            work=self._queue_work,
        )

    def watch_workqueue(self, queue: WorkInProgress, /) -> None:
        """Ask `queue` at each scrape what its workers are at; it takes the place of one of the same name."""
        self._in_progress.add(queue)

    def watch_shards(self, state: ShardState, /) -> None:
        """Ask `state` at each scrape how objects are divided: `opsdk_shard_*`."""
        self._shards.watch(state)

    def watch_share(self, share: ShardShare, /) -> None:
        """Ask a controller at each scrape how many objects are this process's: `opsdk_shard_objects`."""
        self._shards.add(share)

    def leader(self, name: str, /) -> LeaderMeter:
        """The meter of one Lease."""
        return LeaderMeter(self._leader.labels(name), self._leader_slow.labels(name))

    def machine(self, kind: str, states: Collection[str] = ()) -> MachineMeter:
        """The meter of one kind's state machine.

        Args:
            kind: The kind.
            states: The states that it has; any other is reported as `unknown`.
        """
        return MachineMeter(
            kind,
            states,
            transitions=self._transitions,
            dwell=self._dwell,
            passes=self._passes,
            seconds=self._pass_time,
            panics=self._panics,
        )

    def persistence(self, kind: str, /) -> PersistenceMeter:
        """The meter of how one kind is kept in a database."""
        return PersistenceMeter(
            kind,
            upserts=self._upserts,
            deletes=self._deletes,
            conflicts=self._conflicts,
            not_ready=self._not_ready,
            seconds=self._hook_time,
        )

    def malformed(self, kind: str, /) -> None:
        """Count one object of `kind` that did not fit its model."""
        self._malformed.labels(kind).inc()

    def census(self, kind: str, states: Collection[str] = ()) -> Census:
        """The counts of one kind's objects; a second call for the same kind returns the same census.

        Shows as `opsdk_objects`, `opsdk_generation_lag_objects` and `opsdk_deletion_backlog_objects`.

        Args:
            kind: The kind.
            states: The states that objects can be in.
        """
        return self._censuses.of(kind, states)

    def exposition(self) -> bytes:
        """Everything in Prometheus' text format, as a scrape would get it."""
        return generate_latest(self._registry)

    def server(
        self,
        bind_address: str = ":8080",
        *,
        certificate: Path | None = None,
        key: Path | None = None,
        client_ca: Path | None = None,
    ) -> ThreadedServer:
        """An endpoint that serves `/metrics` from threads of its own; enter it to start.

        Args:
            bind_address: `HOST:PORT`; no host means all addresses, port 0 lets the system choose.
            certificate: Serve HTTPS with this PEM certificate and `key`.
            key: The certificate's private key.
            client_ca: Ask clients for a certificate that this authority signed.

        Raises:
            ConfigurationError: The address is malformed or taken, or the certificates cannot be used.
        """
        return ThreadedServer(
            Exposition(self._registry),
            bind_address,
            tls=ServingTls.of(certificate=certificate, key=key, client_ca=client_ca),
        )
