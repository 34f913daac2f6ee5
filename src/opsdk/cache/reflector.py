"""Follows one kind at the API server: lists it, by pages or as a stream, then watches, for ever.

Guarantees:
    * All that happens to the objects reaches the sink, if not as itself then as the difference that a list finds.
    * A list that fails half-way is started over; the sink hears of its end only when it was complete.
    * A server that does not stream lists is asked for pages at once, and not asked for a stream again for an hour.
    * However a watch ends, it is resumed from the last version seen; only a version that has become too old needs a
      new list. Failures and empty watches back off, with jitter.
    * A peer that is silent for longer than the inactivity limit is given up. When that happens twice in a row, although
      the watches were accepted, there is a new list: so a server without bookmarks, a proxy that holds streams back,
      and a server that was restored from a backup and waits for a version of its past, cost minutes and no more.

Not promised: that every single version of an object is seen.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal, Protocol, TypeAlias, final

import anyio
import msgspec

from opsdk._backend import current_loop
from opsdk.cache._streaming import ENDS_INITIAL_EVENTS, StreamingRefusals
from opsdk.cache.header import order_of
from opsdk.client import RawClient, RawEvent
from opsdk.errors import (
    ApiConnectionError,
    ApiError,
    ApiProtocolError,
    ApiStatusError,
    ApiTimeoutError,
    ConfigurationError,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
)
from opsdk.models import ResourceInfo

__all__ = ["Reflector", "ReflectorOptions", "ReflectorSink", "Verb"]

Verb: TypeAlias = Literal["list", "watch"]
"""What a reflector needs to be allowed to do."""

_logger = logging.getLogger(__name__)

_FIRST_BACKOFF_SECONDS: Final = 0.8
_LONGEST_BACKOFF_SECONDS: Final = 30.0
_LONGEST_UNSERVED_SECONDS: Final = 7.5
"""While the kind is not served, or not allowed: somebody installs it soon, and waits. With jitter under 10 s."""
_LONG_WATCH_SECONDS: Final = 10.0
"""A watch that lasted so long ended for good reasons."""
_SILENT_WATCHES: Final = 2
"""After so many in a row it is listed again: perhaps nobody will ever tell what comes after that version."""
_BROKEN_STREAMS: Final = 2
"""After so many streamed lists in a row that were not completed, one in pages: something may limit all streams."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ReflectorOptions:
    """How a reflector talks to the server.

    Args:
        page_size: Objects in one page of a list. Default 500.
        stream_lists: Ask for lists as streams (WatchList) where the server offers that, else for pages. Default no:
            pages cost the operator less; see `docs/design/streamed-lists.md`.
        watch_timeout: The server is asked to end a watch after this long, up to twice, at random. Default 5 min.
        inactivity: A watch that is silent for longer is given up. Default 90 s: servers send a bookmark about once a
            minute, which a limit of one minute would cut off.

    Raises:
        ConfigurationError: One of them is not positive, or of another type.
    """

    page_size: int = 500
    stream_lists: bool = False
    watch_timeout: timedelta = timedelta(minutes=5)
    inactivity: timedelta = timedelta(seconds=90)

    def __post_init__(self) -> None:
        faults: list[str] = []
        sizes: dict[str, object] = {"page_size": self.page_size}
        choices: dict[str, object] = {"stream_lists": self.stream_lists}
        durations: dict[str, object] = {"watch_timeout": self.watch_timeout, "inactivity": self.inactivity}
        for name, value in sizes.items():
            if not isinstance(value, int) or isinstance(value, bool):
                faults.append(f"{name} is {value!r}; give an int")
            elif value < 1:
                faults.append(f"{name} is {value}; it must be at least 1")
        faults += [
            f"{name} is {value!r}; give True or False" for name, value in choices.items() if not isinstance(value, bool)
        ]
        for name, value in durations.items():
            if not isinstance(value, timedelta):
                faults.append(f"{name} is {value!r}; give a timedelta")
            elif value <= timedelta(0):
                faults.append(f"{name} is {value}; it must be positive")
        if faults:
            raise ConfigurationError("ReflectorOptions: " + "; ".join(faults))


