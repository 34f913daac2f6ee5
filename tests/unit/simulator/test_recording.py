"""What is recorded, and how expectations take it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol, cast

import msgspec
import pytest
from lightkube import ApiError, AsyncClient
from lightkube.models.batch_v1 import CronJobSpec, JobSpec, JobTemplateSpec
from lightkube.models.core_v1 import Container, PodSpec, PodTemplateSpec
from lightkube.models.meta_v1 import Condition, ObjectMeta
from lightkube.resources.apps_v1 import DaemonSet, Deployment, ReplicaSet, StatefulSet
from lightkube.resources.batch_v1 import CronJob, Job
from lightkube.resources.core_v1 import ConfigMap, Event, Pod, Secret, Service
from pydantic import Field

from opsdk.errors import InvalidError, NotFoundError, ObjectError
from opsdk.models import Conditions, CustomResource, Model, codec_of
from opsdk.protocols import Client, KubeObject
from opsdk.testing.simulator import (
    ExpectationError,
    Simulator,
    SimulatorUsageError,
    UnexpectedActionsError,
    matching,
)
from opsdk.types import Json, JsonObject, JsonPatch, MergePatch, Request, Result

pytestmark = pytest.mark.anyio


class ThingSpec(Model):
    size: int = 1


class ThingStatus(Model):
    seen: int = 0
    conditions: Conditions = Field(default_factory=list[Condition])


class Thing(CustomResource[ThingSpec, ThingStatus], group="demo.example.com", version="v1"):
    def get_status_conditions(self) -> list[Condition]:
        return self.status.conditions


class Does:
    """A reconciler that does what the test says."""

    def __init__(self, client: Client, what: Callable[[Client, Request], Awaitable[Result | None]]) -> None:
        self.client = client
        self.what = what

    async def reconcile(self, request: Request) -> Result:
        return await self.what(self.client, request) or Result()


def does(what: Callable[[Client, Request], Awaitable[Result | None]]) -> Callable[[Client], Does]:
    return lambda client: Does(client, what)


def thing(name: str = "t") -> Thing:
    return Thing(metadata=ObjectMeta(name=name), spec=ThingSpec())


def config(**data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name="c", namespace="default"), data=dict(data))


class StatusOfAny(msgspec.Struct):
    status: dict[str, object]


class ConfigData(Protocol):
    """A ConfigMap as a typed view: lightkube declares the map as a bare `dict`."""

    @property
    def data(self) -> Mapping[str, str] | None: ...


def data(config: ConfigData) -> Mapping[str, str]:
    return config.data or {}


async def nothing(client: Client, request: Request) -> None:
    await client.find(Thing, request.name, namespace=request.namespace)


async def every_verb(client: Client, request: Request) -> None:
    stored = await client.create(config(a="1"))
    stored.data = {"a": "2"}
    await client.replace(stored)
    await client.patch(ConfigMap, "c", MergePatch({"data": {"a": "3"}}), namespace="default")
    await client.apply(config(a="4"), force=True)
    await client.status.patch(Thing, request.name, MergePatch({"status": {"seen": 7}}), namespace=request.namespace)
    await client.delete(ConfigMap, "c", namespace="default")


async def test_every_write_is_recorded_in_order_and_taken_by_its_verb() -> None:
    async with Simulator(does(every_verb)) as sim:
        await sim.create(thing())
        assert [str(action) for action in sim.actions] == [
            "create ConfigMap default/c",
            "replace ConfigMap default/c",
            "patch ConfigMap default/c",
            "apply ConfigMap default/c",
            "status patch Thing default/t",
            "delete ConfigMap default/c",
        ]
        assert data(sim.expect_create(ConfigMap, "c", namespace="default")) == {"a": "1"}
        assert data(sim.expect_replace(ConfigMap)) == {"a": "2"}
        assert data(sim.expect_patch(ConfigMap)) == {"a": "3"}
        assert data(sim.expect_apply(ConfigMap)) == {"a": "4"}
        assert sim.expect_status_update(Thing, matching(lambda thing: thing.status.seen == 7)).status.seen == 7
        assert data(sim.expect_delete(ConfigMap, "c")) == {"a": "4"}  # as it was


async def test_reads_dry_runs_and_the_tests_own_writes_are_not_recorded() -> None:
    async def reads(client: Client, request: Request) -> None:
        await client.get(Thing, request.name, namespace=request.namespace)
        await client.list(ConfigMap, namespace="default")
        await client.create(config(a="1"), dry_run=True)

    async with Simulator(does(reads)) as sim:
        await sim.create(thing())
        await sim.fake_client.create(config(a="1"))
        assert not sim.actions


async def test_an_unexpected_write_fails_at_the_end_and_shows_what_it_changed() -> None:
    async def writes(client: Client, request: Request) -> None:
        found = await client.find(ConfigMap, "c", namespace="default")
        if found is None:
            await client.create(config(a="1"))
        else:
            await client.patch(ConfigMap, "c", MergePatch({"data": {"a": "2"}}), namespace="default")

    async def run() -> None:
        async with Simulator(does(writes)) as sim:
            await sim.create(thing())
            await sim.reconcile()
            sim.expect_create(ConfigMap)

    with pytest.raises(UnexpectedActionsError) as caught:
        await run()
    assert "1 write that no expect_… call took" in str(caught.value)
    assert "1. patch ConfigMap default/c" in str(caught.value)
    assert 'data.a: "1" -> "2"' in str(caught.value)


async def test_the_end_does_not_hide_what_the_body_raised() -> None:
    async def run() -> None:
        async with Simulator(does(every_verb)) as sim:
            await sim.create(thing())
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await run()


async def test_a_failed_expectation_says_what_was_expected_what_came_and_what_is_queued() -> None:
    async with Simulator(does(every_verb)) as sim:
        await sim.create(thing())
        with pytest.raises(ExpectationError) as caught:
            sim.expect_create(Service, "web")
        text = str(caught.value)
        assert "expected: create Service web" in text
        assert "came:     create ConfigMap default/c, but it is another kind" in text
        assert "also queued:" in text
        assert "1. replace ConfigMap default/c" in text
        assert len(sim.actions) == 6
        sim.expect_create(ConfigMap)  # it was not taken
        sim.clear()


MISMATCHES: list[tuple[Callable[[Simulator], object], str]] = [
    (lambda sim: sim.expect_create(ConfigMap, "d"), "its name is c"),
    (lambda sim: sim.expect_create(ConfigMap, namespace="other"), "its namespace is default"),
    (lambda sim: sim.expect_delete(ConfigMap), "it is another kind of write"),
    (lambda sim: sim.expect_create(ConfigMap, matching(lambda _: False, "small")), "matching(small) is false"),
    (lambda sim: sim.expect_status_update(ConfigMap), "it is another kind of write"),
]


@pytest.mark.parametrize(("expect", "why"), MISMATCHES)
async def test_an_expectation_says_why_a_write_is_another_one(expect: Callable[[Simulator], object], why: str) -> None:
    async with Simulator(does(every_verb)) as sim:
        await sim.create(thing())
        with pytest.raises(ExpectationError, match=re.escape(why)):
            expect(sim)
        sim.clear()


async def test_t3_the_traceback_of_a_failed_expectation_ends_at_the_line_of_the_test() -> None:
    expectations: list[Callable[[Simulator], object]] = [
        lambda sim: sim.expect_patch(ConfigMap),
        lambda sim: sim.expect_create(ConfigMap, "another"),
        lambda sim: sim.expect_status_update(ConfigMap),
        lambda sim: sim.expect_event(reason="Nothing"),
        lambda sim: sim.assert_complete(),
    ]
    async with Simulator(does(every_verb)) as sim:
        await sim.create(thing())
        for expect in expectations:
            with pytest.raises(AssertionError) as caught:
                expect(sim)
            assert caught.traceback.filter(caught)[-1].path == Path(__file__)
        sim.clear()


async def test_expecting_more_than_was_written_fails() -> None:
    async with Simulator(does(nothing)) as sim:
        await sim.create(thing())
        with pytest.raises(ExpectationError, match="nothing; everything recorded has been taken"):
            sim.expect_create(Deployment)


async def test_a_refused_write_is_not_expected_but_shown() -> None:
    async def patches_what_is_not_there(client: Client, request: Request) -> None:
        with pytest.raises(NotFoundError):
            await client.patch(ConfigMap, "absent", MergePatch({"data": {}}), namespace="default")

    async with Simulator(does(patches_what_is_not_there)) as sim:
        await sim.create(thing())
        assert not sim.actions
        (refused,) = sim.refused
        assert (refused.verb, refused.name, refused.code) == ("patch", "absent", 404)
        with pytest.raises(ExpectationError, match="refused by the API server"):
            sim.expect_patch(ConfigMap)


async def test_secret_values_are_never_shown() -> None:
    async def writes(client: Client, request: Request) -> None:
        secret = Secret(metadata=ObjectMeta(name="s", namespace="default"), stringData={"password": "hunter2"})
        stored = await client.create(secret)
        stored.data = {"password": "b3RoZXItaHVudGVyMg=="}
        await client.replace(stored)

    shown: list[str] = []

    async def run() -> None:
        async with Simulator(does(writes)) as sim:
            await sim.create(thing())
            shown.append(repr(sim.actions))

    with pytest.raises(UnexpectedActionsError) as caught:
        await run()
    text = str(caught.value) + "".join(shown)
    assert "password" in str(caught.value)
    assert not any(secret in text for secret in ("hunter2", "aHVudGVyMg", "b3RoZXI"))


async def test_an_answer_that_quotes_a_secret_is_not_shown() -> None:
    async def write(client: Client, request: Request) -> None:
        secret = Secret(metadata=ObjectMeta(name="s", namespace=request.namespace), stringData={"password": "hunter2"})
        await client.create(secret)
        patch = JsonPatch([{"op": "replace", "path": "/data", "value": "aHVudGVyMg=="}])
        with pytest.raises(InvalidError):
            await client.patch(Secret, "s", patch, namespace=request.namespace)

    with pytest.raises(UnexpectedActionsError) as caught:
        async with Simulator(does(write)) as sim:
            await sim.create(Thing(metadata=ObjectMeta(name="t"), spec=ThingSpec()))
    assert "patch: Invalid value: (hidden)" in str(caught.value)
    assert "aHVudGVyMg" not in str(caught.value)


async def test_events_queue_apart_and_left_over_ones_never_fail() -> None:
    async def records(client: Client, request: Request) -> None:
        for reason in ("First", "Second", "Third"):
            await client.create(
                Event(
                    metadata=ObjectMeta(name=f"t.{reason.lower()}", namespace="default"),
                    involvedObject={"kind": "Thing", "namespace": "default", "name": "t"},  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
                    reason=reason,
                    message=f"the {reason.lower()} one",
                    type="Normal",
                )
            )
        await client.create(config(a="1"))

    async with Simulator(does(records)) as sim:
        await sim.create(thing())
        sim.expect_create(ConfigMap)
        event = sim.expect_event("First", type="Normal", message="first", about="t")
        assert (event.kind, event.namespace, event.count) == ("Thing", "default", 1)
        with pytest.raises(ExpectationError, match="its reason is Second"):
            sim.expect_event("Third")
        assert [event.reason for event in sim.events] == ["First", "Second", "Third"]


async def test_create_makes_the_namespace_and_defines_the_kind() -> None:
    async with Simulator(does(nothing)) as sim:
        stored = await sim.create(Thing(metadata=ObjectMeta(name="t", namespace="elsewhere"), spec=ThingSpec(size=3)))
        assert (stored.metadata.namespace, stored.spec.size) == ("elsewhere", 3)
        assert stored.metadata.uid


async def test_the_primary_is_the_first_object_and_others_are_reconciled_by_name() -> None:
    seen: list[str] = []

    async def notes(client: Client, request: Request) -> None:
        seen.append(str(request))

    async with Simulator(does(notes)) as sim:
        with pytest.raises(SimulatorUsageError, match="create"):
            await sim.reconcile()
        await sim.create(thing("a"))
        await sim.create(thing("b"))
        await sim.create(config(a="1"))
        await sim.reconcile()
        await sim.reconcile("b")
        await sim.reconcile("c", "elsewhere")
    assert seen == ["default/a", "default/b", "default/a", "default/a", "default/b", "elsewhere/c"]


async def test_what_the_reconciler_raises_surfaces_and_its_result_is_returned() -> None:
    async def fails(client: Client, request: Request) -> None:
        raise KeyError("mine")

    async with Simulator(does(fails)) as sim:
        with pytest.raises(KeyError, match="mine"):
            await sim.create(thing())
        with pytest.raises(KeyError, match="mine"):
            await sim.reconcile()


async def test_simulate_ready_sets_one_condition_and_keeps_the_others() -> None:
    async with Simulator(does(nothing)) as sim:
        await sim.create(thing())
        await sim.fake_client.status.patch(
            Thing,
            "t",
            MergePatch(
                {
                    "status": {
                        "conditions": [
                            {
                                "type": "Other",
                                "status": "False",
                                "reason": "R",
                                "message": "m",
                                "lastTransitionTime": "2026-01-01T00:00:00Z",
                            }
                        ]
                    }
                }
            ),
            namespace="default",
        )
        await sim.simulate_ready(Thing, "t")
        stored = await sim.fake_client.get(Thing, "t", namespace="default")
        assert [(c.type, c.status, c.reason) for c in stored.status.conditions] == [
            ("Other", "False", "R"),
            ("Ready", "True", "SimulatedReady"),
        ]


async def test_a_kind_whose_status_has_no_conditions_cannot_be_made_ready() -> None:
    pods = PodTemplateSpec(spec=PodSpec(containers=[Container(name="c", image="i")], restartPolicy="Never"))
    spec = CronJobSpec(schedule="@daily", jobTemplate=JobTemplateSpec(spec=JobSpec(template=pods)))
    async with Simulator(does(nothing)) as sim:
        await sim.create(thing())
        stored = await sim.create(CronJob(metadata=ObjectMeta(name="c"), spec=spec))
        with pytest.raises(ObjectError, match=r"CronJob c cannot be made ready: .* has no conditions; .*fake_client"):
            await sim.simulate_ready(CronJob, "c")
        await sim.create(config())
        with pytest.raises(ObjectError, match="ConfigMap c cannot be made ready"):
            await sim.simulate_ready(ConfigMap, "c")
        assert await sim.fake_client.get(CronJob, "c", namespace="default") == stored
        with pytest.raises(ObjectError, match="404"):
            await sim.simulate_ready(Deployment, "gone")


@pytest.mark.parametrize(
    ("kind", "status", "conditions"),
    [
        (
            Deployment,
            {
                "observedGeneration": 1,
                "replicas": 3,
                "updatedReplicas": 3,
                "readyReplicas": 3,
                "availableReplicas": 3,
                "unavailableReplicas": None,
            },
            ["Available", "Ready"],
        ),
        (ReplicaSet, {"observedGeneration": 1, "readyReplicas": 3, "fullyLabeledReplicas": 3}, ["Ready"]),
        (StatefulSet, {"observedGeneration": 1, "readyReplicas": 3, "updatedReplicas": 3}, ["Ready"]),
        (
            DaemonSet,
            {"observedGeneration": 1, "desiredNumberScheduled": 1, "numberReady": 1, "numberMisscheduled": 0},
            ["Ready"],
        ),
        (
            Job,
            {"succeeded": 2, "active": None, "completionTime": "2026-01-01T00:00:00Z", "completedIndexes": "0-1"},
            ["SuccessCriteriaMet", "Complete", "Ready"],
        ),
        (
            Pod,
            {"phase": "Running"},
            ["PodReadyToStartContainers", "Initialized", "ContainersReady", "PodScheduled", "Ready"],
        ),
    ],
)
async def test_a_ready_object_of_a_built_in_kind_says_what_its_controllers_report(
    kind: type[KubeObject], status: Mapping[str, Json], conditions: list[str]
) -> None:
    labels: JsonObject = {"app": "a"}
    pod: JsonObject = {"containers": [{"name": "c", "image": "i"}]}
    if kind is Job:
        pod = {**pod, "restartPolicy": "Never"}
    template: JsonObject = {"metadata": {"labels": labels}, "spec": pod}
    spec: JsonObject = {"selector": {"matchLabels": labels}, "template": template}
    if kind is Job:
        spec = {"template": template, "completions": 2, "completionMode": "Indexed"}
    elif kind is Pod:
        spec = pod
    elif kind is not DaemonSet:
        spec = {**spec, "replicas": 3, **({"serviceName": "a"} if kind is StatefulSet else {})}
    other = {"type": "Other", "status": "False", "reason": "R", "lastTransitionTime": "2026-01-01T00:00:00Z"}

    async with Simulator(does(nothing)) as sim:
        await sim.create(thing())
        body: JsonObject = {"metadata": {"name": "a", "namespace": "default"}, "spec": spec}
        await sim.create(codec_of(kind).decode(msgspec.json.encode(body)))
        await sim.fake_client.status.patch(
            kind, "a", MergePatch({"status": {"conditions": [other]}}), namespace="default"
        )
        for _ in range(2):  # said twice, it is the same
            await sim.simulate_ready(kind, "a")
            raw = codec_of(kind).encode(await sim.fake_client.get(kind, "a", namespace="default"))
            stored = msgspec.json.decode(raw, type=StatusOfAny).status
            assert {field: stored.get(field) for field in status} == status
            found = msgspec.convert(stored["conditions"], list[dict[str, str]])
            assert [(each["type"], each["status"]) for each in found] == [
                ("Other", "False"),
                *((each, "True") for each in conditions),
            ]
            assert found[-1]["reason"] == "SimulatedReady"


async def test_a_state_that_the_kind_does_not_keep_is_refused() -> None:
    async def nothing(_client: Client, _request: Request) -> None: ...

    async with Simulator(does(nothing)) as sim:
        await sim.create(Thing(metadata=ObjectMeta(name="t"), spec=ThingSpec()))
        with pytest.raises(ObjectError, match=r"Thing t did not keep a state in status\.state"):
            await sim.simulate_state("running")


async def test_what_is_created_below_an_object_is_expected_by_its_subresource() -> None:
    class Evicts:
        def __init__(self, client: AsyncClient) -> None:
            self.client = client

        async def reconcile(self, request: Request) -> Result:
            eviction = Pod.Eviction(metadata=ObjectMeta(name="p", namespace=request.namespace))
            await self.client.create(eviction, "p")
            return Result()

    async with Simulator(Evicts, client_type=AsyncClient) as sim:
        spec = PodSpec(containers=[Container(name="c", image="i")])
        await sim.fake_client.create(Pod(metadata=ObjectMeta(name="p"), spec=spec), namespace="default")
        await sim.create(ConfigMap(metadata=ObjectMeta(name="c")))
        evicted = sim.expect_create(Pod, "p", subresource="eviction")
        assert evicted.spec is not None


async def test_a_reconciler_on_lightkubes_own_client_is_recorded_too() -> None:
    class Lightkube:
        def __init__(self, client: AsyncClient) -> None:
            self.client = client

        async def reconcile(self, request: Request) -> Result:
            try:
                await self.client.get(ConfigMap, "c", namespace="default")
            except ApiError:
                await self.client.create(config(a="1"))
            return Result()

    async with Simulator(Lightkube, client_type=AsyncClient) as sim:
        await sim.create(thing())
        sim.expect_create(ConfigMap, matching(lambda created: data(created) == {"a": "1"}))
        await sim.reconcile()


class Forgetful:
    """A reconciler of somebody who does not check types."""

    def __init__(self, client: Client, returned: object) -> None:
        self.returned = returned

    async def reconcile(self, request: Request) -> Result:
        return cast("Result", self.returned)


@pytest.mark.parametrize("returned", [None, 5, {}, Result])
async def test_a_reconciler_that_returns_no_result_is_told_so(returned: object) -> None:
    async with Simulator(lambda client: Forgetful(client, returned)) as sim:
        with pytest.raises(SimulatorUsageError, match=r"has to return a Result, such as Result\(\)"):
            await sim.create(thing())
        sim.clear()
