"""Small stand-ins for the controllers and nodes of a real cluster; each is run by who wants it.

They talk to the server as any client does, so they work on an `ApiServer` in memory, on one that is served over HTTP,
and on a kube-apiserver that runs alone.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Final, Literal, TypeAlias, final

import anyio
import anyio.abc
from lightkube.resources.apps_v1 import Deployment

from opsdk import clock
from opsdk.client import ApiClient
from opsdk.errors import ApiConnectionError, ApiProtocolError, ApiStatusError, ConflictError, NotFoundError
from opsdk.models import resource_of
from opsdk.testing.apiserver._cluster import timestamp
from opsdk.testing.apiserver._json import Document, Value, as_list, as_object, as_text, decode, dig, encode

__all__ = ["DeploymentActor"]

_RESOURCE: Final = resource_of(Deployment)
_MERGE: Final = "application/merge-patch+json"
_MANAGER: Final = (("fieldManager", "deployment-actor"),)
_RETRY_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 0.1
_DEFAULT_DEADLINE_SECONDS: Final = 600

_Timer: TypeAlias = tuple[Literal["delay", "deadline"], str, str]
"""Why a Deployment is looked at again, its namespace and its name."""


@final
class DeploymentActor:
    """Makes Deployments available: replica counts, `observedGeneration`, conditions Available and Progressing.

    There are no ReplicaSets and no Pods: only the status that operators wait for. A Deployment one of whose containers
    has an image that fails gets Available=False, and Progressing=False after its `progressDeadlineSeconds`.

    Args:
        client: How to reach the server; not closed.
        delay: How long a Deployment takes to become available after a change of its spec.
        failing_images: Images that never come up, until `heal`.
        namespace: None: all namespaces.
    """

    def __init__(
        self,
        client: ApiClient,
        *,
        delay: timedelta = timedelta(0),
        failing_images: Collection[str] = (),
        namespace: str | None = None,
    ) -> None:
        self._raw = client.raw
        self._delay = delay
        self._failing = set(failing_images)
        self._namespace = namespace
        self._due: dict[_Timer, float] = {}
        self._group: anyio.abc.TaskGroup | None = None

    def fail(self, *images: str) -> None:
        """Have these images fail from now on; Deployments show it when they are looked at next."""
        self._failing.update(images)
        self._look_again()

    def heal(self, *images: str) -> None:
        """Have these images come up again; without any, all images."""
        if images:
            self._failing.difference_update(images)
        else:
            self._failing.clear()
        self._look_again()

    async def run(self) -> None:
        """Follow all Deployments until cancelled. What goes wrong on the way to the server is tried again."""
        async with anyio.create_task_group() as group:
            self._group = group
            try:
                while True:
                    try:
                        await self._follow()
                        await anyio.sleep(_PAUSE_SECONDS)
                    except (ApiStatusError, ApiConnectionError, ApiProtocolError):
                        await anyio.sleep(_RETRY_SECONDS)
            finally:
                self._group = None

    async def settle(self) -> None:
        """Look at every Deployment once, and bring it where it will be when `delay` is over; for use without `run`."""
        for raw in await self._list():
            await self._bring_up(as_object(decode(raw)), overdue=False)

    async def _list(self) -> list[bytes]:
        page = await self._raw.list_page(_RESOURCE, namespace=self._namespace)
        return page.items

    async def _follow(self) -> None:
        page = await self._raw.list_page(_RESOURCE, namespace=self._namespace)
        for raw in page.items:
            await self._consider(raw)
        watch = self._raw.watch(_RESOURCE, namespace=self._namespace, resource_version=page.resource_version)
        async with watch as events:
            async for event in events:
                if event.type in {"ADDED", "MODIFIED"}:
                    await self._consider(event.object)

    async def _consider(self, raw: bytes) -> None:
        document = as_object(decode(raw))
        metadata = as_object(document.get("metadata"))
        if metadata.get("deletionTimestamp") is not None:
            return
        generation = metadata.get("generation")
        observed = dig(document, "status", "observedGeneration")
        if self._delay <= timedelta(0) or generation == observed:
            await self._bring_up(document, overdue=False)
            return
        namespace, name = as_text(metadata.get("namespace")), as_text(metadata.get("name"))
        self._later(("delay", namespace, name), self._delay.total_seconds())

    def _later(self, timer: _Timer, seconds: float) -> None:
        due = anyio.current_time() + seconds
        if self._group is None or self._due.get(timer, 0.0) >= due:
            return
        self._due[timer] = due
        self._group.start_soon(self._revisit, timer, due)

    async def _revisit(self, timer: _Timer, due: float) -> None:
        await anyio.sleep(due - anyio.current_time())
        if self._due.get(timer) != due:
            return  # the spec changed again meanwhile, so it takes longer
        del self._due[timer]
        why, namespace, name = timer
        try:
            document = as_object(decode(await self._raw.request("GET", _RESOURCE.path(namespace=namespace, name=name))))
            started = dig(document, "status", "observedGeneration") == dig(document, "metadata", "generation")
            if why == "delay" or started:  # a deadline is about the generation that is being rolled out
                await self._bring_up(document, overdue=True)
        except NotFoundError:
            return
        except (ApiStatusError, ApiConnectionError):
            self._later(timer, _RETRY_SECONDS)

    def _look_again(self) -> None:
        if self._group is not None:
            self._group.start_soon(self._look_at_all)

    async def _look_at_all(self) -> None:
        try:
            for raw in await self._list():
                await self._bring_up(as_object(decode(raw)), overdue=False)
        except (ApiStatusError, ApiConnectionError):
            return  # `run` is about to list anyway

    async def _bring_up(self, document: Document, *, overdue: bool) -> None:
        metadata = as_object(document.get("metadata"))
        namespace, name = as_text(metadata.get("namespace")), as_text(metadata.get("name"))
        fails = self._fails(document)
        deadline = dig(document, "spec", "progressDeadlineSeconds")
        seconds = deadline if isinstance(deadline, int) else _DEFAULT_DEADLINE_SECONDS
        late = fails and overdue and dig(document, "status", "observedGeneration") == metadata.get("generation")
        status = _status_of(document, fails=fails, late=late or _was_late(document, fails=fails))
        if fails and not late and not _was_late(document, fails=fails):
            self._later(("deadline", namespace, name), float(seconds))
        if status == document.get("status"):
            return
        # Fields of the old status that are not in the new one must go, so the patch names them.
        gone: dict[str, Value] = {field: None for field in as_object(document.get("status")) if field not in status}
        patch: Document = {
            "metadata": {"resourceVersion": metadata.get("resourceVersion")},
            "status": {**gone, **status},
        }
        path = _RESOURCE.path(namespace=namespace, name=name, subresource="status")
        try:
            await self._raw.request("PATCH", path, query=_MANAGER, body=encode(patch), content_type=_MERGE)
        except (NotFoundError, ConflictError):
            return  # an event about what happened is on its way

    def _fails(self, document: Document) -> bool:
        containers = as_list(dig(document, "spec", "template", "spec", "containers"))
        return any(as_text(as_object(container).get("image")) in self._failing for container in containers)


def _was_late(document: Document, *, fails: bool) -> bool:
    """Whether the deadline of the generation at hand was found to be over before."""
    if not fails or dig(document, "status", "observedGeneration") != dig(document, "metadata", "generation"):
        return False
    return as_object(_condition(document, "Progressing")).get("reason") == "ProgressDeadlineExceeded"


def _status_of(document: Document, *, fails: bool, late: bool) -> Document:
    wanted = dig(document, "spec", "replicas")
    replicas = wanted if isinstance(wanted, int) else 1
    name = as_text(dig(document, "metadata", "name"))
    fails = fails and replicas > 0
    status: Document = {"observedGeneration": dig(document, "metadata", "generation")}
    if replicas:
        status["replicas"] = status["updatedReplicas"] = replicas
    if fails:
        status["unavailableReplicas"] = replicas
    elif replicas:
        status["readyReplicas"] = status["availableReplicas"] = replicas
    if fails:
        available = ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
        progressing = ("True", "ReplicaSetUpdated", f'ReplicaSet "{name}" is progressing.')
        if late:
            progressing = ("False", "ProgressDeadlineExceeded", f'ReplicaSet "{name}" has timed out progressing.')
    else:
        available = ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
        progressing = ("True", "NewReplicaSetAvailable", f'ReplicaSet "{name}" has successfully progressed.')
    status["conditions"] = [
        _with(document, "Available", *available),
        _with(document, "Progressing", *progressing),
    ]
    return status


def _with(document: Document, condition_type: str, status: str, reason: str, message: str) -> Value:
    now = timestamp(clock.now())
    before = as_object(_condition(document, condition_type))
    same_status = before.get("status") == status
    same = same_status and before.get("reason") == reason and before.get("message") == message
    return {
        "type": condition_type,
        "status": status,
        "lastUpdateTime": before.get("lastUpdateTime", now) if same else now,
        "lastTransitionTime": before.get("lastTransitionTime", now) if same_status else now,
        "reason": reason,
        "message": message,
    }


def _condition(document: Document, condition_type: str) -> Value:
    for value in as_list(dig(document, "status", "conditions")):
        if as_object(value).get("type") == condition_type:
            return value
    return None
