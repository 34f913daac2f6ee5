"""One pass at a time, driven by hand."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import cast

import anyio
import pytest
from lightkube.models.meta_v1 import Condition, ObjectMeta
from lightkube.resources.core_v1 import Event
from pydantic import Field

from opsdk.client import ApiClient, HttpRequest, HttpResponse, HttpStream, Transport
from opsdk.errors import (
    ApiStatusError,
    ConflictError,
    ManagerError,
    NotReadyError,
    ObjectError,
    RetryError,
    ServerError,
    TerminalError,
)
from opsdk.models import Conditions, CustomResource, Model, find_condition
from opsdk.persistence import Hook, PersistenceReconciler
from opsdk.protocols import Client
from opsdk.testing import ApiServer
from opsdk.testing.simulator import Simulator, matching
from opsdk.types import JsonPatch, MergePatch, Request

pytestmark = pytest.mark.anyio

FINALIZER = "roles.demo.example.com/finalizer"


class RoleSpec(Model):
    scope: str = "s"


class RoleStatus(Model):
    conditions: Conditions = Field(default_factory=list[Condition])
    observed_generation: int = 0
    note: str = ""


class Role(CustomResource[RoleSpec, RoleStatus], group="demo.example.com", version="v1"):
    def get_status_conditions(self) -> list[Condition]:
        return self.status.conditions

    def set_observed_generation(self, generation: int) -> None:
        self.status.observed_generation = generation

    def get_observed_generation(self) -> int:
        return self.status.observed_generation


class Quiet(CustomResource[RoleSpec, RoleStatus], group="demo.example.com", version="v1"):
    """A kind that cannot tell which generation it has seen."""


class Rows:
    """A database, and what was asked of it."""

    def __init__(self) -> None:
        self.rows: dict[str, str] = {}
        self.calls: list[str] = []
        self.fail: Callable[[], BaseException | None] = lambda: None

    async def persist(self, role: Role) -> None:
        self.calls.append("upsert")
        error = self.fail()
        if error is None or isinstance(error, NotReadyError):
            self.rows[role.metadata.uid or ""] = role.spec.scope
        if error is not None:
            raise error

    async def delete(self, uid: str) -> None:
        self.calls.append(f"delete {uid}")
        error = self.fail()
        if error is not None:
            raise error
        self.rows.pop(uid, None)

    async def make_way(self, role: Role) -> None:
        self.calls.append("conflict")

    def raises(self, *errors: BaseException | None) -> None:
        """The next calls raise these, one after the other; later ones the last."""
        left = list(errors)
        self.fail = lambda: left.pop(0) if len(left) > 1 else left[0]


def operator(rows: Rows, *, on_conflict: Hook[Role] | None = None) -> Callable[[Client], PersistenceReconciler[Role]]:
    return lambda client: PersistenceReconciler(
        Role,
        client,
        on_upsert=rows.persist,
        on_delete=rows.delete,
        on_conflict=on_conflict,
        finalizer=FINALIZER,
    )


def role(**spec: str) -> Role:
    return Role(metadata=ObjectMeta(name="ops"), spec=RoleSpec(**spec))


async def stored(sim: Simulator) -> Role:
    return await sim.fake_client.get(Role, "ops", namespace="default")


async def change_scope(sim: Simulator, scope: str) -> None:
    await sim.fake_client.patch(Role, "ops", MergePatch({"spec": {"scope": scope}}), namespace="default")


def ready(role: Role) -> tuple[str, str, str]:
    condition = find_condition(role.status.conditions, "Ready")
    return ("", "", "") if condition is None else (condition.status, condition.reason, condition.message)


def is_ready(status: str, reason: str) -> Callable[[Role], bool]:
    return lambda role: ready(role)[:2] == (status, reason)


def causes(error: BaseException) -> list[type[BaseException]]:
    """The types of the errors that were joined."""
    group: BaseException | None = error.__cause__
    assert isinstance(group, BaseExceptionGroup)
    joined = cast("BaseExceptionGroup[BaseException]", group)
    return [type(inner) for inner in joined.exceptions]


def duplicate() -> sqlite3.IntegrityError:
    db = sqlite3.connect(":memory:")
    db.execute("create table t (name text unique)")
    db.execute("insert into t values ('ops')")
    try:
        db.execute("insert into t values ('ops')")
    except sqlite3.IntegrityError as error:
        return error
    finally:
        db.close()
    raise AssertionError


async def created(sim: Simulator) -> None:
    await sim.create(role())
    sim.expect_patch(Role, matching(lambda role: role.metadata.finalizers == [FINALIZER]))


# ---- storing


async def test_the_finalizer_comes_first_then_the_row_then_one_status_write_then_the_event() -> None:
    rows = Rows()
    async with Simulator(operator(rows)) as sim:
        await created(sim)
        sim.expect_status_update(Role, matching(is_ready("True", "Synced")))
        sim.expect_event("Created", type="Normal", about="ops")
        found = await stored(sim)
        assert rows.rows == {found.metadata.uid: "s"}
        assert found.status.observed_generation == 1


async def test_a_pass_without_changes_asks_the_database_and_writes_nothing() -> None:
    rows = Rows()
    async with Simulator(operator(rows)) as sim:
        await created(sim)
        sim.clear()
        await sim.reconcile()
        assert rows.calls == ["upsert", "upsert"]
        assert not sim.events


async def test_a_changed_spec_is_stored_and_announced_once() -> None:
    rows = Rows()
    async with Simulator(operator(rows)) as sim:
        await created(sim)
        sim.clear()
        await change_scope(sim, "t")
        await sim.settle()
        sim.expect_status_update(Role, matching(lambda role: role.status.observed_generation == 2))
        assert [event.reason for event in sim.events] == ["Updated"]


async def test_a_restarted_operator_announces_nothing_again() -> None:
    rows = Rows()
    async with Simulator(operator(rows)) as sim:
        await created(sim)
        sim.clear()
        restarted = operator(rows)(sim.fake_client)
        await restarted.reconcile(Request("ops", "default"))
        events = [event.reason for event in sim.events]
        assert not events


async def test_without_a_getter_only_the_pass_that_added_the_finalizer_announces() -> None:
    failures: list[Exception | None] = [ValueError("down"), None, None]

    async def persist(quiet: Quiet) -> None:
        error = failures.pop(0)
        if error is not None:
            raise error

    async def delete(uid: str) -> None: ...

    def make(client: Client) -> PersistenceReconciler[Quiet]:
        return PersistenceReconciler(Quiet, client, on_upsert=persist, on_delete=delete, finalizer=FINALIZER)

    async with Simulator(make) as sim:
        with pytest.raises(RetryError):
            await sim.create(Quiet(metadata=ObjectMeta(name="q"), spec=RoleSpec()))
        sim.expect_patch(Quiet)  # no conditions, so nothing in status
        sim.expect_event("PersistFailed")
        await sim.reconcile()
        sim.expect_event("Created")  # the first success after it
        await sim.fake_client.patch(Quiet, "q", MergePatch({"spec": {"scope": "t"}}), namespace="default")
        await sim.reconcile()
        assert len(sim.events) == 2


async def test_what_the_hook_changes_in_status_is_in_the_one_status_write() -> None:
    async def persist(role: Role) -> None:
        role.status.note = "row 7"

    async def delete(uid: str) -> None: ...

    def make(client: Client) -> PersistenceReconciler[Role]:
        return PersistenceReconciler(Role, client, on_upsert=persist, on_delete=delete, finalizer=FINALIZER)

    async with Simulator(make) as sim:
        await created(sim)
        sim.expect_status_update(Role, matching(lambda role: role.status.note == "row 7"))


async def test_q02_a_hook_that_deletes_its_object_is_done() -> None:
    async def delete(uid: str) -> None: ...

    def make(client: Client) -> PersistenceReconciler[Role]:
        async def persist(role: Role) -> None:
            await client.patch(Role, "ops", MergePatch({"metadata": {"finalizers": None}}), namespace="default")
            await client.delete(Role, "ops", namespace="default")

        return PersistenceReconciler(Role, client, on_upsert=persist, on_delete=delete, finalizer=FINALIZER)

    async with Simulator(make) as sim:
        await sim.create(role())
        sim.clear()
        await sim.reconcile()  # gone: nothing to do


# ---- not ready


async def test_not_ready_is_told_in_status_and_is_no_failure() -> None:
    rows = Rows()
    rows.raises(NotReadyError("ScopeNotFound", "scope s does not exist"))
    async with Simulator(operator(rows)) as sim:
        await created(sim)
        sim.expect_status_update(Role, matching(is_ready("False", "ScopeNotFound")))
        found = await stored(sim)
        assert ready(found)[2] == "scope s does not exist"
        assert found.status.observed_generation == 1
        sim.expect_event("Created")
        sim.expect_event("ScopeNotFound", type="Warning", message="scope s does not exist")
        assert (await sim.reconcile()).requeue_after is None


async def test_not_ready_may_ask_to_be_looked_at_again() -> None:
    rows = Rows()
    rows.raises(NotReadyError("Waiting", "for it", requeue_after=timedelta(seconds=30)))
    async with Simulator(operator(rows)) as sim:
        await created(sim)
        sim.clear()
        assert (await sim.reconcile()).requeue_after == timedelta(seconds=30)


async def test_a_message_that_differs_on_every_pass_is_neither_written_nor_announced() -> None:
    rows = Rows()
    count = 0

    def fail() -> NotReadyError:
        nonlocal count
        count += 1
        return NotReadyError("ScopeNotFound", f"attempt {count}")

    rows.fail = fail
    async with Simulator(operator(rows)) as sim:
        await created(sim)
        sim.clear()
        for _ in range(5):
            await sim.reconcile()
        assert not sim.actions
        assert not sim.events
        await anyio.sleep(121)
        await sim.reconcile()
        sim.expect_status_update(Role)  # no faster than the retry, but no staler either
        assert not sim.events


async def test_a_new_reason_is_written_and_announced_at_once() -> None:
    rows = Rows()
    rows.raises(NotReadyError("ScopeNotFound", "a"), NotReadyError("ScopeDenied", "b"), None)
    async with Simulator(operator(rows)) as sim:
        await created(sim)
        sim.clear()
        await sim.reconcile()
        sim.expect_status_update(Role, matching(is_ready("False", "ScopeDenied")))
        sim.expect_event("ScopeDenied")
        await sim.reconcile()
        sim.expect_status_update(Role, matching(is_ready("True", "Synced")))
        assert len(sim.events) == 1


async def test_the_cause_of_not_ready_is_its_message() -> None:
    rows = Rows()
    rows.raises(NotReadyError("ScopeNotFound", err=KeyError("scope s")))
    async with Simulator(operator(rows)) as sim:
        await created(sim)
        sim.clear()
        assert ready(await stored(sim)) == ("False", "ScopeNotFound", "'scope s'")


async def test_raising_from_keeps_the_cause_and_its_text() -> None:
    def look_up() -> None:
        raise LookupError("scope s is not there")

    def make(client: Client) -> PersistenceReconciler[Role]:
        async def persist(role: Role) -> None:
            try:
                look_up()
            except LookupError as error:
                raise NotReadyError("ScopeNotFound") from error

        return PersistenceReconciler(Role, client, on_upsert=persist, on_delete=Rows().delete, finalizer=FINALIZER)

    async with Simulator(make) as sim:
        await created(sim)
        sim.clear()
        assert ready(await stored(sim)) == ("False", "ScopeNotFound", "scope s is not there")


async def test_without_a_reason_it_is_invalid() -> None:
    rows = Rows()
    rows.raises(NotReadyError(message="it is what it is"))
    async with Simulator(operator(rows)) as sim:
        await created(sim)
        sim.clear()
        assert ready(await stored(sim)) == ("False", "Invalid", "it is what it is")


async def test_not_ready_is_logged_at_debug_only(caplog: pytest.LogCaptureFixture) -> None:
    rows = Rows()
    rows.raises(NotReadyError("ScopeNotFound", "no scope"))
    with caplog.at_level(logging.DEBUG, logger="opsdk.persistence"):
        async with Simulator(operator(rows)) as sim:
            await created(sim)
            sim.clear()
    told = [record for record in caplog.records if "ScopeNotFound" in record.getMessage()]
    assert [record.levelno for record in told if record.name.startswith("opsdk.persistence")] == [logging.DEBUG]


async def test_not_ready_whose_status_cannot_be_written_is_an_error_and_is_announced_later() -> None:
    rows = Rows()
    meddling = True

    def make(client: Client) -> PersistenceReconciler[Role]:
        async def persist(role: Role) -> None:
            if meddling:
                patch = MergePatch({"metadata": {"labels": {"a": "b"}}})
                await client.patch(Role, "ops", patch, namespace="default")
            raise NotReadyError("ScopeNotFound", "no scope", requeue_after=timedelta(seconds=5))

        return PersistenceReconciler(Role, client, on_upsert=persist, on_delete=rows.delete, finalizer=FINALIZER)

    async with Simulator(make) as sim:
        with pytest.raises(ConflictError):
            await sim.create(role())
        assert not sim.events
        meddling = False
        assert (await sim.reconcile()).requeue_after == timedelta(seconds=5)
        assert [event.reason for event in sim.events] == ["Created", "ScopeNotFound"]
        sim.clear()


async def test_a_longer_wait_than_the_retrys_holds_new_messages_as_long() -> None:
    rows = Rows()
    count = 0

    def fail() -> NotReadyError:
        nonlocal count
        count += 1
        return NotReadyError("Waiting", f"attempt {count}", requeue_after=timedelta(minutes=10))

    rows.fail = fail
    async with Simulator(operator(rows)) as sim:
        await created(sim)
        sim.clear()
        await anyio.sleep(500)
        await sim.reconcile()
        assert not sim.actions
        await anyio.sleep(101)
        await sim.reconcile()
        sim.expect_status_update(Role)


async def test_a_reason_that_the_api_would_refuse_is_a_failure_that_names_it() -> None:
    rows = Rows()
    rows.raises(NotReadyError("scope not found", "a"))
    async with Simulator(operator(rows)) as sim:
        with pytest.raises(RetryError, match="'scope not found' is not one CamelCase word"):
            await sim.create(role())
        sim.clear()


# ---- failures


async def test_a_failure_is_told_in_status_and_retried_after_two_minutes() -> None:
    rows = Rows()
    rows.raises(ValueError("the database is away"), None)
    async with Simulator(operator(rows)) as sim:
        with pytest.raises(RetryError, match="the database is away") as caught:
            await sim.create(role())
        assert caught.value.requeue_after == timedelta(minutes=2)
        assert isinstance(caught.value.__cause__, ValueError)
        sim.expect_patch(Role)
        sim.expect_status_update(Role, matching(is_ready("False", "PersistFailed")))
        assert (await stored(sim)).status.observed_generation == 0
        sim.expect_event("PersistFailed", type="Warning")
        await sim.reconcile()
        sim.expect_status_update(Role, matching(is_ready("True", "Synced")))
        sim.expect_event("Created")


async def test_a_failing_hook_whose_text_differs_does_not_write_status_on_every_pass() -> None:
    rows = Rows()
    count = 0

    def fail() -> ValueError:
        nonlocal count
        count += 1
        return ValueError(f"failure number {count}")

    rows.fail = fail
    async with Simulator(operator(rows)) as sim:
        with pytest.raises(RetryError):
            await sim.create(role())
        sim.clear()
        for _ in range(5):
            with pytest.raises(RetryError):
                await sim.reconcile()
        assert not sim.actions


async def test_a_failed_status_write_is_joined_to_the_failure() -> None:
    rows = Rows()

    def make(client: Client) -> PersistenceReconciler[Role]:
        async def persist(role: Role) -> None:
            await client.patch(Role, "ops", MergePatch({"metadata": {"labels": {"a": "b"}}}), namespace="default")
            raise ValueError("the database is away")

        return PersistenceReconciler(Role, client, on_upsert=persist, on_delete=rows.delete, finalizer=FINALIZER)

    async with Simulator(make) as sim:
        with pytest.raises(RetryError) as caught:
            await sim.create(role())
        assert causes(caught.value) == [ValueError, ConflictError]
        sim.clear()


async def test_what_the_hook_says_about_retries_counts() -> None:
    rows = Rows()
    rows.raises(TerminalError("never"), RetryError("soon", requeue_after=timedelta(seconds=1)))
    async with Simulator(operator(rows)) as sim:
        with pytest.raises(TerminalError, match="never"):
            await sim.create(role())
        assert ready(await stored(sim))[1] == "PersistFailed"
        with pytest.raises(RetryError, match="soon") as caught:
            await sim.reconcile()
        assert caught.value.requeue_after == timedelta(seconds=1)
        sim.clear()


async def test_error_texts_can_be_redacted() -> None:
    rows = Rows()
    rows.raises(ValueError("password is hunter2"))

    def make(client: Client) -> PersistenceReconciler[Role]:
        return PersistenceReconciler(
            Role,
            client,
            on_upsert=rows.persist,
            on_delete=rows.delete,
            finalizer=FINALIZER,
            redact=lambda text: text.replace("hunter2", "***"),
        )

    async with Simulator(make) as sim:
        with pytest.raises(RetryError) as caught:
            await sim.create(role())
        assert "hunter2" not in str(caught.value)
        assert ready(await stored(sim))[2] == "password is ***"
        assert [event.message for event in sim.events] == ["password is ***"]
        sim.clear()


@pytest.mark.parametrize("kind", ["terminal", "retry", "conflict", "not_ready"])
async def test_no_log_and_no_error_shows_what_was_redacted(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    errors: dict[str, Exception] = {
        "terminal": TerminalError("password is hunter2"),
        "retry": RetryError("password is hunter2", requeue_after=timedelta(seconds=1)),
        "conflict": ExceptionGroup("password is hunter2", [duplicate()]),
        "not_ready": NotReadyError("Locked", "password is hunter2"),
    }
    rows = Rows()
    rows.raises(errors[kind])

    def make(client: Client) -> PersistenceReconciler[Role]:
        return PersistenceReconciler(
            Role,
            client,
            on_upsert=rows.persist,
            on_delete=rows.delete,
            on_conflict=rows.make_way,
            finalizer=FINALIZER,
            redact=lambda text: text.replace("hunter2", "***"),
        )

    with caplog.at_level(logging.DEBUG, logger="opsdk.persistence"):
        async with Simulator(make) as sim:
            if kind in {"terminal", "retry"}:
                with pytest.raises((TerminalError, RetryError), match=r"password is \*\*\*"):
                    await sim.create(role())
            else:
                await sim.create(role())
            sim.clear()
    assert "hunter2" not in caplog.text


# ---- unique constraints


async def test_an_own_predicate_says_what_a_conflict_is() -> None:
    rows = Rows()
    rows.raises(KeyError("taken"))

    def make(client: Client) -> PersistenceReconciler[Role]:
        return PersistenceReconciler(
            Role,
            client,
            on_upsert=rows.persist,
            on_delete=rows.delete,
            on_conflict=rows.make_way,
            is_conflict=lambda error: isinstance(error, KeyError),
            finalizer=FINALIZER,
        )

    async with Simulator(make) as sim:
        await created(sim)
        sim.clear()
        assert rows.calls == ["upsert", "conflict"]


async def test_a_violated_unique_constraint_makes_way_and_comes_back_soon() -> None:
    rows = Rows()
    rows.raises(duplicate(), None)
    async with Simulator(operator(rows, on_conflict=rows.make_way)) as sim:
        await created(sim)
        assert rows.calls == ["upsert", "conflict"]
        started = sim.clock.now()
        await sim.settle()
        assert sim.clock.now() - started == timedelta(0)  # our own finalizer is an event, too
        assert rows.calls == ["upsert", "conflict", "upsert", "upsert"]
        sim.expect_status_update(Role, matching(is_ready("True", "Synced")))


async def test_making_way_is_no_failure_and_waits_fifteen_seconds() -> None:
    rows = Rows()
    rows.raises(duplicate())
    async with Simulator(operator(rows, on_conflict=rows.make_way)) as sim:
        await created(sim)
        assert (await sim.reconcile()).requeue_after == timedelta(seconds=15)


async def test_when_making_way_fails_both_errors_are_told_and_five_minutes_pass() -> None:
    rows = Rows()
    rows.raises(duplicate())

    async def fails(role: Role) -> None:
        raise NotReadyError("Locked", "the stale row is locked")  # an ordinary error here

    async with Simulator(operator(rows, on_conflict=fails)) as sim:
        with pytest.raises(RetryError) as caught:
            await sim.create(role())
        assert caught.value.requeue_after == timedelta(minutes=5)
        assert causes(caught.value) == [sqlite3.IntegrityError, NotReadyError]
        assert ready(await stored(sim))[1:] == ("PersistFailed", "on_conflict: Locked: the stale row is locked")
        sim.clear()


async def test_without_on_conflict_a_violated_constraint_is_a_failure() -> None:
    rows = Rows()
    rows.raises(duplicate())
    async with Simulator(operator(rows)) as sim:
        with pytest.raises(RetryError, match="PersistFailed"):
            await sim.create(role())
        sim.clear()


# ---- deletion


async def test_deletion_removes_the_row_then_the_finalizer_then_tells() -> None:
    rows = Rows()
    async with Simulator(operator(rows)) as sim:
        await created(sim)
        uid = (await stored(sim)).metadata.uid
        sim.clear()
        await sim.fake_client.delete(Role, "ops", namespace="default")
        await sim.reconcile()
        sim.expect_patch(Role)
        sim.expect_event("Deleted", type="Normal")
        assert rows.calls[-1] == f"delete {uid}"
        assert rows.rows == {}
        assert await sim.fake_client.find(Role, "ops", namespace="default") is None


async def test_a_failed_deletion_keeps_the_finalizer_and_is_retried_after_two_minutes() -> None:
    rows = Rows()
    async with Simulator(operator(rows)) as sim:
        await created(sim)
        sim.clear()
        await sim.fake_client.delete(Role, "ops", namespace="default")
        rows.raises(NotReadyError("Busy", "later"))  # an ordinary error here
        with pytest.raises(RetryError, match="DeleteFailed") as caught:
            await sim.reconcile()
        assert caught.value.requeue_after == timedelta(minutes=2)
        sim.expect_status_update(Role, matching(is_ready("False", "DeleteFailed")))
        assert (await stored(sim)).metadata.finalizers == [FINALIZER]


class RefusesPatches:
    """A transport to a server that answers 500 to patches, as long as `refuses`."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.refuses = False

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        if self.refuses and request.method == "PATCH":
            return HttpResponse(status=500, headers={}, body=b"not now")
        return await self._inner.request(request)

    def stream(self, request: HttpRequest, /) -> AbstractAsyncContextManager[HttpStream]:
        return self._inner.stream(request)

    async def aclose(self) -> None: ...


