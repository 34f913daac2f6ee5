"""What the server remembers: objects as bytes with a small header, and a bounded history of what happened to them.

*Guarantees*

- One counter, as etcd has: each write of any kind gets the next resourceVersion, deletes included.
- A document that was handed out never changes: objects are kept as bytes, every write makes new ones.
- The state at any version that history still covers can be listed, so pages are of one snapshot.
- Everything is synchronous: no other task sees half a write.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias, final

from opsdk.testing.apiserver._json import Document, as_list, as_object, as_text, decode, encode

__all__ = ["Bucket", "Change", "Reference", "Store", "Stored", "TooOldError"]

Reference: TypeAlias = "tuple[str, str]"
"""A storage and a key in it: one object."""


class TooOldError(Exception):
    """History does not reach back that far."""


@final
@dataclass(frozen=True, slots=True)
class Stored:
    """One version of one object.

    Args:
        key: `namespace/name`, or `name` for a cluster-scoped kind.
        revision: The resourceVersion, as the number it is.
        raw: The whole document.
        fields: What field selectors may ask for, besides name and namespace.
        owners: uids of its owner references.
    """

    key: str
    namespace: str
    name: str
    uid: str
    revision: int
    raw: bytes
    labels: Mapping[str, str]
    fields: Mapping[str, str]
    owners: tuple[str, ...]
    finalizers: tuple[str, ...]
    deleting: bool

    def document(self) -> Document:
        """The document, decoded afresh: the caller's own."""
        return as_object(decode(self.raw))


@final
@dataclass(frozen=True, slots=True)
class Change:
    """One write.

    Args:
        before: The object before; None: it was created.
        after: The object after; for a delete the last version, carrying the delete's resourceVersion.
        deleted: Whether this was a delete.
    """

    revision: int
    before: Stored | None
    after: Stored
    deleted: bool = False


FieldsOf: TypeAlias = Callable[[Document], Mapping[str, str]]


def _no_fields(_: Document) -> Mapping[str, str]:
    return {}


@final
@dataclass(slots=True)
class Bucket:
    """The objects of one resource, all its versions together."""

    objects: dict[str, Stored] = field(default_factory=dict[str, Stored])
    keys: list[str] = field(default_factory=list[str])
    history: deque[Change] = field(default_factory=deque[Change])
    floor: int = 0
    listeners: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    fields_of: FieldsOf = _no_fields


