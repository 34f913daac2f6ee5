"""What a machine remembers between passes."""

from __future__ import annotations

from datetime import UTC, datetime

from opsdk.statemachine._memory import Memory

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_what_was_remembered_of_another_state_is_forgotten() -> None:
    memory = Memory()
    memory.of("uid", "a").due = NOW
    assert memory.peek("uid", "b") is None
    assert memory.of("uid", "b").due is None
    assert memory.peek("uid", "a") is None


def test_q11_memory_is_bounded_and_the_least_recent_goes_first() -> None:
    memory = Memory(limit=2)
    memory.of("one", "a")
    memory.of("two", "a")
    memory.of("one", "a")
    memory.of("three", "a")
    assert len(memory) == 2
    assert memory.peek("two", "a") is None
    assert memory.peek("one", "a") is not None


def test_an_object_can_be_forgotten() -> None:
    memory = Memory()
    memory.of("uid", "a")
    memory.forget("uid")
    memory.forget("uid")
    assert len(memory) == 0