async def test_deleted_is_told_only_when_the_finalizer_is_gone() -> None:
    rows, key = Rows(), Request("ops", "default")
    async with ApiServer() as server:
        await server.install(Role)
        transport = RefusesPatches(server.transport())
        reconciler = operator(rows)(ApiClient(transport))
        client = server.client()
        await client.create(Role(metadata=ObjectMeta(name="ops", namespace="default"), spec=RoleSpec()))
        await reconciler.reconcile(key)
        await client.delete(Role, "ops", namespace="default")
        transport.refuses = True
        with pytest.raises(ServerError):
            await reconciler.reconcile(key)
        assert [event.reason for event in await client.list(Event, namespace="default")] == ["Created"]
        transport.refuses = False
        await reconciler.reconcile(key)
        await reconciler.reconcile(key)
        events = sorted(event.reason or "" for event in await client.list(Event, namespace="default"))
        assert events == ["Created", "Deleted"]
        assert len([call for call in rows.calls if call.startswith("delete")]) == 2  # and not again once it is gone


async def test_a_deleted_object_without_our_finalizer_is_not_our_business() -> None:
    rows = Rows()
    async with Simulator(operator(rows)) as sim:
        await created(sim)
        sim.clear()
        patch = MergePatch({"metadata": {"finalizers": ["other.example.com/finalizer"]}})
        await sim.fake_client.patch(Role, "ops", patch, namespace="default")
        await sim.fake_client.delete(Role, "ops", namespace="default")
        await sim.reconcile()
        assert rows.calls == ["upsert"]
        await sim.fake_client.patch(Role, "ops", MergePatch({"metadata": {"finalizers": None}}), namespace="default")


