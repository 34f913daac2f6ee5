"""Watches: what happened to a collection, as a stream of lines.

*Guarantees*: every change after the start version is delivered once and in order, or the stream ends with an ERROR
event of code 410; a bookmark's version is never ahead of what was delivered.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from typing import Final, final

import anyio

from opsdk.testing.apiserver._calls import Call
from opsdk.testing.apiserver._cluster import Cluster
from opsdk.testing.apiserver._fields import forbidden
from opsdk.testing.apiserver._json import Document, encode
from opsdk.testing.apiserver._reads import list_options_error, parse_version, select
from opsdk.testing.apiserver._render import render_document, render_object
from opsdk.testing.apiserver._selectors import Selection
from opsdk.testing.apiserver._status import StatusError, bad_request, expired
from opsdk.testing.apiserver._store import Change, Stored, TooOldError, at_revision

__all__ = ["Watch", "open_watch"]

_BOOKMARK_SECONDS: Final = 60.0
_DEFAULT_TIMEOUT_SECONDS: Final = 1800.0
_TRUE: Final = frozenset({"true", "1", "True"})


def open_watch(cluster: Cluster, call: Call, selectable: Mapping[str, str]) -> Watch:
    """Start a watch at the version that the request names.

    Raises:
        StatusError: 400 or 422, the request's options are not valid.
    """
    query = call.query
    chosen = select(call, selectable)
    version = query.get("resourceVersion", "")
    match = query.get("resourceVersionMatch", "")
    initial = query.get("sendInitialEvents", "")
    if initial and match != "NotOlderThan":
        raise list_options_error(
            forbidden(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )
        )
    if match and not initial:
        raise list_options_error(
            forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )
        )
    start = parse_version(version)
    timeout = query.get("timeoutSeconds", "")
    if timeout and not timeout.isdigit():
        raise bad_request(f'strconv.ParseInt: parsing "{timeout}": invalid syntax')
    return Watch(
        cluster,
        call,
        chosen,
        start=start,
        send_initial=initial in _TRUE or (not initial and start == 0),
        marks_initial_end=initial in _TRUE,
        bookmarks=query.get("allowWatchBookmarks", "") in _TRUE,
        timeout_seconds=float(timeout) if timeout and int(timeout) else _DEFAULT_TIMEOUT_SECONDS,
    )


@final
class Watch:
    """One open watch."""

    def __init__(
        self,
        cluster: Cluster,
        call: Call,
        chosen: Selection,
        *,
        start: int,
        send_initial: bool,
        marks_initial_end: bool,
        bookmarks: bool,
        timeout_seconds: float,
    ) -> None:
        self._cluster = cluster
        self._call = call
        self._chosen = chosen
        self._at = start
        self._send_initial = send_initial
        self._marks_initial_end = marks_initial_end
        self._bookmarks = bookmarks
        self._timeout_seconds = timeout_seconds
        self._rendering = call.rendering
        self._wake = anyio.Event()
        self._ended = False

    def end(self) -> None:
        """Have the stream end, as a server that restarts does."""
        self._ended = True
        self._wake.set()

    def too_old(self) -> StatusError | None:
        """The error that this watch would begin with, because history does not reach back to its start."""
        if self._send_initial:
            return None
        try:
            self._cluster.store.changes_after(self._call.info.storage, self._at)
        except TooOldError:
            return self._gone()
        return None

    async def chunks(self) -> AsyncGenerator[bytes]:
        """The lines of the stream."""
        if self._rendering.of_list:
            return  # no event is a list; kube-apiserver notices when it has said 200
        unsubscribe = self._cluster.store.subscribe(self._call.info.storage, self._on_change)
        deadline = anyio.current_time() + self._timeout_seconds
        bookmark_at = anyio.current_time() + _BOOKMARK_SECONDS if self._bookmarks else math.inf
        try:
            if self._send_initial:
                for initial in self._initial():
                    yield initial
            while not self._ended:
                self._wake = anyio.Event()
                try:
                    changes = self._cluster.store.changes_after(self._call.info.storage, self._at)
                except TooOldError:
                    yield _line("ERROR", encode(self._gone().document()))
                    return
                for change in changes:
                    line = self._event(change)
                    self._at = change.revision
                    if line is not None:
                        yield line
                if changes:
                    continue
                now = anyio.current_time()
                if now >= deadline:
                    if self._bookmarks:
                        yield self._bookmark()
                    return
                if now >= bookmark_at:
                    yield self._bookmark()
                    bookmark_at = now + _BOOKMARK_SECONDS
                if self._call.info.served_uid and not self._still_served():
                    return
                with anyio.move_on_after(min(deadline, bookmark_at) - now):
                    await self._wake.wait()
        finally:
            unsubscribe()

    def _on_change(self) -> None:
        self._wake.set()

    def _still_served(self) -> bool:
        info = self._call.info
        found = self._cluster.registry.find(info.group, info.version, info.plural)
        return found is not None and found.served_uid == info.served_uid

    def _gone(self) -> StatusError:
        floor = self._cluster.store.bucket(self._call.info.storage).floor
        return expired(f"too old resource version: {self._at} ({floor + 1})")

    def _initial(self) -> list[bytes]:
        call = self._call
        lines = [
            self._object_line("ADDED", stored)
            for stored in self._cluster.store.listed(call.info.storage, call.prefix)
            if self._chosen.matches(stored)
        ]
        self._at = self._cluster.store.revision
        if self._marks_initial_end and self._bookmarks:
            lines.append(self._bookmark(initial_end=True))
        return lines

    def _event(self, change: Change) -> bytes | None:
        if not change.after.key.startswith(self._call.prefix):
            return None
        was = change.before is not None and self._chosen.matches(change.before)
        now = not change.deleted and self._chosen.matches(change.after)
        if now:
            return self._object_line("MODIFIED" if was else "ADDED", change.after)
        if not was or change.before is None:
            return None
        # What leaves the selection is shown as it was in it, with the version of the change.
        last = change.after if change.deleted else at_revision(change.before, change.revision)
        return self._object_line("DELETED", last)

    def _object_line(self, event: str, stored: Stored) -> bytes:
        line = _line(event, render_object(self._call.info, stored, self._rendering))
        if self._rendering.headers and self._rendering.form == "table":
            self._rendering = replace(self._rendering, headers=False)
        return line

    def _bookmark(self, *, initial_end: bool = False) -> bytes:
        info = self._call.info
        # All changes up to here were looked at, so nothing of this resource is older than the store's version.
        self._at = max(self._at, self._cluster.store.revision)
        metadata: Document = {"resourceVersion": str(self._at), "creationTimestamp": None}
        if initial_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        document: Document = {"kind": info.kind, "apiVersion": info.api_version, "metadata": metadata}
        return _line("BOOKMARK", render_document(info, document, self._rendering))


def _line(event: str, raw: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (event.encode(), raw)
