"""How runnables end."""

from __future__ import annotations

import asyncio
import logging

import anyio
import pytest

from opsdk._groups import raise_bare
from opsdk.errors import LeadershipLostError
from opsdk.manager._failures import raise_failures
from opsdk.manager._group import RunnableGroup

pytestmark = pytest.mark.anyio


class Sleeper:
    """Cannot drain."""

    def __init__(self, cleanup_seconds: float = 0) -> None:
        self.cleanup_seconds = cleanup_seconds
        self.ended = False

    async def run(self) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(self.cleanup_seconds)
            self.ended = True


class Worker:
    """Drains: finishes a job that takes a while."""

    def __init__(self, job_seconds: float) -> None:
        self.job_seconds = job_seconds
        self.draining = anyio.Event()
        self.finished = False

    async def run(self) -> None:
        await self.draining.wait()
        await anyio.sleep(self.job_seconds)
        self.finished = True

    def drain(self) -> None:
        self.draining.set()


class Failing:
    async def run(self) -> None:
        await anyio.sleep(1)
        raise LookupError("no")


class Group:
    def __init__(self) -> None:
        self.failures: list[Exception] = []
        self.group = RunnableGroup("runnables", self.failures.append)
        self.hurry = anyio.Event()

    async def stop(self, grace: float) -> float:
        before = anyio.current_time()
        await self.group.stop(grace, hurry=self.hurry)
        return anyio.current_time() - before


async def test_what_can_drain_finishes_within_the_grace_and_the_rest_is_cancelled_at_once() -> None:
    group, worker, sleeper = Group(), Worker(3), Sleeper()
    group.group.add(worker)
    group.group.add(sleeper)
    async with anyio.create_task_group() as tasks:
        group.group.start(tasks)
        await anyio.sleep(1)
        assert await group.stop(10) == pytest.approx(3, abs=0.01)
    assert worker.finished
    assert sleeper.ended
    assert group.failures == []


async def test_what_does_not_finish_is_cancelled_after_the_grace() -> None:
    group, worker = Group(), Worker(100)
    group.group.add(worker)
    async with anyio.create_task_group() as tasks:
        group.group.start(tasks)
        await anyio.sleep(1)
        assert await group.stop(10) == pytest.approx(10, abs=0.01)
    assert not worker.finished


async def test_hurry_ends_the_grace() -> None:
    group, worker = Group(), Worker(100)
    group.group.add(worker)
    async with anyio.create_task_group() as tasks:
        group.group.start(tasks)
        await anyio.sleep(1)

        async def second_signal() -> None:
            await anyio.sleep(2)
            group.hurry.set()

        tasks.start_soon(second_signal)
        assert await group.stop(10) == pytest.approx(2, abs=0.01)


async def test_without_grace_nothing_drains() -> None:
    group, worker = Group(), Worker(1)
    group.group.add(worker)
    async with anyio.create_task_group() as tasks:
        group.group.start(tasks)
        await anyio.sleep(1)
        assert await group.stop(0) == 0
    assert not worker.draining.is_set()


async def test_a_cleanup_after_cancellation_is_waited_for_and_named_when_it_takes_long(
    caplog: pytest.LogCaptureFixture,
) -> None:
    group, sleeper = Group(), Sleeper(cleanup_seconds=8)
    group.group.add(sleeper)
    with caplog.at_level(logging.WARNING, "opsdk.manager"):
        async with anyio.create_task_group() as tasks:
            group.group.start(tasks)
            await anyio.sleep(1)
            assert await group.stop(1) == pytest.approx(8, abs=0.01)
    assert sleeper.ended
    assert "Sleeper" in caplog.text


async def test_one_that_fails_is_reported_and_the_others_go_on() -> None:
    group, sleeper = Group(), Sleeper()
    group.group.add(Failing())
    group.group.add(sleeper)
    async with anyio.create_task_group() as tasks:
        group.group.start(tasks)
        await anyio.sleep(5)
        assert [str(failure) for failure in group.failures] == ["no"]
        assert not sleeper.ended
        await group.stop(1)


async def test_one_that_comes_later_runs_at_once_and_after_the_stop_never() -> None:
    group, late, too_late = Group(), Sleeper(), Sleeper()
    async with anyio.create_task_group() as tasks:
        group.group.start(tasks)
        group.group.add(late)
        await anyio.sleep(1)
        await group.stop(1)
        assert late.ended
        group.group.add(too_late)
        await anyio.sleep(1)
        assert not too_late.ended


async def test_a_stop_before_the_start_keeps_it_from_starting() -> None:
    group, sleeper = Group(), Sleeper()
    group.group.add(sleeper)
    await group.stop(1)
    async with anyio.create_task_group() as tasks:
        group.group.start(tasks)
        await anyio.sleep(1)
    assert not sleeper.ended


def fail_with_a_cause() -> None:
    raise LookupError("inner") from KeyError("root")


def test_one_cause_is_raised_bare_with_its_own_cause() -> None:
    with pytest.raises(LookupError, match="inner") as inner:
        fail_with_a_cause()
    with pytest.raises(LookupError, match="inner") as caught:
        raise_bare(ExceptionGroup("outer", [ExceptionGroup("middle", [inner.value])]))
    assert caught.value is inner.value
    assert isinstance(caught.value.__cause__, KeyError)


async def test_a_failure_while_everything_is_cancelled_is_raised_bare_too() -> None:
    async def fail_when_cancelled() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise LookupError("on the way out")

    async def work() -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(fail_when_cancelled)
                tasks.start_soon(anyio.sleep_forever)
        except BaseExceptionGroup as group:
            raise_bare(group)

    with pytest.raises(LookupError, match="on the way out"), anyio.move_on_after(1):
        await work()


def test_independent_failures_are_a_group_and_followers_of_a_lost_lease_are_not() -> None:
    raise_failures("several", [])
    with pytest.raises(LookupError):
        raise_failures("several", [LookupError("a")])
    with pytest.raises(ExceptionGroup) as group:
        raise_failures("several", [LookupError("a"), OSError("b")])
    assert [type(error) for error in group.value.exceptions] == [LookupError, OSError]
    with pytest.raises(LeadershipLostError, match="first"):
        raise_failures("several", [LeadershipLostError("l", "i", "first"), LeadershipLostError("l", "i", "second")])


class CancelledByNobody:
    """Awaits what somebody cancelled; trio has no such thing, and another RuntimeError here."""

    async def run(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        await future


async def test_a_runnable_that_ends_by_a_cancellation_that_nobody_asked_for_has_failed() -> None:
    group = Group()
    group.group.add(CancelledByNobody())
    async with anyio.create_task_group() as tasks:
        group.group.start(tasks)
        await anyio.sleep(1)
    (failure,) = group.failures
    assert isinstance(failure, RuntimeError)
