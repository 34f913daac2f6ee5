"""Sharding: the objects are divided over all live replicas, each with one of them at a time.

Each replica holds a Lease of its own, as a leader holds its Lease. One more Lease has the *view*: who divides the
objects. What a new view takes from a replica is given up first, and acknowledged; only then does the new owner begin.
docs/design/sharding.md says why that is safe.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, final
from uuid import uuid4

import anyio
import msgspec
from lightkube.models.coordination_v1 import LeaseSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.coordination_v1 import Lease

from opsdk._groups import raise_bare
from opsdk.errors import (
    AlreadyExistsError,
    ApiError,
    ConfigurationError,
    ConflictError,
    DecodeError,
    LeadershipLostError,
    NotFoundError,
)
from opsdk.manager._claims import Claim, annotations_of, why
from opsdk.manager._shares import ShardTurn, Shares
from opsdk.manager._views import View
from opsdk.manager.election import LeaderElector, LeaseClient
from opsdk.types import Preconditions

__all__ = ["ACKNOWLEDGED_ANNOTATION", "SHARD_GROUP_LABEL", "VIEW_ANNOTATION", "ShardMembership", "Sharding"]

_logger = logging.getLogger(__name__)

SHARD_GROUP_LABEL: Final = "opsdk.dev/shard-group"
"""Label of all Leases of one group: its name."""

VIEW_ANNOTATION: Final = "opsdk.dev/shard-view"
"""Annotation of the group's Lease: who divides the objects."""

ACKNOWLEDGED_ANNOTATION: Final = "opsdk.dev/shard-acknowledged"
"""Annotation of a member's Lease: the view of which it has given up what it has to."""

_LONGEST_NAME: Final = 63
_PATIENCE_SECONDS: Final = 5.0
_SOONER: Final = 4
_MOST_NAMED: Final = 10


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """How the replicas of a manager divide the objects. The durations of the Leases are the manager's.

    Args:
        hand_over_grace: How long a reconcile may go on when its object moves to another replica, before it is
            cancelled. Until it has ended, nobody else works on that object. Default 10 s.

    Raises:
        ConfigurationError: `hand_over_grace` is negative, or no timedelta.
    """

    hand_over_grace: timedelta = timedelta(seconds=10)

    def __post_init__(self) -> None:
        _require_grace(self.hand_over_grace)


def _require_grace(value: object) -> None:
    """Refuse what the type checker would refuse, where there is none, and what is negative."""
    if not isinstance(value, timedelta) or value < timedelta(0):
        raise ConfigurationError(f"hand_over_grace: {value!r}; give a timedelta that is not negative")


