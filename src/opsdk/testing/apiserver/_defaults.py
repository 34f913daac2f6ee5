"""What the server fills in when a built-in object is written, and the spelling in which it keeps values.

Only what clients see in the objects that operators deal with; kinds that are not named here are kept as they come.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Final

from opsdk.testing.apiserver._json import Document, Value, as_list, as_object, as_text, clone, dig
from opsdk.testing.apiserver._kinds import KindInfo
from opsdk.testing.apiserver._quantity import canonical_quantity
from opsdk.testing.apiserver._service_defaults import default_service, prepare_service
from opsdk.testing.apiserver._webhook_defaults import default_mutating_webhooks, default_validating_webhooks
from opsdk.types import JsonObject

__all__ = ["default_builtin", "prepare_builtin", "without_nulls"]


def without_nulls(value: Value) -> Value:
    """The value without nulls in objects, which Go's types cannot hold; changed in place."""
    if isinstance(value, dict):
        for key in [key for key, child in value.items() if child is None]:
            del value[key]
        for child in value.values():
            without_nulls(child)
    elif isinstance(value, list):
        for child in value:
            without_nulls(child)
    return value


def default_builtin(info: KindInfo, document: Document) -> None:
    """Fill in what a document leaves out, in place; whoever sent it owns these values as if it had sent them."""
    default = _DEFAULTS.get(info.resource)
    if default is not None:
        default(document)


def prepare_builtin(info: KindInfo, document: Document, old: Document | None, addresses: Callable[[], str]) -> None:
    """Set what the server itself decides, in place: nobody owns these values.

    Args:
        old: The object as it is; None for a new one.
        addresses: Gives a free cluster IP.
    """
    prepare = _PREPARATIONS.get(info.resource)
    if prepare is not None:
        prepare(document)
    match info.resource:
        case "services":
            prepare_service(document, old, addresses)
        case "daemonsets.apps":
            _count_templates(document, old)
        case "namespaces" if old is None:
            _new_namespace(document)
        case _:
            pass
    if old is None and info.resource in _FIRST_STATUS:
        document["status"] = clone(_FIRST_STATUS[info.resource])


# The status of a new object; Go writes numbers even where nobody has set them.
_FIRST_STATUS: Final[dict[str, JsonObject]] = {
    "daemonsets.apps": dict.fromkeys(
        ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"), 0
    ),
    "horizontalpodautoscalers.autoscaling": {"desiredReplicas": 0},
    "ingresses.networking.k8s.io": {"loadBalancer": {}},
    "persistentvolumeclaims": {"phase": "Pending"},
    "persistentvolumes": {"phase": "Pending"},
    "poddisruptionbudgets.policy": dict.fromkeys(
        ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"), 0
    ),
    "replicasets.apps": {"replicas": 0},
    "replicationcontrollers": {"replicas": 0},
    "statefulsets.apps": {"availableReplicas": 0, "replicas": 0},
}


def _object(parent: Document, name: str) -> Document:
    """A child object, made if it is missing."""
    child = parent.get(name)
    if not isinstance(child, dict):
        child = parent[name] = {}
    return child


def _set(target: Document, **defaults: Value) -> None:
    for name, value in defaults.items():
        target.setdefault(name, value)


# Pods


def _pod_template(parent: Document, *, restart_policy: str | None = "Always") -> None:
    template = _object(parent, "template")
    # Nothing here has a creation time, but Go writes the field.
    pod_spec(_object(template, "spec"), restart_policy=restart_policy)


def pod_spec(spec: Document, *, restart_policy: str | None = "Always") -> None:
    """Fill in a Pod's spec."""
    if restart_policy is not None:
        spec.setdefault("restartPolicy", restart_policy)
    _set(spec, terminationGracePeriodSeconds=30, dnsPolicy="ClusterFirst", schedulerName="default-scheduler")
    _object(spec, "securityContext")
    if spec.get("serviceAccountName"):
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
    elif spec.get("serviceAccount"):
        spec.setdefault("serviceAccountName", spec["serviceAccount"])
    for group in ("initContainers", "containers", "ephemeralContainers"):
        for value in as_list(spec.get(group)):
            _container(as_object(value), host_network=spec.get("hostNetwork") is True)
    for value in as_list(spec.get("volumes")):
        _volume(as_object(value))


