"""Who is going to write a status."""

from __future__ import annotations

from lightkube.models.meta_v1 import Condition

from opsdk.models import set_condition
from opsdk.models.status_pass import status_pass, status_pass_of


def test_a_pass_keeps_what_helpers_set_in_its_list() -> None:
    conditions: list[Condition] = []
    others: list[Condition] = []
    with status_pass(conditions) as current:
        set_condition(conditions, type="Ready", status="True", reason="Here")
        set_condition(others, type="Other", status="True", reason="Elsewhere")
        set_condition(conditions, type="Ready", status="False", reason="Changed")
    assert {name: kept.reason for name, kept in current.kept.items()} == {"Ready": "Changed"}


def test_a_list_is_told_by_identity_not_by_what_it_holds() -> None:
    conditions: list[Condition] = []
    with status_pass(conditions) as current:
        assert status_pass_of(conditions) is current
        assert status_pass_of([]) is None
    assert status_pass_of(conditions) is None


def test_passes_over_several_objects_may_be_nested() -> None:
    outer: list[Condition] = []
    inner: list[Condition] = []
    with status_pass(outer) as first, status_pass(inner) as second:
        assert status_pass_of(outer) is first
        assert status_pass_of(inner) is second
