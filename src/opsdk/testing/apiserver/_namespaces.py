"""Namespaces: creates need one that is not on its way out, and one that is gets drained."""

from __future__ import annotations

from typing import Final, final

from opsdk.testing.apiserver._cluster import Cluster
from opsdk.testing.apiserver._deletion import DeleteOptions, delete_object
from opsdk.testing.apiserver._fields import FieldError
from opsdk.testing.apiserver._json import Document, as_object
from opsdk.testing.apiserver._kinds import KindInfo, find_builtin
from opsdk.testing.apiserver._metadata import fill_in
from opsdk.testing.apiserver._status import StatusError, forbidden, not_found
from opsdk.testing.apiserver._store import Change

__all__ = ["INITIAL_NAMESPACES", "NamespaceController", "admit", "create_initial"]

INITIAL_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
NAMESPACE: Final = find_builtin("Namespace")


def create_initial(cluster: Cluster) -> None:
    """Make the namespaces that every cluster has."""
    for name in INITIAL_NAMESPACES:
        metadata: Document = {"name": name, "labels": {"kubernetes.io/metadata.name": name}}
        fill_in(metadata, NAMESPACE, now=cluster.now_text())
        document: Document = {
            "metadata": metadata,
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        }
        cluster.put(NAMESPACE, document)


def admit(cluster: Cluster, info: KindInfo, namespace: str, name: str) -> None:
    """Refuse a create in a namespace that is missing or on its way out.

    Raises:
        StatusError: 404 or 403.
    """
    found = cluster.store.get("namespaces", namespace)
    if found is None:
        raise not_found(NAMESPACE, namespace)
    if found.fields.get("status.phase") == "Terminating":
        cause = FieldError("metadata.namespace", "NamespaceTerminating", f"namespace {namespace} is being terminated")
        why = f"unable to create new content in namespace {namespace} because it is being terminated"
        raise forbidden(info, name, why, causes=(cause,))


@final
class NamespaceController:
    """Empties namespaces that are being deleted, and lets them go when they are empty."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._draining: set[str] = set()

    def react(self, storage: str, change: Change, /) -> None:
        """Drain a namespace that began to terminate; look again when something in one has gone."""
        if storage == "namespaces":
            name = change.after.name
            if change.deleted:
                self._draining.discard(name)
            elif change.after.deleting:
                self._draining.add(name)
                self._drain(name)
        elif change.deleted and change.after.namespace in self._draining:
            self._finish_if_empty(change.after.namespace)

    def _drain(self, namespace: str) -> None:
        for storage in self._cluster.store.storages():
            info = self._cluster.registry.stored_as(storage)
            if info is None or not info.namespaced:
                continue
            for stored in list(self._cluster.store.listed(storage, f"{namespace}/")):
                current = self._cluster.store.get(storage, stored.key)
                if current is None or current.deleting:
                    continue
                try:
                    delete_object(self._cluster, info, current, DeleteOptions(propagation_policy="Background"))
                except StatusError:
                    continue
        self._finish_if_empty(namespace)

    def _finish_if_empty(self, namespace: str) -> None:
        for storage in self._cluster.store.storages():
            info = self._cluster.registry.stored_as(storage)
            if info is not None and info.namespaced:
                for _ in self._cluster.store.listed(storage, f"{namespace}/"):
                    return
        found = self._cluster.store.get("namespaces", namespace)
        if found is None or not found.deleting:
            return
        document = found.document()
        spec = as_object(document.get("spec"))
        if "finalizers" in spec:
            del spec["finalizers"]
            document["spec"] = spec
            self._cluster.update(NAMESPACE, found, document)
