"""What the server fills in and refuses in built-in kinds; and that what it filled in is no difference (O01, O06)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from opsdk.testing.apiserver import ApiServer
from opsdk.testing.apiserver._quantity import canonical_quantity

Send = Callable[..., tuple[int, Any]]
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
POD = {"containers": [{"name": "c", "image": "nginx"}]}
TEMPLATE = {"metadata": {"labels": {"app": "a"}}, "spec": POD}
SELECTOR = {"matchLabels": {"app": "a"}}
WORKLOAD = {"selector": SELECTOR, "template": TEMPLATE}
JOB = {"template": {"spec": {**POD, "restartPolicy": "Never"}}}
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}}

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "Deployment": ("apis/apps/v1/{ns}/deployments", {"spec": WORKLOAD}),
    "StatefulSet": ("apis/apps/v1/{ns}/statefulsets", {"spec": {**WORKLOAD, "serviceName": "s"}}),
    "DaemonSet": ("apis/apps/v1/{ns}/daemonsets", {"spec": WORKLOAD}),
    "ReplicaSet": ("apis/apps/v1/{ns}/replicasets", {"spec": WORKLOAD}),
    "Job": ("apis/batch/v1/{ns}/jobs", {"spec": JOB}),
    "CronJob": ("apis/batch/v1/{ns}/cronjobs", {"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": JOB}}}),
    "Pod": ("api/v1/{ns}/pods", {"spec": POD}),
    "Service": ("api/v1/{ns}/services", {"spec": {"selector": {"app": "a"}, "ports": [{"port": 80}]}}),
    "ConfigMap": ("api/v1/{ns}/configmaps", {"data": {"a": "b"}}),
    "Secret": ("api/v1/{ns}/secrets", {"stringData": {"a": "b"}}),
    "ServiceAccount": ("api/v1/{ns}/serviceaccounts", {}),
    "PersistentVolumeClaim": ("api/v1/{ns}/persistentvolumeclaims", {"spec": CLAIM}),
    "Ingress": (
        "apis/networking.k8s.io/v1/{ns}/ingresses",
        {"spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}},
    ),
    "NetworkPolicy": ("apis/networking.k8s.io/v1/{ns}/networkpolicies", {"spec": {"podSelector": {}}}),
    "Role": ("apis/rbac.authorization.k8s.io/v1/{ns}/roles", {"rules": []}),
    "RoleBinding": (
        "apis/rbac.authorization.k8s.io/v1/{ns}/rolebindings",
        {"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}]},
    ),
    "HorizontalPodAutoscaler": (
        "apis/autoscaling/v2/{ns}/horizontalpodautoscalers",
        {"spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}},
    ),
    "PodDisruptionBudget": (
        "apis/policy/v1/{ns}/poddisruptionbudgets",
        {"spec": {"minAvailable": 1, "selector": SELECTOR}},
    ),
    "Lease": ("apis/coordination.k8s.io/v1/{ns}/leases", {"spec": {"holderIdentity": "me"}}),
}


def path_of(kind: str) -> str:
    return "/" + KINDS[kind][0].replace("{ns}", "namespaces/default")


def body_of(kind: str, name: str = "a") -> dict[str, Any]:
    api = "/".join(KINDS[kind][0].split("/{ns}")[0].split("/")[1:])
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, **KINDS[kind][1]}


def create(send: Send, kind: str, **spec: object) -> Any:
    body = body_of(kind)
    if spec:
        body["spec"] = {**body.get("spec", {}), **spec}
    code, created = send("POST", path_of(kind), body)
    assert code == 201, created
    return created


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_o01_what_was_created_can_be_put_applied_and_patched_again_without_a_write(
    send: Send, server: ApiServer, kind: str
) -> None:
    created = create(send, kind)
    before = server.resource_version
    code, replaced = send("PUT", f"{path_of(kind)}/a", created)
    assert (code, replaced) == (200, created)
    wanted = {name: value for name, value in body_of(kind).items() if name not in {"metadata", "stringData"}}
    code, patched = send("PATCH", f"{path_of(kind)}/a", wanted, content_type=MERGE)
    # Lists are replaced by a merge patch, so what the server filled in there is filled in again.
    assert (code, patched) == (200, created)
    assert server.resource_version == before


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_o01_applying_the_same_twice_writes_once(send: Send, server: ApiServer, kind: str) -> None:
    body = {name: value for name, value in body_of(kind).items() if name != "stringData"}
    code, _ = send("PATCH", f"{path_of(kind)}/a", body, content_type=APPLY, fieldManager="me")
    assert code == 201
    before = server.resource_version
    assert send("PATCH", f"{path_of(kind)}/a", body, content_type=APPLY, fieldManager="me")[0] == 200
    assert server.resource_version == before


def test_a_deployment_s_defaults(send: Send) -> None:
    spec = create(send, "Deployment")["spec"]
    assert spec["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
    }
    assert (spec["replicas"], spec["revisionHistoryLimit"], spec["progressDeadlineSeconds"]) == (1, 10, 600)
    pod = spec["template"]["spec"]
    assert pod == {
        "containers": [
            {
                "name": "c",
                "image": "nginx",
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "Always",
            }
        ],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
    }


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1.27", "IfNotPresent"),
        ("registry.example.com:5000/nginx", "Always"),
        ("nginx@sha256:0123", "IfNotPresent"),
    ],
)
def test_the_pull_policy_follows_the_tag(send: Send, image: str, policy: str) -> None:
    pod = create(send, "Pod", containers=[{"name": "c", "image": image}])
    assert pod["spec"]["containers"][0]["imagePullPolicy"] == policy


def test_a_container_s_parts_are_filled_in(send: Send) -> None:
    container = {
        "name": "c",
        "image": "i:1",
        "ports": [{"containerPort": 80}],
        "livenessProbe": {"httpGet": {"port": 80}},
        "resources": {"limits": {"cpu": "1000m", "memory": "1024Mi"}},
        "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    }
    pod = create(send, "Pod", containers=[container], volumes=[{"name": "v", "secret": {"secretName": "s"}}])
    (after,) = pod["spec"]["containers"]
    assert after["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert after["livenessProbe"] == {
        "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    assert after["resources"] == {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}
    assert after["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] == "v1"
    assert pod["spec"]["volumes"] == [{"name": "v", "secret": {"secretName": "s", "defaultMode": 420}}]
    assert pod["status"] == {"phase": "Pending", "qosClass": "Guaranteed"}


def test_a_service_gets_addresses_and_ports(send: Send) -> None:
    first = create(send, "Service")["spec"]
    assert first["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    assert first["clusterIPs"] == [first["clusterIP"]]
    assert (first["type"], first["sessionAffinity"], first["internalTrafficPolicy"]) == ("ClusterIP", "None", "Cluster")
    assert (first["ipFamilies"], first["ipFamilyPolicy"]) == (["IPv4"], "SingleStack")
    _, second = send("POST", path_of("Service"), body_of("Service", "b"))
    assert second["spec"]["clusterIP"] != first["clusterIP"]
    _, replaced = send("PUT", f"{path_of('Service')}/a", body_of("Service"))
    assert replaced["spec"]["clusterIP"] == first["clusterIP"]
    code, status = send("PATCH", f"{path_of('Service')}/a", {"spec": {"clusterIP": "10.1.1.1"}}, content_type=MERGE)
    assert (code, status["details"]["causes"][0]["field"]) == (422, "spec.clusterIPs[0]")


def test_a_headless_service_keeps_none(send: Send) -> None:
    spec = create(send, "Service", clusterIP="None")["spec"]
    assert (spec["clusterIP"], spec["clusterIPs"]) == ("None", ["None"])


def test_a_node_port_service_gets_ports_that_stay(send: Send) -> None:
    spec = create(send, "Service", type="NodePort")["spec"]
    (port,) = spec["ports"]
    assert 30000 <= port["nodePort"] <= 32767
    _, patched = send("PATCH", f"{path_of('Service')}/a", {"spec": {"ports": [{"port": 80}]}}, content_type=MERGE)
    assert patched["spec"]["ports"][0]["nodePort"] == port["nodePort"]


def test_string_data_of_a_secret_becomes_data(send: Send) -> None:
    secret = create(send, "Secret")
    assert (secret["data"], secret["type"], "stringData" in secret) == ({"a": "Yg=="}, "Opaque", False)


def test_a_job_selects_its_own_pods(send: Send) -> None:
    job = create(send, "Job")
    uid = job["metadata"]["uid"]
    assert job["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert job["spec"]["template"]["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "a"


def test_nulls_are_as_good_as_nothing(send: Send) -> None:
    created = create(send, "Deployment", replicas=None, paused=None)
    assert (created["spec"]["replicas"], "paused" in created["spec"]) == (1, False)


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("1000m", "1"),
        ("0.5", "500m"),
        ("1", "1"),
        ("1024Mi", "1Gi"),
        ("1Gi", "1Gi"),
        ("1500Mi", "1500Mi"),
        ("1000", "1k"),
        ("1000000", "1M"),
        ("128974848", "128974848"),
        ("129e6", "129e6"),
        ("0.1Gi", "107374182400m"),
        ("0", "0"),
        ("-500m", "-500m"),
        ("not a quantity", "not a quantity"),
    ],
)
def test_o06_quantities_have_one_spelling(written: str, kept: str) -> None:
    assert canonical_quantity(written) == kept
    assert canonical_quantity(kept) == kept


@pytest.mark.parametrize(
    ("kind", "change", "field"),
    [
        ("Deployment", {"replicas": -1}, "spec.replicas"),
        ("Deployment", {"selector": {"matchLabels": {"app": "other"}}}, "spec.template.metadata.labels"),
        ("Deployment", {"template": {"metadata": {"labels": {"app": "a"}}}}, "spec.template.spec.containers"),
        ("Job", {"template": {"spec": POD}}, "spec.template.spec.restartPolicy"),
        ("Service", {"ports": []}, "spec.ports"),
        ("Service", {"ports": [{"port": 0}]}, "spec.ports[0].port"),
        ("Pod", {"containers": [{"name": "c"}]}, "spec.containers[0].image"),
        ("Lease", {"leaseDurationSeconds": 0}, "spec.leaseDurationSeconds"),
        ("PersistentVolumeClaim", {"accessModes": []}, "spec.accessModes"),
    ],
)
def test_what_a_kind_requires(send: Send, kind: str, change: dict[str, Any], field: str) -> None:
    body = body_of(kind)
    body["spec"] = {**body["spec"], **change}
    code, status = send("POST", path_of(kind), body)
    assert (code, status["reason"]) == (422, "Invalid")
    assert field in [cause["field"] for cause in status["details"]["causes"]]


@pytest.mark.parametrize(
    ("kind", "patch", "field"),
    [
        ("Deployment", {"spec": {"selector": {"matchLabels": {"app": "a", "x": "y"}}}}, "spec.selector"),
        ("StatefulSet", {"spec": {"serviceName": "other"}}, "spec.serviceName"),
        ("Job", {"spec": {"template": {"metadata": {"labels": {"x": "y"}}}}}, "spec.template"),
        ("Pod", {"spec": {"hostNetwork": True}}, "spec"),
        ("Secret", {"type": "other"}, "type"),
        ("RoleBinding", {"roleRef": {"name": "other"}}, "roleRef"),
    ],
)
def test_what_cannot_change(send: Send, kind: str, patch: dict[str, Any], field: str) -> None:
    create(send, kind)
    code, status = send("PATCH", f"{path_of(kind)}/a", patch, content_type=MERGE)
    assert (code, status["reason"]) == (422, "Invalid"), status
    assert field in [cause["field"] for cause in status["details"]["causes"]]


def test_an_immutable_config_map_stays_as_it_is(send: Send) -> None:
    send("POST", path_of("ConfigMap"), {**body_of("ConfigMap"), "immutable": True})
    code, _ = send("PATCH", f"{path_of('ConfigMap')}/a", {"data": {"a": "c"}}, content_type=MERGE)
    assert code == 422
    code, _ = send("PATCH", f"{path_of('ConfigMap')}/a", {"immutable": None}, content_type=MERGE)
    assert code == 422


def test_a_micro_time_needs_its_fraction(send: Send) -> None:
    body = body_of("Lease")
    body["spec"] = {"renewTime": "2026-01-01T00:00:05Z"}
    code, status = send("POST", path_of("Lease"), body)
    assert code == 400
    assert "parsing time" in status["message"]
    body["spec"] = {"renewTime": "2026-01-01T00:00:05.000000Z"}
    assert send("POST", path_of("Lease"), body)[0] == 201


def test_what_came_with_a_service_s_type_goes_with_it(send: Send) -> None:
    create(send, "Service", type="NodePort")
    _, after = send("PATCH", f"{path_of('Service')}/a", {"spec": {"type": "ClusterIP"}}, content_type=MERGE)
    assert "nodePort" not in after["spec"]["ports"][0]
    assert "externalTrafficPolicy" not in after["spec"]


def test_a_daemon_set_still_counts_its_templates(send: Send) -> None:
    key = "deprecated.daemonset.template.generation"
    assert create(send, "DaemonSet")["metadata"]["annotations"] == {key: "1"}
    patch = {"spec": {"template": {"metadata": {"annotations": {"x": "y"}}}}}
    _, after = send("PATCH", f"{path_of('DaemonSet')}/a", patch, content_type=MERGE)
    assert after["metadata"]["annotations"] == {key: "2"}
