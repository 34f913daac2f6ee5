"""Writes that a test makes in the place of a cluster's controllers. None of them is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from urllib.parse import quote

import msgspec

from opsdk.client.transport import HttpRequest, HttpResponse, Transport
from opsdk.errors import ObjectError
from opsdk.models import resource_of
from opsdk.protocols import KubeObject
from opsdk.testing.simulator._action import as_object, parse_json, text_at
from opsdk.testing.simulator._readiness import keeps_conditions, ready_status
from opsdk.types import Json, JsonObject

__all__ = ["ensure_namespace", "is_served", "set_ready", "set_state"]

_MERGE = {"content-type": "application/merge-patch+json", "accept": "application/json"}
_JSON = {"content-type": "application/json", "accept": "application/json"}


async def is_served(transport: Transport, kind: type[KubeObject]) -> bool:
    """Whether the server knows the kind."""
    response = await transport.request(
        HttpRequest(method="GET", path=resource_of(kind).path(), query=(("limit", "1"),))
    )
    return response.status != 404


async def ensure_namespace(transport: Transport, name: str) -> None:
    """Create the namespace unless it is there."""
    path = f"/api/v1/namespaces/{quote(name, safe='')}"
    if (await transport.request(HttpRequest(method="GET", path=path))).status == 404:
        body: JsonObject = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        response = await transport.request(
            HttpRequest(method="POST", path="/api/v1/namespaces", headers=_JSON, body=msgspec.json.encode(body))
        )
        _check(response, f"create namespace {name}")


async def set_ready(
    transport: Transport, kind: type[KubeObject], name: str, namespace: str | None, now: datetime
) -> None:
    """Set Ready=True, reason SimulatedReady, and what else the kind's controllers report; other conditions stay."""
    info = resource_of(kind)
    document = await _read(transport, kind, name, namespace)
    if not keeps_conditions(kind):
        raise ObjectError(
            f"{info.kind} {name} cannot be made ready: the status of its kind has no conditions; "
            f"set what makes it ready through fake_client.status"
        )
    moment = _timestamp(now)
    conditions = [
        each
        for each in map(as_object, _items((as_object(document.get("status")) or {}).get("conditions")))
        if each is not None
    ]
    generation = (as_object(document.get("metadata")) or {}).get("generation")
    reported = ready_status(info, document, moment)
    for condition_type, reason, message in (*reported.conditions, ("Ready", "SimulatedReady", "the test says so")):
        old = next((item for item in conditions if item.get("type") == condition_type), None)
        since = text_at(old, "lastTransitionTime") if text_at(old, "status") == "True" else ""
        true: dict[str, Json] = {
            **(old or {}),
            "type": condition_type,
            "status": "True",
            "lastTransitionTime": since or moment,
        }
        for field, text in (("reason", reason), ("message", message)):
            if text:
                true[field] = text
            else:
                true.pop(field, None)
        if old is not None and "observedGeneration" in old and isinstance(generation, int):
            true["observedGeneration"] = generation
        conditions = [*(item for item in conditions if item is not old), true]
    await _write_status(transport, kind, name, namespace, {**reported.fields, "conditions": conditions})
    stored = as_object((await _read(transport, kind, name, namespace)).get("status")) or {}
    if not any(text_at(as_object(item), "reason") == "SimulatedReady" for item in _items(stored.get("conditions"))):
        raise ObjectError(
            f"{info.kind} {name} did not keep a Ready condition in status.conditions; "
            f"set what makes it ready through fake_client.status"
        )


async def set_state(
    transport: Transport, kind: type[KubeObject], name: str, namespace: str | None, state: str, now: datetime
) -> None:
    """Set status.state, with an entry in status.stateHistory, and no entry pending."""
    document = await _read(transport, kind, name, namespace)
    status = as_object(document.get("status")) or {}
    entry: dict[str, Json] = {"to": state, "reason": "SimulatedState", "timestamp": _timestamp(now)}
    if before := text_at(status, "state"):
        entry["from"] = before
    history = [*_items(status.get("stateHistory")), entry]
    await _write_status(
        transport, kind, name, namespace, {"state": state, "stateHistory": history, "pendingEntry": None}
    )
    stored = await _read(transport, kind, name, namespace)
    if text_at(stored, "status", "state") != state:
        raise ObjectError(
            f"{resource_of(kind).kind} {name} did not keep a state in status.state: it is no object of a state machine"
        )


async def _read(transport: Transport, kind: type[KubeObject], name: str, namespace: str | None) -> JsonObject:
    path = resource_of(kind).path(namespace=namespace, name=name)
    response = await transport.request(HttpRequest(method="GET", path=path))
    _check(response, f"read {resource_of(kind).kind} {name}")
    return as_object(parse_json(response.body)) or {}


async def _write_status(
    transport: Transport, kind: type[KubeObject], name: str, namespace: str | None, status: JsonObject
) -> None:
    info = resource_of(kind)
    body = msgspec.json.encode({"status": status})
    path = info.path(namespace=namespace, name=name, subresource="status")
    response = await transport.request(HttpRequest(method="PATCH", path=path, headers=_MERGE, body=body))
    if response.status in {404, 405}:  # a kind without status subresource keeps its status in the object
        path = info.path(namespace=namespace, name=name)
        response = await transport.request(HttpRequest(method="PATCH", path=path, headers=_MERGE, body=body))
    _check(response, f"write the status of {info.kind} {name}")


def _check(response: HttpResponse, what: str) -> None:
    if response.status >= 400:
        message = text_at(as_object(parse_json(response.body)), "message")
        raise ObjectError(f"the simulator could not {what}: {response.status} {message}")


def _items(value: Json) -> Sequence[Json]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def _timestamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
