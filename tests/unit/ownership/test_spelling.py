"""Whether two documents mean the same, and laying one over the other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsdk.ownership._spelling import equivalent, lay_over
from opsdk.types import Json, JsonObject


def container(**fields: Json) -> JsonObject:
    return {"spec": {"template": {"spec": {"containers": [{"name": "web", **fields}]}}}}


def limits(cpu: Json) -> JsonObject:
    return container(resources={"limits": {"cpu": cpu}})


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (limits("1000m"), limits("1")),
        (limits("1"), limits(1)),
        (limits("0.5"), limits("500m")),
        (limits("1e3"), limits("1k")),
        (limits("1Gi"), limits("1024Mi")),
        (limits("128974848"), limits("123Mi")),
        (
            {"spec": {"volumes": [{"emptyDir": {"sizeLimit": "1000M"}}]}},
            {"spec": {"volumes": [{"emptyDir": {"sizeLimit": "1G"}}]}},
        ),
        ({"spec": {"ports": [{"targetPort": 80}]}}, {"spec": {"ports": [{"targetPort": "80"}]}}),
        ({"spec": {"at": "2026-01-01T00:00:00Z"}}, {"spec": {"at": "2026-01-01T01:00:00.000000+01:00"}}),
        (container(env=[]), container()),
        (container(image=None), container()),
        ({"spec": {"nodeSelector": {}}}, {"spec": {}}),
        ({"metadata": {"annotations": {}}}, {"metadata": {}}),
        ({"metadata": {"resourceVersion": "1", "uid": "a"}}, {"metadata": {"resourceVersion": "2"}}),
        ({"status": {"ready": 1}}, {"status": {"ready": 2}}),
        ({"apiVersion": "v1", "kind": "X"}, {}),
    ],
)
def test_o06_another_spelling_is_no_difference(left: JsonObject, right: JsonObject) -> None:
    assert equivalent(left, right)
    assert equivalent(right, left)


DIFFERENT: list[tuple[JsonObject, JsonObject]] = [
    (limits("1000m"), limits("2")),
    (limits("1"), limits(True)),
    (limits("1"), limits("much")),
    (container(image="a"), container(image="b")),
    (container(args=["1"]), container(args=["1.0"])),
    (container(args=["a", "b"]), container(args=["b", "a"])),
    ({"metadata": {"labels": {"cpu": "1"}}}, {"metadata": {"labels": {"cpu": "1.0"}}}),
    ({"data": {"limits": "1"}}, {"data": {"limits": "1.0"}}),
    ({"data": {"at": "2026-01-01T00:00:00Z"}}, {"data": {"at": "2026-01-01T00:00:00.0Z"}}),
    ({"spec": {"volumes": [{"emptyDir": {}}]}}, {"spec": {"volumes": [{}]}}),
    ({"spec": {"replicas": 0}}, {"spec": {}}),
    ({"spec": {"paused": False}}, {"spec": {}}),
    ({"spec": {"at": "2026-01-01T00:00:00Z"}}, {"spec": {"at": "2026-01-01T00:00:01Z"}}),
]


@pytest.mark.parametrize(("left", "right"), DIFFERENT)
def test_another_meaning_is_a_difference(left: JsonObject, right: JsonObject) -> None:
    assert not equivalent(left, right)
    assert not equivalent(right, left)


SPEC: JsonObject = {
    "clusterIP": "10.0.0.1",
    "ports": [
        {"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30000},
        {"name": "old", "port": 81, "protocol": "TCP"},
    ],
}
EXISTING: JsonObject = {
    "metadata": {"name": "w", "uid": "u", "labels": {"theirs": "1"}},
    "spec": SPEC,
    "status": {"loadBalancer": {}},
}


def test_what_the_desired_document_does_not_mention_stays() -> None:
    desired: JsonObject = {"metadata": {"name": "w", "labels": {"ours": "2"}}, "spec": {"selector": {"app": "web"}}}
    assert lay_over(EXISTING, desired) == {
        "metadata": {"name": "w", "uid": "u", "labels": {"theirs": "1", "ours": "2"}},
        "spec": {**SPEC, "selector": {"app": "web"}},
        "status": {"loadBalancer": {}},
    }


def test_items_that_others_added_stay_where_they_are() -> None:
    desired: JsonObject = {"spec": {"ports": [{"name": "new", "port": 82}, {"name": "old", "port": 83}]}}
    laid = lay_over(EXISTING, desired)
    assert laid["spec"] == {
        "clusterIP": "10.0.0.1",
        "ports": [
            {"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30000},
            {"name": "old", "port": 83, "protocol": "TCP"},
            {"name": "new", "port": 82},
        ],
    }


def test_the_spelling_of_what_exists_stays_where_the_meaning_is_the_same() -> None:
    assert lay_over(limits("1"), limits("1000m")) == {**limits("1"), "metadata": {}}


def test_what_the_server_decides_is_not_laid_over() -> None:
    laid = lay_over(EXISTING, {"metadata": {"uid": "x"}, "status": {"loadBalancer": None}})
    assert equivalent(laid, EXISTING)
    assert laid["metadata"] == EXISTING["metadata"]
    assert laid["status"] == EXISTING["status"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "a", "1", "1000m", "1k"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "name", "limits", "cpu", "labels", "ports"]), inner, max_size=3)
    ),
    max_leaves=12,
)
specs = st.dictionaries(st.sampled_from(["a", "limits", "labels", "ports"]), json_values, max_size=3)


@given(specs, specs)
def test_laying_the_same_over_again_changes_nothing(existing: JsonObject, desired: JsonObject) -> None:
    # Invariant: after a write of what was laid over, there is nothing to write.
    once = lay_over({"spec": existing}, {"spec": desired})
    assert equivalent(once, lay_over(once, {"spec": desired}))


@given(specs)
def test_a_document_means_the_same_as_itself(spec: JsonObject) -> None:
    assert equivalent({"spec": spec}, {"spec": spec})


POD: JsonObject = {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {"hostNetwork": True}}


@pytest.mark.parametrize(
    ("name", "value"),
    [("hostNetwork", False), ("priorityClassName", ""), ("minReadySeconds", 0)],
)
def test_o06_what_a_built_in_kind_leaves_out_is_as_good_as_absent(name: str, value: Json) -> None:
    said: JsonObject = {**POD, "spec": {name: value}}
    assert equivalent(said, {**POD, "spec": {}})
    assert equivalent({**POD, "spec": {}}, said)
    assert not equivalent(said, POD)
    custom = "demo.example.com/v1"
    assert not equivalent({**said, "apiVersion": custom}, {**POD, "apiVersion": custom, "spec": {}})


@pytest.mark.parametrize(
    ("name", "value"), [("automountServiceAccountToken", False), ("storageClassName", ""), ("replicas", 0)]
)
def test_o06_what_it_does_not_leave_out_means_something(name: str, value: Json) -> None:
    assert not equivalent({**POD, "spec": {name: value}}, {**POD, "spec": {}})


def test_o06_turning_something_off_is_a_change_all_the_same() -> None:
    off: JsonObject = {**POD, "spec": {"hostNetwork": False}}
    assert lay_over(POD, off)["spec"] == {"hostNetwork": False}
    assert not equivalent(POD, lay_over(POD, off))


def test_o06_data_is_never_left_out() -> None:
    document: JsonObject = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"description": ""}}
    assert not equivalent(document, {**document, "data": {}})


def test_o06_values_of_metrics_are_quantities() -> None:
    def scaler(value: str) -> JsonObject:
        metric: JsonObject = {"type": "External", "external": {"target": {"type": "Value", "value": value}}}
        return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "spec": {"metrics": [metric]}}

    assert equivalent(scaler("1000m"), scaler("1"))
    assert not equivalent(scaler("1000m"), scaler("2"))
