"""Invariants of models, codecs and schemas, over generated models and values."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import new_class
from typing import Annotated, Any, Literal, Optional, cast

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lightkube.models.core_v1 import ResourceRequirements
from lightkube.models.meta_v1 import Condition, ObjectMeta
from pydantic import Field, create_model

from opsdk.models import (
    Conditions,
    CustomResource,
    IntOrString,
    K8s,
    MachineStatus,
    Model,
    StateTransition,
    Time,
    codec_of,
    crd_manifest,
    find_condition,
    set_condition,
)
from opsdk.protocols import KubeObject
from opsdk.testing.apiserver._schema_crd import default_crd, validate_crd
from opsdk.testing.apiserver._schema_values import validate_value

WORDS = st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=8)
NUMBERS = st.integers(-(2**53), 2**53)
MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(9000, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - hypothesis wants naive bounds
JSON = st.recursive(
    st.booleans() | NUMBERS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)


class Part(Model):
    name: str
    max_weight: int = 1


class Spec(Model):
    replicas: int = 1
    paused_reason: str | None = None
    parts: list[Part] = []  # noqa: RUF012 - pydantic copies it
    labels: dict[str, str] = {}  # noqa: RUF012 - pydantic copies it
    port: IntOrString = 80
    moment: Time | None = None
    resources: K8s[ResourceRequirements] | None = None


class Widget(CustomResource[Spec, MachineStatus], group="demo.example.com", version="v1"):
    pass


PARTS = st.builds(Part, name=st.text(max_size=8), max_weight=NUMBERS)
SPECS = st.builds(
    Spec,
    replicas=NUMBERS,
    paused_reason=st.none() | st.text(max_size=8),
    parts=st.lists(PARTS, max_size=3),
    labels=st.dictionaries(WORDS, st.text(max_size=8), max_size=3),
    port=NUMBERS | st.text(max_size=8),
    moment=st.none() | MOMENTS,
    resources=st.none() | st.builds(ResourceRequirements, limits=st.dictionaries(WORDS, st.just("1Gi"), max_size=2)),
)
CONDITIONS = st.builds(
    Condition,
    type=WORDS,
    status=st.sampled_from(["True", "False", "Unknown"]),
    reason=WORDS,
    message=st.text(max_size=8),
    lastTransitionTime=MOMENTS.map(lambda moment: moment.replace(microsecond=0)),
)
STATUSES = st.builds(
    MachineStatus,
    state=st.text(max_size=8),
    observed_generation=st.integers(0, 2**53),
    conditions=st.lists(CONDITIONS, max_size=3, unique_by=lambda condition: condition.type),
    state_history=st.lists(
        st.builds(StateTransition, from_=st.text(max_size=4), to=st.text(max_size=4), reason=WORDS, timestamp=MOMENTS),
        max_size=3,
    ),
    pending_entry=st.booleans(),
)
WIDGETS = st.builds(Widget, metadata=st.builds(ObjectMeta, name=WORDS), spec=SPECS, status=STATUSES)


@given(WIDGETS)
def test_what_is_written_reads_back_the_same(widget: Widget) -> None:
    codec = codec_of(Widget)
    assert codec.decode(codec.encode(widget)) == widget


@given(WIDGETS)
def test_writing_what_was_read_gives_the_same_bytes(widget: Widget) -> None:
    codec = codec_of(Widget)
    raw = codec.encode(widget)
    assert codec.encode(codec.decode(raw)) == raw


@given(st.dictionaries(WORDS.map(lambda word: f"x{word}"), JSON, max_size=4))
def test_unknown_fields_survive_at_every_level(unknown: dict[str, Any]) -> None:
    document = {
        "spec": {"parts": [{"name": "p", **unknown}], **unknown},
        "status": {"stateHistory": [{"to": "a", "timestamp": "2026-01-01T00:00:00Z", **unknown}], **unknown},
        **unknown,
    }
    codec = codec_of(Widget)
    found = json.loads(codec.encode(codec.decode(json.dumps(document).encode())))

    def unknown_of(level: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in level.items() if name.startswith("x")}

    for level in (
        found,
        found["spec"],
        found["spec"]["parts"][0],
        found["status"],
        found["status"]["stateHistory"][0],
    ):
        assert unknown_of(level) == unknown


@given(WIDGETS)
def test_what_is_applied_is_part_of_what_is_written(widget: Widget) -> None:
    codec = codec_of(Widget)
    whole, part = json.loads(codec.encode(widget)), json.loads(codec.encode(widget, only_set=True))

    def within(small: object, large: object) -> bool:
        if isinstance(small, dict) and isinstance(large, dict):
            members, others = cast("dict[str, object]", small), cast("dict[str, object]", large)
            return all(name in others and within(value, others[name]) for name, value in members.items())
        if isinstance(small, list) and isinstance(large, list):
            return len(cast("list[object]", small)) == len(cast("list[object]", large)) and all(
                map(within, cast("list[object]", small), cast("list[object]", large))
            )
        return small == large

    assert within(part, whole)


@given(st.lists(st.tuples(st.sampled_from(["A", "B"]), st.sampled_from(["True", "False"]), WORDS, MOMENTS)))
def test_conditions_are_one_for_each_type_and_move_in_time_only_with_the_status(
    steps: list[tuple[str, Literal["True", "False"], str, datetime]],
) -> None:
    conditions: list[Condition] = []
    for type_, status, reason, moment in steps:
        before = find_condition(conditions, type_)
        was = None if before is None else (before.status, before.lastTransitionTime)
        set_condition(conditions, type=type_, status=status, reason=reason, now=moment)
        after = find_condition(conditions, type_)
        assert after is not None
        assert (after.status, after.reason) == (status, reason)
        if was is not None and was[0] == status:
            assert after.lastTransitionTime == was[1]
        else:
            assert after.lastTransitionTime == moment.replace(microsecond=0)
    assert len({condition.type for condition in conditions}) == len(conditions)


# generated models: the schema of a model accepts what the model writes

Choice = tuple[Any, Any, st.SearchStrategy[Any]]
"""A field's type, its default, and its values."""

