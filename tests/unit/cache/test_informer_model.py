"""Random histories of a server and of the network before it, against a dict.

The invariants, whatever happens on the way:
    * after things have been quiet for a while the store has what the server has, and so does whoever listened;
    * of each key a listener hears additions, modifications and deletions that fit: nothing is deleted or modified that
      was not added, no version comes before an older one, and every version told of is one that the server had;
    * never half a list: nothing is told to be deleted that was there all the time, and at the first sync everything
      is there that was there before it began and still is.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap

from failing_network import status
from opsdk.cache import Change, Informer, ObjectAdded, ObjectDeleted, ObjectModified, ReflectorOptions
from opsdk.client import ApiClient, HttpRequest, HttpResponse, HttpStream
from opsdk.errors import ApiConnectionError
from opsdk.models import metadata_of, metadata_only
from opsdk.protocols import KubeObject
from opsdk.testing import ApiServer
from opsdk.testing.virtual_time import BackendOptions, virtual_asyncio_options, virtual_trio_options
from opsdk.types import MergePatch

NAMES: Final = "abcde"


@dataclass(frozen=True)
class Write:
    """What somebody does to one object: makes it, changes it, moves it in or out of the selection, deletes it."""

    name: str
    what: str


@dataclass(frozen=True)
class Sleep:
    seconds: float


@dataclass(frozen=True)
class Cut:
    """All streams break; `lines`: the next one as well, in the middle of the line after so many."""

    lines: int | None


@dataclass(frozen=True)
class Silence:
    """No stream delivers anything, for so long."""

    seconds: float


@dataclass(frozen=True)
class Compact:
    """The server forgets its history: watches and pages that go on from there are gone."""


@dataclass(frozen=True)
class Refuse:
    """So many lists or watches are answered like this."""

    verb: Literal["list", "watch"]
    code: int
    times: int


@dataclass(frozen=True)
class Between:
    """Before the next page of a list is answered, this happens; and perhaps its token expires."""

    writes: tuple[Write, ...]
    compact: bool


@dataclass(frozen=True)
class Noise:
    """Streams repeat lines, and send bookmarks of the past."""

    on: bool


Step: TypeAlias = Write | Sleep | Cut | Silence | Compact | Refuse | Between | Noise

WRITES = st.builds(Write, st.sampled_from(NAMES), st.sampled_from(["make", "make", "touch", "leave", "drop", "renew"]))
STEPS: st.SearchStrategy[Step] = st.one_of(
    WRITES,
    WRITES,
    WRITES,
    st.builds(Sleep, st.sampled_from([0.0, 0.3, 2.0, 70.0])),
    st.builds(Cut, st.sampled_from([None, 0, 1, 3])),
    st.builds(Silence, st.sampled_from([5.0, 200.0])),
    st.builds(Compact),
    st.builds(Refuse, st.sampled_from(["list", "watch"]), st.sampled_from([0, 410, 429, 500, 504]), st.integers(1, 3)),
    st.builds(Between, st.lists(WRITES, max_size=3).map(tuple), st.booleans()),
    st.builds(Noise, st.booleans()),
)


class Cluster:
    """The server, and all that was ever true of it."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self._client = server.client()
        self.now: dict[str, tuple[str, int]] = {}  # what is selected: uid and version by name
        self.all: dict[str, str] = {}  # whether it is selected or not: the tier by name
        self.versions: defaultdict[str, set[int]] = defaultdict(set)
        self.ended: set[str] = set()

    async def write(self, write: Write) -> None:
        name = write.name
        if write.what == "make" and name not in self.all:
            await self._make(name)
        elif name not in self.all:
            return
        elif write.what == "touch":
            await self._patch(name, self.all[name])
        elif write.what == "leave":
            await self._patch(name, "db" if self.all[name] == "web" else "web")
        elif write.what in {"drop", "renew"}:
            await self._client.delete(ConfigMap, name, namespace="default")
            del self.all[name]
            self._out(name)
            if write.what == "renew":
                await self._make(name)

    async def _make(self, name: str) -> None:
        metadata = ObjectMeta(name=name, namespace="default", labels={"tier": "web"})
        self._seen(name, "web", await self._client.create(ConfigMap(metadata=metadata)))

    async def _patch(self, name: str, tier: str) -> None:
        version = self.server.resource_version  # something that differs every time
        patch = MergePatch({"metadata": {"labels": {"tier": tier}}, "data": {"at": version}})
        self._seen(name, tier, await self._client.patch(ConfigMap, name, patch, namespace="default"))

    def _seen(self, name: str, tier: str, stored: ConfigMap) -> None:
        metadata = metadata_of(stored)
        self.all[name] = tier
        if tier == "web":
            uid, version = metadata.uid or "", int(metadata.resourceVersion or "0")
            self.now[name] = (uid, version)
            self.versions[uid].add(version)
        else:
            self._out(name)

    def _out(self, name: str) -> None:
        found = self.now.pop(name, None)
        if found is not None:
            self.ended.add(found[0])


