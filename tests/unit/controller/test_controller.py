"""From events to reconciles, and what becomes of each outcome, on the in-memory API server."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise
from typing import Any, cast

import anyio
import anyio.to_thread
import msgspec
import pytest
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap

from opsdk.cache import CachedClient, Informers
from opsdk.client import ApiClient
from opsdk.controller import (
    Controller,
    ControllerBuilder,
    ReconcileOutcome,
    WorkInProgress,
    current_reconcile,
    generation_changed,
)
from opsdk.controller._malformed import MalformedObjects
from opsdk.errors import (
    ConflictError,
    DecodeError,
    LeadershipLostError,
    ManagerError,
    NotFoundError,
    RetryError,
    TerminalError,
)
from opsdk.models import codec_of
from opsdk.protocols import Runnable
from opsdk.testing import ApiServer
from opsdk.types import Request, Result
from opsdk.workqueue import ExponentialBackoff, Priority

pytestmark = pytest.mark.anyio

A = Request("a", "default")


class Told:
    """Metrics, as a list of what was said."""

    def __init__(self) -> None:
        self.outcomes: list[ReconcileOutcome] = []
        self.running = 0
        self.most_running = 0
        self.max_workers = 0
        self.self_triggers = 0
        self.retries = 0
        self.queues: list[WorkInProgress] = []

    def reconcile(self, controller: str, /) -> Told:
        return self

    def workqueue(self, name: str, /) -> Told:
        return self

    def watch_workqueue(self, queue: WorkInProgress, /) -> None:
        self.queues.append(queue)

    def workers(self, count: int, /) -> None:
        self.max_workers = count

    def started(self) -> None:
        self.running += 1
        self.most_running = max(self.most_running, self.running)

    def finished(self, outcome: ReconcileOutcome, seconds: float, /) -> None:
        self.running -= 1
        self.outcomes.append(outcome)

    def self_triggered(self) -> None:
        self.self_triggers += 1

    def depth(self, ready: int, /) -> None: ...
    def added(self) -> None: ...
    def leased(self, waited_seconds: float, /) -> None: ...
    def released(self, worked_seconds: float, /) -> None: ...
    def retried(self) -> None:
        self.retries += 1


class Host:
    """What a manager is to controllers, and no more."""

    def __init__(self, client: ApiClient, namespaces: Sequence[str] = ()) -> None:
        self.client = client
        self.informers = Informers(client)
        self.metrics = Told()
        self.namespaces = namespaces
        self.added: list[Runnable] = []

    def add(self, runnable: Runnable, /) -> None:
        self.added.append(runnable)

    def controller(self) -> ControllerBuilder[ConfigMap]:
        return ControllerBuilder(self, ConfigMap)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.informers.run)
            for runnable in self.added:
                tasks.start_soon(runnable.run)
            yield
            tasks.cancel_scope.cancel()


def config(name: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace="default"), data=data)


def data_of(found: ConfigMap) -> dict[str, str]:
    # By way of the document: lightkube declares a bare dict.
    return msgspec.json.decode(codec_of(ConfigMap).encode(found), type=Document).data


class Document(msgspec.Struct):
    data: dict[str, str] = {}


@asynccontextmanager
async def hosting(namespaces: Sequence[str] = ()) -> AsyncGenerator[Host]:
    async with ApiServer() as server:
        yield Host(server.client(), namespaces)


class Script:
    """A reconciler that does, on each call, the next thing it was told to; then succeeds."""

    def __init__(self, *steps: Result | Exception | Callable[[], Awaitable[Result]]) -> None:
        self.steps = list(steps)
        self.calls: list[tuple[float, Request]] = []

    async def reconcile(self, request: Request, /) -> Result:
        self.calls.append((anyio.current_time(), request))
        if not self.steps:
            return Result()
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return step if isinstance(step, Result) else await step()

    @property
    def waits(self) -> list[float]:
        times = [time for time, _ in self.calls]
        return [round(after - before, 3) for before, after in pairwise(times)]


async def played(*steps: Result | Exception | Callable[[], Awaitable[Result]]) -> tuple[Script, Host]:
    """What a reconciler that follows a script comes to in an hour, with one object."""
    script = Script(*steps)
    async with hosting() as host:
        host.controller().options(rate_limit=ExponentialBackoff[Request](jitter=0)).complete(script)
        await host.client.create(config("a"))
        async with host.running():
            await anyio.sleep(3600)
    return script, host


async def test_what_is_there_at_the_start_and_what_comes_later_is_reconciled() -> None:
    script = Script()
    async with hosting() as host:
        host.controller().complete(script)
        await host.client.create(config("a"))
        async with host.running():
            await anyio.sleep(1)
            assert [request for _, request in script.calls] == [A]
            await host.client.create(config("b"))
            await anyio.sleep(1)
            await host.client.delete(ConfigMap, "a", namespace="default")
            await anyio.sleep(1)
    assert [request.name for _, request in script.calls] == ["a", "b", "a"]
    assert host.metrics.outcomes == ["success"] * 3
    assert host.metrics.running == 0


async def test_success_asks_for_nothing() -> None:
    script, host = await played(Result())
    assert len(script.calls) == 1
    assert host.metrics.retries == 0


async def test_requeue_after_comes_back_then() -> None:
    script, host = await played(Result(timedelta(seconds=30)))
    assert script.waits == [30]
    assert host.metrics.outcomes == ["requeue_after", "success"]


async def test_requeue_zero_comes_back_at_once() -> None:
    script, host = await played(Result(timedelta(0)), Result(timedelta(0)))
    assert script.waits == [0, 0]
    assert host.metrics.outcomes == ["requeue", "requeue", "success"]


async def test_an_object_that_always_comes_back_at_once_does_not_starve_others() -> None:
    seen: Counter[str] = Counter()

    async def reconcile(request: Request) -> Result:
        seen[request.name] += 1
        if seen.total() > 1_000:
            await anyio.sleep_forever()
        return Result(timedelta(0)) if request.name == "busy" else Result()

    async with hosting() as host:
        host.controller().complete(reconcile)
        for name in ("busy", "calm", "quiet"):
            await host.client.create(config(name))
        async with host.running():
            await anyio.sleep(1)
    assert seen["calm"] == seen["quiet"] == 1


async def test_q03_failures_back_off_and_a_success_forgets() -> None:
    boom = NotFoundError(404, reason="NotFound")
    script, host = await played(boom, boom, boom, Result(timedelta(seconds=1)), boom)
    assert script.waits == [0.005, 0.01, 0.02, 1, 0.005]
    assert host.metrics.outcomes == ["error", "error", "error", "requeue_after", "error", "success"]
    assert host.metrics.retries == 4


async def test_a_retry_error_replaces_the_backoff_once() -> None:
    script, host = await played(OSError("a"), RetryError("later", requeue_after=timedelta(seconds=7)), OSError("b"))
    assert script.waits == [0.005, 7, 0.01]
    assert host.metrics.outcomes == ["error", "error", "error", "success"]


async def test_a_terminal_error_is_not_retried_until_the_object_changes() -> None:
    script = Script(TerminalError("no"))
    async with hosting() as host:
        host.controller().complete(script)
        created = await host.client.create(config("a"))
        async with host.running():
            await anyio.sleep(3600)
            assert len(script.calls) == 1
            created.data = {"x": "y"}
            await host.client.replace(created)
            await anyio.sleep(1)
    assert host.metrics.outcomes == ["terminal_error", "success"]


async def test_b8_an_object_that_does_not_fit_its_model_waits_for_its_change_and_another_object_does_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, host = await played(DecodeError("bad", kind="ConfigMap", namespace="default", name="a"))
    assert host.metrics.outcomes == ["terminal_error"]
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "no retry until the object changes: ConfigMap default/a: bad" in record.getMessage()
    _, host = await played(DecodeError("bad", kind="Secret", namespace="default", name="a"))
    assert host.metrics.outcomes == ["error", "success"]


def malformed(name: str) -> DecodeError:
    return DecodeError("bad", kind="ConfigMap", namespace="default", name=name)


async def test_b8_whatever_changes_a_malformed_object_wakes_it_even_what_a_predicate_keeps_out() -> None:
    """A status that does not fit is mended by a change of status, which `generation_changed()` keeps out."""
    script = Script(malformed("a"))
    async with hosting() as host:
        host.controller().predicates(generation_changed()).complete(script)
        created = await host.client.create(config("a"))  # a ConfigMap has no generation
        async with host.running():
            await anyio.sleep(3600)
            assert host.metrics.outcomes == ["terminal_error"]
            created.data = {"x": "mended"}
            created = await host.client.replace(created)
            await anyio.sleep(1)
            assert host.metrics.outcomes == ["terminal_error", "success"]
            created.data = {"x": "as good as before"}
            await host.client.replace(created)
            await anyio.sleep(3600)
    assert host.metrics.outcomes == ["terminal_error", "success"], "from then on the predicate counts"


async def test_b8_a_change_that_comes_while_the_object_is_found_malformed_is_not_lost() -> None:
    async def change_and_fail() -> Result:
        found = await host.client.get(ConfigMap, "a", namespace="default")
        found.data = {"x": "mended"}
        await host.client.replace(found)
        await anyio.sleep(1)
        raise malformed("a")

    script = Script(change_and_fail)
    async with hosting() as host:
        host.controller().predicates(generation_changed()).complete(script)
        await host.client.create(config("a"))
        async with host.running():
            await anyio.sleep(3600)
    assert host.metrics.outcomes == ["terminal_error", "success"]


async def test_b8_q11_a_malformed_object_that_goes_is_forgotten() -> None:
    async def cannot_read(request: Request) -> Result:
        if await host.client.find(ConfigMap, request.name, namespace=request.namespace):
            raise malformed(request.name)
        return Result()

    async with hosting() as host:
        controller = host.controller().predicates(generation_changed()).complete(cannot_read)
        remembered = cast("MalformedObjects", vars(controller)["_malformed"])
        async with host.running():
            for number in range(20):
                await host.client.create(config(f"c{number}"))
            await anyio.sleep(10)
            assert len(remembered) == 20
            for number in range(20):
                await host.client.delete(ConfigMap, f"c{number}", namespace="default")
            await anyio.sleep(10)
    assert len(remembered) == 0


async def test_q10_an_event_before_a_requeue_runs_now_and_only_what_that_reconcile_asks_for_stands_afterwards() -> None:
    """The timer of before is gone: what the newer reconcile did not ask for does not come."""
    hour = timedelta(hours=1)
    script = Script(Result(requeue_after=hour), Result(requeue_after=2 * hour), Result())
    async with hosting() as host:
        host.controller().complete(script)
        created = await host.client.create(config("a"))
        async with host.running():
            await anyio.sleep(1800)
            created.data = {"x": "y"}
            await host.client.replace(created)
            await anyio.sleep(6 * 3600)
    assert [round(wait, -1) for wait in script.waits] == [1800, 7200]


async def test_q08_a_new_object_goes_before_those_that_were_there_at_the_start() -> None:
    seen: list[str] = []

    async def reconcile(request: Request) -> Result:
        seen.append(request.name)
        await anyio.sleep(1)
        return Result()

    async with hosting() as host:
        host.controller().complete(reconcile)
        for number in range(200):
            await host.client.create(config(f"old-{number}"))
        async with host.running():
            await anyio.sleep(10.5)
            await host.client.create(config("new"))
            await anyio.sleep(3)
    assert "new" in seen[10:13]


async def test_a_group_is_terminal_only_if_all_of_it_is() -> None:
    terminal = ExceptionGroup("two", [TerminalError("a"), ExceptionGroup("one", [TerminalError("b")])])
    script, host = await played(terminal)
    assert host.metrics.outcomes == ["terminal_error"]
    mixed = ExceptionGroup("two", [TerminalError("a"), OSError("b")])
    script, host = await played(mixed)
    assert script.waits == [0.005]
    assert host.metrics.outcomes == ["error", "success"]


async def test_in_a_group_the_soonest_stated_time_wins() -> None:
    retries = [RetryError(str(seconds), requeue_after=timedelta(seconds=seconds)) for seconds in (9, 4)]
    script, _ = await played(ExceptionGroup("three", [OSError(), *retries]))
    assert script.waits == [4]


async def test_an_unexpected_exception_is_counted_as_a_panic_logged_with_its_traceback_and_retried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    script, host = await played(KeyError("bug"))
    assert host.metrics.outcomes == ["panic", "success"]
    assert script.waits == [0.005]
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.exc_info is not None
    assert "default/a" in record.getMessage()
    assert "KeyError" in record.getMessage()


async def test_a_reconciler_that_forgets_its_result_is_told_so(caplog: pytest.LogCaptureFixture) -> None:
    async def forgets() -> Any:
        await anyio.sleep(1)

    _, host = await played(forgets)
    assert host.metrics.outcomes == ["panic", "success"]
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "Script.reconcile returned None; it has to return a Result" in record.getMessage()
    assert record.exc_info is None


@pytest.mark.parametrize(
    "error", [ConflictError(409, reason="Conflict"), LeadershipLostError("default/op", "me", "nothing was sent")]
)
async def test_a_conflict_or_lost_leadership_is_retried_quietly(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    script, host = await played(error)
    assert script.waits == [0.005]
    assert host.metrics.outcomes == ["error", "success"]
    assert [record for record in caplog.records if record.levelno >= logging.INFO and "reconcile" in record.msg] == []


async def hang() -> Result:
    await anyio.sleep_forever()
    raise AssertionError


async def test_a_reconcile_past_the_timeout_is_cancelled_counted_and_retried() -> None:
    script = Script(hang)
    async with hosting() as host:
        host.controller().options(
            timeout=timedelta(seconds=10), rate_limit=ExponentialBackoff[Request](jitter=0)
        ).complete(script)
        await host.client.create(config("a"))
        async with host.running():
            await anyio.sleep(60)
    assert script.waits == [10.005]
    assert host.metrics.outcomes == ["timeout", "success"]


async def test_a_timeout_of_the_reconcilers_own_is_an_ordinary_error() -> None:
    async def give_up() -> Result:
        with anyio.fail_after(3):
            await anyio.sleep_forever()
        raise AssertionError

    script, host = await played(give_up)
    assert script.waits == [3.005]
    assert host.metrics.outcomes == ["error", "success"]


async def test_cancellation_from_outside_counts_as_neither_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    script = Script(hang)
    async with hosting() as host:
        host.controller().options(timeout=timedelta(hours=1)).complete(script)
        await host.client.create(config("a"))
        async with host.running():
            await anyio.sleep(1)
    assert host.metrics.outcomes == ["cancelled"]
    assert host.metrics.retries == 0
    (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert record.getMessage() == "configmap: reconcile of default/a was cancelled after 1 s"


async def test_q11_reconciles_of_objects_that_are_gone_end_without_retry_noise_or_memory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limiter = ExponentialBackoff[Request](jitter=0)
    async with hosting() as host:
        client = CachedClient(host.client, host.informers)
        calls: list[str] = []

        async def reconcile(request: Request) -> Result:
            calls.append(request.name)
            await client.get(ConfigMap, request.name, namespace=request.namespace)
            return Result()

        controller = host.controller().options(rate_limit=limiter).complete(reconcile)
        async with host.running():
            await anyio.sleep(1)
            for number in range(5):
                await host.client.create(config(f"n{number}"))
                await anyio.sleep(1)
                await host.client.delete(ConfigMap, f"n{number}", namespace="default")
            await anyio.sleep(3600)
            assert [limiter.failures(Request(f"n{number}", "default")) for number in range(5)] == [0] * 5
            assert len(controller.queue) == 0
    assert len(calls) == 10
    assert set(host.metrics.outcomes) == {"success"}
    assert "reconcile of" not in caplog.text


async def test_another_object_that_is_missing_is_waited_for() -> None:
    other = NotFoundError(404, reason="NotFound", kind="secrets", name="a")
    script, host = await played(other)
    assert script.waits == [0.005]
    same = NotFoundError(404, reason="NotFound", kind="configmaps", name="a")  # and yet it is in the cache
    script, host = await played(same)
    assert script.waits == [0.005]
    assert host.metrics.outcomes == ["error", "success"]


async def cancelled_by_nobody() -> Result:
    """What awaiting a cancelled future is like on asyncio; trio has no such thing, and another RuntimeError here."""
    future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
    future.cancel()
    return await future


async def test_a_cancellation_that_nobody_asked_for_is_a_failure_and_does_not_cost_the_worker() -> None:
    script, host = await played(cancelled_by_nobody)
    assert script.waits == [0.005]
    assert host.metrics.outcomes == ["panic", "success"]


async def test_options_that_are_not_given_stay_as_they_are() -> None:
    script = Script(hang)
    async with hosting() as host:
        builder = host.controller().options(max_concurrent=3, rate_limit=ExponentialBackoff[Request](jitter=0))
        builder.options(timeout=timedelta(seconds=10)).complete(script)
        await host.client.create(config("a"))
        async with host.running():
            await anyio.sleep(60)
    assert host.metrics.max_workers == 3
    assert script.waits == [10.005]


async def test_events_during_a_reconcile_are_one_more_reconcile_after_it() -> None:
    async def slow() -> Result:
        await anyio.sleep(10)
        return Result(timedelta(hours=3))

    script = Script(slow)
    async with hosting() as host:
        host.controller().options(max_concurrent=3).complete(script)
        created = await host.client.create(config("a"))
        async with host.running():
            await anyio.sleep(1)
            for number in range(3):
                created.data = {"n": str(number)}
                created = await host.client.replace(created)
            await anyio.sleep(3600)
    assert script.waits == [10]
    assert host.metrics.most_running == 1


async def test_no_more_run_at_once_than_asked_for() -> None:
    async def reconcile(request: Request) -> Result:
        await anyio.sleep(1)
        return Result()

    async with hosting() as host:
        host.controller().options(max_concurrent=4).complete(reconcile)
        for number in range(20):
            await host.client.create(config(f"c{number}"))
        async with host.running():
            await anyio.sleep(100)
    assert host.metrics.most_running == host.metrics.max_workers == 4
    assert host.metrics.outcomes == ["success"] * 20


async def test_q04_stop_begins_no_reconcile_and_lets_the_running_ones_end() -> None:
    ended: list[str] = []
    times: list[float] = []

    async def reconcile(request: Request) -> Result:
        times.append(anyio.current_time())
        await anyio.sleep(10)
        ended.append(request.name)
        return Result()

    async with hosting() as host:
        controller = host.controller().options(max_concurrent=20).complete(reconcile)
        for number in range(520):
            await host.client.create(config(f"c{number}"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.informers.run)
            async with anyio.create_task_group() as controllers:
                controllers.start_soon(controller.run)
                await anyio.sleep(5)
                await anyio.to_thread.run_sync(controller.stop)
            times.append(anyio.current_time())
            tasks.cancel_scope.cancel()
    assert len(ended) == 20
    assert round(times[-1] - times[0]) == 10
    assert host.metrics.outcomes == ["success"] * 20


async def test_stop_while_the_caches_are_still_incomplete_ends_the_run() -> None:
    async with hosting() as host:
        controller = host.controller().complete(Script())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(controller.run)
            await anyio.sleep(1)
            controller.drain()
        controller.add(A)
        assert len(controller.queue) == 0


async def test_a_controller_that_was_stopped_before_it_ran_does_nothing() -> None:
    async with hosting() as host:
        script = Script()
        controller = host.controller().complete(script)
        controller.add(A)
        controller.stop()
        await controller.run()
    assert script.calls == []


async def test_a_controller_runs_once() -> None:
    async with hosting() as host:
        controller = host.controller().complete(Script())
        controller.stop()
        await controller.run()
        with pytest.raises(ManagerError, match="configmap"):
            await controller.run()


async def test_no_reconcile_begins_before_the_caches_are_complete() -> None:
    script = Script()
    async with hosting() as host:
        controller = host.controller().complete(script)
        controller.add(A)  # from anywhere, before the start
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(controller.run)
            await anyio.sleep(100)
            assert script.calls == []
            tasks.start_soon(host.informers.run)
            await anyio.sleep(1)
            assert [request for _, request in script.calls] == [A]
            tasks.cancel_scope.cancel()


async def test_keys_may_be_added_from_outside() -> None:
    script = Script()
    async with hosting() as host:
        controller: Controller = host.controller().complete(script)
        async with host.running():
            await anyio.sleep(1)
            await anyio.to_thread.run_sync(controller.add, Request("x"))
            controller.add(Request("y"), priority=Priority.LOW)
            controller.add_after(Request("z"), timedelta(seconds=5))
            await anyio.sleep(10)
    assert [request.name for _, request in script.calls] == ["x", "y", "z"]


async def test_every_reconcile_knows_which_one_it_is() -> None:
    ids: list[str] = []
    async with hosting() as host:
        created = await host.client.create(config("a"))

        async def reconcile(request: Request) -> Result:
            context = current_reconcile()
            assert context is not None
            fields = context.fields()
            assert created.metadata is not None
            assert {key: fields[key] for key in ("controller", "kind", "namespace", "name", "uid")} == {
                "controller": "settings",
                "kind": "ConfigMap",
                "namespace": "default",
                "name": "a",
                "uid": created.metadata.uid,
            }
            assert await anyio.to_thread.run_sync(current_reconcile) is context
            ids.append(context.reconcile_id)
            return Result(timedelta(seconds=1)) if len(ids) < 3 else Result()

        host.controller().named("settings").complete(reconcile)
        async with host.running():
            await anyio.sleep(10)
    assert len(set(ids)) == 3
    assert current_reconcile() is None


async def test_the_queue_is_shown_to_the_metrics() -> None:
    async with hosting() as host:
        controller = host.controller().complete(Script())
        assert host.metrics.queues == [controller.queue]
        assert controller.queue.name == controller.name == "configmap"


async def test_q12_an_object_that_triggers_itself_for_ever_is_noticed_by_the_name_of_the_field(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with hosting() as host:

        async def reconcile(request: Request) -> Result:
            found = await host.client.get(ConfigMap, request.name, namespace=request.namespace)
            found.data = {**data_of(found), "checkedAt": str(anyio.current_time())}
            await host.client.replace(found)
            await anyio.sleep(0.1)
            return Result()

        host.controller().complete(reconcile)
        await host.client.create(config("a", token="s3cret"))
        async with host.running():
            await anyio.sleep(8)
    (warning, *_) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "data.checkedAt" in warning
    assert "default/a" in warning
    assert "s3cret" not in warning
    assert host.metrics.self_triggers == 2  # at 25 in a row, and at 50


async def test_q12_an_object_that_settles_or_is_changed_by_others_now_and_then_is_not_suspected(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with hosting() as host:

        async def reconcile(request: Request) -> Result:
            found = await host.client.get(ConfigMap, request.name, namespace=request.namespace)
            steps = int(data_of(found).get("steps", "0"))
            if steps < 10:
                found.data = {"steps": str(steps + 1)}
                await host.client.replace(found)
            return Result()

        host.controller().complete(reconcile)
        await host.client.create(config("a"))
        async with host.running():
            await anyio.sleep(10)
            for number in range(60):
                found = await host.client.get(ConfigMap, "a", namespace="default")
                found.data = {"steps": "10", "by": str(number)}
                await host.client.replace(found)
                await anyio.sleep(2)
    assert host.metrics.self_triggers == 0
    assert len(host.metrics.outcomes) > 60


async def test_changes_that_a_predicate_leaves_out_cause_no_reconcile() -> None:
    script = Script()
    async with hosting() as host:
        host.controller().predicates(generation_changed()).complete(script)
        created = await host.client.create(config("a"))  # a ConfigMap has no generation
        async with host.running():
            await anyio.sleep(1)
            created.data = {"x": "y"}
            await host.client.replace(created)
            await anyio.sleep(1)
            assert len(script.calls) == 1
            await host.client.delete(ConfigMap, "a", namespace="default")
            await anyio.sleep(1)
    assert len(script.calls) == 2


async def test_only_the_hosts_namespaces_are_watched() -> None:
    script = Script()
    async with hosting(["default", "kube-system"]) as host:
        host.controller().complete(script)
        await host.client.create(config("a"))
        for place in ("kube-system", "kube-public"):
            await host.client.create(ConfigMap(metadata=ObjectMeta(name="b", namespace=place)))
        async with host.running():
            await anyio.sleep(1)
    assert {str(request) for _, request in script.calls} == {"default/a", "kube-system/b"}


async def test_senseless_options_are_refused() -> None:
    async with hosting() as host:
        with pytest.raises(ValueError, match="max_concurrent"):
            host.controller().options(max_concurrent=0)
        with pytest.raises(ValueError, match="timeout"):
            host.controller().options(timeout=timedelta(0))
        with pytest.raises(ValueError, match="name"):
            host.controller().named("")
        builder = host.controller()
        builder.complete(Script())
        with pytest.raises(ManagerError, match="completed before"):
            builder.complete(Script())
