"""What DELETE does to one object: finalizers, grace, propagation, preconditions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import final

from opsdk.testing.apiserver._cluster import Cluster, timestamp
from opsdk.testing.apiserver._json import Document, Value, as_list, as_object, as_text, dig
from opsdk.testing.apiserver._kinds import KindInfo
from opsdk.testing.apiserver._status import StatusError, forbidden
from opsdk.testing.apiserver._store import Stored

__all__ = ["CRD_CLEANUP", "FOREGROUND", "ORPHAN", "DeleteOptions", "Deletion", "delete_object"]

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
CRD_CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
_FINISHED = frozenset({"Failed", "Succeeded"})
_DEFAULT_GRACE_SECONDS = 30
_CRDS = "customresourcedefinitions.apiextensions.k8s.io"
_IMMORTAL = frozenset({"default", "kube-system", "kube-public"})


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """What a client may say about a delete."""

    grace_period_seconds: int | None = None
    propagation_policy: str = ""
    uid: str | None = None
    resource_version: str | None = None
    dry_run: bool = False


@final
@dataclass(frozen=True, slots=True)
class Deletion:
    """What became of a delete.

    Args:
        document: The object as it is or was last.
        gone: Whether it is removed.
    """

    document: Document
    gone: bool


def delete_object(cluster: Cluster, info: KindInfo, stored: Stored, options: DeleteOptions) -> Deletion:
    """Delete one object, or mark it as being deleted.

    Raises:
        StatusError: 409, a precondition does not hold; 403, a namespace that must stay.
    """
    _check_preconditions(info, stored, options)
    if info.storage == "namespaces" and stored.name in _IMMORTAL:
        raise forbidden(info, stored.name, "this namespace may not be deleted")
    document = stored.document()
    metadata = as_object(document["metadata"])
    finalizers = _finalizers(info, metadata, options)
    changed = set(finalizers) != set(stored.finalizers)
    grace = _grace_seconds(info, document, options)
    waits = bool(finalizers) or grace > 0 or (info.storage == "namespaces" and _has_spec_finalizers(document))
    if not waits:
        if info.storage == "pods" and not stored.deleting:
            # Pods are deleted in two steps even when nothing waits: first marked, then removed.
            _mark(cluster, info, document, metadata, 0)
            if not options.dry_run:
                document = cluster.put(info, document).document()
        if not options.dry_run:
            cluster.remove(info, stored.key)
        return Deletion(document, gone=True)
    if stored.deleting and not changed and not _shortens(metadata, grace):
        return Deletion(document, gone=False)
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    _mark(cluster, info, document, metadata, grace)
    if not options.dry_run:
        document = cluster.update(info, stored, document)[0].document()
    return Deletion(document, gone=False)


def _mark(cluster: Cluster, info: KindInfo, document: Document, metadata: Document, grace: int) -> None:
    first = metadata.get("deletionTimestamp") is None
    generation = metadata.get("generation")
    if first and isinstance(generation, int) and generation > 0:
        metadata["generation"] = generation + 1
    if first or _shortens(metadata, grace):
        metadata["deletionTimestamp"] = timestamp(cluster.now() + timedelta(seconds=grace))
    if info.storage == "namespaces":
        status = as_object(document.get("status"))
        status["phase"] = "Terminating"
        document["status"] = status
        return
    metadata["deletionGracePeriodSeconds"] = grace


def _shortens(metadata: Document, grace: int) -> bool:
    current = metadata.get("deletionGracePeriodSeconds")
    return isinstance(current, int) and grace < current


def _has_spec_finalizers(document: Document) -> bool:
    return bool(dig(document, "spec", "finalizers"))


def _grace_seconds(info: KindInfo, document: Document, options: DeleteOptions) -> int:
    """Only Pods that a kubelet may be running are deleted gracefully."""
    if info.storage != "pods" or not dig(document, "spec", "nodeName"):
        return 0
    if dig(document, "status", "phase") in _FINISHED:
        return 0
    if options.grace_period_seconds is not None:
        return max(options.grace_period_seconds, 0)
    current = dig(document, "metadata", "deletionGracePeriodSeconds")
    if isinstance(current, int):
        return current
    own = dig(document, "spec", "terminationGracePeriodSeconds")
    return own if isinstance(own, int) else _DEFAULT_GRACE_SECONDS


def _finalizers(info: KindInfo, metadata: Document, options: DeleteOptions) -> list[Value]:
    """The finalizers with the garbage collector's own as the propagation policy asks."""
    present = [as_text(entry) for entry in as_list(metadata.get("finalizers"))]
    orphan, foreground = False, False
    if info.storage != "events":
        match options.propagation_policy:
            case "Orphan":
                orphan = True
            case "Foreground":
                foreground = True
            case "Background":
                pass
            case _:
                orphan = ORPHAN in present or (FOREGROUND not in present and _orphans_by_default(info))
                foreground = FOREGROUND in present and not orphan
    kept: list[Value] = [entry for entry in present if entry not in {ORPHAN, FOREGROUND}]
    if orphan:
        kept.append(ORPHAN)
    if foreground:
        kept.append(FOREGROUND)
    if info.storage == _CRDS and metadata.get("deletionTimestamp") is None and CRD_CLEANUP not in kept:
        kept.append(CRD_CLEANUP)
    return kept


def _orphans_by_default(info: KindInfo) -> bool:
    # Jobs and ReplicationControllers do so for clients that are older than garbage collection.
    return (info.storage == "jobs.batch" and info.version == "v1") or info.storage == "replicationcontrollers"


def _check_preconditions(info: KindInfo, stored: Stored, options: DeleteOptions) -> None:
    if options.uid is not None and options.uid != stored.uid:
        raise _failed(
            info,
            stored,
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({stored.uid}). "
            "The object might have been deleted and then recreated",
        )
    current = str(stored.revision)
    if options.resource_version is not None and options.resource_version != current:
        raise _failed(
            info,
            stored,
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the "
            f"ResourceVersion in record ({current}). The object might have been modified",
        )


def _failed(info: KindInfo, stored: Stored, why: str) -> StatusError:
    # Here the server names the kind where it names the resource elsewhere.
    kind = f"{info.kind}.{info.group}" if info.group else info.kind
    details: Document = {"name": stored.name}
    if info.group:
        details["group"] = info.group
    details["kind"] = info.kind
    text = f'Operation cannot be fulfilled on {kind} "{stored.name}": {why}'
    return StatusError(409, "Conflict", text, details=details)
