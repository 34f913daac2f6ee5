"""What models can say, value by value: taken or refused by pydantic, and so by the server.

`CASES` are constraints that a schema expresses. `NOT_EXPRESSIBLE` are those that it cannot: the server takes what the
model refuses. `docs/crds.md` lists the same for people, and a test holds the two together.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import IntEnum, StrEnum
from ipaddress import IPv4Address, IPv6Address
from typing import Annotated, Any, Literal, Self, final

from lightkube.models.core_v1 import ResourceRequirements, ServicePort
from pydantic import (
    UUID7,
    AfterValidator,
    AnyUrl,
    AwareDatetime,
    Base64Bytes,
    ConfigDict,
    Field,
    HttpUrl,
    IPvAnyAddress,
    IPvAnyNetwork,
    StringConstraints,
    model_validator,
)

from opsdk.models import (
    Cel,
    Conditions,
    Duration,
    IntOrString,
    K8s,
    ListMap,
    ListSet,
    Model,
    Nullable,
    Quantity,
    Time,
)

__all__ = ["CASES", "NOT_EXPRESSIBLE", "STRICTER", "Case", "Gap"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One type and its limits.

    Args:
        name: What it is.
        type: The annotation.
        taken: Values that both take.
        refused: Values that both refuse.
    """

    name: str
    type: Any
    taken: Sequence[Any]
    refused: Sequence[Any]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A constraint that no schema expresses.

    Args:
        name: What it is; a row of the table in docs/crds.md.
        type: The annotation.
        value: What pydantic refuses and the server takes.
        pruned: The server drops the offending part, so that nobody ever reads it.
    """

    name: str
    type: Any
    value: Any
    pruned: bool = False


class Color(StrEnum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Part(Model):
    name: str
    size: int = 1


class Bucket(Model):
    type: Literal["s3"]
    bucket: str
    limit: Annotated[int, Field(le=10)] = 1


class Disk(Model):
    type: Literal["disk", "nfs"]
    path: str
    limit: Annotated[int, Field(le=99)] = 5


Storage = Annotated[Bucket | Disk, Field(discriminator="type")]


class Range(Model, rules=[Cel("self.low <= self.high", message="low must not be above high")]):
    low: int
    high: int

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.low > self.high:
            raise ValueError("low must not be above high")
        return self


class Tree(Model):
    name: str
    children: list[Tree] = []  # noqa: RUF012 - pydantic copies it


class Closed(Model):
    model_config = ConfigDict(extra="forbid")

    name: str


class Validated(Model):
    low: int
    high: int

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.low > self.high:
            raise ValueError("low must not be above high")
        return self


def _even(value: int) -> int:
    if value % 2:
        raise ValueError("must be even")
    return value


_CONDITION = {
    "type": "Ready",
    "status": "True",
    "reason": "Ok",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
_NOT_TEXT = [1, True, 1.5, ["x"], {"x": 1}]

CASES: Sequence[Case] = (
    # scalars
    Case(name="text", type=str, taken=["", "x", "ü"], refused=_NOT_TEXT),
    Case(name="whole number", type=int, taken=[0, -5, 2**62, 3.0], refused=["x", 1.5, [1], {}]),
    Case(name="number", type=float, taken=[0, 1.5, -1e300], refused=["x", [1.5], {}]),
    Case(name="boolean", type=bool, taken=[True, False], refused=["maybe", 2, [True]]),
    Case(name="minimum", type=Annotated[int, Field(ge=0)], taken=[0, 7], refused=[-1]),
    Case(name="exclusive minimum", type=Annotated[int, Field(gt=0)], taken=[1], refused=[0, -1]),
    Case(name="maximum", type=Annotated[float, Field(le=1.5)], taken=[1.5, -3], refused=[1.51]),
    Case(name="exclusive maximum", type=Annotated[float, Field(lt=1.5)], taken=[1.4], refused=[1.5]),
    Case(name="multiple", type=Annotated[int, Field(multiple_of=5)], taken=[0, 10, -5], refused=[3]),
    Case(
        name="length",
        type=Annotated[str, Field(min_length=2, max_length=3)],
        taken=["ab", "üüü"],
        refused=["a", "abcd"],
    ),
    Case(name="pattern", type=Annotated[str, Field(pattern="^[a-z]+$")], taken=["ab"], refused=["", "A", "a\n"]),
    Case(name="optional with limits", type=Annotated[int | None, Field(ge=1)], taken=[1], refused=[0]),
    # choices
    Case(name="enum", type=Color, taken=["red", "blue"], refused=["green", "", 1]),
    Case(name="enum of numbers", type=Level, taken=[1, 2], refused=[3, "low"]),
    Case(name="literal", type=Literal["a", "b"], taken=["a", "b"], refused=["c", "A"]),
    Case(name="literal boolean", type=Literal[True], taken=[True], refused=[False, "x"]),
    Case(name="enum or literal", type=Literal["any"] | Color, taken=["any", "red"], refused=["green"]),
    Case(
        name="text of one shape or another",
        type=Annotated[str, Field(pattern="^a")] | Annotated[str, Field(max_length=2)],
        taken=["abcd", "xy"],
        refused=["xyz"],
    ),
    Case(
        name="nullable enum",
        type=Annotated[Color | None, Nullable()],
        taken=["red", None],
        refused=["green", "", "redder", "blue or red"],
    ),
    Case(name="nullable enum of numbers", type=Annotated[Level | None, Nullable()], taken=[1, None], refused=[3]),
    Case(name="nullable true", type=Annotated[Literal[True] | None, Nullable()], taken=[True, None], refused=[False]),
    Case(name="list of nullable choices", type=list[Color | None], taken=[["red", None]], refused=[["green"]]),
    # int or string
    Case(name="int or string", type=IntOrString, taken=[80, "http"], refused=[1.5, [80], {}]),
    Case(
        name="int or string with limits",
        type=Annotated[int, Field(ge=1, le=65535)] | Annotated[str, Field(pattern="^[a-z]+$", max_length=15)],
        taken=[80, "http"],
        refused=[0, 65536, "HTTP", "a" * 16],
    ),
    Case(name="int or one text", type=int | Literal["auto"], taken=[3, "auto"], refused=["manual", "autos", 1.5]),
    Case(name="one number or one text", type=Literal[0, "auto"], taken=[0, "auto"], refused=[1, "manual"]),
    Case(name="some numbers or text", type=Literal[0, 1] | str, taken=[0, 1, "x"], refused=[2]),
    # texts that mean something
    Case(
        name="quantity",
        type=Quantity,
        taken=["500m", "1.5Gi", "3", 3, "1e3", "-1"],
        refused=["", "1Q", "Gi", "1 Gi", True],
    ),
    Case(name="duration", type=Duration, taken=["1h30m", "500ms", "0", "-1.5s"], refused=["", "1", "1d", "PT1H", 5]),
    Case(
        name="ISO duration",
        type=timedelta,
        taken=["PT1H30M", "P1D", "-P1DT2H", "PT0.5S", "P1Y35D"],
        refused=["", "P", "PT", "-PT", "1h", "x"],
    ),
    Case(name="decimal", type=Decimal, taken=["1.5", "-0", "1E+2", ".5", "5."], refused=["", "x", "NaN", "1.5.5"]),
    Case(
        name="time stamp",
        type=Time,
        taken=["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5+01:00"],
        refused=["", "yesterday", "2026-01-01T00:00:00", "2026-02-30T00:00:00Z"],
    ),
    Case(name="date", type=date, taken=["2026-01-31"], refused=["", "2026-02-30", "31.1.2026"]),
    Case(name="time of day", type=time, taken=["12:30:00", "23:59:59.999999"], refused=["", "24:00:00", "noon"]),
    Case(name="uuid", type=uuid.UUID, taken=[str(uuid.UUID(int=5))], refused=["", "x", "0" * 31]),
    Case(
        name="uuid of a version",
        type=UUID7,
        taken=["00000000-0000-7000-8000-000000000000"],
        refused=[str(uuid.UUID(int=5))],
    ),
    Case(name="base64", type=Base64Bytes, taken=["", "YQ==", "YWJj"], refused=["YQ", "a b"]),
    Case(
        name="url",
        type=AnyUrl,
        taken=["https://example.com/", "mailto:x@example.com"],
        refused=["", "/path", "example.com"],
    ),
    Case(name="IPv4", type=IPv4Address, taken=["10.0.0.1"], refused=["", "10.0.0", "10.0.0.256", "010.0.0.1", "::1"]),
    Case(name="IPv6", type=IPv6Address, taken=["::1", "2001:db8::"], refused=["", "10.0.0.1", ":::"]),
    Case(name="IP", type=IPvAnyAddress, taken=["::1", "10.0.0.1"], refused=["", "localhost", "10.0.0.01"]),
    Case(name="network", type=IPvAnyNetwork, taken=["10.0.0.0/8", "::/0"], refused=["", "10.0.0.0/33", "x/8"]),
    # lists and maps
    Case(name="list", type=list[int], taken=[[], [1, 2]], refused=[[1, "x"], 1, {}]),
    Case(
        name="list of a length",
        type=Annotated[list[int], Field(min_length=1, max_length=2)],
        taken=[[1]],
        refused=[[], [1, 2, 3]],
    ),
    Case(name="tuple", type=tuple[int, int], taken=[[1, 2]], refused=[[1], [1, 2, 3], [1, "x"]]),
    Case(
        name="list with keys", type=Annotated[list[Part], ListMap("name")], taken=[[{"name": "a"}]], refused=[[{}], [1]]
    ),
    Case(name="set", type=set[str], taken=[["a", "b"]], refused=[[1], "a"]),
    Case(name="map", type=dict[str, int], taken=[{}, {"a": 1}], refused=[{"a": "x"}, [1], 1]),
    Case(
        name="map of a size",
        type=Annotated[dict[str, int], Field(max_length=1)],
        taken=[{"a": 1}],
        refused=[{"a": 1, "b": 2}],
    ),
    Case(name="map with keys of an enum", type=dict[Color, int], taken=[{"red": 1}], refused=[{"green": 1}]),
    Case(
        name="map with keys of a pattern",
        type=Annotated[dict[Annotated[str, StringConstraints(pattern="^[a-z]+$")], int], Field(max_length=9)],
        taken=[{"a": 1}],
        refused=[{"A": 1}],
    ),
    Case(
        name="map with keys of a length",
        type=dict[Annotated[str, StringConstraints(min_length=2, max_length=3)], int],
        taken=[{"ab": 1}],
        refused=[{"a": 1}, {"abcd": 1}],
    ),
    # models
    Case(
        name="nested model",
        type=Part,
        taken=[{"name": "a"}, {"name": "a", "size": 3}],
        refused=[{}, {"name": 1}, 1, []],
    ),
    Case(
        name="deeply nested",
        type=dict[str, list[Part]],
        taken=[{"a": [{"name": "x"}]}],
        refused=[{"a": [{}]}, {"a": {}}],
    ),
    Case(
        name="recursive",
        type=Tree,
        taken=[{"name": "a", "children": [{"name": "b"}]}],
        refused=[{}, {"name": "a", "children": 1}],
    ),
    Case(
        name="struct", type=K8s[ServicePort], taken=[{"port": 80, "targetPort": "http"}], refused=[{}, {"port": "x"}, 1]
    ),
    Case(
        name="struct with quantities",
        type=K8s[ResourceRequirements],
        taken=[{"limits": {"cpu": "1", "memory": "1Gi"}}],
        refused=[{"limits": 1}, {"claims": [{}]}],
    ),
    Case(name="conditions", type=Conditions, taken=[[_CONDITION]], refused=[[{}], [{**_CONDITION, "status": 1}]]),
    Case(
        name="discriminated union",
        type=Storage,
        taken=[{"type": "s3", "bucket": "b"}, {"type": "nfs", "path": "/"}],
        refused=[{}, {"type": "x"}, {"bucket": "b"}, 1],
    ),
    Case(
        name="variants want their own fields",
        type=Storage,
        taken=[{"type": "s3", "bucket": "b"}],
        refused=[{"type": "s3"}, {"type": "disk", "bucket": "b"}],
    ),
    Case(
        name="variants have their own limits",
        type=Storage,
        taken=[{"type": "s3", "bucket": "b", "limit": 10}, {"type": "disk", "path": "/", "limit": 50}],
        refused=[{"type": "s3", "bucket": "b", "limit": 50}, {"type": "disk", "path": "/", "limit": 100}],
    ),
    Case(
        name="list of variants",
        type=list[list[Storage]],
        taken=[[[{"type": "s3", "bucket": "b"}]]],
        refused=[[[{"type": "s3"}]]],
    ),
    Case(name="rule of a model", type=Range, taken=[{"low": 1, "high": 1}], refused=[{"low": 2, "high": 1}]),
    Case(
        name="rule in a list",
        type=Annotated[list[Range], Field(max_length=20)],
        taken=[[{"low": 1, "high": 1}]],
        refused=[[{"low": 2, "high": 1}]],
    ),
    Case(name="anything", type=Any, taken=[1, "x", {"a": [1]}, [{}]], refused=[]),
    Case(name="map of anything", type=dict[str, Any], taken=[{"a": [1]}], refused=[1, []]),
)

NOT_EXPRESSIBLE: Sequence[Gap] = (
    Gap(
        name="validators in Python (`AfterValidator`, `@field_validator`)",
        type=Annotated[int, AfterValidator(_even)],
        value=1,
    ),
    Gap(name="validators of a model (`@model_validator`)", type=Validated, value={"low": 2, "high": 1}),
    Gap(name='`extra="forbid"`', type=Closed, value={"name": "a", "other": 1}, pruned=True),
    Gap(
        name="bounds, digits and places of a `Decimal`",
        type=Annotated[Decimal, Field(ge=0, max_digits=3)],
        value="-1000",
    ),
    Gap(
        name="bounds of dates and times (`Field(gt=date(…))`, `PastDate`)",
        type=Annotated[date, Field(gt=date(2030, 1, 1))],
        value="2026-01-01",
    ),
    Gap(name="bounds of a duration", type=Annotated[timedelta, Field(le=timedelta(hours=1))], value="P1D"),
    Gap(name="keys of a `dict` that are no texts", type=dict[int, str], value={"x": "y"}),
    Gap(name="which schemes and hosts a URL may have", type=HttpUrl, value="ftp://example.com/"),
    Gap(name="host bits of a network", type=IPvAnyNetwork, value="10.0.0.1/8"),
    Gap(
        name="what is inside a recursive field",
        type=Tree,
        value={"name": "a", "children": [{"name": "b", "children": [{}]}]},
    ),
    Gap(name="a list in place of a text that has a `format`", type=Time, value=["2026-01-01T00:00:00Z"]),
    Gap(name="offsets of a time stamp beyond a day", type=AwareDatetime, value="2026-01-01T00:00:00+25:00"),
)

STRICTER: Sequence[Case] = (
    Case(name="pydantic takes texts for numbers", type=int, taken=[], refused=["3"]),
    Case(name="and for booleans", type=bool, taken=[], refused=["yes"]),
    Case(name="and numbers for times", type=AwareDatetime, taken=[], refused=[1767225600]),
    Case(name="a naive time", type=datetime, taken=[], refused=["2026-01-01T00:00:00"]),
    Case(name="repetitions in a set", type=Annotated[list[str], ListSet()], taken=[], refused=[["a", "a"]]),
    Case(
        name="repeated keys in a list with keys",
        type=Annotated[list[Part], ListMap("name")],
        taken=[],
        refused=[[{"name": "a"}, {"name": "a"}]],
    ),
    Case(name="whole numbers of more than 64 bits", type=int, taken=[], refused=[2**63]),
    Case(
        name="a condition whose status is none of three",
        type=Conditions,
        taken=[],
        refused=[[{**_CONDITION, "status": "yes"}]],
    ),
)
"""What pydantic takes, or makes something of, and the server refuses. A typed client sends only the last five."""