SIMPLE: list[Choice] = [
    (int, 3, NUMBERS),
    (Annotated[int, Field(ge=0, lt=10)], 5, st.integers(0, 9)),
    (str, "x", st.text(max_size=8)),
    (str | None, None, st.none() | st.text(max_size=8)),
    (bool, False, st.booleans()),
    (float, 0.5, st.floats(-1e9, 1e9)),
    (IntOrString, 80, NUMBERS | st.text(max_size=8)),
    (Literal["a", "b"], "a", st.sampled_from(["a", "b"])),
    (Optional[Time], None, st.none() | MOMENTS),  # noqa: UP045 - `Annotated | None` is no value to pyright
    (list[str], [], st.lists(st.text(max_size=4), max_size=3)),
    (dict[str, int], {}, st.dictionaries(WORDS, NUMBERS, max_size=3)),
    (dict[str, Any], {}, st.dictionaries(WORDS, JSON, max_size=3)),
    (Any, None, JSON),
    (set[str], ..., st.sets(WORDS, max_size=3)),
    (Part, Part(name="p"), PARTS),
    (list[Part], [], st.lists(PARTS, max_size=2)),
    (Conditions, [], st.lists(CONDITIONS, max_size=2, unique_by=lambda condition: condition.type)),
    (Optional[K8s[ResourceRequirements]], None, st.none() | st.builds(ResourceRequirements)),  # noqa: UP045 - as above
]


@st.composite
def kinds_and_objects(draw: st.DrawFn) -> tuple[type[KubeObject], KubeObject]:
    chosen = draw(st.dictionaries(WORDS.map(lambda word: f"a_{word}"), st.sampled_from(SIMPLE), max_size=4))
    fields: dict[str, Any] = {
        name: (annotation, default if default is None else draw(st.sampled_from([..., default])))
        for name, (annotation, default, _) in chosen.items()
    }
    spec = create_model("GeneratedSpec", __base__=Model, **fields)
    base: Any = CustomResource
    kind: Any = new_class("Generated", (base[spec],), {"group": "demo.example.com", "version": "v1"})
    values = {
        name: draw(strategy)
        for name, (_, _, strategy) in chosen.items()
        if fields[name][1] is ... or draw(st.booleans())
    }
    return kind, kind(metadata=ObjectMeta(name="g"), spec=spec(**values))


@given(kinds_and_objects())
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_m01_the_schema_of_a_model_is_structural_and_accepts_what_the_model_writes(
    made: tuple[type[KubeObject], KubeObject],
) -> None:
    kind, obj = made
    manifest = json.loads(json.dumps(crd_manifest(kind)))
    default_crd(manifest)
    assert validate_crd(manifest) == []
    schema = manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    document = json.loads(codec_of(kind).encode(obj))
    assert validate_value(schema, document) == []
    assert codec_of(kind).decode(json.dumps(document).encode()) == obj
