"""The client against plain lightkube, on a real kube-apiserver over TLS.

Small reads run in this process, turn by turn; lists run each in a process of its own, for their peak of memory.
CPU is this process's (or the child's) alone, so the server and other people's programs do not count.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import anyio
import lightkube
from cluster import NAMESPACE, api_server, fill
from figures import Figure, figure
from lightkube.config.kubeconfig import KubeConfig
from lightkube.resources.core_v1 import ConfigMap

from opsdk.client import ApiClient, ClientConfig, HttpxTransport

__all__ = ["measure"]

_SMALL_OBJECTS: Final = 16
_AT_ONCE: Final = 16
_OTHER: Final = "lightkube"


def measure(*, gets: int = 2_000, deployments: int = 10_000, rounds: int = 3) -> list[Figure]:
    """All comparisons of the client.

    Args:
        gets: How many small reads make a round.
        deployments: How many Deployments are listed.
        rounds: How often each comparison is made.
    """
    with api_server() as kubeconfig:
        anyio.run(_fill, kubeconfig, deployments)
        small = anyio.run(_small_reads, kubeconfig, gets, rounds)
        lists = [(_list("opsdk", kubeconfig), _list(_OTHER, kubeconfig)) for _ in range(rounds)]
    count = f"typed list of {deployments:,} Deployments"
    return [
        figure(
            f"{gets:,} small GETs, {_AT_ONCE} at once: CPU each",
            "ms",
            [(1000 * lean / gets, 1000 * theirs / gets) for lean, _, theirs in small],
            other=_OTHER,
            goal=0.4,
        ),
        figure(
            "the same over HttpxTransport",
            "ms",
            [(1000 * httpx / gets, 1000 * theirs / gets) for _, httpx, theirs in small],
            other=_OTHER,
        ),
        figure(f"{count}: CPU", "s", [(a["cpu"], b["cpu"]) for a, b in lists], other=_OTHER, goal=0.8),
        figure(f"{count}: time", "s", [(a["wall"], b["wall"]) for a, b in lists], other=_OTHER, goal=0.8),
        figure(f"{count}: peak memory", "MB", [(a["peak"], b["peak"]) for a, b in lists], other=_OTHER, goal=0.8),
    ]


async def _fill(kubeconfig: Path, deployments: int) -> None:
    await fill(kubeconfig, config_maps=_SMALL_OBJECTS, deployments=deployments)


Get = Callable[[str], Awaitable[object]]


async def _small_reads(kubeconfig: Path, gets: int, rounds: int) -> list[tuple[float, float, float]]:
    """CPU seconds of each round: lean, httpx2, lightkube."""
    config = ClientConfig.from_files([kubeconfig])
    plain = lightkube.AsyncClient(config=KubeConfig.from_file(kubeconfig).get(), namespace=NAMESPACE)
    async with ApiClient.from_config(config) as lean, ApiClient(HttpxTransport(config)) as httpx:
        ways: list[Get] = [
            lambda name: lean.get(ConfigMap, name, namespace=NAMESPACE),
            lambda name: httpx.get(ConfigMap, name, namespace=NAMESPACE),
            lambda name: plain.get(ConfigMap, name),
        ]
        for way in ways:  # connections, imports and codecs are not what is measured
            await _cpu_seconds(way, 4 * _AT_ONCE)
        found: list[tuple[float, float, float]] = []
        for _ in range(rounds):
            first, second, third = [await _cpu_seconds(way, gets) for way in ways]
            found.append((first, second, third))
    await plain.close()
    return found


async def _cpu_seconds(get: Get, gets: int) -> float:
    left = list(range(gets))

    async def worker() -> None:
        while left:
            await get(f"small-{left.pop() % _SMALL_OBJECTS:02}")

    started = time.process_time()
    async with anyio.create_task_group() as tasks:
        for _ in range(_AT_ONCE):
            tasks.start_soon(worker)
    return time.process_time() - started


def _list(who: str, kubeconfig: Path) -> dict[str, float]:
    program = Path(__file__).parent / "peers" / f"list_{who}.py"
    command = [sys.executable, str(program), str(kubeconfig), NAMESPACE]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)  # noqa: S603 - our own program
    found: dict[str, float] = json.loads(done.stdout)
    return found
