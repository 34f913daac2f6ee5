"""How the server prints its own kinds; what has no printer is shown by name and time of creation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from opsdk.testing.apiserver._fields import Tree, entries, members
from opsdk.testing.apiserver._table_cells import (
    NAME,
    NONE,
    UNKNOWN,
    Cell,
    Cells,
    Column,
    Printer,
    age_of,
    condition_of,
    dig,
    label_text,
    name_of,
    number_of,
    since,
    spec_of,
    status_of,
    text_of,
)
from opsdk.testing.apiserver._table_workloads import (
    cron_job,
    daemon_set,
    deployment,
    job,
    pod,
    replica_set,
    stateful_set,
)

__all__ = ["BUILTIN_PRINTERS", "DEFAULT_PRINTER"]


def _service(obj: Tree, now: datetime) -> Sequence[Cell]:
    spec = spec_of(obj)
    ports = [
        f"{port.get('port')}:{port['nodePort']}/{port.get('protocol')}"
        if port.get("nodePort")
        else f"{port.get('port')}/{port.get('protocol')}"
        for port in entries(spec, "ports")
    ]
    cluster_ips = entries(spec, "clusterIPs")
    return (
        name_of(obj),
        text_of(spec.get("type")),
        cluster_ips[0] if cluster_ips else NONE,
        _external_ip(spec, status_of(obj)),
        ",".join(ports) or NONE,
        age_of(obj, now),
        label_text(members(spec, "selector")),
    )


def _external_ip(spec: Tree, status: Tree) -> str:
    external: list[str] = entries(spec, "externalIPs")
    match spec.get("type"):
        case "ClusterIP" | "NodePort":
            return ",".join(external) or NONE
        case "LoadBalancer":
            return ",".join([*_load_balancer(status), *external]) or "<pending>"
        case "ExternalName":
            return text_of(spec.get("externalName"))
        case _:
            return UNKNOWN


def _load_balancer(status: Tree) -> list[str]:
    ingress = entries(dig(status, "loadBalancer"), "ingress")
    return sorted({text_of(each.get("ip")) or text_of(each.get("hostname")) for each in ingress} - {""})


def _ingress(obj: Tree, now: datetime) -> Sequence[Cell]:
    spec = spec_of(obj)
    rules = entries(spec, "rules")
    hosts = [rule["host"] for rule in rules if rule.get("host")]
    shown = ",".join(hosts[:3]) or "*"
    return (
        name_of(obj),
        text_of(spec.get("ingressClassName"), NONE),
        f"{shown} + {len(rules) - 3} more..." if len(hosts) > 3 else shown,
        ",".join(_load_balancer(status_of(obj))),
        "80, 443" if entries(spec, "tls") else "80",
        age_of(obj, now),
    )


def _endpoints(obj: Tree, now: datetime) -> Sequence[Cell]:
    found: list[str] = []
    for subset in entries(obj, "subsets"):
        addresses = [text_of(each.get("ip")) for each in entries(subset, "addresses")]
        ports = [each.get("port") for each in entries(subset, "ports")]
        found += [f"{ip}:{port}" for port in ports for ip in addresses] if ports else addresses
    shown = ",".join(found[:3]) if entries(obj, "subsets") else NONE
    return (name_of(obj), f"{shown} + {len(found) - 3} more..." if len(found) > 3 else shown, age_of(obj, now))


# --- the rest ---


def _node(obj: Tree, now: datetime) -> Sequence[Cell]:
    status = status_of(obj)
    about = members(status, "nodeInfo")
    ready = condition_of(obj, "Ready")
    states = ["Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"]
    if spec_of(obj).get("unschedulable"):
        states.append("SchedulingDisabled")
    roles: set[str] = set()
    for key, value in dig(obj, "metadata", "labels").items():
        role = key.removeprefix("node-role.kubernetes.io/")
        if role != key:
            roles |= {role} - {""}
        elif key == "kubernetes.io/role":
            roles |= {value} - {""}
    kernel = text_of(about.get("kernelVersion"), UNKNOWN)
    if about.get("architecture"):
        kernel = f"{kernel} ({about['architecture']})"
    addresses = {each.get("type"): text_of(each.get("address")) for each in reversed(entries(status, "addresses"))}
    return (
        name_of(obj),
        ",".join(states),
        ",".join(sorted(roles)) or NONE,
        age_of(obj, now),
        text_of(about.get("kubeletVersion")),
        addresses.get("InternalIP", NONE),
        addresses.get("ExternalIP", NONE),
        text_of(about.get("osImage"), UNKNOWN),
        kernel,
        text_of(about.get("containerRuntimeVersion"), UNKNOWN),
    )


def _event(obj: Tree, now: datetime) -> Sequence[Cell]:
    """Events of both groups: one names fields for what the other calls deprecated."""
    first = since(obj.get("firstTimestamp") or obj.get("deprecatedFirstTimestamp") or obj.get("eventTime"), now)
    last_time = obj.get("lastTimestamp") or obj.get("deprecatedLastTimestamp")
    last = since(last_time, now) if last_time else first
    count = number_of(obj.get("count") or obj.get("deprecatedCount")) or 1
    if series := members(obj, "series"):
        last, count = since(series.get("lastObservedTime"), now), number_of(series.get("count"))
    about = members(obj, "involvedObject") or members(obj, "regarding")
    source = members(obj, "source") or members(obj, "deprecatedSource")
    component = text_of(source.get("component")) or text_of(
        obj.get("reportingComponent") or obj.get("reportingController")
    )
    host = text_of(source.get("host")) or text_of(obj.get("reportingInstance"))
    kind, name = text_of(about.get("kind")).lower(), text_of(about.get("name"))
    return (
        last,
        text_of(obj.get("type")),
        text_of(obj.get("reason")),
        f"{kind}/{name}" if name else kind,
        text_of(about.get("fieldPath")),
        f"{component}, {host}" if component and host else component,
        (text_of(obj.get("message")) or text_of(obj.get("note"))).strip(),
        first,
        count,
        name_of(obj),
    )


def _namespace(obj: Tree, now: datetime) -> Sequence[Cell]:
    return (name_of(obj), text_of(status_of(obj).get("phase")), age_of(obj, now))


def _secret(obj: Tree, now: datetime) -> Sequence[Cell]:
    return (name_of(obj), text_of(obj.get("type")), len(members(obj, "data")), age_of(obj, now))


def _config_map(obj: Tree, now: datetime) -> Sequence[Cell]:
    return (name_of(obj), len(members(obj, "data")) + len(members(obj, "binaryData")), age_of(obj, now))


def _service_account(obj: Tree, now: datetime) -> Sequence[Cell]:
    return (name_of(obj), age_of(obj, now))


def _lease(obj: Tree, now: datetime) -> Sequence[Cell]:
    return (name_of(obj), text_of(spec_of(obj).get("holderIdentity")), age_of(obj, now))


def _disruption_budget(obj: Tree, now: datetime) -> Sequence[Cell]:
    spec = spec_of(obj)
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    return (
        name_of(obj),
        "N/A" if least is None else str(least),
        "N/A" if most is None else str(most),
        number_of(status_of(obj).get("disruptionsAllowed")),
        age_of(obj, now),
    )


def _claim(obj: Tree, now: datetime) -> Sequence[Cell]:
    spec, status = spec_of(obj), status_of(obj)
    bound = bool(spec.get("volumeName"))
    modes: list[str] = entries(status, "accessModes")
    short = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
    deleted = members(obj, "metadata").get("deletionTimestamp")
    return (
        name_of(obj),
        "Terminating" if deleted else text_of(status.get("phase")),
        text_of(spec.get("volumeName")),
        text_of(members(status, "capacity").get("storage"), "0") if bound else "",
        ",".join(short.get(mode, mode) for mode in modes) if bound else "",
        text_of(spec.get("storageClassName")),
        text_of(spec.get("volumeAttributesClassName"), "<unset>"),
        age_of(obj, now),
        text_of(spec.get("volumeMode"), "<unset>"),
    )


def _role_binding(obj: Tree, now: datetime) -> Sequence[Cell]:
    role = members(obj, "roleRef")
    subjects: dict[str, list[str]] = {}
    for each in entries(obj, "subjects"):
        name = f"{text_of(each.get('namespace'))}/{each.get('name')}" if each.get("kind") == "ServiceAccount" else None
        subjects.setdefault(text_of(each.get("kind")), []).append(name or text_of(each.get("name")))
    return (
        name_of(obj),
        f"{role.get('kind')}/{role.get('name')}",
        age_of(obj, now),
        *(", ".join(subjects.get(kind, [])) for kind in ("User", "Group", "ServiceAccount")),
    )


def _definition(obj: Tree, _now: datetime) -> Sequence[Cell]:
    spec = spec_of(obj)
    names = members(spec, "names")
    versions = [
        f"{each.get('name')}(storage)" if each.get("storage") else str(each.get("name"))
        for each in entries(spec, "versions")
        if each.get("served")
    ]
    return (
        name_of(obj),
        text_of(spec.get("scope")),
        ",".join(sorted(versions)),
        text_of(members(obj, "metadata").get("creationTimestamp")),
        text_of(spec.get("group")),
        text_of(names.get("kind")),
        ",".join(entries(names, "shortNames")),
        condition_of(obj, "Established") == "True",
    )


def _created_at(obj: Tree, _now: datetime) -> Sequence[Cell]:
    return (name_of(obj), text_of(members(obj, "metadata").get("creationTimestamp")))


def _columns(text: str) -> tuple[Column, ...]:
    """Columns from one line: `_` stands for a space, `+` for a column of `-o wide`, `#` for a number."""
    columns: list[Column] = []
    for word in text.split():
        name = word.lstrip("+#").replace("_", " ")
        if name == "Name" and not word.startswith("+"):
            columns.append(NAME)
        else:
            kind = "integer" if "#" in word[:2] else "string"
            columns.append(Column(name, kind, "name" if name == "Name" else "", priority=int(word[0] == "+")))
    return tuple(columns)


def _builtin(columns: str, cells: Cells) -> Printer:
    return Printer(_columns(columns), cells)


_WORKLOAD: Final = "+Containers +Images +Selector"
_ROLES: Final = "Name Role Age +Users +Groups +ServiceAccounts"
_EVENTS: Final = "Last_Seen Type Reason Object +Subobject +Source Message +First_Seen +Count +Name"
DEFAULT_PRINTER: Final = Printer((NAME, Column("Created At", "date")), _created_at)
BUILTIN_PRINTERS: Final[Mapping[str, Printer]] = {
    "clusterrolebindings.rbac.authorization.k8s.io": _builtin(_ROLES, _role_binding),
    "configmaps": _builtin("Name Data Age", _config_map),
    "cronjobs.batch": _builtin(
        f"Name Schedule Timezone Suspend #Active Last_Schedule Age {_WORKLOAD}",
        cron_job,
    ),
    "customresourcedefinitions.apiextensions.k8s.io": Printer(
        (
            *_columns("Name Scope Versions"),
            Column("Created At", "date"),
            *_columns("+Group +Kind +ShortNames"),
            Column("Established", "boolean", priority=1),
        ),
        _definition,
    ),
    "daemonsets.apps": _builtin(
        f"Name #Desired #Current #Ready #Up-to-date #Available Node_Selector Age {_WORKLOAD}", daemon_set
    ),
    "deployments.apps": _builtin(f"Name Ready Up-to-date Available Age {_WORKLOAD}", deployment),
    "endpoints": _builtin("Name Endpoints Age", _endpoints),
    "events": _builtin(_EVENTS, _event),
    "events.events.k8s.io": _builtin(_EVENTS, _event),
    "ingresses.networking.k8s.io": _builtin("Name Class Hosts Address Ports Age", _ingress),
    "jobs.batch": _builtin(f"Name Status Completions Duration Age {_WORKLOAD}", job),
    "leases.coordination.k8s.io": _builtin("Name Holder Age", _lease),
    "namespaces": _builtin("Name Status Age", _namespace),
    "nodes": _builtin(
        "Name Status Roles Age Version +Internal-IP +External-IP +OS-Image +Kernel-Version +Container-Runtime", _node
    ),
    "persistentvolumeclaims": _builtin(
        "Name Status Volume Capacity Access_Modes StorageClass VolumeAttributesClass Age +VolumeMode", _claim
    ),
    "poddisruptionbudgets.policy": _builtin(
        "Name Min_Available Max_Unavailable #Allowed_Disruptions Age", _disruption_budget
    ),
    "pods": _builtin("Name Ready Status Restarts Age +IP +Node +Nominated_Node +Readiness_Gates", pod),
    "replicasets.apps": _builtin(f"Name #Desired #Current #Ready Age {_WORKLOAD}", replica_set),
    "replicationcontrollers": _builtin(f"Name #Desired #Current #Ready Age {_WORKLOAD}", replica_set),
    "rolebindings.rbac.authorization.k8s.io": _builtin(_ROLES, _role_binding),
    "secrets": _builtin("Name Type Data Age", _secret),
    "serviceaccounts": _builtin("Name Age", _service_account),
    "services": _builtin("Name Type Cluster-IP External-IP Port(s) Age +Selector", _service),
    "statefulsets.apps": _builtin("Name Ready Age +Containers +Images", stateful_set),
}
