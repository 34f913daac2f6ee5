"""The user's side of a sweep: what a scenario does to the cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Final, Protocol, final

import anyio
from typing_extensions import TypeVar

from opsdk import clock
from opsdk.client import ApiClient
from opsdk.errors import ApiStatusError, ConflictError
from opsdk.models import codec_of, metadata_of, resource_of
from opsdk.protocols import KubeObject
from opsdk.testing.apiserver import ApiServer
from opsdk.testing.sweeps._calls import as_object, as_sequence, parse_json, text_at
from opsdk.testing.sweeps.errors import ScenarioError
from opsdk.types import Json, JsonObject, MergePatch, PropagationPolicy

__all__ = ["World"]

T = TypeVar("T", bound=KubeObject)

_LOOK_SECONDS: Final = 0.5
_LONGEST_LOOK_SECONDS: Final = 10.0
_SLOWER: Final = 1.2
_TRIES: Final = 10


class _Behind(Protocol):
    """What the world asks of the run behind it."""

    async def settle(self) -> None:
        """Wait until the operator rests."""
        ...

    def restart(self) -> None:
        """End the operator's process and begin another one."""
        ...

    def beside(self, actor: Callable[[], Awaitable[object]]) -> None:
        """Run something beside the scenario."""
        ...


@final
class World:
    """One run's cluster, as its user sees it. Nothing here goes wrong: faults happen to the operator alone.

    All waiting is on virtual time. What waits gives up after `patience` and fails with what it waited for.
    """

    def __init__(
        self, behind: _Behind, server: ApiServer, client: ApiClient, *, namespace: str, patience: timedelta
    ) -> None:
        self._behind = behind
        self._server = server
        self._client = client
        self._namespace = namespace
        self._patience = patience

    @property
    def client(self) -> ApiClient:
        """A client of the user: never faulted, not recorded."""
        return self._client

    @property
    def server(self) -> ApiServer:
        """The API server under it all."""
        return self._server

    @property
    def namespace(self) -> str:
        """Where objects without a namespace go."""
        return self._namespace

    async def create(self, obj: T, /) -> T:
        """Create an object; its custom resource is defined on demand, and without a namespace it gets the world's.

        The first object that a scenario creates says which kind a plain reconciler reconciles.
        """
        kind = type(obj)
        info = resource_of(kind)
        if self._server.registry.find(info.group, info.version, info.plural) is None:
            await self._server.install(kind)
        namespace = (metadata_of(obj).namespace or self._namespace) if info.namespaced else None
        return await self._client.create(obj, namespace=namespace)

    async def edit(self, kind: type[T], name: str, change: Callable[[T], None], *, namespace: str | None = None) -> T:
        """Change an object as `kubectl edit` does: read, change, write, and again if somebody was faster.

        Args:
            kind: The object's kind.
            name: Its name. It is waited for.
            change: Changes the object in place.
            namespace: Its namespace; None: the world's.
        """
        place = self._place(kind, namespace)
        for _ in range(_TRIES):
            obj = await self.exists(kind, name, namespace=namespace)
            base = self._client.snapshot(obj)
            change(obj)
            try:
                return await self._client.patch_from(base, obj) or obj
            except ConflictError:
                continue
        raise ScenarioError(f"{resource_of(kind).kind} {place}/{name} changes faster than it can be edited")

    async def delete(
        self,
        kind: type[KubeObject],
        name: str,
        *,
        namespace: str | None = None,
        propagation: PropagationPolicy | None = None,
    ) -> None:
        """Delete an object; returns at once, see `gone`."""
        await self._client.delete(kind, name, namespace=self._place(kind, namespace), propagation=propagation)

    async def find(self, kind: type[T], name: str, *, namespace: str | None = None) -> T | None:
        """The object as it is now; None when there is none."""
        return await self._client.find(kind, name, namespace=self._place(kind, namespace))

    async def exists(self, kind: type[T], name: str, *, namespace: str | None = None) -> T:
        """Wait until the object is there.

        Raises:
            ScenarioError: It is not, for longer than `patience`.
        """
        return await self.until(kind, name, lambda _: True, what="is there", namespace=namespace)

    async def until(
        self, kind: type[T], name: str, holds: Callable[[T], bool], *, what: str = "", namespace: str | None = None
    ) -> T:
        """Wait until the object is there and `holds` is true of it.

        Args:
            kind: The object's kind.
            name: Its name.
            holds: What to wait for.
            what: The same in words, such as `"is ready"`, for the text of the failure. Default: the function's name.
            namespace: Its namespace; None: the world's.

        Raises:
            ScenarioError: It is not, for longer than `patience`.
        """
        last: list[T] = []

        async def look() -> bool:
            found = await self.find(kind, name, namespace=namespace)
            last[:] = [] if found is None else [found]
            return found is not None and holds(found)

        info = resource_of(kind)
        await self._wait(look, lambda: f"{info.kind} {name} {what or _called(holds)}", lambda: self._seen(kind, last))
        return last[0]

    async def gone(self, kind: type[KubeObject], name: str, *, namespace: str | None = None) -> None:
        """Wait until there is no such object.

        Raises:
            ScenarioError: There is one, for longer than `patience`.
        """
        last: list[KubeObject] = []

        async def look() -> bool:
            found = await self.find(kind, name, namespace=namespace)
            last[:] = [] if found is None else [found]
            return found is None

        await self._wait(look, lambda: f"{resource_of(kind).kind} {name} gone", lambda: _finalizers(last))

    async def eventually(self, holds: Callable[[], Awaitable[bool]], what: str) -> None:
        """Wait until `holds` returns True.

        Args:
            holds: What to ask, again and again.
            what: What is waited for, for the text of the failure.

        Raises:
            ScenarioError: It does not, for longer than `patience`.
        """
        await self._wait(holds, lambda: what, lambda: "")

    async def settle(self) -> None:
        """Wait until the operator rests: it has changed nothing for a while and nobody else has.

        What it wants to do later than that (a requeue in ten minutes, a long backoff after a fault) is not waited
        for: before a step that needs something of the operator, wait for that with `until`.
        """
        await self._behind.settle()

    async def simulate_ready(self, kind: type[KubeObject], name: str, *, namespace: str | None = None) -> None:
        """Wait for the object and set its condition Ready to True, in the place of a cluster's controllers."""
        await self.exists(kind, name, namespace=namespace)
        place = self._place(kind, namespace)
        found = await self._client.get(kind, name, namespace=place)
        document = as_object(parse_json(codec_of(kind).encode(found))) or {}
        status = as_object(document.get("status")) or {}
        others = [item for item in as_sequence(status.get("conditions")) if text_at(as_object(item), "type") != "Ready"]
        ready: JsonObject = {
            "type": "Ready",
            "status": "True",
            "reason": "SimulatedReady",
            "message": "the scenario says so",
            "lastTransitionTime": clock.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        await self.set_status(kind, name, {"conditions": [*others, ready]}, namespace=namespace)

    async def set_status(
        self, kind: type[KubeObject], name: str, status: Mapping[str, Json], *, namespace: str | None = None
    ) -> None:
        """Wait for the object and merge `status` into its status, in the place of a cluster's controllers."""
        await self.exists(kind, name, namespace=namespace)
        place = self._place(kind, namespace)
        await self._client.status.patch(kind, name, MergePatch({"status": status}), namespace=place)

    def restart_operator(self) -> None:
        """End the operator's process without warning and begin another one: an upgrade, or a node that fails."""
        self._behind.restart()

    def run_beside(self, actor: Callable[[], Awaitable[object]], /) -> None:
        """Run `actor` until the end of the run, such as `DeploymentActor(world.client).run`.

        What it raises, fails the run.
        """
        self._behind.beside(actor)

    def _place(self, kind: type[KubeObject], namespace: str | None) -> str | None:
        return (namespace or self._namespace) if resource_of(kind).namespaced else None

    def _seen(self, kind: type[T], last: list[T]) -> str:
        if not last:
            return "there is none"
        document = as_object(parse_json(codec_of(kind).encode(last[0]))) or {}
        status = as_object(document.get("status")) or {}
        known = [text_at(status, field) for field in ("state", "phase")]
        conditions = [as_object(item) for item in as_sequence(status.get("conditions"))]
        known += [f"{text_at(item, 'type')}={text_at(item, 'status')}" for item in conditions]
        return ", ".join(part for part in known if part) or "its status says nothing"

    async def _wait(
        self, look: Callable[[], Awaitable[bool]], what: Callable[[], str], seen: Callable[[], str]
    ) -> None:
        end = anyio.current_time() + self._patience.total_seconds()
        pause = _LOOK_SECONDS
        while True:
            try:
                if await look():
                    return
            except ApiStatusError as error:
                if error.code != 404:  # the kind is not served yet
                    raise
            if anyio.current_time() >= end:
                now = seen()
                waited = f"{self._patience.total_seconds():g} s"
                raise ScenarioError(f"after {waited}, still not: {what()}{f' ({now})' if now else ''}")
            await anyio.sleep(pause)
            pause = min(pause * _SLOWER, _LONGEST_LOOK_SECONDS)


def _called(holds: Callable[..., bool]) -> str:
    name: str = getattr(holds, "__name__", "<lambda>")
    return "as the scenario wants it" if name == "<lambda>" else name.replace("_", " ")


def _finalizers(last: list[KubeObject]) -> str:
    if not last:
        return ""
    return f"its finalizers: {', '.join(metadata_of(last[0]).finalizers or []) or 'none'}"