@final
class ShardMembership:
    """One replica's part in dividing objects by their uids; implements the `WorkDivision` of controllers.

    Run it, and ask for a `turn` before working on an object. Put `gate` before the writes.

    *Guarantees*: of all members of a group with these durations, at most one has turns of an object that may write,
    whatever members come, go, hang or are cut off, and however their clocks differ within lease_duration /
    renew_deadline. Every object belongs to a member once the members stand still. A member that hung comes back as a
    new one. When a member comes or goes, only the objects move that have to.

    *Not promised*: that a write which had left before a turn ended does not arrive late: writes carry a precondition as
    well. Nor does the guarantee hold for one renew deadline after somebody has deleted the Leases by hand, or on
    a machine whose monotonic clock stood still.

    Args:
        client: Reads and writes the Leases; must not itself be behind `gate`.
        name: The group's name: the same for all replicas of an operator, unique among operators in the namespace;
            63 characters at most.
        namespace: The Leases' namespace.
        identity: Who we are, for people: `holderIdentity`. Default: the host's name.
        lease_duration: See `LeaderElector`; here, of each member's Lease.
        renew_deadline: See `LeaderElector`.
        retry_period: See `LeaderElector`; also how often a member looks at the others.
        hand_over_grace: How long work on an object that moves may go on before it is cancelled. Default 10 s.
        clock: See `LeaderElector`.

    Raises:
        ConfigurationError: See `LeaderElector`; the name is too long; or `hand_over_grace` is negative or no timedelta.
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
        hand_over_grace: timedelta = timedelta(seconds=10),
        clock: Callable[[], float] = anyio.current_time,
    ) -> None:
        if len(name) > _LONGEST_NAME:
            raise ConfigurationError(f"the name of a shard group has {_LONGEST_NAME} characters at most; got {name!r}")
        _require_grace(hand_over_grace)
        self._client = client
        self._name = name
        self._namespace = namespace
        self._identity = identity or socket.gethostname()
        self._lease_duration = lease_duration
        self._renew_deadline = renew_deadline
        self._retry_period = retry_period
        self._grace_seconds = hand_over_grace.total_seconds()
        self._time = clock
        self._shares = Shares(is_member=lambda: self.is_member, woken=self._work_ended)
        self._elector = self._new_elector()
        self._acknowledged = ""
        self._leaving: dict[ShardTurn, float] = {}
        self._tell_stuck_after = self._grace_seconds + _PATIENCE_SECONDS
        self._claims: dict[str, tuple[Claim, float]] = {}
        self._missing: dict[str, float] = {}
        self._hesitation = 0
        self._wake: anyio.Event | None = None
        self._losses = 0

    def _new_elector(self) -> LeaderElector:
        return LeaderElector(
            self._client,
            name=f"{self._view_name}.{uuid4().hex[:10]}",
            namespace=self._namespace,
            identity=self._identity,
            lease_duration=self._lease_duration,
            renew_deadline=self._renew_deadline,
            retry_period=self._retry_period,
            labels={SHARD_GROUP_LABEL: self._name},
            annotations=lambda: {ACKNOWLEDGED_ANNOTATION: self._acknowledged},
            clock=self._time,
        )

    @property
    def _view_name(self) -> str:
        return f"{self._name}.shards"

    # What others see. The counts may be read from any thread.

    @property
    def lease(self) -> str:
        """Namespace and name of this member's Lease; another one each time that it has lost its membership."""
        return self._elector.lease

    @property
    def is_member(self) -> bool:
        """Whether this process's Lease is in force. Needs a running loop, for its clock."""
        return self._elector.is_leader and bool(self._shares.name)

    @property
    def members(self) -> int:
        """How many members divide the objects, as far as this one knows; 0: it is none of them."""
        view = self._shares.view
        return 0 if view is None else len(view.members)

    @property
    def epoch(self) -> int:
        """The number of the view that this member has adopted; 0: none."""
        view = self._shares.view
        return 0 if view is None else view.epoch

    @property
    def settled(self) -> bool:
        """Whether this member has all objects that the view gives to it."""
        return self._shares.settled

    @property
    def losses(self) -> int:
        """How often this process has lost its membership."""
        return self._losses

    def holds(self, uid: str, /) -> bool:
        """Whether the object is this member's, by the view."""
        return self._shares.holds(uid)

    def turn(self, uid: str, /) -> ShardTurn | None:
        """The right to work on an object, for `with turn.taken():`; None: it is not this member's now."""
        return self._shares.turn(uid)

    def subscribe(self, changed: Callable[[Callable[[str], bool]], None], /) -> None:
        """Have `changed` be called, on the loop, after each change, with what `holds` said before it."""
        self._shares.subscribe(changed)

    def current_turn(self) -> ShardTurn | None:
        """The turn that this code is part of, also in tasks and worker threads that it started; None: none."""
        return self._shares.current_turn()

    def gate(self) -> None:
        """Refuse to go on unless the turn that this code is part of stands still; outside of turns: unless a member.

        Raises:
            LeadershipLostError: It does not.
        """
        turn = self._shares.current_turn()
        if turn is not None:
            turn.check(self.lease)
        elif not self.is_member:
            raise LeadershipLostError(self.lease, self._identity, "this process is no member; nothing was sent")

    # Life

    async def run(self) -> None:
        """Be a member until cancelled. What was lost is cancelled; then the process joins anew.

        Raises:
            ConfigurationError: The server finds the Leases invalid.
        """
        while True:
            await self._term()
            self._losses += 1
            await anyio.sleep(self._retry_period.total_seconds())

    async def _term(self) -> None:
        """Be one member, until the membership is lost."""
        elector = self._elector = self._new_elector()
        member = elector.lease.partition("/")[2]
        self._acknowledged, self._claims, self._missing, self._hesitation = "", {}, {}, 0
        self._leaving.clear()
        try:
            await elector.acquire()
            self._shares.join(member)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._hold, elector, tasks.cancel_scope)
                await self._steer(member, elector)
                tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise_bare(group)
        finally:
            self._shares.leave()
            with anyio.CancelScope(shield=True), anyio.move_on_after(_PATIENCE_SECONDS) as patience:
                await self._shares.idle()
            if not patience.cancelled_caught:
                await elector.release()
        await self._end_of_work()

    async def _end_of_work(self) -> None:
        """Wait for what was lost: nothing new may begin beside it."""
        while self._shares.leaving():
            with anyio.move_on_after(_PATIENCE_SECONDS):
                await self._shares.idle()
                return
            self._tell_stuck()

    def _tell_stuck(self) -> None:
        stuck = sorted(turn.uid for turn in self._shares.leaving())
        text = "sharding: work on %d objects does not end although it is cancelled, and they wait for it; uids: %s"
        _logger.warning(text, len(stuck), ", ".join(stuck[:_MOST_NAMED]))

    async def _hold(self, elector: LeaderElector, scope: anyio.CancelScope) -> None:
        try:
            await elector.hold()
        except LeadershipLostError as error:
            _logger.error("sharding: %s; what it worked on is cancelled, and it joins anew", error)  # noqa: TRY400 - it tells all
            scope.cancel()

    async def _steer(self, member: str, elector: LeaderElector) -> None:
        """Follow the others until this member has been left out."""
        while True:
            failed = False
            try:
                with anyio.fail_after(self._renew_deadline.total_seconds() / 2):
                    if not await self._look(member):
                        _logger.error("sharding: the others have gone on without %s; it joins anew", elector.lease)
                        return
            except (ApiError, DecodeError, TimeoutError) as error:
                failed = True
                _logger.warning("sharding: the members of %s cannot be seen, trying again: %s", self._name, why(error))
            self._hurry_leaving()
            await self._pause(failed=failed)

    async def _pause(self, *, failed: bool) -> None:
        seconds = self._retry_period.total_seconds()
        moving = not self.settled or self._hesitation or self._shares.leaving()
        if moving and not failed:
            seconds /= _SOONER
        self._wake = anyio.Event()
        with anyio.move_on_after(seconds):
            await self._wake.wait()

    def _work_ended(self) -> None:
        if self._acknowledge() and self._wake is not None:
            self._wake.set()

    def _acknowledge(self) -> bool:
        """Tell the others that we have given up what we had to, if so."""
        view = self._shares.view
        if view is None or self._acknowledged == view.id or not self._shares.given_up:
            return False
        self._acknowledged = view.id
        self._elector.renew_soon()
        return True

    def _hurry_leaving(self) -> None:
        """Cancel what has had its grace; that does not begin anew with another view."""
        now = self._time()
        self._leaving = {turn: self._leaving.get(turn, now) for turn in self._shares.leaving()}
        for turn, since in self._leaving.items():
            if now - since >= self._grace_seconds:
                turn.revoke()
        longest = max((now - since for since in self._leaving.values()), default=0.0)
        if longest < self._grace_seconds:
            self._tell_stuck_after = self._grace_seconds + _PATIENCE_SECONDS
        elif longest >= self._tell_stuck_after:
            self._tell_stuck()
            self._tell_stuck_after = 2 * longest

    def _adopt(self, view: View) -> None:
        self._shares.adopt(view)
        _logger.info("sharding: view %s of %s: %s", view.id, self._name, ", ".join(sorted(view.members)))
        self._acknowledge()

    async def _look(self, member: str) -> bool:
        """See what the others do, and do what is to be done. Whether we are still one of them."""
        found = await self._client.list(Lease, namespace=self._namespace, labels={SHARD_GROUP_LABEL: self._name})
        leases = {lease.metadata.name or "": lease for lease in found if lease.metadata is not None}
        board = leases.pop(self._view_name, None)
        view = View.decode(_annotation(board, VIEW_ANNOTATION))
        self._observe(leases, view)
        adopted = self._shares.view
        if view is not None and (adopted is None or view.id != adopted.id):
            if member in view.members:
                self._adopt(view)
            elif adopted is not None:
                return False
        self._acknowledge()
        await self._fence(member, leases)
        if await self._publish(member, leases, board, view):
            return True
        current = self._shares.view
        if current is not None and not self.settled and self._all_clear(member, leases, current):
            self._shares.settle()
            _logger.info("sharding: view %s of %s has settled", current.id, self._name)
        if view is not None:
            await self._clear_away(member, leases, view)
        return True

    def _observe(self, leases: Mapping[str, Lease], view: View | None) -> None:
        now = self._time()
        seen: dict[str, tuple[Claim, float]] = {}
        for name, lease in leases.items():
            claim = Claim.of(lease)
            before = self._claims.get(name)
            seen[name] = before if before is not None and before[0] == claim else (claim, now)
        self._claims = seen
        gone = [] if view is None else [name for name in view.members if name not in leases]
        self._missing = {name: self._missing.get(name, now) for name in gone}

    @staticmethod
    def _all_clear(member: str, leases: Mapping[str, Lease], view: View) -> bool:
        """Whether everybody else has given up what the view takes from it.

        Who is in no view may hold nothing. One that has acknowledged some and is not in this one tells of a view that
        we do not know: this one was published by who did not know it either, after somebody had deleted it.
        """
        strangers = [lease for name, lease in leases.items() if name != member and name not in view.members]
        if any(Claim.of(lease).holder and _annotation(lease, ACKNOWLEDGED_ANNOTATION) for lease in strangers):
            return False
        for other, new_in in view.members.items():
            if other == member or new_in == view.id:
                continue
            lease = leases.get(other)
            if lease is None:
                return False
            if Claim.of(lease).holder and _annotation(lease, ACKNOWLEDGED_ANNOTATION) != view.id:
                return False
        return True

    async def _fence(self, member: str, leases: dict[str, Lease]) -> None:
        """Take their Leases from members that have not renewed them for so long that they have stopped working."""
        now = self._time()
        for name, (claim, since) in self._claims.items():
            seconds = claim.seconds or self._lease_duration.total_seconds()
            if name == member or not claim.holder or now - since < seconds:
                continue
            lease = leases[name]
            released = Lease(
                metadata=lease.metadata,
                spec=msgspec.structs.replace(lease.spec or LeaseSpec(), holderIdentity="", leaseDurationSeconds=1),
            )
            try:
                written = await self._client.patch_from(self._client.snapshot(lease), released)
            except (ConflictError, NotFoundError):
                continue  # it lives, or somebody else was faster
            leases[name] = released if written is None else written
            _logger.warning("sharding: %s (%s) has not renewed its Lease and is out", name, claim.holder)

    async def _publish(self, member: str, leases: Mapping[str, Lease], board: Lease | None, view: View | None) -> bool:
        """Publish who divides the objects, when that has changed and it falls to us. Whether it has been done."""
        live = {name for name, lease in leases.items() if Claim.of(lease).holder}
        if member not in live:
            return False  # we shall hear of it
        # What has no Lease any more may still work: somebody has deleted it. It is waited for, as for one that hangs.
        now, patience = self._time(), self._lease_duration.total_seconds()
        wanted = live | {name for name, since in self._missing.items() if now - since < patience}
        if view is not None and wanted == set(view.members):
            self._hesitation = 0
            return False
        if self._hesitation < sorted(live).index(member):  # one is enough; the next one steps in if it does not come
            self._hesitation += 1
            return False
        if view is None:
            known = self._shares.view
            new = View.first(wanted, after=0 if known is None else known.epoch)
        else:
            new = view.next(wanted)
        try:
            await self._write(board, new)
        except (AlreadyExistsError, ConflictError, NotFoundError):
            return False
        self._hesitation = 0
        self._adopt(new)
        return True

    async def _write(self, board: Lease | None, view: View) -> None:
        if board is None or board.metadata is None:
            metadata = ObjectMeta(
                name=self._view_name,
                namespace=self._namespace,
                labels={SHARD_GROUP_LABEL: self._name},
                annotations={VIEW_ANNOTATION: view.encode()},
            )
            await self._client.create(Lease(metadata=metadata, spec=LeaseSpec()))
            return
        annotations = {**annotations_of(board.metadata), VIEW_ANNOTATION: view.encode()}
        wanted = Lease(metadata=msgspec.structs.replace(board.metadata, annotations=annotations), spec=board.spec)
        await self._client.patch_from(self._client.snapshot(board), wanted)

    async def _clear_away(self, member: str, leases: Mapping[str, Lease], view: View) -> None:
        """Delete Leases of members that are gone and that no view names any more."""
        if member != min(view.members, default=""):
            return
        for name, lease in leases.items():
            if name in view.members or Claim.of(lease).holder or lease.metadata is None:
                continue
            same = Preconditions(uid=lease.metadata.uid, resource_version=lease.metadata.resourceVersion)
            try:
                await self._client.delete(Lease, name, namespace=self._namespace, preconditions=same)
            except (ConflictError, NotFoundError):
                continue


def _annotation(lease: Lease | None, name: str) -> str | None:
    return None if lease is None else annotations_of(lease.metadata).get(name)
