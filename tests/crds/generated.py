"""Models and objects of them, made by hypothesis, from everything that a schema can express."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal, Optional, cast, final
from uuid import UUID

from hypothesis import strategies as st
from lightkube.models.core_v1 import ResourceRequirements, ServicePort
from lightkube.models.meta_v1 import Condition
from pydantic import Base64Bytes, Field, IPvAnyAddress, create_model

from crds.harness import kind_of
from opsdk.models import (
    Conditions,
    CustomResource,
    Duration,
    IntOrString,
    K8s,
    ListMap,
    Model,
    Quantity,
    Time,
)

__all__ = ["Made", "made", "with_unknown_fields", "with_wrong_values"]

WORDS = st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=8)
NUMBERS = st.integers(-(2**53), 2**53)
TEXTS = st.text(max_size=8)
MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(9000, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - hypothesis wants naive bounds
LENGTHS = st.timedeltas(timedelta(days=-4000), timedelta(days=4000))
JSON = st.recursive(
    st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)


class Color(StrEnum):
    RED = "red"
    BLUE = "blue"


class Part(Model):
    name: str
    max_weight: int = 1
    notes: list[str] = []  # noqa: RUF012 - pydantic copies it


class Bucket(Model):
    type: Literal["s3"] = "s3"
    bucket: str
    max_size: Annotated[int, Field(ge=0, le=10)] = 1


class Disk(Model):
    type: Literal["disk"] = "disk"
    path: str
    max_size: Annotated[int, Field(ge=0)] = 5
    shared: bool = False


class Tree(Model):
    name: str
    children: list[Tree] = []  # noqa: RUF012 - pydantic copies it


PARTS = st.builds(Part, name=TEXTS, max_weight=NUMBERS, notes=st.lists(TEXTS, max_size=2))
STORAGES = st.builds(Bucket, bucket=TEXTS, max_size=st.integers(0, 10)) | st.builds(
    Disk, path=TEXTS, max_size=st.integers(0, 99), shared=st.booleans()
)
TREES = st.recursive(
    st.builds(Tree, name=TEXTS), lambda inner: st.builds(Tree, name=TEXTS, children=st.lists(inner, max_size=2))
)
CONDITIONS = st.builds(
    Condition,
    type=WORDS,
    status=st.sampled_from(["True", "False", "Unknown"]),
    reason=WORDS,
    message=TEXTS,
    lastTransitionTime=MOMENTS.map(lambda moment: moment.replace(microsecond=0)),
)


@final
@dataclass(frozen=True, slots=True)
class Choice:
    """A field's type, its values, and what it may default to."""

    type: Any
    values: st.SearchStrategy[Any]
    defaults: Sequence[Any] = ()


LEAVES: Sequence[Choice] = (
    Choice(int, NUMBERS, [3]),
    Choice(Annotated[int, Field(ge=0, lt=10)], st.integers(0, 9), [5]),
    Choice(Annotated[int, Field(multiple_of=3)], st.integers(-9, 9).map(lambda n: 3 * n), [9]),
    Choice(str, TEXTS, ["", "x"]),
    Choice(Annotated[str, Field(pattern="^[a-z]+$", max_length=8)], WORDS, ["abc"]),
    Choice(bool, st.booleans(), [True, False]),
    Choice(float, st.floats(-1e9, 1e9), [0.5]),
    Choice(IntOrString, NUMBERS | TEXTS, [80, "http"]),
    Choice(int | Literal["auto"], NUMBERS | st.just("auto"), ["auto"]),
    Choice(Literal["a", "b"], st.sampled_from(["a", "b"]), ["a"]),
    Choice(Color, st.sampled_from(Color), [Color.RED]),
    Choice(Time, MOMENTS.map(lambda moment: moment.replace(microsecond=0)), [datetime(2026, 1, 1, tzinfo=UTC)]),
    Choice(date, st.dates(), [date(2026, 1, 1)]),
    Choice(time, st.times(), [time(12, 30)]),
    Choice(timedelta, LENGTHS, [timedelta(minutes=5)]),
    Choice(Duration, LENGTHS, [timedelta(minutes=5)]),
    Choice(Decimal, st.decimals(allow_nan=False, allow_infinity=False), [Decimal("1.5")]),
    Choice(UUID, st.uuids(), [UUID(int=1)]),
    Choice(Base64Bytes, st.binary(max_size=8).map(b64encode)),
    Choice(IPvAnyAddress, st.ip_addresses()),
    Choice(Quantity, st.sampled_from(["1", "500m", "1.5Gi", "-3", "1e3"]), ["1Gi"]),
)
BRANCHES: Sequence[Choice] = (
    Choice(Any, JSON),
    Choice(dict[str, Any], st.dictionaries(WORDS, JSON, max_size=3), [{}, {"a": [1]}]),
    Choice(set[str], st.sets(WORDS, max_size=3), [{"a"}]),
    Choice(tuple[int, int], st.tuples(NUMBERS, NUMBERS), [(1, 2)]),
    Choice(Part, PARTS, [Part(name="p"), Part(name="p", notes=["n"])]),
    Choice(
        Annotated[list[Part], ListMap("name")],
        st.lists(PARTS, max_size=3, unique_by=lambda part: part.name),
        [[], [Part(name="p")]],
    ),
    Choice(Annotated[Bucket | Disk, Field(discriminator="type")], STORAGES, [Disk(path="/")]),
    Choice(Tree, TREES, [Tree(name="t")]),
    Choice(K8s[ServicePort], st.builds(ServicePort, port=st.integers(1, 9), targetPort=NUMBERS | WORDS)),
    Choice(
        K8s[ResourceRequirements],
        st.builds(ResourceRequirements, limits=st.dictionaries(WORDS, st.just("1Gi"), max_size=2)),
    ),
    Choice(Conditions, st.lists(CONDITIONS, max_size=2, unique_by=lambda condition: condition.type), [[]]),
)


