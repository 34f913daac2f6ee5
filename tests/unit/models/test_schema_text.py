"""Texts: what a schema takes the model takes, and what the model writes the schema takes."""

from __future__ import annotations

import re
import uuid
from datetime import time, timedelta
from decimal import Decimal
from ipaddress import IPv4Address
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import UUID1, UUID6, UUID7, UUID8, Base64Bytes, Base64UrlBytes, TypeAdapter, ValidationError, create_model

from opsdk.models import Duration, Model, Quantity
from opsdk.models._schema_text import pattern_fault
from opsdk.models._structural import structural_schema

LENGTHS = st.timedeltas(timedelta(days=-4000), timedelta(days=4000))
PATTERNS: list[Any] = [
    pytest.param(timedelta, LENGTHS, id="ISO duration"),
    pytest.param(Duration, LENGTHS, id="Go duration"),
    pytest.param(time, st.times(timezones=st.just(None)), id="time"),
    pytest.param(Decimal, st.decimals(allow_nan=False, allow_infinity=False), id="decimal"),
    pytest.param(IPv4Address, st.ip_addresses(v=4), id="IPv4"),
    pytest.param(Quantity, st.from_regex(r"\A[0-9]{1,5}(m|Mi)?\Z"), id="quantity"),
    pytest.param(Base64Bytes, st.binary(max_size=9), id="base64"),
    pytest.param(Base64UrlBytes, st.binary(max_size=9), id="base64 for URLs"),
    pytest.param(UUID1, st.just(uuid.UUID("00000000-0000-1000-8000-000000000000")), id="uuid1"),
    pytest.param(UUID6, st.just(uuid.UUID("00000000-0000-6000-8000-000000000000")), id="uuid6"),
    pytest.param(UUID7, st.just(uuid.UUID("00000000-0000-7000-8000-000000000000")), id="uuid7"),
    pytest.param(UUID8, st.just(uuid.UUID("00000000-0000-8000-8000-000000000000")), id="uuid8"),
]


def pattern_of(annotation: Any) -> str:
    """The pattern in the schema of a field of that type."""
    fields: dict[str, Any] = {"value": (annotation, ...)}
    schema = structural_schema(create_model("Holder", __base__=Model, **fields))
    pattern: str = schema["properties"]["value"]["pattern"]
    assert pattern_fault(pattern) is None
    return pattern


def refused(adapter: TypeAdapter[Any], text: str) -> str | None:
    """Why the model refuses a text, if it does."""
    try:
        adapter.validate_python(text)
    except ValidationError as error:
        return str(error)
    return None


@pytest.mark.parametrize(("annotation", "values"), PATTERNS)
def test_what_the_schema_takes_the_model_takes(annotation: Any, values: object) -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    body = pattern_of(annotation).removeprefix("^").removesuffix("$")

    @given(st.from_regex(rf"\A(?:{body})\Z", alphabet=st.characters(max_codepoint=0x3FF)))
    @settings(max_examples=300, deadline=None)
    def check(text: str) -> None:
        fault = refused(adapter, text)
        # numbers of any size are a range, and no pattern says a range
        assert fault is None or re.search("too large|overflow|exceed|longer|days|short", fault), fault

    check()


@pytest.mark.parametrize(("annotation", "values"), PATTERNS)
def test_what_the_model_writes_the_schema_takes(annotation: Any, values: st.SearchStrategy[Any]) -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    pattern = pattern_of(annotation)

    @given(values)
    @settings(max_examples=200, deadline=None)
    def check(value: Any) -> None:
        text: str = adapter.dump_python(value, mode="json")
        assert re.search(pattern.removesuffix("$") + r"\Z", text, re.ASCII), text
        assert adapter.dump_python(adapter.validate_python(text), mode="json") == text

    check()


@given(LENGTHS)
def test_durations_keep_every_microsecond(length: timedelta) -> None:
    adapter: TypeAdapter[timedelta] = TypeAdapter(Duration)
    assert adapter.validate_json(adapter.dump_json(length)) == length


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("1h30m", timedelta(hours=1, minutes=30)),
        ("1.5h", timedelta(hours=1, minutes=30)),
        ("90s", timedelta(seconds=90)),
        ("250ms", timedelta(milliseconds=250)),
        ("1500ns", timedelta(microseconds=2)),
        ("10µs", timedelta(microseconds=10)),
        ("-2m", timedelta(minutes=-2)),
        ("0", timedelta(0)),
    ],
)
def test_durations_are_read_as_go_reads_them(text: str, length: timedelta) -> None:
    adapter: TypeAdapter[timedelta] = TypeAdapter(Duration)
    assert adapter.validate_python(text) == length


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(hours=1, minutes=30), "1h30m"),
        (timedelta(days=2), "48h"),
        (timedelta(seconds=-90), "-1m30s"),
        (timedelta(milliseconds=1500), "1s500ms"),
        (timedelta(microseconds=1), "1us"),
    ],
)
def test_durations_are_written_short(length: timedelta, text: str) -> None:
    adapter: TypeAdapter[timedelta] = TypeAdapter(Duration)
    assert adapter.dump_python(length, mode="json") == text


@pytest.mark.parametrize("wrong", ["", "1", "1d", "h", "1h ", "PT1H", 5, 1.5, None, "99999999999999h"])
def test_what_is_no_duration_is_refused(wrong: object) -> None:
    adapter: TypeAdapter[timedelta] = TypeAdapter(Duration)
    with pytest.raises(ValidationError):
        adapter.validate_python(wrong)


def test_a_quantity_may_be_a_number_on_the_wire_and_keeps_its_spelling() -> None:
    adapter: TypeAdapter[str] = TypeAdapter(Quantity)
    assert adapter.validate_python(3) == "3"
    assert adapter.validate_python("1000m") == "1000m"
    for wrong in (True, "", "1Q", "1 Gi", None):
        with pytest.raises(ValidationError):
            adapter.validate_python(wrong)


@pytest.mark.parametrize(
    "pattern", [r"(?=a)", r"(?<!a)b", r"(a)\1", r"a++", r"\u00e4", r"\Z", r"(?x)a", r"(?P=n)", r"a{1001}", r"[a&&b]"]
)
def test_patterns_that_go_cannot_read_are_known(pattern: str) -> None:
    assert pattern_fault(pattern) is not None


@pytest.mark.parametrize(
    "pattern", [r"^a+$", r"(?i)a", r"(?:a|b)*?", r"\\1", r"[[:alpha:]]", r"\pL", r"a{0,1000}", r"(?P<n>a)"]
)
def test_patterns_that_go_can_read_pass(pattern: str) -> None:
    assert pattern_fault(pattern) is None
