"""What single operations cost, against a fixed piece of work in the same process.

Times differ between machines and hours; the ratio of an operation to a reference that is measured right before it,
again and again, hardly does. `micro_limits.json` holds a limit for each: the ratio as measured, with room for noise.
A change that makes an operation half again as expensive is found; one of a tenth is not.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Final

import anyio
import anyio.lowlevel
from figures import Figure, figure
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap

sys.path.insert(0, str(Path(__file__).parent / "peers"))

from opsdk_widgets import Converging, Widget, WidgetSpec

from opsdk.cache import CachedClient, Informers, Store
from opsdk.cache.header import read_document
from opsdk.patches import overlay_difference
from opsdk.protocols import Snapshot
from opsdk.testing import ApiServer, Simulator
from opsdk.types import Json, Request
from opsdk.workqueue import WorkQueue

__all__ = ["measure"]

_LIMITS: Final = Path(__file__).parent / "micro_limits.json"
_ROUNDS: Final = 40
_NAMESPACE: Final = "default"

Operation = Callable[[], Awaitable[object]]


def measure(*, rounds: int = _ROUNDS) -> list[Figure]:
    """All operations.

    Args:
        rounds: How often each is measured.
    """
    limits: dict[str, float] = json.loads(_LIMITS.read_text(encoding="utf-8"))
    found = anyio.run(_measure, rounds)
    return [
        figure(
            name,
            "µs",
            [(1e6 * ours, 1e6 * reference) for ours, reference in costs],
            other="reference",
            goal=limits.get(name),
        )
        for name, costs in found.items()
    ]


async def _measure(rounds: int) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {}
    async with ApiServer() as server, anyio.create_task_group() as tasks:
        await server.install(Widget)
        informers = Informers(server.client())
        client = CachedClient(server.client(), informers)
        informers.informer(Widget)
        informers.informer(ConfigMap)
        tasks.start_soon(informers.run)
        await informers.wait_synced()
        operations: dict[str, tuple[int, Operation]] = {
            "queue: add and lease": (200, _queue(200)),
            "store: apply an event": (100, _store(100)),
            "header: scan a document": (200, _header(200)),
            "status: difference and patch": (50, _status(50)),
            "children: a pass with a difference": (10, await _child(client, 10, differs=True)),
            "children: a pass at rest": (10, await _child(client, 10, differs=False)),
        }
        for name, (count, operation) in operations.items():
            found[name] = await _rounds(operation, count, rounds)
        tasks.cancel_scope.cancel()
    async with Simulator(Converging) as simulator:
        await simulator.create(_widget("simulated"))
        await simulator.settle()
        simulator.clear()

        async def reconcile() -> None:
            for _ in range(5):
                await simulator.reconcile()

        found["simulator: reconcile at rest"] = await _rounds(reconcile, 5, rounds)
    return found


async def _rounds(operation: Operation, count: int, rounds: int) -> list[tuple[float, float]]:
    """Seconds of CPU of one operation and of the reference, round by round; the first ones warm up."""
    costs: list[tuple[float, float]] = []
    for _ in range(rounds + 3):
        reference = median(_cpu(_reference) for _ in range(3)) / _REPEATED
        started = time.process_time()
        await operation()
        costs.append(((time.process_time() - started) / count, reference))
    return costs[3:]


def _cpu(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def _reference() -> None:
    """A fixed mix of what operators do: JSON, dictionaries, calls."""
    for _ in range(_REPEATED):
        document = json.loads(_REFERENCE)
        names = sorted(f"{key}={value}" for key, value in document["data"].items())
        json.dumps({**document, "names": names})


_REPEATED: Final = 20
_REFERENCE: Final = json.dumps({"metadata": {"name": "x"}, "data": {f"key-{n}": "value" * 4 for n in range(30)}})


def _document(number: int, version: int) -> bytes:
    metadata: dict[str, Json] = {
        "name": f"settings-{number:05}",
        "namespace": _NAMESPACE,
        "uid": f"9f1c2f0e-0000-4000-8000-{number:012}",
        "resourceVersion": str(version),
        "labels": {"app": "web", "team": f"t{number % 10}"},
        "managedFields": [{"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:data": {"f:a.conf": {}}}}],
    }
    document: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a.conf": "x" * 1500}}
    return json.dumps(document, separators=(",", ":")).encode()


def _queue(count: int) -> Operation:
    queue = WorkQueue[Request]("micro")
    requests = [Request(f"widget-{number}", _NAMESPACE) for number in range(count)]

    async def run() -> None:
        for request in requests:
            queue.add(request)
        for _ in requests:
            async with queue.lease():
                pass

    return run


def _store(count: int) -> Operation:
    store = Store(ConfigMap, keep_manager="opsdk")
    documents = [[_document(number, version) for number in range(count)] for version in (1, 2)]

    async def run() -> None:
        # Turn by turn; as from a list, which may show older versions.
        documents.reverse()
        for document in documents[0]:
            cached = store.read(document)
            assert cached is not None
            assert store.put(cached, listed=True)

    return run


def _header(count: int) -> Operation:
    raw = _document(1, 1)

    async def run() -> None:
        for _ in range(count):
            read_document(raw, kind="ConfigMap", keep_manager="opsdk")

    return run


def _status(count: int) -> Operation:
    conditions: list[Json] = [
        {"type": name, "status": "True", "reason": "Fine", "message": "all is well", "observedGeneration": 1}
        for name in ("Ready", "Progressing", "Degraded")
    ]
    before: dict[str, Json] = {"status": {"observedGeneration": 1, "conditions": conditions}}
    changed = [{**condition, "observedGeneration": 2} for condition in conditions if isinstance(condition, dict)]
    after: dict[str, Json] = {"status": {"observedGeneration": 2, "conditions": list[Json](changed)}}
    document: dict[str, Json] = json.loads(json.dumps(before))  # as the server has it

    async def run() -> None:
        for _ in range(count):
            assert overlay_difference(document, before, after)

    return run


async def _child(client: CachedClient, count: int, *, differs: bool) -> Operation:
    converging = Converging(client)
    name = "differs" if differs else "rests"
    stored = await client.create(_widget(name))
    await converging.reconcile(Request(name, _NAMESPACE))
    base: Snapshot[Widget] = client.snapshot(stored)
    assert base.typed
    widget = await client.get(Widget, name, namespace=_NAMESPACE)
    if differs:
        widget.spec.size += 1

    async def run() -> None:
        for _ in range(count):
            plan = await converging.children.plan(widget)
            assert bool(plan.changes) == differs

    return run


def _widget(name: str) -> Widget:
    return Widget(metadata=ObjectMeta(name=name, namespace=_NAMESPACE), spec=WidgetSpec(size=1, note="a widget"))