async def test_o04_finalizers_of_others_stand() -> None:
    rows = Rows()
    async with Simulator(operator(rows)) as sim:
        await created(sim)
        sim.clear()
        patch = MergePatch({"metadata": {"finalizers": [FINALIZER, "other.example.com/finalizer"]}})
        await sim.fake_client.patch(Role, "ops", patch, namespace="default")
        await sim.fake_client.delete(Role, "ops", namespace="default")
        await sim.reconcile()
        sim.clear()
        assert (await stored(sim)).metadata.finalizers == ["other.example.com/finalizer"]


# ---- malformed objects


class LooseSpec(Model):
    scope: str | int = "s"


class LooseRole(CustomResource[LooseSpec, RoleStatus], group="demo.example.com", version="v1", kind="Role"):
    """The same kind as its CRD has it; the operator's model wants more."""


async def test_w10_a_malformed_object_is_reported_once_and_can_still_be_deleted() -> None:
    rows = Rows()
    async with Simulator(operator(rows), install=[LooseRole]) as sim:
        await created(sim)
        sim.clear()
        uid = (await stored(sim)).metadata.uid
        await sim.fake_client.patch(LooseRole, "ops", MergePatch({"spec": {"scope": 7}}), namespace="default")
        for _ in range(2):
            with pytest.raises(TerminalError, match=r"spec\.scope"):
                await sim.reconcile()
        assert [event.reason for event in sim.events] == ["MalformedResource"]
        assert not sim.actions

        await sim.fake_client.delete(LooseRole, "ops", namespace="default")
        await sim.reconcile()
        assert rows.calls[-1] == f"delete {uid}"
        sim.expect_patch(LooseRole)
        assert await sim.fake_client.find(LooseRole, "ops", namespace="default") is None


