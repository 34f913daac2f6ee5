"""Which fields of built-in kinds the API server leaves out when they are empty, false or zero.

The server's own types cannot tell these values from absence, so `hostNetwork: false` or an environment variable's
`value: ""` do not come back. Fields that can tell (`automountServiceAccountToken: false`, `storageClassName: ""`) are
not listed, nor are those that always come back. By the types of Kubernetes 1.37.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from opsdk.types import Json, JsonObject

__all__ = ["is_builtin", "is_omitted"]

_STRINGS: Final = frozenset(
    {
        "clusterIP",
        "component",
        "concurrencyPolicy",
        "description",
        "directory",
        "dnsPolicy",
        "externalName",
        "externalTrafficPolicy",
        "host",
        "hostIP",
        "imagePullPolicy",
        "iscsiInterface",
        "keyring",
        "level",
        "loadBalancerIP",
        "medium",
        "messageExpression",
        "note",
        "persistentVolumeReclaimPolicy",
        "podManagementPolicy",
        "prefix",
        "priorityClassName",
        "schedulerName",
        "scheme",
        "serviceAccount",
        "sessionAffinity",
        "subPath",
        "subPathExpr",
        "subdomain",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "user",
        "whenDeleted",
        "whenScaled",
        "workingDir",
    }
)
_BOOLEANS: Final = frozenset(
    {
        "globalDefault",
        "hostIPC",
        "hostNetwork",
        "hostPID",
        "insecureSkipTLSVerifyBackend",
        "paused",
        "publishNotReadyAddresses",
        "stdin",
        "stdinOnce",
        "tty",
        "unschedulable",
    }
)
_NUMBERS: Final = frozenset(
    {
        "failureThreshold",
        "healthCheckNodePort",
        "hostPort",
        "initialDelaySeconds",
        "minReadySeconds",
        "nodePort",
        "number",
        "successThreshold",
    }
)
# Names that mean different things in different places, by the member that holds them.
_HELD: Final[Mapping[str, frozenset[str]]] = {
    "containers": frozenset({"image"}),
    "env": frozenset({"value"}),
    "httpGet": frozenset({"path"}),
    "livenessProbe": frozenset({"periodSeconds", "timeoutSeconds"}),
    "persistentVolumeClaim": frozenset({"readOnly"}),
    "ports": frozenset({"name", "protocol"}),
    "readinessProbe": frozenset({"periodSeconds", "timeoutSeconds"}),
    "resourceFieldRef": frozenset({"containerName"}),
    "secret": frozenset({"secretName"}),
    "spec": frozenset({"hostname", "nodeName", "restartPolicy", "serviceAccountName", "volumeName"}),
    "startupProbe": frozenset({"periodSeconds", "timeoutSeconds"}),
    "tls": frozenset({"secretName"}),
    "tolerations": frozenset({"effect", "key", "operator", "value"}),
    "volumeMounts": frozenset({"readOnly"}),
}


def is_builtin(document: JsonObject) -> bool:
    """Whether a document is of a kind that the server itself has: custom resources come back as they were sent."""
    version = document.get("apiVersion")
    if not isinstance(version, str):
        return False
    group, slash, _ = version.partition("/")
    return not slash or "." not in group or group.endswith(".k8s.io")


def is_omitted(value: Json, path: Sequence[str]) -> bool:
    """Whether the server leaves a member of a built-in kind out.

    Args:
        value: Its value.
        path: The names that lead to it, without positions in lists.
    """
    if value:
        return False
    name, holder = path[-1], path[-2] if len(path) > 1 else ""
    if name in _HELD.get(holder, ()):
        return isinstance(value, str | bool | int)
    if isinstance(value, bool):
        return name in _BOOLEANS
    if isinstance(value, str):
        return name in _STRINGS
    return isinstance(value, int) and name in _NUMBERS
