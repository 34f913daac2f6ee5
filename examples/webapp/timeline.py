"""Shows on a terminal what happens to a webapp and its children, as it happens."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Final, Protocol, TextIO, TypeVar

import anyio
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Event, Service

from opsdk import Client
from opsdk.protocols import Added, Deleted, KubeObject, Modified
from webapp import WebApp, image_of

T = TypeVar("T", bound=KubeObject)

RESET: Final = "\x1b[0m"
STYLES: Final = {
    "bold": "\x1b[1m",
    "dim": "\x1b[2m",
    "red": "\x1b[31m",
    "green": "\x1b[32m",
    "yellow": "\x1b[33m",
    "blue": "\x1b[34m",
    "cyan": "\x1b[36m",
}
STATE_COLOURS: Final = {
    "initialising": "blue",
    "running": "green",
    "updating": "yellow",
    "degraded": "red",
    "deleting": "dim",
}


class Timeline:
    """Prints one line for each thing that happens, with the seconds since the start.

    Colours are used on a terminal only, and never if NO_COLOR is set.
    """

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self.out = out
        self.colours = out.isatty() and not os.environ.get("NO_COLOR")
        self.started: float | None = None

    def style(self, text: str, *names: str) -> str:
        if not self.colours or not names:
            return text
        return "".join(STYLES[name] for name in names) + text + RESET

    def line(self, text: str) -> None:
        now = anyio.current_time()
        if self.started is None:
            self.started = now
        stamp = self.style(f"{now - self.started:6.2f}s", "dim")
        print(f"{stamp}  {text}", file=self.out, flush=True)

    def step(self, text: str) -> None:
        """What somebody does."""
        print(file=self.out)
        self.line(self.style(f"▶ {text}", "bold", "cyan"))

    def thing(self, kind: str, what: str, *styles: str) -> None:
        """What happens to an object."""
        self.line(f"    {self.style(f'{kind:<11}', 'dim')} {self.style(what, *styles)}")

    async def watch(self, client: Client, namespace: str) -> None:
        """Show everything in the namespace until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow, client, WebApp, namespace, self._webapp)
            tasks.start_soon(self._follow, client, Deployment, namespace, self._deployment)
            tasks.start_soon(self._follow, client, Service, namespace, self._service)
            tasks.start_soon(self._follow, client, ConfigMap, namespace, self._config_map)
            tasks.start_soon(self._follow, client, Event, namespace, self._event)

    async def _follow(
        self, client: Client, kind: type[T], namespace: str, show: Callable[[T | None, T | None], None]
    ) -> None:
        """One watch; `show` gets each object as it was and as it is."""
        known: dict[str, T] = {}
        async with client.watch(kind, namespace=namespace) as events:
            async for event in events:
                match event:
                    case Added(item) | Modified(item):
                        uid = (item.metadata.uid if item.metadata else None) or ""
                        show(known.get(uid), item)
                        known[uid] = item
                    case Deleted(item):
                        uid = (item.metadata.uid if item.metadata else None) or ""
                        show(known.pop(uid, None), None)
                    case _:
                        pass

    def _webapp(self, before: WebApp | None, after: WebApp | None) -> None:
        if after is None:
            self.thing("WebApp", "gone", "dim")
            return
        if before is None:
            spec = after.spec
            self.thing("WebApp", f"{after.metadata.name}: {spec.replicas} replicas of {spec.image}")
        elif before.metadata.deletionTimestamp is None and after.metadata.deletionTimestamp is not None:
            self.thing("WebApp", f"marked for deletion, held by {', '.join(after.metadata.finalizers or [])}")
        elif before.spec.image != after.spec.image:
            self.thing("WebApp", f"spec.image: {before.spec.image} -> {after.spec.image}")
        old, new = before.status if before else None, after.status
        if new.state and (old is None or old.state != new.state):
            shown = "  ".join(self._condition(c.type, c.status) for c in new.conditions)
            reason = new.state_history[-1].reason if new.state_history else ""
            because = f" ({reason})" if reason else ""
            colour = STATE_COLOURS.get(new.state, "bold")
            self.line(
                f"  {self.style('●', colour)} {self.style(f'{new.state + because:<26}', 'bold', colour)}  {shown}"
            )
        if old is not None and old.ready_replicas != new.ready_replicas:
            self.thing("WebApp", f"readyReplicas: {old.ready_replicas} -> {new.ready_replicas}")

    def _condition(self, name: str, status: str) -> str:
        good = {"Ready": "True", "Progressing": "False", "Degraded": "False"}.get(name, status) == status
        return self.style(f"{name}={status}", "green" if good else "yellow")

    def _deployment(self, before: Deployment | None, after: Deployment | None) -> None:
        if after is None:
            self.thing("Deployment", "gone", "dim")
            return
        wanted = after.spec.replicas if after.spec.replicas is not None else 1
        if before is None:
            self.thing("Deployment", f"created: {wanted} x {image_of(after)}")
        elif image_of(before) != image_of(after):
            self.thing("Deployment", f"image: {image_of(before)} -> {image_of(after)}")
        serving = _serving(after)
        if before is not None and _serving(before) != serving:
            self.thing("Deployment", f"{serving}/{wanted} replicas serve", "green" if serving == wanted else "yellow")

    def _service(self, before: Service | None, after: Service | None) -> None:
        if after is None:
            self.thing("Service", "gone", "dim")
        elif before is None:
            ports = (after.spec.ports if after.spec else None) or []
            self.thing("Service", "created: " + ", ".join(f"port {port.port} -> {port.targetPort}" for port in ports))

    def _config_map(self, before: ConfigMap | None, after: ConfigMap | None) -> None:
        name = _name(after or before)
        if name == "kube-root-ca.crt":
            return
        if after is None:
            self.thing("ConfigMap", "gone", "dim")
        elif before is None:
            self.thing("ConfigMap", f"created: {', '.join(_keys(after))}")

    def _event(self, before: Event | None, after: Event | None) -> None:
        if after is None or after.involvedObject.kind != "WebApp":
            return
        times = f" (x{after.count})" if (after.count or 1) > 1 else ""
        warning = after.type == "Warning"
        self.thing("Event", f"{after.reason}: {after.message}{times}", *(["red"] if warning else []))


class _HasData(Protocol):
    """Typed: lightkube declares the map as a bare `dict`."""

    @property
    def data(self) -> Mapping[str, str] | None: ...


def _keys(item: _HasData) -> list[str]:
    return list(item.data or ())


def _serving(deployment: Deployment) -> int:
    return (deployment.status.availableReplicas if deployment.status else None) or 0


def _name(item: KubeObject | None) -> str:
    return (item.metadata.name if item is not None and item.metadata else None) or ""
