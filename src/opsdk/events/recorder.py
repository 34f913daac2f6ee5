"""Records Kubernetes events.

The objects are `v1` Events with a count, which every `kubectl describe` shows as `(x12 over 5m)`. (An
`events.k8s.io/v1` Event that is written again and again needs a series, and older clients show it once.)
"""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final, Literal, Protocol, TypeAlias, final

import anyio
import msgspec
from lightkube.models.core_v1 import EventSource, ObjectReference
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Event

from opsdk import clock
from opsdk.errors import ForbiddenError, LeadershipLostError, NotFoundError, ObjectError, OpsdkError
from opsdk.events._series import Group, Series, SeriesBook, Subject
from opsdk.events._text import cut_bytes, event_name
from opsdk.models import resource_of
from opsdk.protocols import EventType, KubeObject, MetadataView, Writer
from opsdk.types import JsonObject, MergePatch

__all__ = ["EventObserver", "EventOutcome", "Recorder"]

_logger = logging.getLogger(__name__)

EventOutcome: TypeAlias = Literal["created", "counted", "held", "failed"]
"""What became of an event: an object, a higher count on one, a count that the next write carries, or nothing."""

_MAX_MESSAGE_BYTES: Final = 1024
_MAX_REASON_BYTES: Final = 128
_NAMESPACE_OF_CLUSTER_SCOPED: Final = "default"
_FREE_REPEATS: Final = 25
_HELD_SECONDS: Final = 30.0
_TIMEOUT_SECONDS: Final = 10.0
_GROUPS: Final = 4096


class EventObserver(Protocol):
    """Is told what becomes of each event."""

    def event(self, type_: EventType, outcome: EventOutcome, /) -> None:
        """One event was recorded."""
        ...


@final
class _Turn(msgspec.Struct):
    lock: anyio.Lock = msgspec.field(default_factory=anyio.Lock)
    users: int = 0


@final
class Recorder:
    """Records events about objects; implements `EventRecorder`.

    *Guarantees*: events about one object are written in the order of the calls. The same event again (object, type,
    reason, message) raises the count of the first one's object; more than ten texts of one reason within ten minutes
    share one object. From the 26th repetition on an object is written at most every 30 s; the count is kept in between.
    Nothing that the API server answers, or fails to answer within ten seconds, is raised: it is logged.

    *Not promised*: that an event arrives. Events are for people; state belongs into status.

    Args:
        writer: Where events are written.
        component: Who reports them, as `kubectl describe` shows it (`From`).
        instance: Which process of it; default: the host's name, in a cluster the pod's.
        observer: Is told what becomes of each event.
        redact: Is given each message before it is written, and returns what may be seen of it.
    """

    def __init__(
        self,
        writer: Writer,
        *,
        component: str,
        instance: str | None = None,
        observer: EventObserver | None = None,
        redact: Callable[[str], str] | None = None,
    ) -> None:
        self._writer = writer
        self._component = component
        self._instance = cut_bytes(instance if instance is not None else socket.gethostname(), 128)
        self._observer = observer
        self._redact = redact
        self._book = SeriesBook(_GROUPS)
        self._turns: dict[Subject, _Turn] = {}

    async def record(self, obj: KubeObject, /, type: EventType, reason: str, message: str) -> None:  # noqa: A002 - the API's word
        """Record an event about `obj`.

        Args:
            obj: What it is about; needs a name, and should have been read (its uid ties the event to it).
            type: `Normal` or `Warning`.
            reason: Why, in one CamelCase word; cut to 128 bytes.
            message: For people; cut to 1,024 bytes.
        """
        await self.record_about(obj.__class__, obj.metadata or ObjectMeta(), type, reason, message)

    async def record_about(
        self,
        kind: type[KubeObject],
        metadata: MetadataView,
        /,
        type: EventType,  # noqa: A002 - the API's word
        reason: str,
        message: str,
    ) -> None:
        """Like `record`, for an object of which only the metadata can be read.

        Args:
            kind: Its class.
            metadata: Its metadata.
            type: `Normal` or `Warning`.
            reason: Why, in one CamelCase word.
            message: For people.
        """
        outcome: EventOutcome = "failed"
        try:
            with anyio.fail_after(_TIMEOUT_SECONDS):
                outcome = await self._record(kind, metadata, type, reason, message)
        except (OpsdkError, TimeoutError) as error:
            expected = isinstance(error, LeadershipLostError) or _namespace_terminates(error)
            why = str(error) or f"no answer in {_TIMEOUT_SECONDS:g} s"  # a timeout of our own has no text
            _logger.log(
                logging.DEBUG if expected else logging.WARNING, "event %s %s was not recorded: %s", type, reason, why
            )
        finally:
            if self._observer is not None:
                self._observer.event(type, outcome)

    async def _record(
        self, kind: type[KubeObject], meta: MetadataView, type_: EventType, reason: str, message: str
    ) -> EventOutcome:
        info = resource_of(kind)
        if not meta.name:
            raise ObjectError(f"{info.kind} has no name, so that no event can be about it")
        subject = Subject(info.api_version, info.kind, meta.namespace, meta.name, meta.uid or "")
        group = Group(subject, type_, cut_bytes(reason, _MAX_REASON_BYTES))
        shown = message if self._redact is None else self._redact(message)
        async with self._turn(subject):
            at, now = anyio.current_time(), clock.now()
            series = self._book.series(group, cut_bytes(shown, _MAX_MESSAGE_BYTES), at=at, now=now)
            series.count += 1
            if series.count > _FREE_REPEATS and at - series.written_at < _HELD_SECONDS:
                return "held"
            text = cut_bytes(series.text(shown), _MAX_MESSAGE_BYTES)
            outcome = await self._write(group, series, text, now, meta.resourceVersion)
            series.written_at = at
            return outcome

    async def _write(
        self, group: Group, series: Series, text: str, now: datetime, resource_version: str | None
    ) -> EventOutcome:
        subject = group.subject
        namespace = subject.namespace or _NAMESPACE_OF_CLUSTER_SCOPED
        if series.name:
            change: JsonObject = {
                "count": series.count,
                "lastTimestamp": f"{now:%Y-%m-%dT%H:%M:%SZ}",
                "message": text,
            }
            try:
                await self._writer.patch(Event, series.name, MergePatch(change), namespace=namespace)
            except NotFoundError:
                series.name = ""  # the server lets events go after an hour: go on with a new object
            else:
                return "counted"
        name = event_name(subject.name)
        await self._writer.create(
            Event(
                metadata=ObjectMeta(name=name, namespace=namespace),
                involvedObject=ObjectReference(
                    apiVersion=subject.api_version,
                    kind=subject.kind,
                    namespace=subject.namespace,
                    name=subject.name,
                    uid=subject.uid or None,
                    resourceVersion=resource_version,
                ),
                type=group.type,
                reason=group.reason,
                message=text,
                count=series.count,
                firstTimestamp=series.first.replace(microsecond=0),
                lastTimestamp=now.replace(microsecond=0),
                source=EventSource(component=self._component),
                reportingComponent=self._component,
                reportingInstance=self._instance,
            )
        )
        series.name = name
        return "created"

    @asynccontextmanager
    async def _turn(self, subject: Subject) -> AsyncGenerator[None]:
        """One event about an object at a time, in the order of the calls."""
        turn = self._turns.setdefault(subject, _Turn())
        turn.users += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.users -= 1
            if not turn.users:
                self._turns.pop(subject, None)


def _namespace_terminates(error: BaseException) -> bool:
    return isinstance(error, ForbiddenError) and any(cause.reason == "NamespaceTerminating" for cause in error.causes)
