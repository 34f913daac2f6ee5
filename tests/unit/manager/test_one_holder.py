"""Of all replicas, at most one may write at a time: to anything, with leader election; to each object, with sharding.

Invariants, under every schedule of pauses, partitions, errors, lost answers, ends, deaths and starts, with clocks whose
speeds differ within lease_duration / renew_deadline:

- never have two replicas the right to write to one object at the same time,
- no write takes effect of a replica while another one has the right, although writes have no precondition and are not
  cancelled,
- when the world is healed, each object has a holder, and that one writes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsdk.manager._shares import Shares
from opsdk.manager.sharding import ShardMembership
from opsdk.testing.virtual_time import BackendOptions, virtual_asyncio_options, virtual_trio_options
from shard_world import Action, Candidate, Event, Member, World

BACKENDS = [virtual_asyncio_options, virtual_trio_options]
ACTIONS: list[Action] = ["pause", "cut", "errors", "lose_answers", "slow", "heal", "end", "die", "start"]
EVENTS = st.lists(
    st.builds(Event, st.sampled_from([0.1, 1.0, 3.0, 9.5, 12.0, 25.0]), st.integers(0, 2), st.sampled_from(ACTIONS)),
    max_size=14,
)
RATES = st.lists(st.sampled_from([1.0, 1.1, 1.3, 1.45]), min_size=3, max_size=3)
OBJECTS = tuple(f"object-{number}" for number in range(5))

FIRST_HANGS = [Event(10.3, 0, "pause"), Event(28.3, 0, "heal")]
FIRST_HANGS_TWICE = [Event(10.0, 0, "pause"), Event(28.3, 0, "heal"), Event(10.0, 0, "pause"), Event(20.3, 0, "heal")]
HANGS: list[tuple[float, Action]] = [(10.3, "pause"), (28.3, "heal")]
EACH_HANGS = [Event(after, number, action) for number in range(3) for after, action in HANGS]


def play(world: World, events: list[Event], backend: Callable[[], BackendOptions] = virtual_asyncio_options) -> World:
    name, options = backend()
    anyio.run(partial(world.play, events), backend=name, backend_options=options)
    return world


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=8, deadline=None)
@given(events=EVENTS, rates=RATES)
def test_at_most_one_replica_leads_and_one_does_in_the_end(
    backend: Callable[[], BackendOptions], events: list[Event], rates: list[float]
) -> None:
    world = play(World(Candidate, rates, OBJECTS[:1]), events, backend)
    assert world.violations == []


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=8, deadline=None)
@given(events=EVENTS, rates=RATES, job_seconds=st.sampled_from([0.4, 2.5, 8.0]))
def test_at_most_one_replica_holds_an_object_and_one_does_in_the_end(
    backend: Callable[[], BackendOptions], events: list[Event], rates: list[float], job_seconds: float
) -> None:
    world = play(World(Member, rates, OBJECTS, job_seconds), events, backend)
    assert world.violations == []


@pytest.mark.parametrize("make", [Candidate, Member])
@pytest.mark.parametrize("events", [FIRST_HANGS_TWICE, EACH_HANGS])
def test_replicas_that_hang_beyond_their_leases_write_nothing_late(
    make: type[Candidate | Member], events: list[Event]
) -> None:
    assert play(World(make, [1.0, 1.45, 1.2], OBJECTS), events).violations == []


@pytest.mark.parametrize("action", ["delete_view", "delete_lease"])
@pytest.mark.parametrize("ill", ["pause", "cut", "heal"])
def test_leases_that_a_person_deletes_make_no_second_owner(action: Action, ill: Action) -> None:
    events = [
        event
        for number in range(3)
        for event in (
            Event(10.0, number, ill),
            Event(1.0, number, action),
            Event(0.3, (number + 1) % 3, "end"),  # so that there is something to divide anew
            Event(1.0, (number + 1) % 3, "start"),
            Event(9.0, number, "heal"),
        )
    ]
    assert play(World(Member, [1.0, 1.3, 1.0], OBJECTS, job_seconds=2.5), events).violations == []


# Tests of these tests: they see what is wrong.

MANY = tuple(f"object-{number}" for number in range(16))  # so that each replica surely has some of them


@pytest.mark.parametrize("make", [Candidate, Member])
def test_without_the_gate_late_writes_are_seen(make: type[Candidate | Member]) -> None:
    world = play(World(partial(make, gated=False), [1.0, 1.0, 1.0], MANY), FIRST_HANGS)
    assert any("wrote" in violation for violation in world.violations)


@pytest.mark.parametrize("make", [Candidate, Member])
def test_a_deadline_that_is_too_long_is_seen(make: type[Candidate | Member]) -> None:
    """A clock that runs at half speed doubles the deadline: 20 s, when others wait for 15."""
    cut = [Event(10.0, 0, "cut"), Event(30.0, 0, "heal")]
    assert play(World(make, [0.5, 1.0, 1.0], MANY), cut).violations


def _always(*_: object) -> bool:
    return True


@pytest.mark.parametrize(
    ("owner", "name", "fault"),
    [(Shares, "given_up", property(_always)), (ShardMembership, "_all_clear", staticmethod(_always))],
    ids=["acknowledged too early", "not waited for others"],
)
def test_a_hand_over_that_does_not_wait_is_seen(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, fault: object
) -> None:
    monkeypatch.setattr(owner, name, fault)
    actions: list[Action] = ["end", "start"]
    events = [Event(8.0, number, action) for number in range(3) for action in actions]
    assert play(World(Member, [1.0, 1.0, 1.0], MANY, job_seconds=2.5), events).violations
