"""What log lines know about the reconcile that they come from."""

from __future__ import annotations

import anyio
import pytest

from opsdk.controller import ReconcileContext, current_reconcile, reconciling
from opsdk.controller._self_trigger import SelfTriggerDetector
from opsdk.protocols import KubeObject
from opsdk.types import Request

pytestmark = pytest.mark.anyio


def context(document: bytes | None = None) -> ReconcileContext:
    return ReconcileContext(
        controller="widget",
        kind="Widget",
        namespace="",
        name="w",
        reconcile_id="1",
        generation=3,
        document=lambda: document,
    )


def test_fields_are_texts_and_the_state_comes_from_the_cache() -> None:
    assert context(b'{"status":{"state":"running"}}').fields() == {
        "controller": "widget",
        "kind": "Widget",
        "namespace": "",
        "name": "w",
        "uid": "",
        "generation": "3",
        "reconcile_id": "1",
        "state": "running",
    }


@pytest.mark.parametrize("document", [None, b"{}", b'{"status":{"state":7}}', b'{"status":null}', b"rubbish"])
def test_without_a_state_there_is_none(document: bytes | None) -> None:
    assert context(document).state == ""


async def test_tasks_know_the_reconcile_that_started_them() -> None:
    seen: list[ReconcileContext | None] = []

    async def task() -> None:
        seen.append(current_reconcile())

    this = context()
    with reconciling(this):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(task)
    assert seen == [this]
    assert current_reconcile() is None


async def test_q11_the_self_trigger_detector_remembers_no_object_that_rests() -> None:
    detector = SelfTriggerDetector[KubeObject]("c")
    for number in range(1_000):
        request = Request(f"w{number}")
        detector.started(request)
        detector.ended(request, anyio.current_time())
        await anyio.sleep(0.1)
    assert len(detector) < 20
