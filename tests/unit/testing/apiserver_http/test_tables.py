"""Rows as kubectl shows them, and JSONPaths and durations inside them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from opsdk import clock
from opsdk.testing.apiserver._jsonpath import find_all, find_first
from opsdk.testing.apiserver._kinds import KindInfo, PrintColumn, find_builtin
from opsdk.testing.apiserver._table_cells import human_duration
from opsdk.testing.apiserver._tables import render_table

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
CREATED = "2026-01-01T11:55:00Z"


def row(kind: str | KindInfo, **document: Any) -> list[Any]:
    info = find_builtin(kind) if isinstance(kind, str) else kind
    metadata = {"name": "a", "creationTimestamp": CREATED, **document.pop("metadata", {})}
    with clock.using(clock.ManualClock(NOW)):
        table: Any = render_table(
            info, [{"kind": info.kind, "metadata": metadata, **document}], {"resourceVersion": "7"}
        )
    assert len(table["columnDefinitions"]) == len(table["rows"][0]["cells"])
    cells: list[Any] = table["rows"][0]["cells"]
    return cells


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (121, "2m1s"),
        (599, "9m59s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (8 * 3600, "8h"),
        (47 * 3600, "47h"),
        (48 * 3600, "2d"),
        (49 * 3600, "2d1h"),
        (8 * 86400, "8d"),
        (729 * 86400, "729d"),
        (730 * 86400, "2y"),
        (731 * 86400, "2y1d"),
        (8 * 365 * 86400, "8y"),
    ],
)
def test_durations_have_two_or_three_figures(seconds: int, text: str) -> None:
    assert human_duration(timedelta(seconds=seconds)) == text


DOCUMENT = {
    "a": {"b": 1, "c.d": 2, "list": [{"type": "Ready", "n": 1}, {"type": "Other", "n": 2}, {"type": "Ready", "n": 3}]},
    "m": {"x": 1, "y": 2},
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".a.b", [1]),
        ("{.a.b}", [1]),
        (r".a.c\.d", [2]),
        (".a['c.d']", [2]),
        ('.a["c.d"]', [2]),
        (".a.list[0].type", ["Ready"]),
        (".a.list[-1].n", [3]),
        (".a.list[9].n", []),
        (".a.list[1:].n", [2, 3]),
        (".a.list[*].n", [1, 2, 3]),
        (".m.*", [1, 2]),
        ('.a.list[?(@.type=="Ready")].n', [1, 3]),
        (".a.list[?(@.type=='Other')].n", [2]),
        (".a.list[?(@.n>1)].n", [2, 3]),
        (".a.list[?(@.n!=2)].n", [1, 3]),
        (".a.list[?(@.none)].n", []),
        (".a.none.b", []),
        ("..b", []),
    ],
)
def test_json_paths(path: str, found: list[Any]) -> None:
    assert find_all(path, DOCUMENT) == found
    assert find_first(path, DOCUMENT) == (found[0] if found else None)


def custom(*columns: PrintColumn) -> KindInfo:
    return KindInfo(
        group="example.com",
        version="v1",
        kind="Thing",
        plural="things",
        singular="thing",
        namespaced=True,
        storage="things.example.com",
        storage_version="v1",
        builtin=False,
        print_columns=columns,
    )


@pytest.mark.parametrize(
    ("kind", "value", "cell"),
    [
        ("string", "x", "x"),
        ("string", 3, "3"),
        ("string", True, "true"),
        ("string", ["x", 1], '["x",1]'),
        ("string", {"b": 1, "a": 2}, '{"a":2,"b":1}'),
        ("string", None, None),
        ("integer", 3, 3),
        ("integer", 3.7, 3),
        ("integer", "3", None),
        ("number", 3, 3.0),
        ("boolean", True, True),
        ("boolean", "true", None),
        ("date", "2026-01-01T11:00:00Z", "60m"),
        ("date", "soon", "<invalid>"),
        ("date", 3, None),
    ],
)
def test_cells_of_custom_columns(kind: str, value: Any, cell: Any) -> None:
    info = custom(PrintColumn(name="X", type=kind, json_path=".spec.x"))
    assert row(info, spec={"x": value}) == ["a", cell]


def test_a_kind_without_columns_shows_its_age() -> None:
    assert row(custom()) == ["a", "5m"]


def test_deployments() -> None:
    spec = {
        "replicas": 3,
        "selector": {
            "matchLabels": {"app": "x"},
            "matchExpressions": [{"key": "tier", "operator": "In", "values": ["b", "a"]}],
        },
        "template": {"spec": {"containers": [{"name": "c", "image": "i:1"}, {"name": "d", "image": "j:2"}]}},
    }
    status = {"readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1}
    assert row("Deployment", spec=spec, status=status) == [
        "a",
        "1/3",
        2,
        1,
        "5m",
        "c,d",
        "i:1,j:2",
        "app=x,tier in (a,b)",
    ]


_PODS: list[tuple[dict[str, Any], list[Any]]] = [
    ({"phase": "Pending"}, ["0/1", "Pending", "0"]),
    (
        {"phase": "Running", "containerStatuses": [{"ready": True, "state": {"running": {}}, "restartCount": 0}]},
        ["1/1", "Running", "0"],
    ),
    (
        {
            "phase": "Running",
            "containerStatuses": [
                {
                    "ready": False,
                    "restartCount": 4,
                    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                    "lastState": {"terminated": {"finishedAt": "2026-01-01T11:58:00Z"}},
                }
            ],
        },
        ["0/1", "CrashLoopBackOff", "4 (2m ago)"],
    ),
    (
        {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 3}}, "restartCount": 0}]},
        ["0/1", "ExitCode:3", "0"],
    ),
    (
        {
            "phase": "Succeeded",
            "containerStatuses": [{"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}],
        },
        ["0/1", "Completed", "0"],
    ),
    (
        {
            "phase": "Pending",
            "initContainerStatuses": [{"state": {"terminated": {"exitCode": 1, "reason": "Error"}}}],
        },
        ["0/1", "Init:Error", "0"],
    ),
    ({"phase": "Pending", "initContainerStatuses": [{"state": {"running": {}}}]}, ["0/1", "Init:0/0", "0"]),
]


@pytest.mark.parametrize(
    ("status", "cells"),
    _PODS,
)
def test_pods(status: dict[str, Any], cells: list[Any]) -> None:
    assert row("Pod", spec={"containers": [{"name": "c"}]}, status=status)[1:4] == cells


def test_a_pod_on_its_way_out_is_terminating() -> None:
    cells = row("Pod", metadata={"deletionTimestamp": CREATED}, spec={"containers": [{}]}, status={"phase": "Running"})
    assert cells[2] == "Terminating"


def test_a_finished_pod_says_so_in_its_row() -> None:
    table: Any = render_table(find_builtin("Pod"), [{"kind": "Pod", "status": {"phase": "Succeeded"}}], {})
    assert table["rows"][0]["conditions"][0]["type"] == "Completed"


def test_services() -> None:
    ports = [{"port": 80, "protocol": "TCP"}, {"port": 443, "nodePort": 30443, "protocol": "TCP"}]
    spec = {"type": "LoadBalancer", "clusterIPs": ["10.0.0.1"], "ports": ports, "selector": {"app": "x"}}
    assert row("Service", spec=spec)[1:] == [
        "LoadBalancer",
        "10.0.0.1",
        "<pending>",
        "80/TCP,443:30443/TCP",
        "5m",
        "app=x",
    ]
    status = {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}
    assert row("Service", spec=spec, status=status)[3] == "1.2.3.4"
    assert row("Service", spec={"type": "ExternalName", "externalName": "x.example"})[3:5] == ["x.example", "<none>"]


def test_nodes() -> None:
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "nodeInfo": {"kubeletVersion": "v1.37.0", "kernelVersion": "6.1", "architecture": "amd64"},
        "addresses": [{"type": "InternalIP", "address": "10.0.0.9"}],
    }
    labels = {"node-role.kubernetes.io/control-plane": ""}
    assert row("Node", metadata={"labels": labels}, spec={"unschedulable": True}, status=status) == [
        "a",
        "Ready,SchedulingDisabled",
        "control-plane",
        "5m",
        "v1.37.0",
        "10.0.0.9",
        "<none>",
        "<unknown>",
        "6.1 (amd64)",
        "<unknown>",
    ]


def test_events_of_both_groups_look_alike() -> None:
    old = row(
        "Event",
        type="Normal",
        reason="Done",
        message=" it is done\n",
        involvedObject={"kind": "Pod", "name": "p"},
        source={"component": "me"},
        firstTimestamp="2026-01-01T11:00:00Z",
        lastTimestamp="2026-01-01T11:59:00Z",
        count=3,
    )
    assert old == ["60s", "Normal", "Done", "pod/p", "", "me", "it is done", "60m", 3, "a"]
    new = row(
        "Event",
        type="Warning",
        reason="Bad",
        note="it is bad",
        regarding={"kind": "Widget", "name": "w"},
        reportingController="me",
        reportingInstance="me-1",
        eventTime="2026-01-01T11:59:30.000000Z",
    )
    assert new == ["30s", "Warning", "Bad", "widget/w", "", "me, me-1", "it is bad", "30s", 1, "a"]


_OTHERS: list[tuple[str, dict[str, Any], list[Any]]] = [
    ("ConfigMap", {"data": {"a": "1"}, "binaryData": {"b": ""}}, [2, "5m"]),
    ("Secret", {"type": "Opaque", "data": {"a": ""}}, ["Opaque", 1, "5m"]),
    ("Namespace", {"status": {"phase": "Active"}}, ["Active", "5m"]),
    ("Lease", {"spec": {"holderIdentity": "me"}}, ["me", "5m"]),
    ("StatefulSet", {"spec": {"replicas": 2}, "status": {"readyReplicas": 1}}, ["1/2", "5m", "", ""]),
    ("ReplicaSet", {"spec": {"replicas": 2}, "status": {"replicas": 1}}, [2, 1, 0, "5m", "", "", ""]),
    ("ClusterRole", {}, [CREATED]),
    ("ServiceAccount", {}, ["5m"]),
    (
        "RoleBinding",
        {"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}]},
        ["Role/r", "5m", "u", "", ""],
    ),
    (
        "Job",
        {"spec": {"completions": 2}, "status": {"succeeded": 1, "startTime": "2026-01-01T11:59:00Z"}},
        ["Running", "1/2", "60s", "5m", "", "", "<none>"],
    ),
    (
        "CronJob",
        {"spec": {"schedule": "* * * * *"}},
        ["* * * * *", "<none>", "<unset>", 0, "<none>", "5m", "", "", "<none>"],
    ),
    ("PodDisruptionBudget", {"spec": {"minAvailable": 1}}, ["1", "N/A", 0, "5m"]),
    ("Ingress", {"spec": {"rules": [{"host": "h"}], "tls": [{}]}}, ["<none>", "h", "", "80, 443", "5m"]),
]


@pytest.mark.parametrize(
    ("kind", "document", "cells"),
    _OTHERS,
)
def test_other_kinds(kind: str, document: dict[str, Any], cells: list[Any]) -> None:
    assert row(kind, **document)[1:] == cells


def test_a_row_carries_what_was_asked_for() -> None:
    document = {"kind": "ConfigMap", "metadata": {"name": "a"}, "data": {}}
    info = find_builtin("ConfigMap")
    whole: Any = render_table(info, [document], {}, include_object="Object")
    assert whole["rows"][0]["object"] == document
    nothing: Any = render_table(info, [document], {}, include_object="None", headers=False)
    assert nothing["rows"][0]["object"] is None
    assert nothing["columnDefinitions"] is None
