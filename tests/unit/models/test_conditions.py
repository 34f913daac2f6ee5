"""Conditions follow the API conventions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from lightkube.models.meta_v1 import Condition

from opsdk import clock
from opsdk.models import find_condition, is_condition_true, set_condition
from opsdk.models.conditions import MAX_MESSAGE
from opsdk.types import ConditionStatus

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(hours=1)


def ready(status: ConditionStatus = "True", reason: str = "Up", generation: int | None = None) -> list[Condition]:
    conditions: list[Condition] = []
    assert set_condition(
        conditions, type="Ready", status=status, reason=reason, observed_generation=generation, now=NOON
    )
    return conditions


def test_a_condition_that_is_not_there_is_added_and_others_stay() -> None:
    conditions = ready()
    assert set_condition(conditions, type="Synced", status="False", reason="Later", message="soon", now=LATER)
    assert conditions == [
        Condition(type="Ready", status="True", reason="Up", message="", lastTransitionTime=NOON),
        Condition(type="Synced", status="False", reason="Later", message="soon", lastTransitionTime=LATER),
    ]


def test_setting_what_is_already_so_changes_nothing() -> None:
    conditions = ready(generation=2)
    assert not set_condition(conditions, type="Ready", status="True", reason="Up", observed_generation=2, now=LATER)
    assert conditions == ready(generation=2)


def test_the_transition_time_moves_only_with_the_status() -> None:
    conditions = ready()
    assert set_condition(conditions, type="Ready", status="True", reason="Other", message="m", now=LATER)
    assert conditions[0].lastTransitionTime == NOON
    assert set_condition(conditions, type="Ready", status="False", reason="Other", message="m", now=LATER)
    assert conditions[0].lastTransitionTime == LATER


def test_the_observed_generation_is_kept_unless_it_is_given() -> None:
    conditions = ready(generation=2)
    assert not set_condition(conditions, type="Ready", status="True", reason="Up", now=LATER)
    assert conditions[0].observedGeneration == 2
    assert set_condition(conditions, type="Ready", status="True", reason="Up", observed_generation=3, now=LATER)
    assert (conditions[0].observedGeneration, conditions[0].lastTransitionTime) == (3, NOON)


def test_the_time_is_the_clocks_in_utc_and_whole_seconds() -> None:
    conditions: list[Condition] = []
    moment = datetime(2026, 1, 1, 14, 0, 0, 5, tzinfo=timezone(timedelta(hours=2)))
    with clock.using(clock.ManualClock(moment)):
        set_condition(conditions, type="Ready", status="True", reason="Up")
    assert conditions[0].lastTransitionTime == NOON
    assert conditions[0].lastTransitionTime.tzinfo is UTC


def test_a_long_message_is_cut_to_what_the_api_takes() -> None:
    conditions: list[Condition] = []
    set_condition(conditions, type="Ready", status="True", reason="Up", message="ä" * (MAX_MESSAGE + 1), now=NOON)
    assert len(conditions[0].message) == MAX_MESSAGE
    assert not set_condition(
        conditions, type="Ready", status="True", reason="Up", message="ä" * (MAX_MESSAGE + 1), now=NOON
    )


@pytest.mark.parametrize("type_", ["", "Not Ready", "-Ready", "Example.com/", "a" * 317])
def test_a_type_that_the_api_refuses_is_refused(type_: str) -> None:
    with pytest.raises(ValueError, match="condition type"):
        set_condition([], type=type_, status="True", reason="Up", now=NOON)


@pytest.mark.parametrize("reason", ["", "not a word", "1st", "a" * 1025])
def test_a_reason_that_the_api_refuses_is_refused(reason: str) -> None:
    with pytest.raises(ValueError, match="condition Ready: reason"):
        set_condition([], type="Ready", status="True", reason=reason, now=NOON)


def test_a_naive_time_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        set_condition([], type="Ready", status="True", reason="Up", now=datetime(2026, 1, 1))  # noqa: DTZ001 - the subject


def test_conditions_are_found_by_type() -> None:
    conditions = ready()
    assert find_condition(conditions, "Ready") is conditions[0]
    assert find_condition(conditions, "Other") is None
    assert find_condition(None, "Ready") is None
    assert is_condition_true(conditions, "Ready")
    assert not is_condition_true(ready("False"), "Ready")
    assert not is_condition_true([], "Ready")
