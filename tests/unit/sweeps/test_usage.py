"""What a sweep tells of wrong options, and of operators that end in unusual ways."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import cast

import anyio
import pytest

from opsdk.client import ApiClient
from opsdk.testing.sweeps import SweepError, SweepResult, SweepUsageError, sweep
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
        ({"quiet": timedelta(0)}, r"quiet is datetime\.timedelta\(0\); give a timedelta over zero"),
        ({"rest": 60}, "rest is 60; give a timedelta that is not negative"),
        ({"patience": timedelta(seconds=-1)}, "patience is .*; give a timedelta over zero"),
    ],
)
async def test_options_with_which_nothing_would_be_compared_are_refused(options: dict[str, object], told: str) -> None:
    untyped = cast("Callable[..., Awaitable[SweepResult]]", sweep)
    with pytest.raises(SweepUsageError, match=told):
        await untyped(Right, create_and_wait, install=[Gadget], **options)
