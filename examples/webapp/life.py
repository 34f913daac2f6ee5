"""The life of a webapp, step by step, on any cluster: in memory, or a real one.

What differs between clusters is who makes a Deployment available. That is a `Workload`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, Protocol

import anyio
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Service

from opsdk import Client
from opsdk.models import find_condition
from opsdk.types import Json, MergePatch
from webapp import Phase, WebApp, WebAppSpec, image_of

FIRST_IMAGE: Final = "registry.example.com/shop:1.0"
SECOND_IMAGE: Final = "registry.example.com/shop:2.0"


class LifeError(Exception):
    """The life did not go as it should."""


class Workload(Protocol):
    """What a cluster does with a Deployment."""

    async def become_available(self, namespace: str, name: str) -> None:
        """All replicas of the newest template serve."""
        ...

    async def break_down(self, namespace: str, name: str) -> None:
        """No replica serves."""
        ...


class WrittenStatus:
    """A `Workload` that writes the Deployment's status itself: for clusters without a Deployment controller."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def become_available(self, namespace: str, name: str) -> None:
        await self._write(namespace, name, available=True)

    async def break_down(self, namespace: str, name: str) -> None:
        await self._write(namespace, name, available=False)

    async def _write(self, namespace: str, name: str, *, available: bool) -> None:
        deployment = await self.client.get(Deployment, name, namespace=namespace)
        replicas = deployment.spec.replicas if deployment.spec.replicas is not None else 1
        serving = replicas if available else 0
        status: dict[str, Json] = {
            "observedGeneration": deployment.metadata.generation if deployment.metadata else 0,
            "replicas": replicas,
            "updatedReplicas": replicas,
            "readyReplicas": serving,
            "availableReplicas": serving,
            "unavailableReplicas": replicas - serving or None,
            "conditions": [
                {
                    "type": "Available",
                    "status": "True" if available else "False",
                    "reason": "MinimumReplicasAvailable" if available else "MinimumReplicasUnavailable",
                    "message": "",
                }
            ],
        }
        await self.client.status.patch(Deployment, name, MergePatch({"status": status}), namespace=namespace)


