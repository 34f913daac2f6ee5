"""What one run of a campaign does to a resource."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from opsdk.patches import describe_difference
from opsdk.testing.campaigns._mutations import Violation, violations
from opsdk.testing.campaigns._strategies import canonical
from opsdk.testing.campaigns._variants import union_in
from opsdk.types import Json, JsonObject

__all__ = ["Plan", "Step", "plans"]

_PAUSES: tuple[float | None, ...] = (None, 0.0, 0.05, 1.0)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One spec that a user asks for.

    Args:
        spec: The whole spec.
        pause_seconds: How long the user leaves it so; None: until the operator is at rest.
    """

    spec: JsonObject
    pause_seconds: float | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A resource's life.

    Args:
        steps: What is asked for, one after the other; the first one creates it.
        deleted_at_work: Whether it is deleted as soon as the last step's pause is over, without waiting for rest.
        invalid: Specs that must be refused at the end.
    """

    steps: tuple[Step, ...]
    deleted_at_work: bool = False
    invalid: tuple[Violation, ...] = ()

    def __str__(self) -> str:
        """The same text for the same plan."""
        parts = [f"{canonical(step.spec)}@{step.pause_seconds}" for step in self.steps]
        return f"{parts} {self.deleted_at_work} {[canonical(one.spec) for one in self.invalid]}"

    def recipe(self, kind: str) -> list[str]:
        """The steps in words, each spec as the difference to the one before."""
        lines: list[str] = []
        before: JsonObject | None = None
        for step in self.steps:
            changes = describe_difference({"spec": before or {}}, {"spec": step.spec})
            if before is None:
                lines.append(f"create a {kind} with {_compact(step.spec)}")
            else:
                lines.append(f"change {'; '.join(changes) or 'nothing'}")
            if step.pause_seconds is not None:
                lines[-1] += (
                    f", and wait for {step.pause_seconds:g} s only" if step.pause_seconds else ", and do not wait"
                )
            before = step.spec
        if self.deleted_at_work:
            lines.append("delete it at once")
        return lines


def plans(spec: SearchStrategy[Json], schema: JsonObject, *, changes: int) -> SearchStrategy[Plan]:
    """Lives of a resource.

    Args:
        spec: Specs that the schema allows.
        schema: The schema.
        changes: How often a spec changes at most.
    """
    union = union_in(schema)
    key = None if union is None else union.key

    @st.composite
    def plan(draw: DrawFn) -> Plan:
        first = draw(spec)
        assert isinstance(first, Mapping)
        seen: list[JsonObject] = [first]
        steps = [Step(spec=first, pause_seconds=draw(st.sampled_from(_PAUSES)))]
        for _ in range(draw(st.sampled_from([*range(changes + 1), *range(1, changes + 1)]))):
            last = steps[-1].spec
            back = len(seen) > 1 and draw(st.booleans())
            asked = draw(st.sampled_from(seen)) if back else _partly(draw, last, draw(spec), key)
            if canonical(asked) == canonical(last):
                continue
            seen.append(asked)
            steps.append(Step(spec=asked, pause_seconds=draw(st.sampled_from(_PAUSES))))
        at_work = draw(st.sampled_from([False, False, False, True]))
        broken = [] if at_work else violations(schema, steps[-1].spec)
        count = draw(st.sampled_from([0, 1, 2])) if broken else 0
        invalid = [draw(st.sampled_from(broken)) for _ in range(count)]
        return Plan(steps=tuple(steps), deleted_at_work=at_work, invalid=tuple(invalid))

    return plan()


def _partly(draw: DrawFn, last: JsonObject, other: Json, key: str | None) -> JsonObject:
    """Some fields of another spec: people change one thing at a time, and a failure then names it.

    Of a union, all, if the field that tells its variants apart is another: what belongs to two of them is refused.
    """
    assert isinstance(other, Mapping)
    different = [name for name in sorted({*last, *other}) if canonical(last.get(name)) != canonical(other.get(name))]
    if not different:
        return last
    if key in different:
        return other
    chosen = draw(st.lists(st.sampled_from(different), min_size=1, unique=True))
    result = {name: value for name, value in last.items() if name not in chosen}
    return {**result, **{name: other[name] for name in chosen if name in other}}


def _compact(value: Json) -> str:
    match value:
        case Mapping():
            return "{" + ", ".join(f"{key}: {_compact(one)}" for key, one in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(_compact(one) for one in value) + "]"
        case None | bool():
            return {None: "null", True: "true", False: "false"}[value]
        case _:
            return repr(value) if not isinstance(value, str) else f'"{value}"'