class ReflectorSink(Protocol):
    """Where a reflector's findings go."""

    def list_started(self) -> None:
        """A list begins, or begins again: forget the pages of the one before."""
        ...

    def page(self, items: Sequence[bytes], /) -> None:
        """One page of it."""
        ...

    def initial(self, event: RawEvent, /) -> None:
        """One event of a list that comes as a stream: an object that is there, or what happened to it meanwhile."""
        ...

    def list_ended(self, resource_version: str, /) -> None:
        """It is complete: what was in none of its pages or events is gone."""
        ...

    def event(self, event: RawEvent, /) -> str:
        """A watch event other than a bookmark; returns the object's resourceVersion, empty if it has none."""
        ...

    def connected(self) -> None:
        """A watch was accepted; nothing has come through it yet."""
        ...

    def bookmark(self, resource_version: str, /) -> None:
        """Everything up to this version has been seen; empty when the bookmark does not say."""
        ...

    def failed(self, verb: Verb, error: ApiError, /) -> None:
        """The server could not be read, by a list or by a watch; it will be tried again."""
        ...


class _BookmarkMeta(msgspec.Struct):
    resource_version: str = msgspec.field(name="resourceVersion", default="")
    annotations: dict[str, str] | None = None

    @property
    def ends_initial_events(self) -> bool:
        return self.annotations is not None and self.annotations.get(ENDS_INITIAL_EVENTS) == "true"


class _Bookmark(msgspec.Struct):
    metadata: _BookmarkMeta


_BOOKMARKS: Final = msgspec.json.Decoder(_Bookmark)


@final
class _Backoff:
    """Waits that double, with jitter."""

    def __init__(self, source: random.Random) -> None:
        self._random = source
        self._failures = 0

    def reset(self) -> None:
        self._failures = 0

    def next_seconds(self, longest: float) -> float:
        seconds = min(_FIRST_BACKOFF_SECONDS * 2.0 ** min(self._failures, 16), longest)
        self._failures += 1
        return seconds * self._random.uniform(0.7, 1.3)


@final
class _Silence:
    """Cancels a scope that nothing has been heard in for a time, or a little longer.

    A deadline is moved only when it has come that much nearer: moving it costs as much as reading an event.
    """

    def __init__(self, scope: anyio.CancelScope, seconds: float) -> None:
        self._scope = scope
        self._slack = seconds / 64
        self._seconds = seconds + self._slack
        self._clock = current_loop().time
        self._move()

    def broken(self) -> None:
        """Something was heard."""
        if self._clock() >= self._moves_at:
            self._move()

    def _move(self) -> None:
        now = self._clock()
        self._scope.deadline = now + self._seconds
        self._moves_at = now + self._slack


