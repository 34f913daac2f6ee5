"""Recording at the transport: whatever client the reconciler uses, its writes pass here."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import final

from opsdk.client.transport import HttpRequest, HttpResponse, HttpStream, Transport
from opsdk.testing.simulator._action import Action, RecordedEvent, Verb, as_object, parse_json, text_at
from opsdk.testing.simulator._path import Target, parse_path
from opsdk.types import Json, JsonObject

__all__ = ["ActionLog", "RecordingTransport"]

_QUOTED = re.compile(r'Invalid value: "\{.*', re.DOTALL)
_REVIEW_GROUPS = frozenset({"authentication.k8s.io", "authorization.k8s.io"})


@final
class ActionLog:
    """Everything that was recorded.

    Attributes:
        actions: All writes since the last `clear`, events aside.
        queue: Those of them that no expectation has taken.
        events: All event writes since the last `clear`.
        event_queue: Those of them that no expectation has taken.
        refused: Writes that the server refused. They changed nothing, so they are never expected, only shown.
        touched: Every resource that was read or written, by one target each; `clear` keeps it.
    """

    def __init__(self) -> None:
        self.actions: list[Action] = []
        self.queue: deque[Action] = deque()
        self.events: list[RecordedEvent] = []
        self.event_queue: deque[RecordedEvent] = deque()
        self.refused: list[Action] = []
        self.touched: dict[tuple[str, str, str], Target] = {}

    def add(self, action: Action) -> None:
        """Record one write."""
        if action.refused:
            self.refused.append(action)
        elif action.plural == "events" and action.group in {"", "events.k8s.io"} and action.object is not None:
            event = RecordedEvent.from_document(action.object)
            self.events.append(event)
            self.event_queue.append(event)
        else:
            self.actions.append(action)
            self.queue.append(action)

    def touch(self, target: Target) -> None:
        """Remember that the reconciler looks at this resource."""
        self.touched.setdefault(target.resource, target)

    def clear(self) -> None:
        """Forget all writes and events."""
        for recorded in (self.actions, self.events, self.refused):
            recorded.clear()
        self.queue.clear()
        self.event_queue.clear()


@final
class RecordingTransport:
    """Passes everything on and records the writes. Dry runs and access reviews change nothing and count as reads."""

    def __init__(self, inner: Transport, log: ActionLog) -> None:
        self._inner = inner
        self._log = log

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        """Send, and record what was written."""
        target = parse_path(request.path)
        if target is None:
            return await self._inner.request(request)
        self._log.touch(target)
        if request.method in {"GET", "HEAD", "OPTIONS"} or target.group in _REVIEW_GROUPS or _is_dry_run(request):
            return await self._inner.request(request)
        before = await self._read(target)
        response = await self._inner.request(request)
        self._log.add(_action(request, response, target, before))
        return response

    def stream(self, request: HttpRequest, /) -> AbstractAsyncContextManager[HttpStream]:
        """Watches pass through."""
        target = parse_path(request.path)
        if target is not None:
            self._log.touch(target)
        return self._inner.stream(request)

    async def aclose(self) -> None:
        """The inner transport belongs to the API server, which closes it."""

    async def _read(self, target: Target) -> JsonObject | None:
        """The object as it is now: the difference is then what the write did, not what somebody did before it."""
        if target.name is None:
            return None
        response = await self._inner.request(HttpRequest(method="GET", path=target.object_path))
        return as_object(parse_json(response.body)) if response.status == 200 else None


def _is_dry_run(request: HttpRequest) -> bool:
    if any(key == "dryRun" for key, _ in request.query):
        return True
    options = parse_json(request.body) if request.method == "DELETE" else None
    return isinstance(options, Mapping) and bool(options.get("dryRun"))


def _verb(request: HttpRequest, target: Target) -> Verb:
    match request.method:
        case "POST":
            return "create"
        case "PUT":
            return "replace"
        case "DELETE":
            return "delete" if target.name is not None else "delete_collection"
        case _:
            content_type = request.headers.get("content-type", "")
            return "apply" if content_type.startswith("application/apply-patch") else "patch"


def _action(request: HttpRequest, response: HttpResponse, target: Target, before: JsonObject | None) -> Action:
    verb = _verb(request, target)
    body: Json = parse_json(request.body)
    answer = as_object(parse_json(response.body))
    refused = response.status >= 400
    gone = verb in {"delete", "delete_collection"}
    result = before if gone else None if refused else answer
    candidates = [before, result] if target.subresource else [result, before]  # a scale write answers with a Scale
    if verb in {"create", "replace", "apply"}:
        candidates.append(as_object(body))
    named = next((document for document in candidates if text_at(document, "kind")), None)
    return Action(
        verb=verb,
        group=target.group,
        version=target.version,
        plural=target.plural,
        kind=text_at(named, "kind") or target.plural,
        namespace=target.namespace,
        name=target.name or text_at(result, "metadata", "name") or text_at(as_object(body), "metadata", "name") or None,
        subresource=target.subresource,
        body=body,
        before=before,
        object=result,
        code=response.status,
        message=_message(answer, target) if refused else "",
    )


def _message(answer: JsonObject | None, target: Target) -> str:
    message = text_at(answer, "message")
    if (target.group, target.plural) == ("", "secrets"):  # a patch that is refused is quoted with its outcome
        return _QUOTED.sub("Invalid value: (hidden)", message)
    return message
