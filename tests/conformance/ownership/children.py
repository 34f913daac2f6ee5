"""One child of each kind that operators make, as an author would write it: with what matters, and no more.

`rich` goes further: fields that the server respells, fills in or moves. All are of the namespace they are given.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, final

from lightkube.resources.apps_v1 import DaemonSet, Deployment, StatefulSet
from lightkube.resources.autoscaling_v2 import HorizontalPodAutoscaler
from lightkube.resources.batch_v1 import CronJob, Job
from lightkube.resources.core_v1 import (
    ConfigMap,
    LimitRange,
    Namespace,
    PersistentVolumeClaim,
    Pod,
    ResourceQuota,
    Secret,
    Service,
    ServiceAccount,
)
from lightkube.resources.networking_v1 import Ingress, NetworkPolicy
from lightkube.resources.policy_v1 import PodDisruptionBudget
from lightkube.resources.rbac_authorization_v1 import ClusterRole, ClusterRoleBinding, Role, RoleBinding
from lightkube.resources.scheduling_v1 import PriorityClass
from lightkube.resources.storage_v1 import StorageClass

from conformance.harness import GROUP
from opsdk.models import CustomResource, MachineStatus, Model, codec_of, crd_manifest, resource_of
from opsdk.protocols import KubeObject

__all__ = ["CHILDREN", "OWN_CRDS", "Body", "ChildKind", "Gadget", "Plain", "Widget", "build"]

Body: TypeAlias = dict[str, Any]

OWN_GROUP: Final = "ownership.example.com"


class WidgetSpec(Model):
    size: int = 1
    note: str | None = None
    labels: dict[str, str] | None = None


class Widget(CustomResource[WidgetSpec, MachineStatus], group=OWN_GROUP, version="v1"):
    """A namespaced owner."""

    def get_machine_status(self) -> MachineStatus:
        return self.status


class Anything(Model):
    """An open spec."""


class Gadget(CustomResource[Anything], group=OWN_GROUP, version="v1", scope="Cluster"):
    """A cluster-scoped owner."""


class Plain(CustomResource[Anything], group=GROUP, version="v1"):
    """A kind without a status subresource; its CRD is the conformance suite's."""


OWN_CRDS: Final = (crd_manifest(Widget), crd_manifest(Gadget))


_LABELS: Final = {"app": "web"}
_SELECTOR: Final[Body] = {"matchLabels": _LABELS}


def _pods(**spec: Any) -> Body:
    return {"metadata": {"labels": _LABELS}, "spec": {"containers": [{"name": "web", "image": "nginx"}], **spec}}