class Life:
    """Leads one webapp through its life and checks every step.

    Args:
        client: As a user of the cluster has it.
        workload: Who makes the Deployment available.
        namespace: Where; must exist.
        name: The webapp's name.
        tell: Is given a sentence before each step.
        patience: How long one step may take.
        pace: How long to rest before each step.
    """

    def __init__(
        self,
        client: Client,
        workload: Workload,
        *,
        namespace: str = "default",
        name: str = "shop",
        tell: Callable[[str], None] = print,
        patience: timedelta = timedelta(seconds=10),
        pace: timedelta = timedelta(0),
    ) -> None:
        self.client = client
        self.workload = workload
        self.namespace = namespace
        self.name = name
        self.tell = tell
        self.patience = patience
        self.pace = pace

    async def whole(self) -> None:
        """From the first step to the last.

        Raises:
            LifeError: A step did not lead where it should.
        """
        await self.be_created()
        await self.serve()
        await self.be_updated()
        await self.break_and_heal()
        await self.be_deleted()

    async def be_created(self) -> None:
        await self.say("a user creates a webapp with two replicas and a configuration")
        spec = WebAppSpec(image=FIRST_IMAGE, replicas=2, config={"motd": "welcome"})
        metadata = ObjectMeta(name=self.name, namespace=self.namespace)
        await self.client.create(WebApp(metadata=metadata, spec=spec))
        webapp = await self.reach(Phase.INITIALISING, ready="False", progressing="True")
        for kind in (ConfigMap, Service, Deployment):
            child = await self.client.get(kind, self.name, namespace=self.namespace)
            owners = (child.metadata.ownerReferences if child.metadata else None) or []
            self.check([owner.uid for owner in owners] == [webapp.metadata.uid], f"the {kind.__name__} is owned")

    async def serve(self) -> None:
        await self.say("the Deployment becomes available")
        await self.workload.become_available(self.namespace, self.name)
        webapp = await self.reach(Phase.RUNNING, ready="True", progressing="False")
        self.check(webapp.status.image == FIRST_IMAGE, "the first image is reported as rolled out")
        await self.until(lambda webapp: webapp.status.ready_replicas == 2, "two replicas are reported as ready")

    async def be_updated(self) -> None:
        await self.say(f"the user asks for {SECOND_IMAGE}")
        await self.client.patch(
            WebApp, self.name, MergePatch({"spec": {"image": SECOND_IMAGE}}), namespace=self.namespace
        )
        await self.reach(Phase.UPDATING, Phase.RUNNING, after=Phase.UPDATING)
        await self.until_child(
            lambda deployment: image_of(deployment) == SECOND_IMAGE, "the Deployment has the new image"
        )
        await self.workload.become_available(self.namespace, self.name)
        webapp = await self.reach(Phase.RUNNING, ready="True", progressing="False")
        self.check(webapp.status.image == SECOND_IMAGE, "the second image is reported as rolled out")

    async def break_and_heal(self) -> None:
        await self.say("all pods break")
        await self.workload.break_down(self.namespace, self.name)
        await self.reach(Phase.DEGRADED, ready="False", degraded="True")
        await self.say("the pods come back")
        await self.workload.become_available(self.namespace, self.name)
        webapp = await self.reach(Phase.RUNNING, ready="True", degraded="False")
        path = [str(entry.to) for entry in webapp.status.state_history]
        expected = ["initialising", "running", "updating", "running", "degraded", "running"]
        self.check(path == expected, f"the history is {' -> '.join(expected)}, not {' -> '.join(path)}")

    async def be_deleted(self) -> None:
        await self.say("the user deletes the webapp")
        await self.client.delete(WebApp, self.name, namespace=self.namespace)
        await self._wait(self._all_gone, "the webapp and its children are gone")

    async def say(self, what: str) -> None:
        await anyio.sleep(self.pace.total_seconds())
        self.tell(what)

    # -- waiting and checking

    async def reach(
        self,
        *phases: Phase,
        after: Phase | None = None,
        ready: str | None = None,
        progressing: str | None = None,
        degraded: str | None = None,
    ) -> WebApp:
        """Wait until the webapp is in one of the phases (and has been in `after`), with these conditions."""
        wanted = {"Ready": ready, "Progressing": progressing, "Degraded": degraded}

        def there(webapp: WebApp) -> bool:
            found = {name: find_condition(webapp.status.conditions, name) for name in wanted}
            return (
                webapp.status.state in phases
                and (after is None or any(entry.to == after for entry in webapp.status.state_history))
                and all(
                    status is None or ((condition := found[name]) is not None and condition.status == status)
                    for name, status in wanted.items()
                )
            )

        return await self.until(there, f"the webapp is {' or '.join(phases)}")

    async def until(self, holds: Callable[[WebApp], bool], what: str) -> WebApp:
        """Wait until `holds` of the webapp."""
        last: list[WebApp] = []

        async def look() -> bool:
            last[:] = [await self.client.get(WebApp, self.name, namespace=self.namespace)]
            return holds(last[0])

        await self._wait(look, what, lambda: f"state {last[0].status.state}" if last else "")
        return last[0]

    async def until_child(self, holds: Callable[[Deployment], bool], what: str) -> None:
        """Wait until `holds` of the Deployment."""

        async def look() -> bool:
            return holds(await self.client.get(Deployment, self.name, namespace=self.namespace))

        await self._wait(look, what)

    async def _all_gone(self) -> bool:
        found = [
            await self.client.find(WebApp, self.name, namespace=self.namespace),
            await self.client.find(Deployment, self.name, namespace=self.namespace),
            await self.client.find(Service, self.name, namespace=self.namespace),
            await self.client.find(ConfigMap, self.name, namespace=self.namespace),
        ]
        return not any(found)

    async def _wait(self, look: Callable[[], Awaitable[bool]], what: str, now: Callable[[], str] = lambda: "") -> None:
        with anyio.move_on_after(self.patience.total_seconds()):
            while True:
                if await look():
                    return
                await anyio.sleep(0.05)
        seen = now()
        raise LifeError(f"after {self.patience.total_seconds():g} s, still not: {what}{f' ({seen})' if seen else ''}")

    def check(self, holds: bool, what: str) -> None:  # noqa: FBT001 - reads as a sentence
        if not holds:
            raise LifeError(f"not so: {what}")
