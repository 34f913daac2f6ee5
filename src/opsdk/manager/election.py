"""Leader election on a Lease: of all replicas, at most one works.

How it stays true although clocks differ and processes stall: nobody compares a time in the Lease with a clock. A
candidate measures, on its own monotonic clock, for how long the Lease has not changed; a leader counts its right to
work from the moment it *sent* the last renewal that succeeded, and for a shorter time than candidates wait. So its
gate has closed before another's can open, whatever their clocks say.
"""

from __future__ import annotations

import logging
import math
import random
import socket
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Final, Protocol, final
from uuid import uuid4

import anyio
import msgspec
from lightkube.models.coordination_v1 import LeaseSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.coordination_v1 import Lease

from opsdk import clock
from opsdk._groups import raise_bare
from opsdk.errors import (
    AlreadyExistsError,
    ApiError,
    ApiStatusError,
    ConfigurationError,
    ConflictError,
    DecodeError,
    InvalidError,
    LeadershipLostError,
    NotFoundError,
)
from opsdk.manager._claims import Claim, annotations_of, why
from opsdk.manager._names import lease_fault, namespace_fault
from opsdk.protocols import MetadataView, Reader, Writer

__all__ = ["LeaderElector", "LeaderObserver", "LeaseClient"]

_logger = logging.getLogger(__name__)

_JITTER: Final = 1.2
_RELEASE_SECONDS: Final = 5.0
_TICK: Final = timedelta(microseconds=1)


class LeaseClient(Reader, Writer, Protocol):
    """What election needs of a client. Give it one that reads from the server, not from a cache."""


class LeaderObserver(Protocol):
    """Is told about leadership."""

    def leading(self, is_leader: bool, /) -> None:  # noqa: FBT001 - a gauge of two values
        """This process leads now, or no longer."""
        ...

    def slow_path(self) -> None:
        """A renewal had to read the Lease first."""
        ...