@final
class Store:
    """All objects of a server.

    Args:
        history: How many changes to remember for each resource.
    """

    def __init__(self, *, history: int = 10_000) -> None:
        self.revision: int = 0
        """The resourceVersion of the newest write."""
        self._limit = history
        self._buckets: dict[str, Bucket] = {}
        self._by_uid: dict[str, Reference] = {}
        self._dependents: dict[str, dict[Reference, None]] = {}

    # Reading

    def bucket(self, storage: str) -> Bucket:
        """The objects of one resource; made when first asked for."""
        found = self._buckets.get(storage)
        if found is None:
            found = self._buckets[storage] = Bucket(floor=self.revision)
        return found

    def storages(self) -> tuple[str, ...]:
        """All resources that were ever asked for."""
        return tuple(self._buckets)

    def get(self, storage: str, key: str) -> Stored | None:
        """One object as it is now."""
        return self.bucket(storage).objects.get(key)

    def by_uid(self, uid: str) -> Reference | None:
        """Where the object with that uid is, if it exists."""
        return self._by_uid.get(uid)

    def dependents(self, uid: str) -> tuple[Reference, ...]:
        """All objects that have an owner reference to that uid, oldest first."""
        return tuple(self._dependents.get(uid, ()))

    def owner_uids(self) -> tuple[str, ...]:
        """All uids that some object names as its owner."""
        return tuple(self._dependents)

    def listed(self, storage: str, prefix: str = "", start: str = "") -> Iterator[Stored]:
        """The objects whose key begins with `prefix` and is not below `start`, in order, as they are now."""
        bucket = self.bucket(storage)
        for key in _range(bucket.keys, prefix, start):
            yield bucket.objects[key]

    def listed_at(self, storage: str, revision: int, prefix: str = "", start: str = "") -> Iterator[Stored]:
        """The same, as of an earlier version.

        Raises:
            TooOldError: History does not cover that version.
        """
        bucket = self.bucket(storage)
        changes = self.changes_after(storage, revision)
        if not changes:
            yield from self.listed(storage, prefix, start)
            return
        then: dict[str, Stored | None] = {}
        for change in changes:
            then.setdefault(change.after.key, change.before)
        gone = sorted(key for key, stored in then.items() if stored is not None and key not in bucket.objects)
        keys = list(_range(bucket.keys, prefix, start))
        if gone:
            keys = sorted({*keys, *_range(gone, prefix, start)})
        for key in keys:
            stored = then[key] if key in then else bucket.objects[key]
            if stored is not None:
                yield stored

    def changes_after(self, storage: str, revision: int) -> list[Change]:
        """What happened to a resource since a version, oldest first.

        Raises:
            TooOldError: History does not reach back that far.
        """
        bucket = self.bucket(storage)
        if revision < bucket.floor:
            raise TooOldError
        history = bucket.history
        if not history or history[-1].revision <= revision:
            return []
        found: list[Change] = []
        for change in reversed(history):
            if change.revision <= revision:
                break
            found.append(change)
        found.reverse()
        return found

    # Writing

    def put(self, storage: str, document: Document) -> Stored:
        """Store a whole document: a new object or a new version of one.

        `metadata.resourceVersion` is set in the document.
        """
        bucket = self.bucket(storage)
        self.revision += 1
        metadata = as_object(document["metadata"])
        metadata["resourceVersion"] = str(self.revision)
        after = _stored(document, metadata, self.revision, bucket.fields_of)
        before = bucket.objects.get(after.key)
        if before is None:
            insort(bucket.keys, after.key)
        bucket.objects[after.key] = after
        reference = (storage, after.key)
        if before is None or before.uid != after.uid:
            if before is not None:
                self._by_uid.pop(before.uid, None)
            self._by_uid[after.uid] = reference
        self._reindex(reference, () if before is None else before.owners, after.owners)
        self._record(bucket, Change(self.revision, before, after))
        return after

    def remove(self, storage: str, key: str) -> Stored:
        """Remove an object.

        Returns:
            Its last version, carrying the resourceVersion of the removal.
        """
        bucket = self.bucket(storage)
        before = bucket.objects.pop(key)
        del bucket.keys[bisect_left(bucket.keys, key)]
        self.revision += 1
        last = at_revision(before, self.revision)
        self._by_uid.pop(before.uid, None)
        self._reindex((storage, key), before.owners, ())
        self._record(bucket, Change(self.revision, before, last, deleted=True))
        return last

    def reread(self, storage: str, change: Callable[[Document], None]) -> None:
        """Change how all objects of a resource read, without a write: no new versions, no events."""
        objects = self.bucket(storage).objects
        for key, stored in objects.items():
            document = stored.document()
            change(document)
            raw = encode(document)
            if raw != stored.raw:
                objects[key] = replace(stored, raw=raw)

    def compact(self) -> None:
        """Forget all history, as etcd does every five minutes."""
        for bucket in self._buckets.values():
            bucket.history.clear()
            bucket.floor = self.revision

    def subscribe(self, storage: str, listener: Callable[[], None], /) -> Callable[[], None]:
        """Have `listener` called after each write to a resource.

        Returns:
            What ends it.
        """
        listeners = self.bucket(storage).listeners
        listeners.append(listener)

        def end() -> None:
            if listener in listeners:
                listeners.remove(listener)

        return end

    def _record(self, bucket: Bucket, change: Change) -> None:
        bucket.history.append(change)
        if len(bucket.history) > self._limit:
            bucket.floor = bucket.history.popleft().revision
        for listener in tuple(bucket.listeners):
            listener()

    def _reindex(self, reference: Reference, before: tuple[str, ...], after: tuple[str, ...]) -> None:
        if before == after:
            return
        for uid in before:
            dependents = self._dependents.get(uid)
            if dependents is not None and uid not in after:
                dependents.pop(reference, None)
                if not dependents:
                    del self._dependents[uid]
        for uid in after:
            self._dependents.setdefault(uid, {})[reference] = None


def at_revision(stored: Stored, revision: int) -> Stored:
    """The same object, carrying another resourceVersion."""
    document = stored.document()
    metadata = as_object(document["metadata"])
    metadata["resourceVersion"] = str(revision)
    return replace(stored, revision=revision, raw=encode(document))


def _stored(document: Document, metadata: Document, revision: int, fields_of: FieldsOf) -> Stored:
    namespace = as_text(metadata.get("namespace"))
    name = as_text(metadata.get("name"))
    return Stored(
        key=f"{namespace}/{name}" if namespace else name,
        namespace=namespace,
        name=name,
        uid=as_text(metadata.get("uid")),
        revision=revision,
        raw=encode(document),
        labels={key: as_text(value) for key, value in as_object(metadata.get("labels")).items()},
        fields=fields_of(document),
        owners=tuple(as_text(as_object(owner).get("uid")) for owner in as_list(metadata.get("ownerReferences"))),
        finalizers=tuple(as_text(entry) for entry in as_list(metadata.get("finalizers"))),
        deleting=metadata.get("deletionTimestamp") is not None,
    )


def _range(keys: list[str], prefix: str, start: str) -> list[str]:
    begin = bisect_left(keys, max(prefix, start))
    end = bisect_right(keys, prefix + "\U0010ffff") if prefix else len(keys)
    return keys[begin:end]
