"""In which order kinds come and go, by what each of them comes after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import final

import msgspec

__all__ = ["Order", "find_cycle", "order_of"]


@final
class Order(msgspec.Struct, frozen=True, kw_only=True):
    """Kinds by their position in the declaration.

    Args:
        coming: All, each after what it comes after; else as declared.
        going: All, each after what comes after it; else as declared.
        needs: Of each, what it comes after by its own declaration.
        dependents: Of each, what comes after it, however many steps away.
    """

    coming: tuple[int, ...]
    going: tuple[int, ...]
    needs: tuple[frozenset[int], ...]
    dependents: tuple[frozenset[int], ...]


def find_cycle(after: Mapping[int, Sequence[int]]) -> list[int]:
    """A cycle, first member repeated at the end, each coming after the next; empty when there is none."""
    try:
        TopologicalSorter(after).prepare()
    except CycleError as error:
        cycle: list[int] = list(reversed(error.args[1]))
        return cycle
    return []


def order_of(after: Sequence[Sequence[int]]) -> Order:
    """The order, from what each kind comes after. There must be no cycle."""
    needs = tuple(frozenset(entry) for entry in after)
    followers = tuple(frozenset(i for i, entry in enumerate(needs) if number in entry) for number in range(len(needs)))
    going = _sorted(followers)
    dependents: list[frozenset[int]] = [frozenset()] * len(needs)
    for number in going:  # what comes after it has its own by now
        dependents[number] = followers[number].union(*(dependents[follower] for follower in followers[number]))
    return Order(coming=_sorted(needs), going=going, needs=needs, dependents=tuple(dependents))


def _sorted(needs: Sequence[frozenset[int]]) -> tuple[int, ...]:
    """Each as early as its needs allow, otherwise as declared."""
    left = list(range(len(needs)))
    done: list[int] = []
    while left:
        following = next(number for number in left if needs[number] <= set(done))
        left.remove(following)
        done.append(following)
    return tuple(done)