_RICH_PODS: Final = _pods(
    serviceAccountName="web",
    terminationGracePeriodSeconds=60,
    hostNetwork=False,
    priorityClassName="",
    initContainers=[{"name": "init", "image": "busybox:1.36", "command": ["true"], "restartPolicy": "Always"}],
    containers=[
        {
            "name": "web",
            "image": "registry.example.com:5000/nginx@sha256:" + "0" * 64,
            "ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 53, "protocol": "UDP"}],
            "env": [
                {"name": "A", "value": "1"},
                {"name": "EMPTY", "value": ""},
                {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            ],
            "envFrom": [{"configMapRef": {"name": "c"}}],
            "resources": {"limits": {"cpu": "1000m", "memory": "1024Mi"}, "requests": {"cpu": "0.50"}},
            "stdin": False,
            "livenessProbe": {"httpGet": {"port": "http"}, "periodSeconds": 5, "initialDelaySeconds": 0},
            "readinessProbe": {"tcpSocket": {"port": 80}},
            "startupProbe": {"exec": {"command": ["true"]}},
            "lifecycle": {"preStop": {"httpGet": {"port": 80}}},
            "volumeMounts": [{"name": "tmp", "mountPath": "/tmp", "readOnly": False, "subPath": ""}],
            "securityContext": {"capabilities": {"drop": ["ALL"]}},
        }
    ],
    volumes=[
        {"name": "tmp", "emptyDir": {"sizeLimit": "1000M"}},
        {"name": "plain", "emptyDir": {}},
        {"name": "config", "configMap": {"name": "c"}},
        {"name": "secret", "secret": {"secretName": "s", "defaultMode": 256}},
        {"name": "host", "hostPath": {"path": "/x"}},
        {
            "name": "all",
            "projected": {
                "sources": [
                    {"serviceAccountToken": {"path": "token"}},
                    {"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                ]
            },
        },
        {"name": "down", "downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    ],
    tolerations=[{"key": "x", "operator": "Exists", "value": "", "effect": ""}],
    topologySpreadConstraints=[
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": _SELECTOR}
    ],
    affinity={
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": _SELECTOR}}
            ]
        }
    },
    hostAliases=[{"ip": "10.0.0.1", "hostnames": ["a"]}],
    imagePullSecrets=[{"name": "pull"}],
)


def _once(template: Body) -> Body:
    """A template for pods that end."""
    return {**template, "spec": {**template["spec"], "restartPolicy": "Never"}}


@final
@dataclass(frozen=True, slots=True)
class ChildKind:
    """A kind of children.

    Args:
        kind: Its class.
        lean: What an author says at least.
        rich: More.
    """

    kind: type[KubeObject]
    lean: Body
    rich: Body | None = None


_RULES: Final = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]

CHILDREN: Final = (
    ChildKind(
        Deployment,
        {"spec": {"selector": _SELECTOR, "template": _pods()}},
        {
            "spec": {
                "replicas": 0,
                "paused": False,
                "minReadySeconds": 0,
                "selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
                "template": _RICH_PODS,
            }
        },
    ),
    ChildKind(
        StatefulSet,
        {"spec": {"selector": _SELECTOR, "serviceName": "web", "template": _pods()}},
        {
            "spec": {
                "replicas": 0,
                "selector": _SELECTOR,
                "serviceName": "web",
                "template": _RICH_PODS,
                "updateStrategy": {"type": "OnDelete"},
                "volumeClaimTemplates": [
                    {
                        "metadata": {"name": "data"},
                        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}},
                    }
                ],
            }
        },
    ),
    ChildKind(
        DaemonSet,
        {"spec": {"selector": _SELECTOR, "template": _pods()}},
        {"spec": {"selector": _SELECTOR, "template": _RICH_PODS, "updateStrategy": {"type": "OnDelete"}}},
    ),
    ChildKind(
        Job,
        {"spec": {"suspend": True, "template": _once(_pods())}},
        {
            "spec": {
                "suspend": True,
                "parallelism": 2,
                "completions": 4,
                "completionMode": "Indexed",
                "backoffLimitPerIndex": 1,
                "ttlSecondsAfterFinished": 60,
                "template": _once(_RICH_PODS),
                "podFailurePolicy": {
                    "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]
                },
            }
        },
    ),
    ChildKind(
        CronJob,
        {"spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": _once(_pods())}}}},
        {
            "spec": {
                "schedule": "0 0 1 1 *",
                "timeZone": "Europe/Vienna",
                "concurrencyPolicy": "Forbid",
                "jobTemplate": {"metadata": {"labels": _LABELS}, "spec": {"template": _once(_RICH_PODS)}},
            }
        },
    ),
    ChildKind(
        Service,
        {"spec": {"selector": _LABELS, "ports": [{"port": 80}]}},
        {
            "spec": {
                "type": "LoadBalancer",
                "selector": _LABELS,
                "ports": [
                    {"name": "http", "port": 80, "targetPort": "http", "appProtocol": "http"},
                    {"name": "dns", "port": 53, "protocol": "UDP"},
                ],
                "sessionAffinity": "ClientIP",
                "externalTrafficPolicy": "Local",
            }
        },
    ),
    ChildKind(ConfigMap, {"data": {"a": "1"}}, {"data": {"a": "", "b": "1000m"}, "binaryData": {"c": "AAE="}}),
    ChildKind(Secret, {"data": {"a": "eA=="}}, {"type": "example.com/token", "data": {"a": "eA==", "empty": ""}}),
    ChildKind(
        ServiceAccount,
        {},
        {"automountServiceAccountToken": False, "imagePullSecrets": [{"name": "p"}], "secrets": [{"name": "s"}]},
    ),
    ChildKind(
        Role,
        {"rules": _RULES},
        {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": ["a"]}]},
    ),
    ChildKind(
        RoleBinding,
        {
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
            "subjects": [{"kind": "ServiceAccount", "name": "a"}],
        },
        {
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "User", "name": "u"}, {"kind": "Group", "name": "g"}],
        },
    ),
    ChildKind(
        Ingress,
        {"spec": {"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}}},
        {
            "spec": {
                "ingressClassName": "nginx",
                "tls": [{"hosts": ["a.example.com"], "secretName": "s"}],
                "rules": [
                    {
                        "host": "a.example.com",
                        "http": {
                            "paths": [
                                {
                                    "path": "/",
                                    "pathType": "Prefix",
                                    "backend": {"service": {"name": "web", "port": {"name": "http"}}},
                                }
                            ]
                        },
                    }
                ],
            }
        },
    ),
    ChildKind(
        PodDisruptionBudget,
        {"spec": {"minAvailable": 1, "selector": _SELECTOR}},
        {"spec": {"maxUnavailable": "50%", "selector": _SELECTOR, "unhealthyPodEvictionPolicy": "AlwaysAllow"}},
    ),
    ChildKind(
        HorizontalPodAutoscaler,
        {
            "spec": {
                "maxReplicas": 3,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            }
        },
        {
            "spec": {
                "minReplicas": 2,
                "maxReplicas": 3,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "metrics": [
                    {
                        "type": "Resource",
                        "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1024Mi"}},
                    },
                    {
                        "type": "External",
                        "external": {
                            "metric": {"name": "queue"},
                            "target": {"type": "Value", "value": "1000m"},
                        },
                    },
                ],
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}},
            }
        },
    ),
    ChildKind(
        PersistentVolumeClaim,
        {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}},
        {
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "",
                "volumeMode": "Block",
                "resources": {"requests": {"storage": "1024Mi"}, "limits": {"storage": "2048Mi"}},
                "selector": _SELECTOR,
            }
        },
    ),
    ChildKind(
        NetworkPolicy,
        {"spec": {"podSelector": {}}},
        {
            "spec": {
                "podSelector": _SELECTOR,
                "ingress": [{"from": [{"namespaceSelector": {}}], "ports": [{"port": 80}, {"port": "http"}]}, {}],
                "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}]}],
            }
        },
    ),
    ChildKind(
        ClusterRole,
        {"rules": _RULES},
        {"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"nobody": "has-this"}}]}},
    ),
    ChildKind(
        ClusterRoleBinding,
        {
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
        },
    ),
    ChildKind(Namespace, {}, {"metadata": {"labels": {"team": "a"}}}),
    ChildKind(Plain, {"spec": {}}),
    ChildKind(Widget, {"spec": {"size": 3}}, {"spec": {"size": 3, "labels": {"a": ""}}}),
    ChildKind(Pod, {"spec": {"containers": [{"name": "web", "image": "nginx"}]}}),
    ChildKind(ResourceQuota, {"spec": {"hard": {"pods": "1000m", "requests.cpu": "1000m"}}}),
    ChildKind(
        LimitRange,
        {"spec": {"limits": [{"type": "Container", "max": {"cpu": "2000m"}, "defaultRequest": {"cpu": "0.10"}}]}},
    ),
    ChildKind(PriorityClass, {"value": 5}),
    ChildKind(StorageClass, {"provisioner": "example.com/none"}),
)


def build(child: ChildKind, body: Body, name: str, namespace: str | None) -> KubeObject:
    """The child as an object of its class."""
    info = resource_of(child.kind)
    metadata = {**body.get("metadata", {}), "name": name}
    if info.namespaced and namespace is not None:
        metadata["namespace"] = namespace
    document = {"apiVersion": info.api_version, "kind": info.kind, **body, "metadata": metadata}
    return codec_of(child.kind).decode(json.dumps(document).encode())
