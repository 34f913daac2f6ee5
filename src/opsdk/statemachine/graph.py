"""A state graph as a picture, by itself or with what happened in it laid over it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, final

import msgspec

from opsdk.statemachine.coverage import Coverage

__all__ = ["Edge", "Graph"]

_NEVER: Final = "never"
_MERMAID_CLASSES: Final = (
    "    classDef covered fill:#e6f4ea,stroke:#1e8e3e",
    "    classDef uncovered fill:#fce8e6,stroke:#d93025,stroke-dasharray:5",
)


@final
class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """One transition.

    Args:
        source: The state left.
        target: The state entered.
        label: What makes it happen; may be empty.
        reason: What the history says when it is taken; may be empty.
    """

    source: str
    target: str
    label: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.source!r} -> {self.target!r}" + (f" ({self.label})" if self.label else "")


@final
class Graph(msgspec.Struct, frozen=True, kw_only=True):
    """The states of a machine and the transitions between them.

    Args:
        initial: Where objects start.
        states: All states, in the order of their declaration.
        terminal: The states that are marked so.
        edges: The transitions, in order of precedence.
        deletion_state: Where objects go when they are deleted, from any state; None: nowhere by itself.
        coverage: What to lay over it: the transitions that were taken. None: nothing.
        live: What to lay over it: how many objects are in each state now. None: nothing.
    """

    initial: str
    states: tuple[str, ...]
    terminal: frozenset[str]
    edges: tuple[Edge, ...]
    deletion_state: str | None
    coverage: Coverage | None = None
    live: Mapping[str, int] | None = None

    @property
    def uncovered(self) -> tuple[str, ...]:
        """What `coverage` lacks, a line for each state that was not entered and each transition that was not taken.

        Deletion counts as covered when the deletion state was entered from any state.
        """
        seen = self.coverage or Coverage()
        return (
            *(f"state {name!r} was never entered" for name in self.states if not seen.entered(name)),
            *(f"transition {edge} was never taken" for edge in self.edges if not self._taken(edge, seen)),
        )

    @property
    def mermaid(self) -> str:
        """The graph as a Mermaid state diagram."""
        ids = {name: f"s{index}" for index, name in enumerate(self.states)}
        lines = ["stateDiagram-v2"]
        lines += [f'    state "{_mermaid_text(self._named(name, " · "))}" as {ids[name]}' for name in self.states]
        lines += [
            f'    state "{_mermaid_text(name)} · {count}" as x{index}'
            for index, (name, count) in enumerate(self._strays())
        ]
        lines.append(f"    [*] --> {ids[self.initial]}{_mermaid_label('', *self._times('', self.initial))}")
        for edge in self.edges:
            label = _mermaid_label(edge.label, *self._times(edge.source, edge.target, edge.reason))
            lines.append(f"    {ids[edge.source]} --> {ids[edge.target]}{label}")
        for source, target in self._deletions():
            label = _mermaid_label("deleted", *self._times(source, target))
            lines.append(f"    {ids[source]} --> {ids[target]}{label}")
        lines += [f"    {ids[name]} --> [*]" for name in self.states if self._ends(name)]
        if self.coverage is not None:
            lines += _MERMAID_CLASSES
            lines += [
                f"    class {ids[name]} {'covered' if self.coverage.entered(name) else 'uncovered'}"
                for name in self.states
            ]
        return "\n".join(lines) + "\n"

    @property
    def dot(self) -> str:
        """The graph in Graphviz' DOT language."""
        lines = ["digraph {", "    rankdir=LR;", "    node [shape=box, style=rounded];", '    "" [shape=point];']
        for name in self.states:
            attributes = ["peripheries=2"] if self._ends(name) else []
            if self.live is not None:
                attributes.append(f"label={_dot_text(self._named(name, chr(10)))}")
            if self.coverage is not None:
                attributes.append(_dot_colour(taken=bool(self.coverage.entered(name))))
            lines.append(f"    {_dot_text(name)}{_dot_attributes(attributes)};")
        lines += [
            f'    "not in the graph {index}" [label={_dot_text(chr(10).join((name, str(count))))}, style=dotted];'
            for index, (name, count) in enumerate(self._strays())
        ]
        lines.append(self._dot_edge("", self.initial, "", ""))
        lines += [self._dot_edge(edge.source, edge.target, edge.label, edge.reason) for edge in self.edges]
        lines += [
            self._dot_edge(source, target, "deleted", None, "style=dashed") for source, target in self._deletions()
        ]
        return "\n".join([*lines, "}"]) + "\n"

    def _dot_edge(self, source: str, target: str, label: str, reason: str | None, *attributes: str) -> str:
        times = self._times(source, target, reason)
        text = " ".join(part for part in (label, *times) if part)
        every = [f"label={_dot_text(text)}"] if text else []
        every += attributes
        if times:
            every.append(_dot_colour(taken=times != (_NEVER,)))
        return f"    {_dot_text(source)} -> {_dot_text(target)}{_dot_attributes(every)};"

    def _taken(self, edge: Edge, seen: Coverage) -> int:
        return seen.count(edge.source, edge.target, edge.reason)

    def _times(self, source: str, target: str, reason: str | None = None) -> tuple[str, ...]:
        """How often a transition was taken, as a text; nothing where that is not known."""
        if self.coverage is None:
            return ()
        count = self.coverage.count(source, target, reason)
        return (f"×{count}" if count else _NEVER,)  # noqa: RUF001 - the sign of multiplication is meant

    def _named(self, state: str, separator: str) -> str:
        return state if self.live is None else f"{state}{separator}{self.live.get(state, 0)}"

    def _strays(self) -> list[tuple[str, int]]:
        """Objects in states that the graph does not have, or in none."""
        strays = {name: count for name, count in (self.live or {}).items() if count and name not in self.states}
        return [(name or "no state", count) for name, count in strays.items()]

    def _deletions(self) -> Iterator[tuple[str, str]]:
        if self.deletion_state is not None:
            for name in self.states:
                if name != self.deletion_state:
                    yield name, self.deletion_state

    def _ends(self, state: str) -> bool:
        return state in self.terminal or state == self.deletion_state


def _mermaid_label(*parts: str) -> str:
    text = " ".join(part for part in parts if part)
    return f": {_mermaid_text(text)}" if text else ""


def _mermaid_text(text: str) -> str:
    return text.replace("#", "#35;").replace('"', "#quot;").replace(":", "#58;").replace("\n", " ")


def _dot_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _dot_attributes(attributes: list[str]) -> str:
    return f" [{', '.join(attributes)}]" if attributes else ""


def _dot_colour(*, taken: bool) -> str:
    return 'color="#1e8e3e"' if taken else 'color="#d93025"'
