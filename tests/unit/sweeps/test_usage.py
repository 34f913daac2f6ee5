"""What a sweep tells of wrong options, and of operators that end in unusual ways."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import cast

import anyio
import pytest

from opsdk.client import ApiClient
from opsdk.testing.sweeps import SweepError, SweepResult, SweepUsageError, World, sweep
from sweep_gadgets import Gadget, Right, create_and_wait

pytestmark = pytest.mark.anyio


async def test_what_an_operator_ended_with_is_told_without_the_groups_around_it() -> None:
    class Loop:
        def __init__(self, client: ApiClient) -> None:
            self.client = client

        async def run(self) -> None:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.fail)

        async def fail(self) -> None:
            raise ValueError("no such widget")

    with pytest.raises(SweepError, match="ended by itself 6 times: ValueError: no such widget"):
        await sweep(Loop, create_and_wait)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"ignore": "status"}, r"ignore is 'status'; give a list: ignore=\['status'\]"),
        ({"ignore": [""]}, "ignore has ''; give texts that are not empty"),
        ({"ignore": ["???"]}, r"ignore has '\?\?\?'; give a kind \('ConfigMap'\), the beginning of a field"),
        ({"ignore": ["status.a["]}, "ignore has 'status.a"),
        ({"ignore": ["Configmap data"]}, "ignore names Configmap, and the API server has no such kind"),
        ({"faults": ["crash"]}, "'crash' is no kind of fault; there are crash-before, crash-after"),
        ({"faults": []}, r"faults=\[\] breaks nothing"),
        ({"faults": "timeout"}, r"faults is 'timeout'; give a list"),
        ({"sample": 0}, "sample and most_failures have to be at least 1"),
        ({"only": "crash-after:99"}, "crash-after:99 did not happen, so nothing was tried: the run made 2 writes"),
        ({"only": "crash"}, "'crash' is no fault; it has to look like 'crash-after:3'"),
        ({"quiet": timedelta(0)}, r"quiet is datetime\.timedelta\(0\); give a timedelta over zero"),
        ({"rest": 60}, "rest is 60; give a timedelta that is not negative"),
        ({"patience": timedelta(seconds=-1)}, "patience is .*; give a timedelta over zero"),
    ],
)
async def test_options_with_which_nothing_would_be_compared_are_refused(options: dict[str, object], told: str) -> None:
    untyped = cast("Callable[..., Awaitable[SweepResult]]", sweep)
    with pytest.raises(SweepUsageError, match=told):
        await untyped(Right, create_and_wait, install=[Gadget], **options)


async def test_a_scenario_in_which_nothing_happens_is_refused() -> None:
    async def nothing(world: World) -> None:
        await world.settle()

    with pytest.raises(SweepUsageError, match="there is nothing to break: the operator made 0 writes"):
        await sweep(Right, nothing, install=[Gadget])


async def test_pytest_shows_nothing_of_how_a_sweeps_message_came_to_be() -> None:
    with pytest.raises(SweepUsageError) as caught:
        await sweep(Right, create_and_wait, install=[Gadget], ignore=["???"])
    assert [entry.path for entry in caught.traceback.filter(caught)] == [Path(__file__)]
