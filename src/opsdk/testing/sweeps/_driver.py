"""Runs a plain reconciler as a controller would: by watches, requeues and retries, one object at a time."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Final, final

import anyio
import anyio.abc
import anyio.lowlevel
import httpx2

from opsdk.client.transport import HttpRequest
from opsdk.errors import ApiConnectionError, RetryError, TerminalError
from opsdk.ownership.labels import OWNER_UID_LABEL
from opsdk.protocols import Reconciler
from opsdk.testing.simulator import Target
from opsdk.testing.sweeps._calls import as_object, as_sequence, parse_json, text_at
from opsdk.testing.sweeps._injector import Injector
from opsdk.testing.sweeps._transport import ProcessTransport
from opsdk.types import JsonObject, Request

__all__ = ["Primary", "ReconcilerDriver"]

_FIRST_RETRY_SECONDS: Final = 1.0
_LONGEST_RETRY_SECONDS: Final = 64.0
_REWATCH_SECONDS: Final = 1.0
_BROKEN: Final = (ApiConnectionError, httpx2.TransportError)


@final
class Primary:
    """The kind whose objects are reconciled; known once the scenario has created one."""

    def __init__(self) -> None:
        self.target: Target | None = None
        self.kind = ""
        self.namespaced = True
        self.known = anyio.Event()

    def set(self, target: Target, kind: str, *, namespaced: bool) -> None:
        """Say which; the first one stays."""
        if self.target is None:
            self.target, self.kind, self.namespaced = target, kind, namespaced
            self.known.set()


@final
class _View:
    """What a watch has shown of a resource; without a version it has to be listed."""

    def __init__(self) -> None:
        self.version = ""
        self.objects: dict[str, JsonObject] = {}


@final
class ReconcilerDriver:
    """A queue, a worker and a watch for each resource that the reconciler looks at.

    An object is reconciled when it changes, when something changes that has an owner reference to it or its uid in
    the label `opsdk.dev/owner-uid`, when the last result asks for it, and after a failure with backoff.
    """

    def __init__(
        self, reconciler: Reconciler, injector: Injector, transport: ProcessTransport, primary: Primary
    ) -> None:
        self._reconciler = reconciler
        self._injector = injector
        self._transport = transport
        self._primary = primary
        self._due: dict[Request, None] = {}
        self._timers: dict[Request, float] = {}
        self._failures: dict[Request, int] = {}
        self._owners: dict[str, Request] = {}
        self._followed: set[tuple[str, str, str]] = set()
        self._wake = anyio.Event()
        self._tasks: anyio.abc.TaskGroup | None = None

    def touched(self, target: Target) -> None:
        """Watch this resource from now on."""
        if self._tasks is not None and target.resource not in self._followed:
            self._followed.add(target.resource)
            self._tasks.start_soon(self._follow, target)

    def enqueue_all(self) -> None:
        """Reconcile every object that is known, as after a resync."""
        for request in self._owners.values():
            self._add(request)

    async def run(self) -> None:
        """Follow and reconcile until cancelled."""
        await self._primary.known.wait()
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            if self._primary.target is not None:
                self.touched(self._primary.target)
            for target in list(self._injector.resources.values()):
                self.touched(target)
            while True:
                request = await self._next()
                await self._reconcile(request)

    async def _next(self) -> Request:
        while True:
            now = anyio.current_time()
            for ripe in [request for request, at in self._timers.items() if at <= now]:
                del self._timers[ripe]
                self._due[ripe] = None
            for request in self._due:
                del self._due[request]
                return request
            self._wake = anyio.Event()
            deadline = min(self._timers.values(), default=math.inf)
            with anyio.CancelScope(deadline=deadline):
                await self._wake.wait()

    async def _reconcile(self, request: Request) -> None:
        self._injector.count_request(f"reconcile of {request}")
        self._timers.pop(request, None)
        await anyio.lowlevel.checkpoint()
        try:
            result = await self._reconciler.reconcile(request)
        except TerminalError:
            self._failures.pop(request, None)
            return
        except RetryError as error:
            self._later(request, error.requeue_after)
            return
        except Exception:  # noqa: BLE001 - a controller retries whatever a reconciler raises
            failures = self._failures[request] = self._failures.get(request, 0) + 1
            seconds = min(_FIRST_RETRY_SECONDS * 2.0 ** (failures - 1), _LONGEST_RETRY_SECONDS)
            self._later(request, timedelta(seconds=seconds))
            return
        self._failures.pop(request, None)
        if result.requeue_after is not None:
            self._later(request, result.requeue_after)

    def _later(self, request: Request, delay: timedelta) -> None:
        self._timers[request] = anyio.current_time() + delay.total_seconds()

    def _add(self, request: Request) -> None:
        self._due[request] = None
        self._wake.set()

    # -- watching

    async def _follow(self, target: Target) -> None:
        view = _View()
        while True:
            if not view.version:
                before = view.objects
                await self._list(target, view)
                self._changed(target, {**before, **view.objects}.values())
            with suppress(*_BROKEN):
                await self._watch(target, view)
            await anyio.sleep(_REWATCH_SECONDS)

    async def _list(self, target: Target, view: _View) -> None:
        self._injector.listed(target.resource)
        response = await self._injector.inner.request(HttpRequest(method="GET", path=target.collection_path))
        answer = as_object(parse_json(response.body)) or {}
        items = [as_object(item) or {} for item in as_sequence(answer.get("items"))]
        view.version = text_at(answer, "metadata", "resourceVersion") or "0"
        view.objects = {text_at(item, "metadata", "uid"): item for item in items}

    async def _watch(self, target: Target, view: _View) -> None:
        query = (("watch", "true"), ("allowWatchBookmarks", "true"), ("resourceVersion", view.version))
        request = HttpRequest(method="GET", path=target.collection_path, query=query)
        async with self._transport.stream(request) as stream:
            if stream.status == 410:
                view.version = ""
            if stream.status != 200:
                return
            async for chunk in stream.chunks:
                event = as_object(parse_json(chunk)) or {}
                kind, item = text_at(event, "type"), as_object(event.get("object")) or {}
                if kind == "ERROR":
                    view.version = ""
                    return
                view.version = text_at(item, "metadata", "resourceVersion") or view.version
                if kind == "BOOKMARK":
                    continue
                uid = text_at(item, "metadata", "uid")
                before = view.objects.pop(uid, None)
                if kind != "DELETED":
                    view.objects[uid] = item
                self._changed(target, [item] if before is None else [before, item])

    def _changed(self, target: Target, items: Iterable[JsonObject]) -> None:
        for item in items:
            for request in self._requests(target, item):
                self._add(request)

    def _requests(self, target: Target, item: JsonObject) -> Iterable[Request]:
        primary = self._primary
        namespace = text_at(item, "metadata", "namespace") or None
        if primary.target is not None and target.resource == primary.target.resource:
            request = Request(text_at(item, "metadata", "name"), namespace)
            self._owners[text_at(item, "metadata", "uid")] = request
            yield request
            return
        for owner in as_sequence((as_object(item.get("metadata")) or {}).get("ownerReferences")):
            reference = as_object(owner)
            group = text_at(reference, "apiVersion").rpartition("/")[0]
            if primary.target is not None and (text_at(reference, "kind"), group) == (
                primary.kind,
                primary.target.group,
            ):
                yield Request(text_at(reference, "name"), namespace if primary.namespaced else None)
        owner_by_label = self._owners.get(text_at(item, "metadata", "labels", OWNER_UID_LABEL))
        if owner_by_label is not None:
            yield owner_by_label
