"""Which reconcile a piece of code runs in: what log lines say about themselves."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import Final, TypeAlias, final

import msgspec

__all__ = ["ReconcileContext", "current_reconcile", "enter", "leave", "reconciling"]


class _Status(msgspec.Struct):
    state: str = ""


class _Document(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


_DOCUMENTS: Final = msgspec.json.Decoder(_Document)


def _no_document() -> bytes | None:
    return None


@final
class ReconcileContext(msgspec.Struct, frozen=True, kw_only=True):
    """One reconcile.

    Args:
        controller: The controller's name.
        kind: The kind that it reconciles.
        namespace: The object's namespace; empty for a cluster-scoped one.
        name: The object's name.
        reconcile_id: Unique for each reconcile.
        uid: The object's uid, as the cache had it at the start; empty when it did not.
        generation: Its generation then; 0 when not known.
        document: Gives the object as the cache has it now, for `state`; None when there is none.
    """

    controller: str
    kind: str
    namespace: str
    name: str
    reconcile_id: str
    uid: str = ""
    generation: int = 0
    document: Callable[[], bytes | None] = _no_document

    def __repr__(self) -> str:
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"<ReconcileContext {self.controller} {place} {self.reconcile_id}>"

    @property
    def state(self) -> str:
        """`status.state` of the object, as the cache has it now; empty when there is none."""
        raw = self.document()
        if raw is None:
            return ""
        try:
            return _DOCUMENTS.decode(raw).status.state
        except msgspec.MsgspecError:
            return ""

    def fields(self) -> Mapping[str, str]:
        """All of it as texts, under the names that log lines use; empty where not known."""
        return {
            "controller": self.controller,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
            "generation": str(self.generation) if self.generation else "",
            "reconcile_id": self.reconcile_id,
            "state": self.state,
        }


_Token: TypeAlias = Token["ReconcileContext | None"]

_current: ContextVar[ReconcileContext | None] = ContextVar("opsdk_reconcile", default=None)


def current_reconcile() -> ReconcileContext | None:
    """The reconcile that this code runs in, also in tasks and worker threads that it started; None: in none."""
    return _current.get()


@contextmanager
def reconciling(context: ReconcileContext) -> Generator[None]:
    """Run the body as part of a reconcile. For tests of log lines; controllers do the same by hand."""
    token = enter(context)
    try:
        yield
    finally:
        leave(token)


enter: Callable[[ReconcileContext], _Token] = _current.set
"""Begin a reconcile; `leave` it with the result. A context manager of these costs as much as the context itself."""
leave: Callable[[_Token], None] = _current.reset
