"""Taking an operator's marks off a cluster that it leaves.

An operator that is gone removes no finalizers: objects that carry one stay for ever once they are deleted, and a
namespace that holds them never ends. So finalizers have to be released when an operator is uninstalled; and its
children, if they are to outlive it, have to be released from their owners.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final, final

import msgspec

from opsdk.client import ApiClient
from opsdk.errors import ConfigurationError, ConflictError, NotFoundError
from opsdk.models import ResourceInfo, resource_of
from opsdk.ownership._served import Reference, Seen, look_again, seen, served
from opsdk.ownership.labels import OWNER_SET_LABEL, OWNER_UID_LABEL, owner_set_fault
from opsdk.protocols import KubeObject
from opsdk.types import Json, Request

__all__ = ["ReleaseReport", "ReleasedObject", "release"]

_TRIES: Final = 5

_logger = logging.getLogger("opsdk.ownership")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedObject:
    """What was, or would be, taken off one object.

    Args:
        kind: Its kind: `Widget`.
        api_version: Its API version.
        request: Its name.
        finalizers: The finalizers.
        labels: The names of the labels.
        owners: The owners that it does not refer to any more.
    """

    kind: str
    api_version: str
    request: Request
    finalizers: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()

    def __str__(self) -> str:
        """One line."""
        parts = [f"finalizer {name}" for name in self.finalizers]
        parts += [f"label {name}" for name in self.labels]
        parts += [f"owner {name}" for name in self.owners]
        return f"{self.kind} {self.request}: {', '.join(parts)}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseReport:
    """What `release` did, or would do.

    Args:
        objects: The objects, in the order in which they were written.
        silent: API versions about which the server did not answer, so that nothing was looked for there.
        dry_run: Whether nothing was written.
    """

    objects: tuple[ReleasedObject, ...]
    silent: tuple[str, ...] = ()
    dry_run: bool = False

    def __str__(self) -> str:
        """One line for each object."""
        lines = [f"{'would release' if self.dry_run else 'released'} {entry}" for entry in self.objects]
        lines += [f"no answer about {api_version}: not looked at" for api_version in self.silent]
        return "\n".join(lines or ["nothing to release"])


async def release(
    client: ApiClient,
    *,
    finalizers: Collection[str] = (),
    owner_sets: Collection[str] = (),
    kinds: Collection[type[KubeObject] | str] | None = None,
    namespace: str | None = None,
    orphan: bool = False,
    dry_run: bool = False,
) -> ReleaseReport:
    """Take an operator's finalizers and owner labels off the objects of a cluster. Stop the operator first.

    Children that the labels were on are found by nobody afterwards; those that the garbage collector knows still go
    with their owner, unless `orphan` is set. To have the others go as well, delete their owners while the operator
    still runs, or delete them by the label `opsdk.dev/owner-set` before this.

    Guarantees: labels and references go before the first finalizer, so that no child goes because its owner does.
    What others write at the same time stands. It may be called again at any time, after a failure too.

    Args:
        client: Needs the right to list and patch what is looked at.
        finalizers: Their names; `demo.example.com/*` are all of a domain.
        owner_sets: The names of `ResourceOwner`s (`ResourceOwner.name`), whose children lose their labels.
        kinds: Where to look: classes, or resources as in `widgets.demo.example.com`. Default: everywhere.
        namespace: Only there, not at cluster-scoped objects. Default: in the whole cluster.
        orphan: Take the references to their owners off those children too, so that they outlive them.
        dry_run: Only say what would be done.

    Raises:
        ConfigurationError: There is nothing to look for, a name is none, or the server does not know a kind.
        ApiStatusError: The server refuses to list or to patch.
    """
    faults = [fault for name in owner_sets if (fault := owner_set_fault(name))]
    faults += [f"{name!r} is no finalizer" for name in finalizers if not name.partition("/")[2]]
    if not finalizers and not owner_sets:
        faults.append("neither finalizers nor owner sets are named")
    if faults:
        raise ConfigurationError(f"release: {'; '.join(faults)}")
    known, silent = await served(client)
    wanted = known if kinds is None else _chosen(kinds, known)
    if namespace is not None:
        wanted = [info for info in wanted if info.namespaced]

    found: list[ReleasedObject] = []

    async def go_through(labels: str | None, marks: Callable[[Seen], _Marks]) -> None:
        for info in wanted:
            async for this in seen(client, info, namespace=namespace, labels=labels):
                released = await _release(client, this, marks, dry_run=dry_run)
                if released is not None:
                    found.append(released)

    if owner_sets:
        await go_through(
            f"{OWNER_SET_LABEL} in ({','.join(sorted(owner_sets))})", lambda this: _ownership(this, orphan=orphan)
        )
    if finalizers:
        await go_through(None, lambda this: _Marks(finalizers=_matching(this.finalizers, finalizers)))
    return ReleaseReport(objects=tuple(found), silent=tuple(silent), dry_run=dry_run)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Marks:
    """What is to be taken off an object."""

    finalizers: Collection[str] = ()
    labels: Collection[str] = ()
    references: Collection[Reference] = ()

    def __bool__(self) -> bool:
        return bool(self.finalizers or self.labels or self.references)


def _matching(present: Iterable[str], patterns: Collection[str]) -> list[str]:
    return [
        name
        for name in present
        if any(name.startswith(pattern[:-1]) if pattern.endswith("/*") else name == pattern for pattern in patterns)
    ]


def _ownership(this: Seen, *, orphan: bool) -> _Marks:
    """The labels of an owner, and the reference to it."""
    if OWNER_SET_LABEL not in this.labels:
        return _Marks()  # it was listed before somebody took them off
    uid = this.labels.get(OWNER_UID_LABEL)
    return _Marks(
        labels=[name for name in (OWNER_UID_LABEL, OWNER_SET_LABEL) if name in this.labels],
        references=[
            entry for entry in this.references if orphan and (entry.controller if uid is None else entry.uid == uid)
        ],
    )


def _chosen(kinds: Collection[type[KubeObject] | str], known: Iterable[ResourceInfo]) -> list[ResourceInfo]:
    by_name = {_resource_name(info): info for info in known}
    chosen: list[ResourceInfo] = []
    for kind in kinds:
        name = kind if isinstance(kind, str) else _resource_name(resource_of(kind))
        if name not in by_name:
            raise ConfigurationError(f"release: the server has no kind {name}, of which objects can be patched")
        chosen.append(by_name[name])
    return chosen


def _resource_name(info: ResourceInfo) -> str:
    return f"{info.plural}.{info.group}".rstrip(".")


async def _release(
    client: ApiClient, this: Seen, marks_of: Callable[[Seen], _Marks], *, dry_run: bool
) -> ReleasedObject | None:
    """Take marks off one object; None when there are none."""
    current: Seen | None = this
    for attempt in range(_TRIES):
        if current is None or not (marks := marks_of(current)):
            return None
        try:
            if not dry_run:
                await _patch(client, current, marks)
        except NotFoundError:
            return None
        except ConflictError:
            if attempt == _TRIES - 1:
                raise
            current = await look_again(client, this)
            continue
        released = ReleasedObject(
            kind=current.info.kind,
            api_version=current.info.api_version,
            request=current.request,
            finalizers=tuple(marks.finalizers),
            labels=tuple(marks.labels),
            owners=tuple(f"{entry.kind} {entry.name}" for entry in marks.references),
        )
        if not dry_run:
            _logger.info("released %s", released)
        return released
    return None


async def _patch(client: ApiClient, this: Seen, marks: _Marks) -> None:
    metadata: dict[str, Json] = {"uid": this.uid, "resourceVersion": this.version}
    if marks.finalizers:
        metadata["finalizers"] = [name for name in this.finalizers if name not in marks.finalizers]
    if marks.labels:
        metadata["labels"] = dict.fromkeys(marks.labels)
    if marks.references:
        left = [entry for entry in this.references if entry not in marks.references]
        metadata["ownerReferences"] = [msgspec.to_builtins(entry) for entry in left]
    query = [("fieldManager", client.field_manager), *([("dryRun", "All")] if client.dry_run else [])]
    await client.raw.request(
        "PATCH",
        this.info.path(namespace=this.request.namespace, name=this.request.name),
        query=query,
        body=msgspec.json.encode({"metadata": metadata}),
        content_type="application/merge-patch+json",
        preconditioned=True,
    )
