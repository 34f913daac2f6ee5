"""Label selectors in Kubernetes' syntax."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsdk.cache import Selector, selector_of
from opsdk.errors import ObjectError

LABELS = {"tier": "web", "app.kubernetes.io/name": "shop", "empty": ""}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("tier=web", True),
        ("tier==web", True),
        ("tier = web", True),
        ("tier=db", False),
        ("other=x", False),
        ("tier!=web", False),
        ("tier!=db", True),
        ("other!=x", True),
        ("tier in (web,api)", True),
        ("tier in ( db )", False),
        ("other in (x)", False),
        ("tier notin (web)", False),
        ("tier notin (db,api)", True),
        ("other notin (x)", True),
        ("tier", True),
        ("other", False),
        ("!tier", False),
        ("!other", True),
        ("! other", True),
        ("app.kubernetes.io/name=shop", True),
        ("empty=", True),
        ("empty in (,x)", True),
        ("tier=", False),
        ("tier in (web,api),!canary,app.kubernetes.io/name", True),
        ("tier in (web,api),canary", False),
        ("in", False),
        ("in in (in)", False),
    ],
)
def test_each_operator_matches_as_the_server_would(text: str, matches: bool) -> None:  # noqa: FBT001 - a parameter
    assert selector_of(text).matches(LABELS) is matches


@pytest.mark.parametrize(
    "text",
    [
        "=x",
        "a b",
        "a=b c",
        "a in web",
        "a in (web",
        "a in web)",
        ",",
        "a,",
        "a=b,,c",
        "!",
        "!a=b",
        "a=(",
        "-a",
        "a=-x",
        "a/b/c",
    ],
)
def test_what_is_no_selector_is_refused(text: str) -> None:
    with pytest.raises(ObjectError, match="label selector"):
        selector_of(text)


def test_labels_and_their_text_are_the_same_selector() -> None:
    assert selector_of({"a": "b", "c": "d"}) == selector_of("c=d, a==b") == selector_of("a in (b),c=d")
    assert selector_of(None) == selector_of("") == selector_of({}) == Selector()
    assert not selector_of(None)
    assert selector_of("a")


KEY = st.sampled_from(["a", "b", "x.y/z", "in"])
VALUE = st.sampled_from(["", "v", "w", "notin"])
VALUES = st.lists(VALUE, min_size=1, max_size=3).map(lambda values: f"({','.join(values)})")
REQUIREMENT = st.one_of(
    KEY,
    KEY.map(lambda key: f"!{key}"),
    st.tuples(KEY, st.sampled_from(["=", "==", "!="]), VALUE).map("".join),
    st.tuples(KEY, st.sampled_from([" in ", " notin "]), VALUES).map("".join),
)


@given(requirements=st.lists(REQUIREMENT, max_size=4), labels=st.dictionaries(KEY, VALUE))
def test_a_selector_reads_back_as_itself_and_is_the_conjunction_of_its_parts(
    requirements: list[str], labels: dict[str, str]
) -> None:
    selector = selector_of(",".join(requirements))
    assert selector_of(str(selector)) == selector
    assert selector.matches(labels) is all(selector_of(part).matches(labels) for part in requirements)
