"""Shows the operator at work, on an API server in memory: `python demo.py`, or `python demo.py --serve` to look around.

What runs is what runs in a cluster: a manager with leader election, watching the API server over HTTP.
"""

# ruff: noqa: E402 - the signal comes before the imports that take long

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys

signal.signal(
    signal.SIGINT, lambda _signal, _frame: os._exit(130)
)  # Ctrl-C during the imports, too, ends without a traceback

import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import cast

import anyio
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment

from life import FIRST_IMAGE, SECOND_IMAGE, Life, LifeError
from opsdk import Manager, ManagerOptions
from opsdk.client import ApiClient, ClientConfig
from opsdk.testing import ApiServer
from opsdk.testing.apiserver.actors import DeploymentActor
from timeline import Timeline
from webapp import Phase, WebApp, WebAppSpec, image_of, register

PATIENCE_SECONDS = 30.0
PACE = timedelta(milliseconds=600)  # for the reader; the operator needs none of it


class Pods:
    """Stands in for a cluster's nodes: pods of an image come up, or they do not. A `Workload`."""

    def __init__(self, client: ApiClient) -> None:
        self.client = client
        # The images of the story come up when it says so; any other one by itself, as in a cluster.
        self.actor = DeploymentActor(client, failing_images=(FIRST_IMAGE, SECOND_IMAGE))

    async def become_available(self, namespace: str, name: str) -> None:
        self.actor.heal(await self._image(namespace, name))

    async def break_down(self, namespace: str, name: str) -> None:
        self.actor.fail(await self._image(namespace, name))

    async def _image(self, namespace: str, name: str) -> str:
        return image_of(await self.client.get(Deployment, name, namespace=namespace))


@asynccontextmanager
async def operator(kubeconfig: Path) -> AsyncGenerator[Manager]:
    """The operator, in the background."""
    options = ManagerOptions(
        leader_election_id="webapps.apps.example.com",
        leader_election_namespace="default",
        metrics_bind_address="127.0.0.1:0",
        probe_bind_address="127.0.0.1:0",
    )
    async with ApiClient.from_config(ClientConfig.from_files([kubeconfig])) as client:
        manager = Manager(options, client=client)
        register(manager)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.start)
            yield manager
            manager.stop()


async def demo(*, serve: bool) -> None:
    """From an empty API server through the whole life of a webapp.

    Raises:
        LifeError: It did not go as it should.
    """
    timeline = Timeline()
    with tempfile.TemporaryDirectory(prefix="opsdk-demo-") as folder:
        kubeconfig = Path(folder, "kubeconfig")
        async with ApiServer() as server, server.serve() as served:
            await anyio.Path(kubeconfig).write_text(served.kubeconfig(), encoding="utf-8")
            await server.install(WebApp)
            timeline.line(f"an API server in memory listens at {served.url}")
            async with (
                ApiClient.from_config(ClientConfig.from_files([kubeconfig])) as client,
                operator(kubeconfig) as manager,
                anyio.create_task_group() as tasks,
            ):
                pods = Pods(client)
                tasks.start_soon(pods.actor.run)
                tasks.start_soon(timeline.watch, client, "default")
                with anyio.fail_after(PATIENCE_SECONDS):
                    await leading(manager)
                    timeline.line("the operator leads")
                    await Life(client, pods, tell=timeline.step, pace=PACE).whole()
                await anyio.sleep(0.1)  # for the last lines
                if serve:
                    await look_around(timeline, client, pods, kubeconfig)
                tasks.cancel_scope.cancel()
    print()
    timeline.line(timeline.style("✓ from creation to deletion, everything as it should be", "bold", "green"))


async def leading(manager: Manager) -> None:
    """Wait until the manager has the Lease."""
    while True:
        if manager.is_leader:
            return
        await anyio.sleep(0.02)


async def look_around(timeline: Timeline, client: ApiClient, pods: Pods, kubeconfig: Path) -> None:
    """Leave everything running, with a webapp to look at, until Ctrl-C."""
    timeline.step("a webapp to look at")
    await client.create(
        WebApp(
            metadata=ObjectMeta(name="shop", namespace="default"),
            spec=WebAppSpec(image=FIRST_IMAGE, replicas=2, config={"motd": "welcome"}),
        )
    )
    life = Life(client, pods, tell=timeline.step)
    await life.reach(Phase.INITIALISING)
    await life.serve()
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        print(f"\nLook around (Ctrl-C ends it):\n\n    kubectl --kubeconfig {kubeconfig} get webapps\n", flush=True)
        async for _ in signals:
            return


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", action="store_true", help="leave the API server and a webapp up afterwards")
    serve = parser.parse_args().serve or os.environ.get("SERVE") == "1"
    logging.basicConfig(level=logging.WARNING, format="          %(levelname)s %(name)s: %(message)s")
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        anyio.run(lambda: demo(serve=serve))
    except KeyboardInterrupt:
        return 0
    except BaseExceptionGroup as group:
        print(f"\nthe demo failed: {_first(group)}", file=sys.stderr)
        return 1
    except (LifeError, TimeoutError, OSError) as error:
        print(f"\nthe demo failed: {error}", file=sys.stderr)
        return 1
    return 0


def _first(error: BaseException) -> BaseException:
    if not isinstance(error, BaseExceptionGroup):
        return error
    return _first(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])


if __name__ == "__main__":
    sys.exit(main())