class Weather:
    """The network: passes requests on, or does what the history says."""

    def __init__(self, cluster: Cluster, source: random.Random) -> None:
        self._cluster = cluster
        self._inner = cluster.server.transport()
        self._random = source
        self._refusals: dict[str, list[int]] = {"list": [], "watch": []}
        self._between: list[Between] = []
        self._lines: list[int] = []
        self._silent_until = 0.0
        self._cut = anyio.Event()
        self.noise = False

    def heal(self) -> None:
        """From now on all is well."""
        self._refusals = {"list": [], "watch": []}
        self._between.clear()
        self._lines.clear()
        self._silent_until = 0.0
        self.noise = False

    def cut(self, lines: int | None) -> None:
        self._lines += [] if lines is None else [lines]
        self._cut.set()
        self._cut = anyio.Event()

    def silence(self, seconds: float) -> None:
        self._silent_until = anyio.current_time() + seconds

    def refuse(self, refuse: Refuse) -> None:
        self._refusals[refuse.verb] += [refuse.code] * refuse.times

    def between(self, between: Between) -> None:
        self._between.append(between)

    def _refusal(self, verb: str) -> HttpResponse | None:
        if not self._refusals[verb]:
            return None
        code = self._refusals[verb].pop()
        if not code:
            raise ApiConnectionError("the peer reset the connection", sent=True)
        return status(code, {410: "Expired", 504: "Timeout"}.get(code, "Other"))

    async def request(self, request: HttpRequest, /) -> HttpResponse:
        if "continue" in dict(request.query) and self._between:
            between = self._between.pop(0)
            for write in between.writes:
                await self._cluster.write(write)
            if between.compact:
                self._cluster.server.compact()
        return self._refusal("list") or await self._inner.request(request)

    @asynccontextmanager
    async def stream(self, request: HttpRequest, /) -> AsyncGenerator[HttpStream]:
        refused = self._refusal("watch")
        if refused is not None:
            yield HttpStream(status=refused.status, headers={}, chunks=_pieces([refused.body]))
            return
        lines = self._lines.pop(0) if self._lines else None
        async with self._inner.stream(request) as stream:
            found = _Stream(self, self._cut, stream.chunks, lines)
            yield HttpStream(status=stream.status, headers=stream.headers, chunks=found)

    async def aclose(self) -> None:
        """There is nothing to close."""

    def noisy(self, line: bytes) -> list[bytes]:
        """The line, perhaps twice, perhaps with a bookmark of long ago in between, perhaps in two pieces."""
        if not self.noise:
            return [line]
        stale = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%d"}}}\n' % self._random.choice([0, 1, 2])
        initial = b"initial-events-end" in line
        repeated = [line, *([] if initial else [stale]), *([] if initial else [line])]
        cut = self._random.randrange(len(line))
        return self._random.choice([[line], repeated, [line[:cut], line[cut:]]])

    async def wait_for_noise(self) -> None:
        """While there is silence."""
        while (left := self._silent_until - anyio.current_time()) > 0:  # noqa: ASYNC110 - it may last longer by then
            await anyio.sleep(left)


