"""Counts the calls of a run and says which of them goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol, final

import anyio
import msgspec

from opsdk.client.transport import HttpRequest, HttpResponse, Transport
from opsdk.testing.simulator import Target
from opsdk.testing.sweeps._calls import ApiCall, WatchEventSeen, as_object, is_swept, parse_json, text_at
from opsdk.testing.sweeps._faults import Fault, FaultKind, Plan
from opsdk.testing.sweeps._state import FOREIGN
from opsdk.types import Json, JsonObject

__all__ = ["HOT_SECONDS", "LAG_SECONDS", "Gap", "Injector", "Lag", "ProcessState", "status_response"]

LAG_SECONDS: Final = 5.0
"""How long a cache does not see what was written."""

HOT_SECONDS: Final = 60.0
"""Within which time too many calls are a hot loop."""

_JSON: Final = {"content-type": "application/json"}


def status_response(code: int, reason: str, message: str, *, retry_after_seconds: int | None = None) -> HttpResponse:
    """An answer that is an error, as an API server words it."""
    status: dict[str, Json] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    headers = dict(_JSON)
    if retry_after_seconds is not None:
        headers["retry-after"] = str(retry_after_seconds)
        status["details"] = {"retryAfterSeconds": retry_after_seconds}
    return HttpResponse(status=code, headers=headers, body=msgspec.json.encode(status))


@final
@dataclass(slots=True, kw_only=True, eq=False)
class ProcessState:
    """What a sweep knows of one process of the operator.

    Args:
        number: Counted from 1.
        scope: Cancelling it is the crash.
        dead: It has crashed or ended: nothing that it asks for reaches the server.
        cut: It cannot reach the server, and does not know.
        lost: Another replica leads; a write of this one is a failure.
        elects: Whether it has a Lease of its own to lose.
        replaced: Another process takes its place, so that its end is no news.
        ended: Set when it has ended.
    """

    number: int
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    dead: bool = False
    cut: bool = False
    lost: bool = False
    elects: bool = False
    replaced: bool = False
    ended: anyio.Event = field(default_factory=anyio.Event)
    healed: anyio.Event = field(default_factory=anyio.Event)

    def kill(self) -> None:
        """End it at once, as SIGKILL does: nothing that it still does has an effect on the server."""
        self.dead = True
        self.scope.cancel()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """A cache that is behind.

    Args:
        resource: Whose.
        revision: What it still shows: the state as of this resourceVersion.
        until: The loop's time at which it catches up.
    """

    resource: tuple[str, str, str]
    revision: str
    until: float


@final
@dataclass(slots=True, kw_only=True)
class Gap:
    """Where the history of a resource begins: who watches from before it is told that this is too old.

    Args:
        form: How: `gone-http` or `gone-event`.
        revision: The newest resourceVersion when something was missed.
        listed: Whether somebody has listed since, so that this version is nothing that was missed.
    """

    form: FaultKind
    revision: int
    listed: bool = False

    def tells_all_from(self, version: str) -> bool:
        """Whether a watch from `version` misses nothing."""
        return not version.isdigit() or int(version) > self.revision or (self.listed and int(version) == self.revision)


class Hooks(Protocol):
    """What a run does when the injector says so."""

    def crash(self, process: ProcessState) -> None:
        """The process is gone; another one begins soon."""
        ...

    def replace(self, process: ProcessState, request: HttpRequest, call: Callable[[int], ApiCall]) -> None:
        """The process loses its leadership while `request` is on its way."""
        ...

    def lagging(self, resource: tuple[str, str, str]) -> None:
        """The caches of one resource do not see what happens."""
        ...

    def touched(self, target: Target) -> None:
        """The operator looks at a resource."""
        ...

    async def written(self, call: ApiCall, before: JsonObject | None, after: JsonObject | None) -> None:
        """A write of the operator was answered."""
        ...

    def fail(self, reason: str, details: tuple[str, ...] = ()) -> None:
        """The run has failed, and ends."""
        ...


@final
class Injector:
    """The calls of one run.

    Args:
        plan: What goes wrong.
        inner: The API server.
        hooks: Is told what to do about it.
        burst: How many requests within a minute are a hot loop.
    """

    def __init__(self, plan: Plan, *, inner: Transport, hooks: Hooks, burst: int) -> None:
        self.inner = inner
        self.hooks = hooks
        self.writes: list[ApiCall] = []
        self.reads: list[ApiCall] = []
        self.events: list[WatchEventSeen] = []
        self.resources: dict[tuple[str, str, str], Target] = {}
        self.hit: dict[Fault, str] = {}
        self.lag: Lag | None = None
        self.gaps: dict[tuple[str, str, str], Gap] = {}
        self.foreign: dict[str, tuple[str, str]] = {}
        self.requests = 0
        self.longest_burst = 0
        self._armed = list(plan.faults)
        self._burst = burst
        self._window_start = 0.0
        self._window_count = 0
        self._counts = {"write": 0, "read": 0, "event": 0}

    def next_number(self, what: str) -> int:
        """Count one write, read or event."""
        self._counts[what] += 1
        return self._counts[what]

    def take(self, kinds: frozenset[FaultKind], at: int, call: object) -> FaultKind | None:
        """The fault at this call, if there is one; it happens once."""
        for fault in self._armed:
            if fault.at == at and fault.kind in kinds:
                self._armed.remove(fault)
                self.hit[fault] = str(call)
                return fault.kind
        return None

    def give_back(self, kind: FaultKind, at: int) -> None:
        """The fault at this call had no effect, so that it has not happened."""
        self.hit.pop(Fault(kind, at), None)

    def count_request(self, what: object) -> None:
        """Notice a hot loop."""
        self.requests += 1
        now = anyio.current_time()
        if now - self._window_start >= HOT_SECONDS:
            self._window_start, self._window_count = now, 0
        self._window_count += 1
        self.longest_burst = max(self.longest_burst, self._window_count)
        if self._window_count == self._burst:
            last = [f"  {write}" for write in self.writes[-3:]]
            details = ("the last writes:", *last) if last else ()
            self.hooks.fail(f"hot loop: {self._burst} calls within a minute, the last one {what}", details)

    def touch(self, target: Target) -> None:
        """Remember that somebody looks at a resource."""
        if target.resource not in self.resources and is_swept(target):
            self.resources[target.resource] = target
            self.hooks.touched(target)

    async def read(self, target: Target) -> JsonObject | None:
        """The object as it is now; None when there is none."""
        if target.name is None:
            return None
        response = await self.inner.request(HttpRequest(method="GET", path=target.object_path))
        return as_object(parse_json(response.body)) if response.status == 200 else None

    async def edit(self, target: Target, mark: str, *, kept: bool) -> bool:
        """Write an annotation to an object in somebody else's name; whether the server took it.

        Args:
            target: The object.
            mark: The annotation's value.
            kept: Whether it has to be there at the end.
        """
        body = msgspec.json.encode({"metadata": {"annotations": {FOREIGN: mark}}})
        response = await self.inner.request(
            HttpRequest(
                method="PATCH",
                path=target.object_path,
                query=(("fieldManager", "somebody-else"),),
                headers={"content-type": "application/merge-patch+json"},
                body=body,
            )
        )
        edited = as_object(parse_json(response.body))
        if kept and response.status == 200:
            place = "/".join(part for part in (target.plural, target.namespace, target.name) if part)
            self.foreign[text_at(edited, "metadata", "uid")] = (place, mark)
        return response.status == 200

    async def caught_up(self, resource: tuple[str, str, str]) -> None:
        """Wait while the caches of this resource lag behind."""
        while (lag := self.lag) is not None and lag.resource == resource:
            if anyio.current_time() >= lag.until:
                return
            await anyio.sleep(lag.until - anyio.current_time())

    async def forget(self, target: Target, form: FaultKind) -> None:
        """From now on, watches from what is known so far are too old: only a list tells what there is."""
        revision = await self.revision(target)
        self.gaps[target.resource] = Gap(form=form, revision=int(revision))

    async def revision(self, target: Target) -> str:
        """The newest resourceVersion."""
        response = await self.inner.request(
            HttpRequest(method="GET", path=target.collection_path, query=(("limit", "1"),))
        )
        return text_at(as_object(parse_json(response.body)), "metadata", "resourceVersion")

    def listed(self, resource: tuple[str, str, str]) -> None:
        """Somebody knows again what is there; who watches from before still does not."""
        if (gap := self.gaps.get(resource)) is not None:
            gap.listed = True

    def stale_revision(self, resource: tuple[str, str, str]) -> str | None:
        """Which version a cache of this resource still shows; None: the newest."""
        lag = self.lag
        if lag is None or lag.resource != resource or anyio.current_time() >= lag.until:
            return None
        return lag.revision
