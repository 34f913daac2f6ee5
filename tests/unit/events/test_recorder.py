"""What users see of events, on the in-memory API server."""

from __future__ import annotations

import logging
from datetime import timedelta

import anyio
import anyio.lowlevel
import pytest
from lightkube.models.core_v1 import NamespaceSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Event, Namespace

from opsdk.client import ApiClient
from opsdk.clock import ManualClock, using
from opsdk.events import EventOutcome, Recorder
from opsdk.models import view_of
from opsdk.protocols import EventType, KubeObject
from opsdk.testing import ApiServer
from replicas import Link

pytestmark = pytest.mark.anyio


class Outcomes:
    def __init__(self) -> None:
        self.seen: list[tuple[EventType, EventOutcome]] = []

    def event(self, type_: EventType, outcome: EventOutcome, /) -> None:
        self.seen.append((type_, outcome))


async def a_config_map(client: ApiClient, name: str = "settings") -> ConfigMap:
    return await client.create(ConfigMap(metadata=ObjectMeta(name=name, namespace="default")))


async def events(client: ApiClient, namespace: str = "default") -> list[Event]:
    found = await client.list(Event, namespace=namespace)
    return sorted(found, key=lambda event: (event.firstTimestamp is None, event.message or ""))


async def test_an_event_says_what_kubectl_describe_shows() -> None:
    clock = ManualClock()
    async with ApiServer() as server:
        client = server.client()
        subject = await a_config_map(client)
        assert subject.metadata is not None
        with using(clock):
            await Recorder(client, component="widgets", instance="pod-1").record(
                subject, "Warning", "Broken", "it does not fit"
            )
        (event,) = await events(client)
        assert event.involvedObject.kind == "ConfigMap"
        assert event.involvedObject.apiVersion == "v1"
        assert event.involvedObject.uid == subject.metadata.uid
        assert event.involvedObject.namespace == "default"
        assert (event.type, event.reason, event.message, event.count) == ("Warning", "Broken", "it does not fit", 1)
        assert event.firstTimestamp == event.lastTimestamp == clock.now()
        assert event.source is not None
        assert event.source.component == "widgets"
        assert event.reportingInstance == "pod-1"


async def test_q03_a_thousand_failures_are_one_object_with_a_count_of_a_thousand() -> None:
    async with ApiServer() as server:
        client = server.client()
        subject = await a_config_map(client)
        recorder = Recorder(client, component="widgets")
        for _ in range(1000):
            await recorder.record(subject, "Warning", "Failed", "boom")
            await anyio.sleep(31)
        (event,) = await events(client)
        assert event.count == 1000


async def test_q03_a_number_in_every_message_still_makes_a_handful_of_objects() -> None:
    async with ApiServer() as server:
        client = server.client()
        subject = await a_config_map(client)
        recorder = Recorder(client, component="widgets")
        for number in range(1000):
            await recorder.record(subject, "Warning", "Failed", f"attempt {number} failed")
        found = await events(client)
        assert len(found) == 11
        combined = [event for event in found if (event.message or "").startswith("(combined from similar events): ")]
        assert len(combined) == 1


async def test_repetitions_in_a_burst_are_held_and_carried_by_the_next_write() -> None:
    outcomes = Outcomes()
    async with ApiServer() as server:
        client = server.client()
        subject = await a_config_map(client)
        recorder = Recorder(client, component="widgets", observer=outcomes)
        for _ in range(100):
            await recorder.record(subject, "Normal", "Tick", "tock")
        await anyio.sleep(31)
        await recorder.record(subject, "Normal", "Tick", "tock")
        (event,) = await events(client)
        assert event.count == 101
        assert [outcome for _, outcome in outcomes.seen].count("held") == 75


async def test_events_about_a_cluster_scoped_object_are_in_the_default_namespace() -> None:
    async with ApiServer() as server:
        client = server.client()
        namespace = await client.create(Namespace(metadata=ObjectMeta(name="blue"), spec=NamespaceSpec()))
        await Recorder(client, component="widgets").record(namespace, "Normal", "Seen", "hello")
        (event,) = await events(client, "default")
        assert event.involvedObject.name == "blue"
        assert event.involvedObject.namespace is None


