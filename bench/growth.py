"""How cost grows with the number of objects: 1,000, 10,000 and 100,000 Widgets with a child each, in memory.

Each size runs in a process of its own. The in-memory API server runs in it, too; its part of the lists is measured
alone and taken off, and memory is what the caches add to a process that has a full server.
"""

from __future__ import annotations

import gc
import json
import random
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Final

import anyio
import anyio.lowlevel
from curves import Curve, curves
from figures import Figure, figure
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap

sys.path.insert(0, str(Path(__file__).parent / "peers"))

from opsdk_widgets import Converging, Widget, WidgetSpec

from opsdk.cache import CachedClient, Informer, Informers
from opsdk.client import ApiClient
from opsdk.models import owner_reference_to, resource_of
from opsdk.ownership import OWNER_SET_LABEL, OWNER_UID_LABEL
from opsdk.testing import ApiServer
from opsdk.types import MergePatch, Request

__all__ = ["details", "measure"]

_SIZES: Final = (1_000, 10_000, 100_000)
_NAMESPACE: Final = "default"
_RESULTS: Final = Path(__file__).parent / "results" / "growth.json"
_PICTURE: Final = Path(__file__).parents[1] / "docs" / "growth.svg"
_TRIES: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What a number of objects costs.

    Args:
        objects: How many Widgets; there are as many children.
        sync: CPU seconds until both caches are complete, without the server's part.
        server: The server's part: the same lists, read and let go.
        memory: Megabytes that they add.
        rest: CPU milliseconds of a reconcile that finds everything as it should be.
        change: CPU milliseconds of a reconcile that changes the child and the status.
        event: CPU microseconds from a write to its event in the cache, the server's part included.
    """

    objects: int
    sync: float
    server: float
    memory: float
    rest: float
    change: float
    event: float


def measure() -> list[Figure]:
    """Ten times as many objects against each number; the cost of one object, or of one reconcile, must not grow."""
    found = [_in_a_process(objects) for objects in _SIZES]
    _RESULTS.parent.mkdir(exist_ok=True)
    _RESULTS.write_text(json.dumps([asdict(size) for size in found], indent=1) + "\n", encoding="utf-8")
    _PICTURE.write_text(_picture(found), encoding="utf-8")
    figures: list[Figure] = []
    for small, large in pairwise(found):
        other = f"{small.objects:,} objects"
        many = f"{large.objects:,}"
        per = [(1e6 * large.sync / large.objects, 1e6 * small.sync / small.objects)]
        figures.append(figure(f"{many}: sync, CPU per object", "µs", per, other=other, goal=1.3))
        kilobytes = [(1000 * large.memory / large.objects, 1000 * small.memory / small.objects)]
        figures.append(figure(f"{many}: memory per object", "KB", kilobytes, other=other, goal=1.3))
        figures.append(figure(f"{many}: reconcile at rest", "ms", [(large.rest, small.rest)], other=other, goal=1.5))
        figures.append(figure(f"{many}: reconcile with changes", "ms", [(large.change, small.change)], other=other))
        figures.append(figure(f"{many}: an event", "µs", [(large.event, small.event)], other=other))
    return figures


def details() -> str:
    """The last measurement as a Markdown table."""
    found = [Size(**one) for one in json.loads(_RESULTS.read_text(encoding="utf-8"))]
    rows = [
        f"| {one.objects:,} | {one.sync:.2f} | {one.server:.2f} | {one.memory:.0f} "
        f"| {one.rest:.2f} | {one.change:.2f} | {one.event:.0f} |"
        for one in found
    ]
    head = "| Widgets with a child | sync: CPU s | server: s | caches: MB | at rest: ms | changes: ms | event: µs |"
    return "\n".join([head, "|---|---|---|---|---|---|---|", *rows])


def _picture(found: list[Size]) -> str:
    sizes = [float(size.objects) for size in found]
    return curves(
        [
            Curve(title="sync, CPU s", x=sizes, y=[size.sync for size in found]),
            Curve(title="caches, MB", x=sizes, y=[size.memory for size in found]),
            Curve(title="reconcile at rest, ms", x=sizes, y=[size.rest for size in found]),
            Curve(title="reconcile with changes, ms", x=sizes, y=[size.change for size in found]),
        ]
    )


def _in_a_process(objects: int) -> Size:
    command = [sys.executable, __file__, str(objects)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)  # noqa: S603 - our own program
    return Size(**json.loads(done.stdout))


async def _measure(objects: int) -> Size:
    async with ApiServer() as server, anyio.create_task_group() as tasks:
        await server.install(Widget)
        await _fill(server, objects)
        gc.collect()
        gc.freeze()  # the server's objects are not to be looked through while the caches are measured
        listing = await _cpu_of_lists(server.client())
        before = _resident_megabytes()
        informers = Informers(server.client())
        client = CachedClient(server.client(), informers)
        widgets = informers.informer(Widget)
        informers.informer(ConfigMap)
        started = time.process_time()
        tasks.start_soon(informers.run)
        await informers.wait_synced()
        sync = time.process_time() - started - listing
        gc.collect()
        memory = _resident_megabytes() - before
        converging = Converging(client)
        await converging.reconcile(Request(_name(0), _NAMESPACE))  # makes indexes
        names = random.Random(1).sample(range(objects), _TRIES)  # noqa: S311 - not a secret
        for number in names:
            await converging.reconcile(Request(_name(number), _NAMESPACE))  # writes the first status
        rest = [await _cpu_of_reconcile(converging, number) for number in names]
        change: list[float] = []
        event: list[float] = []
        for number in names:
            started = time.process_time()
            patch = MergePatch({"spec": {"size": number + 1_000_000}})
            stored = await server.client().patch(Widget, _name(number), patch, namespace=_NAMESPACE)
            await _seen(widgets, Request(_name(number), _NAMESPACE), stored.metadata.resourceVersion)
            event.append(time.process_time() - started)
            change.append(await _cpu_of_reconcile(converging, number))
        tasks.cancel_scope.cancel()
    return Size(
        objects=objects,
        sync=sync,
        server=listing,
        memory=memory,
        rest=1e3 * median(rest),
        change=1e3 * median(change),
        event=1e6 * median(event),
    )


async def _cpu_of_lists(client: ApiClient) -> float:
    """What the server needs to be listed as informers do it."""
    started = time.process_time()
    for kind in (Widget, ConfigMap):
        token: str | None = None
        while token != "":
            page = await client.raw.list_page(resource_of(kind), limit=500, continue_token=token)
            token = page.continue_token
    return time.process_time() - started


async def _seen(informer: Informer[Widget], request: Request, version: str | None) -> None:
    """Wait until the cache has that version."""
    while (cached := informer.store.cached(request)) is None or cached.header.resource_version != version:
        await anyio.lowlevel.checkpoint()


async def _cpu_of_reconcile(converging: Converging, number: int) -> float:
    started = time.process_time()
    await converging.reconcile(Request(_name(number), _NAMESPACE))
    return time.process_time() - started


async def _fill(server: ApiServer, objects: int) -> None:
    """Widgets, and children as a `ResourceOwner` would have made them."""
    client = server.client()
    owner_set = Converging(client).children.name
    for number in range(objects):
        name = ObjectMeta(name=_name(number), namespace=_NAMESPACE)
        widget = await client.create(Widget(metadata=name, spec=WidgetSpec(size=number, note="one of many")))
        metadata = ObjectMeta(
            name=_name(number),
            namespace=_NAMESPACE,
            labels={"app": "bench-child", OWNER_UID_LABEL: widget.metadata.uid or "", OWNER_SET_LABEL: owner_set},
            ownerReferences=[owner_reference_to(widget)],
        )
        await client.create(ConfigMap(metadata=metadata, data={"size": str(number), "note": "one of many"}))


def _name(number: int) -> str:
    return f"widget-{number:06}"


def _resident_megabytes() -> float:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    print(json.dumps(asdict(anyio.run(_measure, int(sys.argv[1])))))