async def _pieces(pieces: Sequence[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


class _Stream(AsyncIterator[bytes]):
    def __init__(self, weather: Weather, cut: anyio.Event, chunks: AsyncIterator[bytes], lines: int | None) -> None:
        self._weather = weather
        self._cut = cut
        self._chunks = chunks
        self._lines = lines
        self._ready: list[bytes] = []

    async def __anext__(self) -> bytes:
        if self._lines == -1:
            raise ApiConnectionError("the peer reset the connection", sent=True)
        if self._ready:
            return self._ready.pop(0)
        found: list[bytes] = []

        async def read() -> None:
            chunk = await anext(self._chunks, None)
            await self._weather.wait_for_noise()
            found.extend([] if chunk is None else [chunk])
            tasks.cancel_scope.cancel()

        async def until_cut() -> None:
            await self._cut.wait()
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            tasks.start_soon(until_cut)
        if not found:
            raise StopAsyncIteration
        if self._lines is None:
            self._ready = self._weather.noisy(found[0])
            return self._ready.pop(0)
        self._lines -= 1
        return found[0][: len(found[0]) // 2] if self._lines == -1 else found[0]


class Listener:
    """Hears of changes, and checks that they fit."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.view: dict[str, tuple[str, int]] = {}

    def __call__(self, change: Change[KubeObject]) -> None:
        match change:
            case ObjectAdded(new=new):
                assert new.header.name not in self.view, f"{new} was added twice"
                assert new.header.order in self._cluster.versions[new.header.uid], f"{new} never was"
                self.view[new.header.name] = (new.header.uid, new.header.order)
            case ObjectModified(old=old, new=new):
                assert self.view[old.header.name] == (old.header.uid, old.header.order)
                assert new.header.uid == old.header.uid
                assert new.header.order > old.header.order, f"{new} came after {old}"
                assert new.header.order in self._cluster.versions[new.header.uid], f"{new} never was"
                self.view[new.header.name] = (new.header.uid, new.header.order)
            case ObjectDeleted(old=old):
                uid, _ = self.view.pop(old.header.name)
                assert uid == old.header.uid, f"{old} was deleted, and another one was there"
                assert uid in self._cluster.ended, f"{old} was told to be deleted, and is there"


class Failures:
    """What a handler raised: informers log it, and go on."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self.raised: list[Exception] = []

    def __call__(self, change: Change[KubeObject]) -> None:
        try:
            self._listener(change)
        except Exception as error:
            self.raised.append(error)
            raise


def stored(informer: Informer[KubeObject]) -> dict[str, tuple[str, int]]:
    return {found.header.name: (found.header.uid, found.header.order) for found in informer.store.select()}


async def play(steps: list[Step], seed: int, *, streams: bool, partial: bool, gone_is_http: bool) -> None:
    source = random.Random(seed)
    async with ApiServer(expired_watch_is_http=gone_is_http) as server:
        cluster = Cluster(server)
        weather = Weather(cluster, source)
        for name in source.sample(NAMES, 3):
            await cluster.write(Write(name, "make"))
        before = dict(cluster.now)
        options = ReflectorOptions(page_size=2, stream_lists=streams)
        kind: type[KubeObject] = metadata_only(ConfigMap) if partial else ConfigMap
        informer = Informer[KubeObject](ApiClient(weather), kind, labels="tier=web", options=options)
        listener = Listener(cluster)
        failures = Failures(listener)
        informer.add_handler(failures)

        async def check_first_sync() -> None:
            await informer.wait_synced()
            has = stored(informer)
            for name, (uid, _) in before.items():
                assert uid in cluster.ended or has[name][0] == uid, f"{name} was not in the first list"

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.run)
            tasks.start_soon(check_first_sync)
            for step in steps:
                await take(step, cluster, weather)
            weather.heal()
            with anyio.move_on_after(2_000):
                while stored(informer) != cluster.now or informer.trouble or not informer.synced:  # noqa: ASYNC110 - nothing tells
                    await anyio.sleep(5)
            await anyio.sleep(1)
            assert stored(informer) == cluster.now
            assert informer.synced
            assert not failures.raised, failures.raised[0]
            assert listener.view == cluster.now
            assert informer.last_error is None
            late = Listener(cluster)
            informer.add_handler(late)
            assert late.view == cluster.now
            tasks.cancel_scope.cancel()


async def take(step: Step, cluster: Cluster, weather: Weather) -> None:
    match step:
        case Write():
            await cluster.write(step)
        case Sleep(seconds=seconds):
            await anyio.sleep(seconds)
        case Cut(lines=lines):
            weather.cut(lines)
        case Silence(seconds=seconds):
            weather.silence(seconds)
        case Compact():
            cluster.server.compact()
        case Refuse():
            weather.refuse(step)
        case Between():
            weather.between(step)
        case Noise(on=on):
            weather.noise = on


@pytest.mark.parametrize("backend", [virtual_asyncio_options, virtual_trio_options], ids=["asyncio", "trio"])
@pytest.mark.parametrize("streams", [False, True], ids=["pages", "streams"])
@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(STEPS, max_size=25),
    seed=st.integers(0, 2**16),
    partial=st.booleans(),
    gone_is_http=st.booleans(),
)
def test_w01_w05_w07_w13_w16_an_informer_agrees_with_the_server_after_any_history(
    backend: Callable[[], BackendOptions],
    streams: bool,  # noqa: FBT001 - given by pytest
    steps: list[Step],
    seed: int,
    partial: bool,  # noqa: FBT001 - given by hypothesis
    gone_is_http: bool,  # noqa: FBT001 - given by hypothesis
) -> None:
    name, options = backend()

    async def main() -> None:
        await play(steps, seed, streams=streams, partial=partial, gone_is_http=gone_is_http)

    anyio.run(main, backend=name, backend_options=options)
