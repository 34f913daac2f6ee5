"""How the server prints workloads: pods and what makes them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from opsdk.testing.apiserver._fields import Tree, entries, is_integer, members
from opsdk.testing.apiserver._table_cells import (
    NONE,
    Cell,
    age_of,
    condition_of,
    containers_of,
    dig,
    human_duration,
    label_text,
    name_of,
    number_of,
    selector_text,
    since,
    spec_of,
    status_of,
    text_of,
    time_of,
)

__all__ = ["cron_job", "daemon_set", "deployment", "job", "pod", "pod_conditions", "replica_set", "stateful_set"]


def deployment(obj: Tree, now: datetime) -> Sequence[Cell]:
    """A row of `kubectl get`."""
    status = status_of(obj)
    return (
        name_of(obj),
        f"{number_of(status.get('readyReplicas'))}/{number_of(spec_of(obj).get('replicas'))}",
        number_of(status.get("updatedReplicas")),
        number_of(status.get("availableReplicas")),
        age_of(obj, now),
        *containers_of(obj, "spec", "template", "spec"),
        selector_text(dig(obj, "spec", "selector")),
    )


def replica_set(obj: Tree, now: datetime) -> Sequence[Cell]:
    """A row of `kubectl get`."""
    status = status_of(obj)
    selector = dig(obj, "spec", "selector")
    return (
        name_of(obj),
        number_of(spec_of(obj).get("replicas")),
        number_of(status.get("replicas")),
        number_of(status.get("readyReplicas")),
        age_of(obj, now),
        *containers_of(obj, "spec", "template", "spec"),
        selector_text(selector) if obj.get("kind") == "ReplicaSet" else label_text(selector),
    )


def stateful_set(obj: Tree, now: datetime) -> Sequence[Cell]:
    """A row of `kubectl get`."""
    ready = f"{number_of(status_of(obj).get('readyReplicas'))}/{number_of(spec_of(obj).get('replicas'))}"
    return (name_of(obj), ready, age_of(obj, now), *containers_of(obj, "spec", "template", "spec"))


def daemon_set(obj: Tree, now: datetime) -> Sequence[Cell]:
    """A row of `kubectl get`."""
    counts = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    return (
        name_of(obj),
        *(number_of(status_of(obj).get(count)) for count in counts),
        label_text(dig(obj, "spec", "template", "spec", "nodeSelector")),
        age_of(obj, now),
        *containers_of(obj, "spec", "template", "spec"),
        selector_text(dig(obj, "spec", "selector")),
    )


def job(obj: Tree, now: datetime) -> Sequence[Cell]:
    """A row of `kubectl get`."""
    spec, status = spec_of(obj), status_of(obj)
    succeeded, parallelism = number_of(status.get("succeeded")), number_of(spec.get("parallelism"))
    if is_integer(spec.get("completions")):
        completions = f"{succeeded}/{spec['completions']}"
    else:
        completions = f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"
    started, completed = time_of(status.get("startTime")), time_of(status.get("completionTime"))
    duration = "" if started is None else human_duration((completed or now) - started)
    states = (
        ("Complete", condition_of(obj, "Complete") == "True"),
        ("Failed", condition_of(obj, "Failed") == "True"),
        ("Terminating", bool(members(obj, "metadata").get("deletionTimestamp"))),
        ("Suspended", condition_of(obj, "Suspended") == "True"),
        ("FailureTarget", condition_of(obj, "FailureTarget") == "True"),
        ("SuccessCriteriaMet", condition_of(obj, "SuccessCriteriaMet") == "True"),
    )
    return (
        name_of(obj),
        next((state for state, holds in states if holds), "Running"),
        completions,
        duration,
        age_of(obj, now),
        *containers_of(obj, "spec", "template", "spec"),
        selector_text(dig(obj, "spec", "selector")) or NONE,
    )


def cron_job(obj: Tree, now: datetime) -> Sequence[Cell]:
    """A row of `kubectl get`."""
    spec, status = spec_of(obj), status_of(obj)
    last = status.get("lastScheduleTime")
    return (
        name_of(obj),
        text_of(spec.get("schedule")),
        text_of(spec.get("timeZone"), NONE),
        {True: "True", False: "False"}.get(spec["suspend"], NONE) if "suspend" in spec else "<unset>",
        len(entries(status, "active")),
        since(last, now) if last else NONE,
        age_of(obj, now),
        *containers_of(obj, "spec", "jobTemplate", "spec", "template", "spec"),
        selector_text(dig(obj, "spec", "jobTemplate", "spec", "selector")) or NONE,
    )


def pod(obj: Tree, now: datetime) -> Sequence[Cell]:
    """A row of `kubectl get`."""
    spec, status = spec_of(obj), status_of(obj)
    reason, ready, restarts, restarted = _pod_state(spec, status)
    if members(obj, "metadata").get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            reason = "Unknown"
        elif status.get("phase") not in {"Succeeded", "Failed"}:
            reason = "Terminating"
    sidecars = sum(each.get("restartPolicy") == "Always" for each in entries(spec, "initContainers"))
    addresses = entries(status, "podIPs")
    gates = entries(spec, "readinessGates")
    open_gates = sum(condition_of(obj, text_of(gate.get("conditionType"))) == "True" for gate in gates)
    return (
        name_of(obj),
        f"{ready}/{len(entries(spec, 'containers')) + sidecars}",
        reason,
        f"{restarts} ({since(restarted, now)} ago)" if restarts and restarted else str(restarts),
        age_of(obj, now),
        text_of(addresses[0].get("ip"), NONE) if addresses else NONE,
        text_of(spec.get("nodeName"), NONE),
        text_of(status.get("nominatedNodeName"), NONE),
        f"{open_gates}/{len(gates)}" if gates else NONE,
    )


def _pod_state(spec: Tree, status: Tree) -> tuple[str, int, int, str]:
    """What a pod's containers say: reason, how many are ready, restarts, when the last one was."""
    reason = text_of(status.get("reason")) or text_of(status.get("phase"))
    conditions = entries(status, "conditions")
    if any(each.get("type") == "PodScheduled" and each.get("reason") == "SchedulingGated" for each in conditions):
        reason = "SchedulingGated"
    init_containers = entries(spec, "initContainers")
    always = {each.get("name") for each in init_containers if each.get("restartPolicy") == "Always"}
    ready = restarts = sidecar_restarts = 0
    restarted = sidecar_restarted = ""
    initializing = False
    for index, each in enumerate(entries(status, "initContainerStatuses")):
        count, ended = number_of(each.get("restartCount")), _last_end(each)
        restarts, restarted = restarts + count, max(restarted, ended)
        sidecar = each.get("name") in always
        if sidecar:
            sidecar_restarts, sidecar_restarted = sidecar_restarts + count, max(sidecar_restarted, ended)
        terminated = dig(each, "state", "terminated")
        if terminated and not terminated.get("exitCode"):
            continue
        if sidecar and each.get("started"):
            ready += bool(each.get("ready"))
            continue
        waiting = text_of(dig(each, "state", "waiting").get("reason"))
        if terminated:
            reason = f"Init:{_ended_because(terminated)}"
        elif waiting and waiting != "PodInitializing":
            reason = f"Init:{waiting}"
        else:
            reason = f"Init:{index}/{len(init_containers)}"
        initializing = True
        break
    initialized = any(each.get("type") == "Initialized" and each.get("status") == "True" for each in conditions)
    if initializing and not initialized:
        return reason, ready, restarts, restarted
    restarts, restarted = sidecar_restarts, sidecar_restarted
    running, failure = False, ""
    for each in reversed(entries(status, "containerStatuses")):
        restarts, restarted = restarts + number_of(each.get("restartCount")), max(restarted, _last_end(each))
        waiting = text_of(dig(each, "state", "waiting").get("reason"))
        terminated = dig(each, "state", "terminated")
        if waiting:
            reason = waiting
        elif terminated:
            reason = _ended_because(terminated)
            failure = reason if terminated.get("exitCode") else failure
        elif each.get("ready") and "running" in members(each, "state"):
            running = True
            ready += 1
    if reason == "Completed":
        is_ready = any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
        if running and is_ready:
            reason = "Running"
        elif failure or running:
            reason = failure or "NotReady"
    return reason, ready, restarts, restarted


def _last_end(container: Tree) -> str:
    return text_of(dig(container, "lastState", "terminated").get("finishedAt"))


def _ended_because(terminated: Tree) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{number_of(terminated.get('exitCode'))}"


def pod_conditions(obj: Tree) -> list[Tree]:
    """That a pod is done, for clients that hide such rows."""
    phase = status_of(obj).get("phase")
    texts = {"Succeeded": "The pod has completed successfully.", "Failed": "The pod failed."}
    if phase not in texts:
        return []
    return [{"type": "Completed", "status": "True", "reason": phase, "message": texts[phase]}]
