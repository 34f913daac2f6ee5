"""The two families of machine status agree on the wire and in Python."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from lightkube.models.meta_v1 import Condition

from opsdk.models import (
    AnyMachineStatus,
    MachineStatus,
    MachineStatusStruct,
    StateTransition,
    StateTransitionStruct,
)
from opsdk.models._struct_wire import encode_struct

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
READY = Condition(type="Ready", status="True", reason="Up", message="", lastTransitionTime=NOON)
FULL = {
    "state": "running",
    "observedGeneration": 3,
    "conditions": [
        {
            "type": "Ready",
            "status": "True",
            "reason": "Up",
            "message": "",
            "lastTransitionTime": "2026-01-01T12:00:00Z",
        }
    ],
    "stateHistory": [
        {"to": "start", "timestamp": "2026-01-01T12:00:00Z"},
        {"from": "start", "to": "running", "reason": "Up", "timestamp": "2026-01-01T12:00:00Z"},
    ],
    "pendingEntry": True,
}


class StructStatus(MachineStatusStruct):
    ready_replicas: int = 0


def written(status: AnyMachineStatus) -> object:
    if isinstance(status, MachineStatus):
        return json.loads(status.model_dump_json(exclude_none=True))
    return msgspec.json.decode(encode_struct(status))


def full(status: AnyMachineStatus) -> AnyMachineStatus:
    status.state = "running"
    status.observed_generation = 3
    status.conditions.append(READY)
    if isinstance(status, MachineStatus):
        status.state_history.append(StateTransition(to="start", timestamp=NOON))
        status.state_history.append(StateTransition(from_="start", to="running", reason="Up", timestamp=NOON))
    else:
        status.state_history.append(StateTransitionStruct(to="start", timestamp=NOON))
        status.state_history.append(StateTransitionStruct(from_="start", to="running", reason="Up", timestamp=NOON))
    status.pending_entry = True
    return status


@pytest.mark.parametrize("family", [MachineStatus, MachineStatusStruct, StructStatus])
def test_an_empty_status_is_empty_on_the_wire(family: type[AnyMachineStatus]) -> None:
    assert written(family()) == {}


@pytest.mark.parametrize("family", [MachineStatus, MachineStatusStruct, StructStatus])
def test_both_families_write_the_same(family: type[AnyMachineStatus]) -> None:
    assert written(full(family())) == FULL


def test_both_families_read_the_same() -> None:
    text = json.dumps(FULL)
    pydantic = MachineStatus.model_validate_json(text)
    struct = msgspec.json.decode(text, type=MachineStatusStruct)
    assert pydantic == full(MachineStatus())
    assert struct == full(MachineStatusStruct())
    assert [(t.from_, t.to, t.reason) for t in pydantic.state_history] == [
        ("", "start", ""),
        ("start", "running", "Up"),
    ]


def test_a_struct_status_of_an_author_spells_its_own_fields_in_camel_case() -> None:
    assert written(StructStatus(state="a", ready_replicas=2)) == {"state": "a", "readyReplicas": 2}


def test_timestamps_lose_their_fraction_and_become_utc() -> None:
    moment = datetime(2026, 1, 1, 14, 0, 5, 999_999, tzinfo=timezone(timedelta(hours=2)))
    transition = StateTransition(to="a", timestamp=moment)
    assert transition.timestamp == datetime(2026, 1, 1, 12, 0, 5, tzinfo=UTC)
    struct = MachineStatusStruct(state_history=[StateTransitionStruct(to="a", timestamp=moment)])
    assert written(struct) == {"stateHistory": [{"to": "a", "timestamp": "2026-01-01T12:00:05Z"}]}


def test_a_naive_timestamp_is_refused() -> None:
    naive = datetime(2026, 1, 1)  # noqa: DTZ001 - the subject
    with pytest.raises(ValueError, match="timezone"):
        StateTransition(to="a", timestamp=naive)
    with pytest.raises(ValueError, match=r"stateHistory\[0\]\.timestamp: .*no time zone"):
        encode_struct(MachineStatusStruct(state_history=[StateTransitionStruct(to="a", timestamp=naive)]))