def _container(container: Document, *, host_network: bool) -> None:
    image = as_text(container.get("image"))
    tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
    pinned = "@" in image or tag not in {"", "latest"}
    _set(
        container,
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
        imagePullPolicy="IfNotPresent" if pinned else "Always",
    )
    resources = _object(container, "resources")
    _quantities(resources, "limits", "requests")
    for value in as_list(container.get("ports")):
        port = as_object(value)
        port.setdefault("protocol", "TCP")
        if host_network:
            port.setdefault("hostPort", port.get("containerPort"))
    for value in as_list(container.get("env")):
        _field_source(as_object(as_object(value).get("valueFrom")))
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if isinstance(container.get(name), dict):
            _probe(as_object(container[name]))
    for handler in as_object(container.get("lifecycle")).values():
        _http_get(as_object(handler))


def _field_source(source: Document) -> None:
    """Where the value of a variable or of a file comes from."""
    if isinstance(source.get("fieldRef"), dict):
        as_object(source["fieldRef"]).setdefault("apiVersion", "v1")
    if isinstance(source.get("resourceFieldRef"), dict):
        reference = as_object(source["resourceFieldRef"])
        reference.setdefault("divisor", "0")
        _quantity(reference, "divisor")


def _probe(probe: Document) -> None:
    _set(probe, timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3)
    _http_get(probe)
    if isinstance(probe.get("grpc"), dict):
        as_object(probe["grpc"]).setdefault("service", "")


def _http_get(handler: Document) -> None:
    if isinstance(handler.get("httpGet"), dict):
        _set(as_object(handler["httpGet"]), path="/", scheme="HTTP")


_VOLUME_MODES: Final = ("configMap", "secret", "projected", "downwardAPI")
_DEFAULT_MODE: Final = 0o644


def _volume(volume: Document) -> None:
    sources = [name for name in volume if name != "name"]
    if not sources:
        volume["emptyDir"] = {}
    for name in _VOLUME_MODES:
        if isinstance(volume.get(name), dict):
            as_object(volume[name]).setdefault("defaultMode", _DEFAULT_MODE)
    if isinstance(volume.get("hostPath"), dict):
        as_object(volume["hostPath"]).setdefault("type", "")
    for item in as_list(as_object(volume.get("downwardAPI")).get("items")):
        _field_source(as_object(item))
    for source in as_list(as_object(volume.get("projected")).get("sources")):
        for item in as_list(as_object(as_object(source).get("downwardAPI")).get("items")):
            _field_source(as_object(item))
        token = as_object(source).get("serviceAccountToken")
        if isinstance(token, dict):
            token.setdefault("expirationSeconds", 3600)
    if isinstance(volume.get("emptyDir"), dict):
        _quantity(as_object(volume["emptyDir"]), "sizeLimit")


def _pod(document: Document) -> None:
    spec = _object(document, "spec")
    pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    for group in ("initContainers", "containers"):
        for value in as_list(spec.get(group)):
            resources = as_object(as_object(value).get("resources"))
            for name, amount in as_object(resources.get("limits")).items():
                # What is limited is requested in that amount, unless it says otherwise: in pods, not in templates.
                _object(resources, "requests").setdefault(name, amount)


def _prepare_pod(document: Document) -> None:
    spec = _object(document, "spec")
    _set(spec, preemptionPolicy="PreemptLowerPriority", priority=0)
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("serviceAccount", spec["serviceAccountName"])
    _set(spec, tolerations=[_unreachable("not-ready"), _unreachable("unreachable")])
    status = _object(document, "status")
    _set(status, phase="Pending", qosClass=_qos_class(spec))


