"""What this process may work on now: the local side of sharding, without any request.

The rule, and why it is safe, is told in docs/design/sharding.md.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, final

import anyio

from opsdk.errors import LeadershipLostError
from opsdk.manager._views import View

__all__ = ["ShardTurn", "Shares"]

_NOTHING: Final = "this process holds no such object; nothing was sent"


@final
class Shares:
    """Which objects are ours, by the views that we have adopted, and the work on them that is under way.

    An object is ours if each view since the last settled one, itself included, gives it to us: what a view has taken
    away once comes back only when a later one has settled.

    Args:
        is_member: Whether our member Lease is in force, by our clock.
        woken: Called when work has ended that others may wait for.
    """

    def __init__(self, *, is_member: Callable[[], bool], woken: Callable[[], None]) -> None:
        self._is_member = is_member
        self._woken = woken
        self._name = ""
        self._standing: tuple[View, ...] = ()
        self._view: View | None = None
        self._turns: set[ShardTurn] = set()
        self._subscribers: list[Callable[[Callable[[str], bool]], None]] = []
        self._idle: anyio.Event | None = None

    @property
    def name(self) -> str:
        """Which member we are; empty: none."""
        return self._name

    @property
    def view(self) -> View | None:
        """The view that was adopted last."""
        return self._view

    @property
    def settled(self) -> bool:
        """Whether all that the view gives us is ours."""
        return self._view is not None and self._standing == (self._view,)

    @property
    def given_up(self) -> bool:
        """Whether nothing is being worked on that the view gives to others."""
        return not self.leaving()

    def leaving(self) -> list[ShardTurn]:
        """The work under way on objects that the view gives to others."""
        view = self._view
        return [turn for turn in self._turns if view is None or view.owner(turn.uid) != self._name]

    # What the membership does.

    def join(self, name: str) -> None:
        """Be a member from now on, of no view yet."""
        self._name = name

    def adopt(self, view: View) -> None:
        """Begin nothing any more that `view` gives to others."""
        held = self._held_now()
        self._view = view
        if self._standing:
            self._standing = (*self._standing, view)
        self._tell(held)

    def settle(self) -> None:
        """All others have given up what the view gives to us: take it."""
        if self._view is None or self.settled:
            return
        held = self._held_now()
        self._standing = (self._view,)
        self._tell(held)

    def leave(self) -> None:
        """Hold nothing any more, and cancel what is under way."""
        held = self._held_now()
        self._name, self._view, self._standing = "", None, ()
        for turn in self._turns:
            turn.revoke()
        self._tell(held)

    async def idle(self) -> None:
        """Wait until nothing is under way."""
        while self._turns:
            self._idle = anyio.Event()
            await self._idle.wait()

    # What controllers do.

    def holds(self, uid: str, /) -> bool:
        """Whether the object is ours, by the views; the Lease may have run out."""
        return self._holds(self._name, self._standing, uid)

    @staticmethod
    def _holds(name: str, standing: tuple[View, ...], uid: str) -> bool:
        return bool(standing) and all(view.owner(uid) == name for view in standing)

    def turn(self, uid: str, /) -> ShardTurn | None:
        """The right to work on the object; None: it is not ours."""
        view = self._view
        if view is None or not self._is_member() or not self.holds(uid):
            return None
        return ShardTurn(self, uid, self._name, epoch=view.epoch)

    def subscribe(self, changed: Callable[[Callable[[str], bool]], None], /) -> None:
        """Have `changed` be called after each change with what `holds` said before it."""
        self._subscribers.append(changed)

    def may_write(self, turn: ShardTurn) -> bool:
        """Whether work that has begun may write still."""
        return turn in self._turns and turn.member == self._name and self._is_member()

    def current_turn(self) -> ShardTurn | None:
        """The work of ours that this code is part of."""
        turn = _current.get()
        return turn if turn is not None and turn.belongs_to(self) else None

    def began(self, turn: ShardTurn) -> bool:
        """Called by the turn. Whether the right still stands: it may have been kept for a while."""
        if turn.member != self._name or not self._is_member() or not self.holds(turn.uid):
            return False
        self._turns.add(turn)
        return True

    def ended(self, turn: ShardTurn) -> None:
        """Called by the turn."""
        self._turns.discard(turn)
        if not self._turns and self._idle is not None:
            self._idle.set()
        self._woken()

    def _held_now(self) -> Callable[[str], bool]:
        name, standing = self._name, self._standing
        return lambda uid: self._holds(name, standing, uid)

    def _tell(self, held: Callable[[str], bool]) -> None:
        for subscriber in self._subscribers:
            subscriber(held)


@final
class ShardTurn:
    """The right to work on one object; ends with the block, or when it is revoked. Made by `ShardMembership.turn`.

    Args:
        shares: Of whom.
        uid: The object.
        member: Who we were when it was given.
        epoch: The number of the view then. From one owner of an object to the next it only rises, so it can serve as a
            fencing token: what remembers the highest it has seen can refuse whoever comes late.
    """

    def __init__(self, shares: Shares, uid: str, member: str, *, epoch: int) -> None:
        self._shares = shares
        self.uid: Final[str] = uid
        self.member: Final[str] = member
        self.epoch: Final[int] = epoch
        self._scope = anyio.CancelScope()

    def __repr__(self) -> str:
        return f"<ShardTurn of {self.uid} as {self.member}>"

    @property
    def in_force(self) -> bool:
        """Whether it has been taken, and what is done under it may write now. Needs a running loop, for its clock."""
        return self._shares.may_write(self)

    def belongs_to(self, shares: Shares, /) -> bool:
        """Whether it is a right of theirs."""
        return self._shares is shares

    @contextmanager
    def taken(self) -> Generator[None]:
        """Work. Cancelled when the right ends early, or has ended before; then nothing can be written."""
        if not self._shares.began(self):
            self._scope.cancel()
        token = _current.set(self)
        try:
            with self._scope:
                yield
        finally:
            _current.reset(token)
            self._shares.ended(self)

    def revoke(self) -> None:
        """Cancel the work."""
        self._scope.cancel()

    def check(self, lease: str) -> None:
        """Refuse to write unless the right still stands.

        Raises:
            LeadershipLostError: It does not.
        """
        if not self.in_force:
            raise LeadershipLostError(lease, self.member, _NOTHING)


_current: ContextVar[ShardTurn | None] = ContextVar("opsdk_shard_turn", default=None)