# ---- hooks


async def test_plain_functions_run_in_worker_threads() -> None:
    threads: list[int] = []

    def persist(role: Role) -> None:
        threads.append(threading.get_ident())

    def delete(uid: str) -> None:
        threads.append(threading.get_ident())

    def make(client: Client) -> PersistenceReconciler[Role]:
        return PersistenceReconciler(Role, client, on_upsert=persist, on_delete=delete, finalizer=FINALIZER)

    async with Simulator(make) as sim:
        await sim.create(role())
        await sim.fake_client.delete(Role, "ops", namespace="default")
        await sim.reconcile()
        sim.clear()
    assert len(threads) == 2
    assert threading.get_ident() not in threads


async def test_a_plain_function_that_returns_a_coroutine_is_awaited() -> None:
    rows = Rows()

    def make(client: Client) -> PersistenceReconciler[Role]:
        return PersistenceReconciler(
            Role,
            client,
            on_upsert=lambda role: rows.persist(role),  # noqa: PLW0108 - what is tested
            on_delete=lambda uid: rows.delete(uid),  # noqa: PLW0108 - what is tested
            finalizer=FINALIZER,
        )

    async with Simulator(make) as sim:
        await created(sim)
        sim.clear()
    assert rows.calls == ["upsert"]


async def test_after_a_cancelled_pass_no_second_thread_starts_while_the_first_runs() -> None:
    release, entered = threading.Event(), threading.Event()

    def persist(role: Role) -> None:
        entered.set()
        release.wait(10)

    def delete(uid: str) -> None: ...

    def make(client: Client) -> PersistenceReconciler[Role]:
        return PersistenceReconciler(Role, client, on_upsert=persist, on_delete=delete, finalizer=FINALIZER)

    async with Simulator(make) as sim:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sim.create, role())
            await anyio.to_thread.run_sync(entered.wait, 10)
            tasks.cancel_scope.cancel()
        with pytest.raises(RetryError, match="still runs"):
            await sim.reconcile("ops")
        release.set()
        sim.clear()