@final
class Reflector:
    """Keeps a sink up to date with one kind, in one namespace or all, with or without a label selector.

    Args:
        raw: Sends the requests.
        resource: The kind.
        sink: Is told what is found; called on the loop.
        namespace: None: all namespaces.
        labels: A selector; None: all objects.
        metadata_only: Whether objects come as PartialObjectMetadata.
        options: See `ReflectorOptions`.
        refusals: What the server is known not to stream; shared by reflectors of one server.
        source: Where jitter comes from; for tests.
    """

    def __init__(
        self,
        raw: RawClient,
        resource: ResourceInfo,
        sink: ReflectorSink,
        *,
        namespace: str | None = None,
        labels: str | None = None,
        metadata_only: bool = False,
        options: ReflectorOptions | None = None,
        refusals: StreamingRefusals | None = None,
        source: random.Random | None = None,
    ) -> None:
        self._raw = raw
        self._resource = resource
        self._sink = sink
        self._namespace = namespace
        self._labels = labels
        self._metadata_only = metadata_only
        self._options = ReflectorOptions() if options is None else options
        self._refusals = StreamingRefusals() if refusals is None else refusals
        # Jitter, not a secret; drawn from the process's own numbers, so that a test that seeds those can repeat a run.
        self._random = random.Random(random.getrandbits(64)) if source is None else source  # noqa: S311
        self._backoff = _Backoff(self._random)
        self._version = ""
        self._progressed = False
        self._accepted = False
        self._silent = 0
        self._broken_streams = 0

    async def run(self) -> None:
        """Follow the kind until cancelled."""
        while True:
            began = anyio.current_time()
            self._progressed = self._accepted = False
            failure: ApiError | None = None
            try:
                if self._version:
                    await self._watch()
                elif not await self._streamed():
                    await self._list()
                    continue
            except GoneError as error:
                _logger.info("%s: listing again: %s", self._resource, error)
                self._version = ""
                failure = error
            except ApiError as error:
                self._sink.failed("watch" if self._version else "list", error)
                failure = error
                if self._accepted and isinstance(error, ApiTimeoutError):
                    self._silent += 1
                if self._silent >= _SILENT_WATCHES:
                    _logger.info("%s: listing again: %d watches in a row were silent", self._resource, self._silent)
                    self._version, self._silent = "", 0
            lasted = anyio.current_time() - began
            if self._progressed or lasted >= _LONG_WATCH_SECONDS:
                self._backoff.reset()
            if failure is not None or lasted < _LONG_WATCH_SECONDS:
                await self._pause(failure)

    async def _pause(self, error: ApiError | None) -> None:
        unserved = isinstance(error, NotFoundError | ForbiddenError)
        seconds = self._backoff.next_seconds(_LONGEST_UNSERVED_SECONDS if unserved else _LONGEST_BACKOFF_SECONDS)
        if isinstance(error, ApiStatusError) and error.retry_after is not None:
            seconds = max(seconds, min(error.retry_after.total_seconds(), _LONGEST_BACKOFF_SECONDS))
        await anyio.sleep(seconds)

    async def _streamed(self) -> bool:
        """List and watch in one stream; False: that has to be a list in pages."""
        if not self._options.stream_lists or self._broken_streams >= _BROKEN_STREAMS:
            return False
        if self._refusals.has(self._resource):
            return False
        try:
            await self._watch()
        except ApiError as error:
            if self._version:
                raise
            if isinstance(error, ApiStatusError) and self._refusals.asks_for_pages(self._resource, error):
                _logger.debug("%s: the server does not stream this list: %s", self._resource, error)
                return False
            self._broken_streams += 1
            raise
        if not self._version:
            self._broken_streams += 1
            msg = f"the streamed list of {self._resource} ended before it was complete"
            raise ApiConnectionError(msg)
        return True

    async def _list(self) -> None:
        limit: int | None = self._options.page_size
        expired = 0
        while True:
            self._sink.list_started()
            token = ""
            version = ""
            try:
                while True:
                    # Without a version: the newest state, never "too large a resource version".
                    page = await self._raw.list_page(
                        self._resource,
                        namespace=self._namespace,
                        labels=self._labels,
                        limit=limit,
                        continue_token=token or None,
                        metadata_only=self._metadata_only,
                    )
                    self._sink.page(page.items)
                    version = version or page.resource_version
                    token = page.continue_token
                    del page  # not while the next one comes
                    if not token:
                        break
            except GoneError:
                if not token:
                    raise
                expired += 1
                # The second time in one piece, which cannot expire.
                limit = self._options.page_size if expired == 1 else None
                continue
            if not version:
                msg = f"the list of {self._resource} has no resourceVersion to watch from"
                raise ApiProtocolError(msg)
            self._listed(version)
            return

    def _listed(self, version: str) -> None:
        self._version = version
        self._broken_streams = 0
        self._sink.list_ended(version)

    async def _watch(self) -> None:
        """Watch from the version that is known; from none, list in the same stream first."""
        options = self._options
        if not self._version:
            self._sink.list_started()
        async with self._raw.watch(
            self._resource,
            namespace=self._namespace,
            labels=self._labels,
            resource_version=self._version or None,
            send_initial_events=not self._version,
            timeout=options.watch_timeout * self._random.uniform(1.0, 2.0),
            answer_within=options.inactivity,
            metadata_only=self._metadata_only,
        ) as events:
            if self._version:
                self._sink.connected()
                self._accepted = True
            with anyio.CancelScope() as scope:
                silence = _Silence(scope, options.inactivity.total_seconds())
                async for event in events:
                    self._silent = 0
                    if event.type == "BOOKMARK":
                        self._bookmark(_bookmark(event.object))
                    elif self._version:
                        self._move(self._sink.event(event))
                    else:
                        self._sink.initial(event)
                    silence.broken()
        if scope.cancelled_caught:
            msg = f"watch of {self._resource}: silent for {options.inactivity}, so the connection was given up"
            raise ApiTimeoutError(msg)

    def _bookmark(self, bookmark: _BookmarkMeta) -> None:
        version = bookmark.resource_version
        if self._version:
            self._move(version)
            self._sink.bookmark(version)
        elif not bookmark.ends_initial_events:
            # A server that does not know what it was asked for watches from now on: there is no list to wait for.
            raise InvalidError(422, message="the server sends bookmarks before the initial events have ended")
        elif not version:
            msg = f"the streamed list of {self._resource} has no resourceVersion to watch from"
            raise ApiProtocolError(msg)
        else:
            self._accepted = True
            self._listed(version)

    def _move(self, version: str) -> None:
        if version and version != self._version and order_of(version) >= order_of(self._version):
            self._version = version
            self._progressed = True


def _bookmark(raw: bytes) -> _BookmarkMeta:
    try:
        return _BOOKMARKS.decode(raw).metadata
    except msgspec.MsgspecError as error:
        msg = f"a bookmark cannot be read: {error}"
        raise ApiProtocolError(msg) from error
