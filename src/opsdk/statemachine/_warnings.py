"""What is allowed in a state graph and still looks like a mistake."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

__all__ = ["graph_warnings"]

_DELETION_NAMES: Final = frozenset({"deleting", "deleted", "terminating", "terminated"})


def graph_warnings(
    initial: str, edges: Mapping[str, frozenset[str]], *, terminal: frozenset[str], deletion_state: str | None
) -> Iterator[str]:
    """Warnings about the shape of a graph.

    Args:
        initial: Where objects start.
        edges: Each state, and those that its transitions lead to.
        terminal: The states that are marked so.
        deletion_state: Where objects go when they are deleted, from any other state.
    """
    if initial == deletion_state:
        yield f"state {initial!r} is both the initial and the deletion state; `enter` does not run again at deletion"
    reached = _reachable({initial} if deletion_state is None else {initial, deletion_state}, edges)
    for name in edges:
        if name not in reached:
            yield f"state {name!r} cannot be reached from {initial!r}"
    for name, targets in edges.items():
        if name == deletion_state:
            if targets:
                yield f"state {name!r} is the deletion state; its transitions are not taken while the object is deleted"
        elif not targets - {name} and name not in terminal:
            yield f"state {name!r} is never left; mark it with terminal=True if that is meant"
        elif targets - {name} and name in terminal:
            yield f"state {name!r} is marked terminal and has transitions"
    if deletion_state is None:
        yield from _deletion_warnings(edges)


def _deletion_warnings(edges: Mapping[str, frozenset[str]]) -> Iterator[str]:
    """Without a deletion state, the author's own transitions lead to deletion, by the name that states for it have."""
    ends = {name for name in edges if name.lower() in _DELETION_NAMES}
    if not ends:
        return
    for name in edges:
        if not _reachable({name}, edges) & ends:
            yield f"deletion ({', '.join(sorted(ends))}) cannot be reached from state {name!r}"


def _reachable(start: set[str], edges: Mapping[str, frozenset[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = list(start)
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting.extend(edges.get(name, ()))
    return reached