# ---- status patches of the object's own


class Patching(CustomResource[RoleSpec, RoleStatus], group="demo.example.com", version="v1"):
    def generate_status_patch(self, previous: Patching) -> MergePatch | JsonPatch | None:
        match self.spec.scope:
            case "merge":
                return MergePatch({"status": {"note": f"was {previous.status.note!r}"}, "spec": {"scope": "x"}})
            case "json":
                return JsonPatch([{"op": "add", "path": "/status", "value": {"note": "json"}}])
            case "wrong":
                return JsonPatch([{"op": "remove", "path": "/spec"}])
            case _:
                return None


def patching(client: Client) -> PersistenceReconciler[Patching]:
    async def persist(obj: Patching) -> None:
        obj.status.note = "changed by the hook, and not written by itself"

    async def delete(uid: str) -> None: ...

    return PersistenceReconciler(Patching, client, on_upsert=persist, on_delete=delete, finalizer=FINALIZER)


@pytest.mark.parametrize(("scope", "note"), [("merge", "was ''"), ("json", "json"), ("none", "")])
async def test_an_object_may_say_itself_what_is_written_to_its_status(scope: str, note: str) -> None:
    async with Simulator(patching) as sim:
        made = await sim.create(Patching(metadata=ObjectMeta(name="p"), spec=RoleSpec(scope=scope)))
        assert (made.status.note, made.spec.scope) == (note, scope)
        sim.clear()


