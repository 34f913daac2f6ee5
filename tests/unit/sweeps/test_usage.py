"""What a sweep tells of wrong options, and of operators that end in unusual ways."""

from __future__ import annotations

import anyio
import pytest

from opsdk.client import ApiClient
from opsdk.testing.sweeps import SweepError, sweep
from sweep_gadgets import create_and_wait

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
