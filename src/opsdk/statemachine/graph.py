"""A state graph as a picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

__all__ = ["Edge", "Graph"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """One transition.

    Args:
        source: The state left.
        target: The state entered.
        label: What makes it happen; may be empty.
    """

    source: str
    target: str
    label: str


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """The states of a machine and the transitions between them.

    Args:
        initial: Where objects start.
        states: All states, in the order of their declaration.
        terminal: The states that are marked so.
        edges: The transitions, in order of precedence.
        deletion_state: Where objects go when they are deleted, from any state; None: nowhere by itself.
    """

    initial: str
    states: tuple[str, ...]
    terminal: frozenset[str]
    edges: tuple[Edge, ...]
    deletion_state: str | None

    @property
    def mermaid(self) -> str:
        """The graph as a Mermaid state diagram."""
        ids = {name: f"s{index}" for index, name in enumerate(self.states)}
        lines = ["stateDiagram-v2"]
        lines += [f'    state "{_mermaid_text(name)}" as {ids[name]}' for name in self.states]
        lines.append(f"    [*] --> {ids[self.initial]}")
        for edge in self.edges:
            label = f": {_mermaid_text(edge.label)}" if edge.label else ""
            lines.append(f"    {ids[edge.source]} --> {ids[edge.target]}{label}")
        for name in self.states:
            if self.deletion_state is not None and name != self.deletion_state:
                lines.append(f"    {ids[name]} --> {ids[self.deletion_state]}: deleted")
            if name in self.terminal or name == self.deletion_state:
                lines.append(f"    {ids[name]} --> [*]")
        return "\n".join(lines) + "\n"

    @property
    def dot(self) -> str:
        """The graph in Graphviz' DOT language."""
        lines = ["digraph {", "    rankdir=LR;", "    node [shape=box, style=rounded];", '    "" [shape=point];']
        for name in self.states:
            ends = name in self.terminal or name == self.deletion_state
            lines.append(f"    {_dot_text(name)}{' [peripheries=2]' if ends else ''};")
        lines.append(f'    "" -> {_dot_text(self.initial)};')
        for edge in self.edges:
            label = f" [label={_dot_text(edge.label)}]" if edge.label else ""
            lines.append(f"    {_dot_text(edge.source)} -> {_dot_text(edge.target)}{label};")
        if self.deletion_state is not None:
            target = _dot_text(self.deletion_state)
            lines += [
                f'    {_dot_text(name)} -> {target} [label="deleted", style=dashed];'
                for name in self.states
                if name != self.deletion_state
            ]
        return "\n".join([*lines, "}"]) + "\n"


def _mermaid_text(text: str) -> str:
    return text.replace("#", "#35;").replace('"', "#quot;").replace(":", "#58;").replace("\n", " ")


def _dot_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
