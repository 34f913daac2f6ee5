"""Puts the CRDs of classes on a cluster, and takes care of the objects that are there already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, final

import anyio

from opsdk.client._apply_body import apply_body
from opsdk.client._writes import document_of
from opsdk.client.api import ApiClient
from opsdk.errors import (
    ApiStatusError,
    ConflictError,
    CrdChangeError,
    CrdNotEstablishedError,
    ForbiddenError,
    NotFoundError,
)
from opsdk.models import ResourceInfo, crd_losses, crd_manifests
from opsdk.patches import describe_difference
from opsdk.protocols import KubeObject
from opsdk.types import Json, JsonObject

__all__ = ["InstalledCrd", "install_crds"]

_PATH: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_POLL_SECONDS: Final = 0.1
_TIMEOUT: Final = timedelta(seconds=30)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledCrd:
    """One CRD that was installed.

    Attributes:
        name: The CRD's name, `widgets.demo.example.com`.
        created: Whether it was not there before.
        changes: What is different now, one line each; empty when it was created, or when nothing differs.
        losses: What objects may have lost; empty unless that was allowed.
    """

    name: str
    created: bool
    changes: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    name: str
    manifest: JsonObject
    found: JsonObject | None
    losses: tuple[str, ...]

    @property
    def changes(self) -> tuple[str, ...]:
        if self.found is None:
            return ()
        return tuple(describe_difference(_compared(self.found, self.manifest), _compared(self.manifest, self.manifest)))


async def install_crds(
    client: ApiClient,
    *kinds: type[KubeObject],
    allow_data_loss: bool = False,
    force: bool = False,
    dry_run: bool | None = None,
    timeout: timedelta = _TIMEOUT,  # noqa: ASYNC109 - how long the server may take, not the caller's patience
) -> list[InstalledCrd]:
    """Install the CRDs of the classes by server-side apply, and wait until the server serves them.

    *Flow*: all CRDs are read and compared; if one of them would lose data, nothing is written. Then each is applied,
    on the condition that nobody has changed it since it was read, and waited for.

    *Guarantees*

    - While there are objects of a kind, a change that may cost them something (a field, type, value or version that is
      gone, see `opsdk.models.crd_losses`) is refused. Without objects, and for a kind that is new, nothing is lost.
    - When it returns, each CRD is Established and each of its served versions answers.
    - Installing what is there already writes nothing, so that every replica may do it when it starts.

    *Not promised*: that all replicas of an API server serve a new kind at once. Objects that are created while the
    CRDs are compared are not looked at. A CRD is never deleted.

    Args:
        client: Needs `get`, `create` and `patch` on CustomResourceDefinitions; `list` on the kinds, else there may
            be objects.
        kinds: The classes. Several of one group and kind are its versions.
        allow_data_loss: Write also what may lose data. What the server itself refuses, it still refuses.
        force: Take over fields that another field manager owns (`kubectl apply` does), instead of a `ConflictError`.
        dry_run: Only ask the server what it would say; None: as the client does.
        timeout: How long the server may take until it serves a CRD.

    Raises:
        CrdChangeError: Objects may lose data; says what, with the whole difference. Nothing was written.
        CrdNotEstablishedError: The server does not serve a CRD: its names are taken, it is being deleted, or too slow.
        ConflictError: Another manager owns a field, or somebody else has just changed the CRD.
        InvalidError: The server refuses a CRD.
        CrdSchemaError: A model has no structural schema.
    """
    plans = [await _plan(client, manifest) for manifest in crd_manifests(*kinds)]
    lossy = [plan for plan in plans if plan.losses]
    if lossy and not allow_data_loss:
        raise CrdChangeError({plan.name: (plan.losses, plan.changes) for plan in lossy})
    dry = client.dry_run if dry_run is None else dry_run
    for plan in plans:
        await _apply(client, plan, force=force, dry_run=dry)
    if not dry:
        for plan in plans:
            await _wait(client, plan, timeout)
    return [
        InstalledCrd(name=plan.name, created=plan.found is None, changes=plan.changes, losses=plan.losses)
        for plan in plans
    ]


async def _read(client: ApiClient, name: str) -> JsonObject | None:
    try:
        raw = await client.raw.request("GET", f"{_PATH}/{name}")
    except NotFoundError:
        return None
    return document_of(raw, f"CustomResourceDefinition {name}")


async def _plan(client: ApiClient, manifest: JsonObject) -> _Plan:
    name = str(_member(manifest, "metadata", "name"))
    found = await _read(client, name)
    losses: tuple[str, ...] = ()
    if found is not None:
        if _member(found, "metadata", "deletionTimestamp") is not None:
            raise CrdNotEstablishedError(name, "it is being deleted; try again when it is gone")
        losses = tuple(crd_losses(found, manifest))
        if losses and not await _may_have_objects(client, found):
            losses = ()
    return _Plan(name=name, manifest=manifest, found=found, losses=losses)


async def _may_have_objects(client: ApiClient, crd: JsonObject) -> bool:
    for resource in _served(crd):
        try:
            page = await client.raw.list_page(resource, limit=1)
        except (ForbiddenError, NotFoundError):
            return True
        return bool(page.items)
    return True


def _served(crd: JsonObject) -> list[ResourceInfo]:
    names = _object(_member(crd, "spec", "names"))
    scope = _member(crd, "spec", "scope")
    return [
        ResourceInfo(
            group=str(_member(crd, "spec", "group")),
            version=str(_object(version).get("name")),
            kind=str(names.get("kind")),
            plural=str(names.get("plural")),
            scope="Cluster" if scope == "Cluster" else "Namespaced",
        )
        for version in _list(_member(crd, "spec", "versions"))
        if _object(version).get("served")
    ]


async def _apply(client: ApiClient, plan: _Plan, *, force: bool, dry_run: bool) -> None:
    """Write what was planned, on top of what was compared.

    While a CRD is new the server itself writes its status, again and again: that is no conflict, and another replica
    that installs the same at the same time is not to see one.
    """
    while True:
        try:
            return await _write(client, plan, force=force, dry_run=dry_run)
        except ConflictError:
            fresh = await _read(client, plan.name)
            if fresh is None or not _only_status_is_newer(plan.found, fresh):
                raise
            plan = replace(plan, found=fresh)


def _only_status_is_newer(found: JsonObject | None, fresh: JsonObject) -> bool:
    if found is None or _member(found, "metadata", "resourceVersion") == _member(fresh, "metadata", "resourceVersion"):
        return False
    return all(_member(found, "metadata", key) == _member(fresh, "metadata", key) for key in ("uid", "generation"))


async def _write(client: ApiClient, plan: _Plan, *, force: bool, dry_run: bool) -> None:
    query = [("fieldManager", client.field_manager)]
    if force:
        query.append(("force", "true"))
    if dry_run:
        query.append(("dryRun", "All"))
    body: dict[str, Json] = dict(plan.manifest)
    if plan.found is not None:  # what was compared is what is written over
        seen = {key: _member(plan.found, "metadata", key) for key in ("resourceVersion", "uid")}
        body["metadata"] = {**_object(body["metadata"]), **seen}
    await client.raw.request(
        "PATCH",
        f"{_PATH}/{plan.name}",
        query=query,
        body=apply_body(body),
        content_type="application/apply-patch+yaml",
        preconditioned=plan.found is not None,
    )


async def _wait(client: ApiClient, plan: _Plan, limit: timedelta) -> None:
    why = "the server says nothing about it"
    with anyio.move_on_after(limit.total_seconds()):
        while True:
            crd = await _read(client, plan.name)
            if crd is None:
                raise CrdNotEstablishedError(plan.name, "it was deleted in the meantime")
            conditions = {
                str(_object(condition).get("type")): _object(condition)
                for condition in _list(_member(crd, "status", "conditions"))
            }
            accepted = conditions.get("NamesAccepted", {})
            if accepted.get("status") == "False" and accepted.get("reason") not in {None, "NotAccepted"}:
                raise CrdNotEstablishedError(
                    plan.name, f"its names are not accepted: {accepted.get('message')} ({accepted.get('reason')})"
                )
            established = conditions.get("Established", {})
            why = str(established.get("message") or why)
            if established.get("status") == "True":
                why = "it is established, but not served yet"
                if await _is_served(client, _served(plan.manifest)):
                    return
            await anyio.sleep(_POLL_SECONDS)
    raise CrdNotEstablishedError(plan.name, f"not within {limit.total_seconds():g} s: {why}")


async def _is_served(client: ApiClient, resources: Sequence[ResourceInfo]) -> bool:
    for resource in resources:
        try:
            await client.raw.list_page(resource, limit=1)
        except ForbiddenError:
            continue  # nothing more can be learned
        except ApiStatusError as error:
            if error.code in {404, 429, 503}:
                return False
            raise
    return True


def _compared(document: JsonObject, like: JsonObject) -> JsonObject:
    """The part of a CRD that a manifest speaks of."""
    spec, wanted = _object(document.get("spec")), _object(like.get("spec"))
    out: dict[str, Json] = {"spec": {key: value for key, value in spec.items() if key in wanted}}
    for key in ("labels", "annotations"):
        mine = _object(_member(like, "metadata", key))
        theirs = _object(_member(document, "metadata", key))
        if mine:
            out[f"metadata.{key}"] = {name: theirs.get(name) for name in mine}
    return out


def _member(document: JsonObject, *path: str) -> Json:
    value: Json = document
    for step in path:
        value = _object(value).get(step)
    return value


def _object(value: Json) -> JsonObject:
    return value if isinstance(value, Mapping) else {}


def _list(value: Json) -> Sequence[Json]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()
