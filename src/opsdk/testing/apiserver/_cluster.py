"""The state of a server and the few ways in which it changes; no HTTP here, and no waiting.

What the API machinery does by itself after a write (garbage collection, draining of namespaces, serving new kinds)
are `Reactor`s: they see every change, in order, before the answer to the write goes out.
"""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime
from typing import Final, Protocol, final

from opsdk.clock import Clock, current_clock
from opsdk.testing.apiserver._json import Document, as_object
from opsdk.testing.apiserver._kinds import KindInfo, KindRegistry
from opsdk.testing.apiserver._schema import StructuralSchema
from opsdk.testing.apiserver._selectors import field_reader
from opsdk.testing.apiserver._store import Change, Store, Stored
from opsdk.testing.apiserver._structure import Structure, structure_of

__all__ = ["Cluster", "Reactor", "api_first", "timestamp"]


class Reactor(Protocol):
    """Does what follows from a write."""

    def react(self, storage: str, change: Change, /) -> None:
        """See one change; writes made here are seen by all reactors later."""
        ...


def timestamp(moment: datetime) -> str:
    """RFC 3339 with whole seconds, as `metadata` has it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def api_first(document: Document, info: KindInfo) -> Document:
    """The document with apiVersion and kind first, so that they can be cut off in lists."""
    ordered: Document = {"apiVersion": info.storage_api_version, "kind": info.kind}
    ordered.update((name, value) for name, value in document.items() if name not in {"apiVersion", "kind"})
    return ordered


@final
class Cluster:
    """Kinds, objects, time.

    Args:
        clock: Where timestamps come from; None: the context's clock at each write.
        history: How many changes of each resource can be watched and listed.
        rules: Whether CEL rules are enforced.
    """

    def __init__(self, *, clock: Clock | None = None, history: int = 10_000, rules: bool = True) -> None:
        self.rules: Final = rules
        self.registry: KindRegistry = KindRegistry.with_builtins()
        self.store: Store = Store(history=history)
        self.reactors: list[Reactor] = []
        self._clock = clock
        self._warnings: list[str] = []
        self._queue: deque[tuple[str, Change]] = deque()
        self._settling = False
        self._structures: dict[tuple[str, str, str], tuple[KindInfo, Structure]] = {}
        self._schemas: dict[tuple[str, str, str], tuple[KindInfo, StructuralSchema]] = {}
        for info in self.registry.kinds():
            self.store.bucket(info.storage).fields_of = field_reader(info.storage)

    # Time

    def now(self) -> datetime:
        """The time now."""
        return (self._clock or current_clock()).now()

    def now_text(self) -> str:
        """The time now, as `metadata` has it."""
        return timestamp(self.now())

    # Warnings

    def warn(self, text: str) -> None:
        """Have the answer to the request that is being handled carry a warning; once, however often it is said."""
        if text not in self._warnings:
            self._warnings.append(text)

    def take_warnings(self) -> list[str]:
        """The warnings since the last call."""
        found, self._warnings = self._warnings, []
        return found

    # Kinds

    def structure(self, info: KindInfo) -> Structure:
        """How objects of a kind merge."""
        found = self._structures.get((info.group, info.version, info.kind))
        if found is None or found[0] is not info:
            found = self._structures[info.group, info.version, info.kind] = (info, structure_of(info))
        return found[1]

    def schema(self, info: KindInfo) -> StructuralSchema | None:
        """The schema of a custom resource's version."""
        if info.schema is None:
            return None
        found = self._schemas.get((info.group, info.version, info.kind))
        if found is None or found[0] is not info:
            schema = StructuralSchema(info.schema, rules=self.rules)
            found = self._schemas[info.group, info.version, info.kind] = (info, schema)
        return found[1]

    # Objects

    def find(self, info: KindInfo, namespace: str, name: str) -> Stored | None:
        """One object as it is now."""
        return self.store.get(info.storage, info.key(namespace, name))

    def put(self, info: KindInfo, document: Document) -> Stored:
        """Store a new object or a new version of one."""
        stored = self.store.put(info.storage, api_first(document, info))
        self._queue.append((info.storage, self.store.bucket(info.storage).history[-1]))
        return stored

    def remove(self, info: KindInfo, key: str) -> Stored:
        """Remove an object for good."""
        last = self.store.remove(info.storage, key)
        self._queue.append((info.storage, self.store.bucket(info.storage).history[-1]))
        return last

    def update(self, info: KindInfo, before: Stored, document: Document) -> tuple[Stored, bool]:
        """Store a new version; an object on its way out that has nothing left to wait for is removed instead.

        Returns:
            The object, and whether it is gone.
        """
        metadata = as_object(document["metadata"])
        waits = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
        if info.storage == "namespaces":
            waits = waits or as_object(document.get("spec")).get("finalizers")
        if before.deleting and not waits:
            return self.remove(info, before.key), True
        return self.put(info, document), False

    def settle(self) -> None:
        """Let everything happen that follows from the writes so far."""
        if self._settling:
            return
        self._settling = True
        try:
            while self._queue:
                storage, change = self._queue.popleft()
                for reactor in self.reactors:
                    reactor.react(storage, change)
        finally:
            self._settling = False