async def test_its_patch_may_only_change_status() -> None:
    async with Simulator(patching) as sim:
        with pytest.raises(ObjectError, match="/spec"):
            await sim.create(Patching(metadata=ObjectMeta(name="p"), spec=RoleSpec(scope="wrong")))
        sim.clear()


@pytest.mark.parametrize("scope", ["merge", "json"])
async def test_its_patch_meets_our_precondition(scope: str) -> None:
    async def delete(uid: str) -> None: ...

    def make(client: Client) -> PersistenceReconciler[Patching]:
        async def persist(obj: Patching) -> None:  # somebody else writes meanwhile
            await client.patch(Patching, "p", MergePatch({"metadata": {"labels": {"a": "b"}}}), namespace="default")

        return PersistenceReconciler(Patching, client, on_upsert=persist, on_delete=delete, finalizer=FINALIZER)

    async with Simulator(make) as sim:
        with pytest.raises(ApiStatusError) as caught:
            await sim.create(Patching(metadata=ObjectMeta(name="p"), spec=RoleSpec(scope=scope)))
        assert caught.value.code in {409, 422}  # a merge patch conflicts, a JSON patch's test fails
        assert (await sim.fake_client.get(Patching, "p", namespace="default")).status.note == ""
        sim.clear()


# ---- enqueue and resync


