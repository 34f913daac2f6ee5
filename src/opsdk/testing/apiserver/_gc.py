"""Garbage collection by owner references, as the controller does it, at once instead of soon.

Background: dependents go after their owner. Foreground: the owner waits for dependents that block it. Orphan:
dependents lose their reference. An owner is who has the uid; a reference to nobody is a reference to an owner that is
gone.
"""

from __future__ import annotations

from collections import deque
from typing import final

from opsdk.testing.apiserver._cluster import Cluster
from opsdk.testing.apiserver._deletion import FOREGROUND, ORPHAN, DeleteOptions, delete_object
from opsdk.testing.apiserver._json import Document, Value, as_list, as_object, as_text
from opsdk.testing.apiserver._kinds import KindInfo
from opsdk.testing.apiserver._status import StatusError
from opsdk.testing.apiserver._store import Change, Reference, Stored

__all__ = ["GarbageCollector"]


@final
class GarbageCollector:
    """Deletes what nobody owns any more."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._queue: deque[Reference] = deque()

    def react(self, storage: str, change: Change, /) -> None:
        """Look at what a write means for owners and dependents, and see it through."""
        after = change.after
        if change.deleted:
            self._queue.extend(self._cluster.store.dependents(after.uid))
            self._queue.extend(owner for uid in after.owners if (owner := self._cluster.store.by_uid(uid)) is not None)
        else:
            if after.owners and (change.before is None or change.before.owners != after.owners):
                self._queue.append((storage, after.key))
            if change.before is not None and change.before.owners != after.owners:
                # Somebody may have waited for this dependent.
                self._queue.extend(
                    owner for uid in change.before.owners if (owner := self._cluster.store.by_uid(uid)) is not None
                )
            if after.deleting and (ORPHAN in after.finalizers or FOREGROUND in after.finalizers):
                self._queue.append((storage, after.key))
        while self._queue:
            self._visit(self._queue.popleft())

    def _visit(self, reference: Reference) -> None:
        storage, key = reference
        info = self._cluster.registry.stored_as(storage)
        stored = self._cluster.store.get(storage, key)
        if info is None or stored is None:
            return
        if stored.deleting:
            if ORPHAN in stored.finalizers:
                self._orphan_dependents(info, stored)
            elif FOREGROUND in stored.finalizers:
                self._delete_dependents(info, stored)
            return
        if stored.owners:
            self._judge(info, stored)

    def _judge(self, info: KindInfo, stored: Stored) -> None:
        """Delete an object all of whose owners are gone or going; else drop the references to those that are."""
        solid, leaving, waiting = False, False, False
        kept: list[Value] = []
        document = stored.document()
        for value in as_list(as_object(document["metadata"]).get("ownerReferences")):
            match self._state_of(info, stored, as_object(value)):
                case "solid":
                    solid = True
                    kept.append(value)
                case "waiting":
                    leaving = waiting = True
                case _:
                    leaving = True
        if not leaving:
            return
        if solid:
            as_object(document["metadata"])["ownerReferences"] = kept
            self._cluster.update(info, stored, document)
            return
        policy = "Background"
        if ORPHAN in stored.finalizers:
            policy = "Orphan"
        elif FOREGROUND in stored.finalizers or (waiting and self._cluster.store.dependents(stored.uid)):
            policy = "Foreground"
        self._delete(info, stored, policy)

    def _state_of(self, info: KindInfo, stored: Stored, owner: Document) -> str:
        api_version = as_text(owner.get("apiVersion"))
        group = api_version.rpartition("/")[0]
        kind = self._cluster.registry.of_group_kind(group, as_text(owner.get("kind")))
        if kind is None or (kind.namespaced and not info.namespaced):
            return "solid"  # the collector cannot look it up, so it leaves the object alone
        namespace = stored.namespace if kind.namespaced else ""
        found = self._cluster.find(kind, namespace, as_text(owner.get("name")))
        if found is None or found.uid != as_text(owner.get("uid")):
            return "gone"
        return "waiting" if found.deleting and FOREGROUND in found.finalizers else "solid"

    def _delete(self, info: KindInfo, stored: Stored, policy: str) -> None:
        try:
            delete_object(self._cluster, info, stored, DeleteOptions(propagation_policy=policy))
        except StatusError:
            return  # protected objects stay

    def _orphan_dependents(self, info: KindInfo, owner: Stored) -> None:
        for storage, key in self._cluster.store.dependents(owner.uid):
            kind = self._cluster.registry.stored_as(storage)
            stored = self._cluster.store.get(storage, key)
            if kind is None or stored is None:
                continue
            document = stored.document()
            metadata = as_object(document["metadata"])
            kept: list[Value] = [
                entry
                for entry in as_list(metadata.get("ownerReferences"))
                if as_text(as_object(entry).get("uid")) != owner.uid
            ]
            if kept:
                metadata["ownerReferences"] = kept
            else:
                metadata.pop("ownerReferences", None)
            self._cluster.update(kind, stored, document)
        self._release(info, owner, ORPHAN)

    def _delete_dependents(self, info: KindInfo, owner: Stored) -> None:
        blocking: list[Reference] = []
        for storage, key in self._cluster.store.dependents(owner.uid):
            stored = self._cluster.store.get(storage, key)
            if stored is not None and _blocks(stored, owner.uid):
                blocking.append((storage, key))
        if not blocking:
            self._release(info, owner, FOREGROUND)
            return
        for reference in blocking:
            stored = self._cluster.store.get(*reference)
            if stored is not None and not stored.deleting:
                self._queue.append(reference)

    def _release(self, info: KindInfo, owner: Stored, finalizer: str) -> None:
        current = self._cluster.store.get(info.storage, owner.key)
        if current is None or current.uid != owner.uid or finalizer not in current.finalizers:
            return
        document = current.document()
        metadata = as_object(document["metadata"])
        kept: list[Value] = [entry for entry in as_list(metadata.get("finalizers")) if entry != finalizer]
        if kept:
            metadata["finalizers"] = kept
        else:
            metadata.pop("finalizers", None)
        self._cluster.update(info, current, document)


def _blocks(stored: Stored, uid: str) -> bool:
    owners = as_list(as_object(stored.document()["metadata"]).get("ownerReferences"))
    return any(
        as_text(owner.get("uid")) == uid and owner.get("blockOwnerDeletion") is True for owner in map(as_object, owners)
    )