def _unreachable(condition: str) -> Value:
    return {
        "key": f"node.kubernetes.io/{condition}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }


def _qos_class(spec: Document) -> str:
    resources = [
        as_object(as_object(value).get("resources"))
        for group in ("containers", "initContainers")
        for value in as_list(spec.get(group))
    ]
    if not any(entry.get("limits") or entry.get("requests") for entry in resources):
        return "BestEffort"
    for entry in resources:
        limits, requests = as_object(entry.get("limits")), as_object(entry.get("requests"))
        for name in ("cpu", "memory"):
            if name not in limits or limits[name] != requests.get(name):
                return "Burstable"
    return "Guaranteed"


# Quantities


def _quantity(target: Document, name: str) -> None:
    value = target.get(name)
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        target[name] = canonical_quantity(str(value))


def _quantities(target: Document, *names: str) -> None:
    for name in names:
        amounts = as_object(target.get(name))
        for resource in amounts:
            _quantity(amounts, resource)


# Workloads


def _deployment(document: Document) -> None:
    spec = _object(document, "spec")
    _set(spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600)
    strategy = _object(spec, "strategy")
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _set(_object(strategy, "rollingUpdate"), maxUnavailable="25%", maxSurge="25%")
    _pod_template(spec)


def _replica_set(document: Document) -> None:
    spec = _object(document, "spec")
    spec.setdefault("replicas", 1)
    if "template" in spec:
        _pod_template(spec)


def _stateful_set(document: Document) -> None:
    spec = _object(document, "spec")
    _set(spec, replicas=1, revisionHistoryLimit=10, podManagementPolicy="OrderedReady")
    strategy = _object(spec, "updateStrategy")
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _set(_object(strategy, "rollingUpdate"), partition=0, maxUnavailable=1)
    _set(_object(spec, "persistentVolumeClaimRetentionPolicy"), whenDeleted="Retain", whenScaled="Retain")
    spec.setdefault("serviceName", "")
    _pod_template(spec)
    for value in as_list(spec.get("volumeClaimTemplates")):
        claim = as_object(value)
        _set(claim, apiVersion="v1", kind="PersistentVolumeClaim")
        _claim(claim)
        _set(_object(claim, "status"), phase="Pending")


def _daemon_set(document: Document) -> None:
    spec = _object(document, "spec")
    spec.setdefault("revisionHistoryLimit", 10)
    strategy = _object(spec, "updateStrategy")
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _set(_object(strategy, "rollingUpdate"), maxUnavailable=1, maxSurge=0)
    _pod_template(spec)
    metadata = _object(document, "metadata")
    if not metadata.get("creationTimestamp"):
        return
    _object(metadata, "annotations").setdefault(_TEMPLATE_GENERATION, "1")


_TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"


def _count_templates(document: Document, old: Document | None) -> None:
    """Keep the annotation in which DaemonSets still count their templates."""
    if old is None:
        return
    before = as_text(dig(old, "metadata", "annotations", _TEMPLATE_GENERATION)) or "1"
    changed = dig(document, "spec", "template") != dig(old, "spec", "template")
    annotations = _object(_object(document, "metadata"), "annotations")
    annotations[_TEMPLATE_GENERATION] = str(int(before) + changed) if before.isdigit() else before


def _job_spec(spec: Document) -> None:
    policy = spec.get("podFailurePolicy")
    _set(
        spec,
        backoffLimit=6 if spec.get("backoffLimitPerIndex") is None else 2**31 - 1,
        completionMode="NonIndexed",
        suspend=False,
        podReplacementPolicy="TerminatingOrFailed" if policy is None else "Failed",
    )
    for rule in as_list(as_object(policy).get("rules")):
        for pattern in as_list(as_object(rule).get("onPodConditions")):
            as_object(pattern).setdefault("status", "True")
    spec.setdefault("manualSelector", False)
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    _pod_template(spec, restart_policy=None)


def _job(document: Document) -> None:
    _job_spec(_object(document, "spec"))


def _prepare_job(document: Document) -> None:
    spec = _object(document, "spec")
    metadata = as_object(document.get("metadata"))
    uid, name = as_text(metadata.get("uid")), as_text(metadata.get("name"))
    if uid and spec.get("manualSelector") is not True and "selector" not in spec:
        labels = _object(_object(_object(spec, "template"), "metadata"), "labels")
        labels.update(
            {
                "batch.kubernetes.io/controller-uid": uid,
                "batch.kubernetes.io/job-name": name,
                "controller-uid": uid,
                "job-name": name,
            }
        )
        spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    labels = as_object(dig(spec, "template", "metadata", "labels"))
    if labels and not metadata.get("labels"):
        metadata["labels"] = dict(labels)


def _cron_job(document: Document) -> None:
    spec = _object(document, "spec")
    _set(
        spec,
        concurrencyPolicy="Allow",
        suspend=False,
        successfulJobsHistoryLimit=3,
        failedJobsHistoryLimit=1,
    )
    template = _object(spec, "jobTemplate")
    _object(template, "metadata")
    job = _object(template, "spec")
    _pod_template(job, restart_policy=None)
    _object(_object(job, "template"), "metadata")


# Everything else


def _claim(document: Document) -> None:
    spec = _object(document, "spec")
    spec.setdefault("volumeMode", "Filesystem")
    _quantities(as_object(spec.get("resources")), "limits", "requests")


def _volume_object(document: Document) -> None:
    spec = _object(document, "spec")
    _set(spec, persistentVolumeReclaimPolicy="Retain", volumeMode="Filesystem")
    _quantities(spec, "capacity")


def _quota(document: Document) -> None:
    _quantities(as_object(document.get("spec")), "hard")


def _normal_bytes(document: Document, name: str) -> None:
    """A server keeps bytes, and writes their base64 anew: without line breaks."""
    data = as_object(document.get(name))
    for key, value in data.items():
        data[key] = base64.b64encode(base64.b64decode(as_text(value))).decode()


def _config_map(document: Document) -> None:
    _normal_bytes(document, "binaryData")


def _secret(document: Document) -> None:
    document.setdefault("type", "Opaque")
    _normal_bytes(document, "data")
    plain = document.pop("stringData", None)
    if isinstance(plain, dict) and plain:
        data = _object(document, "data")
        for key, value in plain.items():
            data[key] = base64.b64encode(as_text(value).encode()).decode()


def _role_binding(document: Document) -> None:
    reference = as_object(document.get("roleRef"))
    if reference:
        reference.setdefault("apiGroup", "rbac.authorization.k8s.io")
    for value in as_list(document.get("subjects")):
        subject = as_object(value)
        if subject.get("kind") in {"User", "Group"}:
            subject.setdefault("apiGroup", "rbac.authorization.k8s.io")


def _network_policy(document: Document) -> None:
    spec = _object(document, "spec")
    types: list[Value] = ["Ingress"]
    if spec.get("egress"):
        types.append("Egress")
    spec.setdefault("policyTypes", types)
    for direction in ("ingress", "egress"):
        for rule in as_list(spec.get(direction)):
            for port in as_list(as_object(rule).get("ports")):
                as_object(port).setdefault("protocol", "TCP")


def _autoscaler(document: Document) -> None:
    spec = _object(document, "spec")
    spec.setdefault("minReplicas", 1)
    if not spec.get("metrics") and document.get("apiVersion") == "autoscaling/v2":
        target: Value = {"type": "Utilization", "averageUtilization": 80}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    for metric in as_list(spec.get("metrics")):
        for source in as_object(metric).values():
            aim = as_object(as_object(source).get("target"))
            _quantity(aim, "value")
            _quantity(aim, "averageValue")
    if isinstance(spec.get("behavior"), dict):
        quick: Value = {"type": "Percent", "value": 100, "periodSeconds": 15}
        up, down = _object(_object(spec, "behavior"), "scaleUp"), _object(_object(spec, "behavior"), "scaleDown")
        _set(up, stabilizationWindowSeconds=0, selectPolicy="Max")
        _set(up, policies=[{"type": "Pods", "value": 4, "periodSeconds": 15}, quick])
        _set(down, selectPolicy="Max", policies=[clone(quick)])


def _limit_range(document: Document) -> None:
    names = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
    for value in as_list(as_object(document.get("spec")).get("limits")):
        limit = as_object(value)
        if limit.get("type") == "Container":
            for name, amount in as_object(limit.get("max")).items():
                _object(limit, "default").setdefault(name, amount)
            for source in ("default", "min"):
                for name, amount in as_object(limit.get(source)).items():
                    _object(limit, "defaultRequest").setdefault(name, amount)
        _quantities(limit, *names)


def _priority_class(document: Document) -> None:
    document.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _storage_class(document: Document) -> None:
    _set(document, reclaimPolicy="Delete", volumeBindingMode="Immediate")


def _endpoints(document: Document) -> None:
    for subset in as_list(document.get("subsets")):
        for port in as_list(as_object(subset).get("ports")):
            as_object(port).setdefault("protocol", "TCP")


def _endpoint_slice(document: Document) -> None:
    for value in as_list(document.get("ports")):
        _set(as_object(value), name="", protocol="TCP")


def _event(document: Document) -> None:
    # The typed server writes all of these, empty or not.
    _set(document, eventTime=None, reportingComponent="", reportingInstance="")
    _set(document, source={}, firstTimestamp=None, lastTimestamp=None)


def _new_style_event(document: Document) -> None:
    _set(document, eventTime=None, deprecatedSource={}, deprecatedFirstTimestamp=None, deprecatedLastTimestamp=None)


def _role(document: Document) -> None:
    if not document.get("rules"):
        document["rules"] = None


def _new_namespace(document: Document) -> None:
    spec = _object(document, "spec")
    finalizers = as_list(spec.get("finalizers"))
    spec["finalizers"] = finalizers if "kubernetes" in finalizers else [*finalizers, "kubernetes"]
    document["status"] = {"phase": "Active"}


def _namespace(document: Document) -> None:
    metadata = as_object(document.get("metadata"))
    if metadata.get("name"):
        _object(metadata, "labels")["kubernetes.io/metadata.name"] = metadata["name"]


_DEFAULTS: Final[dict[str, Callable[[Document], None]]] = {
    "clusterrolebindings.rbac.authorization.k8s.io": _role_binding,
    "cronjobs.batch": _cron_job,
    "daemonsets.apps": _daemon_set,
    "deployments.apps": _deployment,
    "endpoints": _endpoints,
    "endpointslices.discovery.k8s.io": _endpoint_slice,
    "horizontalpodautoscalers.autoscaling": _autoscaler,
    "jobs.batch": _job,
    "limitranges": _limit_range,
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": default_mutating_webhooks,
    "namespaces": _namespace,
    "networkpolicies.networking.k8s.io": _network_policy,
    "persistentvolumeclaims": _claim,
    "persistentvolumes": _volume_object,
    "pods": _pod,
    "podtemplates": _pod_template,
    "priorityclasses.scheduling.k8s.io": _priority_class,
    "replicasets.apps": _replica_set,
    "replicationcontrollers": _replica_set,
    "resourcequotas": _quota,
    "rolebindings.rbac.authorization.k8s.io": _role_binding,
    "configmaps": _config_map,
    "secrets": _secret,
    "services": default_service,
    "statefulsets.apps": _stateful_set,
    "storageclasses.storage.k8s.io": _storage_class,
    "validatingwebhookconfigurations.admissionregistration.k8s.io": default_validating_webhooks,
}
_PREPARATIONS: Final[dict[str, Callable[[Document], None]]] = {
    "clusterroles.rbac.authorization.k8s.io": _role,
    "events": _event,
    "events.events.k8s.io": _new_style_event,
    "jobs.batch": _prepare_job,
    "pods": _prepare_pod,
    "roles.rbac.authorization.k8s.io": _role,
}
