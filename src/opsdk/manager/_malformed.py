"""Tells people about objects that do not fit their model: a metric, a log line, an event."""

from __future__ import annotations

import logging
from typing import Final, final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from lightkube.models.meta_v1 import ObjectMeta

from opsdk.cache import Malformed
from opsdk.events import Recorder
from opsdk.metrics import Metrics
from opsdk.models import resource_of

__all__ = ["MalformedReporter"]

_logger = logging.getLogger(__name__)

_BACKLOG: Final = 256


@final
class MalformedReporter:
    """Reports malformed objects. The caches call it on the loop and must not wait, so `run` writes the events.

    Args:
        metrics: Where they are counted.
        recorder: Who writes a Warning `MalformedResource` about each.
    """

    def __init__(self, metrics: Metrics, recorder: Recorder) -> None:
        self._metrics = metrics
        self._recorder = recorder
        self._send: MemoryObjectSendStream[Malformed] | None = None

    def __call__(self, malformed: Malformed, /) -> None:
        """One object does not fit; called once per resourceVersion."""
        self._metrics.malformed(resource_of(malformed.kind).kind)
        _logger.error("malformed object skipped: %s", malformed.error)
        if self._send is not None:
            try:
                self._send.send_nowait(malformed)
            except anyio.WouldBlock:
                _logger.warning("too many malformed objects at once; no event about this one")
            except (anyio.ClosedResourceError, anyio.BrokenResourceError):  # the manager stops
                self._send = None

    async def run(self) -> None:
        """Write events until cancelled."""
        receive: MemoryObjectReceiveStream[Malformed]
        self._send, receive = anyio.create_memory_object_stream[Malformed](_BACKLOG)
        with self._send, receive:
            async for malformed in receive:
                header = malformed.header
                if header is None:
                    continue
                metadata = ObjectMeta(
                    name=header.name,
                    namespace=header.namespace,
                    uid=header.uid or None,
                    resourceVersion=header.resource_version or None,
                )
                await self._recorder.record_about(
                    malformed.kind, metadata, "Warning", "MalformedResource", str(malformed.error)
                )