@final
class LeaderElector:
    """Competes for a Lease, keeps it, and says at every moment whether this process may write.

    Use `run`, which does it all, or the steps one by one: `acquire`, `hold` beside the work, `release` after it.

    *Guarantees*: of all electors on a Lease with these durations, at most one has an open gate. Errors of the API
    server are outlived: while waiting, for as long as they last; while leading, until the renew deadline.

    *Not promised*: that a write which had left before the gate closed does not arrive late. Writes therefore carry a
    precondition as well. Nor does the guarantee hold where clocks stand still: on a machine that is suspended and
    woken up again, its monotonic clock has not counted the time; and for one retry period after somebody else has
    deleted the Lease, because a replica that never saw it takes the new one at once.

    Args:
        client: Reads and writes the Lease; must not itself be behind `gate`.
        name: The Lease's name: the same for all replicas of an operator, unique among operators in the namespace.
        namespace: The Lease's namespace.
        identity: Who we are; must be unique. Default: the host's name and a random part.
        lease_duration: How long others wait after the last renewal that they saw. Default 15 s; whole seconds.
        renew_deadline: How long after the last renewal the leader goes on by itself. Default 10 s.
        retry_period: Time between tries, renewals included. Default 2 s; tries to become leader are jittered.
        observer: Is told about leadership.
        labels: Labels of the Lease, when this process creates it.
        annotations: Asked at each write for annotations of the Lease to set; others stay as they are.
        clock: Tells the time in seconds; it may not stand still, nor run at less than renew_deadline / lease_duration
            of the speed of another replica's. Default: the loop's.

    Raises:
        ConfigurationError: Not retry_period < renew_deadline < lease_duration, or a name is missing or none.
    """

    def __init__(
        self,
        client: LeaseClient,
        *,
        name: str,
        namespace: str,
        identity: str | None = None,
        lease_duration: timedelta = timedelta(seconds=15),
        renew_deadline: timedelta = timedelta(seconds=10),
        retry_period: timedelta = timedelta(seconds=2),
        observer: LeaderObserver | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Callable[[], Mapping[str, str]] | None = None,
        clock: Callable[[], float] = anyio.current_time,
    ) -> None:
        if not name or not namespace:
            msg = f"leader election needs the name and the namespace of a Lease; got {name!r} and {namespace!r}"
            raise ConfigurationError(msg)
        for what, text, fault in (
            ("name", name, lease_fault(name)),
            ("namespace", namespace, namespace_fault(namespace)),
        ):
            if fault:
                raise ConfigurationError(f"the {what} of leader election's Lease is {text!r}; it {fault}")
        if not timedelta(0) < retry_period * _JITTER < renew_deadline < lease_duration:
            msg = (
                f"leader election needs retry_period x {_JITTER} < renew_deadline < lease_duration; "
                f"got {retry_period}, {renew_deadline} and {lease_duration}"
            )
            raise ConfigurationError(msg)
        self._client = client
        self._name = name
        self._namespace = namespace
        self._identity = identity or f"{socket.gethostname()}_{uuid4()}"
        self._lease_seconds = math.ceil(lease_duration.total_seconds())
        self._renew_deadline_seconds = renew_deadline.total_seconds()
        self._retry_seconds = retry_period.total_seconds()
        self._observer = observer
        self._labels = dict(labels or {})
        self._annotations = annotations
        self._time = clock
        self._hurry: anyio.Event | None = None
        self._asked_to_renew = False
        self._unsure = False  # whether a write of ours may have taken effect of which we do not know
        self._random = random.Random(self._identity)  # noqa: S311 - spreads load, keeps no secret
        self._lease: Lease | None = None  # as it was written or read last: the base of the next renewal
        self._claim: Claim | None = None
        self._claim_seen_at = -math.inf
        self._deadline = -math.inf
        self._leading = False

    @property
    def identity(self) -> str:
        """Who we are in the Lease's `holderIdentity`."""
        return self._identity

    @property
    def lease(self) -> str:
        """Namespace and name of the Lease."""
        return f"{self._namespace}/{self._name}"

    @property
    def leader(self) -> str:
        """Who held the Lease when we last looked; empty when nobody did."""
        return "" if self._claim is None else self._claim.holder

    @property
    def is_leader(self) -> bool:
        """Whether the gate is open. Needs a running loop, for its clock."""
        return self._leading and self._time() < self._deadline

    def gate(self) -> None:
        """Refuse to go on unless this process leads: for `ApiClient.with_gate`.

        Raises:
            LeadershipLostError: It does not, or its renewal is overdue.
        """
        if not self._leading:
            raise LeadershipLostError(self.lease, self._identity, "this process does not lead; nothing was sent")
        if self._time() >= self._deadline:
            raise LeadershipLostError(self.lease, self._identity, "the renewal is overdue; nothing was sent")

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Wait for leadership, call `lead`, and give the Lease back when it ends.

        Raises:
            LeadershipLostError: The Lease was lost; `lead` was cancelled and has ended.
        """
        await self.acquire()
        lost: LeadershipLostError | None = None

        async def hold(scope: anyio.CancelScope) -> None:
            nonlocal lost
            try:
                await self.hold()
            except LeadershipLostError as error:
                lost = error
                scope.cancel()

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(hold, tasks.cancel_scope)
                await lead()
                tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise_bare(group)
        finally:
            await self.release()
        if lost is not None:
            raise lost

    async def acquire(self) -> None:
        """Wait until this process leads. API errors are logged and outlived, but for a refusal that cannot mend.

        Raises:
            ConfigurationError: The server finds the Lease invalid.
        """
        _logger.info("waiting for the Lease %s as %s", self.lease, self._identity)
        seen = ""
        while True:
            try:
                won = await self._attempt()
            except InvalidError as error:
                msg = f"leader election: the server refuses the Lease {self.lease}, and always will: {error}"
                raise ConfigurationError(msg) from error
            except NotFoundError as error:
                hint = (
                    f"create the namespace {self._namespace}, or name another as leader_election_namespace"
                    if error.kind == "namespaces"
                    else "is this a Kubernetes API server, with coordination.k8s.io/v1?"
                )
                _logger.error("the Lease %s cannot be made, trying again: %s; %s", self.lease, error, hint)  # noqa: TRY400 - it tells all
            except (ApiError, DecodeError, TimeoutError) as error:
                _logger.warning("the Lease %s could not be read or written, trying again: %s", self.lease, why(error))
            else:
                if won and self.is_leader:
                    _logger.info("leading: the Lease %s is held by %s", self.lease, self._identity)
                    return
                if won:
                    # The answer came when the right to work had run out already: this process stood still. Nothing has
                    # begun under it, so it is no leader's Lease that is lost; it is taken anew.
                    self._step_down()
            if self.leader != seen:
                seen = self.leader
                _logger.info("the Lease %s is held by %s", self.lease, seen or "nobody")
            await anyio.sleep(self._retry_seconds * (1 + (_JITTER - 1) * self._random.random()))

    async def hold(self) -> None:
        """Renew the Lease until it is lost. Runs beside the work; cancel it after the work has ended.

        Raises:
            LeadershipLostError: Another process holds the Lease, or no renewal succeeded before the deadline.
                The gate is closed.
        """
        reason = ""
        while self.is_leader:
            with anyio.move_on_after(max(self._deadline - self._time(), 0.0)):
                await self._pause()
                try:
                    if not await self._attempt():
                        reason = f"{self.leader or 'nobody'} holds it now"
                        break
                except (ApiError, DecodeError, TimeoutError) as error:
                    reason = f"last error: {why(error)}"
                    _logger.warning("the Lease %s was not renewed, trying again: %s", self.lease, why(error))
        else:
            overdue = f"not renewed within {self._renew_deadline_seconds:g} s"
            reason = f"{overdue}; {reason}" if reason else overdue
        self._step_down()
        raise LeadershipLostError(self.lease, self._identity, reason)

    def renew_soon(self) -> None:
        """Have `hold` renew now, and not at the end of the retry period: the annotations have changed. On the loop."""
        self._asked_to_renew = True
        if self._hurry is not None:
            self._hurry.set()

    async def _pause(self) -> None:
        self._hurry = anyio.Event()
        if self._asked_to_renew:  # while the last renewal was under way, which may have been too early for it
            self._hurry.set()
        with anyio.move_on_after(self._retry_seconds):
            await self._hurry.wait()
        self._asked_to_renew = False

    async def release(self) -> None:
        """Give the Lease back, so that another process need not wait for it. Call it when the work has ended.

        Does nothing when the Lease is not held. When it is not known whether it is, since no answer came to the last
        try, the server is asked. Never raises for what the API server answers. Cancellation does not stop it; it takes
        five seconds at most.
        """
        lease = self._lease if self.is_leader else None
        self._step_down()
        if lease is None and not self._unsure:
            return
        try:
            with anyio.CancelScope(shield=True), anyio.fail_after(_RELEASE_SECONDS):
                if self._unsure:
                    lease = await self._client.find(Lease, self._name, namespace=self._namespace)
                if lease is None or Claim.of(lease).holder != self._identity:
                    return
                await self._write(lease, holder="", seconds=1)
            _logger.info("the Lease %s was given back", self.lease)
        except (ApiError, DecodeError, TimeoutError) as error:
            _logger.warning("the Lease %s was not given back; it expires by itself: %s", self.lease, why(error))

    def _step_down(self) -> None:
        self._leading, self._deadline = False, -math.inf
        self._report(leading=False)

    def _report(self, *, leading: bool) -> None:
        if self._observer is not None:
            self._observer.leading(leading)

    async def _attempt(self) -> bool:
        """Try once to take or renew the Lease. A try that hangs leaves time for another one before the deadline."""
        with anyio.fail_after(self._renew_deadline_seconds / 2):
            if self._leading and self._lease is not None:
                try:
                    return await self._claim_it(self._lease)
                except (ConflictError, NotFoundError):  # written by others, or by a try of ours that seemed to fail
                    if self._observer is not None:
                        self._observer.slow_path()
            lease = await self._client.find(Lease, self._name, namespace=self._namespace)
            if lease is None:
                if self.leader not in {"", self._identity} and not self._expired():
                    return False  # deleted under a leader that does not know it yet
                return await self._claim_it(Lease(metadata=ObjectMeta(name=self._name, namespace=self._namespace)))
            self._observe(lease)
            holder = self.leader
            if self._leading and holder != self._identity:
                return False  # lost is lost, even if the other has let go already: its writes came between ours
            if holder not in {"", self._identity} and not self._expired():
                return False
            try:
                return await self._claim_it(lease)
            except ConflictError:
                return False

    async def _claim_it(self, lease: Lease) -> bool:
        start = self._time()
        if self._leading and start >= self._deadline:
            return False  # nothing that is begun now may open the gate again: lost is lost
        was_unsure, self._unsure = self._unsure, True
        try:
            written = await self._write(lease, holder=self._identity, seconds=self._lease_seconds)
        except ApiStatusError as error:
            self._unsure = was_unsure or error.code >= 500  # a server that fails may have written
            if isinstance(error, AlreadyExistsError):
                return False
            raise
        self._unsure = False
        self._observe(written)
        self._deadline = start + self._renew_deadline_seconds
        if not self._leading:
            self._leading = True
            self._report(leading=True)
        return True

    async def _write(self, lease: Lease, *, holder: str, seconds: int) -> Lease:
        """Write who holds the Lease, on the condition that it is still as `lease` says."""
        claim = Claim.of(lease)
        now = clock.now()
        if claim.renewed is not None:
            now = max(
                now, claim.renewed + _TICK
            )  # a renewal must differ, also where the wall clock stands or goes back
        changes_hands = claim.holder != holder
        before = lease.spec or LeaseSpec()
        spec = LeaseSpec(
            strategy=before.strategy,
            preferredHolder=before.preferredHolder,
            holderIdentity=holder,
            leaseDurationSeconds=seconds,
            acquireTime=now if changes_hands or claim.acquired is None else claim.acquired,
            renewTime=now,
            leaseTransitions=claim.transitions + (1 if changes_hands and holder and claim.acquired is not None else 0),
        )
        if lease.metadata is None or lease.metadata.resourceVersion is None:
            labels, annotations = self._labels or None, self._annotated(None)
            metadata = ObjectMeta(
                name=self._name, namespace=self._namespace, labels=labels, annotations=annotations or None
            )
            return await self._client.create(Lease(metadata=metadata, spec=spec))
        metadata = lease.metadata
        if self._annotations is not None:
            metadata = msgspec.structs.replace(metadata, annotations=self._annotated(metadata))
        wanted = Lease(metadata=metadata, spec=spec)
        written = await self._client.patch_from(self._client.snapshot(lease), wanted)
        return wanted if written is None else written

    def _annotated(self, metadata: MetadataView | None) -> dict[str, str]:
        return {**annotations_of(metadata), **({} if self._annotations is None else self._annotations())}

    def _observe(self, lease: Lease) -> None:
        self._lease = lease
        claim = Claim.of(lease)
        if claim != self._claim:
            self._claim, self._claim_seen_at = claim, self._time()

    def _expired(self) -> bool:
        if self._claim is None:
            return True
        # Releasing leaves 1 s in an empty Lease; a holder that states nothing is given our own duration.
        seconds = self._claim.seconds or self._lease_seconds
        return self._time() - self._claim_seen_at >= seconds