class Sink:
    def __init__(self) -> None:
        self.added: list[str] = []

    def add(self, key: Request) -> None:
        self.added.append(str(key))

    def add_after(self, key: Request, delay: timedelta) -> None:
        self.added.append(f"{key} in {delay}")


async def test_resync_enqueues_what_matches() -> None:
    async with Simulator(operator(Rows())) as sim:
        for name, labels in (("a", {"team": "sre"}), ("b", {"team": "web"})):
            await sim.create(Role(metadata=ObjectMeta(name=name, labels=labels), spec=RoleSpec()))
        await sim.create(Role(metadata=ObjectMeta(name="c", namespace="staging"), spec=RoleSpec()))
        sim.clear()
        reconciler, sink = operator(Rows())(sim.fake_client), Sink()
        reconciler.attach(sink)
        await reconciler.resync()
        await reconciler.resync(namespace="staging", labels={})
        await reconciler.resync(labels={"team": "sre"})
        reconciler.enqueue("staging", "c")
        reconciler.enqueue(None, "cluster-scoped")
        everything = ["default/a", "default/b", "staging/c"]
        assert sink.added == [*everything, "staging/c", "default/a", "staging/c", "cluster-scoped"]


class BadSecondPage:
    """A transport to a server whose pages have two objects, and whose second page never comes, or comes as an error."""

    def __init__(self, inner: Transport, *, answers: bool) -> None:
        self._inner = inner
        self._answers = answers

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        if any(name == "continue" for name, _ in request.query):
            if not self._answers:
                await anyio.sleep_forever()
            return HttpResponse(status=500, headers={}, body=b"no second page")
        query = tuple((name, "2" if name == "limit" else value) for name, value in request.query)
        return await self._inner.request(replace(request, query=query))

    def stream(self, request: HttpRequest, /) -> AbstractAsyncContextManager[HttpStream]:
        return self._inner.stream(request)

    async def aclose(self) -> None: ...