@st.composite
def _choices(draw: st.DrawFn, depth: int) -> Choice:
    """A type of any shape, as deep as `depth`."""
    how = draw(st.sampled_from(["leaf", "leaf", "branch", "optional", "list", "map", "model"])) if depth else "leaf"
    match how:
        case "leaf":
            return draw(st.sampled_from(LEAVES))
        case "branch":
            return draw(st.sampled_from(BRANCHES))
        case "optional":
            inner = draw(_choices(depth - 1))
            return Choice(Optional[inner.type], st.none() | inner.values, [None])  # noqa: UP045 - `Annotated | None` is no value to pyright
        case "list":
            inner = draw(_choices(depth - 1))
            return Choice(list[inner.type], st.lists(inner.values, max_size=2), [[], list(inner.defaults)])  # type: ignore[name-defined]  # made at run time
        case "map":
            inner = draw(_choices(depth - 1).filter(lambda choice: choice.defaults != [None]))
            return Choice(dict[str, inner.type], st.dictionaries(WORDS, inner.values, max_size=2), [{}])  # type: ignore[name-defined]  # made at run time
        case _:
            model, values = draw(_models(depth - 1))
            example = draw(values)
            return Choice(model, values, [example])


@st.composite
def _models(draw: st.DrawFn, depth: int) -> tuple[type[Model], st.SearchStrategy[Model]]:
    chosen = draw(st.dictionaries(WORDS.map(lambda word: f"a_{word}"), _choices(depth), max_size=4))
    fields: dict[str, Any] = {}
    for name, choice in chosen.items():
        defaults = [None] if choice.defaults == [None] else [..., *choice.defaults]
        fields[name] = (choice.type, draw(st.sampled_from(defaults)))
    model = create_model(f"M{draw(st.uuids()).hex}", __base__=Model, **fields)
    needed = {name: choice.values for name, choice in chosen.items() if fields[name][1] is ...}
    given = {name: choice.values for name, choice in chosen.items() if fields[name][1] is not ...}
    values = st.fixed_dictionaries(needed, optional=given).map(lambda members: model(**members))
    return model, values


@final
@dataclass(frozen=True, slots=True)
class Made:
    """A kind, and some of its specs."""

    kind: type[CustomResource[Any, Any]]
    specs: Sequence[Model]


@st.composite
def made(draw: st.DrawFn) -> Made:
    """A kind with a generated spec, and objects of it."""
    model, values = draw(_models(2))
    return Made(kind_of(model), draw(st.lists(values, min_size=1, max_size=3)))


def with_unknown_fields(document: Any, schema: dict[str, Any]) -> Any:
    """The document with a field that the schema does not know wherever the server would drop it."""
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return document
    if isinstance(document, list):
        items = schema.get("items", {})
        return [with_unknown_fields(item, items) for item in cast("Sequence[Any]", document)]
    if not isinstance(document, dict):
        return document
    members = cast("dict[str, Any]", document)
    properties: dict[str, Any] = schema.get("properties", {})
    additional: dict[str, Any] = schema.get("additionalProperties", {})
    out = {name: with_unknown_fields(value, properties.get(name, additional)) for name, value in members.items()}
    return out if additional else {**out, "zzUnknown": {"a": [1]}}


WRONG: Sequence[Any] = ("wrong", -77, 1.25, True, [], ["wrong"], {}, {"wrong": 1})


@st.composite
def with_wrong_values(draw: st.DrawFn, document: Any) -> Any:
    """The document with something else in one place."""
    if isinstance(document, dict) and document and draw(st.booleans()):
        members = cast("dict[str, Any]", document)
        name = draw(st.sampled_from(sorted(members)))
        if draw(st.booleans()):
            return {**members, name: draw(with_wrong_values(members[name]))}
        return {key: value for key, value in members.items() if key != name}
    if isinstance(document, list) and document:
        items = [*cast("Sequence[Any]", document)]
        index = draw(st.integers(0, len(items) - 1))
        return [*items[:index], draw(with_wrong_values(items[index])), *items[index + 1 :]]
    wrong = [value for value in WRONG if not (isinstance(document, str | None) and isinstance(value, list))]
    return draw(st.sampled_from(wrong))  # a list passes for a text with a format: see NOT_EXPRESSIBLE
