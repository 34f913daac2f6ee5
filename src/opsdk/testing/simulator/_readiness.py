"""What the status of a kind says when its objects are ready, besides a condition Ready."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, final

from opsdk.models import ResourceInfo
from opsdk.protocols import KubeObject
from opsdk.testing.simulator._action import as_object
from opsdk.types import Json, JsonObject

__all__ = ["ReadyStatus", "keeps_conditions", "ready_status"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyStatus:
    """What is set besides Ready.

    Args:
        fields: Fields of the status; None: goes.
        conditions: Type, reason and message of the conditions that become True.
    """

    fields: Mapping[str, Json] = dataclasses.field(default_factory=dict[str, Json])
    conditions: Sequence[tuple[str, str, str]] = ()


_Status: TypeAlias = Callable[[JsonObject, str], ReadyStatus]
"""From the object and the time of day."""


def ready_status(info: ResourceInfo, document: JsonObject, now: str) -> ReadyStatus:
    """What the controllers of a built-in kind report of an object that is ready; nothing for other kinds."""
    known = _KNOWN.get((info.group, info.kind))
    return ReadyStatus() if known is None else known(document, now)


def keeps_conditions(kind: type[KubeObject]) -> bool:
    """Whether the status of a kind has conditions, as far as its class tells; True when it does not tell.

    The server keeps fields that a built-in kind does not have, as it may be older than they are, so that what it has
    stored does not answer this.
    """
    if issubclass(kind, dict):  # a generic resource of lightkube
        return True
    try:
        status = typing.get_type_hints(kind).get("status")
        if status is None:
            return False
        for model in (status, *typing.get_args(status)):
            if isinstance(model, type) and model is not type(None):
                return "conditions" in typing.get_type_hints(model)
    except NameError:  # a class within a function refers to others there
        return True
    return True


def _part(document: JsonObject, name: str) -> JsonObject:
    return as_object(document.get(name)) or {}


def _count(document: JsonObject, field: str) -> int:
    wanted = _part(document, "spec").get(field)
    return wanted if isinstance(wanted, int) else 1


def _observed(document: JsonObject) -> Json:
    return _part(document, "metadata").get("generation")


def _deployment(document: JsonObject, _now: str) -> ReadyStatus:
    replicas = _count(document, "replicas")
    counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    available = ("Available", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    return ReadyStatus(
        fields={
            "observedGeneration": _observed(document),
            **dict.fromkeys(counts, replicas),
            "unavailableReplicas": None,
        },
        conditions=(available,),
    )


def _replica_set(document: JsonObject, _now: str) -> ReadyStatus:
    counts = ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas")
    replicas = _count(document, "replicas")
    return ReadyStatus(fields={"observedGeneration": _observed(document), **dict.fromkeys(counts, replicas)})


def _stateful_set(document: JsonObject, _now: str) -> ReadyStatus:
    counts = ("replicas", "currentReplicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    replicas = _count(document, "replicas")
    fields: dict[str, Json] = {"observedGeneration": _observed(document), **dict.fromkeys(counts, replicas)}
    if revision := _part(document, "status").get("updateRevision"):
        fields["currentRevision"] = revision
    return ReadyStatus(fields=fields)


def _daemon_set(document: JsonObject, _now: str) -> ReadyStatus:
    nodes = _part(document, "status").get("desiredNumberScheduled")
    on = nodes if isinstance(nodes, int) and nodes > 0 else 1
    counts = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "updatedNumberScheduled",
        "numberReady",
        "numberAvailable",
    )
    return ReadyStatus(
        fields={
            "observedGeneration": _observed(document),
            **dict.fromkeys(counts, on),
            "numberMisscheduled": 0,
            "numberUnavailable": None,
        }
    )


def _job(document: JsonObject, now: str) -> ReadyStatus:
    status, spec = _part(document, "status"), _part(document, "spec")
    completions = spec.get("completions")
    done = completions if isinstance(completions, int) else 1
    reached = "Reached expected number of succeeded pods"
    fields: dict[str, Json] = {
        "startTime": status.get("startTime") or now,
        "completionTime": status.get("completionTime") or now,
        "succeeded": done,
        "active": None,
        "ready": 0,
        "terminating": 0,
        "uncountedTerminatedPods": {},
    }
    if spec.get("completionMode") == "Indexed":
        fields["completedIndexes"] = "0" if done == 1 else f"0-{done - 1}"
    return ReadyStatus(
        fields=fields,
        conditions=(
            ("SuccessCriteriaMet", "CompletionsReached", reached),
            ("Complete", "CompletionsReached", reached),
        ),
    )


def _pod(document: JsonObject, now: str) -> ReadyStatus:
    status, containers = _part(document, "status"), _part(document, "spec").get("containers")
    before = status.get("containerStatuses")
    known = {each["name"]: each for each in map(as_object, _items(before)) if each is not None and "name" in each}
    statuses: list[Json] = []
    for container in map(as_object, _items(containers)):
        if container is None:
            continue
        old = known.get(container.get("name"), {})
        statuses.append(
            {
                "restartCount": 0,
                "imageID": "",
                **old,
                "name": container.get("name"),
                "image": container.get("image") or "",
                "ready": True,
                "started": True,
                "state": {"running": (as_object(old.get("state")) or {}).get("running") or {"startedAt": now}},
            }
        )
    types = ("PodReadyToStartContainers", "Initialized", "ContainersReady", "PodScheduled")
    return ReadyStatus(
        fields={
            "phase": "Running",
            "startTime": status.get("startTime") or now,
            "containerStatuses": statuses,
        },
        conditions=tuple((each, "", "") for each in types),
    )


def _items(value: Json) -> Sequence[Json]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


_KNOWN: Final[Mapping[tuple[str, str], _Status]] = {
    ("apps", "Deployment"): _deployment,
    ("apps", "ReplicaSet"): _replica_set,
    ("apps", "StatefulSet"): _stateful_set,
    ("apps", "DaemonSet"): _daemon_set,
    ("batch", "Job"): _job,
    ("", "Pod"): _pod,
}