@asynccontextmanager
async def three_roles_in_bad_pages(*, answers: bool) -> AsyncGenerator[tuple[PersistenceReconciler[Role], Sink]]:
    async with ApiServer() as server:
        await server.install(Role)
        for name in ("a", "b", "c"):
            await server.client().create(Role(metadata=ObjectMeta(name=name, namespace="default"), spec=RoleSpec()))
        client = ApiClient(BadSecondPage(server.transport(), answers=answers))
        reconciler, sink = operator(Rows())(client), Sink()
        reconciler.attach(sink)
        yield reconciler, sink


async def test_an_error_of_the_list_surfaces_and_what_was_enqueued_stays() -> None:
    async with three_roles_in_bad_pages(answers=True) as (reconciler, sink):
        with pytest.raises(ServerError):
            await reconciler.resync()
        assert sink.added == ["default/a", "default/b"]


async def test_a_cancelled_resync_ends_and_what_was_enqueued_stays() -> None:
    async with three_roles_in_bad_pages(answers=False) as (reconciler, sink):
        with anyio.move_on_after(5) as scope:
            await reconciler.resync()
        assert scope.cancelled_caught
        assert sink.added == ["default/a", "default/b"]


async def test_a_reconciler_that_was_never_set_up_says_so() -> None:
    async with Simulator(operator(Rows())) as sim:
        reconciler = operator(Rows())(sim.fake_client)
        with pytest.raises(ManagerError, match="setup_reconciler"):
            reconciler.enqueue("staging", "ops")
        with pytest.raises(ManagerError, match="setup_reconciler"):
            await reconciler.resync()


@pytest.mark.parametrize("finalizer", ["", "has space", "/x", "x/"])
async def test_an_impossible_finalizer_is_refused(finalizer: str) -> None:
    rows = Rows()
    async with Simulator(operator(rows)) as sim:
        with pytest.raises(ValueError, match="finalizer"):
            PersistenceReconciler(
                Role, sim.fake_client, on_upsert=rows.persist, on_delete=rows.delete, finalizer=finalizer
            )
