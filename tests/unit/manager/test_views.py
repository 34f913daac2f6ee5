"""Rendezvous hashing: everybody agrees, shares are even, and only what has to move moves."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from opsdk.manager._views import View, winner

MEMBERS = st.sets(st.text("abcdef0123456789", min_size=4, max_size=10), min_size=1, max_size=6)
UIDS = [f"uid-{number}" for number in range(100)]


@settings(max_examples=40)
@given(members=MEMBERS, newcomer=st.text("ghij", min_size=4))
def test_a_member_that_comes_takes_from_each_and_gives_back_when_it_goes(members: set[str], newcomer: str) -> None:
    before = {uid: winner(members, uid) for uid in UIDS}
    after = {uid: winner({*members, newcomer}, uid) for uid in UIDS}
    assert all(after[uid] in {before[uid], newcomer} for uid in UIDS)


@settings(max_examples=40)
@given(members=MEMBERS)
def test_the_order_of_members_does_not_matter(members: set[str]) -> None:
    view = View.first(sorted(members))
    assert [view.owner(uid) for uid in UIDS] == [winner(sorted(members, reverse=True), uid) for uid in UIDS]


def test_shares_are_about_even() -> None:
    shares = Counter(winner(["a", "b", "c", "d"], f"uid-{number}") for number in range(4000))
    assert len(shares) == 4
    assert all(800 < share < 1200 for share in shares.values())


def test_without_members_nothing_belongs_to_anybody() -> None:
    assert View.first([]).owner("uid") is None


@settings(max_examples=40)
@given(members=MEMBERS, others=MEMBERS)
def test_a_view_survives_its_annotation_and_knows_who_is_new(members: set[str], others: set[str]) -> None:
    first = View.first(members)
    second = first.next(others)
    assert View.decode(second.encode()) == second
    assert second.epoch == first.epoch + 1
    assert {member for member, new_in in second.members.items() if new_in == second.id} == others - members
    assert not any(first.members.values()), "of a first view it is not known who is new"


@given(text=st.one_of(st.none(), st.text(), st.just('{"id": "", "epoch": 1, "members": {}}'), st.just("[]")))
def test_what_is_no_view_is_none(text: str | None) -> None:
    assert View.decode(text) is None
