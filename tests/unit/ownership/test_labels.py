"""The labels of children."""

from __future__ import annotations

import pytest

from opsdk.models import ResourceInfo
from opsdk.ownership import OWNER_SET_LABEL, OWNER_UID_LABEL
from opsdk.ownership.labels import default_owner_set, owner_set_fault


def info(kind: str, group: str) -> ResourceInfo:
    return ResourceInfo(group=group, version="v1", kind=kind, plural="things", scope="Namespaced")


def test_the_labels_never_change() -> None:
    assert (OWNER_UID_LABEL, OWNER_SET_LABEL) == ("opsdk.dev/owner-uid", "opsdk.dev/owner-set")


def test_the_default_owner_set_is_kind_and_group() -> None:
    assert default_owner_set(info("Widget", "demo.example.com")) == "widget.demo.example.com"
    assert default_owner_set(info("Pod", "")) == "pod"


def test_a_long_default_owner_set_is_cut_and_stays_unique() -> None:
    group = "a-very-long-name-for-a-group-of-resources.demo.example.com"
    names = {default_owner_set(info(kind, group)) for kind in ("WidgetWithALongName", "WidgetWithALongNameToo")}
    assert len(names) == 2
    assert all(len(name) <= 63 and not owner_set_fault(name) for name in names)


@pytest.mark.parametrize("name", ["", "-a", "a b", "a" * 64, "a."])
def test_a_name_that_is_no_label_value_is_a_fault(name: str) -> None:
    assert "no label value" in owner_set_fault(name)