async def test_texts_are_cut_to_the_api_limits_between_characters() -> None:
    async with ApiServer() as server:
        client = server.client()
        subject = await a_config_map(client)
        await Recorder(client, component="widgets").record(subject, "Normal", "R" * 200, "é" * 1000)
        (event,) = await events(client)
        assert len((event.message or "").encode()) <= 1024
        assert (event.message or "").endswith("é…")
        assert len(event.reason or "") <= 128


async def test_an_event_that_the_server_refuses_is_logged_and_not_raised(caplog: pytest.LogCaptureFixture) -> None:
    outcomes = Outcomes()
    async with ApiServer() as server:
        lost = ConfigMap(metadata=ObjectMeta(name="settings", namespace="no-such-namespace"))
        with caplog.at_level(logging.WARNING, "opsdk.events"):
            await Recorder(server.client(), component="widgets", observer=outcomes).record(
                lost, "Normal", "Seen", "hello"
            )
    assert outcomes.seen == [("Normal", "failed")]
    assert "Seen was not recorded" in caplog.text


async def test_a_server_that_does_not_answer_is_given_up_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async with ApiServer() as server:
        subject = await a_config_map(server.client())
        link = Link(server.transport())
        link.pause()
        with caplog.at_level(logging.WARNING, "opsdk.events"):
            recorder = Recorder(ApiClient(link), component="widgets")
            await recorder.record(subject, "Normal", "Seen", "hello")
    assert "Seen was not recorded: no answer in 10 s" in caplog.text


async def test_an_object_without_a_name_gets_no_event(caplog: pytest.LogCaptureFixture) -> None:
    async with ApiServer() as server:
        client = server.client()
        with caplog.at_level(logging.WARNING, "opsdk.events"):
            await Recorder(client, component="widgets").record(ConfigMap(), "Normal", "Seen", "hello")
        assert await events(client) == []
    assert "ConfigMap has no name" in caplog.text


async def test_a_series_goes_on_in_a_new_object_when_the_server_has_let_the_old_one_go() -> None:
    async with ApiServer() as server:
        client = server.client()
        subject = await a_config_map(client)
        recorder = Recorder(client, component="widgets")
        await recorder.record(subject, "Normal", "Tick", "tock")
        await client.delete_collection(Event, namespace="default")
        await recorder.record(subject, "Normal", "Tick", "tock")
        (event,) = await events(client)
        assert event.count == 2


async def test_events_about_one_object_are_written_in_the_order_of_the_calls() -> None:
    async with ApiServer() as server:
        client = server.client()
        subject = await a_config_map(client)
        recorder = Recorder(client, component="widgets")
        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(recorder.record, subject, "Normal", f"Step{number}", "went on")
                await anyio.lowlevel.checkpoint()
        found = await client.list(Event, namespace="default")
        by_version = sorted(found, key=lambda event: int(view_of(event).resourceVersion or 0))
        assert [event.reason for event in by_version] == [f"Step{number}" for number in range(8)]


async def test_what_redact_takes_out_is_not_written() -> None:
    async with ApiServer() as server:
        client = server.client()
        subject = await a_config_map(client)
        recorder = Recorder(client, component="widgets", redact=lambda text: text.replace("hunter2", "***"))
        await recorder.record(subject, "Warning", "Failed", "password hunter2 refused")
        (event,) = await events(client)
        assert event.message == "password *** refused"


@pytest.mark.parametrize("name", ["system:node:a", "UPPER", "a" * 253, "-.-", "x.-y"])
async def test_any_object_name_makes_a_valid_event_name(name: str) -> None:
    class Named:
        metadata = ObjectMeta(name=name, namespace="default")

    assert isinstance(Named(), KubeObject)
    from opsdk.events._text import event_name

    made = event_name(name)
    assert len(made) <= 253
    assert all(part and part[0].isalnum() and part[-1].isalnum() for part in made.split("."))


async def test_what_is_remembered_is_bounded() -> None:
    from opsdk.clock import now
    from opsdk.events._series import Group, SeriesBook, Subject

    book = SeriesBook(16)
    for number in range(1000):
        group = Group(Subject("v1", "ConfigMap", "default", f"c{number}", ""), "Normal", "Seen")
        book.series(group, "hello", at=timedelta(seconds=number).total_seconds(), now=now())
    assert len(book) == 16
