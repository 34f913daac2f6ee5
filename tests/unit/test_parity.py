"""The parity table has no row that nobody explains."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conformance.differences import DIFFERENCES, VERSION_ON_CREATE
from conformance.parity import ParityError, Row, render

_ROW = Row(
    area="Writes",
    section="names",
    behaviour="a name is a name",
    servers=frozenset({"memory", "real"}),
    cases=2,
    differences=DIFFERENCES,
)


def test_behaviours_are_rows_and_differences_are_explained() -> None:
    text = render([_ROW, replace(_ROW, behaviour="the rest is alike", cases=1, differences=())])
    assert "| a name is a name (2 cases) | ✓, but for [" in text
    above, _, folded = text.partition("<details>\n<summary>1 the same on both</summary>\n\n")
    assert "| a name is a name (2 cases)" in above
    assert "| **names** |  |  |\n| the rest is alike | ✓ | ✓ |\n\n</details>" in folded
    assert "2 behaviours in 3 cases" in above
    for each in DIFFERENCES:
        assert f'<a id="{each.name}"></a>' in text
        assert each.reason in text
        assert each.advice in text


def test_a_behaviour_that_is_tried_on_one_server_is_no_row() -> None:
    alone = replace(_ROW, behaviour="only here", servers=frozenset({"memory"}))
    with pytest.raises(ParityError, match="“only here” runs only on memory"):
        render([_ROW, alone])


def test_a_difference_that_no_test_shows_is_none() -> None:
    fewer = tuple(each for each in DIFFERENCES if each is not VERSION_ON_CREATE)
    with pytest.raises(ParityError, match="no test shows the difference version-on-create"):
        render([replace(_ROW, differences=fewer)])


def test_a_difference_has_a_reason_and_advice() -> None:
    silent = replace(VERSION_ON_CREATE, name="new", reason="")
    with pytest.raises(ParityError, match="new is missing in DIFFERENCES"):
        render([_ROW, replace(_ROW, differences=(silent,))])


def test_the_same_answer_on_both_servers_is_no_difference() -> None:
    with pytest.raises(AssertionError, match="the same answer on both servers"):
        VERSION_ON_CREATE.on("memory", kube_apiserver=400, in_memory=400)
